"""SwAV: each view predicts the cluster assignment of the other."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.errors import number
from chiaroscuro.objectives.dino import at_least_one, cross_entropies
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.objectives.sinkhorn import equal_shares

__all__ = ["SwAV"]


class SwAV(Objective):
    """Swapped prediction of codes over K prototypes [caron2020swav, eqs. 1-5].

        loss = mean over both directions of - mean_i sum_k Q2_ik log softmax(z1_i / tau)_k
        Q2 = Sinkhorn-Knopp of stop(z2) / epsilon: rows sum to 1, prototypes are used equally often

    `z1` and `z2` are the scores (n, K) of two views: cosines of the embedding with K prototypes,
    which are the last layer of the network and learn with it. [caron2020swav, eq. 1] is the sum of
    both directions, twice this; the authors' code takes the mean, as we do. With more crops, the
    codes come from the large ones and every other crop predicts them.

    Relations: one direction is `DINO(tau, target_tau=epsilon, centring="sinkhorn")`. A constant
    added to all scores of a prototype in one view changes that view's codes not at all.

    Args:
        tau: 0.1 [caron2020swav, App. A.1].
        epsilon: 0.05 [caron2020swav, App. A.1].
        iterations: 3 [caron2020swav, Sec. 3.1].

    Numerics: codes are computed in the log domain and carry no gradient; with n < K equal shares
    cannot be hard, which is why the authors keep a queue of earlier embeddings for small batches.

    References:
        caron2020swav, cuturi2013

    Example:
        >>> round(float(SwAV()(torch.zeros(2, 8), torch.zeros(2, 8))), 4)  # log 8
        2.0794
    """

    def __init__(self, tau: float = 0.1, epsilon: float = 0.05, iterations: int = 3):
        super().__init__()
        self.tau = number("SwAV", "tau", tau, above=True)
        self.epsilon = number("SwAV", "epsilon", epsilon, above=True)
        self.iterations = at_least_one("SwAV", "iterations", iterations)

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).mean()

    def losses(self, batch: Batch) -> Tensor:
        z1, z2 = batch.pair
        q1, q2 = (self.codes(z) for z in (z1, z2))
        return torch.cat([cross_entropies(q2, z1 / self.tau), cross_entropies(q1, z2 / self.tau)])

    def codes(self, z: Tensor) -> Tensor:
        """The assignment of each row to prototypes (n, K), a constant to the gradient."""
        return equal_shares(z.detach(), self.epsilon, self.iterations)
