"""Cells of tables: what a column holds, and images that lie encoded in one."""

from __future__ import annotations

import decimal
import functools
import weakref
from collections.abc import Container, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import fits, memory_limit, open_regular
from chiaroscuro.artifacts.footers import column_sizes
from chiaroscuro.data.dataset import batch_of_objects
from chiaroscuro.data.extras import bring
from chiaroscuro.data.places import inside
from chiaroscuro.data.shards import Shard
from chiaroscuro.errors import InputError, need

__all__ = [
    "MISSING",
    "PARQUET",
    "EncodedCells",
    "RowGroups",
    "Values",
    "cell_values",
    "column_bytes",
    "is_encoded",
    "know_sizes",
    "listed",
]

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
"""Cells of text, in lower case, that stand for a missing value."""

PARQUET = "'chiaroscuro[parquet]'"

Values = Any
"""An array of numbers, of dates, or of objects that are all strings, tuples of strings or bytes; or
`EncodedCells`."""


def cell_values(column: str, name: str, array: NDArray[Any]) -> Values:
    """Return a column of a data frame as one of the kinds that are known here."""
    if array.dtype.kind in "biufM":
        return array
    if array.dtype.kind in "UST" or type(array.dtype).__name__ == "StringDType":
        return batch_of_objects(str(one) for one in array.tolist())
    if array.dtype != object:
        return array  # refused by its role, with its name
    cells = array.tolist()
    missing = sum(_is_missing(one) for one in cells)
    need(
        missing == 0,
        lambda: (
            f"`{column}` of `{name}` needs a value in each of {len(cells)} rows; {missing} are "
            "missing. Fill them, or leave the column out with `drop`."
        ),
    )
    if all(isinstance(one, str | bytes) for one in cells):
        return array
    if all(isinstance(one, bool | int | float | decimal.Decimal | np.number) for one in cells):
        return np.array([float(one) for one in cells])
    if all(isinstance(one, dict) and "bytes" in one for one in cells):
        return array
    if all(isinstance(one, list | tuple | np.ndarray) for one in cells):
        return listed(column, name, [list(one) for one in cells])
    return array


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def listed(column: str, name: str, cells: list[list[Any]]) -> NDArray[Any]:
    if any(isinstance(one, str) for cell in cells for one in cell[:1]):
        return batch_of_objects(tuple(cell) for cell in cells)
    lengths = {len(cell) for cell in cells}
    need(
        len(lengths) == 1,
        lambda: (
            f"The lists in `{column}` of `{name}` need one length; they have {min(lengths)} to "
            f"{max(lengths)}. Pad them, or leave the column out with `drop=['{column}']`."
        ),
    )
    try:
        return np.array(cells)
    except (ValueError, OverflowError) as error:
        raise InputError(f"The lists in `{column}` of `{name}` are no array: {error}") from None


class RowGroups:
    """Encoded images in groups of rows of parquet files; the last groups read are kept.

    Args:
        parts: the files, here or elsewhere.
        column: of the images.
        counts: rows of each group, of each file.
        root, outside: as for `EncodedCells`.
    """

    def __init__(
        self,
        parts: list[Shard],
        column: str,
        counts: list[list[int]],
        root: Path,
        outside: bool,
    ) -> None:
        self.parts, self.column = parts, column
        self.root, self.outside = root, outside
        self.sizes = np.array([n for sizes in counts for n in sizes], np.int64)
        self.ends = np.cumsum(self.sizes)
        self.groups = [(k, g) for k, sizes in enumerate(counts) for g in range(len(sizes))]

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, row: int, /) -> bytes | Path:
        at = int(np.searchsorted(self.ends, row, side="right"))
        number, group = self.groups[at]
        cells = _group(self.parts[number], self.column, group)
        inner = row - int(self.ends[at] - self.sizes[at])
        return _encoded(cells[inner].as_py(), self.root, self.outside)

    def rows_of(self, part: int) -> range:
        """Return the rows of one file."""
        owners = np.array([number for number, _ in self.groups])
        start = int(self.sizes[owners < part].sum())
        return range(start, start + int(self.sizes[owners == part].sum()))


def _group(part: Shard, column: str, group: int) -> Any:
    """Return a column of a group of rows: one of the last four where so many fit into memory."""
    if part not in _TOO_LARGE:
        try:
            return _four_groups(part, column, group)
        except _LargeError:
            _TOO_LARGE.add(part)
    return _one_group(part, column, group)


class _LargeError(Exception):
    pass


_TOO_LARGE: weakref.WeakSet[Shard] = weakref.WeakSet()
"""Files with a group of which four do not fit."""


@functools.lru_cache(maxsize=4)
def _four_groups(part: Shard, column: str, group: int) -> Any:
    return _read_group(part, column, group, 4)


@functools.lru_cache(maxsize=1)
def _one_group(part: Shard, column: str, group: int) -> Any:
    _four_groups.cache_clear()
    return _read_group(part, column, group, 1)


def _read_group(part: Shard, column: str, group: int, times: int) -> Any:
    """Return a column of a group of rows, of which so many have to fit into memory."""
    parquet = bring("pyarrow.parquet", "Reading parquet", PARQUET)

    def read(path: Path) -> Any:
        if part not in _SIZES:  # in a worker
            with open_regular(path) as opened:
                know_sizes(part, opened)
        with parquet.ParquetFile(path) as file:
            need(
                group < file.metadata.num_row_groups,
                lambda: f"`{part.where}` has fewer groups of rows than when it was opened.",
            )
            size = column_bytes(part, group, {column})
            if times > 1 and times * size > memory_limit():
                raise _LargeError
            fits(f"`{part.where}`", size)
            return file.read_row_group(group, columns=[column]).column(0)

    return part.read(read)


def column_bytes(part: Shard, group: int, columns: Container[str]) -> int:
    """Return the bytes that some columns of a group of rows take."""
    if part not in _SIZES:
        with part.stream() as file:
            know_sizes(part, file)
    sizes = _SIZES[part]
    need(
        group < len(sizes),
        lambda: f"`{part.where}` has fewer groups of rows than when it was opened.",
    )
    return sum(size for name, size in sizes[group].items() if name in columns)


def know_sizes(part: Shard, file: IO[bytes]) -> None:
    """Remember how large the columns of an open file of parquet are."""
    _SIZES[part] = column_sizes(file, f"`{part.where}`")
    file.seek(0)


_SIZES: weakref.WeakKeyDictionary[Shard, list[dict[str, int]]] = weakref.WeakKeyDictionary()


class EncodedCells:
    """Encoded images in a column of arrow, by row."""

    def __init__(self, column: Any, root: Path | None, outside: bool) -> None:
        self.column, self.root, self.outside = column, root, outside

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: int, /) -> bytes | Path:
        cell = self.column[row]
        cell = cell.as_py() if hasattr(cell, "as_py") else cell
        return _encoded(cell, self.root, self.outside)


def _encoded(cell: Any, root: Path | None, outside: bool) -> bytes | Path:
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path") or b""
    if isinstance(cell, str):
        return inside((root or Path()) / cell, root or Path(), outside)
    if not isinstance(cell, bytes):
        raise InputError(f"an image needs bytes or a path; it is a {type(cell).__name__}")
    return cell


def is_encoded(kind: Any) -> bool:
    text = str(kind)
    return text in ("binary", "large_binary") or (text.startswith("struct") and "bytes:" in text)
