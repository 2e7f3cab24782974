"""A running server, asked over HTTP with the address and key that the SDK would use."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from openrl.errors import OpenRLError, RequestError

DEFAULT_URL = "http://127.0.0.1:8600"
WITHIN_S = 30.0
PUNCTUATION = "/:?=&@+"  # of paths, ids and queries


class NoServer(OpenRLError, ConnectionError):
    """Nothing answers at the address."""


class Remote:
    """The server at TINKER_BASE_URL, with TINKER_API_KEY."""

    def __init__(self) -> None:
        self.url = os.environ.get("TINKER_BASE_URL", DEFAULT_URL).rstrip("/")
        self.key = os.environ.get("TINKER_API_KEY", "")

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer's JSON; None if it has none. Raises RequestError with what the server says is wrong."""
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = Request(f"{self.url}/api/v1/{quote(path, safe=PUNCTUATION)}", data, headers, method=method)
            with urlopen(request, timeout=WITHIN_S) as answer:
                text = answer.read()
            return json.loads(text) if text else None
        except HTTPError as error:
            raise RequestError(detail(error)) from error
        except URLError as error:
            raise NoServer(f"no server answers at {self.url} ({error.reason}): set TINKER_BASE_URL") from error
        except (ValueError, HTTPException) as error:
            raise NoServer(f"no openrl answers at {self.url} ({error}): correct TINKER_BASE_URL or its key") from error


def detail(error: HTTPError) -> str:
    """What the server says, or the status if it says nothing."""
    try:
        return str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered with status {error.code}"
