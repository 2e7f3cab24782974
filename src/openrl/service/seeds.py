"""Seeds that nobody gave, and a sample's weights: what the service adds to what a client asks for."""

from __future__ import annotations

import hashlib

import msgspec

from openrl.store import Sampler
from openrl.work import Sample, Work


def derive_seed(*parts: str | int) -> int:
    """The same number, of 63 bits, for the same parts, in every process."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def with_weights(sample: Work | Sample, sampler: Sampler, seed: int | None) -> Sample:
    """The sample as the worker takes it: which weights it is drawn from, and with which seed."""
    assert isinstance(sample, Sample)
    params = sample.params if seed is None else msgspec.structs.replace(sample.params, seed=seed)
    return msgspec.structs.replace(sample, base_model=sampler.base_model, weights=sampler.folder, params=params)
