"""The three networks: small decoder-only transformers of three families, with weights drawn from a seed.

transformers initialises from the global generator; here every weight is drawn anew from one of our own, and the
global one is left as it was.
"""

from __future__ import annotations

import torch
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

MAX_TOKENS = 128
INITIAL_SPREAD = 0.05


def llama(vocabulary: int, width: int, layers: int) -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=MAX_TOKENS,
        )
    )


def qwen3(vocabulary: int, width: int, layers: int) -> PreTrainedModel:
    """Grouped queries, and one matrix for the embedding and the output."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=width // 4,
            tie_word_embeddings=True,
            max_position_embeddings=MAX_TOKENS,
        )
    )


def gpt_neox(vocabulary: int, width: int, layers: int) -> PreTrainedModel:
    return GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            max_position_embeddings=MAX_TOKENS,
        )
    )


FAMILIES = {"llama": llama, "qwen3": qwen3, "gpt_neox": gpt_neox}


def build(family: str, vocabulary: int, width: int, layers: int, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        model = FAMILIES[family](vocabulary, width, layers)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, INITIAL_SPREAD, generator=generator)
    return model
