"""Which requests can never be granted, and why: the text that their authors read."""

from __future__ import annotations

from tsched import waitfor
from tsched.state import State
from tsched.turns import Request


def refusal(state: State, request: Request) -> tuple[str, str] | None:
    """Why this request can never be granted, as (code, text); None when it can (rules E2, E6, E7)."""
    groups, job = request.groups, state.jobs.get(request.job)
    if not groups or (len(groups) > 1 and len(set(groups)) < len(groups)):
        return "bad_request", f"job {request.job!r} must name each group once, at least one, not {list(groups)}"
    for name in groups:
        if name not in state.groups:
            return "unknown_group", f"no group {name!r}; there are: {', '.join(sorted(state.groups))}"
    if job is None:
        return "unknown_job", f"job {request.job!r} is not registered: add it before it asks for a turn"
    if job.name in state.quarantined:
        return "quarantined", f"job {job.name!r} is quarantined ({state.quarantined[job.name]}): readmit it first"
    for name in groups:
        if state.groups[name].ledger.never_fits(job):
            return "never_fits", too_large(state, name, request.job)
    return _nesting_refusal(state, request)


def too_large(state: State, name: str, job_name: str) -> str:
    ledger, job = state.groups[name].ledger, state.jobs[job_name]
    return (
        f"job {job_name!r} needs {ledger.size(job)} state and {ledger.working(job)} working bytes "
        f"on group {name!r}, which has {ledger.capacity}"
    )


def _nesting_refusal(state: State, request: Request) -> tuple[str, str] | None:
    if request.within is None:
        return None
    parent = state.leases.get(request.within)
    if parent is None or parent.suspended:
        return "unknown_lease", f"lease {request.within}, within which job {request.job!r} asks, has ended"
    if parent.job != request.job:
        return (
            "bad_request",
            f"lease {parent.id} is of job {parent.job!r}: job {request.job!r} cannot ask within it",
        )
    if any(other is not request for other in waitfor.pending(state, parent)):
        return (
            "bad_request",
            f"lease {parent.id} of job {parent.job!r} waits for other groups already: one at a time",
        )
    for name in request.groups:
        if name in parent.tokens:
            return "already_held", f"lease {parent.id} of job {parent.job!r} holds group {name!r} already"
    chain = waitfor.path(state, request, parent.id)
    if chain is None:
        return None
    return "deadlock", f"this would be a deadlock: {waitfor.describe(state, request, chain)}"
