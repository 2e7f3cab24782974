"""What an agent says when it takes no more."""

from __future__ import annotations

from tsched.errors import BackendError


class TooMany(BackendError):
    """A limit is reached, which the text names; trying again later may help."""
