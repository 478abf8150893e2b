"""The Lie generators that an augmentation has in the space of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.diagnostics.rows import pairs_of, rows_of, some_of
from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record

__all__ = ["Generator", "generator"]

ROWS = 4000
TERMS = 19
"""Terms of the exponential series on steps of norm 1, at most: 1/19! is below rounding."""


@dataclass(frozen=True, eq=False)
class Generator(Record):
    """`G` (k, d, d) fitted generators, and how well they foretell rows they were not fitted to.

    `error` is the held-out share |h2 - exp(sum eps G) h1|^2 / |h2 - h1|^2: 0 where the action is
    exactly of that form, 1 where it is no better than standing still. `first_order` is the same of
    h1 + sum eps G h1. `antisymmetry` is the share of G in its antisymmetric part, 1 for rotations.
    `determined` says whether there are enough rows to fix G; if not it is the smallest that fits.
    """

    G: np.ndarray
    error: float
    first_order: float
    antisymmetry: float
    determined: bool
    rounds: int
    rows: int
    n: int


def generator(
    h1: Any, h2: Any, eps: Any, rounds: int = 20, rows: int | None = ROWS, seed: int = 0
) -> Generator:
    """Fit the generators G_k that best turn one view into the other [cosentino2022, Sec. 4, eq. 7].

        h2_i = exp(sum_k eps_ik G_k) h1_i

    First by least squares on the middle of the step, h2 - h1 = sum_k eps_k G_k (h1 + h2) / 2, which
    is exact to second order in eps; then by repeating it on what the exponential leaves over, while
    that falls. With strengths eps known this is the log-map fitted over all strengths at once; with
    one strength for all rows it is the matrix logarithm of the least-squares map.

    error is in [0, 1] for a fit that means anything (it may exceed 1 where it does not). Noise on
    h2 stays in it; noise on h1 also pulls G towards 0, as in any regression.

    Relations: a planted `LieAction` of the same generators is recovered to rounding, from clean
    rows that span the space. `unexplained(W, G[0].T)` is the share of G's outcome (its columns)
    outside what a projector W reads: 1 where Prop. 4.3 holds, W G = 0.

    Args:
        h1, h2: two views in the encoder's space, (n, d).
        eps: (n,) or (n, k): the strengths of k transformations, as views record them.
        rounds: at most so many corrections; 20.
        rows: so many at most, drawn by the seed; a fifth of them is held out. 4,000.

    Numerics: float64; the exponential's series on the vectors in steps of norm at most 1. k d
    numbers are fitted per dimension: fewer rows than that leave G undetermined.

    References:
        cosentino2022

    Example:
        >>> h, angle = np.random.default_rng(0).normal(size=(50, 2)), np.linspace(-1, 1, 50)
        >>> c, s = np.cos(angle), np.sin(angle)
        >>> turned = np.c_[c * h[:, 0] - s * h[:, 1], s * h[:, 0] + c * h[:, 1]]
        >>> (generator(h, turned, angle).G[0].round(6) + 0.0).tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    call = "generator(h1, h2, eps)"
    x1, x2 = pairs_of(call, h1, h2, 5)
    e = np.asarray(eps.detach().cpu() if isinstance(eps, Tensor) else eps, dtype=np.float64)
    strengths = rows_of(call, e[:, None] if e.ndim == 1 else e, 1)
    need(
        len(strengths) == len(x1),
        lambda: f"`{call}` needs strengths for {len(x1)} pairs; received {len(strengths)}.",
    )
    need(
        bool((strengths != 0).any(dim=0).all()),
        lambda: f"`{call}` needs strengths that are not all 0, in each of {e.shape} columns.",
    )
    kept = some_of(call, len(x1), rows, seed)
    order = kept[torch.randperm(len(kept), generator=torch.Generator().manual_seed(seed))]
    cut = len(order) - max(1, len(order) // 5)
    fit, test = order[:cut], order[cut:]
    a, b, s = x1[fit], x2[fit], strengths[fit]
    d, k = a.shape[1], s.shape[1]
    G, left = torch.zeros(k, d, d, dtype=a.dtype), b - a
    best, used = float("inf"), 0
    middle = (a + b) / 2
    U, size_of, V = torch.linalg.svd(_features(s, middle), full_matrices=False)
    there = size_of > 1e-10 * size_of[0]
    determined = int(there.sum()) == k * d
    solve = (V[there].T / size_of[there]) @ U[:, there].T
    for _ in range(rounds):
        used += 1
        trial = G + (solve @ left).view(k, d, d).transpose(1, 2)
        ahead = b - _act(trial, s, a)
        size = float(ahead.square().sum())
        if not size < best:
            break
        done = size > best * (1 - 1e-4) or size < 1e-28 * float(b.square().sum())
        G, left, best = trial, ahead, size
        if done:
            break
    a, b, s = x1[test], x2[test], strengths[test]
    still = max(float((b - a).square().sum()), 1e-300)
    linear = a + _step(G, s, a)
    size = float(G.square().sum())
    return Generator(
        G=G.numpy(),
        error=float((b - _act(G, s, a)).square().sum()) / still,
        first_order=float((b - linear).square().sum()) / still,
        antisymmetry=float((G - G.transpose(1, 2)).square().sum()) / (4 * size) if size else 0.0,
        determined=determined,
        rounds=used,
        rows=len(kept),
        n=len(x1),
    )


def _features(s: Tensor, x: Tensor) -> Tensor:
    """(n, k d): each strength times the row."""
    return (s[:, :, None] * x[:, None, :]).flatten(1)


def _act(G: Tensor, s: Tensor, x: Tensor) -> Tensor:
    """exp(sum_k s_ik G_k) x_i, row by row, by the series on the vectors."""
    size = (s.abs() * torch.linalg.matrix_norm(G, ord=1)).sum(dim=1)
    steps = int(size.max().clamp(min=1, max=1000).ceil())
    if not bool(size.isfinite().all()):
        return torch.full_like(x, torch.inf)
    for _ in range(steps):
        term = x
        for j in range(1, TERMS + 1):
            term = _step(G, s, term) / (j * steps)
            x = x + term
            if float(term.abs().max()) < 1e-17 * float(x.abs().max()):
                break
    return x


def _step(G: Tensor, s: Tensor, x: Tensor) -> Tensor:
    """sum_k s_ik G_k x_i, row by row."""
    return torch.stack([s[:, k, None] * (x @ G[k].T) for k in range(len(G))]).sum(dim=0)
