"""Specs of policies and backends: what they may say, and what is said back when they are wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import EntryPoint

import pytest

from tests.conftest import ROOT
from tsched import plugins
from tsched.errors import Invalid, UnknownPlugin
from tsched.policies import Policy, Waiter
from tsched.policies.fifo import Fifo
from tsched.policies.shortest_phase_first import ShortestPhaseFirst


class Picky(Policy):
    """A third party's policy, named in these tests by its dotted path."""

    def __init__(self, limit: int, strict: bool = False, label: str = "", share: float | None = None) -> None:
        super().__init__()
        self.limit, self.strict, self.label, self.share = limit, strict, label, share

    def rank(self, request: Waiter, group: str) -> int:
        return 0


NOT_CALLABLE = 3
HERE = f"{__name__}:Picky"


def test_the_table_of_built_ins_says_what_pyproject_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == plugins.BUILT_IN


@pytest.mark.parametrize("name", list(plugins.BUILT_IN[plugins.POLICIES]))
def test_every_built_in_policy_is_made_by_its_name(name: str) -> None:
    assert plugins.load_policy(name).name == name


def test_two_of_one_name_share_nothing() -> None:
    first, second = plugins.load_policy("fifo"), plugins.load_policy("fifo")
    assert first is not second
    assert first.memory is not second.memory


def test_a_policy_that_is_made_already_stays_the_same_object() -> None:
    policy = Fifo(window=2)
    assert plugins.load_policy(policy) is policy


def test_options_are_read_as_the_constructor_is_annotated() -> None:
    policy = plugins.load_policy("shortest_phase_first?alpha=0.5&window=4&linger_s=2")
    assert isinstance(policy, ShortestPhaseFirst)
    assert (policy.alpha_milli, policy.window, policy.linger_us) == (500, 4, 2_000_000)


def test_a_dotted_path_works_as_a_name_does() -> None:
    policy = plugins.load_policy(f"{HERE}?limit=3&strict=yes&label=a%20b&share=0.25")
    assert isinstance(policy, Picky)
    assert (policy.limit, policy.strict, policy.label, policy.share) == (3, True, "a b", 0.25)
    assert policy.name == HERE


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("fifo?windw=4", ["windw", "it takes window, linger_s"]),
        ("fifo?window=four", ["window", "an integer", "'four'"]),
        ("fifo?window=4.5", ["window", "an integer", "'4.5'"]),
        ("fifo?window=9", ["window", "1 to 8", "9"]),
        ("fifo?linger_s=nan", ["linger_s", ">= 0", "nan"]),
        ("fifo?window=1&window=2", ["window", "twice"]),
        ("fifo?window", ["name?key=value"]),
        (HERE, ["limit", "required"]),
        (f"{HERE}?limit=1&strict=maybe", ["strict", "true or false", "maybe"]),
        (f"{__name__}:NOT_CALLABLE", ["not a class"]),
        ("collections:OrderedDict", ["no policy", "tsched.policies.Policy"]),
    ],
)
def test_a_wrong_option_is_named_in_one_line(spec: str, words: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        plugins.load_policy(spec)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_what_is_installed() -> None:
    with pytest.raises(UnknownPlugin, match=r"'fife'.*fifo, shortest_phase_first") as caught:
        plugins.load_policy("fife")
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize("spec", ["no_such_module:Thing", f"{__name__}:Missing", "a b:c", ":", "os:"])
def test_a_dotted_path_that_leads_nowhere_is_an_unknown_plugin(spec: str) -> None:
    with pytest.raises(UnknownPlugin):
        plugins.load_policy(spec)


def _installed(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def found(group: str, name: str | None = None) -> Iterable[EntryPoint]:
        return [point for point in points if point.group == group and name in (None, point.name)]

    monkeypatch.setattr(plugins, "entry_points", found)


def test_an_entry_point_adds_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, EntryPoint("picky", HERE, plugins.POLICIES))
    assert plugins.policy_names()[0] == "fifo"
    assert plugins.policy_names()[-1] == "picky"
    assert isinstance(plugins.load_policy("picky?limit=1"), Picky)


def test_two_different_entry_points_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("picky", value, plugins.POLICIES) for value in (HERE, "tsched.policies.fifo:Fifo")]
    _installed(monkeypatch, *points)
    with pytest.raises(Invalid, match="installed twice"):
        plugins.load_policy("picky?limit=1")


def test_nobody_takes_the_name_of_a_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, EntryPoint("fifo", HERE, plugins.POLICIES))
    assert type(plugins.load_policy("fifo")) is Fifo
    assert plugins.policy_names().count("fifo") == 1
