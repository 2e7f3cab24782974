"""How much one request may ask for. Every limit is a name in the config's `[limits]`, which its refusal names."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Upper bounds; a request beyond one is refused with its name and what to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    body_bytes: int = Field(default=64 * 2**20, gt=0, description="of a request, as sent")
    decompressed_bytes: int = Field(
        default=64 * 2**20, gt=0, description="of a request; read, it takes 30 times as much"
    )
    message_bytes: int = Field(default=2**20, gt=0, description="of a request without tokens, decompressed")
    spread_bytes: int = Field(default=256 * 2**20, gt=0, description="of a batch's sparse tensors, made dense")
    batch_datums: int = Field(default=4096, gt=0, description="in one forward_backward")
    batch_tokens: int = Field(default=4_000_000, gt=0, description="in one forward_backward")
    sequence_tokens: int = Field(default=131_072, gt=0, description="in one datum or prompt")
    sample_tokens: int = Field(default=131_072, gt=0, description="max_tokens of one sample")
    num_samples: int = Field(default=1024, gt=0, description="of one prompt")
    top_logprobs: int = Field(default=64, gt=0, description="per position")
    stop_entries: int = Field(default=64, gt=0, description="stop strings or tokens")
    rank: int = Field(default=512, gt=0, description="of an adapter")
    waiting: int = Field(default=20_000, gt=0, description="requests that wait for their turn, in all")
    metadata_bytes: int = Field(default=65_536, gt=0, description="of user_metadata")
