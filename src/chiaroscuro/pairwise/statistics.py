"""Tiles of the pairwise statistic and how a weight on each entry pulls on the rows.

Each class answers three questions about rows A of one group: the tile of statistics of two row
ranges (`tile`), the gradient that weights W on such a tile send to the rows (`push`, accumulated),
and the accumulated gradient in the end (`gradient`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.numerics import NEAR

__all__ = ["Inner", "Power", "Squared"]

Near = tuple[tuple[Tensor, Tensor], bool] | None
"""Rows and columns of a tile's near pairs, and whether the rest of it was computed in float64."""
Offsets = tuple[int, ...]

MANY = 32
"""More near pairs than one in so many, and the whole tile is computed in float64."""
NEAR_IN_DOUBLE = 1e-8
"""What is near there: the expansion still keeps half of its sixteen digits."""


class Inner:
    """t_ij = a_i . a_j, times `sign_and_size`."""

    def __init__(self, base: Tensor, scale: Tensor | None, sign_and_size: float):
        self.rows = base if scale is None else base * scale
        self.factor = sign_and_size

    def largest(self) -> float:
        """An upper bound of |t| over all pairs."""
        return float(torch.linalg.vector_norm(self.rows, dim=1).amax()) ** 2

    def left(self, i: slice) -> Tensor:
        """What a strip of tiles shares: its rows."""
        return self.rows[i]

    def tile(self, left: Tensor, i: slice, j: slice, drop: Offsets, out: Tensor) -> Near:
        out.addmm_(left, self.rows[j].T, beta=0, alpha=self.factor)
        return None

    @property
    def centred(self) -> Tensor:
        """The rows, up to a translation that the statistic does not see."""
        return self.rows

    def zeros(self) -> Tensor:
        return torch.zeros_like(self.rows)

    def push(
        self, weights: Tensor, i: slice, j: slice, near: Near, both: bool, into: Tensor
    ) -> None:
        """Add sum_j W_ij a_j to rows i and, if `both`, sum_i W_ij a_i to rows j."""
        into[i].addmm_(weights, self.rows[j])
        if both:
            into[j].addmm_(weights.T, self.rows[i])

    def paired(self, i: slice, j: slice) -> Tensor:
        """The statistic of row with row, without the factor."""
        return (self.rows[i] * self.rows[j]).sum(dim=1)

    def push_paired(self, weights: Tensor, i: slice, j: slice, into: Tensor) -> None:
        """What weights on row with row add to both sides."""
        into[i].addcmul_(self.rows[j], weights[:, None])
        into[j].addcmul_(self.rows[i], weights[:, None])

    def gradient(self, pushed: Tensor, constant: float) -> Tensor:
        return pushed if constant == 1 else pushed.mul_(constant)


class Squared:
    """t_ij = |a_i - a_j|^2, times `sign_and_size`.

    One product of rows [-2a, |a|^2, 1] and [a, 1, |a|^2] around the common mean gives far pairs.
    Near pairs, which that would cancel, are taken from their differences, one by one; a tile with
    many of them (a batch of tight clusters) is computed in float64, where only the very nearest
    still need their differences.
    """

    def __init__(self, base: Tensor, scale: Tensor | None, sign_and_size: float):
        d = base.shape[1]
        self.base, self.scale = base, scale
        self.rows = base.new_empty(len(base), d + 2)
        self.a = self.rows[:, :d]
        torch.sub(base, base.mean(dim=0), out=self.a)
        if scale is not None:
            self.a *= scale
        self.rows[:, d] = 1
        self.size = self.rows[:, d + 1]
        torch.sum(self.a.square(), dim=1, out=self.size)
        self.factor = sign_and_size
        self.widest = float(self.size.amax()) if len(base) else 0.0
        need(
            math.isfinite(self.widest),
            lambda: (
                f"squared distances need embeddings whose squares fit into {base.dtype}; received "
                f"entries up to {float(base.abs().max()):.3g}. Normalise, or divide by a constant."
            ),
        )
        self._double: Tensor | None = None

    def largest(self) -> float:
        """An upper bound of |t| over all pairs."""
        return 4 * self.widest

    def left(self, i: slice) -> Tensor:
        """What a strip of tiles shares: [-2a, |a|^2, 1] with the factor in it."""
        return self._left(self.rows[i])

    def _left(self, rows: Tensor) -> Tensor:
        d = self.a.shape[1]
        strip = rows * self.factor
        strip[:, :d] *= -2
        strip[:, d:] = strip[:, d:].flip(1)
        return strip

    def tile(self, left: Tensor, i: slice, j: slice, drop: Offsets, out: Tensor) -> Near:
        torch.mm(left, self.rows[j].T, out=out)
        for offset in drop:  # not near anything: they do not take part
            out.diagonal(offset).fill_((4 * self.widest or 1.0) * self.factor)
        return self.settle(i, j, drop, out)

    def settle(self, i: slice, j: slice, drop: Offsets, out: Tensor) -> Near:
        """Take near pairs of a tile, which the product cancelled, from their differences."""
        limit = 2 * self.widest * NEAR * self.factor
        if float(out.amax()) < limit if self.factor < 0 else float(out.amin()) > limit:
            return None
        near = self._near(out, self.rows, NEAR, i, j, drop)
        if len(near[0]) <= out.numel() // MANY or out.dtype == torch.float64:
            self._take_differences(near, i, j, out)
            return near, False
        exact = self._left(self.double[i]) @ self.double[j].T
        near = self._near(exact, self.double, NEAR_IN_DOUBLE, i, j, drop)
        for offset in drop:
            exact.diagonal(offset).copy_(out.diagonal(offset))
        out.copy_(exact)
        self._take_differences(near, i, j, out)
        return near, True

    def _near(
        self, t: Tensor, rows: Tensor, share: float, i: slice, j: slice, drop: Offsets
    ) -> tuple[Tensor, Tensor]:
        """Rows and columns of the pairs that the product cancelled."""
        size = rows[:, -1] * (share * self.factor)
        limit = size[i, None] + size[j]
        close = t >= limit if self.factor < 0 else t <= limit
        for offset in drop:
            close.diagonal(offset).fill_(False)
        i_near, j_near = close.nonzero(as_tuple=True)
        return i_near, j_near

    def _take_differences(
        self, near: tuple[Tensor, Tensor], i: slice, j: slice, out: Tensor
    ) -> None:
        for r, c in _chunks(*near):
            difference = self._difference(self.base[i][r], self.base[j][c])
            out[r, c] = difference.square_().sum(dim=1) * self.factor

    @property
    def double(self) -> Tensor:
        """The rows in float64, made when a tile first asks for them."""
        if self._double is None:
            a = self.base.double() - self.base.mean(dim=0)
            if self.scale is not None:
                a *= self.scale
            size = a.square().sum(dim=1, keepdim=True)
            self._double = torch.cat([a, torch.ones_like(size), size], dim=1)
        return self._double

    @property
    def centred(self) -> Tensor:
        """The rows, up to a translation that the statistic does not see."""
        return self.a

    def zeros(self) -> Tensor:
        return torch.zeros_like(self.rows)

    def push(
        self, weights: Tensor, i: slice, j: slice, near: Near, both: bool, into: Tensor
    ) -> None:
        """Add sum_j W_ij (a_i - a_j) to rows i and, if `both`, the opposite to rows j.

        Accumulated as [sum_j W_ij a_j - what is known as a difference, sum_j W_ij, ...], put
        together in `gradient`.
        """
        d = self.a.shape[1]
        if near is not None:
            pairs, many = near
            # Only coincident points give a weight that is not finite; they do not pull.
            w = weights[pairs].nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            weights[pairs] = 0
            for r, c, v in _chunks(*pairs, w):
                pull = self._difference(self.base[i][r], self.base[j][c]).mul_(v[:, None])
                into[i, :d].index_add_(0, r, pull, alpha=-1)
                if both:
                    into[j, :d].index_add_(0, c, pull)
            if many:
                exact, a = weights.double(), self.double[:, :d]
                into[i, :d] -= a[i] * exact.sum(dim=1)[:, None] - exact @ a[j]
                if both:
                    into[j, :d] -= a[j] * exact.sum(dim=0)[:, None] - exact.T @ a[i]
                return
        into[i].addmm_(weights, self.rows[j])
        if both:
            into[j].addmm_(weights.T, self.rows[i])

    def _difference(self, x: Tensor, y: Tensor) -> Tensor:
        """Differences of the rows, scaled after they were taken: before, they would be rounded."""
        return _scaled(x - y, self.scale)

    def paired(self, i: slice, j: slice) -> Tensor:
        """The statistic of row with row, without the factor."""
        return self._difference(self.base[i], self.base[j]).square_().sum(dim=1)

    def push_paired(self, weights: Tensor, i: slice, j: slice, into: Tensor) -> None:
        """What weights on row with row add to both sides."""
        d = self.a.shape[1]
        pull = self._difference(self.base[i], self.base[j]).mul_(weights[:, None])
        into[i, :d] -= pull
        into[j, :d] += pull

    def gradient(self, pushed: Tensor, constant: float) -> Tensor:
        d = self.a.shape[1]
        return pushed[:, d : d + 1].mul(self.a).sub_(pushed[:, :d]).mul_(constant)


class Power:
    """t_ij = sum_k |a_ik - a_jk|^p, times `sign_and_size`; every difference has to be taken."""

    def __init__(self, base: Tensor, scale: Tensor | None, sign_and_size: float, p: float):
        self.base, self.scale = base, scale
        self.rows = base if scale is None else base * scale
        self.factor = sign_and_size
        self.p = p

    def largest(self) -> float:
        """An upper bound of |t| over all pairs."""
        return float((self.rows.amax(dim=0) - self.rows.amin(dim=0)).pow(self.p).sum())

    def left(self, i: slice) -> Tensor:
        return self.base[i]

    def tile(self, left: Tensor, i: slice, j: slice, drop: Offsets, out: Tensor) -> Near:
        if self.p == 1 and self.scale is None:
            torch.mul(torch.cdist(left, self.base[j], p=1.0), self.factor, out=out)
            return None
        for r in self._strips(left, self.base[j]):
            difference = self._difference(left[r, None], self.base[j]).abs_()
            torch.mul(difference.pow_(self.p).sum(dim=2), self.factor, out=out[r])
        return None

    @property
    def centred(self) -> Tensor:
        """The rows, up to a translation that the statistic does not see."""
        return self.rows

    def zeros(self) -> Tensor:
        return torch.zeros_like(self.rows)

    def push(
        self, weights: Tensor, i: slice, j: slice, near: Near, both: bool, into: Tensor
    ) -> None:
        """Add sum_j W_ij p |a_i - a_j|^(p-1) sign(a_i - a_j) to rows i, the opposite to rows j."""
        a, b = self.base[i], self.base[j]
        for r in self._strips(a, b):
            pull = self._slope(self._difference(a[r, None], b)).mul_(weights[r, :, None])
            into[i][r] += pull.sum(dim=1)
            if both:
                into[j] -= pull.sum(dim=0)

    def _strips(self, a: Tensor, b: Tensor) -> list[slice]:
        """Rows of a whose differences with all of b take eight megabytes."""
        step = max(1, (1 << 21) // max(1, b.numel()))
        return [slice(r, r + step) for r in range(0, len(a), step)]

    def paired(self, i: slice, j: slice) -> Tensor:
        """The statistic of row with row, without the factor."""
        return self._difference(self.base[i], self.base[j]).abs_().pow_(self.p).sum(dim=1)

    def push_paired(self, weights: Tensor, i: slice, j: slice, into: Tensor) -> None:
        """What weights on row with row add to both sides."""
        pull = self._slope(self._difference(self.base[i], self.base[j])).mul_(weights[:, None])
        into[i] += pull
        into[j] -= pull

    def _difference(self, x: Tensor, y: Tensor) -> Tensor:
        return _scaled(x - y, self.scale)

    def _slope(self, difference: Tensor) -> Tensor:
        """|x|^(p-1) sign(x), and zero at zero."""
        slope = difference.abs().pow_(self.p - 1).masked_fill_(difference == 0, 0.0)
        return slope.mul_(difference.sign_())

    def gradient(self, pushed: Tensor, constant: float) -> Tensor:
        return pushed.mul_(constant * self.p)


def _scaled(difference: Tensor, scale: Tensor | None) -> Tensor:
    return difference if scale is None else difference.mul_(scale)


def _chunks(*index: Tensor, at_once: int = 1 << 15) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(x.split(at_once) for x in index), strict=True)
