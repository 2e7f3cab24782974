"""A transformers causal language model, as this package calls it: hidden states of token ids, logits of hidden states.

Knows neither adapters, files nor gradients.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel


class Cache(Protocol):
    """Where attention layers leave their keys and values, and find those of earlier tokens."""

    def update(self, key: Tensor, value: Tensor, layer: int, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Take those of new tokens; give those to attend to."""
        ...


class Network:
    """A decoder and its unembedding."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._decoder = model.get_submodule("model")
        self._unembedding = model.get_submodule("lm_head")

    def hidden(
        self, ids: Tensor, positions: Tensor | None = None, cache: Cache | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Last hidden states, (rows, positions, width), of token ids (rows, positions).

        Without a mask a token attends to itself and those before it in its row, so that padding belongs at the end.
        """
        if positions is None:
            positions = torch.arange(ids.shape[1])[None]
        out = self._decoder(
            input_ids=ids, position_ids=positions, attention_mask=mask, cache=cache, use_cache=False, return_dict=True
        )
        states: Tensor = out.last_hidden_state
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the vocabulary, one row a hidden state."""
        scores: Tensor = self._unembedding(hidden)
        return scores
