"""The backend in front of worker processes keeps the contract of every backend."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.rpc_site import Site, Told, site, told
from tsched.errors import BackendError
from tsched.testing.backend_suite import check_backend

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Remote:
    """A rig whose jobs are in another process: orders go through the hub, and the jobs' own deeds by its input."""

    suspendable = True

    def __init__(self, here: Site, process: Told) -> None:
        self._backend, self._process = here.hub.backend, process
        self.park, self.restore, self.discard = self._backend.park, self._backend.restore, self._backend.discard
        self.probe, self.sizes = self._backend.probe, self._backend.sizes

    async def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:
        await self._do("allocate", group, node, job, size_bytes)

    async def work(self, group: str, node: str, job: str) -> None:
        await self._do("work", group, node, job)

    async def contents(self, group: str, node: str, job: str) -> bytes:
        return bytes.fromhex(await self._do("contents", group, node, job))

    async def kill(self, group: str, node: str, job: str) -> None:
        await self._do("kill", group, node, job)

    async def _do(self, name: str, *arguments: object) -> Any:
        answer = await self._process.do(name, place=arguments)
        if isinstance(answer, dict) and answer.get("error") == "BackendError":
            raise BackendError(answer["text"])
        return answer


async def test_the_contract_holds_through_the_channel(tmp_path: Path) -> None:
    rigs = 0
    async with AsyncExitStack() as stack:

        async def make() -> Remote:
            nonlocal rigs
            rigs += 1
            here = await stack.enter_async_context(site(tmp_path, address=f"unix:{tmp_path}/{rigs}.sock"))
            process = await stack.enter_async_context(told("rig"))
            assert await process.do("rig", address=here.address) == "done"
            return Remote(here, process)

        await check_backend(make, capacity_bytes=3 * 4096, host_bytes=2 * 4096, grace_us=3_000_000)
    assert rigs > 5
