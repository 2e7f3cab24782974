"""Keys, names and signed addresses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from openrl import access
from openrl.access import AccessDenied, Keys, SigningKeyInvalid, UnknownKey
from openrl.store import open_store
from openrl.wire.refusal import Malformed


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    store = open_store(tmp_path / "store")
    yield Keys(store)
    store.close()


def test_a_key_opens_what_its_owner_has_until_it_is_revoked(keys: Keys) -> None:
    secret, made = keys.create("ann", "laptop", 5)
    assert secret.startswith("tml-")
    assert keys.authenticate(secret).owner == "ann"
    keys.revoke(made.key_id, 9)
    with pytest.raises(AccessDenied, match="was revoked"):
        keys.authenticate(secret)
    with pytest.raises(UnknownKey, match="not yet revoked"):
        keys.revoke(made.key_id, 10)
    assert [key.revoked_us for key in keys.all()] == [9]


@pytest.mark.parametrize("secret", [None, "", "tml-", "tml-" + "a" * 43])
def test_other_keys_open_nothing(keys: Keys, secret: str | None) -> None:
    keys.create("ann", "", 5)
    with pytest.raises(AccessDenied):
        keys.authenticate(secret)


def test_the_key_itself_is_nowhere_on_disk(keys: Keys, tmp_path: Path) -> None:
    secret, _ = keys.create("ann", "", 5)
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
        assert secret.removeprefix("tml-").encode() not in file.read_bytes()
    rows = sqlite3.connect(tmp_path / "store").execute("SELECT * FROM key").fetchall()
    assert access.digest(secret) in rows[0]


def test_a_key_made_by_another_process_opens_at_once(keys: Keys, tmp_path: Path) -> None:
    other = open_store(tmp_path / "store")
    secret, _ = Keys(other).create("bob", "", 5)
    other.close()
    assert keys.authenticate(secret).owner == "bob"


@pytest.mark.parametrize("owner", ["", "a/b", "../x", "x" * 65, "a b"])
def test_an_owner_is_a_plain_word(keys: Keys, owner: str) -> None:
    with pytest.raises(Malformed, match="will not do"):
        keys.create(owner, "", 5)


def test_the_signing_key_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    first = access.signing_key(tmp_path)
    assert access.signing_key(tmp_path) == first
    assert (tmp_path / "signing_key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("found", [b"", b"short"])
def test_a_signing_key_that_is_cut_short_signs_nothing(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "signing_key").write_bytes(found)
    with pytest.raises(SigningKeyInvalid, match="remove it"):
        access.signing_key(tmp_path)


def test_an_address_holds_for_its_file_until_it_lapses() -> None:
    key = b"key"
    signature = access.sign(key, "tinker://a/external_weights/b", "model.safetensors", 100)
    good = (key, "tinker://a/external_weights/b", "model.safetensors", 100, signature)
    access.check_signature(*good, 99.0)
    with pytest.raises(AccessDenied, match="lapsed"):
        access.check_signature(*good, 101.0)
    with pytest.raises(AccessDenied, match="not made by this server"):
        access.check_signature(b"other", *good[1:], 99.0)
    with pytest.raises(AccessDenied, match="not made by this server"):
        access.check_signature(*good[:2], "other.safetensors", *good[3:], 99.0)
