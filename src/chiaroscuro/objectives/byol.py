"""BYOL: predict the other view, whose side carries no gradient."""

from __future__ import annotations

from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.numerics import paired_squared, unit
from chiaroscuro.objectives.objective import Batch, Objective

__all__ = ["BYOL"]


class BYOL(Objective):
    """Squared distance between prediction and target [grill2020byol, eq. 2], in one direction.

        loss = mean_i | z1_i/|z1_i| - stop(z2_i)/|z2_i| |^2 = 2 - 2 mean_i cos(z1_i, z2_i)

    `z1` are predictions q(z) of the online network, `z2` projections of the target network; the
    gradient stops at `z2`. For the symmetric loss add the call with the views exchanged. There is
    no repulsion: what prevents collapse lies in the networks, not here.

    Relations: `normalise=False` is the loss of [calder2025, A.1]. One direction equals 2 plus twice
    `SimSiam()`, the negative cosine.

    Args:
        normalise: True as in [grill2020byol, Sec. 3.1].

    References:
        grill2020byol, calder2025

    Example:
        >>> import torch
        >>> float(BYOL()(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]])))
        2.0
    """

    reduces = "samples"
    directed = True

    def __init__(self, normalise: bool = True):
        super().__init__()
        need(
            isinstance(normalise, bool),
            lambda: f"`BYOL(normalise)` needs True or False; received {normalise!r}.",
        )
        self.normalise = normalise

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).mean()

    def losses(self, batch: Batch) -> Tensor:
        z1, z2 = batch.z1, batch.pair[1].detach()
        if self.normalise:
            z1, z2 = unit(z1), unit(z2)
        return paired_squared(z1, z2)
