"""Arrays that lie in pieces on disk: read piece by piece, and only what is asked for."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["Beside", "Pieces", "blocks", "release", "taken"]


class Pieces:
    """An array (n, ...) in pieces of rows, such as row groups of a file or files of a folder.

    It has a shape and a type and takes slices and row numbers as an array does; nothing is read
    before that, and one piece at a time then.

    Args:
        lengths: rows of each piece.
        read: returns piece k as an array.
        shape: shape of one row; () for a plain column.
        dtype: dtype of the numbers, as the first piece has it.

    Example:
        >>> pieces = Pieces([2, 3], lambda k: np.full((2 + k, 4), k), (4,), np.dtype(int))
        >>> pieces.shape, pieces[1:3].tolist(), pieces[[4, 0]][:, 0].tolist()
        ((5, 4), [[0, 0, 0, 0], [1, 1, 1, 1]], [1, 0])
    """

    def __init__(
        self,
        lengths: Sequence[int],
        read: Callable[[int], np.ndarray],
        shape: tuple[int, ...],
        dtype: np.dtype,
    ):
        self._starts = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
        self._read = read
        self._held: tuple[int, np.ndarray] | None = None
        self.shape = (int(self._starts[-1]), *shape)
        self.dtype = dtype
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._between(start, max(start, stop))
            rows = np.arange(start, stop, step)
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        if not len(rows):
            return np.empty((0, *self.shape[1:]), self.dtype)
        of = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(of, kind="stable")
        parts = []
        for some in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
            k = int(of[some[0]])
            parts.append(self._piece(k)[rows[some] - self._starts[k]])
        back = np.empty(len(rows), dtype=np.int64)
        back[order] = np.arange(len(rows))
        return np.concatenate(parts)[back]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)

    def _between(self, start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(self._starts, [start, max(start, stop - 1)], side="right") - 1
        if stop <= start:
            return np.empty((0, *self.shape[1:]), self.dtype)
        parts = []
        for k in range(int(first), int(last) + 1):
            begin = int(self._starts[k])
            parts.append(self._piece(k)[max(0, start - begin) : stop - begin])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _piece(self, k: int) -> np.ndarray:
        if self._held is None or self._held[0] != k:
            self._held = None  # before the next is read: never two at once
            self._held = (k, self._read(k))
        return self._held[1]


class Beside:
    """Columns of numbers beside each other, as one array (n, d) that is read when asked for.

    Example:
        >>> Beside([np.arange(3), np.ones(3)])[1:].tolist()
        [[1.0, 1.0], [2.0, 1.0]]
    """

    def __init__(self, columns: Sequence[Any]):
        self._columns = columns
        self.shape = (len(columns[0]), len(columns))
        self.dtype = np.result_type(*(column.dtype for column in columns))
        self.ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.stack([np.asarray(c[rows], dtype=self.dtype) for c in self._columns], axis=1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


def blocks(array: Any, n_bytes: int = 1 << 25) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the rows of an array some at a time, each with the number of its first row.

    Of a mapped file the memory of one block is held at a time.

    Args:
        array: of numpy, mapped or not, `Pieces` or `Beside`.
        n_bytes: that a block takes, about.

    Example:
        >>> [(at, len(rows)) for at, rows in blocks(np.zeros((5, 2)), n_bytes=32)]
        [(0, 2), (2, 2), (4, 1)]
    """
    each = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
    step = max(1, n_bytes // max(1, each))
    for start in range(0, len(array), step):
        yield start, np.asarray(array[start : start + step])
        release(array)


_TAKEN = 4096
"""Scattered rows that are read of a mapped file at a time."""


def taken(array: Any, rows: Any) -> np.ndarray:
    """Return some rows of an array; of a mapped file only those of a few thousand touch memory."""
    numbers = isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu"
    if not isinstance(array, np.memmap) or not numbers or len(rows) <= _TAKEN:
        return np.asarray(array[rows])
    out = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for start in range(0, len(rows), _TAKEN):
        out[start : start + _TAKEN] = array[rows[start : start + _TAKEN]]
        release(array)
    return out


def release(array: Any) -> None:
    """Give back the memory of a mapped file that was read; what is read again comes again."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    if array is not None and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)
