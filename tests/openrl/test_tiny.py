"""The built-in model: the same files every time, and a tokenizer that conversations need."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoConfig, AutoTokenizer

from openrl import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.made_in(tmp_path_factory.mktemp("data") / "openrl-tiny")


def test_it_is_made_the_same_every_time_and_only_once(folder: Path, tmp_path: Path) -> None:
    again = tiny.made_in(tmp_path / "openrl-tiny")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert [(folder / name).read_bytes() for name in names] == [(again / name).read_bytes() for name in names]
    before = (again / "config.json").stat().st_mtime_ns
    assert tiny.made_in(tmp_path / "openrl-tiny") == again
    assert (again / "config.json").stat().st_mtime_ns == before


def test_every_token_of_the_tokenizer_is_one_of_the_model(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == AutoConfig.from_pretrained(folder).vocab_size == tiny.VOCABULARY


@pytest.mark.parametrize("text", ["What is 12 + 345?", "Grüße, 世界! \n\t  \U0001f600", "<think>hm</think> SELECT *;"])
def test_every_text_comes_back(folder: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_stand_alone_and_marks_are_single_tokens(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer.encode("31415")) == 5
    for mark in (*tiny.SPECIAL, *tiny.THINKING):
        assert len(tokenizer.encode(mark)) == 1
    assert tokenizer.eos_token == tiny.TURN_END


def test_the_chat_template_marks_turns(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    turns = [{"role": "user", "content": "Hello"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
