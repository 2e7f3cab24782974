"""The worker port on torch: trains and samples in this process, on the one thread that calls it.

Adapters share the base that they are on; what is trained and what is sampled share it too, and neither moves the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from openrl import checkpoints, sampler, weights, worker
from openrl.errors import OpenRLError, RequestError
from openrl.models import Bases
from openrl.snapshots import Snapshots
from openrl.trainer import Trainer
from openrl.work import (
    ForwardBackward,
    LoadState,
    ModelSpec,
    OptimStep,
    Result,
    Sample,
    SampleResult,
    SaveExternal,
    SaveResult,
    SaveSampler,
    SaveState,
    Work,
)


@dataclass(frozen=True, slots=True)
class _Model:
    spec: ModelSpec
    trainer: Trainer


class TorchWorker:
    """Models in memory, by id.

    Args:
        data_folder: Where the built-in model is kept.
        sources: The base models besides the built-in one: for every name a local folder or a hub name.
        aliases: Further names of base models, each for one that is served.
        threads: How many threads torch computes with; None leaves it as it is.
        max_rank: The largest rank of an adapter.
        token_budget: How many tokens, padding included, are trained on at once.
        snapshot_bytes: How much memory snapshots may take between samples.
    """

    def __init__(
        self,
        data_folder: Path,
        sources: Mapping[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
        *,
        threads: int | None = None,
        max_rank: int = 256,
        token_budget: int = 8192,
        snapshot_bytes: int = 1 << 30,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self._bases = Bases(sources or {}, aliases or {}, data_folder)
        self._snapshots = Snapshots(self._bases, snapshot_bytes)
        self._models: dict[str, _Model] = {}
        self._max_rank = max_rank
        self._token_budget = token_budget

    def bases(self) -> Sequence[worker.Base]:
        return self._bases.describe()

    def check(self, spec: ModelSpec) -> None:
        self._bases.canonical(spec.base_model)
        if spec.rank is None:
            return
        if not 1 <= spec.rank <= self._max_rank:
            raise RequestError(f"the rank must be from 1 to {self._max_rank}, not {spec.rank}")
        if not (spec.train_attn or spec.train_mlp or spec.train_unembed):
            raise RequestError("nothing to train: set train_attn, train_mlp or train_unembed")

    def create(self, model_id: str, spec: ModelSpec) -> None:
        self._models[model_id] = self._new(spec)

    def load(self, model_id: str, spec: ModelSpec, folder: str, optimizer: bool) -> None:
        model = self._new(spec)
        checkpoints.load_state(model.trainer, spec, Path(folder), optimizer)
        self._models[model_id] = model

    def run(self, model_id: str, work: Work) -> Result | None:
        model = self._model(model_id)
        trainer, spec = model.trainer, model.spec
        match work:
            case ForwardBackward():
                return trainer.forward_backward(work)
            case OptimStep():
                return trainer.optim_step(work)
            case SaveState(folder):
                return SaveResult(checkpoints.save_state(trainer, spec, Path(folder), gradients=False))
            case SaveSampler(folder):
                return self._save_sampler(model, Path(folder))
            case SaveExternal(folder):
                return SaveResult(checkpoints.save_external(trainer.weights, spec, Path(folder)))
            case LoadState(folder, optimizer):
                checkpoints.load_state(trainer, spec, Path(folder), optimizer)
                return None

    def save_durable(self, model_id: str, folder: str) -> None:
        model = self._model(model_id)
        checkpoints.save_state(model.trainer, model.spec, Path(folder), gradients=True)

    def load_durable(self, model_id: str, spec: ModelSpec, folder: str) -> None:
        self.load(model_id, spec, folder, optimizer=True)

    def drop(self, model_id: str) -> None:
        self._models.pop(model_id, None)

    def sample(self, batch: Sequence[Sample]) -> Sequence[SampleResult | RequestError]:
        found: dict[int, SampleResult | RequestError] = {}
        together: dict[tuple[str, str], list[int]] = {}
        for index, one in enumerate(batch):
            together.setdefault((one.base_model, one.weights), []).append(index)
        for (base_model, folder), indices in together.items():
            found.update(zip(indices, self._sample(base_model, folder, [batch[i] for i in indices]), strict=True))
        return [found[index] for index in range(len(batch))]

    def _save_sampler(self, model: _Model, folder: Path) -> SaveResult:
        written = folder.exists()
        size = checkpoints.save_weights(model.trainer.weights, model.spec, folder)
        if not written:
            self._snapshots.hold(model.trainer.weights, model.spec, folder)
        return SaveResult(size)

    def _sample(self, base_model: str, folder: str, batch: list[Sample]) -> list[SampleResult | RequestError]:
        try:
            snapshot = self._snapshots.get(base_model, folder)
        except RequestError as error:
            return [error] * len(batch)
        except OpenRLError as error:
            return [RequestError(str(error), "server")] * len(batch)
        return sampler.sample(snapshot, batch)

    def _new(self, spec: ModelSpec) -> _Model:
        self.check(spec)
        made = weights.of_spec(self._bases.get(spec.base_model), spec)
        return _Model(spec, Trainer(made, self._token_budget))

    def _model(self, model_id: str) -> _Model:
        if model_id not in self._models:
            raise RequestError(f"model {model_id} is not in memory: load it first", "server")
        return self._models[model_id]
