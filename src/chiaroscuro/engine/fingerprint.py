"""A fingerprint of data: enough to notice that a run would go on with others."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from chiaroscuro.data import Dataset

__all__ = ["Fingerprint", "fingerprint"]

LOOKED_AT = 64
"""Rows whose contents are read, evenly spaced: a set of a million pictures stays cheap."""


class Fingerprint(NamedTuple):
    """The number of samples, and a digest of what they are."""

    rows: int
    sha256: str


def fingerprint(data: Dataset) -> Fingerprint:
    """The number of samples, and a sha256 over their ids, labels and the contents of some.

    All ids and labels count, and which rows were taken; of the inputs the type, the shape and the
    contents of at most 64 evenly spaced rows. A change that leaves all of these alone goes
    unnoticed.

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
    known = {"ids": data.ids, "labels": data.labels}
    spaced = np.unique(np.linspace(0, max(n - 1, 0), min(n, LOOKED_AT)).astype(np.int64))
    some = data[spaced]
    known |= {name: some[name] for name in ("row", *data.inputs)}
    for name, values in known.items():
        digest.update(f"{name}\0".encode())
        if values is not None:
            _add(digest, values)
    return Fingerprint(n, digest.hexdigest())


def _add(digest: Any, values: np.ndarray) -> None:
    if values.dtype.kind in "OU":
        digest.update("\0".join(map(repr, values.tolist())).encode())
        return
    plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    digest.update(f"{plain.dtype.str} {plain.shape}\0".encode())
    digest.update(plain.tobytes())
