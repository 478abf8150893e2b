"""The span of augmentation directions, from what the views recorded, and the rank it foretells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.diagnostics.geometry.movement import parameter_columns
from chiaroscuro.diagnostics.rows import pairs_of, rows_of
from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record

__all__ = ["Span", "augmentation_span", "predicted_rank"]

COMPONENTS = 8
REPEATS = 20


@dataclass(frozen=True, eq=False)
class Span(Record):
    """The directions in which recorded parameters move a representation.

    `dimension` counts the singular `values` of the fitted movement that shuffled parameters do not
    reach, `floor` is the largest they reach in what is left; `directions` (dimension, d) are
    orthonormal, the strongest first.
    `explained` is the share of |v|^2 that the parameters explain beyond chance. `columns` are the
    numbers fitted per dimension.
    """

    dimension: int
    directions: np.ndarray
    values: np.ndarray
    floor: float
    explained: float
    columns: int
    n: int
    d: int


def augmentation_span(
    h1: Any,
    h2: Any,
    parameters: Any,
    parameters2: Any = None,
    components: int = COMPONENTS,
    seed: int = 0,
) -> Span:
    """Estimate the directions along which an augmentation moves samples, from its parameters.

        v_i = h2_i - h1_i ~ sum_p t_ip (g_p + A_p c_i);   dimension = rank of the fitted v

    t are the standardised parameters (their differences, with `parameters2`), c the leading
    principal components of (h1 + h2) / 2: each parameter has a direction of its own and one that
    depends on where the sample is, a Lie generator on the leading components. All of v spans
    everything as soon as anything is noisy; this counts what can be told from chance, by a
    permutation test: the k-th singular value against the largest k-th of 20 shuffles (Horn's
    parallel analysis), repeated on what the found directions leave. 0 for an invariant
    representation and for parameters that do nothing, at most min(d, columns). More rows find
    more: it is a lower bound.

    Relations: for h2 = h1 + sum_k eps_k v_k (`views.Directions`) it is the number of independent
    v_k; `predicted_rank` turns it into the rank that [cosentino2022, Props. 4.1, 4.2] foretell.

    Args:
        h1, h2: two views in the encoder's space, (n, d), with more rows than columns.
        parameters: structured array of n rows, of the second view.
        parameters2: those of the first view, if it was augmented too.
        components: of where the sample is; 8, so that eleven parameters stay below 100 columns,
            and fewer where the columns would exceed a tenth of the rows. 0 leaves the dependence
            out.
        seed: seed of the shuffles.

    Numerics: float64; parameters that do not vary are left out.

    References:
        cosentino2022

    Example:
        >>> draw = np.random.default_rng(0)
        >>> h, eps = draw.normal(size=(300, 6)), draw.normal(size=(300, 2))
        >>> omega = np.zeros(300, dtype=[("eps", float, 2)])
        >>> omega["eps"] = eps
        >>> augmentation_span(h, h + eps @ np.eye(6)[:2], omega).dimension
        2
    """
    call = "augmentation_span(h1, h2, parameters)"
    x1, x2 = pairs_of(call, h1, h2, 4)
    n, d = x1.shape
    need(
        isinstance(components, int) and components >= 0,
        lambda: f"`{call}` needs 0 components or more; received {components!r}.",
    )
    t = _parameters(call, parameters, parameters2, n)
    fewer = max(0, n // (10 * max(1, t.shape[1])) - 1)
    where = _leading((x1 + x2) / 2, min(components, fewer))
    Q = _basis(t, where)
    columns = Q.shape[1]
    need(
        n > columns + 1,
        lambda: f"`{call}` needs more rows than the {columns} columns fitted; received {n}.",
    )
    v = x2 - x1
    v = v - v.mean(dim=0)
    seen = Q.T @ v
    total = float(v.square().sum())
    if not columns or not total:
        return Span(0, np.zeros((0, d)), np.zeros(0), 0.0, 0.0, columns, n, d)
    _, s, V = torch.linalg.svd(seen, full_matrices=False)
    draw = torch.Generator().manual_seed(seed)
    chance = _chance(Q, v, draw)
    lost = float(chance.square().sum(dim=1).mean()) / total
    dimension = 0
    while dimension < len(s):  # what is found is taken away: it would hide what is weaker
        floor = chance.amax(dim=0)[: len(s) - dimension]
        more = int((s[dimension:] > floor).long().cumprod(0).sum())
        if not more:
            break
        dimension += more
        chance = _chance(Q, v - (v @ V[:dimension].T) @ V[:dimension], draw)
    share = float(s.square().sum()) / total
    return Span(
        dimension=dimension,
        directions=V[:dimension].numpy(),
        values=s.numpy(),
        floor=float(chance.max()),
        explained=(share - lost) / (1 - lost) if lost < 1 else 0.0,
        columns=columns,
        n=n,
        d=d,
    )


def _chance(Q: Tensor, v: Tensor, draw: torch.Generator) -> Tensor:
    """Singular values of the movement fitted to other samples' parameters, (repeats, r)."""
    shuffles = [torch.randperm(len(v), generator=draw) for _ in range(REPEATS)]
    return torch.stack([torch.linalg.svdvals(Q.T @ v[order]) for order in shuffles])


def _parameters(call: str, second: Any, first: Any, n: int) -> Tensor:
    """Standardised columns of parameters that vary, (n, k)."""
    columns = parameter_columns(call, second, n)
    if first is not None:
        others = parameter_columns(call, first, n)
        need(
            list(others) == list(columns),
            lambda: f"`{call}` needs the same parameters of both views; received {list(others)}.",
        )
        columns = {name: values - others[name] for name, values in columns.items()}
    kept = [x for x in columns.values() if np.ptp(x) > 0]
    if not kept:
        return torch.zeros(n, 0, dtype=torch.float64)
    t = rows_of(call, np.stack(kept, axis=1))
    return (t - t.mean(dim=0)) / t.std(dim=0, correction=0)


def _leading(x: Tensor, components: int) -> Tensor:
    """A column of ones, and the scores of leading principal components, each of variance 1."""
    n = len(x)
    ones = torch.ones(n, 1, dtype=x.dtype)
    U, s, _ = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)
    there = int((s > 1e-9 * max(float(s[0]), 1e-300)).sum())
    return torch.cat([ones, U[:, : min(components, there)] * n**0.5], dim=1)


def _basis(t: Tensor, where: Tensor) -> Tensor:
    """An orthonormal basis (n, r) of the centred products of parameters and places."""
    X = (t[:, :, None] * where[:, None, :]).flatten(1)
    X = X - X.mean(dim=0)
    if not X.shape[1]:
        return X
    U, s, _ = torch.linalg.svd(X, full_matrices=False)
    return U[:, s > 1e-9 * s[0]]


def predicted_rank(d_proj: int, d_enc: int, span: int) -> int:
    """Return the rank of a linear projector that removes a span and keeps everything else it can.

        min(d_proj, d_enc - span)      [cosentino2022, Props. 4.1, 4.2, by rank and nullity]

    Below d_proj, a collapse that shows, only if d_enc - span < d_proj.

    Args:
        d_proj, d_enc: rows and columns of W.
        span: dimension of the augmentation directions, at most d_enc.

    References:
        cosentino2022

    Example:
        >>> predicted_rank(128, 512, 100), predicted_rank(128, 512, 500)
        (128, 12)
    """
    need(
        0 <= span <= d_enc and d_proj >= 1,
        lambda: (
            "`predicted_rank` needs d_proj >= 1 and 0 <= span <= d_enc; received "
            f"{d_proj}, {d_enc} and {span}."
        ),
    )
    return min(d_proj, d_enc - span)
