"""Tensors as bytes: checksums that are computed where the tensors are, and the caches beside them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from benchmarks.gpu_check.scale import MIB

_CHUNK_BYTES = 64 * MIB
_ODD = -7046029254386353131  # 2^64 divided by the golden ratio, as a signed number


def checksum(tensors: Iterable[torch.Tensor]) -> str:
    """Changes with any bit of any word, and with their order; integers alone, hence the same on every device."""
    total = 0
    for tensor in tensors:
        total = (total * 6364136223846793005 + _sum(as_bytes(tensor)) + tensor.nbytes) % (1 << 64)
    return f"{total:016x}"


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def free_caches(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _sum(flat: torch.Tensor) -> int:
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for at in range(0, flat.numel(), _CHUNK_BYTES):
        chunk = flat[at : at + _CHUNK_BYTES]
        whole = torch.zeros(-(-chunk.numel() // 8) * 8, dtype=torch.uint8, device=flat.device)
        whole[: chunk.numel()] = chunk
        words = whole.view(torch.int64)
        place = torch.arange(at // 8, at // 8 + words.numel(), device=flat.device)
        total += (words * ((place * _ODD) | 1)).sum()
    return int(total) % (1 << 64)
