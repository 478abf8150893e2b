"""Temperatures per dimension that are trained, and cannot all fall."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need, number
from chiaroscuro.kernels.temperature import Temperature, checked

__all__ = ["Balanced"]


class Balanced(Temperature):
    """One trained temperature per dimension, with a geometric mean that stays.

        tau_k = tau exp(b_k - mean(b)),  b_k = log(most) tanh(a_k / log(most)),  a trained, 0 first

    A temperature that is trained alone falls, because that lowers the loss of every embedding that
    is better than chance. Here one can fall only if others rise, and none by more than most^2: what
    is learnt is which dimensions count, not how sharp the loss is.

    Relations: before any step it equals the plain number `tau`. The product of all tau_k is tau^d.

    Args:
        tau: the geometric mean; as of the kernel it is for.
        d: dimensions.
        most: tau_k stays between tau / most^2 and tau most^2; 10 is ours.
        log_ratio: a, how far training has come, as read back from a notation.

    References:
        rusak2022

    Example:
        >>> Balanced(0.5, d=3)
        Balanced(tau=0.5, d=3, most=10.0, log_ratio=0.0)
        >>> Balanced(0.5, d=2, log_ratio=[1.0, -1.0]).value().prod().item()
        0.25
    """

    def __init__(
        self, tau: float, d: int, most: float = 10.0, log_ratio: float | Sequence[float] = 0.0
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
        self.init = (self.tau,) * d  # type: ignore[assignment]
        start = torch.as_tensor(log_ratio, dtype=torch.float32)
        need(
            start.ndim == 0 or start.shape == (d,),
            lambda: (
                f"`Balanced(d, log_ratio)` needs one `log_ratio`, or one for each of {d} "
                f"dimensions; received shape {tuple(start.shape)}."
            ),
        )
        self.weight = nn.Parameter(start.expand(d).clone())

    @property
    def log_ratio(self) -> float | list[float]:
        """a, as a notation has it: one number while all are equal."""
        values = self.weight.detach()
        return float(values[0]) if bool((values == values[0]).all()) else values.tolist()

    def value(self) -> Tensor:
        """(d,), as a tensor that carries the gradient."""
        bound = math.log(self.most)
        a = self.weight.double() if self.weight.device.type != "mps" else self.weight
        b = bound * torch.tanh(a / bound)
        return float(self.tau) * torch.exp(b - b.mean())  # type: ignore[arg-type]
