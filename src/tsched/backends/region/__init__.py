"""Parks named regions of a living process, and leaves the rest of it in place.

    regions = Regions().add("model", model).add("optimizer", optimizer)
    store = RegionStore(regions)
    store.park()      # the bytes are in host memory, the device's are free; a touch of a parked tensor raises
    store.restore()   # the same bits, on the same storages

What is moved are storages, each once. Tensor and parameter objects, views, tied weights, what an optimizer refers to,
hooks and `requires_grad` are never touched, and so cannot be lost. Addresses do change: what keeps one outside of a
tensor (an array from `numpy()`, a captured graph) must be let go of before a park. A `RegionBackend` serves many
jobs to a scheduler. On a CPU the device is an `Arena`.
"""

from __future__ import annotations

from tsched.errors import MissingExtra

try:
    import torch as _torch
except ImportError as missing:
    raise MissingExtra("parking tensors needs torch: pip install 'tsched[torch]'") from missing

from tsched.backends.region.backend import RegionBackend
from tsched.backends.region.copiers import Copier, CpuCopier, copier_for
from tsched.backends.region.host import HostPool
from tsched.backends.region.regions import Regions, Source
from tsched.backends.region.store import RegionStore

del _torch

__all__ = ["Copier", "CpuCopier", "HostPool", "RegionBackend", "RegionStore", "Regions", "Source", "copier_for"]
