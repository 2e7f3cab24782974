"""Weights on their way from a trainer to a sampler: one file, replaced as a whole, with a version in it.

A reader sees the file of before or the file of after, never half of one. Under `/dev/shm` the file is shared memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load, save_file
from torch import Tensor


def write(path: Path, tensors: Mapping[str, Tensor], version: int) -> None:
    """Replaces `path`. The tensors must not share memory; tied ones are given once."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    save_file(dict(tensors), unfinished, metadata={"version": str(version)})
    os.replace(unfinished, path)


def read(path: Path) -> tuple[dict[str, Tensor], int]:
    """Opens the file once: `safe_open` does so twice, and may find another version the second time."""
    content = path.read_bytes()
    return load(content), int(metadata(content)["version"])


def metadata(content: bytes) -> dict[str, str]:
    """A safetensors file begins with the length of its header, and the header is JSON."""
    length = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return found


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
