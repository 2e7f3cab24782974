"""Who may open a stream, and for whom it then speaks. Here it is everybody who reaches the socket, for everybody."""

from __future__ import annotations

from typing import Protocol

import grpc

from tsched.rpc.v1 import worker_pb2 as pb

Context = grpc.aio.ServicerContext[pb.FromWorker, pb.ToWorker]


class Guest(Protocol):
    """One who was let in, as long as the stream lasts. What it may not is said by a `TschedError`, or `Refused`."""

    def greet(self, hello: pb.Hello) -> None:
        """Check what the worker says of itself, and complete it."""
        ...

    def ask(self) -> None:
        """A new request for a turn comes."""
        ...

    def leave(self) -> None:
        """The stream has ended."""
        ...


class Gate(Protocol):
    """Lets streams in, or raises `Refused`."""

    def __call__(self, context: Context) -> Guest: ...


class Anybody:
    """A guest of whom nothing is asked."""

    def greet(self, hello: pb.Hello) -> None: ...

    def ask(self) -> None: ...

    def leave(self) -> None: ...


def open_gate(context: Context) -> Guest:
    """Lets everybody in."""
    return Anybody()
