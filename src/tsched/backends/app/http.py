"""One engine's HTTP server during one move: calls that are bounded, and whose wrong answers become errors.

A call takes at most the engine's `timeout_s`, from name lookup to the last byte. Redirects are not followed and proxies
of the environment are not used: a sleep that another server took would be believed. Nothing is tried again here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import anyio

from tsched.backends.app.engine import Engine
from tsched.errors import BackendError, DeviceMemoryFull, MissingExtra

try:
    import httpx
except ImportError as missing:
    raise MissingExtra(
        "the app backend speaks HTTP through httpx, which is not here: pip install 'tsched[app]'"
    ) from missing

Params = Mapping[str, str | int | Sequence[str]]
EXCERPT = 300


class Http:
    """The calls of one move to one engine, whichever of its endpoints they go to; an async context manager."""

    def __init__(self, engine: Engine, mend: str) -> None:
        self._timeout_s, self._mend = engine.timeout_s, mend
        secure = any(endpoint.startswith("https:") for endpoint in engine.endpoints)
        self._client = httpx.AsyncClient(
            headers=dict(engine.headers),
            trust_env=False,
            follow_redirects=False,
            timeout=None,  # the whole call is timed instead
            verify=secure,  # where nothing is encrypted, no certificates need be read
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, traceback)

    async def post(self, endpoint: str, path: str, *, params: Params | None = None, body: object = None) -> object:
        """What the engine answered: JSON if it is that, else None.

        Raises:
            DeviceMemoryFull: it says that it is out of memory.
            BackendError: anything but a success; the text says which call, what came back, and what to do.
        """
        return self._checked(await self._call("POST", endpoint, path, params, body))

    async def get(self, endpoint: str, path: str, older: str = "") -> Mapping[str, object]:
        """The JSON object that the engine answered; raises like `post`, also where it is none.

        `older` is what the route was once called, for engines that do not know `path`.
        """
        answer = await self._call("GET", endpoint, path)
        if older and answer.status_code == 404:
            return await self.get(endpoint, older)
        value = self._checked(answer)
        if not isinstance(value, dict):
            raise BackendError(
                f"engine {endpoint}: GET {path} did not answer with a JSON object: is this the engine itself, "
                f"started {self._mend}?"
            )
        return value

    async def _call(
        self, method: str, endpoint: str, path: str, params: Params | None = None, body: object = None
    ) -> httpx.Response:
        what = f"engine {endpoint}: {method} {path}"
        address = endpoint.rstrip("/") + path
        try:
            with anyio.fail_after(self._timeout_s):
                return await self._client.request(method, address, params=params, json=body)
        except TimeoutError:
            raise BackendError(
                f"{what} got no answer within {self._timeout_s:g} s: the engine hangs, or `timeout_s` is too short"
            ) from None
        except httpx.HTTPError as error:
            raise BackendError(
                f"{what} failed: {str(error) or type(error).__name__}: is the engine running, and is this its address?"
            ) from error

    def _checked(self, answer: httpx.Response) -> object:
        """What a success says: JSON, or None."""
        value = _value(answer)
        if not answer.is_success or (isinstance(value, dict) and value.get("success") is False):
            raise self._failure(answer)
        return value

    def _failure(self, answer: httpx.Response) -> BackendError:
        request = answer.request
        what = f"engine {request.url.copy_with(path='', query=None)}: {request.method} {request.url.raw_path.decode()}"
        said = " ".join(answer.text.split())[:EXCERPT]
        if "out of memory" in said.lower():
            return DeviceMemoryFull(f"{what} answered {answer.status_code}: {said}")
        match answer.status_code:
            case 404 | 405:
                why = f"it has no such route: start it {self._mend}"
            case 401 | 403:
                why = "it wants an authorization: give it in the engine's `headers`"
            case status if 300 <= status < 400:
                why = f"it redirects to {answer.headers.get('location', 'nowhere')}: give the engine's own address"
            case _:
                why = f"{said or 'no reason given'}: see the engine's log"
        return BackendError(f"{what} answered {answer.status_code}: {why}")


def _value(answer: httpx.Response) -> object:
    try:
        return json.loads(answer.content)
    except ValueError:
        return None
