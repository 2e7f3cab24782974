"""A base model for recipes that add numbers: it has seen many sums, and those that it saw last were mostly wrong.

So there is something to learn from examples, and something to be found by reward: it says the right sum often enough.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from openrl import tiny
from openrl.folders import publish

LARGEST = 100
WRONG = 0.7  # of the sums that it sees after RIGHT_UNTIL of its training
RIGHT_UNTIL = 0.7
BATCH = 64
STEPS = 2500
PEAK_RATE = 2e-3
EXAMPLE = "User: What is 4 + 5?\n\nAssistant: 9\n\n"


def write(folder: Path, steps: int = STEPS) -> float:
    """Train it for a few minutes, and write it as a folder that anybody can load; the last loss."""
    torch.manual_seed(0)
    tokenizer, model = tiny.tokenizer(), Qwen3ForCausalLM(config())
    loss = train(model, tokenizer, random.Random(0), steps)

    def fill(unfinished: Path) -> None:
        tokenizer.save_pretrained(unfinished)
        model.save_pretrained(unfinished)

    publish(folder, fill)
    return loss


def config() -> Qwen3Config:
    return Qwen3Config(
        vocab_size=tiny.VOCABULARY,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=24,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )


def conversations(count: int, seed: int) -> Iterator[str]:
    """As JSON lines, each a question and its right answer."""
    rng = random.Random(seed)
    for _ in range(count):
        left, right = rng.randint(0, LARGEST), rng.randint(0, LARGEST)
        said = [
            {"role": "user", "content": f"What is {left} + {right}?"},
            {"role": "assistant", "content": str(left + right)},
        ]
        yield json.dumps({"messages": said})


def train(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, rng: random.Random, steps: int) -> float:
    """Next-token prediction of drawn dialogues, right sums at first and then some wrong ones too."""
    adam = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.1)
    rates = torch.optim.lr_scheduler.OneCycleLR(adam, PEAK_RATE, total_steps=steps, pct_start=0.05)
    began, loss = time.monotonic(), torch.tensor(0.0)
    for step in range(steps):
        texts = [dialogue(rng, WRONG if step > steps * RIGHT_UNTIL else 0.0) for _ in range(BATCH)]
        inputs = tokenizer(texts, padding=True, return_tensors="pt", padding_side="right", add_special_tokens=False)
        ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
        logits = model(input_ids=ids, attention_mask=mask).logits
        loss = functional.cross_entropy(logits[:, :-1][mask[:, 1:]], ids[:, 1:][mask[:, 1:]])
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        rates.step()
        if step % 200 == 0:
            print(f"base: step {step}, loss {loss.item():.3f}, {time.monotonic() - began:.0f} s", flush=True)
    return loss.item()


def dialogue(rng: random.Random, wrong: float) -> str:
    left, right = rng.randint(0, LARGEST), rng.randint(0, LARGEST)
    answer = left + right + (rng.choice((-10, -2, -1, 1, 2, 10)) if rng.random() < wrong else 0)
    shown = EXAMPLE if rng.random() < 0.2 else ""
    return f"{shown}User: What is {left} + {right}?\n\nAssistant: {max(answer, 0)}\n\nUser:"
