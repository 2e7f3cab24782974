"""The bytes of a request to the work that it asks for; the same bytes always give the same work.

What is stored of a request is its body and its kind, so that after a crash it can be read again as it was read first.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from openrl.wire import batches, samples, steps
from openrl.wire.limits import Limits
from openrl.wire.message import Message
from openrl.wire.refusal import Malformed
from openrl.wire.sampling import Sample as SampleMessage
from openrl.wire.training import ForwardBackward as ForwardBackwardMessage
from openrl.wire.training import OptimStep as OptimStepMessage
from openrl.work import ForwardBackward, OptimStep, Sample

PROTO_BATCH = "forward_backward:proto"
JSON_BATCH = "forward_backward:json"
JSON_FORWARD = "forward:json"
OPTIM_STEP = "optim_step:json"
SAMPLE = "sample:json"

# What was once accepted is not refused after a restart with smaller limits.
NONE = Limits(**dict.fromkeys(Limits.model_fields, 2**62))

M = TypeVar("M", bound=Message)


def message(kind: type[M], body: bytes) -> M:
    """The JSON message. Raises Malformed that names the first field that is wrong."""
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise Malformed(complaint(error)) from error


def complaint(error: ValidationError) -> str:
    """The first complaint in one line; how many others there are."""
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(str(part) for part in first["loc"])[:200]
    more = f" (and {len(others)} more)" if others else ""
    return f"{where}: {first['msg']}{more}" if where else f"the body is not the JSON that belongs here: {first['msg']}"


def json_batch(ask: ForwardBackwardMessage, forward_only: bool, limits: Limits) -> ForwardBackward:
    """The batch under either of its names."""
    data = ask.forward_backward_input or ask.forward_input
    if data is None:
        raise Malformed("forward_backward_input is missing: it holds data, loss_fn and loss_fn_config")
    return batches.from_json(data, forward_only, limits)


def decode(kind: str, body: bytes) -> ForwardBackward | OptimStep | Sample:
    """What the service calls to read a stored request again; `kind` is one of the constants above."""
    match kind:
        case "forward_backward:proto":
            return batches.from_proto(batches.parse(body), NONE)
        case "forward_backward:json" | "forward:json":
            return json_batch(message(ForwardBackwardMessage, body), kind == JSON_FORWARD, NONE)
        case "optim_step:json":
            return steps.from_json(message(OptimStepMessage, body))
        case "sample:json":
            return samples.from_json(message(SampleMessage, body), NONE)
    raise Malformed(f"requests of kind {kind!r} cannot be read by this version")
