"""Temperatures per dimension that are trained, and cannot all fall."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need, number
from chiaroscuro.kernels.temperature import Temperature, checked, checked_pairs
from chiaroscuro.numerics import widest

__all__ = ["Balanced"]


class Balanced(Temperature):
    """One trainable temperature per dimension, with a fixed mean.

        1 / tau = sum_k v_k / tau_k / sum_k v_k     v_k measured: the variance of dimension k
        tau_k proportional to exp(b_k),  b_k = log(most) tanh(a_k / log(most)),  a trained, 0 first

    A temperature that is trained alone falls, because that lowers the loss of every embedding that
    is better than chance. Here z has the same variance after division by tau_k as after division by
    tau: what is learnt is which dimensions count, not how sharp the loss is. The weights v_k are
    needed for that. Under a mean without them (the geometric one, say) training raises tau_k of
    some dimensions, moves all variance into the others, and the loss is as sharp as it likes.

    `adapt(objective, z1, z2)` looks at a batch and moves v, and `train` calls it at every step; in
    a loop without it v is 1 and dimensions that die still sharpen the loss, at most by the number
    of all dimensions over that of those alive.

    Relations: before any step it equals the plain number `tau`. A dimension that is constant has no
    influence on the others.

    Args:
        tau: the mean; as of the kernel it is for.
        d: dimensions.
        most: tau_k stays between tau / most^2 and tau most^2; 10 is ours.
        momentum: of the running mean of v, per batch; 0.9 is ours.
        log_ratio: a, how far training has come, as read back from a notation.
        variance: v over its mean, as read back from a notation.

    References:
        rusak2022

    Example:
        >>> Balanced(0.5, d=3)
        Balanced(tau=0.5, d=3, most=10.0, momentum=0.9, log_ratio=0.0, variance=1.0)
        >>> tau = Balanced(0.5, d=2, log_ratio=[1.0, -1.0], variance=[0.5, 1.5]).value()
        >>> round(2 / (0.5 / tau[0] + 1.5 / tau[1]).item(), 6)
        0.5
    """

    moments: Tensor

    def __init__(
        self,
        tau: float,
        d: int,
        most: float = 10.0,
        momentum: float = 0.9,
        log_ratio: float | Sequence[float] = 0.0,
        variance: float | Sequence[float] = 1.0,
    ):
        super().__init__()
        need(
            isinstance(d, int) and d >= 1,
            lambda: f"`Balanced(tau, d)` needs at least 1 dimension; received {d!r}.",
        )
        self.tau = checked("Balanced", "tau", tau)
        need(
            isinstance(self.tau, float),
            lambda: f"`Balanced(tau, d)` needs one number for all dimensions; received {tau}.",
        )
        self.d, self.most = d, number("Balanced", "most", most, least=1.0, above=True)
        self.momentum = number("Balanced", "momentum", momentum)
        need(
            self.momentum < 1,
            lambda: f"`Balanced(momentum)` needs a number from 0 to below 1; received {momentum}.",
        )
        self.init = (self.tau,) * d  # type: ignore[assignment]
        start = torch.as_tensor(log_ratio, dtype=torch.float32)
        need(
            start.ndim == 0 or start.shape == (d,),
            lambda: (
                f"`Balanced(d, log_ratio)` needs one `log_ratio`, or one for each of {d} "
                f"dimensions; received shape {tuple(start.shape)}."
            ),
        )
        seen = torch.as_tensor(variance, dtype=torch.float32)
        need(
            seen.shape in ((), (d,)) and bool((seen >= 0).all() and seen.isfinite().all())
            and bool((seen > 0).any()),
            lambda: (
                f"`Balanced(d, variance)` needs numbers >= 0 and not all 0, one or one for each of "
                f"{d} dimensions; received {variance}."
            ),
        )  # fmt: skip
        self.weight = nn.Parameter(start.expand(d).clone())
        self.register_buffer("moments", seen.expand(d).clone())

    @property
    def log_ratio(self) -> float | list[float]:
        """a, as a notation has it: one number while all are equal."""
        return _noted(self.weight.detach())

    @property
    def variance(self) -> float | list[float]:
        """v, as a notation has it: one number while all are equal."""
        return _noted(self.moments)

    @torch.no_grad()
    def observe(self, z1: Tensor, z2: Tensor) -> None:
        """Move the variances towards those of a batch of pairs (n, d), over their mean."""
        checked_pairs("Balanced", self.d, z1, z2)
        now = widest(torch.cat([z1, z2])).var(dim=0, correction=0)
        mean = now.mean()
        towards = torch.where(mean > 0, now / mean, self.moments)  # equal rows move nothing
        self.moments.lerp_(towards.to(self.moments.dtype), 1 - self.momentum)

    def value(self) -> Tensor:
        """(d,), as a tensor that carries the gradient."""
        bound = math.log(self.most)
        b = bound * torch.tanh(widest(self.weight) / bound)
        v = widest(self.moments)
        mean = (v * torch.exp(-b)).sum() / v.sum()
        return float(self.tau) * torch.exp(b) * mean  # type: ignore[arg-type]


def _noted(values: Tensor) -> float | list[float]:
    return float(values[0]) if bool((values == values[0]).all()) else values.tolist()
