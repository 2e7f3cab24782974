"""Who may do what: API keys, and signed addresses of files.

A key is `tml-` and 256 random bits. Only its SHA-256 is stored: a slow hash protects passwords because people choose
them from few, and nobody can try 2**256 keys, so that a fast one that runs at every request loses nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from openrl.errors import OpenRLError
from openrl.store import Add, Change, Key, Store
from openrl.wire.refusal import Malformed

PREFIX = "tml-"
OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
DEFAULT_OWNER = "local"
SIGNING_KEY_BYTES = 32


class UnknownKey(OpenRLError, LookupError):
    """No key has that number."""


class AccessDenied(OpenRLError, PermissionError):
    """The request's key is missing, unknown or revoked: status 401."""


class SigningKeyInvalid(OpenRLError, ValueError):
    """The file is no key that addresses could be signed with."""


def digest(secret: str) -> str:
    """What is stored in place of a key."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Keys:
    """The API keys of a store. Each look-up reads it, so that a key revoked by another process is dead at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, owner: str, name: str, now_us: int) -> tuple[str, Key]:
        """A new key for `owner`: the secret, which is shown once, and what is stored of it."""
        if OWNER.fullmatch(owner) is None:
            raise Malformed(f"owner {owner!r} will not do: 1 to 64 letters, digits, and _ . @ - after the first")
        secret = PREFIX + secrets.token_urlsafe(32)
        key_id = str(1 + secrets.randbelow(10**9))  # a number: clients read it as one
        key = Key(digest(secret), key_id, owner, name, now_us)
        self._store.commit([Add(key)])
        return secret, key

    def authenticate(self, secret: str | None) -> Key:
        """The key that a request carries. Raises AccessDenied, which does not say whether it once was one."""
        if not secret:
            raise AccessDenied("this request has no X-API-Key header: set TINKER_API_KEY to a key of this server")
        key = self._store.get(Key, digest(secret))
        if key is None or key.revoked_us is not None:
            raise AccessDenied("this API key is not known here, or was revoked: make one with `openrl keys create`")
        return key

    def all(self) -> list[Key]:
        """Every key, oldest first."""
        return self._store.find(Key)

    def revoke(self, key_id: str, now_us: int) -> Key:
        """The key is good for nothing from now on. Raises UnknownKey."""
        for key in self._store.find(Key, key_id=key_id, revoked_us=None):
            self._store.commit([Change(Key, key.key_hash, {"revoked_us": now_us})])
            return key
        raise UnknownKey(f"no key {key_id!r} that is not yet revoked: `openrl keys list` shows all")


def signing_key(folder: Path) -> bytes:
    """The secret that addresses for downloads are signed with; made on first use, readable by its owner alone."""
    path = folder / "signing_key"
    if not path.exists():
        # Named once it is whole: a server that is killed meanwhile must not leave a key that anybody could guess.
        unfinished = folder / f".signing_key.{secrets.token_hex(4)}"
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SIGNING_KEY_BYTES))
        unfinished.rename(path)
    key = path.read_bytes()
    if len(key) != SIGNING_KEY_BYTES:
        raise SigningKeyInvalid(f"{path} holds {len(key)} bytes, not {SIGNING_KEY_BYTES}: remove it, to get a new one")
    return key


def sign(key: bytes, path: str, file: str, expires_s: int) -> str:
    """The signature of the permission to read `file` of the checkpoint `path` until then."""
    return hmac.new(key, f"{path}\n{file}\n{expires_s}".encode(), hashlib.sha256).hexdigest()


def check_signature(key: bytes, path: str, file: str, expires_s: int, signature: str, now_s: float) -> None:
    """Raises AccessDenied unless the address was made here and still holds."""
    if not hmac.compare_digest(sign(key, path, file, expires_s).encode(), signature.encode()):
        raise AccessDenied("this address was not made by this server: ask for the checkpoint's addresses again")
    if now_s > expires_s:
        raise AccessDenied("this address has lapsed: ask for the checkpoint's addresses again")
