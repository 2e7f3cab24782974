"""`make cookbook`: chat_sl and math_rl of tinker-cookbook, unmodified and offline, against a server of our own.

Supervised learning must lower the loss, and reinforcement must raise the reward; it ends with 1 where one does not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cookbook import base

BUILD = Path("build", "cookbook").resolve()
RECIPES = BUILD / "venv" / "bin" / "python"
NAMES = BUILD / "names"  # where the recipes run: a tokenizer is looked for below it, before any hub
MODEL = "Qwen/Qwen3-8B"  # what the recipes ask for; the server has another model under this name
CONVERSATIONS = 1280
ENDS = 5  # steps that are averaged at both ends of a curve
COMMON = ("renderer_name=role_colon", "lora_rank=32", "behavior_if_log_dir_exists=delete")
CHAT = ("batch_size=64", "learning_rate=2e-3", "max_length=128", "save_every=0", "eval_every=0")
MATH = (
    "env=arithmetic",
    "loss_fn=importance_sampling",  # the formula of its default is not public
    "groups_per_batch=32",
    "group_size=8",
    "max_tokens=10",
    "learning_rate=1e-3",
    "max_steps=30",
    "save_every=0",
    "eval_every=0",
)
CURVES = {"chat_sl": "train_mean_nll", "math_rl": "env/all/reward/total"}


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """A server with the base model, also under the name that recipes know; yields what a client needs to hear."""
    config = folder / "openrl.toml"
    config.write_text(f'[models.sums]\npath = "{folder / "base"}"\n\n[models."{MODEL}"]\nalias_of = "sums"\n')
    shutil.rmtree(folder / "data", ignore_errors=True)  # the first start shows a key
    command = (sys.executable, "-m", "openrl.cli", "serve", "--port", "0", "--config", str(config))
    with open(folder / "serve.log", "w") as log:
        process = subprocess.Popen(
            [*command, "--data", str(folder / "data")], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(3))
        told = dict(re.findall(r"^export (TINKER_\w+)=(\S+)", said, re.MULTILINE))
        if len(told) != 2:
            sys.exit(f"the server does not start: see {folder / 'serve.log'}")
        yield told
    finally:
        process.terminate()
        process.wait(60)


def run(recipe: str, options: Sequence[str], told: dict[str, str]) -> list[float]:
    """A recipe to its end; its curve."""
    logs = BUILD / recipe
    where = (f"model_name={MODEL}", f"log_path={logs}", f"base_url={told['TINKER_BASE_URL']}")
    environment = {**os.environ, **told, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with open(BUILD / f"{recipe}.log", "w") as log:
        done = subprocess.run(
            [str(RECIPES), "-m", f"tinker_cookbook.recipes.{recipe}.train", *where, *COMMON, *options],
            cwd=NAMES,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        sys.exit(f"{recipe} ended with {done.returncode}: see {log.name}")
    lines = (logs / "metrics.jsonl").read_text().splitlines()
    return [value[CURVES[recipe]] for value in map(json.loads, lines) if CURVES[recipe] in value]


def main() -> None:
    if not (BUILD / "base").exists():
        print(f"making a base model in {BUILD / 'base'}", flush=True)
        base.write(BUILD / "base")
    (NAMES / MODEL).parent.mkdir(parents=True, exist_ok=True)
    if not (NAMES / MODEL).exists():
        (NAMES / MODEL).symlink_to(BUILD / "base")
    examples = BUILD / "additions.jsonl"
    examples.write_text("\n".join(base.conversations(CONVERSATIONS, seed=1)) + "\n")
    with serving(BUILD) as told:
        losses = run("chat_sl", (f"dataset={examples}", *CHAT), told)
        rewards = run("math_rl", MATH, told)
    (loss_first, loss_last), (reward_first, reward_last) = ends(losses), ends(rewards)
    print(f"chat_sl: loss {loss_first:.3f} to {loss_last:.3f} in {len(losses)} steps ({curve(losses)})")
    print(f"math_rl: reward {reward_first:.3f} to {reward_last:.3f} in {len(rewards)} steps ({curve(rewards)})")
    sys.exit(0 if loss_last < loss_first and reward_last > reward_first else 1)


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The means of the first and of the last steps."""
    return statistics.mean(values[:ENDS]), statistics.mean(values[-ENDS:])


def curve(values: Sequence[float]) -> str:
    """Every fifth value, for the eye."""
    return ", ".join(f"{value:.3f}" for value in values[::ENDS])


if __name__ == "__main__":
    main()
