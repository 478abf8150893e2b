"""How large the columns of a parquet file are, read from its footer by ourselves.

pyarrow says so too, but over some damaged footers it does not raise: it ends the process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import IO, Any

from chiaroscuro.artifacts.bounded import fits
from chiaroscuro.errors import InputError

__all__ = ["column_sizes"]

_MAGIC = b"PAR1"
_DEEPEST = 32
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_WHOLE = (4, 5, 6)
_GROUPS, _COLUMNS, _ABOUT, _PATH, _SIZE = 4, 1, 3, 3, 6
"""Numbers of fields: FileMetaData.row_groups, RowGroup.columns, ColumnChunk.meta_data, and of that
path_in_schema and total_uncompressed_size."""


def column_sizes(file: IO[bytes], what: str) -> list[dict[str, int]]:
    """Return the uncompressed bytes of each column, by group of rows; of nested ones in one sum.

    Args:
        file: parquet file, in which any part can be found.
        what: the subject of a sentence, such as "`a.parquet`".
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 8))
    tail = file.read(8)
    length = struct.unpack("<I", tail[:4])[0] if len(tail) == 8 else 0
    if end < 12 or tail[4:] != _MAGIC or length > end - 12:
        raise InputError(f"{what} cannot be read as parquet: its {end:,} bytes end in no footer.")
    fits(f"The footer of {what}", 20 * length)  # as objects
    file.seek(end - 8 - length)
    try:
        return [_sizes(group) for group in _Compact(file.read(length)).struct(0)[_GROUPS]]
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise InputError(
            f"{what} cannot be read as parquet: its footer of {length:,} bytes is damaged "
            f"({type(error).__name__})."
        ) from None


def _sizes(group: dict[int, Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for column in group[_COLUMNS]:
        about = column[_ABOUT]
        name, size = about[_PATH][0].decode(), about[_SIZE]
        if size < 0:
            raise ValueError(size)
        sizes[name] = sizes.get(name, 0) + size
    return sizes


class _Compact:
    """A reader of Thrift's compact protocol: structures as dictionaries by number of field."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            one = self.byte()
            value |= (one & 0x7F) << shift
            if one < 0x80:
                return value
        raise ValueError("a number of more than ten bytes")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> dict[int, Any]:
        return dict(self._fields(depth))

    def _fields(self, depth: int) -> Iterator[tuple[int, Any]]:
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            kind = head & 15
            # the type of a field says whether it is true
            yield number, kind == _TRUE if kind in (_TRUE, _FALSE) else self.value(kind, depth)

    def value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if kind in _WHOLE:
            return self.zigzag()
        if kind == _BINARY:
            return self._taken(self.varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.value(head & 15, depth + 1) for _ in range(self._counted(count))]
        if kind in (_BYTE, _TRUE, _FALSE):
            return self.byte()
        if kind == _DOUBLE:
            return self._taken(8)
        if kind == _MAP:
            count = self._counted(self.varint())
            kinds = self.byte() if count else 0
            for _ in range(count):
                self.value(kinds >> 4, depth + 1)
                self.value(kinds & 15, depth + 1)
            return {}
        raise ValueError(f"no such type: {kind}")

    def _taken(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("more bytes than there are")
        value = self.data[self.at : self.at + count]
        self.at += count
        return value

    def _counted(self, count: int) -> int:
        if count > len(self.data) - self.at:
            raise ValueError("more entries than bytes")
        return count
