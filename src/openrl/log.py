"""Structured logs: one JSON object a line on stderr. What is bound to a request's context is in all of its lines."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def dumps(value: Any, **_: Any) -> str:
    """As JSON; what JSON has no word for is shown as Python shows it."""
    return msgspec.json.encode(value, enc_hook=repr).decode()


def configure(level: str) -> None:
    """Send all of structlog's lines from `level` up, and uvicorn's warnings, to stderr as JSON."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[ThroughStructlog()], level=max(LEVELS[level], logging.WARNING), force=True)


class ThroughStructlog(logging.Handler):
    """Gives the lines of libraries that use the standard library's logging the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it again, with the library's name."""
        structlog.get_logger().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
