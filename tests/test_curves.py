"""Line charts: every value where it belongs, names escaped, nothing from the network."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tsched.curves import HEIGHT, LEFT, PALETTE, RIGHT, WIDTH, Curves, figure


def drawn(curves: Curves) -> ElementTree.Element:
    return ElementTree.fromstring(figure(curves))


def points(curves: Curves) -> list[list[tuple[float, float]]]:
    found = []
    for line in drawn(curves).iter("polyline"):
        pairs = [pair.split(",") for pair in line.attrib["points"].split()]
        found.append([(float(x), float(y)) for x, y in pairs])
    return found


def test_values_run_from_the_left_to_the_right_and_higher_ones_are_higher() -> None:
    (line,) = points(Curves("reward", {"a": [0.0, 1.0, 0.5]}))
    assert [x for x, _ in line] == [LEFT, (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT]
    low, high, middle = (y for _, y in line)
    assert 0 <= high < middle < low <= HEIGHT


def test_all_series_share_one_scale_and_have_colours_of_their_own() -> None:
    curves = Curves("loss", {"a": [0.0, 1.0], "b": [1.0, 2.0]})
    (_, top_of_a), (bottom_of_b, _) = points(curves)
    assert top_of_a[1] == bottom_of_b[1]
    assert [line.attrib["stroke"] for line in drawn(curves).iter("polyline")] == list(PALETTE[:2])


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    curves = Curves("loss", {"a": [1.0, 2.0, float("nan"), 3.0, float("inf")]})
    assert [len(line) for line in points(curves)] == [2]
    assert len(list(drawn(curves).iter("circle"))) == 1


@pytest.mark.parametrize("series", [{}, {"a": []}, {"a": [float("nan")]}])
def test_a_chart_without_values_says_so(series: dict[str, list[float]]) -> None:
    assert "no values" in figure(Curves("loss", series))


def test_names_are_escaped() -> None:
    text = figure(Curves("<b>&", {"<i>": [1.0, 1.0]}, "<s>"))
    assert "<b>" not in text
    assert "<i>" not in text
    assert "<s>" not in text
