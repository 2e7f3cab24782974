"""The store: rows come back as they were, writes are taken together or not at all, files are what they say they are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from openrl.errors import StoreError, StoreInvalid
from openrl.store import (
    Add,
    Answer,
    Change,
    Checkpoint,
    Expire,
    Key,
    MadeDurable,
    Model,
    Once,
    Payload,
    Remove,
    Request,
    Result,
    Row,
    Sampler,
    Session,
    SqliteStore,
    Write,
    open_store,
)
from openrl.store.schema import VERSION
from openrl.work import ModelSpec

SPEC = ModelSpec("tiny", rank=None, train_mlp=False)
ROWS: list[Row] = [
    Key("hash", "id", "me", "laptop", 1),
    Session("s", "me", 1, 2, ("tag",), {"a": [1, None]}, "0.38", "name", None, 3, "success", None),
    Model("s:train:0", "s", "me", SPEC, 1, 2, "/folder", "tinker://x", True, {"renderer": "plain"}, 5, "/state", 1, 2),
    Request("r", "me", 3, "json", b"\0digest", 1, "s:train:0", mutates=True, settles=True, seed=9, size=4),
    Payload("r", b"\xff\0"),
    Result("r", b""),
    Sampler("s:sample:0", "s", "me", "tiny", 1, 2, "/folder", None, ephemeral=True),
    Checkpoint("tinker://a", "m", "me", "sampler", "n", "/folder", 7, 1, SPEC, None, True, {"k": 1}),
    Once("key", "answer", 1),
]


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return open_store(tmp_path / "store")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_every_kind_of_row_comes_back_as_it_was(store: SqliteStore, row: Row) -> None:
    store.commit([Add(row)])
    assert store.get(type(row), getattr(row, row.__struct_fields__[0])) == row
    assert store.count(type(row)) == 1


def test_writes_of_one_commit_are_taken_together_or_not_at_all(store: SqliteStore) -> None:
    store.commit([Add(ROWS[0])])
    with pytest.raises(StoreError, match="UNIQUE"):
        store.commit([Add(ROWS[1]), Add(ROWS[0])])
    assert store.get(Session, "s") is None


def test_rows_are_found_by_their_fields_newest_first_page_by_page(store: SqliteStore) -> None:
    store.commit([Add(Session(f"s{number}", "me" if number % 2 else "you", number, 0)) for number in range(9)])
    found = store.find(Session, owner="me", newest_first=True, limit=2, offset=1)
    assert [session.session_id for session in found] == ["s5", "s3"]
    assert store.count(Session, owner="me") == 4
    assert [session.session_id for session in store.find(Session, ended_us=None, owner="you", limit=1)] == ["s0"]


def test_changes_and_removals_touch_their_own_row_alone(store: SqliteStore) -> None:
    store.commit([Add(Session("a", "me", 0, 0)), Add(Session("b", "me", 0, 0))])
    writes: list[Write] = [
        Change(Session, "a", {"last_seen_us": 5, "user_metadata": {"x": 1}}),
        Change(Session, "a", {"last_seen_us": 2}, grows=True),
        Remove(Session, "b"),
        Change(Session, "gone", {"last_seen_us": 5}),
    ]
    store.commit(writes)
    assert store.find(Session) == [Session("a", "me", 0, 7, user_metadata={"x": 1})]


def test_an_answer_is_given_once_and_never_changes(store: SqliteStore) -> None:
    store.commit([Add(Request("r", "me", 1, "json", b"", 0, "m", mutates=True)), Add(Payload("r", b"p"))])
    store.commit([Answer("r", 5, "OptimResult", b"first")])
    store.commit([Answer("r", 6, "OptimResult", b"second"), Answer("r", 7, error="late", category="user")])
    found = store.get(Request, "r")
    assert found is not None
    assert (found.state, found.answered_us, found.error) == ("done", 5, None)
    assert store.find(Result) == [Result("r", b"first")]


def test_payloads_go_when_they_can_never_be_needed_again(store: SqliteStore) -> None:
    requests = [Request(f"r{seq}", "me", seq, "json", b"", 0, "m", mutates=seq != 3) for seq in range(1, 5)]
    store.commit([Add(Model("m", "s", "me", SPEC, 0, 0))])
    store.commit([write for request in requests for write in (Add(request), Add(Payload(request.request_id, b"p")))])
    store.commit([Answer("r1", 1, "X", b""), Answer("r2", 1, error="no", category="user"), Answer("r3", 1, "X", b"")])
    assert [payload.request_id for payload in store.find(Payload)] == ["r1", "r4"]
    store.commit([MadeDurable("m", 3, "/state/3")])
    assert [payload.request_id for payload in store.find(Payload)] == ["r4"]
    assert [request.seq for request in store.units_after("m", 3)] == [4]
    with pytest.raises(StoreError, match="payload of request r1 is not there"):
        store.payload("r1")


def test_results_expire_but_the_request_is_remembered(store: SqliteStore) -> None:
    store.commit(
        [Add(Request("r", "me", 1, "json", b"", 0, "m")), Add(Request("s", "me", 1, "json", b"", 0, None, "x"))]
    )
    store.commit([Answer("r", 5, "X", b"result"), Answer("s", 5, "X", b"result")])
    store.commit([Expire(6, 0)])
    assert store.find(Result) == []
    assert [request.state for request in store.find(Request)] == ["expired", "expired"]
    store.commit([Expire(6, 6)])
    assert [request.request_id for request in store.find(Request)] == ["r"]


def test_what_waits_and_what_may_have_to_be_run_again_is_found_in_order(store: SqliteStore) -> None:
    for seq in range(1, 4):
        request = Request(f"r{seq}", "me", seq, "own:load" if seq < 3 else "json", b"", 0, "m", mutates=True)
        store.commit([Add(request), Add(Payload(request.request_id, b"p"))])
    store.commit([Answer("r2", 1, "Ready", b"")])
    assert [request.request_id for request in store.waiting()] == ["r1", "r3"]
    assert [request.request_id for request in store.kept("own:load")] == ["r1", "r2"]


def test_one_number_of_a_model_is_taken_once(store: SqliteStore) -> None:
    store.commit([Add(Request("r", "me", 1, "json", b"", 0, "m"))])
    with pytest.raises(StoreError, match="UNIQUE"):
        store.commit([Add(Request("other", "me", 1, "json", b"", 0, "m"))])


def test_what_was_committed_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = open_store(tmp_path / "store")
    first.commit([Add(row) for row in ROWS])
    second = open_store(tmp_path / "store")
    assert second.get(Model, "s:train:0") == ROWS[2]
    second.compact()
    first.close()
    second.close()
    assert open_store(tmp_path / "store").count(Model) == 1


def test_a_newer_schema_is_refused_and_both_versions_are_named(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    with sqlite3.connect(tmp_path / "store") as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(StoreInvalid, match=f"version {VERSION + 1} is newer than {VERSION}.*upgrade"):
        open_store(tmp_path / "store")


def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("no database at all\n" * 100)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    for file, reason in ((text, "not a database"), (other, "SQLite file of something else")):
        with pytest.raises(StoreInvalid, match=reason):
            open_store(file)
    assert text.read_text().startswith("no database")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere.*see that its folder exists"):
        open_store(tmp_path / "nowhere" / "store")
