"""How clusters move: common velocities, their prediction, and what becomes of invariance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chiaroscuro.dynamics.kernel import velocity
from chiaroscuro.dynamics.one_hidden import Activation, slope
from chiaroscuro.errors import need

__all__ = [
    "ClusterMotion",
    "cluster_beta",
    "cluster_motion",
    "cluster_velocity",
    "invariance_drift",
    "invariance_rate",
]


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, eq=False)
class ClusterMotion:
    """Motion of each of N clusters.

    Args:
        sizes: (N,), points.
        means: (N, d), mean velocity.
        spread: (N,), root mean square distance of its points' velocities from their mean.
    """

    sizes: Tensor
    means: Tensor
    spread: Tensor

    @property
    def speeds(self) -> Tensor:
        """(N,): |mean velocity|. Small clusters are slower [calder2025, Remark 4.4]."""
        return torch.linalg.vector_norm(self.means, dim=1)

    @property
    def coherence(self) -> Tensor:
        """(N,), in [0, 1]: speed / root mean square speed; 1 where all points move as one."""
        total = (self.speeds.square() + self.spread.square()).sqrt()
        return self.speeds / torch.where(total > 0, total, 1.0)


def cluster_motion(v: Tensor, labels: Tensor) -> ClusterMotion:
    """Return the mean velocity of each cluster and its spread [calder2025, Thm 4.5].

    Args:
        v: (n, d), velocities, of `velocity` or of a `Flow`.
        labels: (n,), 0 to N - 1, none empty.

    References:
        calder2025

    Example:
        >>> v = torch.tensor([[1.0], [3.0], [-4.0]])
        >>> motion = cluster_motion(v, torch.tensor([0, 0, 1]))
        >>> motion.means.flatten().tolist(), motion.spread.tolist()
        ([2.0, -4.0], [1.0, 0.0])
    """
    sizes = _sizes("cluster_motion(v, labels)", v, labels)
    means = _sums(v, labels, len(sizes)) / sizes[:, None]
    squares = (v - means[labels]).square().sum(dim=1)
    spread = (v.new_zeros(len(sizes)).index_add(0, labels, squares) / sizes).sqrt()
    return ClusterMotion(sizes, means, spread)


def cluster_beta(B: Tensor, centres: Tensor, d: int, activation: Activation = torch.tanh) -> Tensor:
    """beta_q^k = (1/M) sum_{p of k} sigma'(b_p . xi_q)^2 for centres xi [calder2025, eq. 37].

    (N, d), in [0, 1] for ReLU and tanh; 1/2 for ReLU at infinite width [Cor. 4.6].

    Args:
        B: (M d, D), the weights of `OneHidden`.
        centres: (N, D).
        d: outputs.
        activation: sigma.

    References:
        calder2025

    Example:
        >>> B = torch.tensor([[1.0], [-1.0]])
        >>> cluster_beta(B, torch.tensor([[3.0]]), 1, torch.relu).tolist()  # one of two is active
        [[0.5]]
    """
    need(
        d >= 1 and len(B) % d == 0 and B.shape[1] == centres.shape[1],
        lambda: (
            f"`cluster_beta(B, centres, d)` needs B (M d, D) and centres (N, D); received "
            f"{tuple(B.shape)} and {tuple(centres.shape)} with d = {d}."
        ),
    )
    return slope(activation, centres @ B.T).square().unflatten(1, (d, -1)).mean(dim=2)


def cluster_velocity(
    grad: Tensor, labels: Tensor, centres: Tensor, beta: Tensor | float = 0.5
) -> Tensor:
    """Return the velocity of all points of a cluster, for `OneHidden` and orthogonal centres.

        z_i' = -|xi_q|^2 beta_q sum_{j in q} grad_j L + O(delta),   q the cluster of i

    [calder2025, Thm 4.5, its proof before the last step]. grad is that of the total loss. The
    printed eq. (21) puts n_q grad L(xi_q) for the sum, which also needs the embeddings of a cluster
    to start together; the common velocity does not. With gradients of like size, a cluster moves in
    proportion to its share of the points: small ones are slower (Remark 4.4).

    Args:
        grad: (n, d), gradient of the total loss by the embeddings.
        labels: (n,), 0 to N - 1.
        centres: (N, D), orthogonal to each other; points are within delta of them.
        beta: (N, d) of `cluster_beta`; 1/2, for ReLU at infinite width [Cor. 4.6].

    References:
        calder2025

    Example:
        >>> grad = torch.tensor([[1.0], [1.0], [1.0]])
        >>> cluster_velocity(grad, torch.tensor([0, 0, 1]), torch.eye(2)).flatten().tolist()
        [-1.0, -1.0, -0.5]
    """
    sizes = _sizes("cluster_velocity(grad, labels)", grad, labels)
    need(
        len(centres) == len(sizes),
        lambda: (
            f"`cluster_velocity` needs a centre for each of {len(sizes)} clusters; received "
            f"{len(centres)}."
        ),
    )
    strength = centres.square().sum(dim=1, keepdim=True).to(grad) * beta
    return -(strength * _sums(grad, labels, len(sizes)))[labels]


def invariance_drift(z1: Tensor, z2: Tensor, relative: bool = False) -> Tensor:
    """Return the distance between two views of each sample; 0 if the map is invariant.

        sqrt(mean_i |z1_i - z2_i|^2)

    Without a network gradient descent keeps it 0; with one it does not [calder2025, Thm 4.2].

    Args:
        z1, z2: (..., n, d), paired: a batch, or the trajectories of a flow.
        relative: divide by the root mean square distance of all from their mean (0 / 0 = 0).

    Returns:
        (...), one number for each batch.

    References:
        calder2025

    Example:
        >>> float(invariance_drift(torch.zeros(2, 1), torch.tensor([[3.0], [4.0]])))  # sqrt(12.5)
        3.535533905029297
    """
    need(
        z1.shape == z2.shape and z1.ndim >= 2,
        lambda: (
            f"`invariance_drift(z1, z2)` needs paired (..., n, d); received {tuple(z1.shape)} and "
            f"{tuple(z2.shape)}."
        ),
    )
    drift = (z1 - z2).square().sum(dim=-1).mean(dim=-1).sqrt()
    if not relative:
        return drift
    both = torch.cat([z1, z2], dim=-2)
    size = (both - both.mean(dim=-2, keepdim=True)).square().sum(dim=-1).mean(dim=-1).sqrt()
    return drift / torch.where(size > 0, size, 1.0)


def invariance_rate(
    module: nn.Module, x1: Tensor, x2: Tensor, loss: Callable[[Tensor], Tensor]
) -> float:
    """Return how fast training separates two views of each sample, to first order in time.

        sqrt(mean_i |z1_i' - z2_i'|^2),   z' = -K grad L on both views together

    For a map that is invariant now, 0 if the gradients by the weights are invariant too, which is
    the further condition of [calder2025, Thm 4.2, eq. 36].

    Args:
        module: maps (n, ...) to (n, d), in `eval` mode.
        x1, x2: two views, paired.
        loss: loss of (2n, d), the first view above the second.

    References:
        calder2025

    Example:
        >>> f = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.zeros_(f.weight)  # invariant, for it is 0 everywhere
        >>> x = torch.tensor([[1.0]])
        >>> invariance_rate(f, x, 2 * x, lambda z: z.sum())  # speeds 1 * 3 and 2 * 3
        3.0
    """
    need(
        x1.shape == x2.shape,
        lambda: (
            f"`invariance_rate(module, x1, x2)` needs paired views; received {tuple(x1.shape)} and "
            f"{tuple(x2.shape)}."
        ),
    )
    v1, v2 = velocity(module, torch.cat([x1, x2]), loss).chunk(2)
    return float(invariance_drift(v1, v2))


def _sizes(call: str, v: Tensor, labels: Tensor) -> Tensor:
    given = isinstance(labels, Tensor) and labels.dtype in _WHOLE
    need(
        given and labels.shape == v.shape[:1] and v.ndim == 2,
        lambda: (
            f"`{call}` needs (n, d) and a tensor of one whole number for each row; received "
            f"{tuple(v.shape)} and {getattr(labels, 'dtype', type(labels).__name__)} of shape "
            f"{tuple(getattr(labels, 'shape', ()))}."
        ),
    )
    need(
        len(labels) == 0 or int(labels.min()) >= 0,
        lambda: f"`{call}` needs labels from 0; received {int(labels.min())}.",
    )
    sizes = torch.bincount(labels)
    need(
        bool((sizes > 0).all()) and len(sizes) > 0,
        lambda: f"`{call}` needs no empty cluster; sizes are {sizes.tolist()}.",
    )
    return sizes


def _sums(v: Tensor, labels: Tensor, count: int) -> Tensor:
    return v.new_zeros(count, v.shape[1]).index_add(0, labels, v)
