"""Sampling requests of one set of weights together: prompts first, then a token of every sequence at a time.

A sequence that ends makes room for the next, so that any number of requests runs in bounded memory. What comes out for
a request depends on weights, prompt, parameters and seed, and not on what else was running, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Several
from itertools import islice

import torch
from torch import Tensor

from openrl.errors import RequestError
from openrl.models import Base
from openrl.network import Network
from openrl.sampler import blocks
from openrl.sampler.choice import draw
from openrl.sampler.prefill import prefill
from openrl.sampler.sequences import Request, Sequence
from openrl.sampler.slots import Slots
from openrl.weights import Weights
from openrl.work import Sample, SampleResult

_DIVERGED = "the weights give scores that are not numbers: they have diverged; sample from an earlier checkpoint"


def sample(weights: Weights, batch: Several[Sample]) -> list[SampleResult | RequestError]:
    """The answers in the order of the requests; one that cannot be sampled gets an error, and the others go on."""
    requests = [_accepted(one, weights.base) for one in batch]
    with weights.in_force() as network, torch.inference_mode():
        _Run(network, [one for one in requests if isinstance(one, Request)]).to_end()
    return [one.result() if isinstance(one, Request) else one for one in requests]


def _accepted(one: Sample, base: Base) -> Request | RequestError:
    try:
        return Request(one, base)
    except RequestError as error:
        return error


class _Run:
    """Some requests, from their first prompt to their last token."""

    def __init__(self, network: Network, requests: Several[Request]) -> None:
        self._network = network
        self._slots = Slots(network)
        self._running: dict[int, Sequence] = {}
        self._beginning = self._beginnings(requests)

    def to_end(self) -> None:
        while self._fill_slots():
            self._step()

    def _fill_slots(self) -> bool:
        """Begin sequences until all slots are taken or none is left to begin; is there anything to run?"""
        while self._slots.free:
            begun = list(islice(self._beginning, len(self._slots.free)))
            if not begun:
                break
            self._choose(begun, torch.stack([one.prompt.logits for one in begun if one.prompt is not None]))
            for one in begun:
                self._settle(one)
        return bool(self._running)

    def _settle(self, one: Sequence) -> None:
        """A sequence that its first token did not complete takes a slot."""
        prompt, one.prompt = one.prompt, None
        if prompt is not None and not one.ended():
            self._running[self._slots.take(prompt.key_values, len(one.request.sample.prompt))] = one

    def _beginnings(self, requests: Several[Request]) -> Iterator[Sequence]:
        """All sequences; a prompt is run when its first one is asked for, together with others of its width."""
        for together in _alike(requests):
            prompts = prefill(self._network, [request.sample for request in together])
            for request, prompt in zip(together, prompts, strict=True):
                request.about = prompt.about
                yield from (Sequence(request, index, prompt) for index in range(request.sample.num_samples))

    def _step(self) -> None:
        tokens = [self._running[slot].tokens[-1] if slot in self._running else 0 for slot in range(blocks.ROWS)]
        scores = self._network.logits(self._slots.step(tokens))
        slots = list(self._running)
        self._choose([self._running[slot] for slot in slots], scores[slots])
        for slot in slots:
            if self._running[slot].ended():
                del self._running[slot]
                self._slots.release(slot)

    def _choose(self, sequences: Several[Sequence], scores: Tensor) -> None:
        """Give every sequence its next token, drawn from its row of scores."""
        logprobs = torch.log_softmax(scores, -1)
        usable = torch.isfinite(logprobs).all(-1).tolist()
        params = [one.request.sample.params for one in sequences]
        tokens = draw(scores, params, [one.number() for one in sequences])
        for one, token, row, fine in zip(sequences, tokens, logprobs, usable, strict=True):
            if fine:
                one.add(token, row)
            else:
                one.request.error = RequestError(_DIVERGED)


def _alike(requests: Iterable[Request]) -> Iterator[Several[Request]]:
    """Requests whose prompts are padded to one width, as many as run together."""
    by_width: dict[int, list[Request]] = {}
    for request in requests:
        by_width.setdefault(blocks.prefill_width(len(request.sample.prompt)), []).append(request)
    for width, those in by_width.items():
        rows = blocks.prefill_rows(width)
        yield from (those[start : start + rows] for start in range(0, len(those), rows))
