"""Every public method of the SDK's clients, by reflection, and how each is called for real."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import tinker
from msgspec import Struct
from tinker import types
from tinker.lib.api_future_impl import QueueState

TOKENS = [5, 9, 33, 7, 2, 41]
CLIENTS = (tinker.ServiceClient, tinker.TrainingClient, tinker.SamplingClient, tinker.RestClient)
WITHIN_S = 120
HOSTED = "of the hosted product"

# Why a method is not expected to work here. Everything that is not named here must.
HOSTED_ONLY = {
    "RestClient.get_audit_log": "the audit log",
    "RestClient.get_billing_usage": "billing",
    "RestClient.get_current_checkpoint_storage_usage": "billing",
    "RestClient.export_session_trace": "its timelines",
    "RestClient.whoami": "its identities",
}


class Row(Struct):
    """What became of one method."""

    client: str
    method: str
    outcome: str
    note: str = ""


def methods(client: type) -> list[str]:
    """The names that a user of the client may call."""
    members = inspect.getmembers(client, lambda member: callable(member) or isinstance(member, property))
    return [name for name, _ in members if not name.startswith("_")]


class World:
    """The clients, and something of each kind that their methods need."""

    def __init__(self, url: str, key: str) -> None:
        self.url, self.key = url, key
        self.service = tinker.ServiceClient(base_url=url, api_key=key, project_id="project")
        self.training = self.service.create_lora_training_client("openrl/tiny", rank=4, seed=1).result(WITHIN_S)
        self.rest = tinker.RestClient(base_url=url, api_key=key)
        self.sampling = self.training.save_weights_and_get_sampling_client().result(WITHIN_S)
        self.names = (f"name-{number}" for number in itertools.count())
        self.prompt = types.ModelInput.from_ints(TOKENS)
        self.session = self.training.model_id.split(":")[0]

    def data(self) -> list[types.Datum]:
        inputs: Any = {"target_tokens": TOKENS[1:], "weights": [1.0] * (len(TOKENS) - 1)}
        return [types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]), loss_fn_inputs=inputs)]

    def state(self) -> str:
        return str(self.training.save_state(next(self.names)).result(WITHIN_S).path)

    def sampler(self) -> str:
        return str(self.training.save_weights_for_sampler(next(self.names)).result(WITHIN_S).path)

    def external(self) -> str:
        return str(self.training.save_weights_external(next(self.names)).result(WITHIN_S).path)

    def fresh(self) -> tinker.TrainingClient:
        return self.service.create_lora_training_client("openrl/tiny", rank=4, seed=1).result(WITHIN_S)

    def owner(self, client: str) -> Any:
        """The client of that class."""
        return {
            "ServiceClient": self.service,
            "TrainingClient": self.training,
            "SamplingClient": self.sampling,
            "RestClient": self.rest,
        }[client]


def negative(data: list[types.Datum], logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
    """A loss of the user's own."""
    return -sum(one.sum() for one in logprobs), {}


def per_datum(logprobs: Any, weights: Any) -> tuple[Any, dict[str, Any]]:
    """The same, in the form that could run on a server."""
    loss = -(logprobs * weights).sum()
    return loss, {"custom/per_datum:sum": loss}


def split(path: str) -> tuple[str, str]:
    """The two arguments that some methods take in place of a path."""
    run, _, rest = path.removeprefix("tinker://").partition("/")
    return run, rest


def given(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


PARAMS = types.SamplingParams(max_tokens=2, seed=1)

# What a method is called with, and its twin whose name ends in _async; those that are not here take nothing.
ARGUMENTS: dict[str, Callable[[World], Any]] = {
    "ServiceClient.create_lora_training_client": lambda w: given("openrl/tiny", rank=4),
    "ServiceClient.create_training_client_from_state": lambda w: given(w.state()),
    "ServiceClient.create_training_client_from_state_with_optimizer": lambda w: given(w.state()),
    "ServiceClient.create_sampling_client": lambda w: given(model_path=w.sampler()),
    "ServiceClient.create_custom_loss": lambda w: given(per_datum, {"logprobs": 1, "weights": 1}),
    "ServiceClient.copy_weights": lambda w: given(w.state()),
    "ServiceClient.close": lambda w: given("success"),
    "TrainingClient.forward": lambda w: given(w.data(), "cross_entropy"),
    "TrainingClient.forward_backward": lambda w: given(w.data(), "cross_entropy"),
    "TrainingClient.forward_backward_custom": lambda w: given(w.data(), negative),
    "TrainingClient.optim_step": lambda w: given(types.AdamParams(learning_rate=0.0)),
    "TrainingClient.save_state": lambda w: given(next(w.names)),
    "TrainingClient.load_state": lambda w: given(w.state()),
    "TrainingClient.load_state_with_optimizer": lambda w: given(w.state()),
    "TrainingClient.save_weights_for_sampler": lambda w: given(next(w.names)),
    "TrainingClient.save_weights_external": lambda w: given(next(w.names)),
    "TrainingClient.create_sampling_client": lambda w: given(w.sampler()),
    "SamplingClient.create": lambda w: given(w.service.holder, base_model="openrl/tiny"),
    "SamplingClient.sample": lambda w: given(w.prompt, 1, PARAMS),
    "SamplingClient.compute_logprobs": lambda w: given(w.prompt),
    "SamplingClient.from_sampler_handle": lambda w: given(w.sampling.get_sampler_handle(), api_key=w.key),
    "SamplingClient.on_queue_state_change": lambda w: given(QueueState.ACTIVE, None),
    "RestClient.get_training_run": lambda w: given(w.training.model_id),
    "RestClient.get_training_run_by_tinker_path": lambda w: given(w.state()),
    "RestClient.get_weights_info_by_tinker_path": lambda w: given(w.state()),
    "RestClient.list_checkpoints": lambda w: given(w.training.model_id),
    "RestClient.get_external_weights_urls": lambda w: given(w.external()),
    "RestClient.delete_checkpoint": lambda w: given(*split(w.state())),
    "RestClient.delete_checkpoint_from_tinker_path": lambda w: given(w.state()),
    "RestClient.publish_checkpoint_from_tinker_path": lambda w: given(w.state()),
    "RestClient.unpublish_checkpoint_from_tinker_path": lambda w: given(w.state()),
    "RestClient.set_checkpoint_ttl_from_tinker_path": lambda w: given(w.state(), 7200),
    "RestClient.copy_weights": lambda w: given(w.state(), "project"),
    "RestClient.get_session": lambda w: given(w.session),
    "RestClient.assign_session_project": lambda w: given(w.session, "project"),
    "RestClient.search_sessions": lambda w: given(types.SessionSearchRequest()),
    "RestClient.export_session_trace": lambda w: given(w.session),
    "RestClient.get_sampler": lambda w: given(w.rest.get_session(w.session).result(WITHIN_S).sampler_ids[0]),
    "RestClient.get_billing_usage": lambda w: given("2026-01-01", "2026-02-01"),
}

# On which client, where that is not the one that all methods share.
ON: dict[str, Callable[[World], Any]] = {
    "ServiceClient.close": lambda w: tinker.ServiceClient(base_url=w.url, api_key=w.key),
    "TrainingClient.load_state": lambda w: w.fresh(),
    "TrainingClient.load_state_with_optimizer": lambda w: w.fresh(),
}


def called(world: World, client: type, name: str) -> Row:
    """Call the method, wait for what it promises, and say what became of it."""
    place = f"{client.__name__}.{name}"
    base = place.removesuffix("_async")
    args, kwargs = ARGUMENTS[base](world) if base in ARGUMENTS else given()
    on = ON[base](world) if base in ON else world.owner(client.__name__)
    try:
        member = getattr(on, name)
        settled(member(*args, **kwargs) if callable(member) else member)
    except Exception as error:
        return Row(client.__name__, name, "fails", f"{type(error).__name__}: {error}")
    return Row(client.__name__, name, "works")


def settled(value: Any) -> Any:
    """What a future or coroutine brings, as often as it brings another."""
    if inspect.iscoroutine(value):
        return settled(asyncio.run(asyncio.wait_for(value, WITHIN_S)))
    if hasattr(value, "result") and callable(value.result):
        return settled(value.result(WITHIN_S)) if not isinstance(value, CLIENTS) else value
    return value


def judged(row: Row) -> Row:
    """A failure that was to be expected is told as what it is."""
    base = f"{row.client}.{row.method}".removesuffix("_async")
    if row.outcome == "fails" and base in HOSTED_ONLY:
        return Row(row.client, row.method, HOSTED, HOSTED_ONLY[base])
    return row


def table(rows: list[Row]) -> str:
    """Markdown: a line for a method and its twin."""
    lines = []
    for client, group in itertools.groupby(rows, key=lambda row: row.client):
        by_name = {row.method: row for row in group}
        lines += ["", f"## {client}", "", "| method | outcome | |", "| --- | --- | --- |"]
        for name, row in by_name.items():
            if name.endswith("_async") and name.removesuffix("_async") in by_name:
                continue
            twin = by_name.get(f"{name}_async")
            outcome = (
                row.outcome if twin is None or twin.outcome == row.outcome else f"{row.outcome}, async {twin.outcome}"
            )
            lines.append(f"| `{name}`{' and `_async`' if twin else ''} | {outcome} | {row.note} |")
    return "\n".join(lines) + "\n"
