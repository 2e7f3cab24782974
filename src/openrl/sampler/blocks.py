"""The fixed shapes in which sampling computes.

A matrix product gives a row the same bits whatever stands in the other rows and wherever it stands among them, but only
for one number of rows: kernels change with it. So the number of rows is always the same, or follows from the row's own
length, and rows that nobody needs are filled with padding. That this is enough is held by a test, not by theory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openrl.network import Network

ROWS = 32  # sequences that are decoded together, and hidden states that are unembedded together
PREFILL_TOKENS = 128  # prompts that are run together, padding included; a longer one runs alone


def prefill_width(length: int) -> int:
    """To how many tokens a prompt is padded."""
    return max(16, 1 << (length - 1).bit_length())


def prefill_rows(width: int) -> int:
    """How many prompts of one width are computed together."""
    return max(1, PREFILL_TOKENS // width)


def logits(network: Network, hidden: Tensor) -> Tensor:
    """Scores of the vocabulary for hidden states (n, width), a full block at a time."""
    blocks = []
    for block in torch.split(hidden, ROWS):
        filled = torch.zeros(ROWS, hidden.shape[-1])
        filled[: len(block)] = block
        blocks.append(network.logits(filled)[: len(block)])
    return torch.cat(blocks)
