"""An inference engine to test against: a real HTTP server in the vLLM or SGLang dialect, which can lie.

It holds real bytes on a device of limited memory, which several servers share, and keeps real copies on the host. What
it does wrong is said by its `answers` (a wrong answer for one route) and its switches. Run as a program it serves one
engine, writes its figures into a file, and lives until it is ended.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from tsched.backends import Presence
from tsched.backends.app import AppBackend, Engine
from tsched.errors import BackendError

TAGS = ("weights", "kv_cache")
SIZE = 4096


class OutOfMemory(Exception):
    """The device has no room."""


class Device:
    """The memory of one device, shared by servers."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def hold(self, owner: str, more_bytes: int) -> None:
        with self._lock:
            used = sum(self._held.values()) + more_bytes
            if self.capacity_bytes is not None and used > self.capacity_bytes:
                raise OutOfMemory(f"CUDA out of memory: {used} bytes are needed, {self.capacity_bytes} are there")
            self._held[owner] = self._held.get(owner, 0) + more_bytes

    def free(self, owner: str) -> None:
        with self._lock:
            self._held.pop(owner, None)

    def holds(self, owner: str) -> bool:
        with self._lock:
            return owner in self._held

    def held_bytes(self, owner: str) -> int:
        with self._lock:
            return sum(size for name, size in self._held.items() if name.split("/")[0] == owner)

    def free_bytes(self) -> int:
        with self._lock:
            return (self.capacity_bytes or 0) - sum(self._held.values())


@dataclass
class Reply:
    """A wrong answer, given instead of doing anything; with `hang` none comes, with `drop` the connection ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    drop: bool = False
    times: int = 1_000_000
    after: bool = False  # the route is obeyed first


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    body: Any

    @property
    def line(self) -> str:
        query = "&".join(f"{key}={value}" for key in sorted(self.query) for value in self.query[key])
        tags = "".join(f" {tag}" for tag in (self.body or {}).get("tags", ()))
        return self.path + (f"?{query}" if query else "") + tags


class EngineServer:
    """One engine. Its weights are random but known; the cache is half of its memory.

    Args:
        context_bytes: what it holds as long as it lives.
        backup: SGLang alone: whether it keeps weights that are released.
        cache_bytes: how much of `size_bytes` is cache; half of it by default.
    """

    def __init__(
        self,
        name: str,
        size_bytes: int,
        device: Device,
        *,
        dialect: Literal["vllm", "sglang"] = "vllm",
        context_bytes: int = 0,
        backup: bool = True,
        cache_bytes: int | None = None,
    ) -> None:
        self.name, self.dialect, self.device, self.backup = name, dialect, device, backup
        cache = size_bytes // 2 if cache_bytes is None else cache_bytes
        self.sizes = {"weights": size_bytes - cache, "kv_cache": cache}
        self.disk = {"first": hashlib.sha256(name.encode()).digest() * 2}
        self.newest = "first"
        self.weights: bytes | None = self.disk["first"]
        self.asleep: set[str] = set()
        self.copies: list[bytes] = []  # on the host
        self.keeps_copies = False
        self.keeps_memory = False
        self.stubborn = False  # ignores a sleep while it is half awake, as vLLM does
        self.sleeping_flag = False
        self.prefix_cache = b""
        self.in_flight = 0
        self.aborted = 0
        self.paused = False
        self.crashed = ""
        self.answers: dict[str, Reply] = {}
        self.requests: list[Request] = []
        self._lock = threading.RLock()
        self._over = threading.Event()
        self.hung = threading.Event()
        self.slept = threading.Event()
        self.alive = True
        if context_bytes:
            device.hold(f"{name}/context", context_bytes)
        try:
            for tag in TAGS:
                device.hold(f"{name}/{tag}", self.sizes[tag])
        except OutOfMemory:
            self._free_all()
            raise
        self._server = _listen(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def lines(self) -> list[str]:
        """What was asked of it, but for questions."""
        return [request.line for request in self.requests if request.method == "POST"]

    def held_bytes(self) -> int:
        return self.device.held_bytes(self.name)

    def host_copies_bytes(self) -> int:
        return self.sizes["weights"] * len(self.copies)

    def let_go(self) -> None:
        """The memory of what sleeps becomes free at last."""
        for tag in self.asleep:
            self.device.free(f"{self.name}/{tag}")

    def train(self) -> bytes:
        """New weights come in by weight sync, and are saved."""
        with self._lock:
            new = hashlib.sha256(self.read()).digest() * 2
            self.newest = f"step-{len(self.disk)}"
            self.disk[self.newest] = self.weights = new
            self.prefix_cache = new
            return new

    def read(self) -> bytes:
        """The weights as the engine computes with them; cached prefixes must be of the same weights."""
        with self._lock:
            if not self.alive or self.asleep or self.weights is None or self.crashed or self.paused:
                raise BackendError(f"engine {self.name} cannot compute: {self.crashed or self.asleep or 'paused'}")
            if self.prefix_cache not in (b"", self.weights):
                raise BackendError(f"engine {self.name} answers from a cache of other weights")
            return self.weights

    def kill(self) -> None:
        """Its process ends, its memory with it."""
        self.alive = False
        self._free_all()
        self.close()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _free_all(self) -> None:
        for tag in (*TAGS, "context"):
            self.device.free(f"{self.name}/{tag}")
        self.copies = []

    # ------------------------------------------------------------------ routes

    def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        wrong = self.answers.get(request.path)
        if wrong is not None and wrong.times > 0:
            wrong.times -= 1
            if wrong.after:
                self._obey(request)
            if wrong.hang:
                self.hung.set()
                self._over.wait(30)
            return wrong
        return self._obey(request)

    def _obey(self, request: Request) -> Reply:
        routes = self._vllm() if self.dialect == "vllm" else self._sglang()
        route = routes.get((request.method, request.path))
        if route is None:
            return Reply(404, b'{"detail":"Not Found"}')
        try:
            with self._lock:
                value = route(request)
        except OutOfMemory as error:
            return Reply(500, json.dumps({"error": {"message": str(error)}}).encode())
        return Reply(200, b"" if value is None else json.dumps(value).encode())

    def _vllm(self) -> dict[tuple[str, str], Callable[[Request], object]]:
        return {
            ("POST", "/sleep"): self._vllm_sleep,
            ("POST", "/wake_up"): self._vllm_wake,
            ("GET", "/is_sleeping"): lambda _: {"is_sleeping": self.sleeping_flag},
            ("POST", "/collective_rpc"): self._vllm_rpc,
            ("POST", "/reset_prefix_cache"): self._reset_cache,
        }

    def _vllm_sleep(self, request: Request) -> None:
        if self.stubborn and self.sleeping_flag:
            return
        if request.query.get("mode") == ["abort"]:
            self._abort()
        keeps = request.query["level"] == ["1"]
        for tag in TAGS:
            self._release(tag, keeps)
        self.sleeping_flag = True

    def _vllm_wake(self, request: Request) -> None:
        for tag in request.query.get("tags", TAGS):
            self._resume(tag)
        self.sleeping_flag = bool(self.asleep)

    def _vllm_rpc(self, request: Request) -> object:
        assert request.body["method"] == "reload_weights"
        self._load(request.body.get("kwargs", {}).get("weights_path", "first"))
        return {"results": [None]}

    def _sglang(self) -> dict[tuple[str, str], Callable[[Request], object]]:
        return {
            ("GET", "/server_info"): lambda _: {
                "enable_memory_saver": True,
                "enable_weights_cpu_backup": self.backup,
            },
            ("POST", "/pause_generation"): self._sglang_pause,
            ("POST", "/continue_generation"): self._sglang_continue,
            ("POST", "/release_memory_occupation"): self._sglang_release,
            ("POST", "/resume_memory_occupation"): self._sglang_resume,
            ("POST", "/update_weights_from_disk"): self._sglang_update,
            ("POST", "/flush_cache"): self._reset_cache,
        }

    def _sglang_pause(self, request: Request) -> None:
        self._abort()
        self.paused = True

    def _sglang_continue(self, request: Request) -> None:
        self.paused = False

    def _sglang_release(self, request: Request) -> None:
        if self.in_flight:
            self.crashed = "release_memory_occupation should be called only when server is idle"
        for tag in request.body["tags"]:
            self._release(tag, self.backup)

    def _sglang_resume(self, request: Request) -> None:
        for tag in request.body["tags"]:
            if tag not in self.asleep:
                self.crashed = f"{tag} is not released"
            self._resume(tag)

    def _sglang_update(self, request: Request) -> object:
        self._load(request.body["model_path"])
        return {"success": True, "message": "Succeeded", "num_paused_requests": 0}

    # ------------------------------------------------------------------ memory

    def _release(self, tag: str, keeps: bool) -> None:
        if tag in self.asleep:
            return
        self.asleep.add(tag)
        if tag == "weights":
            if keeps and self.weights is not None:
                self.copies.append(self.weights)
            self.weights = None
        if not self.keeps_memory:
            self.device.free(f"{self.name}/{tag}")
        self.slept.set()

    def _resume(self, tag: str) -> None:
        """What was not kept comes back as garbage."""
        if tag not in self.asleep:
            return
        if not self.device.holds(f"{self.name}/{tag}"):
            self.device.hold(f"{self.name}/{tag}", self.sizes[tag])
        self.asleep.discard(tag)
        if tag == "weights":
            self.weights = self.copies[-1] if self.copies else b"\x7f" * 64
            if not self.keeps_copies:
                self.copies = []

    def _load(self, path: str) -> None:
        assert "weights" not in self.asleep, "weights were loaded into memory that is not there"
        self.weights = self.disk[path]

    def _reset_cache(self, request: Request) -> None:
        self.prefix_cache = b""

    def _abort(self) -> None:
        self.aborted += self.in_flight
        self.in_flight = 0


def _listen(engine: EngineServer) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _serve(self) -> None:
            address = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            body = json.loads(raw) if raw else None
            reply = engine.answer(Request(self.command, address.path, parse_qs(address.query), body))
            self.close_connection = True
            if reply.drop or reply.hang:
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(reply.body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True).start()
    return server


class Bench:
    """A backend with engines on one device; it obeys orders, and does what jobs do for themselves."""

    suspendable = False

    def __init__(self, capacity_bytes: int | None = None, host_bytes: int | None = None, **engine: Any) -> None:
        self.device = Device(capacity_bytes)
        self.backend = AppBackend(host_bytes=host_bytes, interval_s=0.005)
        self.made = 0
        self.engine = engine
        self.servers: list[EngineServer] = []
        self.jobs: dict[str, EngineServer] = {}
        self.park, self.restore = self.backend.park, self.backend.restore
        self.discard, self.probe, self.sizes = self.backend.discard, self.backend.probe, self.backend.sizes

    def start(self, job: str = "a", size_bytes: int = SIZE, *, replicas: int = 1, **more: Any) -> list[EngineServer]:
        settings = {"dialect": "vllm", "mode": "offload", "timeout_s": 20.0, **self.engine, **more}
        server = {key: settings.pop(key) for key in ("context_bytes", "backup", "cache_bytes") if key in settings}
        servers: list[EngineServer] = []
        for _ in range(replicas):
            self.made += 1
            name = f"{job}-{self.made}"
            servers.append(EngineServer(name, size_bytes, self.device, dialect=settings["dialect"], **server))
            self.servers.append(servers[-1])

        def kill() -> None:
            for each in servers:
                if each.alive:
                    each.kill()

        settings.setdefault("weights", lambda: servers[0].newest)
        settings.setdefault("alive", lambda: all(each.alive for each in servers))
        settings.setdefault("end", kill)
        settings.setdefault("held_bytes", lambda: sum(each.held_bytes() for each in servers))
        endpoints = tuple(each.url for each in servers)
        self.backend.register("g", "0", job, Engine(endpoints=endpoints, **settings))
        self.jobs[job] = servers[0]
        return servers

    async def look(self, job: str = "a", deadline_us: int = 0) -> Presence:
        return await self.probe("g", "0", job, deadline_us=deadline_us)

    def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:
        try:
            self.start(job, size_bytes)
        except OutOfMemory as error:
            raise BackendError(str(error)) from error

    def work(self, group: str, node: str, job: str) -> None:
        self.jobs[job].train()

    def contents(self, group: str, node: str, job: str) -> bytes:
        return self.jobs[job].read()

    def kill(self, group: str, node: str, job: str) -> None:
        self.jobs[job].kill()

    def close(self) -> None:
        for server in self.servers:
            if server.alive:
                server.close()


def main(figures: Path) -> None:
    """Serve one engine, and say where and how much it holds in a file, as a device's driver would."""
    engine = EngineServer("program", SIZE, Device())
    while True:
        draft = figures.with_suffix(".draft")
        draft.write_text(json.dumps({"url": engine.url, "held_bytes": engine.held_bytes()}))
        draft.rename(figures)
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
