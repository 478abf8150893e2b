"""The generalised contrastive loss of the variational analysis."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from chiaroscuro.errors import need
from chiaroscuro.kernels import Gaussian, Kernel
from chiaroscuro.numerics import paired_squared, squared_distances
from chiaroscuro.objectives.infonce import pairs_and_sums
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import OtherView

__all__ = ["Generalised"]

_PSI: dict[str, Callable[[Tensor], Tensor]] = {
    "log1p": softplus,
    "log": lambda log_ratio: log_ratio,
    "identity": torch.exp,
    "sqrt": lambda log_ratio: torch.exp(log_ratio / 2),
}
"""Psi of a ratio, as a function of the ratio's logarithm."""


class Generalised(Objective):
    """Generalised loss [calder2025, Def. 2.1, eq. 4] with nondecreasing Psi and similarity eta.

        loss = mean_i Psi( (1/n) sum_j eta(|z_i - z'_j|^2 / 2) / eta(|z_i - z'_i|^2 / 2) )

    z' is the other view; the sum over j contains the positive. The mean runs over the anchors of
    both views, as the expectation over T and T' does, or of the first alone.

    Relations: with Psi = log(1+t) and eta = exp(-t/tau) it is exactly InfoNCE over the other view
    with the positive weighted n+1 instead of 1, minus log n. It is *not* NT-Xent up to a constant,
    as the paper's passage to large n suggests.
    With Psi = log it is `InfoNCE(eta, OtherView())` minus log n.

    Args:
        psi: "log1p" [calder2025, after Def. 2.1], "log", "identity", "sqrt", or any function of
            the ratio (a tensor).
        eta: a kernel (`Gaussian(tau)` is eta(t) = exp(-t/tau)), or any function of t (a tensor)
            that is largest at 0; such a function is evaluated on the whole (n, n) matrix.
        anchors: "both" views or "first".

    Numerics: ratios of kernels stay in the log domain until Psi.

    References:
        calder2025

    Example:
        >>> z = torch.zeros(5, 3)
        >>> round(float(Generalised()(z, z)), 6)  # Psi(1) = log 2
        0.693147
    """

    def __init__(
        self,
        psi: str | Callable[[Tensor], Tensor] = "log1p",
        eta: Kernel | Callable[[Tensor], Tensor] | None = None,
        anchors: str = "both",
    ):
        super().__init__()
        self.psi = psi
        self.eta = Gaussian(tau=0.5) if eta is None else eta
        self.anchors = anchors
        need(
            callable(psi) or (isinstance(psi, str) and psi in _PSI),
            lambda: (
                f"`Generalised(psi)` needs one of {sorted(_PSI)} or a function; received {psi!r}."
            ),
        )
        need(
            callable(self.eta),
            lambda: f"`Generalised(eta)` needs a kernel or a function; received {eta!r}.",
        )
        need(
            anchors in ("both", "first"),
            lambda: f'`Generalised(anchors)` needs "both" or "first"; received {anchors!r}.',
        )

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).mean()

    def losses(self, batch: Batch) -> Tensor:
        both = self.anchors == "both"
        if isinstance(self.eta, Kernel):
            pairs, sums, _ = pairs_and_sums(self.eta, batch, OtherView(), both)
            log_ratio = sums - pairs - math.log(batch.n)
            if isinstance(self.psi, str):
                return _PSI[self.psi](log_ratio).flatten()
            return self.psi(log_ratio.exp()).flatten()
        z1, z2 = batch.pair
        eta = self.eta(squared_distances(z1, z2) / 2)
        own = self.eta(paired_squared(z1, z2) / 2)
        means = [eta.mean(dim=1), eta.mean(dim=0)] if both else [eta.mean(dim=1)]
        ratio = torch.stack(means) / own
        if isinstance(self.psi, str):
            return _PSI[self.psi](ratio.log()).flatten()
        return self.psi(ratio).flatten()
