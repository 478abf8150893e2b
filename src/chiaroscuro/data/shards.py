"""Shards: which files a text names, and a local, uncompressed copy of each where it is needed."""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import hashlib
import lzma
import math
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from chiaroscuro.artifacts.bounded import open_regular
from chiaroscuro.data.extras import bring
from chiaroscuro.data.index import shared
from chiaroscuro.data.places import cache_folder
from chiaroscuro.errors import ChiaroError, InputError, need

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Shard", "ask_together", "shards"]

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
_CHANGES = ("ETag", "etag", "md5Hash", "md5", "checksum", "mtime", "LastModified", "created")
"""What a file system may say of a file that changes with it, the best first."""

_TRIES = 5
FRESH = 60.0
"""Seconds for which what is known of a shard elsewhere is taken to hold when it is copied."""

T = TypeVar("T")


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
        inside = sorted(path for path in Path(spec).iterdir() if _is_shard(path.name, ending))
        need(bool(inside), lambda: f"`{spec}` holds no `{ending}`.")
        home = os.path.realpath(spec)
        out = [path for path in inside if not os.path.realpath(path).startswith(home + os.sep)]
        need(
            not out,
            lambda: (
                f"`{spec}` holds {len(out)} of {len(inside)} files by links that lead out of it, "
                f"the first is `{out[0].name}`. If they are trusted, name the files: "
                f"`{spec}/*{ending}`."
            ),
        )
        return [Shard(str(path)) for path in inside]
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


def _is_shard(name: str, ending: str) -> bool:
    """Return whether a file is one of a folder's shards, and not an index or a checksum of one."""
    packed = ("", ".gz", ".bz2", ".xz")
    return not name.startswith(".") and name.endswith(tuple(ending + more for more in packed))


def ask_together(parts: Sequence[Shard]) -> None:
    """Ask about shards elsewhere, on several ranks each rank about some of them.

    Args:
        parts: of one dataset; they keep what they are told.
    """
    far = [part for part in parts if part.is_remote]
    if far:
        key = ["stamps", [part.where for part in far]]
        for part, stamp in zip(far, shared(key, [part.stamp for part in far]), strict=True):
            part.take_stamp(stamp)


def _matches(pattern: str) -> list[str]:
    if not _URL.match(pattern):
        return glob.glob(pattern)
    system, path = _filesystem(pattern)
    scheme = pattern.partition("://")[0]
    return [f"{scheme}://{str(one).lstrip('/')}" for one in system.glob(path)]


class Shard:
    """One file of many, on this machine or elsewhere.

    Where it is elsewhere, it is asked about once: what it was when it was opened is what is read,
    also by other processes that get a copy of this object.

    Args:
        where: a path or an address.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.is_remote = bool(_URL.match(where))
        self.name = where.rstrip("/").rpartition("/")[2]
        self._stamp: list[Any] | None = None
        self._asked = -math.inf
        self._unpack: tuple[Any] | None = None

    def __repr__(self) -> str:
        return f"Shard({self.where!r})"

    @property
    def place(self) -> str:
        """Its address, or its whole path."""
        return self.where if self.is_remote else os.path.abspath(self.where)

    def stamp(self) -> list[Any]:
        """Return what changes when the shard does: its place, size, and checksum or time of change.

        Of one elsewhere, as it was when first asked.
        """
        if not self.is_remote:
            return self._stamp_now()
        if self._stamp is None:
            self._stamp, self._asked = self._stamp_now(), time.monotonic()
        return self._stamp

    def take_stamp(self, stamp: list[Any]) -> None:
        """Take the stamp that another process has asked for."""
        if self.is_remote:
            self._stamp, self._asked = list(stamp), time.monotonic()

    def _stamp_now(self) -> list[Any]:
        if self.is_remote:
            system, path = _filesystem(self.where)
            try:
                about = system.info(path)
            except (OSError, ValueError) as error:
                raise InputError(f"`{self.where}` cannot be reached: {error}") from error
            known = next((about[name] for name in _CHANGES if about.get(name)), None)
            return [self.where, int(about.get("size") or 0), str(known)]
        try:
            status = os.stat(self.where)
        except FileNotFoundError:
            raise InputError(f"`{self.where}` does not exist.") from None
        except OSError as error:
            raise ChiaroError(f"`{self.where}` cannot be read: {error.strerror}.") from error
        return [os.path.abspath(self.where), status.st_size, status.st_mtime_ns]

    @property
    def is_copied(self) -> bool:
        """Whether reading needs a copy: the shard is elsewhere, or compressed."""
        if self.is_remote:
            return True
        if self._unpack is None:
            with open_regular(self.where) as file:
                self._unpack = (_PACKED.get(file.read(2)),)
        return self._unpack[0] is not None

    def local(self) -> Path:
        """Return a path on this machine that holds the uncompressed contents.

        Where that is a copy, it may be removed as soon as others are made: see `read`.
        """
        if not self.is_copied:
            return Path(self.where)
        key = hashlib.sha256("\0".join(map(str, self.stamp())).encode()).hexdigest()[:32]
        copy = cache_folder("shards") / f"{key}.shard"
        if _touched(copy):
            return copy
        with _alone(copy):
            if not _touched(copy):  # another process may have made it meanwhile
                self._require_same()
                self._copy_to(copy)
        return copy

    def read(self, work: Callable[[Path], T]) -> T:
        """Return what work gives of the contents on this machine, which are copied again if need
        be.

        Args:
            work: opens the path that it is given.
        """
        for _ in range(_TRIES):
            path = self.local()
            try:
                return work(path)
            except (FileNotFoundError, InputError):
                if path.exists() or not self.is_copied:
                    raise
        raise ChiaroError(
            f"The copy of `{self.where}` was removed {_TRIES} times before it was read; raise "
            f"`{KEPT}`, the bytes of copies that are kept."
        )

    def _require_same(self) -> None:
        """Refuse to fetch another file under the old stamp."""
        if not self.is_remote or time.monotonic() - self._asked < FRESH:
            return
        now = self._stamp_now()
        need(
            now == self.stamp(),
            lambda: (
                f"`{self.where}` has changed since it was opened: it had {self.stamp()[1]:,} bytes "
                f"and has {now[1]:,}. Open the data again."
            ),
        )
        self._asked = time.monotonic()

    def _copy_to(self, copy: Path) -> None:
        try:
            with tempfile.NamedTemporaryFile(dir=copy.parent, suffix=".part", delete=False) as part:
                try:
                    with self._opened() as (source, raw):
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
                        self._require_whole(raw)
                    part.close()
                    os.replace(part.name, copy)
                except BaseException:
                    os.unlink(part.name)
                    raise
        except _BROKEN as error:
            raise InputError(f"`{self.where}` cannot be read: {error}") from error
        _tidy(copy.parent, copy)

    def _require_whole(self, raw: IO[bytes]) -> None:
        """Refuse to keep less than the other machine said that there is."""
        size, came = self.stamp()[1] if self.is_remote else 0, raw.tell()
        need(
            not size or came == size,
            lambda: f"`{self.where}` has {size:,} bytes, of which {came:,} came; try again.",
        )

    def stream(self) -> IO[bytes]:
        """Return the shard as a file in which any part is found, without a copy of the whole.

        One that is compressed is copied and decompressed first.
        """
        if not self.is_remote:
            return self.read(open_regular)
        system, path = _filesystem(self.where)
        try:
            return system.open(path, "rb")
        except (OSError, ValueError) as error:
            raise InputError(f"`{self.where}` cannot be read: {error}") from error

    @contextlib.contextmanager
    def _opened(self) -> Any:
        """The contents as a stream, decompressed if need be, and the stream below it."""
        if self.is_remote:
            system, path = _filesystem(self.where)
            opened: IO[bytes] = system.open(path, "rb")
        else:
            opened = open_regular(self.where)
        start = opened.read(2)
        try:
            opened.seek(0)
        except (ValueError, OSError):  # a stream: from the beginning again
            opened.close()
            opened = system.open(path, "rb")
        with opened as file:
            unpack = _PACKED.get(start)
            if unpack is None:
                yield file, file
                return
            with unpack(file) as inner:
                yield inner, file


def _touched(copy: Path) -> bool:
    """Return whether a copy is there, and count it as used."""
    try:
        os.utime(copy)  # used last goes last
    except FileNotFoundError:
        return False
    except OSError:
        return copy.is_file()
    return True


@contextlib.contextmanager
def _alone(copy: Path) -> Iterator[None]:
    """Let one process of this machine make a copy, while others that want it wait."""
    if fcntl is None:
        yield
        return
    lock = copy.with_suffix(".lock")
    with open(lock, "wb") as held:
        with contextlib.suppress(OSError):  # a file system without locks: each makes its own
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


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
