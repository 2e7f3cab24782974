"""Limits and times of the service; every one has a default that fits one machine."""

from __future__ import annotations

from msgspec import Struct, field

from openrl.queue import Limits

_HOUR_S = 3600.0


class Settings(Struct, frozen=True):
    """`queue` bounds replay and batches.

    Args:
        held_bytes: decoded requests kept in memory; those beyond are read from the store again when their turn comes.
        crowded: so many waiting requests of one model, or samples in all, are answered as `paused_capacity`.
        most_waiting: so many, and new ones are refused as `Overloaded`.
        idle_s: a model's memory is freed so long after its session was last heard of.
        ended_s: the same, after its session was finished.
        result_ttl_s: results are kept so long after they were given, then a retrieve says that they have expired.
        sampler_ttl_s: snapshots without a name are kept so long after they were last sampled from.
        sweep_s: how often what has expired is looked for, or more often where memory is freed after less.
        store_retry_s: after so long it is tried again to write to a store that could not be written.
        close_s: so long at most the end waits for the step that runs; the next start runs it again.
        compact_bytes: after so many bytes of payloads the store is compacted.
    """

    queue: Limits = field(default_factory=Limits)
    held_bytes: int = 256 * 2**20
    crowded: int = 4_000
    most_waiting: int = 20_000
    idle_s: float = 900.0
    ended_s: float = 30.0
    result_ttl_s: float = 24 * _HOUR_S
    sampler_ttl_s: float = 24 * _HOUR_S
    sweep_s: float = 60.0
    store_retry_s: float = 1.0
    close_s: float = 30.0
    compact_bytes: int = 16 * 2**20
