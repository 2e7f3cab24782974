"""The generated code is that of the .proto, which is the client's, field for field."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor
from tinker.proto import tinker_public_pb2 as client

from openrl.wire import generate
from openrl.wire import tinker_public_pb2 as ours


def test_the_generated_code_is_current() -> None:
    for name, text in generate.generated().items():
        assert (generate.SOURCE_ROOT / name).read_text() == text, "run: python -m openrl.wire.generate"


def shape(message: Descriptor) -> list[tuple[object, ...]]:
    """All that the wire shows of a message's fields."""
    return sorted(
        (field.number, field.name, field.type, field.is_repeated, field.has_presence) for field in message.fields
    )


def test_every_message_of_the_client_is_there_field_for_field() -> None:
    theirs, mine = client.DESCRIPTOR.message_types_by_name, ours.DESCRIPTOR.message_types_by_name
    assert {name: shape(message) for name, message in theirs.items()} == {
        name: shape(message) for name, message in mine.items()
    }


def test_every_number_has_the_clients_name() -> None:
    theirs, mine = client.DESCRIPTOR.enum_types_by_name, ours.DESCRIPTOR.enum_types_by_name
    assert {name: kind.values_by_name.keys() for name, kind in theirs.items()} == {
        name: kind.values_by_name.keys() for name, kind in mine.items()
    }
