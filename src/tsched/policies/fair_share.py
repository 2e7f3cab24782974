"""Fair share: start-time fair queueing per owner."""

from __future__ import annotations

from tsched.policies import Contest, Policy, Waiter

CLOCK = ""
SCALE = 1000
FLOOR_US = 1000


class FairShare(Policy):
    """Order: the owner's start tag, in virtual time per group (P3); within an owner, arrival.

    A turn costs its owner its length plus the switch that it caused, divided by its job's weight, and at least
    `FLOOR_US`. It is charged by the estimate when granted and corrected when it ends. An owner that was away starts
    at the present virtual time: it neither saves up nor pays for absence. Bound: between two turns of an owner
    every other owner gets at most the turns that its weight buys in the time that the owner was charged for, plus
    one. Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", 1996.
    """

    name = "fair_share"
    fair = True

    def flow(self, request: Waiter) -> str:
        return request.owner

    def rank(self, request: Waiter, group: str) -> int:
        memory = self._memory(group)
        return max(memory.get(CLOCK, 0), memory.get(request.owner, 0))

    def granted(self, request: Waiter, group: str, switch_us: int) -> None:
        memory = self._memory(group)
        start = max(memory.get(CLOCK, 0), memory.get(request.owner, 0))
        memory[CLOCK] = start
        memory[request.owner] = start + _cost(request, request.estimate_us + switch_us)

    def released(self, request: Waiter, group: str, length_us: int) -> None:
        memory = self._memory(group)
        correction = _cost(request, length_us) - _cost(request, request.estimate_us)
        memory[request.owner] = memory.get(request.owner, 0) + correction

    def bound(self, contest: Contest) -> int:
        own = contest.max_charge_us // contest.min_weight_milli + 1
        each = own * contest.max_weight_milli // max(contest.min_charge_us, FLOOR_US) + 2
        return self.slack(contest.jobs * each * (contest.in_flow + 1) + contest.in_flow)


def _cost(request: Waiter, length_us: int) -> int:
    return max(length_us, FLOOR_US) * SCALE // request.weight_milli
