"""What a kernel is: log k(z, w), as a weighted sum of parts that share one simple form."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.kernels.temperature import Tau, Temperature, checked, rate_and_scale
from chiaroscuro.numerics import (
    paired_power,
    paired_squared,
    power,
    power_sums,
    squared_distances,
    wide,
)
from chiaroscuro.spec import notation, same

__all__ = ["Features", "Kernel", "Leaf", "Part", "mixture"]


class Kernel(nn.Module):
    """A similarity k(z, w) > 0 of two embeddings, known by its logarithm (abstract).

    Every kernel is a weighted sum of `Leaf` kernels on slices of the dimensions (`parts`). From
    these alone follow the dense matrix `log`, the row-wise `log_paired`, and the tiled
    log-sum-exp of `chiaroscuro.pairwise`.

    Declares:
        stationary: k depends on z - w only.
        positive_definite: every Gram matrix is positive semi-definite. Where a `Leaf` says
            False there are points that refute it; a mixture says False when it cannot promise.
        strictly: Gram matrices of distinct points (of distinct directions, for `Cosine`) are
            invertible as well.
    """

    stationary: bool
    positive_definite: bool
    strictly: bool

    @abstractmethod
    def parts(self, d: int) -> list[Part]:
        """The leaves whose weighted sum is k on R^d; refuses a dimension that does not fit."""

    def log(self, z: Tensor, w: Tensor) -> Tensor:
        """log k(z_i, w_j) for all i, j: an (n, m) matrix, by ordinary differentiable operations."""
        z, w = self._matching(z, w)
        n = len(z)
        logs = []
        for part in self.parts(z.shape[1]):
            rows, rate, *_ = part.features(torch.cat([z, w]))
            logs.append(part.log(rows[:n], rows[n:], rate))
        return mixture(logs)

    def log_paired(self, z: Tensor, w: Tensor) -> Tensor:
        """log k(z_i, w_i) row by row, always from differences, never from an expansion."""
        z, w = self._matching(z, w)
        need(
            len(z) == len(w),
            lambda: (
                f"`{type(self).__name__}.log_paired(z, w)` needs as many rows in both; "
                f"received {len(z)} and {len(w)}."
            ),
        )
        n = len(z)
        logs = []
        for part in self.parts(z.shape[1]):
            rows, rate, *_ = part.features(torch.cat([z, w]))
            logs.append(part.log_paired(rows[:n], rows[n:], rate))
        return mixture(logs)

    def _matching(self, z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        name = type(self).__name__
        for x in (z, w):
            need(
                isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point(),
                lambda x=x: (
                    f"`{name}` needs floating-point matrices (n, d); received "
                    f"{getattr(x, 'dtype', type(x).__name__)} of shape "
                    f"{tuple(getattr(x, 'shape', ()))}."
                ),
            )
        need(
            z.shape[1] == w.shape[1],
            lambda: (
                f"`{name}` needs embeddings of one dimension; received {z.shape[1]} "
                f"and {w.shape[1]}."
            ),
        )
        return wide(z), wide(w)

    def __repr__(self) -> str:
        return notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    __hash__ = object.__hash__  # nn.Module needs identity here; equality is by value


class Leaf(Kernel):
    """A kernel of one form, log k(z, w) = (factor / tau) * t^exponent (abstract).

    The statistic t is a . b ("inner"), |a - b|^2 ("squared") or sum_k |a_k - b_k|^p ("power") of
    the features a = base(z), b = base(w), each multiplied per dimension where tau is.
    """

    statistic: str
    factor: float
    exponent: float
    p: float = 2.0
    degree: float
    """t^exponent is homogeneous of this degree in the features."""

    unit_rows: bool = False
    """The base has rows of norm at most 1."""

    tau: float | tuple[float, ...] | Temperature

    def __init__(self, tau: Tau):
        super().__init__()
        self.tau = tau if isinstance(tau, Temperature) else checked(type(self).__name__, "tau", tau)

    def base(self, z: Tensor) -> Tensor:
        """The features before any per-dimension scale: the embedding itself, unless overridden."""
        return z

    def rate_and_scale(self, like: Tensor) -> tuple[float | Tensor, Tensor | None]:
        """(1/tau, None) for one temperature; a rate and a scale per dimension otherwise."""
        return rate_and_scale(type(self).__name__, self.tau, self.degree, like)

    @property
    def isotropic(self) -> bool:
        """One temperature for all dimensions, so that the features do not depend on it."""
        values = self.tau.init if isinstance(self.tau, Temperature) else self.tau
        return not isinstance(values, tuple)

    def parts(self, d: int) -> list[Part]:
        return [Part(self, 0, d)]


class Features(NamedTuple):
    """What a part sees of a batch: log k is the rate times a function of the rows."""

    rows: Tensor
    rate: float | Tensor
    base: Tensor
    """The rows before a scale per dimension: near points differ by (base_i - base_j) * scale."""
    scale: Tensor | None


@dataclass(frozen=True)
class Part:
    """One leaf of a kernel: on which dimensions it looks, and with which weight it is summed."""

    leaf: Leaf
    start: int
    stop: int
    weight: float = 1.0

    def features(self, z: Tensor) -> Features:
        """The rows the statistic compares, and the rate that multiplies the outcome."""
        base = self.leaf.base(z if self.whole(z) else z[:, self.start : self.stop])
        rate, scale = self.leaf.rate_and_scale(base)
        return Features(base if scale is None else base * scale, rate, base, scale)

    def whole(self, z: Tensor) -> bool:
        """Whether the part looks at all dimensions of z."""
        return self.start == 0 and self.stop == z.shape[1]

    def log(self, a: Tensor, b: Tensor, rate: float | Tensor) -> Tensor:
        """log of weight times k for all pairs of feature rows."""
        if self.leaf.statistic == "inner":
            t = a @ b.T
        elif self.leaf.statistic == "squared":
            t = squared_distances(a, b)
        else:
            t = power_sums(a, b, self.leaf.p)
        return self._profile(t, rate)

    def log_paired(self, a: Tensor, b: Tensor, rate: float | Tensor) -> Tensor:
        """log of weight times k, feature row i with feature row i."""
        if self.leaf.statistic == "inner":
            t = (a * b).sum(dim=1)
        elif self.leaf.statistic == "squared":
            t = paired_squared(a, b)
        else:
            t = paired_power(a, b, self.leaf.p)
        return self._profile(t, rate)

    def _profile(self, t: Tensor, rate: float | Tensor) -> Tensor:
        shaped = t if self.leaf.exponent == 1 else power(t, self.leaf.exponent)
        log_k = shaped * (rate * self.leaf.factor)
        return log_k if self.weight == 1 else log_k + math.log(self.weight)


def mixture(logs: list[Tensor]) -> Tensor:
    """log of the sum of the parts of a kernel, given the logarithm of each."""
    return logs[0] if len(logs) == 1 else torch.logsumexp(torch.stack(logs), dim=0)
