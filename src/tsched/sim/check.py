"""What makes a workload wrong, each said in one line: the place, the value, and what would be right.

`check` walks the contexts of every job as the simulator would, without time. Two jobs that hold one group while
they ask for another, in opposite orders, can wait for each other for ever: that is refused here, before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsched.errors import Invalid
from tsched.model import Group
from tsched.sim.durations import MOST_US, problem
from tsched.sim.program import Acquire, Context, JobProgram, Run, Yield

if TYPE_CHECKING:
    from tsched.sim.workload import Workload

Orders = dict[tuple[str, str], str]


def check(workload: Workload) -> None:
    """Raise `Invalid` for the first thing that is wrong."""
    if not workload.groups:
        raise Invalid("groups: there is none, a workload needs at least one")
    if not workload.jobs:
        raise Invalid("jobs: there is none, a workload needs at least one")
    if workload.recorded_makespan_us is not None and workload.recorded_makespan_us < 0:
        raise Invalid(f"recorded_makespan_us: {workload.recorded_makespan_us}, must be >= 0, or left out where unknown")
    groups: dict[str, Group] = {}
    for index, group in enumerate(workload.groups):
        if group.name in groups:
            raise Invalid(f"groups[{index}].name: {group.name!r} is there twice, names must be distinct")
        groups[group.name] = group
    names: dict[str, int] = {}
    orders: Orders = {}
    for index, program in enumerate(workload.jobs):
        name = program.job.name
        if name in names:
            raise Invalid(f"jobs[{index}].name: {name!r} is also jobs[{names[name]}], names must be distinct")
        names[name] = index
        _check_job(program, f"jobs[{index}]", groups, orders)
    _check_orders(orders)


def _check_job(program: JobProgram, place: str, groups: dict[str, Group], orders: Orders) -> None:
    job = program.job
    for key in ("state_bytes", "turn_bytes"):
        for name in getattr(job, key):
            _known(name, groups, f"{place}.{key}")
    if not 0 <= program.arrival_us <= MOST_US:
        raise Invalid(f"{place}.arrival_us: {program.arrival_us}, must be from 0 to {MOST_US}")
    if not program.contexts:
        raise Invalid(f"{place}.contexts: there is none, a job needs at least one")
    clients = [context.name for context in program.contexts]
    if len(set(clients)) != len(clients):
        raise Invalid(f"{place}.contexts: names {clients!r}, must be distinct")
    for index, context in enumerate(program.contexts):
        at = f"{place}.contexts[{index}]" if len(program.contexts) > 1 else place
        _check_context(program, context, at, groups, orders)


def _check_context(program: JobProgram, context: Context, place: str, groups: dict[str, Group], orders: Orders) -> None:
    if context.iterations < 1:
        raise Invalid(f"{place}.iterations: {context.iterations}, must be >= 1")
    held: dict[str, str] = {}
    acquired = False
    for index, step in enumerate(context.steps):
        at = f"{place}.steps[{index}]"
        match step:
            case Acquire():
                acquired = True
                _check_acquire(program, step, at, groups, held)
                for group in step.groups:
                    for other in held:
                        orders.setdefault((other, group), at)
                held.update(dict.fromkeys(step.groups, at))
            case Run():
                wrong = problem(step.duration, context.iterations)
                if wrong:
                    raise Invalid(f"{at}: {wrong}")
            case Yield():
                _check_yield(step, at, groups, held)
                for group in step.groups or tuple(held):
                    del held[group]
    if held:
        group, at = next(iter(held.items()))
        raise Invalid(f"{at}: {group!r} is acquired and never yielded, every iteration must yield what it acquires")
    if not acquired:
        raise Invalid(f"{place}.steps: nothing is acquired, a program needs at least one acquire")


def _check_acquire(program: JobProgram, step: Acquire, at: str, groups: dict[str, Group], held: dict[str, str]) -> None:
    if not step.groups:
        raise Invalid(f"{at}: acquire of no group, name at least one of {', '.join(groups)}")
    for name in step.groups:
        group = _known(name, groups, at)
        if name in held or step.groups.count(name) > 1:
            raise Invalid(f"{at}: acquire of {name!r}, which is already held, yield it first")
        need = program.job.state_bytes.get(name, 0) + program.job.turn_bytes.get(name, 0)
        if group.capacity_bytes is not None and need > group.capacity_bytes:
            raise Invalid(
                f"{at}: acquire of {name!r} can never fit, job {program.job.name!r} needs {need} bytes there"
                f" and the group has {group.capacity_bytes}"
            )
    if held and not step.nested:
        raise Invalid(
            f"{at}: acquire of {step.groups[0]!r} while holding {', '.join(held)}, say nested = true to mean it"
        )
    if step.nested and not held:
        raise Invalid(f"{at}: nested acquire of {step.groups[0]!r} while nothing is held, leave nested out")
    if step.estimate_us is not None and step.estimate_us < 0:
        raise Invalid(f"{at}: estimate_us = {step.estimate_us}, must be >= 0")


def _check_yield(step: Yield, at: str, groups: dict[str, Group], held: dict[str, str]) -> None:
    for name in step.groups:
        _known(name, groups, at)
        if name not in held or step.groups.count(name) > 1:
            raise Invalid(f"{at}: yield of {name!r}, which is not held, acquire it first")
    if not held:
        raise Invalid(f"{at}: yield without acquire, acquire something first")


def _known(name: str, groups: dict[str, Group], at: str) -> Group:
    if name not in groups:
        raise Invalid(f"{at}: unknown group {name!r}, must be one of {', '.join(groups)}")
    return groups[name]


def _check_orders(orders: Orders) -> None:
    """Refuse a cycle among `holds -> asks for`."""
    after: dict[str, list[str]] = {}
    for first, then in orders:
        after.setdefault(first, []).append(then)
    for start, then in orders:
        path = _path(after, then, start)
        if path:
            cycle = " -> ".join([start, *path])
            places = sorted({orders[pair] for pair in zip([start, *path], path, strict=False)})
            raise Invalid(
                f"{places[-1]}: nested acquires form a cycle ({cycle}, see {', '.join(places)}) and can wait for each"
                " other for ever, ask in one order or for all at once"
            )


def _path(after: dict[str, list[str]], start: str, end: str) -> list[str]:
    """The groups from `start` to `end`, both included, or nothing."""
    stack, seen = [[start]], {start}
    while stack:
        path = stack.pop()
        if path[-1] == end:
            return path
        for then in after.get(path[-1], []):
            if then not in seen:
                seen.add(then)
                stack.append([*path, then])
    return []
