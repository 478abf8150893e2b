"""Shards: which files a text names, and a local, uncompressed copy of each where it is needed."""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import hashlib
import lzma
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import IO, Any

from chiaroscuro.artifacts.bounded import open_regular
from chiaroscuro.data.extras import bring
from chiaroscuro.data.places import cache_folder
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["Shard", "shards"]

MAX_SHARDS = 100_000
REMOTE = "CHIARO_REMOTE"
KEPT = "CHIARO_SHARD_CACHE"
KEPT_BYTES = 32 << 30
"""Copies of remote and compressed shards that are kept, in bytes; the oldest go first."""

_RANGE = re.compile(r"\{(\d{1,12})\.\.(\d{1,12})\}")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LOCAL_URLS = ("file://", "local://", "memory://")
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)
_CHUNK = 1 << 20


def shards(spec: str | Path, ending: str = ".tar") -> list[Shard]:
    """Return the shards that a text names, sorted.

    A file; a folder of them; `a-{000..009}.tar`; `a-*.tar`; or an address that fsspec reads, such
    as `s3://bucket/a-{000..009}.tar`. Addresses outside this machine are opened only where the
    environment variable `CHIARO_REMOTE=1` allows it.

    Args:
        spec: the text.
        ending: of the files that are looked for in a folder.

    Example:
        >>> [shard.name for shard in shards("a-{08..10}.tar")]
        ['a-08.tar', 'a-09.tar', 'a-10.tar']
    """
    if not _URL.match(str(spec)) and Path(spec).is_dir():
        inside = sorted(str(path) for path in Path(spec).glob(f"*{ending}*"))
        need(bool(inside), lambda: f"`{spec}` holds no `{ending}`.")
        return [Shard(name) for name in inside]
    names = [str(spec)]
    while match := _RANGE.search(names[0]):
        low, high = match.groups()
        count = (int(high) - int(low) + 1) * len(names)
        need(
            0 < count <= MAX_SHARDS,
            lambda count=count: f"`{spec}` names {count} archives; 1 to {MAX_SHARDS} are read.",
        )
        filled = [str(i).zfill(len(low)) for i in range(int(low), int(high) + 1)]
        names = [_RANGE.sub(number, name, count=1) for name in names for number in filled]
    if any(mark in names[0] for mark in "*?["):
        names = sorted(path for name in names for path in _matches(name))
        need(bool(names), lambda: f"`{spec}` matches no file.")
    return [Shard(name) for name in names]


def _matches(pattern: str) -> list[str]:
    if not _URL.match(pattern):
        return glob.glob(pattern)
    system, path = _filesystem(pattern)
    scheme = pattern.partition("://")[0]
    return [f"{scheme}://{str(one).lstrip('/')}" for one in system.glob(path)]


class Shard:
    """One file of many, on this machine or elsewhere.

    Args:
        where: a path or an address.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.is_remote = bool(_URL.match(where))
        self.name = where.rstrip("/").rpartition("/")[2]

    def __repr__(self) -> str:
        return f"Shard({self.where!r})"

    def stamp(self) -> list[Any]:
        """Return what changes when the shard does: its place, size and time of change."""
        if self.is_remote:
            system, path = _filesystem(self.where)
            try:
                about = system.info(path)
            except (OSError, ValueError) as error:
                raise InputError(f"`{self.where}` cannot be reached: {error}") from error
            changed = about.get("mtime") or about.get("LastModified") or about.get("ETag")
            return [self.where, int(about.get("size") or 0), str(changed)]
        try:
            status = os.stat(self.where)
        except FileNotFoundError:
            raise InputError(f"`{self.where}` is not there.") from None
        except OSError as error:
            raise ChiaroError(f"`{self.where}` cannot be read: {error.strerror}.") from error
        return [os.path.abspath(self.where), status.st_size, status.st_mtime_ns]

    @property
    def is_copied(self) -> bool:
        """Whether reading needs a copy: the shard is elsewhere, or compressed."""
        return self.is_remote or self._packing() is not None

    def local(self) -> Path:
        """Return a path on this machine that holds the uncompressed contents."""
        if not self.is_copied:
            return Path(self.where)
        key = hashlib.sha256("\0".join(map(str, self.stamp())).encode()).hexdigest()[:32]
        copy = cache_folder("shards") / f"{key}.shard"
        if copy.is_file():
            with contextlib.suppress(OSError):
                os.utime(copy)  # used last goes last
            return copy
        return self._copy_to(copy)

    def _copy_to(self, copy: Path) -> Path:
        try:
            with tempfile.NamedTemporaryFile(dir=copy.parent, suffix=".part", delete=False) as part:
                try:
                    with self._opened() as source:
                        room = shutil.disk_usage(copy.parent).free
                        done = 0
                        while chunk := source.read(_CHUNK):
                            done += len(chunk)
                            need(
                                done < room,
                                lambda room=room: (
                                    f"`{self.where}` takes more than the {room:,} bytes that are "
                                    f"free in `{copy.parent}`."
                                ),
                            )
                            part.write(chunk)
                    part.close()
                    os.replace(part.name, copy)
                except BaseException:
                    os.unlink(part.name)
                    raise
        except _BROKEN as error:
            raise InputError(f"`{self.where}` cannot be read: {error}") from error
        _tidy(copy.parent, copy)
        return copy

    def _packing(self) -> Any:
        if self.is_remote:
            return None
        with open_regular(self.where) as file:
            return _PACKED.get(file.read(2))

    @contextlib.contextmanager
    def _opened(self) -> Any:
        """The contents as a stream, decompressed if they are compressed."""
        if self.is_remote:
            system, path = _filesystem(self.where)
            with system.open(path, "rb") as probe:
                start = probe.read(2)
            opened: IO[bytes] = system.open(path, "rb")
        else:
            opened = open_regular(self.where)
            start = opened.read(2)
            opened.seek(0)
        with opened as file:
            unpack = _PACKED.get(start)
            if unpack is None:
                yield file
                return
            with unpack(file) as inner:
                yield inner


def _filesystem(address: str) -> tuple[Any, str]:
    need(
        address.lower().startswith(_LOCAL_URLS) or os.environ.get(REMOTE) == "1",
        lambda: (
            f"`{address}` is on another machine; the network is used only where you allow it: set "
            f"`{REMOTE}=1`."
        ),
    )
    core = bring("fsspec.core", "Reading from an address", "fsspec")
    try:
        return core.url_to_fs(address)
    except (ValueError, ImportError, OSError) as error:
        raise InputError(f"`{address}` cannot be opened: {error}") from error


def _tidy(folder: Path, newest: Path) -> None:
    """Remove the copies used longest ago, as far as there are too many bytes of them."""
    allowed = os.environ.get(KEPT, "")
    limit = int(allowed) if allowed.isdecimal() else KEPT_BYTES
    total = 0
    for path in sorted(folder.glob("*.shard"), key=_used, reverse=True):
        with contextlib.suppress(OSError):  # another process may have removed it
            total += path.stat().st_size
            if total > limit and path != newest:
                path.unlink()


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
