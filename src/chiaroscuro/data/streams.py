"""Rows of random numbers: many at once from one generator, or each row from a key of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from chiaroscuro.data.counter import uniforms

__all__ = ["Bulk", "ByRow", "Stream"]

Array = NDArray[np.float64]


class Stream(ABC):
    """Random numbers for n rows; asking again gives new ones (abstract)."""

    n: int

    @abstractmethod
    def uniform(self, k: int) -> Array:
        """(n, k), uniform in [0, 1)."""

    @abstractmethod
    def normal(self, k: int) -> Array:
        """(n, k), standard normal."""

    @abstractmethod
    def gamma(self, shape: float, k: int) -> Array:
        """(n, k), gamma of this shape and scale 1."""

    @abstractmethod
    def beta(self, a: float, k: int) -> Array:
        """(n, k), beta of two equal parameters."""

    @abstractmethod
    def single(self, k: int) -> Stream:
        """Return numbers for n k rows, one for each of k coordinates."""

    @abstractmethod
    def some(self, rows: NDArray[np.int64]) -> Stream:
        """New numbers for some of the rows alone: for those that were rejected."""


class Bulk(Stream):
    """Fast numbers, from numpy's generator: a row depends on how many came before it.

    Args:
        generator: drawn from.
        n: rows.

    Example:
        >>> Bulk(np.random.default_rng(0), 2).normal(3).shape
        (2, 3)
    """

    def __init__(self, generator: np.random.Generator, n: int):
        self.generator, self.n = generator, n

    def uniform(self, k: int) -> Array:
        return self.generator.random((self.n, k))

    def normal(self, k: int) -> Array:
        return self.generator.standard_normal((self.n, k))

    def gamma(self, shape: float, k: int) -> Array:
        return self.generator.standard_gamma(shape, (self.n, k))

    def beta(self, a: float, k: int) -> Array:
        return self.generator.beta(a, a, (self.n, k))

    def single(self, k: int) -> Bulk:
        return Bulk(self.generator, self.n * k)

    def some(self, rows: NDArray[np.int64]) -> Bulk:
        return Bulk(self.generator, len(rows))


class ByRow(Stream):
    """Numbers that are a function of a row's key alone: the same in any batch and order.

    Each law is its quantile function of the counter's uniform numbers.

    Args:
        rows: of the dataset.
        key: what else the numbers are for: seed, epoch, view.

    Example:
        >>> two, one = ByRow(np.array([4, 9]), 0, 1), ByRow(np.array([9]), 0, 1)
        >>> bool((two.normal(3)[1] == one.normal(3)[0]).all())
        True
    """

    def __init__(self, rows: NDArray[np.int64], *key: ArrayLike):
        self.rows, self.key, self.n = np.asarray(rows, np.int64), key, len(rows)
        self.asked = 0

    def uniform(self, k: int) -> Array:
        self.asked += 1
        # between two words, and below 1, so that no quantile is infinite
        u = uniforms(k, *self.key, self.rows, self.asked)
        u += 2.0**-54
        return np.minimum(u, 1 - 2.0**-53, out=u)

    def normal(self, k: int) -> Array:
        return special.ndtri(self.uniform(k))

    def gamma(self, shape: float, k: int) -> Array:
        return special.gammaincinv(shape, self.uniform(k))

    def beta(self, a: float, k: int) -> Array:
        return special.betaincinv(a, a, self.uniform(k))

    def single(self, k: int) -> ByRow:
        self.asked += 1
        places = (self.rows[:, None] * k + np.arange(k)).reshape(-1)
        return ByRow(places, *self.key, self.asked)

    def some(self, rows: NDArray[np.int64]) -> ByRow:
        self.asked += 1
        return ByRow(self.rows[rows], *self.key, self.asked)
