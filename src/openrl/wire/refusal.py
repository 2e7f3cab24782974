"""What the reading of a request may find wrong with it."""

from __future__ import annotations

from openrl.errors import RequestError


class Malformed(RequestError, ValueError):
    """The request says something that no model could do: a wrong shape, a NaN, an unknown kind of chunk."""


class BeyondLimit(Malformed):
    """The request asks for more than one of the server's limits."""


class TooLarge(BeyondLimit):
    """The request itself is too large to be read: status 413."""


def beyond(what: str, asked: int, limit: str, allowed: int, mend: str) -> BeyondLimit:
    """The refusal that names the limit and what to do instead."""
    return BeyondLimit(f"{what} is {asked}, and this server allows {allowed} (limits.{limit}): {mend}")


def too_large(limit: str, allowed: int) -> TooLarge:
    """The refusal of a body that is larger than `allowed`; by how much nobody has counted."""
    mend = "send less in one request"
    return TooLarge(f"the body has more than the {allowed} bytes that this server allows (limits.{limit}): {mend}")
