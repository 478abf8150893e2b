"""Read files of unknown origin within a bound of memory: regular files only, sizes first."""

from __future__ import annotations

import functools
import gzip
import os
import re
import stat
import zlib
from pathlib import Path
from typing import IO, BinaryIO

from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = [
    "decode_table",
    "fits",
    "memory_limit",
    "open_regular",
    "read_bounded",
    "read_regular",
    "read_unzipped",
]

VARIABLE = "CHIARO_MEMORY"
SHARE = 0.5
"""The part of the machine's memory that the contents of one file may take."""

_CHUNK = 1 << 20
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT]?)B?", re.IGNORECASE)
_UNKNOWN = 8 << 30  # where the system does not say how much memory there is
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def memory_limit() -> int:
    """Return how many bytes the contents of one file may take: half of this machine's memory.

    The environment variable `CHIARO_MEMORY` sets another limit: a share of the memory such as
    `0.25`, or an amount such as `8GB`.

    Example:
        >>> 0 < memory_limit()
        True
    """
    return _limit(os.environ.get(VARIABLE, str(SHARE)).strip())


@functools.lru_cache(maxsize=8)
def _limit(text: str) -> int:
    amount = _AMOUNT.fullmatch(text)
    value = float(amount[1]) if amount else 0.0
    if amount and not amount[2] and 0 < value <= 1:
        return int(value * _machine())
    unit = 1024 ** " KMGT".index(amount[2].upper() or " ") if amount else 0
    need(
        value * unit >= 1,
        lambda: (
            f"`{VARIABLE}` needs a share such as 0.25 or an amount such as 8GB; it is `{text}`."
        ),
    )
    return int(value * unit)


def _machine() -> int:
    """Bytes of memory, those of the container where there is one."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = _UNKNOWN
    try:
        allowed = _CGROUP.read_text().strip()
    except OSError:
        return total
    return min(total, int(allowed)) if allowed.isdecimal() else total


def fits(what: str, n_bytes: int) -> None:
    """Refuse contents that would take more than `memory_limit()`.

    Args:
        what: the subject of the sentence, such as "`a.npz`".
        n_bytes: as declared, before anything is read.
    """
    limit = memory_limit()
    need(
        n_bytes <= limit,
        lambda: (
            f"{what} takes {n_bytes:,} bytes of memory; the limit is {limit:,}. If the file is "
            f"trusted, raise it with `{VARIABLE}`, for example `{VARIABLE}=0.9` or "
            f"`{VARIABLE}=64GB`."
        ),
    )


def open_regular(path: str | os.PathLike) -> BinaryIO:
    """Open a regular file for reading; a folder, a pipe or a device is refused without waiting."""
    path = Path(path)
    try:
        # without O_NONBLOCK, opening a pipe waits for its writer
        handle = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist.") from None
    except OSError as error:
        raise ChiaroError(f"`{path}` cannot be read: {error.strerror or error}.") from error
    except ValueError as error:  # a name with a zero byte
        raise InputError(f"`{str(path)[:60]!r}` cannot be a file: {error}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"`{path}` is not a regular file.")
    return os.fdopen(handle, "rb")


def read_regular(path: str | os.PathLike, most: int | None = None) -> bytes:
    """Return the contents of a regular file of at most `most` bytes (by default the limit)."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is None:
            fits(f"`{path}`", size)
        else:
            need(
                size <= most,
                lambda: f"`{path}` has {size:,} bytes; at most {most:,} are read.",
            )
        try:
            return file.read(size)
        except OSError as error:
            raise ChiaroError(f"`{path}` cannot be read: {error.strerror or error}.") from error


def decode_table(block: bytes, name: str) -> str:
    """Return the text of a table in UTF-8, with or without a byte order mark.

    Example:
        >>> decode_table(b"a,b", "x.csv")
        'a,b'
        >>> decode_table(bytes([97, 10, 255]), "x.csv")
        Traceback (most recent call last):
        chiaroscuro.errors.InputError: `x.csv` needs UTF-8; line 2 has another code.
    """
    try:
        return block.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = block.count(b"\n", 0, error.start) + 1
        raise InputError(f"`{name}` needs UTF-8; line {line} has another code.") from None


def read_unzipped(path: str | os.PathLike) -> bytes:
    """Return the contents of a file, decompressed if it begins as gzip does, within the limit."""
    with open_regular(path) as file:
        zipped = file.read(2) == b"\x1f\x8b"
        if not zipped:
            return read_regular(path)
        file.seek(0)
        try:
            with gzip.open(file) as inner:
                return read_bounded(inner, f"`{path}`, decompressed,")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"`{path}` is a damaged gzip file: {error}") from error


def read_bounded(file: IO[bytes] | gzip.GzipFile, what: str, most: int | None = None) -> bytes:
    """Return all that a stream gives, refusing more than `most` bytes (by default the limit)."""
    content = bytearray()
    while chunk := file.read(_CHUNK):
        content += chunk
        if most is None:
            fits(what, len(content))
        else:
            need(
                len(content) <= most,
                lambda: f"{what} has more than {most:,} bytes, the most that are read.",
            )
    return bytes(content)
