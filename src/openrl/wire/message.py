"""What every JSON message shares: fields that are not known are ignored, and what was read is not changed."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

MOST_TEXT = 65_536  # characters of one text
MOST_ITEMS = 65_536

Many = Annotated[list[T], Field(fail_fast=True)]
"""A list that may be long: a million mistakes in it are one mistake, not a million complaints."""

Some = Annotated[list[T], Field(fail_fast=True, max_length=MOST_ITEMS)]
"""A list of things that are made of others."""

Ordinal = Annotated[int, Field(ge=0, lt=2**53)]
"""Numbers a session's models or sampling sessions; it becomes a part of their ids."""


class Message(BaseModel):
    """A JSON message. Clients of all ages talk to one server, so that what one version adds must not break another."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=(), str_max_length=MOST_TEXT)


Metadata = dict[str, str]
