"""A fingerprint of data: enough to notice that a run would go on with others."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import open_regular, read_regular
from chiaroscuro.artifacts.files import replace
from chiaroscuro.data import Dataset
from chiaroscuro.data.pictures import Pictures, UnitImages
from chiaroscuro.data.places import cache_folder
from chiaroscuro.data.scaling import Standardised
from chiaroscuro.data.text import Strings, Texts
from chiaroscuro.errors import ChiaroError

__all__ = ["Fingerprint", "fingerprint"]

LOOKED_AT = 64
"""Rows whose contents are read where reading all would cost an epoch, evenly spaced."""

CACHED_FROM = 256 << 20
"""Bytes of files from which on the digest of their contents is kept."""

_AT_ONCE = 16 << 20


AT_ONCE = 1 << 16
"""Rows of ids and labels that are read at a time."""


class Fingerprint(NamedTuple):
    """The number of samples, and digests of what they are.

    Args:
        rows: the number of samples.
        sha256: sha256 of ids, labels and contents.
        sampled: the same with the contents of at most 64 rows, as older checkpoints have it.
    """

    rows: int
    sha256: str
    sampled: str = ""


def fingerprint(data: Dataset) -> Fingerprint:
    """Return the number of samples, and a sha256 over their ids, labels and contents.

    All ids and labels count, and which rows were taken. Of arrays, in memory or mapped, of texts
    and of encoded images every byte counts: reading them takes less than an epoch, which reads and
    decodes them too. What 256 MB of image files or more hold is remembered in the user's cache, by
    their sizes and times of change. Of images on other machines nothing is fetched: the names,
    sizes and checksums (or times of change) of their shards count. Of columns that compute what
    they give, the contents of at most 64 evenly spaced rows count: a change that leaves those alone
    goes unnoticed.

    Args:
        data: what is trained on.

    Example:
        >>> data = Dataset({"x": np.eye(3), "labels": np.arange(3)})
        >>> fingerprint(data) == fingerprint(Dataset({"x": np.eye(3), "labels": np.arange(3)}))
        True
        >>> fingerprint(data) == fingerprint(data.take([0, 2, 1]))
        False
    """
    digest = hashlib.sha256()
    n = len(data)
    known: dict[str, Any] = {"ids": None, "labels": None}
    spaced = np.unique(np.linspace(0, max(n - 1, 0), min(n, LOOKED_AT)).astype(np.int64))
    near = [name for name in data.inputs if not _parts_elsewhere(data.columns[name])]
    looked_at = data.row_numbers(spaced)
    known |= {"row": looked_at, **{name: data.columns[name][looked_at] for name in near}}
    for name, values in known.items():
        digest.update(f"{name}\0".encode())
        if name in ("ids", "labels"):
            _add_all(digest, data, name)
        elif values is not None:
            _add(digest, values)
    sampled = digest.hexdigest()
    rows = np.arange(n) if data.rows is None else data.rows
    for name in data.inputs:
        digest.update(f"{name}\0".encode())
        _add_contents(digest, data.columns[name], rows)
    return Fingerprint(n, digest.hexdigest(), sampled)


def _add_all(digest: Any, data: Dataset, name: str) -> None:
    """Add a whole column, some rows at a time: what it takes does not grow with the data."""
    n = len(data)
    given = name in data.columns
    if not given and name == "labels":
        return
    for start in range(0, max(n, 1), AT_ONCE):
        rows = data.row_numbers(np.arange(start, min(start + AT_ONCE, n)))
        values = data.columns[name][rows] if given else rows
        if values.dtype.kind in "OU":
            digest.update(b"\0" * (start > 0) + "\0".join(map(repr, values.tolist())).encode())
            continue
        plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        if start == 0:
            digest.update(f"{plain.dtype.str} {(n, *plain.shape[1:])}\0".encode())
        digest.update(plain.tobytes())


def _add(digest: Any, values: np.ndarray) -> None:
    if values.dtype == object and len(values) and isinstance(values[0], np.ndarray):
        for image in values:  # of several sizes
            _add(digest, image)
        return
    if values.dtype.kind in "OU":
        digest.update("\0".join(map(repr, values.tolist())).encode())
        return
    plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    digest.update(f"{plain.dtype.str} {plain.shape}\0".encode())
    digest.update(plain.tobytes())


def _add_contents(digest: Any, column: Any, rows: NDArray[np.int64]) -> None:
    """Add every row of a column that is stored; of one that is computed nothing."""
    if isinstance(column, Standardised):
        column = column.raw
    elif isinstance(column, UnitImages):
        column = column.array
    if isinstance(column, Pictures):
        digest.update(_of_pictures(column, rows).encode())
    elif isinstance(column, np.ndarray | Texts | Strings):
        of_a_row = getattr(column, "nbytes", 0) // max(len(column), 1)
        step = max(1, _AT_ONCE // max(of_a_row, 256))
        for start in range(0, len(rows), step):
            _add(digest, column[rows[start : start + step]])


# ---- encoded images ----


def _of_pictures(pictures: Pictures, rows: NDArray[np.int64]) -> str:
    """Return a digest of encoded images, or of what is known of shards that would have to be
    fetched.
    """
    if elsewhere := _parts_elsewhere(pictures):
        stamps = [[part.name, *part.stamp()[1:]] for part in elsewhere]
        return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()
    parts = getattr(pictures.encodings, "parts", [])
    stamp, size = _stamp(pictures, rows, parts)
    kept = None
    if stamp and size >= CACHED_FROM:
        kept = cache_folder("contents") / stamp
        if kept.is_file():
            return read_regular(kept, 100).decode("ascii", "replace")
    digest = hashlib.sha256()
    for row in rows.tolist():
        _add_encoded(digest, pictures.encoded(row))
    sha256 = digest.hexdigest()
    if kept is not None:
        _keep(kept, sha256)
    return sha256


def _parts_elsewhere(column: Any) -> list[Any]:
    """Return the shards of a column of images on other machines; none where it is here."""
    parts = getattr(column.encodings, "parts", []) if isinstance(column, Pictures) else []
    return [part for part in parts if getattr(part, "is_remote", False)]


def _add_encoded(digest: Any, encoded: Any) -> None:
    """Add an encoded image, a file of any size a piece at a time."""
    if isinstance(encoded, bytes):
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
        return
    with open_regular(encoded) as file:
        digest.update(os.fstat(file.fileno()).st_size.to_bytes(8, "little"))
        while chunk := file.read(_AT_ONCE):
            digest.update(chunk)


def _stamp(pictures: Pictures, rows: NDArray[np.int64], parts: Any) -> tuple[str, int]:
    """Return what names these rows of these files, as long as none changes, and their size.

    The name is "" where the images are not in files.
    """
    digest, size = hashlib.sha256(), 0
    if parts:
        files = [part.where for part in parts]
        chosen = rows if pictures.rows is None else pictures.rows[rows]
        places: Any = pictures.encodings
        known = hasattr(places, "shard")  # of archives; of tables the numbers of the rows do
        for array in (places.shard, places.start, places.length) if known else ():
            digest.update(np.ascontiguousarray(array[chosen]).tobytes())
        if not known:
            digest.update(chosen.tobytes())
    elif len(rows) and not isinstance(pictures.encoded(int(rows[0])), bytes):
        files = [os.fspath(pictures.encoded(row)) for row in rows.tolist()]
    else:
        return "", 0
    for file in files:
        status = os.stat(file)
        size += status.st_size
        times = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        digest.update(f"{os.path.abspath(file)}\0{times}\0".encode(errors="surrogateescape"))
    return digest.hexdigest(), size


def _keep(path: Path, text: str) -> None:
    """Write a digest into the cache; failing costs the cache only."""

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    try:
        replace(path, write)
    except (ChiaroError, OSError):
        return
