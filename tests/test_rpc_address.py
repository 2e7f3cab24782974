"""Addresses are read once, and what is not one is said so."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tsched.errors import Invalid
from tsched.rpc.address import Address, check_local, clear_way, parse, same_host


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("unix:/run/t.sock", Address(path="/run/t.sock"), True),
        ("unix:///run/t.sock", Address(path="/run/t.sock"), True),
        ("127.0.0.1:50051", Address(host="127.0.0.1", port=50051), True),
        ("localhost:0", Address(host="localhost"), True),
        ("[::1]:7", Address(host="::1", port=7), True),
        ("0.0.0.0:7", Address(host="0.0.0.0", port=7), False),
        ("node-3.cluster:7", Address(host="node-3.cluster", port=7), False),
    ],
)
def test_both_forms_are_read(text: str, address: Address, local: bool) -> None:
    assert parse(text) == address
    assert parse(str(address)) == address
    assert address.local is local


@pytest.mark.parametrize(
    "text", ["", "unix:", ":7", "host", "host:", "host:x", "host:70000", "host:-1", "unix:/" + "x" * 200]
)
def test_what_is_no_address_is_said_so(text: str) -> None:
    with pytest.raises(Invalid, match="address"):
        parse(text)


def test_a_relative_path_is_taken_from_here() -> None:
    assert parse("unix:t.sock").path == str(Path.cwd() / "t.sock")


def test_others_are_served_only_when_told_so() -> None:
    check_local(parse("0.0.0.0:7"), insecure=True)
    with pytest.raises(Invalid, match="insecure=True"):
        check_local(parse("0.0.0.0:7"), insecure=False)


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(Invalid, match="no socket"):
        clear_way(Address(path=str(file)))
    assert file.read_text() == "mine"


def test_a_server_that_is_frozen_is_not_taken_for_dead(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(path)
        server.listen(0)
        first.connect(path)  # nobody else gets in
        with pytest.raises(Invalid, match="another server listens"):
            clear_way(Address(path=path))
    clear_way(Address(path=path))
    assert not Path(path).exists()


def test_a_folder_that_cannot_be_is_said_with_the_address(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match=r"address unix:.*file/x/s\.sock cannot be served"):
        clear_way(parse(f"unix:{tmp_path}/file/x/s.sock"))


@pytest.mark.parametrize(
    ("peer", "here"),
    [
        ("unix:", True),
        ("unix:/run/t.sock", True),
        ("ipv4:127.0.0.1:50412", True),
        ("ipv6:%5B::1%5D:50412", True),
        ("ipv4:10.0.0.7:50412", False),
        ("ipv6:%5B2001:db8::7%5D:50412", False),
        ("", False),
    ],
)
def test_a_peer_on_this_host_is_told_from_others(peer: str, here: bool) -> None:
    assert same_host(peer) is here
