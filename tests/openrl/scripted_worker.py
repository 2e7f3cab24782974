"""A worker whose weights are a running hash of the work that was applied, so that a test can say what they must be.

What it does besides is said in the work itself: a loss `bad` is the user's mistake, `broken` the server's; `deadly`
kills the worker each time, `deadly:2` the first two times. Checkpoints and durable states are folders with one file.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from openrl.errors import RequestError, WorkerDied
from openrl.work import (
    ForwardBackward,
    ForwardBackwardResult,
    LoadState,
    ModelSpec,
    OptimResult,
    OptimStep,
    Result,
    Sample,
    SampledSequence,
    SampleParams,
    SampleResult,
    SaveExternal,
    SaveResult,
    SaveSampler,
    SaveState,
    Work,
)
from openrl.worker import Base


def start(spec: ModelSpec) -> str:
    """The weights of a new model."""
    return _hash("start", spec.base_model, str(spec.seed))


def after(weights: str, work: Work) -> str:
    """The weights once this was applied."""
    if isinstance(work, ForwardBackward):
        return weights if work.forward_only else _hash(weights, "grad", work.loss)
    return _hash(weights, "step", repr(work.learning_rate)) if isinstance(work, OptimStep) else weights


def encode(work: Work | Sample) -> bytes:
    """A stand-in for what comes over the wire."""
    if isinstance(work, Sample):
        return json.dumps(["sample", work.prompt.tolist(), work.num_samples, work.params.seed]).encode()
    if isinstance(work, ForwardBackward):
        return json.dumps(["forward_backward", work.loss, work.forward_only]).encode()
    assert isinstance(work, OptimStep)
    return json.dumps(["optim_step", work.learning_rate]).encode()


def decode(kind: str, payload: bytes) -> Work | Sample:
    """The decoder that goes with `encode`."""
    match json.loads(payload):
        case ["sample", prompt, num_samples, seed]:
            return sample(prompt, num_samples, seed)
        case ["forward_backward", loss, forward_only]:
            return ForwardBackward([], loss, {}, forward_only)
        case ["optim_step", learning_rate]:
            return OptimStep(learning_rate)
    raise ValueError(f"{kind}: {payload!r}")


def sample(prompt: Sequence[int], num_samples: int = 1, seed: int = 0) -> Sample:
    return Sample("", "", np.array(prompt, np.int64), num_samples, SampleParams(4, seed))


class ScriptedWorker:
    """`calls` is what was asked of it; `delay_s` is how long each piece of work takes."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.models: dict[str, str] = {}
        self.calls: list[str] = []
        self.delay_s = delay_s
        self._deaths: Counter[str] = Counter()

    def bases(self) -> Sequence[Base]:
        return [Base("tiny", 128, 64)]

    def check(self, spec: ModelSpec) -> None:
        if spec.base_model != "tiny":
            raise RequestError(f"base model {spec.base_model!r} is not served here: tiny is")

    def create(self, model_id: str, spec: ModelSpec) -> None:
        self.calls.append(f"create {model_id}")
        self.models[model_id] = start(spec)

    def load(self, model_id: str, spec: ModelSpec, folder: str, optimizer: bool) -> None:
        self.calls.append(f"load {model_id}")
        self.models[model_id] = _read(folder)

    def run(self, model_id: str, work: Work) -> Result | None:
        self.calls.append(f"run {model_id} {_label(work)}")
        time.sleep(self.delay_s)
        match work:
            case ForwardBackward(loss=loss):
                self._suffer(f"{model_id} {loss}", loss)
                self.models[model_id] = after(self.models[model_id], work)
                return ForwardBackwardResult([], {f"{self.models[model_id]}:sum": 1.0})
            case OptimStep():
                self.models[model_id] = after(self.models[model_id], work)
                return OptimResult({f"{self.models[model_id]}:sum": 1.0})
            case SaveState(folder) | SaveSampler(folder) | SaveExternal(folder):
                _write(folder, self.models[model_id])
                return SaveResult(len(self.models[model_id]))
            case LoadState(folder):
                self.models[model_id] = _read(folder)
        return None

    def save_durable(self, model_id: str, folder: str) -> None:
        self.calls.append(f"save_durable {model_id}")
        _write(folder, self.models[model_id])

    def load_durable(self, model_id: str, spec: ModelSpec, folder: str) -> None:
        self.calls.append(f"load_durable {model_id}")
        self.models[model_id] = _read(folder)

    def drop(self, model_id: str) -> None:
        self.calls.append(f"drop {model_id}")
        self.models.pop(model_id, None)

    def sample(self, batch: Sequence[Sample]) -> Sequence[SampleResult | RequestError]:
        """The first token of a prompt says what happens: 66 is the user's mistake, 99 kills the worker."""
        self.calls.append(f"sample {len(batch)}")
        time.sleep(self.delay_s)
        if any(99 in one.prompt for one in batch):
            self.models.clear()
            raise WorkerDied("killed by a sample")
        return [_draw(one) for one in batch]

    def _suffer(self, who: str, loss: str) -> None:
        if loss == "bad":
            raise RequestError("loss 'bad' is not known")
        if loss == "broken":
            raise ArithmeticError("broken")
        name, _, times = loss.partition(":")
        if name == "deadly" and (not times or self._deaths[who] < int(times)):
            self._deaths[who] += 1
            self.models.clear()
            raise WorkerDied("killed by its work")


def _draw(one: Sample) -> SampleResult | RequestError:
    if 66 in one.prompt:
        return RequestError("token 66 is beyond the vocabulary")
    weights = _read(one.weights) if one.weights else one.base_model
    digest = hashlib.sha256(f"{weights}{one.prompt.tolist()}{one.params.seed}".encode()).digest()
    tokens = np.frombuffer(digest[:16], np.int32)
    return SampleResult([SampledSequence(tokens, np.zeros(4, np.float32), "length")] * one.num_samples)


def _write(folder: str, weights: str) -> None:
    """Whole or not at all, and never twice."""
    place = Path(folder)
    assert not place.exists(), f"{folder} exists"
    part = place.with_name(place.name + ".part")
    part.mkdir(exist_ok=True)
    (part / "weights").write_text(weights)
    os.rename(part, place)


def _read(folder: str) -> str:
    return (Path(folder) / "weights").read_text()


def _label(work: Work) -> str:
    return work.loss if isinstance(work, ForwardBackward) else type(work).__name__


def _hash(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]
