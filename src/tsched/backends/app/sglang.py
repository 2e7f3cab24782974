"""The SGLang dialect: `/release_memory_occupation`, `/resume_memory_occupation`, `/update_weights_from_disk`.

Whether released weights are kept in host memory is decided when the server starts, and not by the call; a server that
keeps none would come back with garbage. So an `offload` first reads the server's own arguments. A release in the midst
of requests ends the scheduler process: requests are aborted, and generation is paused until the engine is whole again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tsched.backends.app.dialect import Replica
from tsched.backends.app.engine import KV_CACHE, WEIGHTS, Engine
from tsched.backends.app.http import Http
from tsched.errors import BackendError


class Sglang:
    mend = "with --enable-memory-saver, and with --enable-weights-cpu-backup to keep weights"

    async def ready(self, http: Http, replica: Replica, engine: Engine) -> None:
        arguments = await http.get(replica.endpoint, "/server_info", "/get_server_info")
        self._expect(arguments, "enable_memory_saver", replica, "its memory cannot be released")
        if engine.mode == "offload" and WEIGHTS in engine.tags:
            self._expect(arguments, "enable_weights_cpu_backup", replica, "its weights would be lost")

    async def sleep(self, http: Http, replica: Replica, engine: Engine) -> None:
        awake = replica.to_sleep(engine.tags)
        if not awake:
            return
        await http.post(replica.endpoint, "/pause_generation", body={"mode": "abort"})
        await http.post(replica.endpoint, "/release_memory_occupation", body={"tags": awake})
        replica.slept(awake, stale=engine.loses_weights and WEIGHTS in awake)

    async def wake(self, http: Http, replica: Replica, engine: Engine) -> None:
        if replica.whole:
            return
        await _resume(http, replica, WEIGHTS)
        if replica.stale:
            body = {"model_path": engine.weights_path(), "flush_cache": True}
            await http.post(replica.endpoint, "/update_weights_from_disk", body=body)
            replica.stale = False
        await _resume(http, replica, KV_CACHE)
        await http.post(replica.endpoint, "/flush_cache")
        await http.post(replica.endpoint, "/continue_generation", body={})
        replica.whole = True

    async def look(self, http: Http, replica: Replica, engine: Engine) -> None:
        """It does not say whether it sleeps: the record stays, and memory corrects it before the next order."""

    def _expect(self, arguments: Mapping[str, object], flag: str, replica: Replica, else_: str) -> None:
        if arguments.get(flag) is not True:
            raise BackendError(
                f"engine {replica.endpoint}: was started without {flag}, so {else_}: start it {self.mend}"
            )


async def _resume(http: Http, replica: Replica, tag: str) -> None:
    with replica.waking(tag) as due:
        if due:
            await http.post(replica.endpoint, "/resume_memory_occupation", body={"tags": [tag]})
