"""The neural kernel of a model: does it see the clusters, and does it favour large ones?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chiaroscuro.diagnostics.rows import labels_of, rows_of
from chiaroscuro.dynamics import neural_kernel
from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record

__all__ = ["ClusterKernel", "cluster_kernel", "kernel_alignment", "sample_kernel"]

PROBES = 16


def sample_kernel(module: nn.Module, x: Tensor, n_probes: int = PROBES, seed: int = 0) -> Tensor:
    """Return the neural kernel between samples, summed over outputs: (n, n).

        k_ij = tr K_ij = sum_k sum_w (d f^k(x_i) / d w) (d f^k(x_j) / d w)   [calder2025, eq. 12]

    symmetric and positive semi-definite.

    Relations: the trace over outputs of `cs.dynamics.neural_kernel`, exactly if the module has at
    most `n_probes` outputs. With more, an unbiased estimate: the outputs are turned at random, by
    orthogonal directions, and `n_probes` of them counted (d / n_probes)-fold.

    Args:
        module: maps (n, ...) to (n, d), as for `neural_kernel`: batch norm in `eval` mode.
        x: (n, ...), a batch of up to about a thousand.
        n_probes: 16.

    References:
        calder2025

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> sample_kernel(nn.Linear(2, 3, bias=False), x).tolist()  # 3 x_i . x_j
        [[3.0, 3.0], [3.0, 15.0]]
    """
    with torch.no_grad():
        d = module(x[:1]).shape[1]
    if d > n_probes:
        draw = torch.Generator().manual_seed(seed)
        V = torch.linalg.qr(torch.randn(d, n_probes, generator=draw, dtype=torch.float64)).Q.T
        like = next(module.parameters())
        probe = nn.Linear(d, n_probes, bias=False).to(like.device, like.dtype)
        probe.weight = nn.Parameter((V * math.sqrt(d / n_probes)).to(like), requires_grad=False)
        module = nn.Sequential(module, probe).train(module.training)
    K = neural_kernel(module, x)
    return K.diagonal(dim1=2, dim2=3).sum(dim=2)


def kernel_alignment(K: Any, labels: Any) -> float:
    """Return the centred alignment of a kernel with the classes [cortes2012alignment].

        <HKH, HYH> / (|HKH| |HYH|),   Y_ij = 1 if labels_i = labels_j,  H = I - 1/n

    From 0 (nothing of the classes) to 1 (k is constant within and between classes), for a positive
    semi-definite K; a constant kernel has 0.

    Relations: adding a constant to K, or a factor > 0 on it, changes nothing.

    Args:
        K: (n, n): `sample_kernel(module, x)`, or any Gram matrix.
        labels: (n,), at least two classes.

    References:
        cortes2012alignment

    Example:
        >>> K = torch.tensor([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
        >>> round(kernel_alignment(K, [0, 0, 1]), 6)
        1.0
    """
    k, y = _checked("kernel_alignment(K, labels)", K, labels)
    Y = (y[:, None] == y).double()
    a, b = (_centred(M) for M in (k, Y))
    size = float(a.norm() * b.norm())
    flat = float(a.norm()) <= 1e-12 * float(k.norm())
    return float((a * b).sum()) / size if size and not flat else 0.0


@dataclass(frozen=True, eq=False)
class ClusterKernel(Record):
    """Effect of a kernel on each cluster: `sizes`, `within`, `drive`.

    `alignment` is `kernel_alignment`; `within` and `between` the mean of k_ij / sqrt(k_ii k_jj) of
    different samples inside a cluster and across; `drives` how strongly each cluster moves itself,
    (1/n) sum_{j in cluster} k_ij averaged over its i; `exponent` the slope of log drive on log
    size, NaN where all clusters have one size.
    """

    alignment: float
    within: float
    between: float
    sizes: np.ndarray
    drives: np.ndarray
    exponent: float
    n: int


def cluster_kernel(K: Any, labels: Any) -> ClusterKernel:
    """Measure whether a kernel holds clusters together, and whether small ones move slower.

        drive_c = (1/n) mean_{i in c} sum_{j in c} k_ij

    Under gradient flow the samples of a cluster move by -sum_j K_ij grad_j, of which what the
    cluster's own samples contribute goes with drive_c when their gradients are alike. Where k is
    about constant inside clusters, drive is in proportion to the share of samples, exponent 1:
    small clusters move slower, as Remark 4.4 says. exponent 0 would mean that size does not matter
    (a kernel that is 0 between samples).

    within is in [-1, 1], 1 where a cluster moves as one; between about 0 where clusters move apart
    freely. A collapsed network has both 1.

    Args:
        K: (n, n): `sample_kernel(module, x)`, or any Gram matrix.
        labels: (n,) classes or clusters, at least two.

    References:
        calder2025

    Example:
        >>> labels = torch.tensor([0] * 8 + [1] * 2)
        >>> kernel = cluster_kernel((labels[:, None] == labels).double(), labels)
        >>> kernel.within, kernel.between, kernel.drives.tolist(), round(kernel.exponent, 6)
        (1.0, 0.0, [0.8, 0.2], 1.0)
    """
    k, y = _checked("cluster_kernel(K, labels)", K, labels)
    n = len(k)
    size = k.diagonal().clamp(min=1e-300).sqrt()
    cosine = k / size[:, None] / size
    names = y.unique()
    same = y[:, None] == y
    off = ~torch.eye(n, dtype=torch.bool)
    inside = cosine[same & off]
    sizes = torch.stack([(y == c).sum() for c in names]).double()
    drives = torch.stack([k[y == c][:, y == c].sum(dim=1).mean() / n for c in names])
    usable = drives > 0
    slope = math.nan
    if len(sizes[usable].unique()) > 1:
        slope = float(np.polyfit(sizes[usable].log().numpy(), drives[usable].log().numpy(), 1)[0])
    return ClusterKernel(
        alignment=kernel_alignment(k, y),
        within=float(inside.mean()) if len(inside) else math.nan,
        between=float(cosine[~same].mean()),
        sizes=sizes.long().numpy(),
        drives=drives.numpy(),
        exponent=slope,
        n=n,
    )


def _centred(M: Tensor) -> Tensor:
    M = M - M.mean(dim=0)
    return M - M.mean(dim=1, keepdim=True)


def _checked(call: str, K: Any, labels: Any) -> tuple[Tensor, Tensor]:
    k = rows_of(call, K)
    need(
        k.shape[0] == k.shape[1],
        lambda: f"`{call}` needs a square kernel; received {tuple(k.shape)}.",
    )
    y = labels_of(call, labels, len(k))
    need(
        len(y.unique()) > 1,
        lambda: f"`{call}` needs at least 2 clusters; received {len(y.unique())}.",
    )
    return k, y
