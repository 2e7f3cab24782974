"""Results: asked for until they are there, or no longer wanted."""

from __future__ import annotations

import structlog
from fastapi import APIRouter, Response

from openrl.errors import Unknown
from openrl.routes.call import API, PROTOBUF, Caller, answer
from openrl.service import Done, Failure, Pending, Ready, Saved
from openrl.wire import encode, futures
from openrl.work import ForwardBackwardResult, OptimResult, SampleResult

router = APIRouter(prefix=API)

JSON = "application/json"
ANNOUNCED_BYTES = 4 * 2**20  # results beyond are announced before they are sent, to clients that know of it
SAVED_BY = {
    "weights": "save_weights",
    "sampler_weights": "save_weights_for_sampler",
    "external_weights": "save_weights_external",
}


@router.post("/retrieve_future")
async def retrieve(call: Caller) -> Response:
    """Held until the result is there or the client should ask again.

    A future that is not there has failed, rather than being a 404, which the client would not show as it is.
    """
    ask = await call.message(futures.RetrieveFuture)
    wait_s = call.gateway.config.poll_s
    try:
        outcome = await call.gateway.polls.hold(call.service.requests.retrieve(call.owner, ask.request_id, wait_s))
    except Unknown as unknown:
        outcome = Failure(str(unknown), "user")
    structlog.contextvars.bind_contextvars(future=ask.request_id, outcome=type(outcome).__name__)
    made = result(outcome, call.reads_protobuf)
    if ask.allow_metadata_only and len(made.body) > ANNOUNCED_BYTES:
        return answer(futures.CompleteMetadata(response_payload_size=len(made.body)))
    return made


@router.post("/retrieve_futures")
async def retrieve_many(call: Caller) -> Response:
    """Which samples of a sampling session are done; their results are then asked for one by one."""
    ask = await call.message(futures.RetrieveFutures)
    longest_s = call.gateway.config.poll_s
    wait_s = longest_s if ask.timeout is None else min(longest_s, ask.timeout)
    target, cursor = ask.target, ask.prev_cursor
    found = await call.gateway.polls.hold(
        call.service.samplers.completions(
            call.owner, target.sampling_session_id, target.cloned_sampler_id, cursor, wait_s
        )
    )
    done, cursor = ([], cursor) if isinstance(found, Pending) else found
    completions = [
        futures.Completion(request_id=one.request_id, state="failed" if one.failed else "finished") for one in done
    ]
    return answer(futures.Completions(completions=completions, cursor=cursor))


@router.post("/cancel_future")
async def cancel(call: Caller) -> Response:
    """Whoever waits for it gets an error."""
    ask = await call.message(futures.CancelFuture)
    for request_id in [ask.request_id, *ask.request_ids]:
        if request_id is not None:
            await call.service.requests.cancel(call.owner, request_id)
    return Response("{}", media_type=JSON)


def result(outcome: Pending | Done | Failure, protobuf: bool) -> Response:
    """The answer in the form that the client knows."""
    match outcome:
        case Pending(queue_state, reason):
            return answer(futures.Pending(queue_state=queue_state, queue_state_reason=reason or None), 408)
        case Failure(error, category):
            return answer(futures.Failed(error=error, category=category))
        case Done(value):
            return done(value, protobuf)


def done(value: ForwardBackwardResult | OptimResult | SampleResult | Saved | Ready, protobuf: bool) -> Response:
    """Protobuf for the two results that have arrays."""
    match value:
        case ForwardBackwardResult() if protobuf:
            return Response(encode.batch_to_proto(value), media_type=PROTOBUF)
        case SampleResult() if protobuf:
            return Response(encode.sample_to_proto(value), media_type=PROTOBUF)
        case ForwardBackwardResult():
            return Response(encode.batch_to_json(value), media_type=JSON)
        case SampleResult():
            return Response(encode.sample_to_json(value), media_type=JSON)
        case OptimResult():
            return Response(encode.step_to_json(value), media_type=JSON)
        case Saved():
            return Response(saved(value), media_type=JSON)
        case Ready():
            return Response(ready(value), media_type=JSON)


def saved(value: Saved) -> bytes:
    """What was saved has a path, or is a sampling session."""
    segment = value.path.split("/")[-2] if value.path else "sampler_weights"
    fields = {"path": value.path, "sampling_session_id": value.sampling_session_id, "size_bytes": value.size_bytes}
    return encode.dumps({"type": SAVED_BY[segment], **fields})


def ready(value: Ready) -> bytes:
    """The model, made new or from a checkpoint."""
    kind = "create_model" if value.path is None else "load_weights"
    return encode.dumps({"type": kind, "model_id": value.model_id, "path": value.path})
