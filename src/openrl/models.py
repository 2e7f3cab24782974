"""Base models: which there are, under which names, and each loaded once, frozen and shared by all that train on it.

A name is an entry of the configuration, an alias of one, or `openrl/tiny`, which is built in. Two names of one source
share its weights; a name is never answered with another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from openrl import attention, tiny, worker
from openrl.errors import RequestError
from openrl.lora import AdapterLinear, make_adaptable
from openrl.network import Network


class Base:
    """One base model in memory. Its weights do not change; adapters come into force on its `layers`."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.model = _load(name, source)
        self.layers: dict[str, AdapterLinear] = make_adaptable(self.model, f"base model {name}")
        self.network = Network(self.model)

    @property
    def vocab_size(self) -> int:
        """How many token ids have an embedding."""
        return int(self.model.get_parameter("model.embed_tokens.weight").shape[0])

    @property
    def context_length(self) -> int:
        return int(self.model.config.max_position_embeddings)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer that lies beside the weights."""
        try:
            return AutoTokenizer.from_pretrained(self.source)
        except Exception as error:
            raise _unusable(self.name, f"its tokenizer cannot be loaded: {error}") from error

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""
        generation = getattr(self.model, "generation_config", None)
        found = (self.model.config.eos_token_id, getattr(generation, "eos_token_id", None), self.tokenizer.eos_token_id)
        return frozenset(
            int(token) for ids in found if ids is not None for token in (ids if isinstance(ids, list) else [ids])
        )


class Bases:
    """The base models of a configuration, loaded when first asked for.

    Args:
        sources: For every name, a local folder or a hub name.
        aliases: Further names, each for a name in `sources` or for `openrl/tiny`.
        data_folder: Where `openrl/tiny` is kept.
    """

    def __init__(self, sources: Mapping[str, str], aliases: Mapping[str, str], data_folder: Path) -> None:
        self._sources = dict(sources)
        self._aliases = dict(aliases)
        self._tiny = data_folder / "openrl-tiny"
        self._loaded: dict[str, Base] = {}

    def canonical(self, name: str) -> str:
        """The name that an alias stands for; a `RequestError` for one that is not served."""
        actual = self._aliases.get(name, name)
        if actual not in self._sources and actual != tiny.NAME:
            raise RequestError(f"base model {name!r} is not served here; served are {', '.join(self._names())}")
        return actual

    def get(self, name: str) -> Base:
        """The base of this name."""
        actual = self.canonical(name)
        source = self._source(actual)
        if source not in self._loaded:
            self._loaded[source] = Base(actual, source)
        return self._loaded[source]

    def describe(self) -> list[worker.Base]:
        """What is served. A model whose configuration cannot be read is left out, and asking for it says why."""
        found = []
        for name in self._names():
            try:
                found.append(self._describe(name))
            except RequestError:
                continue
        return found

    def _describe(self, name: str) -> worker.Base:
        source = self._source(self.canonical(name))
        config = _config(name, source)
        return worker.Base(
            name=name,
            max_context_length=int(config.max_position_embeddings),
            vocab_size=int(config.vocab_size),
            tokenizer_id=source,
            arch=str(config.model_type),
        )

    def _names(self) -> list[str]:
        return list(dict.fromkeys([*self._sources, tiny.NAME, *self._aliases]))

    def _source(self, canonical: str) -> str:
        if canonical in self._sources:
            return self._sources[canonical]
        return str(tiny.made_in(self._tiny))


def _config(name: str, source: str) -> Any:
    try:
        config = AutoConfig.from_pretrained(source)
    except Exception as error:
        raise _unusable(name, f"its config.json cannot be read: {error}") from error
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        raise _unusable(name, "its attention slides over a window, which is not supported")
    return config


def _load(name: str, source: str) -> PreTrainedModel:
    config = _config(name, source)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            attn_implementation=attention.NAME,
            output_loading_info=True,
        )
    except Exception as error:
        raise _unusable(name, f"its weights cannot be loaded: {error}") from error
    model, info = loaded
    if info["missing_keys"]:
        raise _unusable(name, f"its weights lack {', '.join(sorted(info['missing_keys'])[:3])}")
    model.requires_grad_(False)
    model.eval()
    return model  # type: ignore[no-any-return]


def _unusable(name: str, why: str) -> RequestError:
    return RequestError(
        f"base model {name!r} cannot be used: {why}. Mend its folder, or name another in the configuration"
    )
