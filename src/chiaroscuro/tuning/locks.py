"""Locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from chiaroscuro.artifacts.locks import open_lock
from chiaroscuro.errors import ChiaroError

try:
    import fcntl
except ImportError:  # Windows: one process searches
    fcntl = None  # type: ignore[assignment]

__all__ = ["JournalLock", "held", "taken"]


class JournalLock:
    """The lock of a journal, as Optuna's file backend takes one.

    Optuna's own are files that a killed process leaves behind, and the next waits 30 s for.

    Args:
        path: path of the lock file.
    """

    def __init__(self, path: Path):
        self.path = path
        self.handle: int | None = None

    def acquire(self) -> bool:
        """Wait for it."""
        self.handle = open_lock(self.path)
        if fcntl is not None:
            fcntl.flock(self.handle, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        """Give it back."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it."""
    lock = JournalLock(path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def taken(path: Path) -> int | None:
    """Return the lock as a handle to close, or None where another process holds it."""
    handle = open_lock(path)
    if fcntl is None:
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        os.close(handle)
        raise ChiaroError(f"`{path}` cannot be locked: {error.strerror or error}.") from None
    return handle
