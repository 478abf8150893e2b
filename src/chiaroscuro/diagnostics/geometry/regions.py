"""A projector of linear layers and ReLUs, region by region: where it is affine, and how."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from chiaroscuro.diagnostics.rows import pairs_of, rows_of, some_of
from chiaroscuro.errors import InputError, need
from chiaroscuro.measures.record import Record

__all__ = ["AffineMaps", "Regions", "affine_maps", "local_unexplained", "regions"]

ROWS = 20_000
BENT = (nn.ReLU, nn.LeakyReLU)
STRAIGHT = (nn.Linear, nn.BatchNorm1d, nn.Identity, nn.Dropout, nn.Flatten)


class AffineMaps(NamedTuple):
    """W (n, d_proj, d_enc) and b (n, d_proj): near row i the projector is W_i h + b_i."""

    W: np.ndarray
    b: np.ndarray


def affine_maps(projector: nn.Module, h: Any) -> AffineMaps:
    """Return the affine map of the projector in the region of each row [cosentino2022, eq. 11].

        g(h) = W_omega h + b_omega   for h in the region omega

    In evaluation mode, in which a BatchNorm is affine as well; (leaky) ReLUs bend it. The paper
    leaves the biases out "for clarity": here they are.

    Relations: of a linear projector all W_i are its weight; g(h_i) = W_i h_i + b_i exactly.

    Args:
        projector: any `nn.Module` of Linear, BatchNorm1d, ReLU and LeakyReLU. It is not changed.
        h: (n, d_enc): a few hundred rows, for n maps are returned.

    Numerics: float64, on a copy. That g is affine near each row is checked by a small step, so a
    projector that divides by a norm is refused.

    References:
        cosentino2022

    Example:
        >>> g = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU())
        >>> _ = nn.init.constant_(g[0].weight, 2.0)
        >>> affine_maps(g, [[1.0], [-1.0]]).W.flatten().tolist()
        [2.0, 0.0]
    """
    g, x = _prepared("affine_maps(projector, h)", projector, h)
    return AffineMaps(*(part.numpy() for part in _maps(g, x)))


def _maps(g: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        y = _applied(g, x)
        # rows do not meet in evaluation mode: the gradient of a column's sum is row by row
        rows = [torch.autograd.grad(y[:, k].sum(), x, retain_graph=True)[0] for k in _range(y)]
    W, y = torch.stack(rows, dim=1), y.detach()
    x = x.detach()
    b = y - torch.einsum("nij,nj->ni", W, x)
    _check(g, x, y, W, b)
    return W, b


def _applied(g: nn.Module, x: Tensor) -> Tensor:
    try:
        return g(x)
    except RuntimeError as error:  # rows cast to another type, say
        raise InputError(
            f"`affine_maps(projector, h)` needs a projector that takes float64 (n, d_enc); given "
            f"{tuple(x.shape)} it raised: {str(error)[:120]}."
        ) from None


def _check(g: nn.Module, x: Tensor, y: Tensor, W: Tensor, b: Tensor) -> None:
    """Refuse a projector that leaves its map on a step within a region, which is convex."""
    draw = torch.Generator().manual_seed(0)
    aside = x.norm(dim=1, keepdim=True).clamp(min=1e-6) * torch.randn(x.shape, generator=draw)
    for size in (1e-2, 1e-4):
        there = x + size * aside
        same = (_patterns(g, x) == _patterns(g, there)).all(dim=1)
        moved, foretold = g(there), torch.einsum("nij,nj->ni", W, there) + b
        error = (moved - foretold).norm(dim=1)[same]
        step = ((moved - y).norm(dim=1) + 1e-6 * y.norm(dim=1))[same]
        off = float((error / step.clamp(min=1e-300)).max()) if len(step) else 0.0
        need(
            off < 1e-6,
            lambda off=off: (
                "`affine_maps(projector, h)` needs a projector that is affine near each row; a "
                f"small step differs from its map by {off:.2g} of itself. Leave out the last "
                "normalisation, and make activations modules."
            ),
        )


def _range(y: Tensor) -> range:
    return range(y.shape[1])


def _patterns(g: nn.Module, x: Tensor) -> Tensor:
    """Which units are on: (n, units), layer by layer."""
    seen: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _, args, __: seen.append(args[0].detach() > 0))
        for module in g.modules()
        if isinstance(module, BENT)
    ]
    try:
        with torch.no_grad():
            g(x)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(seen, dim=1) if seen else torch.zeros(len(x), 0, dtype=torch.bool)


def _prepared(call: str, projector: nn.Module, h: Any) -> tuple[nn.Module, Tensor]:
    need(
        isinstance(projector, nn.Module),
        lambda: f"`{call}` needs an `nn.Module`; received {type(projector).__name__}.",
    )
    leaves = {type(m).__name__ for m in projector.modules() if not list(m.children())}
    known = {kind.__name__ for kind in (*BENT, *STRAIGHT)}
    strange = sorted(leaves - known - {type(projector).__name__})
    need(
        not strange,
        lambda: f"`{call}` needs layers of {', '.join(sorted(known))}; received {strange}.",
    )
    x = rows_of(call, h, 1)
    return copy.deepcopy(projector).cpu().double().eval().requires_grad_(False), x


@dataclass(frozen=True, eq=False)
class Regions(Record):
    """How many regions rows visit: `visited`, of at most `rows`.

    `largest` is the share of rows in the fullest region, `alone` that of rows with a region to
    themselves; `off` and `on` count units that are so for all rows; `units` all of them. With a
    second view, `together` is the share of pairs in one region, `by_chance` that of shuffled pairs.
    `region` (rows,) numbers the region of each row used.
    """

    visited: int
    largest: float
    alone: float
    units: int
    off: int
    on: int
    together: float | None
    by_chance: float | None
    region: np.ndarray
    rows: int
    n: int


def regions(
    projector: nn.Module, h: Any, h2: Any = None, rows: int | None = ROWS, seed: int = 0
) -> Regions:
    """Count the affine regions of the projector that the rows visit, by their active units.

        omega(h) = (pattern of positive inputs of every ReLU)      [cosentino2022, Sec. 5]

    visited is from 1 (a linear projector, or collapsed rows) to the number of rows, where each has
    an affine map of its own. It grows with width and depth up to that.

    Relations: rows of one region have one affine map, `affine_maps`.

    Args:
        projector: as for `affine_maps`.
        h: (n, d_enc).
        h2: a second view of the same samples, to see whether positives share a region.
        rows: so many at most, drawn by the seed.

    References:
        cosentino2022

    Example:
        >>> g = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
        >>> _ = nn.init.eye_(g[0].weight)
        >>> regions(g, [[1.0, 1.0], [2.0, 1.0], [-1.0, 1.0]]).visited
        2
    """
    call = "regions(projector, h)"
    g, x = _prepared(call, projector, h)
    kept = some_of("regions", len(x), rows, seed) if len(x) > 1 else torch.zeros(1).long()
    n = len(kept)
    both = x[kept]
    if h2 is not None:
        both = torch.cat([both, pairs_of(call, x, h2, 1)[1][kept]])
    on = torch.cat([_patterns(g, part) for part in both.split(4096)])
    packed = np.packbits(on.numpy(), axis=1)
    if packed.shape[1]:
        region = np.unique(packed, axis=0, return_inverse=True)[1].reshape(-1)
    else:
        region = np.zeros(len(both), dtype=np.int64)
    first = np.unique(region[:n], return_inverse=True, return_counts=True)
    size = first[2]
    together = by_chance = None
    if h2 is not None:
        a, b = region[:n], region[n:]
        together = float((a == b).mean())
        count = int(region.max()) + 1
        joint = np.bincount(a, minlength=count) @ np.bincount(b, minlength=count)
        by_chance = float(joint - (a == b).sum()) / (n * (n - 1)) if n > 1 else None
    live = on[:n].double().mean(dim=0)
    return Regions(
        visited=len(size),
        largest=float(size.max() / n),
        alone=float((size == 1).sum() / n),
        units=on.shape[1],
        off=int((live == 0).sum()),
        on=int((live == 1).sum()),
        together=together,
        by_chance=by_chance,
        region=first[1].reshape(-1),
        rows=n,
        n=len(x),
    )


def local_unexplained(
    projector: nn.Module, h: Any, v: Any, rows: int | None = 256, seed: int = 0
) -> float:
    """Return the share of v_i outside the projector's row space at h_i [cosentino2022, Sec. 5].

        sum_i min_t |v_i - W_i' t|^2 / sum_i |v_i|^2,   W_i the local map at h_i

    From 0 to 1, as `unexplained`, which it is for a linear projector.

    Args:
        projector: as for `affine_maps`.
        h, v: (n, d_enc): where, and what: `displacements`, or h2 - h1.
        rows: so many at most, drawn by the seed: each costs a decomposition.

    References:
        cosentino2022

    Example:
        >>> g = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
        >>> _ = nn.init.eye_(g[0].weight)
        >>> local_unexplained(g, [[1.0, 1.0], [1.0, -1.0]], [[0.0, 1.0], [0.0, 1.0]])
        0.5
    """
    call = "local_unexplained(projector, h, v)"
    x, w = pairs_of(call, h, v, 1)
    kept = some_of(call, len(x), rows, seed) if len(x) > 1 else torch.zeros(1).long()
    g, x = _prepared(call, projector, x[kept])
    w = w[kept]
    _, s, V = torch.linalg.svd(_maps(g, x)[0], full_matrices=False)
    read = (s > 1e-6 * s[:, :1]) & (s > 0)
    t = torch.einsum("nrd,nd->nr", V, w) * read
    total = float(w.square().sum())
    return 1 - float(t.square().sum()) / total if total else 0.0
