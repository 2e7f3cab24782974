"""Make the code of the protocols anew: `python -m tsched.rpc.generate`, after a change to their texts.

Needs grpcio-tools and mypy-protobuf, which nobody needs to run tsched.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module, resources
from pathlib import Path

from tsched.errors import MissingExtra

SOURCE = Path(__file__).parents[2]
PROTOS = (
    "tsched/rpc/v1/worker.proto",
    "tsched/rpc/v1/agent.proto",
    "tsched/rpc/v1/operator.proto",
    "tsched/llmd/orchestrator.proto",
    "tsched/llmd/agent.proto",
)
HEADER = "# fmt: off\n# ruff: noqa\n"


def protoc(*arguments: str) -> None:
    """Run protoc on the protocols' texts; raises `MissingExtra` where it is not installed."""
    try:
        main = import_module("grpc_tools.protoc").main
    except ImportError as error:
        raise MissingExtra("protoc is not installed: pip install grpcio-tools mypy-protobuf") from error
    included = resources.files("grpc_tools") / "_proto"
    status = main(["protoc", f"-I{SOURCE}", f"-I{included}", *arguments, *PROTOS])
    if status:
        raise SystemExit(f"protoc failed with status {status}; its message stands above")


def main() -> None:
    stubs = Path(sys.executable).with_name("protoc-gen-mypy")  # which need not be on the path
    protoc(f"--plugin=protoc-gen-mypy={stubs}", f"--python_out={SOURCE}", f"--mypy_out=quiet:{SOURCE}")
    for proto in PROTOS:
        for suffix in ("_pb2.py", "_pb2.pyi"):
            made = SOURCE / proto.replace(".proto", suffix)
            made.write_text(HEADER + re.sub(r" *# noqa: \w+", "", made.read_text()))


if __name__ == "__main__":
    main()
