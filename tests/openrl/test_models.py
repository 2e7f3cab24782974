"""Which base a name stands for, and what is said where it cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from openrl import tiny
from openrl.errors import RequestError
from openrl.models import Bases
from tests.openrl.small_models import CONTEXT, VOCABULARY, write_base


@pytest.fixture
def bases(tmp_path: Path) -> Bases:
    sources = {name: str(write_base(tmp_path / name, seed=seed)) for seed, name in enumerate(["one", "other"])}
    return Bases(sources, {"Qwen/Qwen3-8B": "one", "small": tiny.NAME}, tmp_path / "data")


def test_a_base_is_loaded_once_and_aliases_share_it(bases: Bases) -> None:
    assert bases.get("one") is bases.get("Qwen/Qwen3-8B")
    assert bases.get("Qwen/Qwen3-8B").name == "one"
    assert not any(parameter.requires_grad for parameter in bases.get("one").model.parameters())


def test_another_base_is_not_answered_with_the_one_in_memory(bases: Bases) -> None:
    one, other = (bases.get(name).model.get_parameter("lm_head.weight") for name in ("one", "other"))
    assert not torch.equal(one, other)


def test_the_built_in_model_is_made_on_first_use(bases: Bases, tmp_path: Path) -> None:
    assert not (tmp_path / "data").exists()
    assert bases.get("small").vocab_size == tiny.VOCABULARY
    assert (tmp_path / "data" / "openrl-tiny" / "tokenizer.json").exists()


def test_a_name_that_is_not_served_is_refused_with_those_that_are(bases: Bases, tmp_path: Path) -> None:
    for name in ("meta/llama", str(tmp_path / "one"), "../one"):
        with pytest.raises(RequestError, match="served are one, other, openrl/tiny, Qwen/Qwen3-8B, small"):
            bases.get(name)


def test_what_is_served_is_described(bases: Bases) -> None:
    described = {base.name: base for base in bases.describe()}
    assert list(described) == ["one", "other", "openrl/tiny", "Qwen/Qwen3-8B", "small"]
    assert (described["one"].max_context_length, described["one"].vocab_size) == (CONTEXT, VOCABULARY)
    assert described["Qwen/Qwen3-8B"].tokenizer_id == described["one"].tokenizer_id


def broken(folder: Path, how: str) -> None:
    changes: dict[str, Any] = {"use_sliding_window": True, "max_window_layers": 0} if how == "window" else {}
    write_base(folder, **changes)
    weights = folder / "model.safetensors"
    if how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "no weights":
        weights.unlink()
    elif how == "no config":
        (folder / "config.json").unlink()
    elif how == "half a config":
        (folder / "config.json").write_text("{")
    elif how == "other sizes":
        write_base(folder / "wide", hidden_size=64)
        weights.write_bytes((folder / "wide" / "model.safetensors").read_bytes())
    elif how == "fewer layers":
        write_base(folder / "short", num_hidden_layers=1)
        weights.write_bytes((folder / "short" / "model.safetensors").read_bytes())


@pytest.mark.parametrize(
    "how",
    ["truncated", "no weights", "no config", "half a config", "other sizes", "fewer layers", "window", "no folder"],
)
def test_a_folder_that_is_broken_is_a_clear_error_and_others_go_on(tmp_path: Path, bases: Bases, how: str) -> None:
    if how != "no folder":
        broken(tmp_path / "broken", how)
    served = Bases({"broken": str(tmp_path / "broken"), "one": str(tmp_path / "one")}, {}, tmp_path / "data")
    with pytest.raises(RequestError, match="base model 'broken' cannot be used: its"):
        served.get("broken")
    assert served.get("one").vocab_size == VOCABULARY
