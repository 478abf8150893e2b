"""Write files so that a crash leaves the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.errors import ChiaroError, InputError

__all__ = [
    "from_json",
    "make_folder",
    "newer",
    "read_json",
    "replace",
    "require_own",
    "sync",
    "sync_folder",
    "temporary",
    "to_json",
    "writing",
]

_HINTS = {
    errno.ENOSPC: "The disk is full; free some space or choose another folder.",
    errno.EDQUOT: "Your quota is used up; free some space or choose another folder.",
    errno.EFBIG: "The file would exceed the size that is allowed here.",
    errno.EACCES: "You may not write there; choose another folder.",
    errno.EPERM: "You may not write there; choose another folder.",
    errno.EROFS: "That file system is read-only; choose another folder.",
    errno.ENOTDIR: "A part of that path is a file; choose another folder.",
}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@contextlib.contextmanager
def writing(path: Path, kept: str = "") -> Iterator[None]:
    """Turn a failure of the file system into one sentence about `path`.

    Args:
        path: what is being written.
        kept: what is intact all the same, as a sentence.

    Example:
        >>> with writing(Path("run/history.jsonl")):
        ...     raise OSError(errno.ENOSPC, "No space left on device")
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.ChiaroError: `run/history.jsonl` cannot be written: No space left on
        device (errno 28). The disk is full; free some space or choose another folder.
    """
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error} (errno {error.errno})."
        parts = [f"`{path}` cannot be written: {reason}", _HINTS.get(error.errno or 0, ""), kept]
        raise ChiaroError(" ".join(part for part in parts if part)) from error


def sync(file: BinaryIO) -> None:
    """Flush a file through to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: the files' own fsync does not."""
    if os.name == "nt":  # has no such call, and no need of it
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and make their names durable.

    Without that, a power cut may take the folder with all that was synced in it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     make_folder(Path(place) / "a" / "b")
        ...     os.listdir(Path(place) / "a")
        ['b']
    """
    above = folder.parent
    if not above.exists() and above != folder:
        make_folder(above)
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        sync_folder(above)


def require_own(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder in which a name that is written to is a link that leads out of it.

    Who made the folder would have other files changed by whoever goes on with it.

    Args:
        folder: which may be reached by a link itself.
        names: names of files that are appended to, and of folders that are written into. What
            `replace` writes needs no look: a link under its name is replaced, not followed.

    Example:
        >>> require_own(Path("."), ["history.jsonl"])
    """
    home = os.path.realpath(folder)
    for name in names:
        path = folder / name
        if path.is_symlink() and os.path.commonpath([home, os.path.realpath(path)]) != home:
            raise InputError(
                f"`{path}` is a link to `{os.readlink(path)}`, outside of `{folder}`, and would be "
                "written to. Put what it leads to in its place."
            )


def replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file whole or not at all: temporary file beside it, fsync, rename.

    Args:
        path: where it goes; a file that is there stays until the new one is complete.
        write: puts the content into the open file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     replace(Path(folder) / "a", lambda file: file.write(b"b") and None)
        ...     os.listdir(folder)
        ['a']
    """
    kept = "The previous file is intact." if path.exists() else ""
    half = temporary(path)
    with writing(path, kept):
        try:
            with half.open("xb") as file:
                write(file)
                sync(file)
            half.replace(path)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def temporary(path: Path) -> Path:
    """Return a name beside `path` that is not taken: hidden, ending in `.tmp`."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def newer(what: str, version: object, ours: int) -> None:
    """Refuse a `format` that is not one we know."""
    if type(version) is not int or not 1 <= version <= ours:
        shown = (
            repr(version)
            if isinstance(version, int | float | str | None)
            else type(version).__name__
        )
        raise InputError(
            f"{what} has format {shown[:60]}; this version reads 1 to {ours}. "
            + (
                "It was written by a newer Chiaroscuro: update to read it."
                if type(version) is int and version > ours
                else "It is damaged, or not ours."
            )
        )


def to_json(value: Any, indent: int | None = None) -> str:
    """Return strict JSON, one line unless indented; numbers that JSON lacks become their names.

    Example:
        >>> to_json({"loss": math.inf, "step": 3})
        '{"loss": "Infinity", "step": 3}'
    """
    return json.dumps(_plain(value, ""), indent=indent, allow_nan=False, ensure_ascii=False)


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"JSON needs string keys; received `{key!r}` in `{path or '.'}`.")
        return {key: _plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{at}]") for at, item in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy and torch, numbers and arrays
        return _plain(value.tolist(), path)
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, number in _NOT_FINITE.items() if repr(number) == repr(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise InputError(f"JSON has no form for a `{type(value).__name__}`, at `{path or '.'}`.")


def from_json(text: str | bytes) -> Any:
    """Return what `to_json` wrote, its `"NaN"` and `"Infinity"` numbers again."""
    return _numbers(json.loads(text))


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def read_json(path: Path) -> Any:
    """Return the value of a JSON file, or say in a sentence why there is none."""
    try:
        return from_json(read_regular(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise ChiaroError(f"`{path}` is not JSON: {str(error)[:200]}.") from None
