"""One member of a kernel as a function of its statistic, with its rate as a plain number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from chiaroscuro.kernels.kernel import Leaf, Part

__all__ = ["FAINT", "OVERFLOW", "UNDERFLOW", "Term", "number_of", "safe"]

OVERFLOW = 30.0
"""|log k| up to this can be exponentiated and summed without tracking a maximum."""
UNDERFLOW = 60.0
"""And down to minus this: what float32 loses then is below exp(-27) of the sum."""
FAINT = -69.0
"""Shares of a sum below exp(-69) = 1e-30 count as that: denormal numbers would cost much more."""


def number_of(rate: float | Tensor) -> float:
    """A rate as a plain number."""
    return float(rate.detach()) if isinstance(rate, Tensor) else rate


@dataclass(frozen=True)
class Term:
    """One part of the kernel: log k = coefficient * t^exponent, or profile(rate * t); + log weight.

    `coefficient` multiplies what the statistic pushes; for a formula of its own that is the rate.
    """

    part: Part
    index: int
    rate: float

    @cached_property
    def leaf(self) -> Leaf:
        """The kernel of the part."""
        return self.part.leaf

    @cached_property
    def coefficient(self) -> float:
        """What multiplies the power of the statistic, or the statistic inside the formula."""
        return self.rate if self.own else self.leaf.factor * self.rate

    @cached_property
    def own(self) -> bool:
        """Whether log k is a formula of its own."""
        return self.leaf.own

    @cached_property
    def gamma(self) -> float:
        """log k is a power gamma of the distance; 2 where it is linear or a formula of t."""
        return 2.0 if self.own else 2 * self.leaf.exponent

    def depth(self, largest: float, like: Tensor) -> float:
        """How far below 0 log k can be, where the statistic is at most `largest`."""
        if not self.own:
            return abs(self.coefficient) * largest ** (self.gamma / 2)
        if not self.leaf.decreasing:
            return math.inf
        return -float(self.leaf.profile(like.new_tensor(largest * self.rate)))

    def log(self, t: Tensor) -> Tensor:
        """log of weight times k, of a vector of statistics."""
        log_k = (t if self.gamma == 2 else t.pow(self.gamma / 2)) * self.coefficient
        if self.own:
            log_k = self.leaf.profile(log_k)
        return log_k if self.part.weight == 1 else log_k + math.log(self.part.weight)

    def slope(self, t: Tensor) -> Tensor | float:
        """d log k / d t of a vector of statistics; 0 where a distance is 0, for it has none."""
        if self.own:
            slope = self.leaf.slope(t * self.rate) * self.rate
        elif self.gamma == 2:
            return self.coefficient
        else:
            slope = t.pow(self.gamma / 2 - 1) * (self.coefficient * self.gamma / 2)
        return torch.where(t > 0, slope, 0.0) if self.leaf.statistic != "inner" else slope


def safe(terms: Iterable[tuple[Term, float]], like: Tensor) -> bool:
    """Whether every sum is safe without looking for its maximum.

    Args:
        terms: each with an upper bound of the absolute value of its statistic.
        like: a tensor of the format that is computed in.
    """
    given = list(terms)
    heaviest = max(term.part.weight for term, _ in given)
    if not 1e-9 < heaviest < 1e9:  # sums of k itself would leave the format
        return False
    depths = []
    for term, largest in given:
        depth = term.depth(largest, like)
        if (term.leaf.statistic == "inner" or term.own) and not depth <= OVERFLOW:
            return False
        depths.append(depth + math.log(heaviest / term.part.weight))
    return min(depths) <= UNDERFLOW
