"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from openrl.cli import main
from tests.openrl.live_server import Live, environment, running

pytestmark = pytest.mark.timeout(200)


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"OPENRL_CONFIG": None, **variables})


def asked(live: Live, *arguments: str) -> Result:
    return run(*arguments, TINKER_BASE_URL=live.url, TINKER_API_KEY=live.key)


def post(live: Live, path: str, body: dict[str, Any]) -> Any:
    headers = {"X-API-Key": live.key}
    request = urllib.request.Request(f"{live.url}/api/v1/{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def saved(live: Live) -> tuple[str, str]:
    """A session, and the path of a checkpoint of it."""
    session: str = post(live, "create_session", {"display_name": "by hand"})["session_id"]
    ask = {"session_id": session, "model_seq_id": 0, "base_model": "openrl/tiny", "lora_config": {"rank": 2}}
    made = post(live, "create_model", ask)
    save = post(live, "save_weights", {"model_id": made["model_id"], "seq_id": 1, "path": "one"})
    return session, str(post(live, "retrieve_future", {"request_id": save["request_id"]})["path"])


# ---- keys


def test_a_key_is_shown_once_and_listed_without_its_secret(tmp_path: Path) -> None:
    folder = ("--data", str(tmp_path / "new" / "folder"))
    made = run("keys", "create", "--owner", "ann", "--name", "laptop", *folder)
    assert made.exit_code == 0
    assert made.stdout.startswith("tml-")
    listed = run("keys", "list", *folder)
    assert "ann" in listed.stdout
    assert "laptop" in listed.stdout
    assert made.stdout.strip() not in listed.stdout


def test_keys_speak_json_and_end(tmp_path: Path) -> None:
    folder = ("--data", str(tmp_path))
    (made,) = json.loads(run("keys", "create", "--json", *folder).stdout)
    assert made["key"].startswith("tml-")
    assert run("keys", "revoke", made["key_id"], *folder).exit_code == 0
    (listed,) = json.loads(run("keys", "list", "--json", *folder).stdout)
    assert listed["revoked"] is not None
    again = run("keys", "revoke", made["key_id"], *folder)
    assert again.exit_code == 2
    assert again.stderr.startswith("error: no key")


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "openrl.sqlite").write_text("this is no database, and long enough to be taken for none at all" * 20)
    wrong = run("keys", "list", "--data", str(tmp_path))
    assert wrong.exit_code == 2
    assert "openrl.sqlite" in wrong.stderr
    assert wrong.stderr.count("\n") == 1


# ---- serve


def test_beyond_this_machine_it_serves_only_with_keys(tmp_path: Path) -> None:
    refused = run("serve", "--host", "0.0.0.0", "--data", str(tmp_path))
    assert refused.exit_code == 2
    assert "there is no API key" in refused.stderr
    assert "openrl keys create" in refused.stderr


def test_a_mistake_in_the_configuration_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "openrl.toml"
    file.write_text("prot = 1\n")
    refused = run("serve", "--config", str(file))
    assert refused.exit_code == 2
    assert refused.stderr == f"error: {file}: prot: is not a known key\n"


def test_a_folder_is_served_by_one_at_a_time(live: Live) -> None:
    refused = run("serve", "--data", str(live.folder / "data"))
    assert refused.exit_code == 1
    assert "another `openrl serve` works here" in refused.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run("serve", "--data", str(tmp_path), "--port", port)
    assert refused.exit_code == 1
    assert refused.stderr == f"error: 127.0.0.1:{port} is in use: stop what listens there, or give another --port\n"
    assert run("keys", "list", "--data", str(tmp_path)).stdout == ""


def test_a_model_that_is_not_there_is_told_at_the_start_and_to_who_asks_for_it(tmp_path: Path) -> None:
    config = '[models.gone]\npath = "/no/where"\n[models.again]\nalias_of = "fine"\n[models.fine]\nalias_of = "gone"\n'
    with running(tmp_path, "--log-level", "warning", config=config) as live:
        told = (tmp_path / "server.log").read_text().splitlines()
        assert told[0] == "warning: model gone: /no/where is not a folder: correct models.path"
        assert told[1].startswith("warning: model again: alias of 'fine', which is no model of this configuration")
        session = post(live, "create_session", {})["session_id"]
        ask = {"session_id": session, "model_seq_id": 0, "base_model": "gone", "lora_config": {"rank": 2}}
        request_id = post(live, "create_model", ask)["request_id"]
        answer = post(live, "retrieve_future", {"request_id": request_id})
    assert answer["category"] == "user"
    assert "base model 'gone' cannot be used" in answer["error"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_lets_polls_go_and_ends_cleanly(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with running(tmp_path, "--log-level", "warning") as live:
        session = post(live, "create_session", {})["session_id"]
        ask = {"session_id": session, "model_seq_id": 0, "base_model": "openrl/tiny", "lora_config": {"rank": 2}}
        model_id = post(live, "create_model", ask)["model_id"]
        waiting = post(live, "optim_step", {"model_id": model_id, "seq_id": 2})["request_id"]
        poll = subprocess.Popen(
            [sys.executable, "-c", POLL, live.url, live.key, waiting], stdout=subprocess.PIPE, text=True
        )
        assert poll.stdout is not None
        assert poll.stdout.readline() == "asked\n"
        live.process.send_signal(number)
        assert live.process.wait(30) == code
        answer = json.loads(poll.communicate(timeout=30)[0])
    assert (tmp_path / "server.log").read_text() == FIRST_KEY
    assert answer["status"] in (408, "closed")


FIRST_KEY = "this key is shown once: keep it, or make another with `openrl keys create`\n"
POLL = """
import http.client, json, sys, time
url, key, request_id = sys.argv[1:]
connection = http.client.HTTPConnection(url.removeprefix("http://"))
body = json.dumps({"request_id": request_id})
connection.request("POST", "/api/v1/retrieve_future", body, {"X-API-Key": key})
time.sleep(0.5)
print("asked", flush=True)
try:
    print(json.dumps({"status": connection.getresponse().status}))
except (OSError, http.client.HTTPException):
    print(json.dumps({"status": "closed"}))
"""


# ---- a running server


def test_jobs_are_listed_shown_and_cancelled(live: Live) -> None:
    session, _ = saved(live)
    jobs = json.loads(asked(live, "jobs", "list", "--json", "--limit", "200").stdout)
    (job,) = [one for one in jobs if one["session_id"] == session]
    assert (job["status"], job["name"], job["checkpoints"]) == ("active", "by hand", 1)
    (shown,) = json.loads(asked(live, "jobs", "show", "--json", session).stdout)
    assert (shown["base_model"], shown["lora_rank"], shown["lost"]) == ("openrl/tiny", 2, False)
    assert asked(live, "jobs", "cancel", session).stdout == f"cancelled {session}\n"
    jobs = json.loads(asked(live, "jobs", "list", "--json", "--limit", "200").stdout)
    assert [one["status"] for one in jobs if one["session_id"] == session] == ["cancelled"]


def test_checkpoints_are_listed_published_and_deleted(live: Live) -> None:
    _, path = saved(live)
    run_id = path.removeprefix("tinker://").split("/")[0]

    def shown() -> list[Any]:
        listed: list[Any] = json.loads(asked(live, "checkpoints", "list", "--json", "--run", run_id).stdout)
        return listed

    assert asked(live, "checkpoints", "publish", path).exit_code == 0
    assert shown()[0]["public"]
    assert asked(live, "checkpoints", "unpublish", path).exit_code == 0
    assert not shown()[0]["public"]
    assert asked(live, "checkpoints", "expire", path, "7200").exit_code == 0
    assert shown()[0]["expires_at"]
    assert asked(live, "checkpoints", "delete", path).stdout == f"deleted {path}\n"
    assert shown() == []
    gone = asked(live, "checkpoints", "delete", path)
    assert gone.exit_code == 2
    assert "not known" in gone.stderr
    assert asked(live, "checkpoints", "delete", "/etc/passwd").exit_code == 2


def test_the_log_follows_a_request_from_its_arrival_to_its_result(live: Live) -> None:
    saved(live)
    lines = [json.loads(line) for line in (live.folder / "server.log").read_text().splitlines() if line[:1] == "{"]
    saves = [line for line in lines if line.get("path") == "/api/v1/save_weights"]
    future = saves[-1]["future"]
    results = [line for line in lines if line.get("future") == future and line.get("outcome") == "Done"]
    assert results[0]["owner"] == saves[-1]["owner"] == "local"
    assert results[0]["request"] != saves[-1]["request"]


def test_a_server_that_does_not_answer_is_named() -> None:
    silent = run("jobs", "list", TINKER_BASE_URL="http://127.0.0.1:1", TINKER_API_KEY="tml-x")
    assert silent.exit_code == 1
    assert silent.stderr.startswith("error: no server answers at http://127.0.0.1:1")


# ---- doctor


def test_the_doctor_finds_nothing_wrong_with_a_new_folder(tmp_path: Path) -> None:
    found = run("doctor", "--json", "--data", str(tmp_path))
    assert found.exit_code == 0, found.stdout
    assert [row["check"] for row in json.loads(found.stdout)] == ["folder", "store", "disk", "torch"]


def test_the_doctor_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")
    file = tmp_path / "openrl.toml"
    file.write_text(
        f'[models.half]\npath = "{tmp_path}/half"\n[models.none]\npath = "/no/where"\n'
        '[models.loop]\nalias_of = "missing"\n[models.fine]\nalias_of = "openrl/tiny"\n'
    )
    found = run("doctor", "--json", "--config", str(file), "--data", str(tmp_path / "data"))
    assert found.exit_code == 1
    rows = {row["check"]: row for row in json.loads(found.stdout)}
    assert "tokenizer_config.json" in rows["model half"]["detail"]
    assert "not a folder" in rows["model none"]["detail"]
    assert "'missing'" in rows["model loop"]["detail"]
    assert rows["model fine"]["ok"]


def test_help_and_wrong_words_are_short() -> None:
    assert run("--help").exit_code == 0
    assert all(name in run("--help").stdout for name in ("serve", "jobs", "checkpoints", "keys", "doctor"))
    wrong = run("sreve")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: No such command 'sreve'")


def test_the_module_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "openrl.cli", "keys", "--help"], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0
    assert "revoke" in done.stdout
