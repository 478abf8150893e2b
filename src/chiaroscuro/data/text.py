"""Text: one sentence a line, gzipped or not, kept as one block of bytes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.dataset import Column, Dataset, batch_of_objects
from chiaroscuro.errors import InputError, need

__all__ = ["Texts", "read_bytes", "read_lines", "read_text"]


class Texts:
    """A column of strings in one block of UTF-8 with the places where they begin and end.

    A tenth of the memory of as many Python strings, and free to share with workers.

    Example:
        >>> Texts(b"one\\ntwo\\n", np.array([[0, 3], [4, 7]]))[np.array([1, 0])].tolist()
        ['two', 'one']
    """

    def __init__(self, block: bytes, spans: NDArray[np.int64]) -> None:
        self.block = block
        self.spans = spans

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        return batch_of_objects(
            self.block[start:stop].decode() for start, stop in self.spans[rows].tolist()
        )


def read_text(path: str | Path) -> Dataset:
    """The sentences of a file, one a line; blank lines are none. `ids` are line numbers from 1.

    Args:
        path: a `.txt` in UTF-8, or the same gzipped.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "two.txt"
        >>> _ = path.write_text("Light.\\n\\nShade.\\n")
        >>> data = read_text(path)
        >>> data[[1]]["texts"].tolist(), data.ids.tolist()
        (['Shade.'], [1, 3])
    """
    path = Path(path)
    block = read_bytes(path)
    try:
        block.decode()
    except UnicodeDecodeError as error:
        line = block.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"`{path}` needs UTF-8; line {line} has the byte 0x{block[error.start]:02x}. "
            f"`iconv -f latin1 -t utf8` may be what it needs."
        ) from None
    spans, lines = [], []
    start = 3 if block.startswith(b"\xef\xbb\xbf") else 0  # a mark that some editors leave
    for number, row in enumerate(block[start:].split(b"\n"), start=1):
        bare = row.strip()
        if bare:
            inner = start + row.index(bare)
            spans.append((inner, inner + len(bare)))
            lines.append(number)
        start += len(row) + 1
    need(bool(spans), lambda: f"`{path}` has no line with anything on it.")
    columns: dict[str, Column] = {
        "texts": Texts(block, np.array(spans, np.int64)),
        "ids": np.array(lines, np.int64),
    }
    return Dataset(columns, name=path.name.split(".")[0])


def read_bytes(path: Path) -> bytes:
    """The content of a file, unzipped if it begins as gzip does."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except FileNotFoundError:
        raise InputError(f"`{path}` is not there.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"`{path}` is a damaged gzip file: {error}") from error


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number from 1."""
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if line.strip():
            yield number, line
