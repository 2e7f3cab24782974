"""A tokenizer that is made on the spot: single characters plus given words, the longest match first.

Two tokens have no text: `PAD` fills a row, `END` closes a reply. Text that holds a character outside the vocabulary
is refused, so that encoding and decoding are exact opposites.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

PAD = 0
END = 1


class Tokenizer:
    def __init__(self, characters: str, words: Iterable[str] = ()) -> None:
        self.pieces = ("", "", *sorted(dict.fromkeys([*characters, *words])))
        self._ids = {piece: number for number, piece in enumerate(self.pieces) if piece}
        longest_first = sorted(self._ids, key=lambda piece: (-len(piece), piece))
        self._piece = re.compile("|".join(re.escape(piece) for piece in longest_first))

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        pieces = self._piece.findall(text)
        if sum(map(len, pieces)) != len(text):
            raise ValueError(f"text {text!r} has characters that this tokenizer was not made for; add them to it")
        return [self._ids[piece] for piece in pieces]

    def decode(self, ids: Sequence[int]) -> str:
        """The text up to the first `END`; padding is silent."""
        end = next((place for place, number in enumerate(ids) if number == END), len(ids))
        return "".join(self.pieces[number] for number in ids[:end])
