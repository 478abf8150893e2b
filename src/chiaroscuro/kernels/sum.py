"""Weighted sums of kernels: the simple sum kernel and its kin."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from chiaroscuro.errors import need, number
from chiaroscuro.kernels.kernel import Kernel, Part, by_parts, paired_by_parts

__all__ = ["Sum"]


class Sum(Kernel):
    """Weighted sum of kernels [tan2024, Sec. 5.2, simple sum kernel].

        log k(z, w) = log sum_m weights_m k_m(z, w)

    Not to be confused with a sum of losses [tan2024, Table 2], which is
    `Weighted((w1, InfoNCE(k1)), (w2, InfoNCE(k2)))` and another objective.

    Relations: under InfoNCE, scaling all weights changes nothing; `Sum(k)` is `k`.

    Args:
        kernels: two or more kernels (one is allowed), possibly sums themselves.
        weights: one positive number per kernel; all 1 as in [tan2024, Sec. 5.2].

    References:
        tan2024

    Example:
        >>> import torch
        >>> from chiaroscuro.kernels import Gaussian, Laplace
        >>> k = Sum(Gaussian(tau=0.5), Laplace(tau=0.5), weights=(1.0, 3.0))
        >>> round(float(k.log(torch.zeros(1, 2), torch.zeros(1, 2)).exp()), 5)
        4.0
    """

    def __init__(self, *kernels: Kernel, weights: Sequence[float] | None = None):
        super().__init__()
        need(
            len(kernels) > 0 and all(isinstance(k, Kernel) for k in kernels),
            lambda: f"`Sum(...)` needs kernels; received {[type(k).__name__ for k in kernels]}.",
        )
        given = (1.0,) * len(kernels) if weights is None else weights
        need(
            isinstance(given, (tuple, list)) and len(given) == len(kernels),
            lambda: (
                f"`Sum(..., weights)` needs one weight for each of {len(kernels)} kernels; "
                f"received {weights!r}."
            ),
        )
        each = tuple(number("Sum", "weights", w, above=True) for w in given)
        self.kernels = kernels
        for m, kernel in enumerate(kernels):
            self.add_module(str(m), kernel)
        self.weights = None if set(each) == {1.0} else each
        self.stationary = all(k.stationary for k in kernels)
        self.positive_definite = all(k.positive_definite for k in kernels)
        self.strictly = self.positive_definite and any(k.strictly for k in kernels)

    def log(self, z: Tensor, w: Tensor) -> Tensor:
        return by_parts(self, z, w)

    def log_paired(self, z: Tensor, w: Tensor) -> Tensor:
        """log k(z_i, w_i) row by row."""
        return paired_by_parts(self, z, w)

    def parts(self, d: int) -> list[Part]:
        weights = self.weights or (1.0,) * len(self.kernels)
        return [
            Part(part.kernel, part.start, part.stop, weight * part.weight)
            for weight, kernel in zip(weights, self.kernels, strict=True)
            for part in kernel.parts(d)
        ]
