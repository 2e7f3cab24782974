"""One service a folder: a lock that the operating system takes back when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from openrl.errors import StoreError

_NAME = "service.lock"


class FolderLock:
    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._file = -1

    def acquire(self) -> None:
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise StoreError(
                f"{self._path} is held: another service runs on this folder; stop it, or name another folder"
            ) from error

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
