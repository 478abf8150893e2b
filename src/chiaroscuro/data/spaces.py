"""Where latents live: a box, a sphere, or all of R^d."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.errors import need

__all__ = ["Box", "Euclidean", "Space", "Sphere", "rounding"]


@dataclass(frozen=True)
class Space(ABC):
    """A set of latents (abstract).

    Args:
        d: coordinates of a latent.
    """

    d: int

    def __post_init__(self) -> None:
        need(
            isinstance(self.d, int) and not isinstance(self.d, bool) and self.d >= 1,
            lambda: f"`{type(self).__name__}(d)` needs at least 1 dimension; received `{self.d}`.",
        )

    @abstractmethod
    def contains(self, z: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which rows are in it."""

    @abstractmethod
    def centre(self, n: int) -> NDArray[np.float64]:
        """(n, d): the point around which a law lies that is told no other."""

    @abstractmethod
    def block(self, d: int) -> Space:
        """Return where d of the coordinates live."""


@dataclass(frozen=True)
class Box(Space):
    """The box [low, high]^d; [0, 1]^d in [rusak2022, Sec. 4.1].

    Example:
        >>> Box(2).contains(np.array([[0.5, 1.0], [0.5, 1.1]]))
        array([ True, False])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        need(
            all(isinstance(side, (int, float)) for side in (self.low, self.high))
            and self.low < self.high
            and math.isfinite(self.high - self.low),
            lambda: f"`Box(low, high)` needs low < high; received {self.low} and {self.high}.",
        )

    def contains(self, z: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.logical_and.reduce((z >= self.low) & (z <= self.high), axis=1)

    def centre(self, n: int) -> NDArray[np.float64]:
        return np.full((n, self.d), (self.low + self.high) / 2)

    def block(self, d: int) -> Box:
        return Box(d, self.low, self.high)


@dataclass(frozen=True)
class Sphere(Space):
    """The unit sphere S^(d-1) in R^d. Of some coordinates only the direction is free.

    Example:
        >>> Sphere(2).contains(np.array([[0.6, 0.8], [1.0, 1.0]]))
        array([ True, False])
    """

    def contains(self, z: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.abs(np.linalg.norm(z, axis=1) - 1) < rounding(z)

    def centre(self, n: int) -> NDArray[np.float64]:
        return np.repeat(np.eye(1, self.d), n, axis=0)

    def block(self, d: int) -> Sphere:
        return Sphere(d)


def rounding(z: NDArray[Any]) -> float:
    """Return how far from its sphere a latent may be that is kept in the precision of z."""
    return 1e-9 if z.dtype == np.float64 else 1e-6


@dataclass(frozen=True)
class Euclidean(Space):
    """All of R^d.

    Example:
        >>> Euclidean(2).centre(1)
        array([[0., 0.]])
    """

    def contains(self, z: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.logical_and.reduce(np.isfinite(z), axis=1)

    def centre(self, n: int) -> NDArray[np.float64]:
        return np.zeros((n, self.d))

    def block(self, d: int) -> Euclidean:
        return Euclidean(d)
