"""Every route: without a key it opens nothing, and what is another owner's looks as if it had never been."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from msgspec import Struct

from openrl.access import Keys
from openrl.app import TOPICS, create_app
from openrl.config import Config
from openrl.service import Service
from openrl.store import open_store
from openrl.wire.decode import decode
from openrl.wire.limits import Limits
from tests.openrl.scripted_worker import ScriptedWorker
from tests.openrl.test_app import Client

CALL = tuple[str, str]
ROUTES: list[CALL] = sorted(
    (method, route.path.removeprefix("/api/v1/"))
    for topic in TOPICS
    for route in topic.router.routes
    for method in route.methods
)
DOWNLOAD = ("GET", "external_weights/{owner}/{run_id}/{name}/{expires_s}/{signature}/{file:path}")
NEEDS_NO_KEY = [("GET", "healthz"), DOWNLOAD]


class Ids(Struct, frozen=True):
    """What one owner has, or somebody might guess."""

    session: str
    model: str
    sampler: str
    future: str
    name: str = "kept"

    def path(self, kind: str) -> str:
        return f"tinker://{self.model}/{kind}/{self.name}"


NOBODYS = Ids("session-0", "session-0:train:0", "session-0:sample:0", "0" * 32)


def numbered(ids: Ids, **more: Any) -> dict[str, Any]:
    return {"model_id": ids.model, "seq_id": 50, **more}


BATCH = {"data": [{"model_input": {"chunks": [{"tokens": [1, 2]}]}}]}

# For every route that takes the id of something: the body that names it.
BODIES: dict[CALL, Callable[[Ids], Any]] = {
    ("POST", "retrieve_future"): lambda ids: {"request_id": ids.future},
    ("POST", "retrieve_futures"): lambda ids: {"target": {"sampling_session_id": ids.sampler}, "timeout": 0},
    ("POST", "cancel_future"): lambda ids: {"request_id": ids.future},
    ("POST", "forward_backward"): lambda ids: numbered(ids, forward_backward_input=BATCH),
    ("POST", "forward"): lambda ids: numbered(ids, forward_input=BATCH),
    ("POST", "optim_step"): numbered,
    ("POST", "create_model"): lambda ids: {"session_id": ids.session, "model_seq_id": 7, "base_model": "tiny"},
    ("POST", "get_info"): lambda ids: {"model_id": ids.model},
    ("POST", "unload_model"): lambda ids: {"model_id": ids.model},
    ("POST", "save_weights"): lambda ids: numbered(ids, path="mine"),
    ("POST", "save_weights_for_sampler"): lambda ids: numbered(ids, path="mine"),
    ("POST", "save_weights_external"): lambda ids: numbered(ids, path="mine"),
    ("POST", "load_weights"): lambda ids: numbered(ids, path=ids.path("weights")),
    ("POST", "create_sampling_session"): lambda ids: {"session_id": ids.session, "base_model": "tiny"},
    ("GET", "samplers/{sampler_id}"): lambda ids: None,
    ("POST", "asample"): lambda ids: {
        "sampling_session_id": ids.sampler,
        "seq_id": 9,
        "prompt": BATCH["data"][0]["model_input"],
    },
    ("POST", "join_sampling_session"): lambda ids: {"sampling_session_id": ids.sampler},
    ("POST", "session_heartbeat"): lambda ids: {"session_id": ids.session},
    ("POST", "sessions/{session_id}/finish"): lambda ids: {"reason": {"type": "success"}},
    ("POST", "sessions/{session_id}/cancel"): lambda ids: None,
    ("GET", "sessions/{session_id}"): lambda ids: None,
    ("PUT", "sessions/{session_id}/project"): lambda ids: {"project_id": "p"},
    ("GET", "sessions/{session_id}/trace_export"): lambda ids: None,
    ("GET", "training_runs/{run_id}"): lambda ids: None,
    ("GET", "training_runs/{run_id}/checkpoints"): lambda ids: None,
    ("DELETE", "training_runs/{run_id}/checkpoints/{kind}/{name}"): lambda ids: None,
    ("POST", "training_runs/{run_id}/checkpoints/{kind}/{name}/publish"): lambda ids: None,
    ("DELETE", "training_runs/{run_id}/checkpoints/{kind}/{name}/publish"): lambda ids: None,
    ("PUT", "training_runs/{run_id}/checkpoints/{kind}/{name}/ttl"): lambda ids: {"ttl_seconds": 60},
    ("POST", "weights_info"): lambda ids: {"tinker_path": ids.path("weights")},
    ("POST", "copy_weights"): lambda ids: {"source_path": ids.path("weights"), "session_id": ids.session},
    ("GET", "training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls"): lambda ids: None,
}
# Routes that are told no id, or show only what is the caller's.
NAMELESS = {
    *NEEDS_NO_KEY,
    ("POST", "create_session"),
    ("POST", "telemetry"),
    ("POST", "sessions/search"),
    ("GET", "sessions"),
    ("POST", "client/config"),
    ("POST", "client/dynamic_config"),
    ("GET", "get_server_capabilities"),
    ("GET", "auth/apikey/me"),
    ("DELETE", "auth/apikey/me"),
    ("GET", "training_runs"),
    ("GET", "checkpoints"),
    ("GET", "training_runs/{run_id}/checkpoints/{kind}/{name}/external_weights_urls"),
    ("POST", "create_custom_loss"),
    ("GET", "audit"),
    ("GET", "billing/usage/events"),
    ("GET", "billing/usage/checkpoints/current"),
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Keys]]:
    folder: Path = tmp_path_factory.mktemp("data")
    store = open_store(folder / "openrl.sqlite")
    keys = Keys(store)
    service = Service(store, ScriptedWorker(), decode, folder)
    config = Config(data=folder, limits=Limits(), poll_s=0.1)
    with TestClient(create_app(service, keys, config), raise_server_exceptions=False) as http:
        yield http, keys
    store.close()


def client_of(app: tuple[TestClient, Keys], owner: str) -> Client:
    http, keys = app
    client = Client(http, keys.create(owner, "", 1)[0])
    client.begin()
    return client


@pytest.fixture(scope="module")
def owner(app: tuple[TestClient, Keys]) -> Client:
    return client_of(app, "owner")


@pytest.fixture(scope="module")
def stranger(app: tuple[TestClient, Keys]) -> Client:
    return client_of(app, "stranger")


@pytest.fixture(scope="module")
def ids(owner: Client) -> Ids:
    """Something of every kind."""
    saves = (("save_weights", 1), ("save_weights_for_sampler", 2), ("save_weights_external", 3))
    for route, seq in saves:
        owner.result(owner.post(route, {"model_id": owner.model, "seq_id": seq, "path": "kept"}))
    ask = {"session_id": owner.session, "sampling_session_seq_id": 0, "base_model": "tiny"}
    sampler = owner.post("create_sampling_session", ask)["sampling_session_id"]
    waits = owner.step(9)["request_id"]  # for requests that never come
    return Ids(owner.session, owner.model, sampler, waits)


def place(route: str, ids: Ids, kind: str = "weights") -> str:
    values = {
        "session_id": ids.session,
        "sampler_id": ids.sampler,
        "run_id": ids.model,
        "kind": kind,
        "name": ids.name,
        "owner": "owner",
        "expires_s": "9999999999",
        "signature": "0" * 64,
        "file:path": "weights",
    }
    for name, value in values.items():
        route = route.replace("{" + name + "}", value)
    return route


def test_every_route_is_in_one_of_the_two_tables() -> None:
    assert {*BODIES} | NAMELESS == {*ROUTES}
    assert not {*BODIES} & NAMELESS


@pytest.mark.parametrize("key", [None, "", "tml-not-a-key", "eyJhbGciOiJub25lIn0.e30.", "' OR 1=1 --", "é" * 5000])
@pytest.mark.parametrize("call", [call for call in ROUTES if call not in NEEDS_NO_KEY], ids=" ".join)
def test_without_a_good_key_no_route_opens(app: tuple[TestClient, Keys], call: CALL, ids: Ids, key: str | None) -> None:
    headers = {} if key is None else {"x-api-key": key.encode("latin-1")}
    answer: Any = app[0].request(call[0], "/api/v1/" + place(call[1], ids), headers=headers, content=b"\xff")  # type: ignore[arg-type]
    assert answer.status_code == 401
    assert "key" in answer.json()["detail"].lower()


@pytest.mark.parametrize("call", BODIES, ids=" ".join)
def test_what_is_another_owners_looks_as_if_it_had_never_been(stranger: Client, ids: Ids, call: CALL) -> None:
    method, route = call
    foreign, never = (
        stranger.send(method, place(route, which), BODIES[call](which), content_type="application/json")
        for which in (ids, NOBODYS)
    )
    if call == ("POST", "retrieve_future"):
        assert foreign.status_code == 200
        assert foreign.json()["category"] == "user"
        assert "is not known" in foreign.json()["error"]
    else:
        assert foreign.status_code == 404, foreign.text
        assert "not known" in foreign.json()["detail"]
    assert without(foreign.text, ids) == without(never.text, NOBODYS)


def without(text: str, ids: Ids) -> str:
    for value in (ids.model, ids.sampler, ids.session, ids.future):
        text = text.replace(value, "ID")
    return text


HARMLESS = [
    call for call in BODIES if call[0] != "DELETE" and not call[1].endswith(("cancel", "finish", "cancel_future"))
]


@pytest.mark.parametrize("call", HARMLESS, ids=" ".join)
def test_the_owner_himself_is_let_in(owner: Client, ids: Ids, call: CALL) -> None:
    """Or else the test above might pass because of a wrong path."""
    answer = owner.send(call[0], place(call[1], ids), BODIES[call](ids), content_type="application/json")
    assert answer.status_code != 404, answer.text
    assert "not known" not in answer.text


@pytest.mark.parametrize("kind", ["sampler", "weights"])
def test_a_stranger_neither_samples_nor_trains_from_anothers_checkpoint(stranger: Client, ids: Ids, kind: str) -> None:
    sampling = {"session_id": stranger.session, "model_path": ids.path("sampler_weights")}
    training = {"session_id": stranger.session, "model_seq_id": 3, "path": ids.path("weights")}
    route, ask = ("create_sampling_session", sampling) if kind == "sampler" else ("load_weights", training)
    assert "is not yours" in stranger.refused(route, ask, 404)


def test_a_stranger_does_not_load_anothers_checkpoint_into_a_model_of_his_own(stranger: Client, ids: Ids) -> None:
    promise = stranger.post("load_weights", {"model_id": stranger.model, "seq_id": 1, "path": ids.path("weights")})
    assert "is not yours" in stranger.result(promise)["error"]


@pytest.mark.parametrize("route", ["sessions", "training_runs", "checkpoints"])
def test_lists_hold_only_what_is_the_callers(stranger: Client, ids: Ids, route: str) -> None:
    shown = stranger.send("GET", route).text
    assert ids.session not in shown
    found = stranger.post("sessions/search", {"session_id": ids.session})
    assert found["sessions"] == []
