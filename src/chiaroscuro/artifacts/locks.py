"""One writer for a run folder: a lock that ends with the process that holds it, however it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts.files import writing
from chiaroscuro.errors import ChiaroError, InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["one_writer", "open_lock"]

# a link would have the file changed that it leads to, and a pipe would wait for its reader
_FLAGS = os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_CANNOT = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_HELD: dict[str, dict[str, Any]] = {}
"""Folders that this process writes to: the kernel's lock keeps out other processes only, and is
lost when this process closes the file, so that it is not even opened again."""


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[str]:
    """Lock a run folder for writing, or raise an error that names the process that holds the lock.

    The lock is one of the kernel's on `writer.lock`: it ends with the process, also where that is
    killed, and is not inherited by processes that are forked. The file says who holds it, for
    people. It works over NFS where locks are served; where the file system has none, that is said.

    Args:
        folder: folder of the run; it is there.

    Yields:
        A sentence if the file system cannot lock, else "".

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with one_writer(folder), one_writer(folder):
        ...     pass
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.ChiaroError: Another process (pid ..., on ..., since ...) trains in
        `...`; wait for its end, or choose another folder.
    """
    path, name = folder / "writer.lock", str(folder.resolve())
    if name in _HELD:
        raise _taken(folder, _HELD[name])
    if fcntl is None:
        yield "This system cannot lock a run folder; see to it that no other process writes to it."
        return
    handle = open_lock(path)
    try:
        said = _locked(handle, folder)
        _HELD[name] = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
        try:
            with writing(path):
                _rewrite(handle, json.dumps(_HELD[name]).encode())
            yield said
        finally:
            del _HELD[name]
            with contextlib.suppress(OSError):  # who held it is for people; the lock itself ends
                _rewrite(handle, b"")
    finally:
        os.close(handle)


def open_lock(path: Path) -> int:
    """Return a handle to a file to lock, made if need be; a link, a pipe or a device is refused.

    Example:
        >>> import tempfile
        >>> os.close(open_lock(Path(tempfile.mkdtemp()) / "writer.lock"))
    """
    try:
        handle = os.open(path, _FLAGS, 0o644)
    except OSError as error:
        if path.is_symlink():
            raise InputError(
                f"`{path}` needs to be a file of its own; it is a link to `{os.readlink(path)}`. "
                "Remove it."
            ) from None
        raise ChiaroError(f"`{path}` cannot be written: {error.strerror or error}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"`{path}` is not a regular file. Remove it.")
    return handle


def _locked(handle: int, folder: Path) -> str:
    """Take the lock; return a sentence where there are none, and refuse one that is taken."""
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise _taken(folder, _facts(os.pread(handle, 1000, 0))) from None
        return (
            f"The file system of `{folder}` has no locks ({error.strerror}); see to it that no "
            "other process writes to it."
        )
    return ""


def _rewrite(handle: int, text: bytes) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, text, 0)


def _facts(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # about to be written, or not ours
        return {}
    return value if isinstance(value, dict) else {}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _taken(folder: Path, known: dict[str, Any]) -> ChiaroError:
    told = (" ".join(str(known.get(name, "?")).split()) for name in ("pid", "host", "since"))
    pid, host, since = (text[:80] for text in told)
    return ChiaroError(
        f"Another process (pid {pid}, on {host}, since {since}) trains in `{folder}`; wait for its "
        "end, or choose another folder."
    )
