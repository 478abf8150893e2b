"""Temperatures per dimension that are measured while training goes on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chiaroscuro.errors import need, number
from chiaroscuro.kernels.temperature import Temperature, checked, checked_pairs
from chiaroscuro.numerics import widest

__all__ = ["Adaptive"]


class Adaptive(Temperature):
    """One temperature per dimension, measured from how much that dimension varies within a pair.

        share_k = mean (z1_k - z2_k)^2 / 2 / var z_k        measured, a running mean
        tau_k proportional to share_k^power, at most a factor `most` from its geometric mean, `tau`

    Content has a small share and gets a small temperature, style a large one: [rusak2022, Prop. 3]
    asks for tau_c / tau_s = sigma_c / sigma_s, which is power 1/2 for equal marginals. True content
    has share 0: the bound keeps its temperature above 0. Nothing is trained: `adapt(objective, z1,
    z2)` looks at a batch and moves the shares, and `train` calls it at every step.

    Relations: before it has seen a batch it equals the plain number `tau`. The product of all
    tau_k is tau^d unless the bound cuts. Pairs that are equal in all dimensions, or unrelated in
    all, leave it there. A scale of a dimension changes nothing.

    Args:
        tau: the geometric mean; as of the kernel it is for.
        d: dimensions.
        power: 1/2 [rusak2022, Prop. 3]; negative gives content the larger temperature.
        most: tau_k stays between tau / most and tau most; 10 is ours.
        momentum: of the running mean, per batch; 0.99 is ours.
        share: what was measured, as read back from a notation.

    References:
        rusak2022

    Example:
        >>> tau = Adaptive(0.5, d=2, momentum=0.0)
        >>> z1 = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> tau.observe(z1, torch.tensor([[0.1, 0.4], [1.1, 0.6]]))
        >>> [round(x, 3) for x in tau.value().tolist()]
        [0.212, 1.181]
    """

    share: Tensor

    def __init__(
        self,
        tau: float,
        d: int,
        power: float = 0.5,
        most: float = 10.0,
        momentum: float = 0.99,
        share: float | Sequence[float] = 1.0,
    ):
        super().__init__()
        need(
            isinstance(d, int) and d >= 1,
            lambda: f"`Adaptive(tau, d)` needs at least 1 dimension; received {d!r}.",
        )
        self.tau = checked("Adaptive", "tau", tau)
        need(
            isinstance(self.tau, float),
            lambda: f"`Adaptive(tau, d)` needs one number for all dimensions; received {tau}.",
        )
        self.d, self.init = d, (self.tau,) * d  # type: ignore[assignment]
        self.power = number("Adaptive", "power", power, least=-float("inf"))
        self.most = number("Adaptive", "most", most, least=1.0, above=True)
        self.momentum = number("Adaptive", "momentum", momentum)
        need(
            self.momentum < 1,
            lambda: f"`Adaptive(momentum)` needs a number from 0 to below 1; received {momentum}.",
        )
        start = torch.as_tensor(share, dtype=torch.float32)
        need(
            start.shape in ((), (d,)) and bool((start >= 0).all() and start.isfinite().all()),
            lambda: (
                f"`Adaptive(d, share)` needs numbers >= 0, one or one for each of {d} dimensions; "
                f"received {share}."
            ),
        )
        self.register_buffer("share", start.expand(d).clone())

    @torch.no_grad()
    def observe(self, z1: Tensor, z2: Tensor) -> None:
        """Move the shares towards those of a batch of pairs (n, d)."""
        checked_pairs("Adaptive", self.d, z1, z2)
        within = widest(z1 - z2).square().mean(dim=0) / 2
        total = widest(torch.cat([z1, z2])).var(dim=0, correction=0)
        now = torch.where(total > 0, within / total, 1.0).to(self.share.dtype)
        self.share.lerp_(now, 1 - self.momentum)

    def value(self) -> Tensor:
        """(d,), a constant of the step."""
        log_share = widest(self.share).clamp(min=1e-12).log() * self.power
        factor = (log_share - log_share.mean()).exp().clamp(1 / self.most, self.most)
        return float(self.tau) * factor  # type: ignore[arg-type]
