"""Sampling: many requests on one network, in rows of one fixed shape, so that no row depends on its neighbours."""

from openrl.sampler.sampler import sample

__all__ = ["sample"]
