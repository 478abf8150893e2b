"""Mean and scatter of rows, in one pass: what ranks and dimensions are computed from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chiaroscuro.measures.rows import pieces

__all__ = ["Moments", "moments", "scatter_of"]


class Moments(NamedTuple):
    """Of `n` rows the `mean` (d,), the `scatter` (d, d) and the `largest` (d,) of each dimension.

    `squares` is the sum of all squares.
    """

    n: int
    mean: np.ndarray
    scatter: np.ndarray
    largest: np.ndarray
    squares: float


def moments(x: np.ndarray) -> Moments:
    """Return mean, scatter and largest absolute values of the rows.

        mean = sum_i x_i / n,   scatter = sum_i (x_i - mean)(x_i - mean)'

    Relations: scatter / n is the covariance; its eigenvalues are the squares of the singular
    values of the centred matrix.

    Args:
        x: (n, d), finite, in any precision.

    Numerics: float64, around the mean, in pieces: no copy of all rows is held.

    Example:
        >>> moments(np.array([[1.0, 0.0], [3.0, 0.0]])).scatter.tolist()
        [[2.0, 0.0], [0.0, 0.0]]
    """
    n, d = x.shape
    total, largest, squares = np.zeros(d), np.zeros(d), 0.0
    for _, some in pieces(x):
        total += some.sum(axis=0)
        np.maximum(largest, some.max(axis=0), out=largest)
        np.maximum(largest, -some.min(axis=0), out=largest)
        squares += float(np.einsum("ij,ij->", some, some))
    mean = total / n
    return Moments(n, mean, scatter_of(x, mean), largest, squares)


def scatter_of(x: np.ndarray, mean: np.ndarray, V: np.ndarray | None = None) -> np.ndarray:
    """Return sum_i y_i y_i' of y_i = x_i - mean, rotated by V if given."""
    d = x.shape[1] if V is None else V.shape[1]
    scatter = np.zeros((d, d))
    for _, some in pieces(x):
        y = some - mean if V is None else (some - mean) @ V
        scatter += y.T @ y
    return scatter
