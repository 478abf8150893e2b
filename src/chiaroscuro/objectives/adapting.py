"""`adapt`: temperatures and centres that are measured, in whole or in part, look at a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.kernels import Adaptive, Balanced, Kernel
from chiaroscuro.objectives.combinations import Grouped, OnDims, Weighted
from chiaroscuro.objectives.dino import DINO
from chiaroscuro.objectives.objective import Objective

__all__ = ["adapt", "adapts"]


def adapts(objective: Objective) -> bool:
    """Return whether the objective adapts to batches: its temperatures, or the centre of `DINO`.

    Example:
        >>> from chiaroscuro.objectives import InfoNCE
        >>> adapts(InfoNCE())
        False
    """
    return any(
        isinstance(module, Adaptive | Balanced)
        or (isinstance(module, DINO) and module.centring == "mean")
        for module in objective.modules()
    )


@torch.no_grad()
def adapt(objective: Objective, z1: Tensor, z2: Tensor) -> None:
    """Update `Adaptive` and `Balanced` temperatures, and the centre of `DINO`, from a batch.

    Call it after the loss of a step, in a loop of your own; `train` does. Each sees the dimensions
    that its kernel sees, as its kernel sees them (`Cosine`: unit rows). Others are left alone.

    Args:
        objective: whose temperatures move.
        z1, z2: (n, d), paired.

    Example:
        >>> from chiaroscuro.kernels import Gaussian
        >>> from chiaroscuro.objectives import InfoNCE
        >>> loss = InfoNCE(Gaussian(tau=Adaptive(0.5, d=2, momentum=0.0)))
        >>> adapt(loss, torch.eye(2), torch.tensor([[1.0, 0.4], [0.0, 0.6]]))
        >>> bool(loss.kernel.tau.value()[0] < 0.5 < loss.kernel.tau.value()[1])
        True
    """
    if isinstance(objective, Weighted):
        for _, member in objective.members:
            adapt(member, z1, z2)
    elif isinstance(objective, OnDims):
        seen = slice(objective.start, objective.stop)
        adapt(objective.objective, z1[:, seen], z2[:, seen])
    elif isinstance(objective, Grouped):
        adapt(objective.objective, z1, z2)
    elif isinstance(objective, DINO):
        objective.observe(z2)
    else:
        kernel = getattr(objective, "kernel", None)
        for part in kernel.parts(z1.shape[1]) if isinstance(kernel, Kernel) else ():
            if part.is_leaf and isinstance(part.leaf.tau, Adaptive | Balanced):
                one, two = (part.leaf.base(part.seen(z)) for z in (z1, z2))
                part.leaf.tau.observe(one, two)
