"""Arrays for a diagnosis: from memory, or from a file of any size as a sample of its rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.artifacts.embeddings import FIELDS
from chiaroscuro.artifacts.sources import (
    Source,
    from_arrays,
    from_frame,
    is_frame,
    open_source,
    read_labels,
)
from chiaroscuro.errors import InputError, need

__all__ = ["ROWS", "Inputs", "Reading", "read"]

ROWS = 50_000
"""Rows that are looked at, if there are more."""
_SPACES = ("h", "z", "h1", "h2", "z1", "z2")
_LAYERS = ("layer_untrained", "layer_input")
_LARGE = 1e140
"""Beyond it, and below its inverse, squares and their sums leave what a float64 holds."""
_UNUSED = ("thumbnails", "texts", "ids", "prompts", "prompt_z", "untrained_prompt_z")


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs that accompany a file of embeddings: names of arrays, labels, pairs.

    Args:
        names: what its arrays are here, such as `{"X": "h", "y": "labels"}`.
        labels: a file of labels, in the order of the rows or with their ids; or an array.
        pairs: embeddings of the other side, row by row or by ids: whatever `read` takes.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    labels: Any = None
    pairs: Any = None


@dataclass(frozen=True, eq=False)
class Reading:
    """What is diagnosed: `embeddings` of some `rows` (their numbers) of all in the `source`."""

    embeddings: Embeddings
    name: str
    rows: np.ndarray
    source: Source

    @property
    def n(self) -> int:
        """Rows in all."""
        return self.source.n

    def ids(self, rows: np.ndarray) -> np.ndarray:
        """Return the identifiers of some rows, which are their numbers where there are none."""
        ids = self.source.arrays.get("ids")
        return rows if ids is None else np.asarray(ids[rows])


def read(subject: Any, rows: int = ROWS, seed: int = 0, inputs: Inputs | None = None) -> Reading:
    """Read embeddings from memory or a file, at most a given number of rows, and check them.

    A file is mapped or read in pieces: only the rows that are drawn stay in memory, and nothing
    that grows with the number of rows is allocated.

    Args:
        subject: `Embeddings`, a matrix, a dictionary of arrays, a table of pandas, polars, pyarrow
            or `datasets`, an index of faiss, a file of any kind in `artifacts.sources.KINDS`, or a
            folder of such files. Of a foreign file with one matrix that matrix is h.
        rows: so many at most, drawn by the seed without replacement; they keep their order.
        seed: seed of the draw.
        inputs: names, labels and pairs that are not in the file.

    Example:
        >>> read(np.eye(100, 5), rows=10).embeddings
        Embeddings(h=(10, 5) float64)
    """
    source = _one_space(_with_inputs(_source(subject, inputs), inputs))
    name, n = source.name, source.n
    need(rows >= 2, lambda: f"`diagnose(rows)` needs at least 2 rows; received {rows}.")
    need(n >= 2, lambda: f"`diagnose` needs at least 2 rows; `{name}` has {n}.")
    kept = np.arange(min(n, rows))
    if n > rows:
        kept = np.sort(np.random.default_rng(seed).choice(n, rows, replace=False))
    embeddings = source.take(kept if n > rows else None, _UNUSED)
    _check(embeddings, name, kept)
    return Reading(_counted(embeddings), name, kept, source)


def _source(subject: Any, inputs: Inputs | None = None) -> Source:
    """Whatever holds embeddings, open."""
    names = {} if inputs is None else inputs.names
    if isinstance(subject, str | os.PathLike):
        return open_source(subject, names)
    if is_frame(subject):
        return from_frame(subject, names)
    if isinstance(subject, Embeddings):
        embeddings = subject
    elif isinstance(subject, Mapping):
        arrays = {key: _array(value) for key, value in subject.items()}
        if names or not set(arrays) <= {*FIELDS, "layers"}:
            return from_arrays(arrays, names)
        embeddings = Embeddings(**arrays)
    else:
        embeddings = Embeddings(h=_array(subject))
    return Source("embeddings", embeddings.arrays(), {})


def _with_inputs(source: Source, inputs: Inputs | None) -> Source:
    if inputs is None or (inputs.labels is None and inputs.pairs is None):
        return source
    arrays = dict(source.arrays)
    if inputs.labels is not None:
        ids = arrays.get("ids")
        known = None if ids is None else lambda: np.asarray(ids[:])
        made = (
            read_labels(inputs.labels, known, source.n)
            if isinstance(inputs.labels, str | os.PathLike)
            else {"labels": np.asarray(inputs.labels)}
        )
        arrays.pop("class_names", None)
        arrays |= made
    if inputs.pairs is not None:
        arrays |= _paired(arrays, _source(inputs.pairs), source)
    return Source(source.name, arrays, source.renamed, source.left)


def _paired(arrays: dict[str, Any], other: Source, source: Source) -> dict[str, Any]:
    """The two sides of pairs: two views where they have one width, else one beside the other."""
    space = "z" if "z" in arrays and "h" not in arrays else "h"
    first = next((arrays[k] for k in (space, "h", "z", "h1", "z1") if k in arrays), None)
    second = next((other.arrays[k] for k in (space, "h", "z") if k in other.arrays), None)
    need(
        first is not None and second is not None,
        lambda: (
            f"`--pairs` needs one matrix in each file; `{source.name}` holds "
            f"{', '.join(arrays)}, `{other.name}` {', '.join(other.arrays)}."
        ),
    )
    if "ids" in arrays and "ids" in other.arrays:
        second = second[_order(np.asarray(arrays["ids"][:]), other)]  # type: ignore[index]
    need(
        len(first) == len(second),  # type: ignore[arg-type]
        lambda: (
            f"`--pairs` needs a partner for each of the {source.n} rows of `{source.name}`; "
            f"`{other.name}` has {other.n}."
        ),
    )
    if first.shape[1] != second.shape[1]:  # type: ignore[union-attr]
        return {"layer_paired": second}
    return {f"{space}1": first, f"{space}2": second}


def _order(ids: np.ndarray, other: Source) -> np.ndarray:
    """Where the partner of each row stands in the other file."""
    theirs = np.asarray(other.arrays["ids"][:])
    at = {str(one): k for k, one in enumerate(theirs.tolist())}
    missing = [one for one in ids.tolist() if str(one) not in at]
    need(
        not missing,
        lambda: (
            f"`--pairs` needs every id in both files; {len(missing)} of {len(ids)} are not in "
            f"`{other.name}`, `{missing[0]}` for one."
        ),
    )
    return np.array([at[str(one)] for one in ids.tolist()])


def _counted(embeddings: Embeddings) -> Embeddings:
    """Labels as 0, 1, ... in their order, where they are numbers of any size; -1 stays."""
    if embeddings.labels is None or int(embeddings.labels.max()) < embeddings.n:
        return embeddings
    known, y = np.unique(embeddings.labels, return_inverse=True)
    return _with(embeddings, {"labels": y - int(known[0] < 0), "class_names": None})


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _one_space(source: Source) -> Source:
    """h and z, which are the first views where only views are given."""
    given = source.arrays
    need(
        any(name in given for name in _SPACES),
        lambda: (
            "`diagnose` needs embeddings: one of h, z, h1 and h2, z1 and z2; received "
            f"{', '.join(given) or 'nothing'}."
        ),
    )
    extra = {
        space: given[f"{space}1"]
        for space in ("h", "z")
        if space not in given and f"{space}1" in given
    }
    return Source(source.name, {**given, **extra}, source.renamed, source.left)


def _with(embeddings: Embeddings, changed: Mapping[str, Any]) -> Embeddings:
    fields = {key: value for key, value in vars(embeddings).items() if value is not None}
    return Embeddings(**{**fields, **changed})


def _check(embeddings: Embeddings, name: str, kept: np.ndarray) -> None:
    for key in _SPACES:
        array = getattr(embeddings, key)
        need(
            array is None or array.shape[1] >= 2,
            lambda key=key, array=array: (
                f"`diagnose` needs at least 2 dimensions: one number has no direction; `{key}` of "
                f"`{name}` has {array.shape[1]}."
            ),
        )
    for key, bad in embeddings.bad_rows().items():
        if key in (*_SPACES, "factors", *_LAYERS):
            first = ", ".join(str(int(kept[row])) for row in bad[:5])
            raise InputError(
                f"`diagnose` needs finite numbers; {len(bad)} of {embeddings.n} rows of `{key}` of "
                f"`{name}` have NaN or infinity: {'row' if len(bad) == 1 else 'rows'} {first}"
                f"{' and more' if len(bad) > 5 else ''}."
            )
    for key in _SPACES:
        array = getattr(embeddings, key)
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
    if embeddings.labels is not None:
        labelled = embeddings.labels[embeddings.labels >= 0]
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
                f"`labels` needs labelled rows; all {embeddings.n} of `{name}` are -1: "
                "leave it out."
            ),
        )
