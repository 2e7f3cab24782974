"""Finding sessions."""

from __future__ import annotations

from openrl.routes.stored import ALL, as_text, moment
from openrl.service import Service
from openrl.store import Session
from openrl.wire.sessions import SearchCursor, SearchSessions, SessionsFound, SessionSummary


async def sessions(service: Service, owner: str, ask: SearchSessions) -> SessionsFound:
    """The page that was asked for, newest first."""
    page = await service.sessions.list(owner, ALL, 0)
    newest_first = sorted(page.items, key=place, reverse=True)
    found = [session for session in newest_first if matches(session, ask) and after(session, ask.cursor)]
    shown = found[: ask.limit]
    last = shown[-1] if len(found) > len(shown) else None
    return SessionsFound(
        sessions=[await summary(service, owner, session) for session in shown],
        next_cursor=None
        if last is None
        else SearchCursor(last_created_at=moment(last.created_us), last_session_id=last.session_id),
    )


def place(session: Session) -> tuple[int, str]:
    return session.created_us, session.session_id


def after(session: Session, cursor: SearchCursor | None) -> bool:
    """Whether it comes on a later page than the one that ended there."""
    if cursor is None:
        return True
    return (moment(session.created_us), session.session_id) < (cursor.last_created_at, cursor.last_session_id)


def matches(session: Session, ask: SearchSessions) -> bool:
    """Either of id and name, where one is given, and all of the rest."""
    named = [session.session_id == ask.session_id] if ask.session_id is not None else []
    if ask.display_name is not None:
        words = ask.display_name.lower().split()
        named.append(all(word in (session.display_name or "").lower() for word in words))
    return (
        (not named or any(named))
        and (ask.project_ids is None or (session.project_id or "") in ask.project_ids)
        and all((session.user_metadata or {}).get(key) == value for key, value in ask.user_metadata.items())
        and (ask.statuses is None or any(query.type == status(session)["type"] for query in ask.statuses))
    )


def status(session: Session) -> dict[str, object]:
    """How it goes, or how it ended."""
    if session.ended_us is None:
        return {"type": "active"}
    if session.end_reason not in ("success", "errored", "interrupted"):
        return {"type": "cancelled", "detail": session.end_detail}
    return {"type": "client_finished", "reason": {"type": session.end_reason}, "detail": session.end_detail}


async def summary(service: Service, owner: str, session: Session) -> SessionSummary:
    info = await service.sessions.get(owner, session.session_id)
    runs = [await service.checkpoints.list(owner, run_id, ALL) for run_id in info.training_run_ids]
    stored = [one for page in runs for one in page.items]
    return SessionSummary(
        session_id=session.session_id,
        created_at=moment(session.created_us),
        owner=session.owner,
        project_id=session.project_id or "",
        status=status(session),
        checkpoints_count=len(stored),
        display_name=session.display_name,
        user_metadata=as_text(session.user_metadata),
        checkpoint_storage_bytes=sum(one.size_bytes or 0 for one in stored),
    )
