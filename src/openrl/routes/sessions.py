"""Sessions: begun, kept alive, ended, listed."""

from __future__ import annotations

from fastapi import APIRouter, Response

from openrl.routes import models, search
from openrl.routes.call import API, Caller, Limit, Offset, answer, nothing
from openrl.routes.stored import as_text
from openrl.wire import sessions

router = APIRouter(prefix=API)

MOST_TAGS = 100
NO_TRACE = "this server keeps no timeline of a session's requests"


@router.post("/create_session")
async def create(call: Caller) -> Response:
    """A retry, which the client marks with the same key, gets the same session."""
    ask = await call.message(sessions.CreateSession)
    session_id = await call.service.sessions.create(
        call.owner,
        tags=tuple(ask.tags[:MOST_TAGS]),
        user_metadata=models.metadata(ask.user_metadata, call.limits),
        sdk_version=ask.sdk_version,
        display_name=ask.display_name,
        project_id=ask.project_id,
        idempotency_key=call.request.headers.get("x-idempotency-key"),
    )
    return answer(sessions.SessionCreated(session_id=session_id))


@router.post("/session_heartbeat")
async def heartbeat(call: Caller) -> Response:
    ask = await call.message(sessions.Heartbeat)
    await call.service.sessions.heartbeat(call.owner, ask.session_id)
    return answer(sessions.HeartbeatSeen())


@router.post("/telemetry")
async def telemetry(call: Caller) -> Response:
    """Taken, and let go unread: there may be much of it, and nobody here asks for it."""
    await call.raw()
    return answer(sessions.TelemetryTaken())


@router.post("/sessions/search")
async def find(call: Caller) -> Response:
    """Sessions by what they are called and how they ended."""
    return answer(await search.sessions(call.service, call.owner, await call.message(sessions.SearchSessions)))


@router.post("/sessions/{session_id}/finish")
async def finish(call: Caller, session_id: str) -> Response:
    ask = await call.message(sessions.FinishSession)
    await call.service.sessions.finish(call.owner, session_id, ask.reason.type, ask.detail)
    return nothing()


@router.post("/sessions/{session_id}/cancel")
async def cancel(call: Caller, session_id: str) -> Response:
    """Not a client's request: `openrl jobs cancel` makes it."""
    await call.service.sessions.cancel(call.owner, session_id)
    return nothing()


@router.get("/sessions")
async def listed(call: Caller, limit: Limit = 20, offset: Offset = 0) -> Response:
    page = await call.service.sessions.list(call.owner, limit, offset)
    return answer(sessions.SessionList(sessions=[session.session_id for session in page.items]))


@router.get("/sessions/{session_id}")
async def shown(call: Caller, session_id: str) -> Response:
    info = await call.service.sessions.get(call.owner, session_id)
    return answer(
        sessions.Session(
            training_run_ids=list(info.training_run_ids),
            sampler_ids=list(info.sampler_ids),
            user_metadata=as_text(info.session.user_metadata),
            display_name=info.session.display_name,
        )
    )


@router.put("/sessions/{session_id}/project")
async def assign(call: Caller, session_id: str) -> Response:
    ask = await call.message(sessions.AssignProject)
    await call.service.sessions.assign_project(call.owner, session_id, ask.project_id)
    return nothing()


@router.get("/sessions/{session_id}/trace_export")
async def trace(call: Caller, session_id: str) -> Response:
    await call.service.sessions.get(call.owner, session_id)
    return answer(sessions.TraceExport(status="failed", error=NO_TRACE))
