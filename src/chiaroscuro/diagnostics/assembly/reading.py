"""Arrays for a diagnosis: from memory, or from a file of any size as a sample of its rows."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.errors import InputError, need

__all__ = ["ROWS", "Reading", "read"]

ROWS = 50_000
"""Rows that are looked at, if there are more."""
_SPACES = ("h", "z", "h1", "h2", "z1", "z2")
_LAYERS = ("layer_untrained", "layer_input")
_LARGE = 1e140
"""Beyond it, and below its inverse, squares and their sums leave what a float64 holds."""
_UNUSED = ("thumbnails", "texts", "ids", "prompts", "prompt_z", "untrained_prompt_z")


@dataclass(frozen=True, eq=False)
class Reading:
    """What is diagnosed: `embeddings` of some `rows` (their numbers) of all `n`, under a `name`.

    `ids` are those of all rows, where there are any.
    """

    embeddings: Embeddings
    name: str
    rows: np.ndarray
    n: int
    ids: np.ndarray | None = None


def read(subject: Any, rows: int = ROWS, seed: int = 0) -> Reading:
    """Embeddings from memory or a file, at most so many rows of them, checked.

    An `.npy` or `.npz` is mapped, not read: only the rows that are drawn come into memory.

    Args:
        subject: `Embeddings`, a matrix, a dictionary of arrays, or a file. Of a foreign `.npz` with
            one matrix and no name of ours, that matrix is h.
        rows: so many at most, drawn by the seed without replacement; they keep their order.

    Example:
        >>> read(np.eye(100, 5), rows=10).embeddings
        Embeddings(h=(10, 5) float64)
    """
    name = "embeddings"
    if isinstance(subject, Embeddings):
        found = subject
    elif isinstance(subject, Mapping):
        found = Embeddings(**{key: _array(value) for key, value in subject.items()})
    elif isinstance(subject, str | os.PathLike):
        name, found = Path(subject).name, _load(Path(subject))
    else:
        found = Embeddings(h=_array(subject))
    found = _one_space(found)
    n = found.n
    need(rows >= 2, lambda: f"`diagnose(rows)` needs at least 2 rows; received {rows}.")
    need(n >= 2, lambda: f"`diagnose` needs at least 2 rows; `{name}` has {n}.")
    kept = np.arange(n)
    if n > rows:
        kept = np.sort(np.random.default_rng(seed).choice(n, rows, replace=False))
    ids, found = found.ids, _without(found, _UNUSED)
    found = found.take(kept) if n > rows else found
    _check(found, name, kept)
    return Reading(_counted(found), name, kept, n, ids)


def _counted(found: Embeddings) -> Embeddings:
    """Labels as 0, 1, ... in their order, where they are numbers of any size; -1 stays."""
    if found.labels is None or int(found.labels.max()) < found.n:
        return found
    known, y = np.unique(found.labels, return_inverse=True)
    return _with(found, {"labels": y - int(known[0] < 0), "class_names": None})


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _load(path: Path) -> Embeddings:
    return Embeddings.load(path, _foreign(path))


def _foreign(path: Path) -> dict[str, str]:
    """What the only matrix of a foreign file is here; nothing where the file is ours or no zip."""
    if path.suffix != ".npz" or not path.is_file() or not zipfile.is_zipfile(path):
        return {}
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if set(names) & {*_SPACES}:
            return {}
        matrices = [name for name in names if _dimensions(archive, name) == 2]
    return {matrices[0]: "h"} if len(matrices) == 1 else {}


def _dimensions(archive: zipfile.ZipFile, name: str) -> int | None:
    """How many dimensions a member has, from its header; None where it is no array."""
    member = f"{name}.npy"
    if member not in archive.namelist():
        return None
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            header = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            return len(header(file)[0])
        except (ValueError, EOFError):  # `Embeddings.load` says what is wrong with it
            return None


def _one_space(found: Embeddings) -> Embeddings:
    """h and z, which are the first views where only views are given."""
    given = {name: getattr(found, name) for name in _SPACES}
    need(
        any(value is not None for value in given.values()),
        lambda: (
            "`diagnose` needs embeddings: one of h, z, h1 and h2, z1 and z2; received "
            f"{', '.join(found.arrays()) or 'nothing'}."
        ),
    )
    extra = {
        space: given[f"{space}1"]
        for space in ("h", "z")
        if given[space] is None and given[f"{space}1"] is not None
    }
    return _with(found, extra)


def _without(found: Embeddings, names: tuple[str, ...]) -> Embeddings:
    return _with(found, dict.fromkeys(names))


def _with(found: Embeddings, changed: Mapping[str, Any]) -> Embeddings:
    fields = {key: value for key, value in vars(found).items() if value is not None}
    return Embeddings(**{**fields, **changed})


def _check(found: Embeddings, name: str, kept: np.ndarray) -> None:
    for key in _SPACES:
        array = getattr(found, key)
        need(
            array is None or array.shape[1] >= 2,
            lambda key=key, array=array: (
                f"`diagnose` needs at least 2 dimensions: one number has no direction; `{key}` of "
                f"`{name}` has {array.shape[1]}."
            ),
        )
    for key, bad in found.bad_rows().items():
        if key in (*_SPACES, "factors", *_LAYERS):
            first = ", ".join(str(int(kept[row])) for row in bad[:5])
            raise InputError(
                f"`diagnose` needs finite numbers; {len(bad)} of {found.n} rows of `{key}` of "
                f"`{name}` have NaN or infinity: {'row' if len(bad) == 1 else 'rows'} {first}"
                f"{' and more' if len(bad) > 5 else ''}."
            )
    for key in _SPACES:
        array = getattr(found, key)
        largest = 0.0 if array is None else max(abs(float(array.max())), abs(float(array.min())))
        need(
            largest == 0 or 1 / _LARGE < largest < _LARGE,
            lambda key=key, largest=largest: (
                "`diagnose` needs numbers whose squares can be added, between "
                f"{1 / _LARGE:.0e} and {_LARGE:.0e} in size; the largest of "
                f"`{key}` of `{name}` is {largest:.1e}: "
                "multiply all of it by one factor, or look for what exploded."
            ),
        )
    if found.labels is not None:
        labelled = found.labels[found.labels >= 0]
        known = np.unique(labelled)
        need(
            len(known) != 1,
            lambda: (
                f"`labels` needs at least 2 classes; all {len(labelled)} of "
                f"`{name}` are {int(known[0])}: leave them out."
            ),
        )
        need(
            len(known) > 0,
            lambda: (
                f"`labels` needs labelled rows; all {found.n} of `{name}` are -1: leave it out."
            ),
        )
