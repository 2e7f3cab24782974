"""The code of the protocol is what its text says."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from tsched.rpc.generate import protoc
from tsched.rpc.v1 import worker_pb2 as pb


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    protoc(f"--descriptor_set_out={tmp_path}/made")
    made = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "made").read_bytes())
    checked_in = descriptor_pb2.FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    assert _plain(made.file[0]) == _plain(checked_in), "run: python -m tsched.rpc.generate"


def _plain(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Without the names in JSON, which protoc adds by itself to one of the two."""
    messages = list(file.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")
    return file
