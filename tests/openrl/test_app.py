"""The HTTP interface over a scripted worker: forms, statuses, order, retries, and bad input."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from fastapi.testclient import TestClient
from httpx import Response

from openrl.access import Keys
from openrl.app import create_app
from openrl.config import Config
from openrl.routes import results
from openrl.routes.refusals import STATUSES, status_of
from openrl.service import Service
from openrl.store import open_store
from openrl.wire import tinker_public_pb2 as pb
from openrl.wire.decode import decode
from openrl.wire.limits import Limits
from tests.openrl.scripted_worker import ScriptedWorker

LIMITS = Limits(body_bytes=100_000, decompressed_bytes=200_000, rank=64, batch_datums=8)


class Client:
    """What the SDK does, request by request."""

    def __init__(self, http: TestClient, key: str) -> None:
        self.http = http
        self.key = key
        self.session = ""
        self.model = ""

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        answer: Any = self.http.request(
            method, f"/api/v1/{path}", content=content, headers={"x-api-key": self.key, **headers}
        )
        return answer  # type: ignore[no-any-return]

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.send("POST", path, body, **headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str, body: Any = None, status: int = 400, **headers: str) -> str:
        answer = self.send("POST", path, body, **headers)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return str(answer.json()["detail"])

    def begin(self) -> None:
        self.session = self.post("create_session", {"tags": [], "sdk_version": "0.38.0"})["session_id"]
        ask = {"session_id": self.session, "model_seq_id": 0, "base_model": "tiny", "lora_config": {"rank": 8}}
        promise = self.post("create_model", ask)
        assert promise["model_id"] == f"{self.session}:train:0"
        made = self.result(promise)
        assert made == {"type": "create_model", "model_id": promise["model_id"], "path": None}
        self.model = made["model_id"]

    def result(self, promise: Any) -> Any:
        """Asked for again as long as it is not there."""
        ask = {"request_id": promise["request_id"]}
        answer = self.send("POST", "retrieve_future", ask)
        while answer.status_code == 408:
            answer = self.send("POST", "retrieve_future", ask)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def batch(self, seq: int, loss: str = "cross_entropy", tokens: tuple[int, ...] = (1, 2)) -> bytes:
        chunk = pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=np.array(tokens, "<i4").tobytes()))
        data = [pb.Datum(model_input=[chunk])]
        request = pb.ForwardBackwardRequest(model_id=self.model, seq_id=seq, loss_fn=loss, data=data)
        return request.SerializeToString()

    def train(self, seq: int, loss: str = "cross_entropy") -> Any:
        return self.post("forward_backward", self.batch(seq, loss), content_type="application/x-protobuf")

    def step(self, seq: int, **params: Any) -> Any:
        return self.post("optim_step", {"model_id": self.model, "seq_id": seq, "adam_params": params})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def app(folder: Path) -> Iterator[tuple[TestClient, Keys]]:
    store = open_store(folder / "openrl.sqlite")
    config = Config(data=folder, limits=LIMITS, poll_s=0.2)
    keys = Keys(store)
    service = Service(store, ScriptedWorker(), decode, folder)
    with TestClient(create_app(service, keys, config), raise_server_exceptions=False) as http:
        yield http, keys
    store.close()


@pytest.fixture
def client(app: tuple[TestClient, Keys]) -> Client:
    http, keys = app
    secret, _ = keys.create("me", "", 1)
    client = Client(http, secret)
    client.begin()
    return client


@pytest.fixture
def stranger(app: tuple[TestClient, Keys]) -> Client:
    http, keys = app
    secret, _ = keys.create("stranger", "", 1)
    client = Client(http, secret)
    client.begin()
    return client


# ---- the ordinary way


def test_a_client_learns_how_to_behave(client: Client) -> None:
    config = client.post("client/config", {"sdk_version": "0.38.0"})
    assert config["pjwt_auth_enabled"] is False
    assert client.post("client/dynamic_config", {"sdk_version": "0.38.0"})["refresh_interval_sec"] >= 10
    assert client.send("GET", "healthz").json() == {"status": "ok"}
    models = client.send("GET", "get_server_capabilities").json()["supported_models"]
    assert models[0]["model_name"] == "tiny"
    assert client.send("GET", "auth/apikey/me").json()["details"]["user_details"]["email"] == "me"


def test_training_answers_at_once_and_results_are_fetched(client: Client) -> None:
    trained, stepped = client.train(1), client.step(2, learning_rate=0.5)
    assert client.send("POST", "retrieve_future", trained, accept="application/x-protobuf").headers["content-type"] == (
        "application/x-protobuf"
    )
    assert client.result(trained)["loss_fn_outputs"] == []
    metrics = client.result(stepped)["metrics"]
    assert all(name.count(":") == 1 for name in metrics)


def test_requests_are_carried_out_in_the_order_of_their_numbers(client: Client) -> None:
    late = [client.train(2), client.step(3)]
    pending = client.send("POST", "retrieve_future", late[0])
    assert pending.status_code == 408
    assert pending.json()["queue_state"] == "active"
    client.result(client.train(1))
    assert [type(client.result(promise)) for promise in late] == [dict, dict]


def test_a_retry_gets_the_first_answer(client: Client) -> None:
    first, second = client.train(1), client.train(1)
    assert first["request_id"] == second["request_id"]
    other = client.refused("forward_backward", client.batch(1, tokens=(9,)), content_type="application/x-protobuf")
    assert "sent before with other content" in other


def test_a_session_is_created_once_however_often_it_is_asked_for(client: Client) -> None:
    ask = {"x_idempotency_key": "retry-1"}
    first, second = (client.post("create_session", {"sdk_version": "x"}, **ask)["session_id"] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bodies_may_be_compressed(client: Client, encoding: str) -> None:
    body = client.batch(1)
    sent = gzip.compress(body) if encoding == "gzip" else zstandard.compress(body)
    promise = client.post("forward_backward", sent, content_type="application/x-protobuf", content_encoding=encoding)
    assert "error" not in client.result(promise)


def test_older_clients_send_and_read_json(client: Client) -> None:
    data = [{"model_input": {"chunks": [{"tokens": [1, 2], "type": "encoded_text"}]}, "loss_fn_inputs": {}}]
    batch = {"data": data, "loss_fn": "cross_entropy"}
    ask = {"model_id": client.model, "seq_id": 1, "forward_backward_input": batch}
    assert client.result(client.post("forward_backward", ask))["metrics"]
    forward = {"model_id": client.model, "seq_id": 2, "forward_input": batch}
    assert client.result(client.post("forward", forward))["metrics"]
    assert client.post("unload_model", {"model_id": client.model})["model_id"] == client.model


def test_info_tells_what_a_client_must_know(client: Client) -> None:
    info = client.post("get_info", {"model_id": client.model})
    assert info["model_data"]["model_name"] == "tiny"
    assert (info["is_lora"], info["lora_rank"]) == (True, 8)


def test_weights_are_saved_listed_published_and_deleted(client: Client, stranger: Client) -> None:
    ask = {"model_id": client.model, "seq_id": 1, "path": "one", "user_metadata": {"renderer": "x"}}
    saved = client.result(client.post("save_weights", ask))
    assert saved["path"] == f"tinker://{client.model}/weights/one"
    assert saved["type"] == "save_weights"
    place = f"training_runs/{client.model}/checkpoints"
    (shown,) = client.send("GET", place).json()["checkpoints"]
    assert (shown["checkpoint_id"], shown["checkpoint_type"]) == ("weights/one", "training")
    assert shown["user_metadata"] == {"renderer": "x"}
    assert client.post("weights_info", {"tinker_path": saved["path"]})["lora_rank"] == 8
    assert client.send("GET", f"training_runs/{client.model}").json()["last_checkpoint"]["tinker_path"] == saved["path"]
    assert stranger.refused("weights_info", {"tinker_path": saved["path"]}, 404)
    assert client.send("POST", f"{place}/weights/one/publish").status_code == 204
    assert stranger.post("weights_info", {"tinker_path": saved["path"]})["base_model"] == "tiny"
    assert client.send("DELETE", f"{place}/weights/one/publish").status_code == 204
    assert client.send("PUT", f"{place}/weights/one/ttl", {"ttl_seconds": 7200}).status_code == 204
    assert client.send("GET", place).json()["checkpoints"][0]["expires_at"]
    assert client.send("DELETE", f"{place}/weights/one").status_code == 204
    assert client.send("GET", place).json()["checkpoints"] == []
    assert client.send("DELETE", f"{place}/weights/one").status_code == 404


def test_a_model_is_made_from_a_checkpoint_in_one_request(client: Client) -> None:
    saved = client.result(client.post("save_weights", {"model_id": client.model, "seq_id": 1, "path": "one"}))
    ask = {"session_id": client.session, "model_seq_id": 1, "path": saved["path"], "optimizer": True}
    loaded = client.result(client.post("load_weights", ask))
    assert (loaded["type"], loaded["model_id"]) == ("load_weights", f"{client.session}:train:1")


def test_older_clients_load_into_a_model_that_they_have_made(client: Client) -> None:
    saved = client.result(client.post("save_weights", {"model_id": client.model, "seq_id": 1, "path": "one"}))
    ask = {"session_id": client.session, "model_seq_id": 1, "base_model": "tiny", "lora_config": {"rank": 8}}
    made = client.result(client.post("create_model", ask))
    load = {"model_id": made["model_id"], "seq_id": 1, "path": saved["path"], "optimizer": False}
    assert "error" not in client.result(client.post("load_weights", load))


def test_a_checkpoint_is_copied_to_a_session_or_a_project(client: Client, stranger: Client) -> None:
    saved = client.result(client.post("save_weights", {"model_id": client.model, "seq_id": 1, "path": "one"}))["path"]
    ask = {"source_path": saved, "session_id": client.session, "model_seq_id": 5}
    assert client.post("copy_weights", ask)["tinker_path"] == f"tinker://{client.session}:train:5/weights/one"
    to_project = {"source_path": saved, "destination_project_id": "p"}
    copies = [client.post("copy_weights", to_project, x_idempotency_key="retry-2")["tinker_path"] for _ in range(2)]
    assert copies[0] == copies[1]
    assert client.post("weights_info", {"tinker_path": copies[0]})["lora_rank"] == 8
    assert stranger.refused("copy_weights", to_project, 404)


def test_samples_are_promised_with_their_sequence_ids(client: Client) -> None:
    ask = {"model_id": client.model, "seq_id": 1, "sampling_session_seq_id": 0, "kind": "snapshot"}
    saved = client.result(client.post("save_weights_for_sampler", ask))
    assert saved["path"] is None
    prompt = {"chunks": [{"tokens": [1, 2], "type": "encoded_text"}]}
    sample = {"sampling_session_id": saved["sampling_session_id"], "seq_id": 10**18, "num_samples": 3, "prompt": prompt}
    promise, again = client.post("asample", sample), client.post("asample", sample)
    assert promise == again
    assert len(set(promise["sample_sequence_ids"])) == 3
    result = client.result(promise)
    assert [len(one["logprobs"]) for one in result["sequences"]] == [4, 4, 4]
    answer = client.send("POST", "retrieve_future", promise, accept="application/x-protobuf")
    assert len(pb.SampleResponse.FromString(answer.content).sequences) == 3


def test_sampling_sessions_are_of_a_base_or_a_checkpoint(client: Client) -> None:
    ask = {"model_id": client.model, "seq_id": 1, "path": "named"}
    path = client.result(client.post("save_weights_for_sampler", ask))["path"]
    assert path == f"tinker://{client.model}/sampler_weights/named"
    made = client.post(
        "create_sampling_session", {"session_id": client.session, "sampling_session_seq_id": 0, "model_path": path}
    )
    assert made["sampling_session_id"] == f"{client.session}:sample:0"
    shown = client.send("GET", f"samplers/{made['sampling_session_id']}").json()
    assert (shown["base_model"], shown["model_path"]) == ("tiny", path)
    ask = {"session_id": client.session, "sampling_session_seq_id": 1, "base_model": "tiny"}
    other = client.post("create_sampling_session", ask)
    counters = [client.post("join_sampling_session", other)["client_counter"] for _ in range(3)]
    assert counters == [counters[0], counters[0] + 1, counters[0] + 2]
    assert counters[0] > 0
    assert (counters[-1] + 1) * 10**9 < 2**63


def test_a_large_result_is_announced_to_who_can_make_room_for_it(client: Client, monkeypatch: Any) -> None:
    stepped = client.post("optim_step", {"model_id": client.model, "seq_id": 1})
    whole = client.result(stepped)
    monkeypatch.setattr(results, "ANNOUNCED_BYTES", 10)
    ask = {"request_id": stepped["request_id"], "allow_metadata_only": True}
    told = client.post("retrieve_future", ask)
    assert told == {
        "status": "complete_metadata",
        "response_payload_size": len(json.dumps(whole, separators=(",", ":"))),
    }
    assert client.post("retrieve_future", {**ask, "allow_metadata_only": False}) == whole


def test_external_weights_are_downloaded_from_signed_addresses(client: Client, stranger: Client) -> None:
    ask = {"model_id": client.model, "seq_id": 1, "path": "out"}
    saved = client.result(client.post("save_weights_external", ask))
    assert saved["size_bytes"] > 0
    place = f"training_runs/{client.model}/checkpoints/external_weights/out/external_weights_urls"
    (url,) = client.send("GET", place).json()["urls"].values()
    assert client.http.get(url).status_code == 200
    assert client.http.get(url.replace("/weights", "/secrets")).status_code == 401
    assert client.http.get(url.replace("/me/", "/stranger/")).status_code == 404
    assert stranger.send("GET", place).status_code == 404
    wrong = client.send("GET", place.replace("external_weights/out", "weights/out"))
    assert wrong.status_code == 400


def test_sessions_live_are_found_and_end(client: Client, stranger: Client) -> None:
    ask = {"display_name": "My First Run", "user_metadata": {"a": "b"}, "sdk_version": "0.38.0"}
    session = client.post("create_session", ask)["session_id"]
    assert client.post("session_heartbeat", {"session_id": session})["type"] == "session_heartbeat"
    assert session in client.send("GET", "sessions?limit=100").json()["sessions"]
    found = client.post("sessions/search", {"display_name": "first", "statuses": [{"type": "active"}]})
    assert [one["session_id"] for one in found["sessions"]] == [session]
    assert client.send("PUT", f"sessions/{session}/project", {"project_id": "p"}).status_code == 204
    assert client.post("sessions/search", {"project_ids": ["p"]})["sessions"][0]["project_id"] == "p"
    assert client.send("POST", f"sessions/{session}/finish", {"reason": {"type": "errored"}}).status_code == 204
    found = client.post("sessions/search", {"session_id": session})["sessions"][0]
    assert found["status"]["reason"]["type"] == "errored"
    assert stranger.send("GET", f"sessions/{session}").status_code == 404
    assert client.send("GET", f"sessions/{session}").json()["display_name"] == "My First Run"
    assert client.send("GET", f"sessions/{session}/trace_export").json()["status"] == "failed"


def test_a_search_goes_on_where_the_page_before_ended(client: Client) -> None:
    sessions = [client.post("create_session", {"user_metadata": {"page": "y"}})["session_id"] for _ in range(3)]
    ask: dict[str, Any] = {"user_metadata": {"page": "y"}, "limit": 2}
    first = client.post("sessions/search", ask)
    second = client.post("sessions/search", {**ask, "cursor": first["next_cursor"]})
    shown = [one["session_id"] for one in first["sessions"] + second["sessions"]]
    assert sorted(shown) == sorted(sessions)
    assert "next_cursor" not in second


def test_training_runs_and_checkpoints_are_paged(client: Client) -> None:
    page = client.send("GET", "training_runs?limit=1&offset=0&access_scope=owned").json()
    assert len(page["training_runs"]) == 1
    assert page["cursor"]["total_count"] > 1
    assert client.send("GET", "checkpoints?limit=5").json()["cursor"]["limit"] == 5


def test_telemetry_is_taken(client: Client) -> None:
    assert client.post("telemetry", {"events": [{"x": 1}], "platform": "x"}) == {"status": "accepted"}


def test_a_future_can_be_cancelled(client: Client) -> None:
    waiting = client.train(5)
    client.post("cancel_future", {"request_id": waiting["request_id"]})
    assert client.result(waiting)["category"] == "user"


# ---- bad input


def test_work_that_fails_is_answered_in_band(client: Client) -> None:
    assert client.result(client.train(1, "bad")) == {"error": "loss 'bad' is not known", "category": "user"}
    assert client.result(client.train(2, "broken"))["category"] == "server"
    assert "metrics" in client.result(client.train(3))


def test_a_batch_that_makes_no_sense_fails_and_later_ones_go_on(client: Client) -> None:
    failed = client.post("forward_backward", client.batch(1, tokens=()), content_type="application/x-protobuf")
    assert client.result(failed) == {
        "error": "data[0].model_input is empty: send at least one token",
        "category": "user",
    }
    assert "metrics" in client.result(client.train(2))


def test_a_step_that_makes_no_sense_fails_and_later_ones_go_on(client: Client) -> None:
    assert "nan" in client.result(client.step(1, learning_rate=float("nan")))["error"]
    ask = {"model_id": client.model, "seq_id": 2, "optimizer_params": {"type": "dimuon", "learning_rate": 1}}
    assert "dimuon" in client.result(client.post("optim_step", ask))["error"]
    assert "metrics" in client.result(client.step(3))


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a..b", "x" * 200, "nul\x00", "/etc"])
def test_a_name_that_could_leave_its_folder_fails_and_later_requests_go_on(client: Client, name: str) -> None:
    failed = client.result(client.post("save_weights", {"model_id": client.model, "seq_id": 1, "path": name}))
    assert failed["category"] == "user"
    assert "will not do" in failed["error"]
    assert "path" in client.result(client.post("save_weights", {"model_id": client.model, "seq_id": 2, "path": "ok"}))


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        ({"lora_config": {"rank": 100_000}}, r"limits.rank"),
        ({"lora_config": {"rank": -1}}, "rank is -1"),
        (
            {"lora_config": {"rank": 8, "train_attn": False, "train_mlp": False, "train_unembed": False}},
            "trains nothing",
        ),
        ({"lora_config": {"rank": 8}, "optimizer_config": {"type": "dimuon"}}, "dimuon"),
        ({"lora_config": {"rank": "many"}}, "lora_config.rank"),
        ({"user_metadata": {"x": "y" * 70_000}}, "limits.metadata_bytes"),
    ],
)
def test_a_model_that_cannot_be_is_refused_at_once(client: Client, ask: dict[str, Any], complaint: str) -> None:
    whole = {"session_id": client.session, "model_seq_id": 9, "base_model": "tiny", **ask}
    assert complaint in client.refused("create_model", whole)


def test_a_base_model_that_is_not_served_is_named(client: Client) -> None:
    ask = {"session_id": client.session, "model_seq_id": 9, "base_model": "other", "lora_config": {"rank": 8}}
    answer = client.send("POST", "create_model", ask)
    said = answer.json() if answer.status_code == 400 else client.result(answer.json())
    assert "'other' is not served" in said.get("detail", said.get("error"))


def test_all_that_is_anothers_looks_as_if_it_were_not_there(client: Client, stranger: Client) -> None:
    mine = client.train(1)
    client.result(mine)
    assert stranger.result(mine)["category"] == "user"
    stranger.model = client.model
    assert client.model in stranger.refused(
        "forward_backward", stranger.batch(1), 404, content_type="application/x-protobuf"
    )
    assert stranger.refused("get_info", {"model_id": client.model}, 404)
    assert stranger.refused("session_heartbeat", {"session_id": client.session}, 404)
    ask = {"session_id": client.session, "model_seq_id": 3, "base_model": "tiny", "lora_config": {"rank": 8}}
    assert stranger.refused("create_model", ask, 404)


@pytest.mark.parametrize("key", ["", "tml-wrong"])
def test_a_wrong_key_is_noticed_at_the_first_request(client: Client, key: str) -> None:
    client.key = key
    assert client.refused("client/config", {"sdk_version": "0.38.0"}, 401)


def test_a_future_that_is_not_there_has_failed(client: Client) -> None:
    gone = client.post("retrieve_future", {"request_id": "nothing"})
    assert gone["category"] == "user"
    assert "not known" in gone["error"]


@pytest.mark.parametrize("body", [b"\xff\xff", b"", b"{}"])
def test_bytes_that_are_no_protobuf_are_refused_with_a_reason(client: Client, body: bytes) -> None:
    answer = client.send("POST", "forward_backward", body, content_type="application/x-protobuf")
    assert answer.status_code in (400, 404)
    assert answer.json()["detail"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd", ""])
def test_a_body_beyond_the_limit_is_refused_and_its_number_is_used_up(client: Client, encoding: str) -> None:
    body = client.batch(1, tokens=tuple(range(60_000)))
    compress: Any = {"gzip": gzip.compress, "zstd": zstandard.compress, "": bytes}[encoding]
    answer = client.send(
        "POST", "forward_backward", compress(body), content_type="application/x-protobuf", content_encoding=encoding
    )
    assert answer.status_code == 413
    assert "limits." in answer.json()["detail"]
    assert "metrics" in client.result(client.train(2))


def test_a_bomb_is_refused(client: Client) -> None:
    bomb = zstandard.compress(bytes(300_000_000))
    assert "decompressed_bytes" in client.refused("optim_step", bomb, 413, content_encoding="zstd")
    assert "Content-Encoding" in client.refused("optim_step", b"{}", content_encoding="br")


def test_a_sample_that_makes_no_sense_is_refused_at_once(client: Client) -> None:
    base = {"session_id": client.session, "sampling_session_seq_id": 7, "base_model": "tiny"}
    sampler = client.post("create_sampling_session", base)["sampling_session_id"]
    ask: dict[str, Any] = {"sampling_session_id": sampler, "seq_id": 0, "prompt": {"chunks": []}}
    assert "prompt is empty" in client.refused("asample", ask)
    prompt = {"chunks": [{"tokens": [66]}]}
    assert client.refused("asample", {**ask, "sampling_session_id": "none", "prompt": prompt}, 404)
    assert "beyond the vocabulary" in client.result(client.post("asample", {**ask, "prompt": prompt}))["error"]
    assert "nothing to sample from" in client.refused("create_sampling_session", {"session_id": client.session})


@pytest.mark.parametrize("path", ["tinker://x", "/etc/passwd", "tinker://../weights/x", "tinker://a/weights/../b"])
def test_paths_that_are_none_are_refused(client: Client, path: str) -> None:
    answer = client.send("POST", "weights_info", {"tinker_path": path})
    assert answer.status_code in (400, 404)
    assert client.send("DELETE", f"training_runs/{client.model}/checkpoints/secrets/x").status_code == 400


def test_what_only_the_hosted_product_has_is_refused_at_once(client: Client) -> None:
    assert client.send("GET", "audit").status_code == 404
    assert client.refused("create_custom_loss", {})


def test_no_error_makes_the_client_try_for_minutes_that_does_not_pass_by_itself() -> None:
    lasting = {status for kind, status in STATUSES if status in (409, 429) or status >= 500}
    assert lasting == {429, 503}
    assert status_of(ZeroDivisionError()) == 500


def test_a_query_that_is_wrong_is_refused_with_the_name_of_its_field(client: Client) -> None:
    answer = client.send("GET", "checkpoints?limit=many")
    assert answer.status_code == 400
    assert "query.limit" in answer.json()["detail"]


# ---- operations


def test_who_runs_it_sees_health_readiness_and_numbers(client: Client) -> None:
    assert client.http.get("/healthz").json() == {"status": "ok"}
    assert client.http.get("/readyz").json() == {"status": "ready", "models": ["tiny"]}
    text = client.http.get("/metrics").text
    assert "openrl_waiting_units" in text
    assert 'openrl_http_requests_total{method="POST",route="/api/v1/create_model",status="200"}' in text


def test_every_answer_carries_the_requests_name(client: Client) -> None:
    assert client.send("GET", "healthz", x_request_id="abc").headers["x-request-id"] == "abc"
    assert client.send("GET", "healthz").headers["x-request-id"]


def test_a_key_can_end_itself(client: Client) -> None:
    assert client.send("DELETE", "auth/apikey/me").status_code == 204
    assert client.send("GET", "auth/apikey/me").status_code == 401
