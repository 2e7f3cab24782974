"""A decision log gives back what was put in, whenever the crash came, and says what is wrong with a damaged one."""

from __future__ import annotations

import builtins
import os
import shutil
import sqlite3
import tempfile
import warnings
from collections import abc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsched.commands import Command, Grant, Park
from tsched.errors import Invalid, JournalError
from tsched.events import Event, JobAdded, PhaseRequested, Woke
from tsched.journal import (
    Header,
    Journal,
    JsonlJournal,
    MemoryJournal,
    Record,
    Recovered,
    Snapshot,
    SqliteJournal,
    TruncatedLog,
    read_log,
)
from tsched.journal.record import encode
from tsched.model import Group, Job

HEADER = Header((Group("g", capacity_bytes=10, nodes=("x", "y")), Group("h")), "fair_share?window=4", {"host": "a"})
RECORDS = [
    Record(0, 5, JobAdded(Job("a", weight=2.5, state_bytes={"g": 7}))),
    Record(
        1, 5, PhaseRequested("c", 1, "a", ("g",)), (Grant(1, "c", 1, "a", {"g": 1}), Park(2, "g", "b", 1, ("x",), 9))
    ),
    Record(2, 8, Woke()),
]

ids = st.integers(-(1 << 62), 1 << 62)
texts = st.text(max_size=8)
jobs = st.builds(
    Job,
    st.text(min_size=1, max_size=8),
    owner=texts,
    weight=st.floats(min_value=0.001, max_value=1e9),
    state_bytes=st.dictionaries(texts, st.integers(0, 1 << 50), max_size=3),
)
plain: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    str: texts,
    int: ids,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Job: jobs,
}


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    match get_origin(hint), get_args(hint):
        case None, _:
            return plain[hint]
        case abc.Mapping, (key, value):
            return st.dictionaries(of_type(key), of_type(value), max_size=3)
        case builtins.tuple, (each, builtins.Ellipsis):
            return st.lists(of_type(each), max_size=3).map(tuple)
        case builtins.tuple, each:
            return st.tuples(*map(of_type, each))
        case _, members:
            return st.one_of([of_type(member) for member in members])


def instances(union: Any) -> st.SearchStrategy[Any]:
    """Any value of any member of a union of structs."""
    return st.one_of([_instances(member) for member in get_args(union)])


def _instances(struct: type) -> st.SearchStrategy[Any]:
    return st.builds(struct, **{name: of_type(hint) for name, hint in get_type_hints(struct).items()})


bodies = st.tuples(instances(Event), st.lists(instances(Command), max_size=3).map(tuple))


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    first, now, records = draw(st.integers(0, 9)), draw(st.integers(0, 1 << 40)), []
    for seq, (event, commands) in enumerate(draw(st.lists(bodies, max_size=8)), start=first):
        now += draw(st.integers(0, 100))
        records.append(Record(seq, now, event, commands))
    return records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.log"


def folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


KINDS: list[type[JsonlJournal] | type[SqliteJournal]] = [JsonlJournal, SqliteJournal]
on_disk = pytest.mark.parametrize("kind", KINDS)


def write(journal: Journal, records: list[Record], header: Header = HEADER) -> None:
    journal.begin(header)
    for record in records:
        journal.append(record)
    journal.close()


# ------------------------------------------------------------------------------------ what went in comes out


@on_disk
@settings(max_examples=40)
@given(records=logs())
def test_any_records_come_back_as_they_were(kind: type[JsonlJournal], records: list[Record]) -> None:
    with folder() as where:
        path = Path(where) / "log"
        write(kind(path), records)
        assert read_log(path) == (HEADER, records)
        again = kind(path)
        assert again.load() == Recovered(HEADER, records=tuple(records))
        again.close()


def test_memory_gives_back_the_very_records() -> None:
    journal = MemoryJournal()
    assert journal.load() is None
    write(journal, RECORDS)
    assert journal.load() == Recovered(HEADER, records=tuple(RECORDS))
    assert journal.records[1] is RECORDS[1]


@on_disk
def test_nothing_is_there_before_the_first_begin(kind: type[JsonlJournal], path: Path) -> None:
    journal = kind(path)
    assert journal.load() is None
    journal.close()
    journal.close()


steps = st.lists(
    st.sampled_from(["append", "append", "append", "snapshot", "late snapshot", "reopen", "crash", "header"]),
    max_size=25,
)


@pytest.mark.parametrize("retain", [None, 0, 3])
@pytest.mark.parametrize("name", ["memory", "jsonl", "sqlite"])
@settings(max_examples=25)
@given(steps=steps)
def test_after_any_crash_the_newest_snapshot_and_all_after_it_are_there(
    name: str, retain: int | None, steps: list[str]
) -> None:
    with folder() as where:
        home, header = Path(where) / "0", HEADER
        home.mkdir()
        opened: list[Journal] = []

        def open_log() -> Journal:
            opened.append(_make(name, home / "log", retain, opened))
            return opened[-1]

        journal = open_log()
        journal.begin(header)
        records: list[Record] = []
        snapshot, snapshot_seq = None, -1
        for number, step in enumerate(steps):
            match step:
                case "append":
                    records.append(
                        Record(len(records), number, RECORDS[number % 3].event, RECORDS[number % 3].commands)
                    )
                    journal.append(records[-1])
                case "snapshot" | "late snapshot":
                    snapshot_seq = max(snapshot_seq, len(records) - (1 if step == "snapshot" else 3), -1)
                    snapshot = {"step": number, "deep": {"list": [1, None, "x"]}}
                    journal.save_snapshot(snapshot_seq, snapshot)
                case "header":
                    header = Header(meta={"step": str(number)})
                    journal.begin(header)
                case "reopen":
                    journal.close()
                    journal = open_log()
                    journal.begin(header)
                case "crash":
                    home = Path(shutil.copytree(home, home.with_name(f"after {number}")))
                    journal = open_log()
                    journal.begin(header)
            found = journal.load()
            tail = tuple(records[snapshot_seq + 1 :])
            assert found == Recovered(header, snapshot, snapshot_seq, tail)
            assert found.next_seq == len(records)
        if name != "memory":
            kept = read_log(home / "log")[1]
            assert kept == records[len(records) - len(kept) :]
            assert retain is None or len(kept) >= min(retain, len(records))
        for journal in opened:
            journal.close()


def _make(name: str, path: Path, retain: int | None, opened: list[Journal]) -> Journal:
    match name:
        case "memory":
            return opened[0] if opened else MemoryJournal(retain_records=retain)
        case "jsonl":
            return JsonlJournal(path, retain_records=retain)
        case _:
            return SqliteJournal(path, retain_records=retain)


@pytest.mark.parametrize("make", [JsonlJournal, SqliteJournal, lambda _, **more: MemoryJournal(**more)])
def test_a_snapshot_drops_old_records_but_for_those_to_retain(make: Callable[..., Journal], path: Path) -> None:
    journal = make(path, retain_records=4)
    write_open = [Record(seq, seq, Woke()) for seq in range(20)]
    journal.begin(HEADER)
    for record in write_open:
        journal.append(record)
    journal.save_snapshot(18, {"at": 18})
    seqs = [r.seq for r in (journal.records if isinstance(journal, MemoryJournal) else read_log(path)[1])]
    assert seqs == [16, 17, 18, 19]
    journal.save_snapshot(12, {"at": 12})
    journal.append(Record(20, 20, Woke()))
    journal.close()


def test_a_log_that_is_compacted_again_and_again_stays_small(path: Path) -> None:
    for kind in KINDS:
        file = path.with_suffix(f".{kind.__name__}")
        journal = kind(file, retain_records=10)
        journal.begin(HEADER)
        for seq in range(2_000):
            journal.append(Record(seq, seq, Woke()))
            if seq % 100 == 99:
                journal.save_snapshot(seq, {"seq": seq})
        journal.close()
        assert file.stat().st_size < 60_000


# ------------------------------------------------------------------------------------ crashes


def test_a_last_line_cut_anywhere_is_left_out_and_written_over(path: Path) -> None:
    write(JsonlJournal(path), RECORDS)
    data = path.read_bytes()
    last = data.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(data) + 1):
        path.write_bytes(data[:end])
        whole = end >= len(data) - 1
        expected = RECORDS if whole else RECORDS[:-1]
        if end == last or whole:
            assert read_log(path)[1] == expected
        else:
            with pytest.warns(TruncatedLog, match="line 4: the last line is cut short"):
                assert read_log(path)[1] == expected
        _reopen_and_append(path, expected)


def _reopen_and_append(path: Path, expected: list[Record]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncatedLog)
        journal = JsonlJournal(path)
        assert journal.load() == Recovered(HEADER, records=tuple(expected))
        journal.begin(HEADER)
    more = Record(len(expected), 100, Woke())
    journal.append(more)
    journal.close()
    assert read_log(path)[1] == [*expected, more]


def test_a_header_cut_anywhere_is_begun_again(path: Path) -> None:
    write(JsonlJournal(path), [])
    data = path.read_bytes()
    for end in range(1, len(data) - 1):
        path.write_bytes(data[:end])
        journal = JsonlJournal(path)
        with pytest.warns(TruncatedLog):
            assert journal.load() is None
        with pytest.warns(TruncatedLog):
            journal.begin(HEADER)
        journal.append(RECORDS[0])
        journal.close()
        assert read_log(path) == (HEADER, RECORDS[:1])


def test_a_tail_of_zeros_as_after_a_power_cut_is_left_out(path: Path) -> None:
    write(JsonlJournal(path), RECORDS)
    with path.open("ab") as file:
        file.write(bytes(500))
    with pytest.warns(TruncatedLog):
        assert read_log(path)[1] == RECORDS


def test_what_was_not_written_whole_is_taken_back_and_raises(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JsonlJournal(path)
    journal.begin(HEADER)
    journal.append(RECORDS[0])
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, line: real(file, line[:10]))
    with pytest.raises(JournalError, match="only 10 of"):
        journal.append(RECORDS[1])
    monkeypatch.undo()
    journal.append(RECORDS[1])
    journal.close()
    assert read_log(path)[1] == RECORDS[:2]


def test_sqlite_commits_every_append_with_a_full_sync(path: Path) -> None:
    journal = SqliteJournal(path)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    journal.begin(HEADER)
    for count, record in enumerate(RECORDS, start=1):
        journal.append(record)
        assert read_log(path)[1] == RECORDS[:count]
    journal.close()


def test_with_fsync_every_line_is_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JsonlJournal(path, fsync=True)
    journal.begin(HEADER)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    journal.append(RECORDS[0])
    assert len(synced) == 1
    journal.close()


@on_disk
def test_a_second_writer_is_refused(kind: type[JsonlJournal], path: Path) -> None:
    first, second = kind(path), kind(path)
    first.begin(HEADER)
    second.begin(HEADER)
    first.append(RECORDS[0])
    with pytest.raises(JournalError, match="only one scheduler may"):
        second.append(RECORDS[0])
    first.append(RECORDS[1])
    first.close()
    second.close()
    assert read_log(path)[1] == RECORDS[:2]


def test_an_append_before_begin_is_refused(path: Path) -> None:
    with pytest.raises(JournalError, match=r"call begin\(\)"):
        JsonlJournal(path).append(RECORDS[0])


def test_a_log_in_a_folder_that_is_not_there_is_an_error_of_the_journal(path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be written"):
        JsonlJournal(path / "no" / "log").begin(HEADER)
    with pytest.raises(JournalError, match="unable to open"):
        SqliteJournal(path / "no" / "log")


# ------------------------------------------------------------------------------------ bad input


def lines(*changed: bytes | object) -> bytes:
    return b"".join((line if isinstance(line, bytes) else msgspec.json.encode(line)) + b"\n" for line in changed)


GOOD = msgspec.to_builtins(HEADER)
WOKE = msgspec.to_builtins(Record(0, 5, Woke()))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "log, line 1: there is no whole header"),
        (lines({"a": 1}), 'log, line 1: this is no decision log: a header with "format": "tsched-log" would be right'),
        (lines([1]), "log, line 1: this is no decision log"),
        (lines(b"hello"), "log, line 1: 'hello' is not JSON .* one JSON object a line would be right"),
        (lines(GOOD | {"version": 2}), "log, line 1: version 2 is newer than 1, .* upgrade tsched"),
        (lines(GOOD | {"version": "x"}), "log, line 1: version 'x' must be a whole number from 1 to 1"),
        (lines(GOOD | {"policy": 3}), "log, line 1: policy is 3: expected `str`, got `int`"),
        (
            lines(GOOD | {"groups": [{"name": "g", "retries": -1}]}),
            r"log, line 1: groups\[0\] is .* retries must be >= 0",
        ),
        (lines(GOOD, WOKE | {"now": "soon"}), "log, line 2: now is 'soon': expected `int`, got `str`"),
        (lines(GOOD, WOKE | {"event": {"type": "Slept"}}), "log, line 2: event.type is 'Slept': invalid value"),
        (lines(GOOD, WOKE | {"extra": 1}), "log, line 2: .*unknown field `extra`"),
        (lines(GOOD, {"type": "record"}), "log, line 2: .*missing required field `seq`"),
        (lines(GOOD, WOKE, b"{]"), "log, line 3: '{\\]' is not JSON"),
        (lines(GOOD, WOKE, b""), "log, line 3: '' is not JSON"),
        (lines(GOOD, WOKE, b"\xff\xfe"), "log, line 3: .* is not JSON"),
        (lines(GOOD, WOKE, GOOD), "log, line 3: a second header"),
        (lines(GOOD, WOKE, WOKE | {"seq": 2}), "log, line 3: seq 2 follows 0: 1 would be right"),
        (lines(GOOD, WOKE, WOKE | {"seq": 1, "now": 4}), "log, line 3: now 4 is before 5: time must not go back"),
        (b"SQLite format 3\0" + bytes(100), "log: .*: a decision log in SQLite would be right"),
    ],
)
def test_a_damaged_log_says_where_what_and_what_would_be_right(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(Invalid, match=text) as caught:
        read_log(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == data


def test_a_log_that_is_not_there_is_invalid(path: Path) -> None:
    with pytest.raises(Invalid, match=r"cannot be read: No such file"):
        read_log(path)
    assert not path.exists()


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    write(SqliteJournal(path), RECORDS)
    db = sqlite3.connect(path, isolation_level=None)
    yield db
    db.close()


def test_a_damaged_row_is_named_by_its_record(path: Path, database: sqlite3.Connection) -> None:
    database.execute("UPDATE records SET body = replace(body, '\"now\":8', '\"now\":null') WHERE seq = 2")
    with pytest.raises(Invalid, match="record 2: now is None: expected `int`, got `null`"):
        read_log(path)


def test_a_missing_row_is_noticed(path: Path, database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM records WHERE seq = 1")
    with pytest.raises(Invalid, match="record 2: seq 2 follows 0: 1 would be right"):
        read_log(path)


def test_a_newer_schema_is_named(path: Path, database: sqlite3.Connection) -> None:
    database.execute("PRAGMA user_version = 7")
    for read in (read_log, SqliteJournal):
        with pytest.raises(Invalid, match=r"schema version 7 is newer than 1, .* upgrade tsched"):
            read(path)


def test_a_damaged_snapshot_is_named(path: Path, database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO snapshots VALUES (1, '[')")
    journal = SqliteJournal(path)
    with pytest.raises(Invalid, match=r"snapshot: .* a JSON object would be right"):
        journal.load()
    journal.close()


def test_a_database_of_something_else_is_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE shopping (item TEXT)")
    db.close()
    for read in (read_log, SqliteJournal):
        with pytest.raises(Invalid, match="an SQLite file of something else"):
            read(path)


def test_a_database_without_a_header_is_no_log(path: Path) -> None:
    SqliteJournal(path).close()
    with pytest.raises(Invalid, match="the log has no header"):
        read_log(path)


def test_text_is_no_database(path: Path) -> None:
    path.write_text("hello " * 100)
    with pytest.raises(Invalid, match="a decision log in SQLite would be right"):
        SqliteJournal(path)


# ------------------------------------------------------------------------------------ the format


def test_lines_on_disk_do_not_change_their_form() -> None:
    """Old logs must stay readable: whoever changes this text raises the version and keeps reading the old one."""
    assert encode(RECORDS[1]).decode() == (
        '{"type":"record","seq":1,"now":5,'
        '"event":{"type":"PhaseRequested","client":"c","request":1,"job":"a","groups":["g"]},'
        '"commands":[{"type":"Grant","lease":1,"client":"c","request":1,"job":"a","tokens":{"g":1}},'
        '{"type":"Park","op":2,"group":"g","job":"b","token":1,"nodes":["x"],"timeout_us":9}]}'
    )
    assert encode(Snapshot(3, {"a": 1})).decode() == '{"type":"snapshot","seq":3,"state":{"a":1}}'
    start = encode(Header(policy="fifo")).decode()
    assert start == '{"type":"header","groups":[],"policy":"fifo","meta":{},"format":"tsched-log","version":1}'
