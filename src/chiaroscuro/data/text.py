"""Text: one sentence a line, gzipped or not, kept as one block of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import read_unzipped
from chiaroscuro.data.dataset import Column, Dataset, batch_of_objects
from chiaroscuro.errors import InputError, need

__all__ = ["Strings", "Texts", "read_lines", "read_text"]


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


class Strings:
    """A column of strings in one block of UTF-8 with the places where they end.

    Args:
        block: the strings, one after the other; bytes, or uint8 that may be mapped from a file.
        ends: of each, in bytes.
        read: what each becomes; as it is by default.

    Example:
        >>> block, ends = Strings.packed(["one", "two"])
        >>> Strings(block, ends)[np.array([1, 0])].tolist()
        ['two', 'one']
    """

    def __init__(
        self,
        block: NDArray[np.uint8],
        ends: NDArray[np.int64],
        read: Callable[[str], Any] | None = None,
    ) -> None:
        self.block, self.ends, self.read = block, ends, read

    @staticmethod
    def packed(texts: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return block and ends of some strings."""
        encoded = [text.encode("utf-8", "replace") for text in texts]
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        starts, ends = np.where(rows > 0, self.ends[rows - 1], 0), self.ends[rows]
        if len(rows) > 1 and bool((np.diff(rows) == 1).all()):  # one piece of the block
            low = int(starts[0])
            piece = self.block[low : int(ends[-1])].tobytes()
            starts, ends = starts - low, ends - low
            encoded = (piece[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True))
        else:
            spans = zip(starts.tolist(), ends.tolist(), strict=True)
            encoded = (self.block[a:b].tobytes() for a, b in spans)
        texts = (text.decode("utf-8", "replace") for text in encoded)
        return batch_of_objects(texts if self.read is None else map(self.read, texts))


def read_text(path: str | Path) -> Dataset:
    """Read a text file, one text per line; blank lines are skipped. `ids` are line numbers.

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
    block = read_unzipped(path)
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


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank, with its number from 1."""
    for number, line in enumerate(read_unzipped(path).split(b"\n"), start=1):
        if line.strip():
            yield number, line
