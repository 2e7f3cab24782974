"""When a sequence ends: at a token, or where its text holds a string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openrl.models import Base
from openrl.work import SampleParams

MARGIN = 4  # further tokens to decode: a character may need several


class Stop:
    """The stop conditions of one request. Without stop tokens it stops at the model's end of text."""

    def __init__(self, params: SampleParams, base: Base) -> None:
        self._tokens = base.end_tokens if params.stop_tokens is None else frozenset(params.stop_tokens)
        self._strings = tuple(string for string in params.stop_strings if string)
        self._window = max((len(string.encode()) for string in self._strings), default=0) + MARGIN
        self._base = base

    def at_end_of(self, tokens: Sequence[int]) -> bool:
        """Is the last token one to stop at, or did it complete a stop string?"""
        if tokens[-1] in self._tokens:
            return True
        if not self._strings:
            return False
        tokenizer: Any = self._base.tokenizer
        text = tokenizer.decode(tokens[-self._window :], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return any(string in text for string in self._strings)
