"""What every JSON message shares: fields that are not known are ignored, and what was read is not changed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A JSON message. Clients of all ages talk to one server, so that what one version adds must not break another."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


Metadata = dict[str, str]
