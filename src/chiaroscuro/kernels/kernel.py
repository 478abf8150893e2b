"""What a kernel is: log k(z, w). The more structure it gives, the faster it is computed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chiaroscuro.errors import InputError, need
from chiaroscuro.kernels.temperature import Tau, Temperature, checked, rate_and_scale
from chiaroscuro.numerics import (
    paired_power,
    paired_squared,
    power,
    power_sums,
    product,
    squared_distances,
    wide,
)
from chiaroscuro.spec import notation, same, say_parameters

__all__ = ["Features", "Kernel", "Leaf", "Part", "by_parts", "mixture", "paired_by_parts"]

_ROWS_AT_ONCE = 64


class Kernel(nn.Module, ABC):
    """Abstract similarity k(z, w) > 0 of two embeddings, defined by its logarithm.

    A kernel of your own needs `log(z, w)` and nothing else: it then works in every objective,
    mixture and diagnostic, by automatic differentiation of blocks of `log(anchors, candidates)`.
    Memory: a few blocks of up to 4 million entries at a time (64 million on an accelerator), as
    many as the formula has intermediate results; under `torch.compile` and `torch.func`, and where
    a gradient is differentiated again, the whole matrix.

    A kernel that is a function of a scalar product or a distance does better as a `Leaf`, whose
    tiles are differentiated by hand, at the speed of the built-in kernels. `Sum` and `Concat` are
    sums of such `parts`.

    Declares:
        stationary: k depends on z - w only.
        positive_definite: every Gram matrix is positive semi-definite. Where a `Leaf` says
            False there are points that refute it; a mixture says False when it cannot promise.
        strictly: Gram matrices of distinct points (of distinct directions, for `Cosine`) are
            invertible as well.

    Example:
        >>> class Triangle(Kernel):
        ...     def log(self, z, w):
        ...         return -torch.cdist(z, w, p=1.0).clamp(max=3.0)
        >>> Triangle()(torch.zeros(1, 2), torch.tensor([[1.0, 1.0], [5.0, 0.0]]))
        tensor([[-2., -3.]])
    """

    stationary: bool = False
    positive_definite: bool = False
    strictly: bool = False

    def __init_subclass__(cls) -> None:
        say_parameters(cls)

    @abstractmethod
    def log(self, z: Tensor, w: Tensor) -> Tensor:
        """log k(z_i, w_j) for all i, j: an (n, m) matrix, by ordinary differentiable operations."""

    def forward(self, z: Tensor, w: Tensor) -> Tensor:
        """The same as `log`: `kernel(z, w)`."""
        return self.log(z, w)

    def log_paired(self, z: Tensor, w: Tensor) -> Tensor:
        """log k(z_i, w_i) row by row."""
        z, w = self._paired(z, w)
        if len(z) == 0:
            return z.new_zeros(0)
        blocks = zip(z.split(_ROWS_AT_ONCE), w.split(_ROWS_AT_ONCE), strict=True)
        return torch.cat([self.matrix(a, b).diagonal() for a, b in blocks])

    def matrix(self, z: Tensor, w: Tensor) -> Tensor:
        """Return `log(z, w)` and refuse one that is not an (n, m) matrix."""
        log_k = self.log(z, w)
        need(
            isinstance(log_k, Tensor) and log_k.shape == (len(z), len(w)),
            lambda: (
                f"`{type(self).__name__}.log(z, w)` needs to return one number for each pair, "
                f"{(len(z), len(w))} here; it returned "
                f"{tuple(log_k.shape) if isinstance(log_k, Tensor) else type(log_k).__name__}."
            ),
        )
        return log_k

    def parts(self, d: int) -> list[Part]:
        """The kernels whose weighted sum is k on R^d; refuses a dimension that does not fit."""
        return [Part(self, 0, d)]

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

    def _paired(self, z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        z, w = self._matching(z, w)
        need(
            len(z) == len(w),
            lambda: (
                f"`{type(self).__name__}.log_paired(z, w)` needs as many rows in both; "
                f"received {len(z)} and {len(w)}."
            ),
        )
        return z, w

    def __repr__(self) -> str:
        return notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    __hash__ = object.__hash__  # nn.Module needs identity here; equality is by value


class Leaf(Kernel):
    """Abstract kernel that is a function of one statistic t of two embeddings.

    The statistic is a . b ("inner"), |a - b|^2 ("squared") or sum_k |a_k - b_k|^p ("power") of the
    features a = base(z), b = base(w), each multiplied per dimension where tau is. The function is
    one of two:

        log k(z, w) = (factor / tau) t^exponent      by declaring `factor`, `exponent`, `degree`
        log k(z, w) = profile(t / tau)               by a formula of your own

    `profile(x)` is made of ordinary elementwise operations. Its derivative is taken automatically
    in each tile; define `slope(x)` to save that time, and `k(x)` where exp(profile(x)) is simpler
    than that.

    Example:
        >>> class Quartic(Leaf):
        ...     statistic = "squared"
        ...
        ...     def profile(self, x):
        ...         return -x.square()
        >>> Quartic(tau=2.0)(torch.zeros(1, 2), torch.tensor([[1.0, 1.0]]))
        tensor([[-1.]])
    """

    p: float = 2.0
    factor: float
    exponent: float

    unit_rows: bool = False
    """The base has rows of norm at most 1."""

    decreasing: bool = False
    """The formula falls as t >= 0 grows, from 0 at t = 0: sums can do without a maximum."""

    smooth: bool = False
    """The slope of the formula is finite at t = 0."""

    tau: float | tuple[float, ...] | Temperature

    def __init__(self, tau: Tau):
        super().__init__()
        kind = type(self)
        lacking = [name for name in ("factor", "exponent", "degree") if not hasattr(kind, name)]
        if lacking and not self.own:
            raise TypeError(
                f"`{kind.__name__}` lacks a formula: define `profile(x)`, or declare "
                f"{' and '.join(f'`{name}`' for name in lacking)}."
            )
        need(
            self.statistic in ("inner", "squared", "power"),
            lambda: (
                f'`{kind.__name__}.statistic` needs "inner", "squared" or "power"; received '
                f"{self.statistic!r}."
            ),
        )
        self.tau = tau if isinstance(tau, Temperature) else checked(kind.__name__, "tau", tau)

    @property
    @abstractmethod
    def statistic(self) -> str:
        """What of two embeddings it depends on: "inner", "squared" or "power"."""

    @property
    def degree(self) -> float:
        """What 1/tau multiplies is homogeneous of this degree in the features."""
        return self.p if self.statistic == "power" else 2.0

    @property
    def own(self) -> bool:
        """Whether log k is a formula of its own, not a power."""
        return type(self).profile is not Leaf.profile

    def profile(self, x: Tensor) -> Tensor:
        """log k as a function of x = t / tau, entry by entry."""
        raise InputError(
            f"`{type(self).__name__}` is a power of its statistic and has no `profile`; call "
            "`log(z, w)`."
        )

    def k(self, x: Tensor) -> Tensor:
        """k itself, exp(profile(x)); override it where it needs neither logarithm nor exponential.

        Only asked for where the exponential neither over- nor underflows.
        """
        return self.profile(x).exp_()

    def slope(self, x: Tensor) -> Tensor:
        """The derivative of `profile`, by automatic differentiation unless it is overridden."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.profile(x).sum(), x)[0]

    def k_and_slope(self, x: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
        """`k(x)` and `slope(x)`; an override may leave them in the memory of x and of `spare`."""
        return self.k(x), self.slope(x)

    def base(self, z: Tensor) -> Tensor:
        """The features before any per-dimension scale: the embedding itself, unless overridden."""
        return z

    def log(self, z: Tensor, w: Tensor) -> Tensor:
        return by_parts(self, z, w)

    def log_paired(self, z: Tensor, w: Tensor) -> Tensor:
        """log k(z_i, w_i) row by row, always from differences, never from an expansion."""
        return paired_by_parts(self, z, w)

    def rate_and_scale(self, like: Tensor) -> tuple[float | Tensor, Tensor | None]:
        """(1/tau, None) for one temperature; a rate and a scale per dimension otherwise."""
        return rate_and_scale(type(self).__name__, self.tau, self.degree, like)

    @property
    def isotropic(self) -> bool:
        """One temperature for all dimensions, so that the features do not depend on it."""
        values = self.tau.init if isinstance(self.tau, Temperature) else self.tau
        return not isinstance(values, tuple)


class Features(NamedTuple):
    """What a part sees of a batch: log k is the rate times a function of the rows."""

    rows: Tensor
    rate: float | Tensor
    base: Tensor
    """The rows before a scale per dimension: near points differ by (base_i - base_j) * scale."""
    scale: Tensor | None


@dataclass(frozen=True)
class Part:
    """One part of a combined kernel: its dimensions and its weight in the sum."""

    kernel: Kernel
    start: int
    stop: int
    weight: float = 1.0

    @property
    def is_leaf(self) -> bool:
        """Whether the member is a function of a statistic, so that it can be tiled."""
        return isinstance(self.kernel, Leaf)

    @property
    def leaf(self) -> Leaf:
        """The member, where it is a `Leaf`."""
        if not isinstance(self.kernel, Leaf):
            raise InputError(f"`{type(self.kernel).__name__}` needs to be a `Leaf` to be tiled.")
        return self.kernel

    def features(self, z: Tensor) -> Features:
        """The rows the statistic compares, and the rate that multiplies the outcome."""
        base = self.leaf.base(self.seen(z))
        rate, scale = self.leaf.rate_and_scale(base)
        return Features(base if scale is None else base * scale, rate, base, scale)

    def seen(self, z: Tensor) -> Tensor:
        """The dimensions of z that the part looks at."""
        return z if self.start == 0 and self.stop == z.shape[1] else z[:, self.start : self.stop]

    def log(self, a: Tensor, b: Tensor, rate: float | Tensor) -> Tensor:
        """log of weight times k for all pairs of feature rows."""
        if self.leaf.statistic == "inner":
            t = product(a, b)
        elif self.leaf.statistic == "squared":
            t = squared_distances(a, b)
        else:
            t = power_sums(a, b, self.leaf.p)
        return self.of_statistic(t, rate)

    def log_paired(self, a: Tensor, b: Tensor, rate: float | Tensor) -> Tensor:
        """log of weight times k, feature row i with feature row i."""
        return self.of_statistic(self.paired(a, b), rate)

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        """The statistic, feature row i with feature row i."""
        if self.leaf.statistic == "inner":
            return (a * b).sum(dim=1)
        if self.leaf.statistic == "squared":
            return paired_squared(a, b)
        return paired_power(a, b, self.leaf.p)

    def of_statistic(self, t: Tensor, rate: float | Tensor) -> Tensor:
        """log of weight times k, given the statistic of feature rows."""
        leaf = self.leaf
        if leaf.own:
            x = t * rate
            if leaf.statistic != "inner" and not leaf.smooth:  # equal points do not pull
                x = torch.where(x > 0, x, x.detach())
            log_k = leaf.profile(x)
        else:
            shaped = t if leaf.exponent == 1 else power(t, leaf.exponent)
            log_k = shaped * (rate * leaf.factor)
        return self.weighted(log_k)

    def weighted(self, log_k: Tensor) -> Tensor:
        """log of weight times k."""
        return log_k if self.weight == 1 else log_k + math.log(self.weight)


def by_parts(kernel: Kernel, z: Tensor, w: Tensor) -> Tensor:
    """log k(z_i, w_j) for all i, j, of a kernel that knows its parts."""
    z, w = kernel._matching(z, w)
    n = len(z)
    logs = []
    for part in kernel.parts(z.shape[1]):
        if part.is_leaf:
            rows, rate, *_ = part.features(torch.cat([z, w]))
            logs.append(part.log(rows[:n], rows[n:], rate))
        else:
            logs.append(part.weighted(part.kernel.matrix(part.seen(z), part.seen(w))))
    return mixture(logs)


def paired_by_parts(kernel: Kernel, z: Tensor, w: Tensor) -> Tensor:
    """log k(z_i, w_i) row by row, of a kernel that knows its parts."""
    z, w = kernel._paired(z, w)
    n = len(z)
    logs = []
    for part in kernel.parts(z.shape[1]):
        if part.is_leaf:
            rows, rate, *_ = part.features(torch.cat([z, w]))
            logs.append(part.log_paired(rows[:n], rows[n:], rate))
        else:
            logs.append(part.weighted(part.kernel.log_paired(part.seen(z), part.seen(w))))
    return mixture(logs)


def mixture(logs: list[Tensor]) -> Tensor:
    """log of the sum of the parts of a kernel, given the logarithm of each."""
    return logs[0] if len(logs) == 1 else torch.logsumexp(torch.stack(logs), dim=0)
