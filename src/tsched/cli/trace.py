"""`tsched trace`: decision logs and recordings as they are; nothing is simulated here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from tsched.cli import FAILED, LazyGroup
from tsched.cli.loading import load_log, load_recovered, warnings_on_stderr
from tsched.cli.output import check_writable, print_json, replacing, write_whole
from tsched.commands import Command
from tsched.engine import Engine
from tsched.errors import Invalid
from tsched.events import Event
from tsched.journal import Header, Record
from tsched.model import SECOND_US
from tsched.plugins import load_policy

LOG = click.argument("log", type=click.Path(path_type=Path))


@click.group(
    cls=LazyGroup,
    lazy={
        "import": ("tsched.cli.trace:import_", "Turn a recorded run or a decision log into a workload."),
        "show": ("tsched.cli.trace:show", "Print a decision log, whole or the story of one job or group."),
        "replay": ("tsched.cli.trace:replay", "Decide a log again and compare."),
        "export": ("tsched.cli.trace:export", "Write a log in the format of another tool."),
    },
)
def trace() -> None:
    """Import, show, replay and export decision logs and recordings."""


# ------------------------------------------------------------------------------------------------------ import


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The workload, as JSON lines.")
@click.option("--fit", type=float, help="Keep this first share of a recording, predict the rest.")
def import_(file: Path, output: Path, fit: float | None) -> None:
    """Turn a recorded run or a decision log into a workload: what each job did, how long it took, what moves cost."""
    from tsched.sim.jsonl import write_jsonl
    from tsched.sim.load import load_fit, load_workload

    check_writable(output, file)
    with warnings_on_stderr():
        workload = load_workload(file) if fit is None else load_fit(file, fit, scenarios=0).expected
    with replacing(output) as beside:
        write_jsonl(workload, beside)
    click.echo(f"{output}: {len(workload.jobs)} jobs on {', '.join(group.name for group in workload.groups)}")


# -------------------------------------------------------------------------------------------------------- show


@click.command()
@LOG
@click.option("--job", default="", help="Only what concerns this job.")
@click.option("--group", default="", help="Only what concerns this group.")
@click.option("--last", type=click.IntRange(1), help="Only the last N records.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON lines.")
def show(log: Path, job: str, group: str, last: int | None, as_json: bool) -> None:
    """Print a decision log: an event a line, below it the commands that it caused."""
    header, records = load_log(log)
    groups = {each.name for each in header.groups}
    if group and group not in groups:
        raise Invalid(f"{log}: there is no group {group!r}; there are: {', '.join(sorted(groups))}")
    chosen = list(story(records, job, group))
    if job and not chosen:
        raise Invalid(f"{log}: nothing is said of job {job!r}" + (f" on group {group!r}" if group else ""))
    for record in chosen[-last:] if last else chosen:
        click.echo(msgspec.json.encode(record).decode() if as_json else told(record))


def story(records: Iterable[Record], job: str, group: str) -> Iterator[Record]:
    """The records that concern a job and a group, each where given; leases and operations are followed to their job."""
    known: dict[tuple[str, object], tuple[str, tuple[str, ...]]] = {}
    for record in records:
        about = [_about(word, known) for word in (record.event, *record.commands)]
        if any((not job or job == name) and (not group or group in on) for name, on in about):
            yield record


def _about(
    word: Event | Command, known: dict[tuple[str, object], tuple[str, tuple[str, ...]]]
) -> tuple[str, tuple[str, ...]]:
    """The job and the groups that an event or a command is about."""
    said = msgspec.structs.asdict(word)
    name = said.get("job", "")
    name = name if isinstance(name, str) else name.name
    one, several = said.get("group"), said.get("groups") or said.get("tokens") or ()
    groups = (one,) if isinstance(one, str) else tuple(several)
    request = (said["client"], said["request"]) if "request" in said else None
    for key in (("lease", said.get("lease")), ("op", said.get("op")), ("request", request)):
        if key[1] is None:
            continue
        if name:
            known[key] = (name, groups)
        elif key in known:
            return known[key][0], groups or known[key][1]
    return name, groups


def told(record: Record) -> str:
    """A record for people."""
    lines = [f"{record.now / SECOND_US:14.6f} s  #{record.seq}  {_words(record.event)}"]
    lines += [f"{'':16}    -> {_words(command)}" for command in record.commands]
    return "\n".join(lines)


def _words(word: Event | Command) -> str:
    said = msgspec.to_builtins(word)
    return " ".join([said.pop("type"), *(f"{key}={_value(value)}" for key, value in said.items())])


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else msgspec.json.encode(value).decode()


# ------------------------------------------------------------------------------------------------------ replay


@click.command()
@LOG
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay(log: Path, as_json: bool) -> None:
    """Decide a log again with the policy that it names, and compare every decision.

    Exit code 1 says that this version decides otherwise; the log stays readable all the same.
    """
    header, records = load_log(log)
    engine, records = _started(log, header, records)
    for count, record in enumerate(records):
        decided = tuple(engine.handle(record.event, record.now))
        if decided != record.commands:
            _differs(record, decided, count, as_json)
            raise click.exceptions.Exit(FAILED)
    if as_json:
        print_json({"records": len(records), "identical": True, "first_difference": None})
    else:
        click.echo(f"{len(records)} records under {header.policy}, identical")


def _started(log: Path, header: Header, records: list[Record]) -> tuple[Engine, list[Record]]:
    """An engine as it was before the first record; a log whose start was dropped begins with its snapshot."""
    if not records or records[0].seq == 0:
        return Engine(header.groups, load_policy(header.policy)), records
    recovered = load_recovered(log)
    if recovered is None or recovered.snapshot is None:
        raise Invalid(f"{log}: starts with record {records[0].seq} and has no snapshot; a log from record 0 is needed")
    engine = Engine.restore(recovered.snapshot, header.groups, load_policy(header.policy))
    return engine, list(recovered.records)


def _differs(record: Record, decided: tuple[Command, ...], count: int, as_json: bool) -> None:
    if as_json:
        difference = {"seq": record.seq, "recorded": record.commands, "decided": decided}
        print_json({"records": count, "identical": False, "first_difference": difference})
        return
    click.echo(f"after {count} identical records, record {record.seq} is decided otherwise: {_words(record.event)}")
    for then, now in itertools.zip_longest(record.commands, decided):
        mark = "  " if then == now else "≠ "
        click.echo(
            f"  {mark}recorded: {_words(then) if then else 'nothing':60}  now: {_words(now) if now else 'nothing'}"
        )


# ------------------------------------------------------------------------------------------------------ export


@click.command()
@LOG
@click.option("--to", "target", type=click.Choice(["perfetto"]), required=True, help="The other tool.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write; stdout otherwise.")
def export(log: Path, target: str, output: Path | None) -> None:
    """Write a log for ui.perfetto.dev (Chrome's trace event format)."""
    from tsched.perfetto import chrome_trace

    check_writable(output, log)
    header, records = load_log(log)
    content = msgspec.json.encode(chrome_trace(header.groups, records))
    if output is None:
        click.echo(content)
    else:
        write_whole(output, content)
