"""Weave's profile as scenarios, against the gain that Weave published and the best order there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsched.errors import Invalid
from tsched.plugins import policy_names
from tsched.sim import simulate
from tsched.sim.baselines import Baselines
from tsched.sim.load import load_workload
from tsched.sim.optimum import optimum_us
from tsched.sim.weave import MIXES, Profile, read_profile, throughput_gain, weave

SMALL = Profile(
    {"1B_a": (10.0, 8.0), "7B_b": (9.0, 9.0), "9B_c": (5.0, 5.0)},
    {"3B": {"warm_infer": 0.5, "warm_train": 1.0}, "7B": {"warm_infer": 2.0, "warm_train": 3.0}},
)
SCENARIOS = Path(__file__).parent.parent / "simulations"


def test_sizes_that_were_not_measured_take_the_nearest_below() -> None:
    costs = weave(SMALL, ["1B_a"]).costs
    assert (costs.park_us("rollout", "", 0, 0), costs.park_us("training", "", 0, 0)) == (500_000, 1_000_000)
    assert weave(SMALL, ["1B_a", "9B_c"]).costs.park_us("training", "", 0, 0) == 3_000_000


def test_every_job_does_as_much_work_alone() -> None:
    workload = weave(SMALL, ["1B_a", "7B_b", "9B_c"], solo_s=180)
    assert [program.contexts[0].iterations for program in workload.jobs] == [10, 10, 18]
    assert weave(SMALL, ["7B_b", "7B_b"]).draw().jobs[1].job.name == "7B_b-2"


def test_an_unknown_configuration_is_refused() -> None:
    with pytest.raises(Invalid, match="unknown configuration '2B_z', one of 1B_a, 7B_b, 9B_c"):
        weave(SMALL, ["2B_z"])


def test_a_damaged_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text('{"disagg": {"1B": [1, -2]}, "switch_s": {}}')
    with pytest.raises(Invalid, match=r"profile\.json: disagg\.1B"):
        read_profile(path)
    path.write_text('{"disagg": 3}')
    with pytest.raises(Invalid, match=r"profile\.json: "):
        read_profile(path)
    with pytest.raises(Invalid, match="cannot be read"):
        read_profile(tmp_path / "nowhere.json")


@pytest.mark.parametrize("name", sorted(MIXES))
def test_the_shipped_scenarios_are_the_profile(shared: Path, name: str) -> None:
    made = weave(read_profile(shared / "traces/weave_profile.json"), MIXES[name], name)
    shipped = load_workload(SCENARIOS / f"{name}.toml")
    assert [program.job for program in shipped.jobs] == [program.job for program in made.jobs]
    assert [program.contexts for program in shipped.jobs] == [
        tuple(_with_named_yields(context) for context in program.contexts) for program in made.jobs
    ]
    assert (shipped.groups, shipped.costs) == (made.groups, made.costs)


def _with_named_yields(context: object) -> object:
    return context


@pytest.mark.parametrize("name", sorted(MIXES))
def test_the_best_policy_gains_what_weave_published(name: str) -> None:
    drawn = load_workload(SCENARIOS / f"{name}.toml").draw()
    baselines = Baselines(drawn)
    gains = [throughput_gain(simulate(drawn, policy, keep=False).result, baselines) for policy in policy_names()]
    assert 1.82 <= max(gains) <= 2


def test_on_a_small_case_the_best_policy_is_close_to_the_best_order(shared: Path) -> None:
    profile = read_profile(shared / "traces/weave_profile.json")
    for name, solo_s in (("weave_2", 500.0), ("weave_3", 800.0)):
        workload = weave(profile, MIXES[name], name, solo_s)
        best = optimum_us(workload.draw(), getattr(workload.costs, "park")) / 1e6  # noqa: B009
        found = min(simulate(workload, policy, keep=False).result.makespan_s for policy in policy_names())
        assert best <= found <= 1.06 * best
