"""Mixings g: from latents to what is observed, x = g(z), and back."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.errors import InputError, need

__all__ = ["LeakyMLP", "Linear", "Mixing", "Orthogonal"]

Array = NDArray[np.float64]
TRIES = 5_000


@dataclass(frozen=True)
class Mixing(ABC):
    """An invertible map of R^d whose weights are a function of its seed (abstract).

    Args:
        d: dimension.
    """

    d: int

    def __post_init__(self) -> None:
        need(
            isinstance(self.d, int) and not isinstance(self.d, bool) and self.d >= 1,
            lambda: f"`{type(self).__name__}(d)` needs at least 1 dimension; received `{self.d}`.",
        )

    @abstractmethod
    def __call__(self, z: Array) -> Array:
        """g(z), row by row."""

    @abstractmethod
    def inverse(self, x: Array) -> Array:
        """Return the z with g(z) = x."""

    @abstractmethod
    def log_det(self, z: Array) -> Array:
        """log |det dg/dz| at each row."""


@dataclass(frozen=True)
class Linear(Mixing):
    """g(z) = A z, A with unit columns and a bounded condition number.

    Args:
        condition: largest condition number; matrices are drawn until one obeys. 10 is ours: at
            d = 10 one matrix of fifteen has it.
        seed: seed of A.

    Example:
        >>> g, z = Linear(3), np.eye(3)
        >>> bool(np.allclose(g.inverse(g(z)), z)), float(np.linalg.cond(g.weight)) <= 10
        (True, True)
    """

    condition: float = 10.0
    seed: int = 0

    @functools.cached_property
    def weight(self) -> Array:
        """A."""
        return _drawn("Linear", self.d, self.condition, np.random.default_rng(self.seed))

    def __call__(self, z: Array) -> Array:
        return z @ self.weight.T

    def inverse(self, x: Array) -> Array:
        return _solved(self.weight, x)

    def log_det(self, z: Array) -> Array:
        return np.full(len(z), np.linalg.slogdet(self.weight)[1])


@dataclass(frozen=True)
class Orthogonal(Mixing):
    """g(z) = Q z, Q orthogonal and uniform among those.

    Example:
        >>> g = Orthogonal(3)
        >>> bool(np.allclose(g.weight @ g.weight.T, np.eye(3)))
        True
    """

    seed: int = 0

    @functools.cached_property
    def weight(self) -> Array:
        """Q."""
        q, r = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(self.d, self.d)))
        return q * np.sign(np.diag(r))

    def __call__(self, z: Array) -> Array:
        return z @ self.weight.T

    def inverse(self, x: Array) -> Array:
        return x @ self.weight

    def log_det(self, z: Array) -> Array:
        return np.zeros(len(z))


@dataclass(frozen=True)
class LeakyMLP(Mixing):
    """Square linear layers with a leaky ReLU between them [zimmermann2021clica; rusak2022, 4.1].

        g(z) = A_depth a(... a(A_1 z)),   a(t) = t for t > 0, slope t else

    Invertible layer by layer; the guard keeps the inverse well conditioned. Piecewise linear, so
    log |det| is exact: that of the layers plus log(slope) for every unit below 0.

    Args:
        depth: linear layers; 3 [rusak2022, Sec. 4.1]. 1 is `Linear`.
        slope: 0.2 [zimmermann2021clica, their code].
        condition: largest condition number of each layer, as for `Linear`.
        seed: seed of the layers.

    Example:
        >>> g = LeakyMLP(4)
        >>> z = np.random.default_rng(0).normal(size=(5, 4))
        >>> bool(np.abs(g.inverse(g(z)) - z).max() < 1e-12)
        True
    """

    depth: int = 3
    slope: float = 0.2
    condition: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        need(
            isinstance(self.depth, int) and self.depth >= 1 and 0 < self.slope <= 1,
            lambda: (
                "`LeakyMLP(depth, slope)` needs depth >= 1 and 0 < slope <= 1; received "
                f"{self.depth} and {self.slope}."
            ),
        )

    @functools.cached_property
    def weights(self) -> tuple[Array, ...]:
        """A_1, ..., A_depth."""
        generator = np.random.default_rng(self.seed)
        draw = lambda: _drawn("LeakyMLP", self.d, self.condition, generator)
        return tuple(draw() for _ in range(self.depth))

    def __call__(self, z: Array) -> Array:
        for weight in self.weights[:-1]:
            z = z @ weight.T
            z = np.where(z > 0, z, self.slope * z)
        return z @ self.weights[-1].T

    def inverse(self, x: Array) -> Array:
        for weight in self.weights[:0:-1]:
            x = _solved(weight, x)
            x = np.where(x > 0, x, x / self.slope)
        return _solved(self.weights[0], x)

    def log_det(self, z: Array) -> Array:
        total = np.full(len(z), sum(np.linalg.slogdet(weight)[1] for weight in self.weights))
        for weight in self.weights[:-1]:
            z = z @ weight.T
            total += math.log(self.slope) * (z <= 0).sum(axis=1)
            z = np.where(z > 0, z, self.slope * z)
        return total


def _solved(weight: Array, x: Array) -> Array:
    """Return the rows z with weight z = x."""
    return np.asarray(np.linalg.solve(weight, x.T).T, np.float64)


def _drawn(call: str, d: int, condition: float, generator: np.random.Generator) -> Array:
    """Return the first matrix of normal entries and unit columns whose condition number obeys."""
    best = math.inf
    # large ones in small blocks, and fewer: their condition numbers grow with d and differ less
    block = max(1, min(500, 2**22 // d**2))
    blocks = math.ceil(TRIES * min(1.0, (32 / d) ** 3) / block)
    tries = block * blocks
    for _ in range(0, tries, block):
        weights = generator.normal(size=(block, d, d))
        weights /= np.linalg.norm(weights, axis=1, keepdims=True)
        conditions = np.linalg.cond(weights)
        good = np.flatnonzero(conditions <= condition)
        if len(good):
            return weights[good[0]]
        best = min(best, float(conditions.min()))
    raise InputError(
        f"`{call}(d={d}, condition={condition:g})` found no such matrix among {tries}; the best "
        f"has condition number {best:.3g}. Allow a larger one, or take `Orthogonal`."
    )
