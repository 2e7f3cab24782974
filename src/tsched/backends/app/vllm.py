"""The vLLM dialect: `/sleep`, `/wake_up`, `/is_sleeping`, `/collective_rpc`, `/reset_prefix_cache`.

Level 1 keeps the weights in host memory, level 2 drops them; both drop the KV cache. Requests in flight are aborted by
`mode=abort`. Versions that do not know the mode ignore it: there the job must be idle, as it is between its phases.
"""

from __future__ import annotations

from tsched.backends.app.dialect import Replica
from tsched.backends.app.engine import KV_CACHE, TAGS, WEIGHTS, Engine
from tsched.backends.app.http import Http
from tsched.errors import BackendError


class Vllm:
    mend = "with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode"

    async def ready(self, http: Http, replica: Replica, engine: Engine) -> None:
        await _is_sleeping(http, replica)

    async def sleep(self, http: Http, replica: Replica, engine: Engine) -> None:
        if not replica.to_sleep(TAGS):
            return
        level = 1 if engine.mode == "offload" else 2
        await http.post(replica.endpoint, "/sleep", params={"level": level, "mode": "abort"})
        if not await _is_sleeping(http, replica):
            raise BackendError(
                f"engine {replica.endpoint}: acknowledged a sleep and says that it is awake: start it {self.mend}"
            )
        replica.slept(TAGS, stale=level == 2)

    async def wake(self, http: Http, replica: Replica, engine: Engine) -> None:
        if replica.whole:
            return
        await _wake(http, replica, WEIGHTS)
        if replica.stale:
            await _reload(http, replica, engine)
        await _wake(http, replica, KV_CACHE)
        await http.post(replica.endpoint, "/reset_prefix_cache")
        if await _is_sleeping(http, replica):
            raise BackendError(f"engine {replica.endpoint}: acknowledged a wake and says that it sleeps: see its log")
        replica.whole = True

    async def look(self, http: Http, replica: Replica, engine: Engine) -> None:
        if not replica.whole and await _is_sleeping(http, replica):
            replica.slept(TAGS, stale=engine.loses_weights)


async def _wake(http: Http, replica: Replica, tag: str) -> None:
    with replica.waking(tag) as due:
        if due:
            await http.post(replica.endpoint, "/wake_up", params={"tags": [tag]})


async def _reload(http: Http, replica: Replica, engine: Engine) -> None:
    path = engine.weights_path()
    arguments = {} if path is None else {"kwargs": {"weights_path": path}}
    await http.post(replica.endpoint, "/collective_rpc", body={"method": "reload_weights", **arguments})
    replica.stale = False


async def _is_sleeping(http: Http, replica: Replica) -> bool:
    answer = await http.get(replica.endpoint, "/is_sleeping")
    asleep = answer.get("is_sleeping")
    if not isinstance(asleep, bool):
        raise BackendError(f"engine {replica.endpoint}: GET /is_sleeping answered {answer!r}: is this a vLLM server?")
    return asleep
