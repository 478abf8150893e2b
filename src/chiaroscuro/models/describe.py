"""How large a model is, and what a sample costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model

__all__ = ["Description", "describe"]


@dataclass(frozen=True)
class Description:
    """Counts of a model; `flops` is per sample of the forward pass, a multiply-add being two."""

    n_parameters: int
    n_trainable: int
    d: int
    flops: int

    def __str__(self) -> str:
        return (
            f"{self.n_parameters:,} parameters ({self.n_trainable:,} trainable), d = {self.d}, "
            f"{self.flops / 1e6:,.1f} MFLOPs per sample"
        )


def describe(model: nn.Module, x: Tensor | None = None) -> Description:
    """Return parameters, output dimension and floating-point operations per sample.

    Counted are the matrix products and convolutions, attention included; sums, activations and
    normalisations are not. The forward pass runs in evaluation mode, and the model's own modes are
    restored after it.

    Args:
        model: one of ours, or any module if `x` is given.
        x: a batch; by default the model's own `example`, at 32 or 224 pixels for a `ResNet`.

    Example:
        >>> from chiaroscuro.models import MLP
        >>> print(describe(MLP(d_in=10, d=4, depth=1)))
        44 parameters (44 trainable), d = 4, 0.0 MFLOPs per sample
    """
    if x is None:
        need(
            isinstance(model, Model),
            lambda: (
                f"`describe(model)` needs a batch `x` for a `{type(model).__name__}`: only a "
                "`Model` knows what it takes."
            ),
        )
        x = model.example(1)  # type: ignore[operator]
        x = x.to(next((p.device for p in model.parameters()), x.device))
    need(len(x) > 0, "`describe(model, x)` needs at least 1 sample; received 0.")
    modes = {module: module.training for module in model.modules()}
    counter = FlopCounterMode(display=False)
    try:
        model.eval()
        # the plain attention is made of products that the counter sees
        with torch.no_grad(), counter, sdpa_kernel(SDPBackend.MATH):
            h = model(x)
    finally:
        for module, mode in modes.items():
            module.training = mode
    counts = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return Description(
        n_parameters=sum(count for count, _ in counts),
        n_trainable=sum(count for count, trainable in counts if trainable),
        d=h.shape[-1],
        flops=counter.get_total_flops() // len(x),
    )
