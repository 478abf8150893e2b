"""SimSiam: the cosine of a prediction with the other view, whose side carries no gradient."""

from __future__ import annotations

from torch import Tensor

from chiaroscuro.numerics import unit
from chiaroscuro.objectives.objective import Batch, Objective

__all__ = ["SimSiam"]


class SimSiam(Objective):
    """Negative cosine of prediction and projection [chen2021simsiam, eqs. 1, 3], one direction.

        loss = - mean_i z1_i/|z1_i| . stop(z2_i)/|z2_i|

    `z1` are predictions of one view, `z2` projections of the other by the same network; the
    gradient stops at `z2`. The symmetric loss of [chen2021simsiam, eq. 4] is the mean of this and
    of the call with the views exchanged. There is no repulsion: what prevents collapse is the
    stopped gradient together with the predictor.

    Relations: `BYOL()` is 2 + 2 `SimSiam()`, so that the gradients differ by the factor 2.

    References:
        chen2021simsiam

    Example:
        >>> import torch
        >>> float(SimSiam()(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]])))
        -1.0
    """

    reduces = "samples"
    directed = True

    def __init__(self) -> None:
        super().__init__()

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).mean()

    def losses(self, batch: Batch) -> Tensor:
        return -(unit(batch.z1) * unit(batch.pair[1].detach())).sum(dim=1)
