"""Rows of numbers: what every measure takes, checked once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from chiaroscuro.errors import need

__all__ = [
    "as_array",
    "labels_of",
    "matrix_of",
    "pairs_of",
    "pieces",
    "rows_of",
    "some_of",
    "spaced",
    "unit",
]

PIECE = 1 << 20
"""Numbers of a piece of a matrix: 8 MB as float64."""


def as_array(value: Any) -> np.ndarray:
    """Return an array from an array, a list, or a tensor of any device without its gradient."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return value.numpy()
    return np.asarray(value)


def matrix_of(call: str, h: Any, least: int = 2) -> np.ndarray:
    """Return the rows as a matrix in the precision they have, or refuse what is no finite matrix.

    For what goes through the rows in `pieces`, so that no float64 copy of all of them is made.

    Example:
        >>> matrix_of("norms(h)", np.ones((2, 3), dtype=np.float32)).dtype
        dtype('float32')
    """
    x = as_array(h)
    need(
        x.dtype.kind in "biuf" or x.dtype.kind == "O",
        lambda: f"`{call}` needs real numbers; received {x.dtype}.",
    )
    need(
        x.ndim == 2 and len(x) >= least and x.shape[1] > 0,
        lambda: f"`{call}` needs a matrix (n, d) of at least {least} rows; received {x.shape}.",
    )
    if x.dtype.kind == "O":
        x = x.astype(np.float64)
    if x.dtype.kind != "f":
        return x
    squares = (float(np.einsum("ij,ij->", some, some)) for _, some in pieces(x))
    if not np.isfinite(sum(squares)):  # one pass; then a search, if at all
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
        need(
            len(bad) == 0,
            lambda: (
                f"`{call}` needs finite numbers; {len(bad)} of {len(x)} rows have NaN or infinity, "
                f"the first is row {int(bad[0])}."
            ),
        )
    return x


def rows_of(call: str, h: Any, least: int = 2) -> np.ndarray:
    """Return the rows as a float64 matrix; raise an error if they are not a finite matrix.

    Example:
        >>> rows_of("effective_rank", [[1, 2], [3, 4]]).dtype
        dtype('float64')
    """
    return matrix_of(call, h, least).astype(np.float64, copy=False)


def pieces(x: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield which rows, and these rows in float64, some at a time.

    Example:
        >>> [(at.start, part.dtype) for at, part in pieces(np.ones((2, 3), dtype=np.float32))]
        [(0, dtype('float64'))]
    """
    step = max(1, PIECE // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        at = slice(start, min(start + step, len(x)))
        yield at, x[at].astype(np.float64, copy=False)


def labels_of(call: str, labels: Any, n: int) -> np.ndarray:
    """Return the labels as int64, one for each of n rows, none negative."""
    y = as_array(labels)
    need(
        y.shape == (n,) and y.dtype.kind in "biu",
        lambda: (
            f"`{call}` needs one whole number as label for each of {n} rows; received {y.dtype} of "
            f"shape {y.shape}."
        ),
    )
    y = y.astype(np.int64)
    need(
        bool((y >= 0).all()),
        lambda: (
            f"`{call}` needs labels from 0; {int((y < 0).sum())} of {n} are negative, which means "
            "unlabelled: leave those rows out."
        ),
    )
    return y


def pairs_of(call: str, h1: Any, h2: Any, least: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return two views as float64 matrices of one shape, row i of both from sample i.

    Example:
        >>> pairs_of("alignment(h1, h2)", np.eye(2), np.eye(3))
        Traceback (most recent call last):
        chiaroscuro.errors.InputError: `alignment(h1, h2)` needs paired rows; received (2, 2) and
        (3, 3).
    """
    x1, x2 = rows_of(call, h1, least), rows_of(call, h2, least)
    need(
        x1.shape == x2.shape,
        lambda: f"`{call}` needs paired rows; received {x1.shape} and {x2.shape}.",
    )
    return x1, x2


def unit(x: np.ndarray) -> np.ndarray:
    """Return u = x / |x| in float64; a zero row stays zero, tiny and huge rows stay exact.

    Example:
        >>> unit(np.array([[3.0, 4.0], [0.0, 0.0], [1e-300, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]]
    """
    x = np.asarray(x, dtype=np.float64)
    largest = np.maximum(
        x.max(axis=1, keepdims=True, initial=0.0), -x.min(axis=1, keepdims=True, initial=0.0)
    )
    extreme = (largest > 1e140) | ((largest > 0) & (largest < 1e-140))
    if extreme.any():
        x = x / np.where(extreme, largest, 1.0)  # so that squares neither vanish nor overflow
    norm = np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
    return x / np.where(norm > 0, norm, 1.0)


def spaced(n: int, most: int) -> np.ndarray:
    """Return at most so many of n row numbers, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def some_of(call: str, n: int, rows: int | None, seed: int) -> np.ndarray:
    """Return the rows to use: all n if `rows` is None or large enough, otherwise a random sample.

    The rows keep their order.

    Example:
        >>> some_of("uniformity", 5, None, seed=0).tolist()
        [0, 1, 2, 3, 4]
        >>> len(some_of("uniformity", 100, 7, seed=0))
        7
    """
    need(
        rows is None or (isinstance(rows, int) and rows >= 2),
        lambda: f"`{call}` needs at least 2 rows, or None for all of them; received {rows!r}.",
    )
    if rows is None or rows >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, rows, replace=False))
