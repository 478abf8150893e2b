"""Bells around a centre, coordinate by coordinate: what normal and Laplace laws have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from chiaroscuro.data.spaces import Box, Euclidean, Space
from chiaroscuro.data.streams import Array, Stream
from chiaroscuro.errors import need

__all__ = ["Bell"]


@dataclass(frozen=True)
class Bell:
    """exp(-|z_k - c_k|^p / scale_k^p) in every coordinate, cut at the walls of a box if asked.

    Args:
        call: the law as its user wrote it, for sentences.
        p: the power.
        scale: one, or one per coordinate.
        truncated: keep inside the box, and normalise there.

    Example:
        >>> bell = Bell("Normal(1.0)", 2.0, np.array([np.sqrt(2)]), False)
        >>> zero = np.zeros((1, 1))
        >>> round(float(bell.log_density(zero, zero, Euclidean(1))[0]), 4)
        -0.9189
    """

    call: str
    p: float
    scale: NDArray[np.float64]
    truncated: bool

    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        self._fits(centre, space)
        n, k = centre.shape
        if not isinstance(space, Box) or not self.truncated:
            return centre + self._noise(stream, k, self.scale)
        stream = stream.single(k)
        c, scale = centre.reshape(-1, 1), np.broadcast_to(self.scale, (n, k)).reshape(-1, 1)
        z = self._proposed(c, scale, space, stream)
        left = np.flatnonzero((z < space.low) | (z > space.high))
        rejected = left
        while len(left):
            stream = stream.some(rejected)
            again = self._proposed(c[left], scale[left], space, stream)[:, 0]
            z[left, 0] = again
            rejected = np.flatnonzero((again < space.low) | (again > space.high))
            left = left[rejected]
        return z.reshape(n, k)

    def _noise(self, stream: Stream, k: int, scale: Array) -> Array:
        if self.p == 2:
            return stream.normal(k) * (scale / math.sqrt(2))
        if self.p > 20:  # of so small a shape gamma underflows: gamma(a) is gamma(a + 1) u^(1/a)
            size = stream.gamma(1 + 1 / self.p, k) ** (1 / self.p) * stream.uniform(k) * scale
        else:
            size = stream.gamma(1 / self.p, k) ** (1 / self.p) * scale
        return np.copysign(size, stream.uniform(k) - 0.5)

    def _proposed(self, centre: Array, scale: Array, box: Box, stream: Stream) -> Array:
        """Of the bell where it is narrow; where it is wide, of the box, and accepted by the bell.

        What is rejected is outside the box.
        """
        side = box.high - box.low
        # below p = 1 tails are heavy: then half the integral of exp(-|z|^p / scale^p) is the width
        heavy = max(1.0, math.gamma(1 + 1 / self.p)) if self.p > 0.01 else math.inf
        wide = heavy * self.scale > side  # of all rows: a row must not depend on its batch
        if not wide.any():
            return centre + self._noise(stream, 1, scale)
        flat = box.low + side * stream.uniform(1)
        taken = stream.uniform(1) < np.exp(-(np.abs((flat - centre) / scale) ** self.p))
        flat = np.where(taken, flat, np.inf)
        if wide.all():
            return flat
        return np.where(heavy * scale > side, flat, centre + self._noise(stream, 1, scale))

    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        self._fits(centre, space)
        t = np.abs((z - centre) / self.scale) ** self.p
        log_p = math.log(self.p / 2) - special.gammaln(1 / self.p) - np.log(self.scale) - t
        if self.truncated and isinstance(space, Box):
            walls = (centre - space.low, space.high - centre)
            mass = sum(special.gammainc(1 / self.p, (w / self.scale) ** self.p) for w in walls) / 2
            inside = (z >= space.low) & (z <= space.high)
            log_p = np.where(inside, log_p - np.log(mass), -np.inf)
        return log_p.sum(axis=1)

    def _fits(self, centre: Array, space: Space) -> None:
        need(
            isinstance(space, Euclidean | Box) and (isinstance(space, Box) or not self.truncated),
            lambda: (
                f"`{self.call}` needs {'a box' if self.truncated else 'a box or R^d'}; received "
                f"`{space}`. On a sphere take `VonMisesFisher`."
            ),
        )
        if self.truncated and isinstance(space, Box):
            inside = space.contains(centre)
            need(
                bool(inside.all()),
                lambda: (
                    f"`{self.call}` needs centres in the box; {int((~inside).sum())} of "
                    f"{len(inside)} are not."
                ),
            )
        need(
            self.scale.size in (1, centre.shape[1]),
            lambda: (
                f"`{self.call}` needs one scale, or one for each of {centre.shape[1]} coordinates; "
                f"received {self.scale.size}."
            ),
        )
