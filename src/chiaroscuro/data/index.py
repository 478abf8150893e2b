"""A cached index: what opening a large dataset learnt of it, as arrays that stay in files."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.artifacts.numpy_files import read_npy
from chiaroscuro.data.places import cache_folder
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = [
    "CACHED_FROM",
    "Index",
    "RowsOnDisk",
    "Wanted",
    "indexed",
    "shared",
    "with_shared",
]

CACHED_FROM = 10_000
"""Rows from which on an index is kept; smaller ones are made in no time."""

FORMAT = 1
_NOTES = "notes.json"
_ONE_BY_ONE = 4096
"""Scattered rows up to so many are read one by one; for more, the file is mapped for a moment."""


class RowsOnDisk:
    """A one-dimensional `.npy` of which only the rows asked for are read.

    Not mapped: the pages that a mapping has touched stay in memory, and an epoch touches them all.
    The file stays open, so that it can be replaced meanwhile; a copy in another process opens it
    again and refuses another file in its place.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "x.npy"
        >>> np.save(path, np.arange(10) ** 2)
        >>> rows = RowsOnDisk(path)
        >>> rows[np.array([3, 0, -1])].tolist(), rows[2:4].tolist(), int(rows[5])
        ([9, 0, 81], [4, 9], 25)
    """

    def __init__(self, path: Path) -> None:
        mapped = read_npy(path)
        need(
            isinstance(mapped, np.memmap) and mapped.ndim == 1,
            lambda: f"`{path}` needs one number a row; it holds {mapped.shape}.",
        )
        self.path, self.dtype, self.shape = path, mapped.dtype, mapped.shape
        self._offset = int(getattr(mapped, "offset", 0))
        self._file = os.open(path, os.O_RDONLY)
        self._close = weakref.finalize(self, os.close, self._file)
        state = os.fstat(self._file)
        self._stamp = state.st_ino, state.st_size, state.st_mtime_ns

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.path, self._stamp)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype)

    def __getitem__(self, rows: Any, /) -> Any:
        n = len(self)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(n)
            if step != 1:
                return self[np.arange(start, stop, step)]
            return self._read(start, max(0, stop - start))
        if isinstance(rows, (int, np.integer)):
            return self[np.array([rows])][0]
        rows = np.asarray(rows, np.int64)
        if rows.size and not -n <= int(rows.min()) <= int(rows.max()) < n:
            raise IndexError(f"`{self.path.name}` has {n} rows; asked for {rows.max()}.")
        rows = np.where(rows < 0, rows + n, rows)
        if len(rows) and bool((np.diff(rows) == 1).all()):
            return self._read(int(rows[0]), len(rows))
        if len(rows) > _ONE_BY_ONE:
            with os.fdopen(os.dup(self._file), "rb") as file:
                return np.array(np.memmap(file, self.dtype, "r", self._offset, n)[rows])
        size = self.dtype.itemsize
        pieces = (os.pread(self._file, size, self._offset + size * row) for row in rows.tolist())
        return np.frombuffer(bytearray().join(pieces), self.dtype)

    def _read(self, start: int, count: int) -> NDArray[Any]:
        out = np.empty(count, self.dtype)
        left, at = out.view(np.uint8).data, self._offset + start * self.dtype.itemsize
        while left:
            piece = os.pread(self._file, min(len(left), 1 << 24), at)
            need(bool(piece), lambda: f"`{self.path}` was cut short after it was opened.")
            left[: len(piece)] = piece
            left, at = left[len(piece) :], at + len(piece)
        return out


def _again(path: Path, stamp: tuple[int, ...]) -> RowsOnDisk:
    """The same file in another process."""
    rows = RowsOnDisk(path)
    if rows._stamp != stamp:
        raise InputError(f"`{path}` was replaced while it was in use. Open the dataset again.")
    return rows


@dataclasses.dataclass(frozen=True, eq=False)
class Index:
    """Arrays with one row per sample, and notes.

    Args:
        arrays: by name; those of a cached index stay in their files.
        notes: what JSON can hold.
        stamps: what the index was made of and when it changed: see `indexed`.
    """

    arrays: dict[str, Any]
    notes: dict[str, Any]
    stamps: list[Any]


class Wanted(Exception):  # noqa: N818 - nothing went wrong
    """Raised by `shared` inside `with_shared`: these tasks can be done by several processes.

    Args:
        key: names them, the same in every process.
        tasks: each gives what JSON can hold.
    """

    def __init__(self, key: str, tasks: Sequence[Callable[[], Any]]) -> None:
        super().__init__(key)
        self.key, self.tasks = key, tasks


_KNOWN: contextvars.ContextVar[dict[str, list[Any]] | None] = contextvars.ContextVar(
    "results of shared tasks", default=None
)


def shared(key: list[Any], tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of tasks, which several processes may share out among them.

    Args:
        key: names the tasks; what JSON can hold.
        tasks: functions of nothing; each gives what JSON can hold.

    Example:
        >>> shared(["doubled"], [lambda: 2, lambda: 4])
        [2, 4]
    """
    known = _KNOWN.get()
    if known is None:
        return [task() for task in tasks]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    if name not in known:
        raise Wanted(name, tasks)
    return known[name]


@contextlib.contextmanager
def with_shared(known: dict[str, list[Any]]) -> Iterator[None]:
    """Take the results of shared tasks from those that are known; `Wanted` is raised for others.

    Args:
        known: results by the key of `Wanted`.
    """
    token = _KNOWN.set(known)
    try:
        yield
    finally:
        _KNOWN.reset(token)


def indexed(
    key: list[Any], rows: str, make: Callable[[], Index], stamp: Callable[[list[Any]], list[Any]]
) -> Index:
    """Return the cached index under a key if its sources have not changed, or make a new one.

    Args:
        key: names the data and the way of reading them.
        rows: the array whose length is the number of samples.
        make: makes the index, slowly.
        stamp: gives the stamps of sources as they are now, for the stamps as they were: equal ones
            mean that nothing changed.
    """
    folder = cache_folder("index") / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    kept = _load(folder)
    if kept is not None and stamp(kept.stamps) == kept.stamps:
        return kept
    fresh = make()
    if len(fresh.arrays[rows]) >= CACHED_FROM:
        _save(folder, fresh)
    return fresh


def _load(folder: Path) -> Index | None:
    """Return the index in a folder; None if there is none, or it is damaged:
    it can be made again.
    """
    if not folder.is_dir():
        return None
    try:
        notes = json.loads(read_regular(folder / _NOTES))
        if notes["format"] != FORMAT:
            return None
        opened: Callable[[Path], Any] = RowsOnDisk if hasattr(os, "pread") else read_npy
        arrays = {name: opened(folder / f"{name}.npy") for name in notes["arrays"]}
        return Index(arrays, notes["notes"], notes["stamps"])
    except (ChiaroError, OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _save(folder: Path, index: Index) -> None:
    """Write the index beside its place and move it there whole; failing costs the cache only."""
    try:
        work = Path(tempfile.mkdtemp(prefix=".index-", dir=folder.parent))
    except OSError:
        return
    try:
        for name, array in index.arrays.items():
            np.save(work / f"{name}.npy", array, allow_pickle=False)
        notes = {
            "format": FORMAT,
            "arrays": sorted(index.arrays),
            "notes": index.notes,
            "stamps": index.stamps,
        }
        (work / _NOTES).write_text(json.dumps(notes))
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(work, folder)
    except OSError:  # the disk is full, or another process was faster
        shutil.rmtree(work, ignore_errors=True)
