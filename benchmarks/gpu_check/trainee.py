"""A real model with an optimizer, made from a config, in bfloat16."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.gpu_check.device_bytes import checksum, free_caches
from benchmarks.gpu_check.scale import Scale
from tsched.backends.region import Regions

_LENGTH = 32


class Trainee:
    """A decoder with AdamW, which learns one batch by heart."""

    def __init__(self, scale: Scale, seed: int = 0) -> None:
        self.device = torch.device(scale.device)
        torch.manual_seed(seed)
        with self.device:
            self.model = AutoModelForCausalLM.from_config(_config(scale), dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
            self.batch = torch.randint(scale.vocabulary, (1, _LENGTH))
        fused = self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=fused)
        self.random = torch.Generator(self.device).manual_seed(seed)

    def step(self) -> float:
        """The loss; gradients and caches are gone afterwards."""
        loss: torch.Tensor = self.model(input_ids=self.batch, labels=self.batch).loss
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        value = float(loss.detach())
        torch.rand(1, generator=self.random, device=self.device)
        free_caches(self.device)
        return value

    def regions(self) -> Regions:
        regions = Regions().add("model", self.model).add("optimizer", self.optimizer)
        return regions.add("random", self.random)

    def tensors(self) -> list[torch.Tensor]:
        """The state, each tensor once."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.parameters(), *self.model.buffers(), *moments]

    def checksum(self) -> str:
        drawn = int.from_bytes(bytes(self.random.get_state().tolist()), "little")
        return f"{checksum(self.tensors())}-{drawn % (1 << 61):x}"


def _config(scale: Scale) -> LlamaConfig:
    heads = max(4, scale.hidden // 64)
    return LlamaConfig(
        num_hidden_layers=scale.layers,
        hidden_size=scale.hidden,
        intermediate_size=4 * scale.hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads // 4,
        vocab_size=scale.vocabulary,
        max_position_embeddings=2 * _LENGTH,
        tie_word_embeddings=True,
        use_cache=False,
    )
