"""A job of the second kind of turn-taking: a worker over the channel, whose regions are parked between its turns."""

from __future__ import annotations

from benchmarks.gpu_check.scale import Scale
from benchmarks.gpu_check.trainee import Trainee
from tsched.backends.arena import Arena
from tsched.backends.region import RegionBackend
from tsched.rpc.worker import Worker

GROUP = "gpu"
PATIENCE_S = 100.0


def take_turns(scale: Scale, seed: int, address: str, job: str, arena: str) -> dict[str, object]:
    """Build in the first turn, train in each, and compare the state with that at the end of the turn before."""
    backend = RegionBackend(arena=Arena(scale.room_bytes, arena) if arena else None)
    losses: list[float] = []
    sums: list[tuple[str, str]] = []
    waited_s: list[float] = []
    trainee: Trainee | None = None
    with Worker.connect(
        address,
        job=job,
        group=GROUP,
        backend=backend,
        state_bytes=scale.state_bytes,
        turn_bytes=scale.turn_bytes,
    ) as worker:
        for _ in range(scale.turns):
            with worker.hold(estimate_s=1.0, timeout_s=PATIENCE_S) as lease:
                if trainee is None:
                    trainee = Trainee(scale, seed)
                    losses.append(trainee.step())
                    backend.register(GROUP, "0", job, trainee.regions())
                else:
                    sums.append((sums.pop()[0], trainee.checksum()))
                losses.append(trainee.step())
                sums.append((trainee.checksum(), ""))
                if lease.restored:
                    waited_s.append(lease.waited_s)
    same = all(before == after for before, after in sums[:-1])
    return {"losses": losses, "same": same, "waited_s": waited_s}
