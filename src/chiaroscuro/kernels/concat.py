"""The concatenation sum kernel: one kernel for each half of the dimensions."""

from __future__ import annotations

from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.kernels.kernel import Kernel, Part, by_parts, paired_by_parts

__all__ = ["Concat"]


class Concat(Kernel):
    """Combine two kernels, each on one half of the dimensions [tan2024, Sec. 5.2].

        log k(z, w) = log( first(z_1..h, w_1..h) + second(z_h+1..d, w_h+1..d) ),   h = d/2

    The paper swaps the halves between Sec. 5.2 (Gaussian first) and Table 2 (Laplacian first), and
    Table 2 sums losses, not kernels: that one is
    `Weighted((w, OnDims(InfoNCE(k1), 0, h)), (1-w, OnDims(InfoNCE(k2), h, d)))`.
    Never strictly positive definite, whatever its members: the four corners of a rectangle with
    one side in each half have a singular Gram matrix.

    Relations: `Concat(k1, k2)` of points that agree in the second half is k1 + k2(0), for a
    stationary k2.

    Args:
        first: kernel of the first d/2 dimensions.
        second: kernel of the others.

    References:
        tan2024

    Example:
        >>> import torch
        >>> from chiaroscuro.kernels import Gaussian, Laplace
        >>> k = Concat(Gaussian(tau=0.5), Laplace(tau=0.5))
        >>> round(float(k.log(torch.zeros(1, 4), torch.zeros(1, 4)).exp()), 5)
        2.0
    """

    strictly = False

    def __init__(self, first: Kernel, second: Kernel):
        super().__init__()
        need(
            isinstance(first, Kernel) and isinstance(second, Kernel),
            lambda: (
                f"`Concat(first, second)` needs two kernels; received "
                f"{type(first).__name__} and {type(second).__name__}."
            ),
        )
        self.first, self.second = first, second
        self.stationary = first.stationary and second.stationary
        self.positive_definite = first.positive_definite and second.positive_definite

    def log(self, z: Tensor, w: Tensor) -> Tensor:
        return by_parts(self, z, w)

    def log_paired(self, z: Tensor, w: Tensor) -> Tensor:
        """log k(z_i, w_i) row by row."""
        return paired_by_parts(self, z, w)

    def parts(self, d: int) -> list[Part]:
        need(
            d % 2 == 0 and d > 0,
            lambda: (
                f"`Concat(first, second)` needs an even dimension, half for each kernel; "
                f"received {d}."
            ),
        )
        h = d // 2
        return [
            Part(part.kernel, part.start + offset, part.stop + offset, part.weight)
            for offset, kernel in ((0, self.first), (h, self.second))
            for part in kernel.parts(h)
        ]
