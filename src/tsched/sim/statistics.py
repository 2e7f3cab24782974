"""Quantiles, means, and how sure one can be of a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Two-sided 95 % quantiles of Student's t, by degrees of freedom; beyond the table the next smaller entry is safe.
_T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
_T95 |= {12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98}


def quantile(ordered: Sequence[float], share: float) -> float:
    """The `share` quantile of an ascending sequence, interpolated; 0 for an empty one."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def ci95(values: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of the mean; 0 for a single value."""
    count = len(values)
    if count < 2:
        return 0.0
    centre = mean(values)
    deviation = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (count - 1))
    freedom = max(known for known in _T95 if known <= count - 1)
    return _T95[freedom] * deviation / math.sqrt(count)
