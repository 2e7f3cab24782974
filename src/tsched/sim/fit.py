"""Learn from the first part of a recorded run, and predict the rest.

What ended before the cut keeps its recorded length. Every later run takes the median of the last `LAST` lengths of its
kind that its job is known to have had; a switch takes the median of those that were seen. How many phases are
still to come is known from the programs, not predicted.

How far such a prediction is off can be learned from the same first part: predict each known length from those before it
and keep the ratio of what came to what was said; those that the median was taken of stray from it likewise. Each
scenario of `spread` draws one ratio for every (job, kind) and keeps to it, because what makes lengths drift
(longer answers, say) lasts. It also draws one of the switches that were seen for each group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from msgspec import structs

from tsched.costs import FixedTable
from tsched.errors import Invalid
from tsched.estimates import median
from tsched.sim.durations import Fixed
from tsched.sim.program import Acquire, Context, JobProgram, Run, Step
from tsched.sim.recording import Replay, Turn, hand_overs, makespan_us, replay
from tsched.sim.workload import Workload

LAST = 3
SCENARIOS = 200
OUTLIER = 2.0
Kind = tuple[str, str]
Stretch = Callable[[Kind], float]


class Fitted(NamedTuple):
    """The prediction as a workload, and other workloads that what is known leaves possible."""

    expected: Workload
    spread: tuple[Workload, ...]


def fit(exact: Workload, turns: Sequence[Turn], share: float, scenarios: int = SCENARIOS, seed: int = 0) -> Fitted:
    """Learn from what `turns` show up to `share` of their makespan; raises `Invalid` where that is not enough.

    Args:
        exact: the exact replay of `turns`: what it is called, and its groups.
        turns: what was recorded.
        share: of the recorded makespan, above 0 and at most 1.
        scenarios: how many workloads `spread` has.
        seed: of the ratios that they draw.
    """
    if not 0 < share <= 1:
        raise Invalid(f"fit: {share}, must be a share of the recording above 0 and at most 1")
    cut = min(turn.asked_us for turn in turns) + round(share * makespan_us(turns))
    replays = replay(turns, [program.job for program in exact.jobs])
    lengths = Lengths(replays, cut)
    seen = hand_overs([turn for turn in turns if turn.granted_us <= cut])
    rng = Random(seed)
    meta = {**exact.meta, "fit": f"{share:g}"}

    def workload(stretch: Stretch, switch: Callable[[list[int]], int]) -> Workload:
        jobs = tuple(_predict(each, cut, lengths, stretch) for each in replays)
        costs = FixedTable(park={group: switch(passed) for group, passed in seen.items()})
        return structs.replace(exact, jobs=jobs, costs=costs, meta=meta)

    expected = workload(lambda kind: 1.0, median)
    return Fitted(expected, tuple(workload(lengths.drift(rng), rng.choice) for _ in range(scenarios)))


class Lengths:
    """Every length that was known at the cut, by kind: of what, and of whose."""

    def __init__(self, replays: Sequence[Replay], cut: int) -> None:
        self._known: dict[Kind, list[int]] = defaultdict(list)
        self._held: dict[Kind, list[int]] = defaultdict(list)
        for each in replays:
            for context, ends in zip(each.program.contexts, each.ends_us, strict=True):
                self._learn(each.program.job.name, context, ends, cut)
        self._ratios = {kind: _ratios(lengths) for kind, lengths in self._known.items()}
        self._pool = sorted(ratio for ratios in self._ratios.values() for ratio in ratios) or [1.0]

    def expected(self, kind: Kind) -> int:
        """What the job's next run of this kind takes; if it had none, other jobs' like it, or a turn on that group."""
        own = self._known.get(kind) or self._held.get(kind)
        if own:
            return median(own[-LAST:])
        others = [lengths for (_, what), lengths in self._known.items() if what == kind[1]]
        others = others or [lengths for (_, what), lengths in self._held.items() if what == kind[1]]
        if not others:
            raise Invalid(f"fit: job {kind[0]!r} has no phase {kind[1]!r} before the cut, learn from a larger share")
        return median([length for lengths in others for length in lengths[-LAST:]])

    def drift(self, rng: Random) -> Stretch:
        """For each kind one of the ratios by which predictions of it were off."""
        chosen: dict[Kind, float] = {}

        def stretch(kind: Kind) -> float:
            if kind not in chosen:
                chosen[kind] = rng.choice(self._ratios.get(kind, self._pool))
            return chosen[kind]

        return stretch

    def _learn(self, job: str, context: Context, ends: tuple[int, ...], cut: int) -> None:
        held: dict[str, int] = {}
        for step, end in zip(context.steps, ends, strict=True):
            if end > cut:
                return
            if isinstance(step, Run):
                length = step.duration.expected_us()
                self._known[job, step.kind].append(length)
                held = {groups: total + length for groups, total in held.items()}
            elif isinstance(step, Acquire):
                held["+".join(step.groups)] = 0
            else:
                groups = "+".join(step.groups)
                if groups in held:
                    self._held[job, f"grant {groups} -> yield {groups}"].append(held.pop(groups))


def _ratios(lengths: list[int]) -> list[float]:
    """What came over what the lengths before it had promised, and the last lengths over their median."""
    promised = [median(lengths[index - LAST : index]) for index in range(LAST, len(lengths))]
    came = lengths[LAST:] + lengths[-LAST:]
    promised += [median(lengths[-LAST:])] * len(lengths[-LAST:])
    ratios = [length / said for length, said in zip(came, promised, strict=True) if said > 0]
    return [ratio for ratio in ratios if 1 / OUTLIER <= ratio <= OUTLIER] or [1.0]


def _predict(each: Replay, cut: int, lengths: Lengths, stretch: Stretch) -> JobProgram:
    job = each.program.job.name

    def step(old: Step, end: int) -> Step:
        if end <= cut or not isinstance(old, Run):
            return old
        kind = (job, old.kind)
        return Run(Fixed(round(lengths.expected(kind) * stretch(kind))), old.kind)

    contexts = tuple(
        Context(tuple(map(step, context.steps, ends)), 1, context.name)
        for context, ends in zip(each.program.contexts, each.ends_us, strict=True)
    )
    return JobProgram(each.program.job, contexts, each.program.arrival_us)
