"""What a client with a good key can do wrong or on purpose: it is told at once, nobody else notices, nothing grows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from fastapi.testclient import TestClient

from openrl.access import Keys
from openrl.app import create_app
from openrl.config import Config
from openrl.errors import StoreError
from openrl.service import Service
from openrl.store import SqliteStore, open_store
from openrl.wire import tinker_public_pb2 as pb
from openrl.wire.decode import decode
from openrl.wire.limits import Limits
from tests.openrl.scripted_worker import ScriptedWorker
from tests.openrl.test_app import Client
from tests.openrl.test_foreign_ids import BODIES, CALL, Ids, place

RETRIED = {408, 409, 429}  # and 500 and more: the SDK sends the same again, for minutes
PROTO = "application/x-protobuf"
NAMES = [
    "..",
    "../x",
    "a/b",
    "/etc/passwd",
    "a\\b",
    "a\0b",
    "\0",
    "ä",
    "😀",
    "",
    ".",
    " ",
    "a\nb",
    "-rf",
    "x" * 100_000,
]
NUMBERS = [-1, -(2**63), 2**31, 2**53, 2**63, 2**64, 10**30, 10**4000, 1.5, "x", None, True, [], {}]
TEXTS = {
    "empty": b"",
    "no JSON": b"\xff\xfe",
    "cut short": b'{"model_id": "',
    "a list": b"[]",
    "null": b"null",
    "deep": b'{"model_id":' + b"[" * 100_000,
    "half a pair": b'{"model_id":"\\ud800"}',
    "a number too long": b'{"model_id": ' + b"9" * 5000 + b"}",
    "not a number": b'{"model_id": NaN, "session_id": Infinity}',
    "the same key twice": b'{"model_id": 1, "model_id": {}}',
    "a long text": b'{"model_id": "' + b"a" * 500_000 + b'", "session_id": "' + b"a" * 500_000 + b'"}',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[SqliteStore]:
    store = open_store(folder / "openrl.sqlite")
    yield store
    store.close()


@pytest.fixture(scope="module")
def client(store: SqliteStore, folder: Path) -> Iterator[Client]:
    keys = Keys(store)
    service = Service(store, ScriptedWorker(), decode, folder)
    config = Config(data=folder, limits=Limits(), poll_s=0.1)
    with TestClient(create_app(service, keys, config), raise_server_exceptions=False) as http:
        client = Client(http, keys.create("me", "", 1)[0])
        client.begin()
        yield client


@pytest.fixture(scope="module")
def ids(client: Client) -> Ids:
    ask = {"session_id": client.session, "sampling_session_seq_id": 0, "base_model": "tiny"}
    sampler = client.post("create_sampling_session", ask)["sampling_session_id"]
    return Ids(client.session, client.model, sampler, "f" * 32)


def check_told(answer: Any, folder: Path) -> None:
    """It is an answer that the SDK raises at once, that says something, in few words, and not where things lie."""
    assert answer.status_code < 500, answer.text
    assert answer.status_code not in RETRIED, answer.text
    if answer.status_code >= 400:
        detail = answer.json()["detail"]
        assert detail
        assert len(detail) < 70_000
    assert str(folder) not in answer.text


JSON_ROUTES = [call for call in BODIES if call[0] in ("POST", "PUT")]


@pytest.mark.parametrize("text", TEXTS.values(), ids=[*TEXTS])
@pytest.mark.parametrize("call", JSON_ROUTES, ids=" ".join)
def test_a_body_that_is_no_message_is_refused_at_once(
    client: Client, folder: Path, ids: Ids, call: CALL, text: bytes
) -> None:
    if call[1].endswith(("cancel", "finish")):
        ids = Ids("session-0", "session-0:train:0", "session-0:sample:0", "0")
    check_told(client.send(call[0], place(call[1], ids), text, content_type="application/json"), folder)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize(
    "call", [call for call in JSON_ROUTES if not call[1].endswith(("cancel", "finish"))], ids=" ".join
)
def test_a_field_of_any_message_may_hold_any_number(
    client: Client, folder: Path, ids: Ids, call: CALL, number: Any
) -> None:
    """Every field in turn, the ids apart."""
    fields = ["seq_id", "model_seq_id", "sampling_session_seq_id", "ttl_seconds", "num_samples", "path", "name"]
    for field in fields:
        body = {**(BODIES[call](ids) or {}), field: number}
        answer = client.send(call[0], place(call[1], ids), body, content_type="application/json")
        if answer.status_code != 408:
            check_told(answer, folder)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:12])
@pytest.mark.parametrize("route", ["save_weights", "save_weights_for_sampler", "save_weights_external"])
def test_a_name_that_is_none_fails_in_few_words(client: Client, route: str, name: str) -> None:
    seq = 1000 + NAMES.index(name) + 100 * len(route)
    answer = client.send("POST", route, {"model_id": client.model, "seq_id": seq, "path": name})
    if answer.status_code == 200:
        text = client.result(answer.json())["error"]
    else:
        text = answer.json()["detail"]
    assert "will not do" in text or "at most" in text
    assert len(text) < 1000


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:12])
@pytest.mark.parametrize("route", ["weights_info", "copy_weights", "load_weights"])
def test_a_path_that_is_none_is_refused_at_once(client: Client, folder: Path, route: str, name: str) -> None:
    for path in (name, f"tinker://{name}", f"tinker://{client.model}/weights/{name}", f"tinker://../{name}/x"):
        ask = {"session_id": client.session, "model_seq_id": 5}
        answer = client.send("POST", route, {**ask, "path": path, "tinker_path": path, "source_path": path})
        assert answer.status_code in (400, 404)
        check_told(answer, folder)


@pytest.mark.parametrize(
    "query", ["limit=-1", "offset=-1", f"limit={10**9}", f"offset={10**20}", "limit=", "limit=1e3"]
)
@pytest.mark.parametrize("route", ["sessions", "training_runs", "checkpoints"])
def test_a_page_that_cannot_be_is_refused(client: Client, folder: Path, route: str, query: str) -> None:
    answer = client.send("GET", f"{route}?{query}")
    assert answer.status_code == 400
    check_told(answer, folder)


@pytest.mark.parametrize("metadata", [{"a": 10**30}, {"a": [-(10**20)]}, {"a": "x" * 100_000}])
@pytest.mark.parametrize("route", ["create_session", "create_model", "load_weights"])
def test_metadata_that_cannot_be_kept_is_refused(client: Client, route: str, metadata: Any) -> None:
    ask = {"session_id": client.session, "model_seq_id": 6, "base_model": "tiny", "path": "tinker://a/weights/b"}
    assert "user_metadata" in client.refused(route, {**ask, "user_metadata": metadata})


def test_metadata_that_cannot_be_kept_fails_its_save_and_later_requests_go_on(client: Client) -> None:
    client = Client(client.http, client.key)
    client.begin()
    ask = {"model_id": client.model, "seq_id": 1, "path": "kept", "user_metadata": {"a": 10**30}}
    assert "64 bits" in client.result(client.post("save_weights", ask))["error"]
    assert "metrics" in client.result(client.step(2))


# ---- more than there is room for


def zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(body)


BOMBS = {
    "mistakes": ("asample", b'{"prompt":{"chunks":[{"tokens":[' + b'"a",' * 4_000_000 + b"1]}]}}"),
    "chunks": ("asample", b'{"sampling_session_id":"a","prompt":{"chunks":[' + b"{}," * 4_000_000 + b"{}]}}"),
    "lists": ("create_session", b'{"user_metadata":{"a":[' + b"[]," * 4_000_000 + b"1]}}"),
    "ids": ("cancel_future", b'{"request_ids":[' + b'"a",' * 4_000_000 + b'"a"]}'),
    "tags": ("create_session", b'{"tags":[' + b'"a",' * 4_000_000 + b'"a"]}'),
    "datums": ("forward_backward", b'{"model_id":"a","seq_id":1}' + b" " * (70 << 20)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_body_that_would_fill_the_memory_is_refused_before_it_does(client: Client, name: str) -> None:
    route, body = BOMBS[name]
    began = time.monotonic()
    answer = client.send("POST", route, zstd(body), content_encoding="zstd", content_type="application/json")
    assert answer.status_code in (400, 413), answer.text
    assert time.monotonic() - began < 30


def test_many_empty_datums_are_counted_not_read(client: Client) -> None:
    head = pb.ForwardBackwardRequest(model_id=client.model, seq_id=3).SerializeToString()
    promise = client.post(
        "forward_backward", zstd(head + b"\x1a\x00" * 3_000_000), content_encoding="zstd", content_type=PROTO
    )
    assert "limits.batch_datums" in client.result(promise)["error"]


@pytest.mark.parametrize("count", [1, 8])
def test_sparse_tensors_that_would_fill_the_memory_are_refused(client: Client, count: int) -> None:
    """A few bytes each, and 8 GiB, or 128 MiB of them each, made dense."""
    columns = 2**30 if count == 1 else 2**24
    crow = pb.SparseCsr(values=b"\0\0\0\0", crow_indices=b"\0" * 8 + b"\1" + b"\0" * 7, col_indices=b"\0" * 8)
    tensor = pb.Tensor(sparse_csr=crow, dtype=pb.DTYPE_FLOAT32, shape=[1, columns])
    chunk = pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=b"\1\0\0\0"))
    data = [pb.Datum(model_input=[chunk], loss_fn_inputs={"weights": tensor})] * count
    sent = pb.ForwardBackwardRequest(model_id=client.model, seq_id=3 + count, data=data).SerializeToString()
    promise = client.post("forward_backward", sent, content_type=PROTO)
    assert "limits.spread_bytes" in client.result(promise)["error"]


@pytest.mark.parametrize("index", [2**63, -(2**70)])
def test_an_index_beyond_64_bits_is_named(client: Client, index: int) -> None:
    tensor = {"data": [1.0], "shape": [1, 2], "sparse_crow_indices": [0, index], "sparse_col_indices": [0]}
    datum = {"model_input": {"chunks": [{"tokens": [1]}]}, "loss_fn_inputs": {"weights": tensor}}
    ask = {"model_id": client.model, "seq_id": 20 + (index < 0), "forward_input": {"data": [datum]}}
    assert "beyond 64 bits" in client.result(client.post("forward", ask))["error"]


def test_what_clients_choose_makes_no_new_lines_of_metrics(client: Client) -> None:
    for number in range(3):
        client.http.request(f"WORD{number}", "/api/v1/sessions")
        client.http.get(f"/nowhere/{number}")
    client.http.get("/metrics")  # has lines of its own from its first time on
    before = client.http.get("/metrics").text.count("\n")
    for number in range(3, 30):
        client.http.request(f"WORD{number}", "/api/v1/sessions")
        client.http.get(f"/nowhere/{number}")
    assert client.http.get("/metrics").text.count("\n") == before


# ---- addresses of downloads


@pytest.fixture(scope="module")
def address(client: Client) -> str:
    other = Client(client.http, client.key)
    other.begin()
    other.result(other.post("save_weights_external", {"model_id": other.model, "seq_id": 1, "path": "out"}))
    place = f"training_runs/{other.model}/checkpoints/external_weights/out/external_weights_urls"
    return str(next(iter(other.send("GET", place).json()["urls"].values())))


PARTS = {"owner": -6, "run": -5, "name": -4, "expires": -3, "signature": -2, "file": -1}
WRONG = ["x", "%C3%A9", "%FF", "%00", "0", "9" * 30, "..%2F..%2Fopenrl.sqlite", "stranger", "x" * 5000]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong[:12])
@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_a_signed_address_can_be_changed(
    client: Client, folder: Path, address: str, part: str, wrong: str
) -> None:
    assert client.http.get(address).status_code == 200
    parts = address.split("/")
    parts[PARTS[part]] = wrong
    answer = client.http.get("/".join(parts))
    assert answer.status_code in (400, 401, 404), answer.text
    check_told(answer, folder)


# ---- what goes wrong here is not shown to them


def test_the_store_is_not_described_to_clients(client: Client, store: SqliteStore, monkeypatch: Any) -> None:
    def fail(*_: Any) -> None:
        raise StoreError(f"{store.path}: database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", fail)
        answer = client.send("POST", "create_session", {})
    assert answer.status_code == 503
    assert re.search("log", answer.text)
    assert str(store.path) not in answer.text
    assert "locked" not in json.dumps(dict(answer.headers))


def test_a_write_that_no_store_takes_fails_alone(client: Client, store: SqliteStore, monkeypatch: Any) -> None:
    """And later ones are taken."""

    def fail(*_: Any) -> None:
        raise OverflowError("a number that no column takes")

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", fail)
        assert client.send("POST", "create_session", {}).status_code == 500
    assert client.send("POST", "create_session", {}).status_code == 200
