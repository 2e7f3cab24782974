"""The decision log's words: a header, then records, with a snapshot here and there; and how they are read back.

On disk every one of them is a JSON object whose `type` says which it is. Reading is strict: what cannot be understood
is `Invalid`, and the text names where it is, what is there and what would be right.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct, field

from tsched.commands import Command
from tsched.errors import Invalid
from tsched.events import Event
from tsched.model import Group

FORMAT = "tsched-log"
VERSION = 1


class Header(Struct, frozen=True, tag="header", forbid_unknown_fields=True):
    """What the log was made with; the first line."""

    groups: tuple[Group, ...] = ()
    policy: str = "fifo"
    meta: dict[str, str] = field(default_factory=dict)
    format: str = FORMAT
    version: int = VERSION


class Record(Struct, frozen=True, tag="record", forbid_unknown_fields=True):
    """One event that the engine took at `now`, and the commands that it answered; `seq` counts without gaps."""

    seq: int
    now: int
    event: Event
    commands: tuple[Command, ...] = ()


class Snapshot(Struct, frozen=True, tag="snapshot", forbid_unknown_fields=True):
    """The engine's state after record `seq`."""

    seq: int
    state: dict[str, Any]


class Recovered(Struct, frozen=True):
    """What a restart needs: the newest snapshot, if any, and every record after it."""

    header: Header
    snapshot: dict[str, Any] | None = None
    snapshot_seq: int = -1
    records: tuple[Record, ...] = ()

    @property
    def next_seq(self) -> int:
        """The `seq` of the record to append next."""
        return self.records[-1].seq + 1 if self.records else self.snapshot_seq + 1


class Journal(Protocol):
    """Where decisions are kept. Used by one writer at a time, from one thread at a time; blocking, never async."""

    def begin(self, header: Header) -> None:
        """Say what follows; must come before the first append. Replaces the header of a log that has one."""
        ...

    def append(self, record: Record) -> None:
        """Keep the record; it is durable when this returns, unless the journal is `Deferred`. Raises `JournalError`."""
        ...

    def load(self) -> Recovered | None:
        """What was kept; None if that is nothing. Raises `Invalid` for what cannot be understood."""
        ...

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None:
        """Keep the state after record `seq`, then drop older records beyond what is to be retained."""
        ...

    def close(self) -> None:
        """Release what is held open; a second time is harmless."""
        ...


@runtime_checkable
class Deferred(Journal, Protocol):
    """A journal whose `append` returns before the record is durable."""

    @property
    def stalled(self) -> str:
        """Why it cannot be written just now; empty while it can."""
        ...

    async def durable(self) -> None:
        """Wait until all that was appended so far is durable. Raises `JournalError` when it never will be."""
        ...


class TruncatedLog(UserWarning):
    """The last line of a log was cut short, as by a crash, and is left out."""


encode = msgspec.json.Encoder().encode
_lines: msgspec.json.Decoder[Header | Record | Snapshot] = msgspec.json.Decoder(Header | Record | Snapshot)
_records: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def read_header(raw: bytes, where: str) -> Header:
    """The header in `raw`; a version that is newer than ours is told apart from nonsense."""
    found = _parse(raw, where)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise Invalid(f'{where}: this is no decision log: a header with "format": "{FORMAT}" would be right')
    version = found.get("version")
    if not isinstance(version, int) or version < 1:
        raise Invalid(f"{where}: version {version!r} must be a whole number from 1 to {VERSION}")
    if version > VERSION:
        raise Invalid(
            f"{where}: version {version} is newer than {VERSION}, the newest that can be read here: "
            "upgrade tsched to read this log"
        )
    try:
        return msgspec.json.decode(raw, type=Header)
    except msgspec.ValidationError as error:
        raise Invalid(_explain(error, found, where)) from None


def read_line(raw: bytes, where: str) -> Header | Record | Snapshot:
    try:
        return _lines.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(_explain(error, _parse(raw, where), where)) from None


def read_record(raw: bytes, where: str) -> Record:
    try:
        return _records.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(_explain(error, _parse(raw, where), where)) from None


def check_follows(earlier: Record | None, record: Record, where: str) -> None:
    """Records count up by one and time does not go back; else something is missing or was put in another order."""
    if earlier is None:
        return
    if record.seq != earlier.seq + 1:
        raise Invalid(f"{where}: seq {record.seq} follows {earlier.seq}: {earlier.seq + 1} would be right")
    if record.now < earlier.now:
        raise Invalid(f"{where}: now {record.now} is before {earlier.now}: time must not go back")


def _parse(raw: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        start = raw[:40].decode("utf-8", "replace")
        raise Invalid(f"{where}: {start!r} is not JSON ({error}): one JSON object a line would be right") from None


def _explain(error: Exception, found: Any, where: str) -> str:
    """msgspec names the place and what would be right; add the value that is there."""
    text, _, path = str(error).partition(" - at `")
    path = path.rstrip("`")
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        try:
            found = found[name] if name else found[int(index)]
        except (LookupError, TypeError):
            return f"{where}: {text}" + (f" at {path}" if path else "")
    shown = repr(found)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"{where}: {path.removeprefix('$.') or 'the line'} is {shown}: {text[:1].lower()}{text[1:]}"
