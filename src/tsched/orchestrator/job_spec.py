"""A job as it is declared over the wire."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tsched.errors import Invalid
from tsched.model import Job, seconds
from tsched.rpc.limits import MAX_GROUPS, check_name, check_size
from tsched.rpc.v1 import operator_pb2 as pb


def job_of(spec: pb.JobSpec, known: Job | None) -> Job:
    """The job as it is from now on; what the message leaves out is as it was.

    Raises:
        Invalid: a name, a size, the weight or the work cannot be.
    """
    check_name("owner", spec.owner, empty=True)
    job = Job(spec.name) if known is None else known
    return replace(
        job,
        owner=spec.owner or job.owner,
        weight=spec.weight or job.weight,
        state_bytes={**job.state_bytes, **_sizes("state_bytes", spec.state_bytes)},
        turn_bytes={**job.turn_bytes, **_sizes("turn_bytes", spec.turn_bytes)},
        work_us=seconds(spec.work_s) if spec.HasField("work_s") else job.work_us,
    )


def _sizes(what: str, sizes: Mapping[str, int]) -> dict[str, int]:
    found = dict(sizes)
    if len(found) > MAX_GROUPS:
        raise Invalid(f"{what} names {len(found)} groups; at most {MAX_GROUPS} are taken")
    for group, size in found.items():
        check_name("group", group)
        check_size(f"{what} on group {group!r}", size)
    return found
