"""log sum_j k(z_i, z_j) over the candidates of every anchor, without the matrix.

Forward and backward visit tiles that fit the cache. A symmetric kernel is visited by its upper
half: a tile feeds the sums of its rows and of its columns. The backward pass is written by hand
and recomputes each tile, so memory stays that of the embeddings. With sums S and incoming
gradients g, the pull between two points is

    P_ij = g_i k_ij / S_i + g_j k_ij / S_j

so a whole step costs two products of the full matrix and one exponential of it: what the dense
loss would cost without any bookkeeping. A small batch keeps its only tile from forward to
backward instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chiaroscuro.errors import InputError
from chiaroscuro.kernels.kernel import Kernel, Part, mixture
from chiaroscuro.numerics import full_precision, readable
from chiaroscuro.pairwise import scratch
from chiaroscuro.pairwise.blocks import by_blocks
from chiaroscuro.pairwise.dense import dense
from chiaroscuro.pairwise.layout import Layout, Tile
from chiaroscuro.pairwise.statistics import Inner, Near, Power, Squared
from chiaroscuro.pairwise.terms import FAINT, Term, number_of, safe

__all__ = ["log_sum_exp"]

TILE = 768
"""Rows of a tile: 2.3 MB in float32, about the second-level cache of two cores."""
TILE_KEPT = 512
"""Rows of a tile that is kept."""
TILE_OF_DIFFERENCES = 256
"""Rows of a tile where every difference of coordinates is taken."""
KEPT = 1 << 22
"""A matrix of up to so many entries is kept for the backward pass, its upper half that is."""
SMALL = 128
"""Up to so many rows everything is computed in float64: it costs nothing there."""


def log_sum_exp(
    kernel: Kernel, z: Tensor, layout: Layout, groups: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """log k of each pair, and log of the sum of k over the candidates of each anchor.

        pairs_i = log k(z_i, z_i+)
        sums_i = log sum_{j in candidates of i} k(z_i, z_j)

    Args:
        kernel: tiled if all its parts are a `Leaf`, else by blocks of `kernel.log`.
        z: the stacked rows, (rows, d), in float32 or float64.
        layout: which rows are anchors, and which are candidates of which.
        groups: one integer per sample; candidates of the anchor's own group are left out, but for
            its partner. By blocks, at a few times the cost of the tiles.

    Returns:
        `pairs`, one number per sample of the window (none if there is one view), always from
        differences; `sums`, for each view that has anchors a row of such numbers, -inf for an
        anchor without candidates; and `gap`, the sum over anchors of sums - pairs (of sums, if
        there is one view), taken before rounding.

    Numerics: a maximum is tracked per row unless a bound shows that nothing can over- or
    underflow. Sums over tiles are kept in float64. Gradients flow to z and to the temperatures;
    differentiating twice works too, through the dense matrix. On an accelerator, and inside
    `torch.compile` and `torch.func`, no number is read and all of it is `by_blocks`.

    References:
        cheng2024infcl
    """
    parts = kernel.parts(z.shape[1])
    if groups is not None or not (readable(z) and all(part.is_leaf for part in parts)):
        return by_blocks(kernel, z, layout, groups)
    small = dense(parts, z, layout)
    if small is not None:
        return small
    features = [part.features(z) for part in parts]
    origins = [(f.base.detach(), None if f.scale is None else f.scale.detach()) for f in features]
    rows, rates = [f.rows for f in features], [f.rate for f in features]
    return _LogSumExp.apply(layout, parts, origins, *rows, *rates)


_Values = tuple[Tensor, Near, list[Tensor]]
_Origin = tuple[Tensor, Tensor | None]


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layout: Layout, parts: list[Part], origins: list[_Origin], *inputs: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        features, rates = inputs[: len(parts)], inputs[len(parts) :]
        ctx.fixed_rates = [None if isinstance(rate, Tensor) else rate for rate in rates]
        ctx.save_for_backward(*features, *(rate for rate in rates if isinstance(rate, Tensor)))
        with full_precision(features[0].device):
            small = layout.rows <= SMALL and features[0].device.type != "mps"
            if small:
                origins = [(a.double(), None if s is None else s.double()) for a, s in origins]
            groups = _grouped(parts, origins, rates)
            ctx.visit = _Visit(layout, groups, any(ctx.needs_input_grad))
            pairs, sums, gap = (out.to(features[0].dtype) for out in ctx.visit.forward())
            return pairs, sums, gap

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        visit = ctx.visit
        g_pairs, g_sums = visit.spread(*grads)
        count = len(ctx.fixed_rates)
        saved = ctx.saved_tensors  # read once: checkpointing recomputes it on each reading
        features, learnt = saved[:count], iter(saved[count:])
        rates = [next(learnt) if rate is None else rate for rate in ctx.fixed_rates]
        wanted = ctx.needs_input_grad[3:]
        with full_precision(features[0].device):
            if torch.is_grad_enabled():  # the gradient will be differentiated: stay in the graph
                gradients = _dense_gradients(visit, features, rates, wanted, g_pairs, g_sums)
            else:
                gradients = [
                    None if gradient is None else gradient.to(features[0].dtype)
                    for gradient in visit.backward(g_pairs, g_sums, wanted)
                ]
        return None, None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise InputError(
            "`log_sum_exp` needs reverse mode; received a forward-mode tangent. Use `backward` "
            "or `torch.autograd.grad`."
        )


@dataclass(frozen=True)
class _Group:
    """Terms whose statistic is the same function of the same rows, and so is computed once.

    Terms linear in the statistic come first; the others want its root.
    """

    base: Tensor
    scale: Tensor | None
    terms: tuple[Term, ...]

    @property
    def folded(self) -> bool:
        """A lone term linear in the statistic: its coefficient goes into the statistic itself."""
        return len(self.terms) == 1 and self.terms[0].gamma == 2 and not self.terms[0].own

    @property
    def rooted(self) -> bool:
        """Some term is a power of the distance, so that tiles hold distances, not their squares."""
        return any(term.gamma != 2 for term in self.terms)

    def statistic(self) -> Inner | Squared | Power:
        leaf = self.terms[0].part.leaf
        factor = self.terms[0].coefficient if self.folded else 1.0
        if leaf.statistic == "inner":
            return Inner(self.base, self.scale, factor)
        if leaf.statistic == "squared":
            return Squared(self.base, self.scale, factor)
        return Power(self.base, self.scale, factor, leaf.p)

    def slope(self, term: Term) -> float:
        """The constant in d log k / d t as `push` expects it: twice that for squared distances."""
        return term.coefficient * (term.gamma if term.leaf.statistic == "squared" else 1.0)


def _grouped(parts: list[Part], origins: list[_Origin], rates: Any) -> list[_Group]:
    """Parts that compare the same rows in the same way share a group."""
    groups: dict[Any, list[int]] = {}
    for k, part in enumerate(parts):
        leaf = part.leaf
        alone = () if leaf.isotropic else (k,)
        key = (leaf.statistic, leaf.p, part.start, part.stop, type(leaf).base, *alone)
        groups.setdefault(key, []).append(k)
    return [
        _Group(
            *origins[members[0]],
            tuple(
                sorted(
                    (Term(parts[k], k, number_of(rates[k])) for k in members),
                    key=lambda term: term.gamma != 2,
                )
            ),
        )
        for members in groups.values()
    ]


class _Visit:
    """One evaluation of all tiles: what the forward pass knows and the backward pass uses again."""

    def __init__(self, layout: Layout, groups: list[_Group], differentiable: bool):
        self.layout = layout
        self.groups = groups
        self.statistics = [group.statistic() for group in groups]
        self.terms = [term for group in groups for term in group.terms]
        self.bounded = self._bounded()
        self.keeps = differentiable and layout.rows**2 <= KEPT
        self.kept: list[Any] = []
        self.size = TILE
        if self.keeps:
            self.size = TILE_KEPT
        elif any(isinstance(statistic, Power) for statistic in self.statistics):
            self.size = TILE_OF_DIFFERENCES
        self.like = groups[0].base
        start, stop = layout.window
        self.partners = slice(start, stop), slice(layout.n + start, layout.n + stop)
        self.paired: list[tuple[Tensor, Tensor]] = []
        self.pair = self.top = self.total = self.like

    def _bounded(self) -> bool:
        """Whether every sum is safe without looking for its maximum."""
        bounds = []
        for group, statistic in zip(self.groups, self.statistics, strict=True):
            leaf = group.terms[0].part.leaf
            largest = 1.0 if leaf.unit_rows and leaf.isotropic else statistic.largest()
            bounds += [(term, largest) for term in group.terms]
        return safe(bounds, self.groups[0].base)

    def _buffer(self, name: str, tile: Tile) -> Tensor:
        """Memory for a tile: the caller's own if it will be kept, else the same one every time."""
        if self.keeps and name[0] in "tk":
            return scratch.own(self.like, tile.shape)
        return scratch.shared(name, self.like, tile.shape)

    def _tiles(self) -> Iterator[tuple[Tile, int, Tensor]]:
        """Every tile with every group, and what the tiles of one strip of rows share."""
        strip: slice | None = None
        lefts: list[Tensor] = []
        for tile in self.layout.tiles(self.size):
            if strip != tile.i:
                strip, lefts = tile.i, [statistic.left(tile.i) for statistic in self.statistics]
            for index, left in enumerate(lefts):
                yield tile, index, left

    def _values(self, tile: Tile, index: int, left: Tensor) -> _Values:
        """The statistic t (its root, if a term wants that) and k, or log k if it is unbounded."""
        group = self.groups[index]
        t = self._buffer("t", tile)
        near = self.statistics[index].tile(left, tile.i, tile.j, tile.drop, t)
        values = []
        rooted = False
        for term in group.terms:
            value = t if group.folded else self._buffer(f"k{term.index}", tile)
            if term.own:
                torch.mul(t, term.rate, out=value)
                leaf = term.leaf
                value.copy_(leaf.k(value) if self.bounded else leaf.profile(value))
            elif term.gamma == 2:
                if not group.folded:
                    torch.mul(t, term.coefficient, out=value)
            else:
                if not rooted:
                    rooted = t.sqrt_() is t
                if term.gamma == 1:
                    torch.mul(t, term.coefficient, out=value)
                else:
                    torch.pow(t, term.gamma, out=value).mul_(term.coefficient)
            if self.bounded:
                if not term.own:
                    value.exp_()
                if term.part.weight != 1:
                    value.mul_(term.part.weight)
            elif term.part.weight != 1:
                value.add_(math.log(term.part.weight))
            for offset in tile.drop:
                value.diagonal(offset).fill_(0.0 if self.bounded else -torch.inf)
            values.append(value)
        return t, near, values

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs, sums, and the sum of their differences."""
        self._compare_pairs()
        self.top, self.total = self._sum_tiles()
        if self.layout.positive:
            self._count_pairs()
        top, total = self._anchors(self.top), self._anchors(self.total)
        above = top - self.pair if self.layout.views == 2 else top
        gap = (total.log() + above).sum()
        sums = total.log() + top
        return self.pair.clone(), sums, gap

    def _count_pairs(self) -> None:
        """Add the partners to the sums of their anchors."""
        top, total = self._anchors(self.top), self._anchors(self.total)
        if not self.bounded:
            higher = torch.maximum(top, self.pair)
            total.mul_((top - higher).exp())
            top.copy_(higher)
        total.add_((self.pair - top).exp())

    def spread(
        self, g_pairs: Tensor | None, g_sums: Tensor | None, g_gap: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Gradients of pairs and sums, with that of the gap handed down to both."""
        anchors = self._anchors(self.top)
        g_pairs = torch.zeros_like(self.pair) if g_pairs is None else g_pairs
        g_sums = torch.zeros_like(anchors) if g_sums is None else g_sums
        if g_gap is not None:
            g_pairs, g_sums = g_pairs - len(anchors) * g_gap, g_sums + g_gap
        return g_pairs, g_sums

    def _compare_pairs(self) -> None:
        """log k of partners, term by term and in all."""
        if self.layout.views == 1:
            self.pair = self.like.new_empty(0)
            return
        for group, statistic in zip(self.groups, self.statistics, strict=True):
            t = statistic.paired(*self.partners)
            for term in group.terms:
                self.paired.append((t, term.log(t)))
        self.pair = mixture([log_k for _, log_k in self.paired])

    def _sum_tiles(self) -> tuple[Tensor, Tensor]:
        """A level for each row (0 if bounded), and its sum over all tiles of k / exp(level)."""
        exact = torch.float32 if self.like.device.type == "mps" else torch.float64
        total = self.like.new_zeros(self.layout.rows, dtype=exact)
        top = self.like.new_full((self.layout.rows,), 0.0 if self.bounded else -torch.inf)
        for tile, index, left in self._tiles():
            t, near, values = self._values(tile, index, left)
            for value in values:
                if self.bounded:
                    total[tile.i].add_(value.sum(dim=1))
                    if tile.columns:
                        total[tile.j].add_(value.sum(dim=0))
                else:
                    _raise(top, total, tile.i, value, 1, self._buffer("e", tile))
                    if tile.columns:
                        _raise(top, total, tile.j, value, 0, self._buffer("e", tile))
            if self.keeps:
                self.kept.append((t, near, values))
        return top, total

    def _anchors(self, rows: Tensor) -> Tensor:
        """The entries of anchors, view by view, of a vector over the stacked rows."""
        layout, (start, stop) = self.layout, self.layout.window
        return rows[: layout.anchors * layout.n].view(layout.anchors, layout.n)[:, start:stop]

    def backward(self, g_pairs: Tensor, g: Tensor, wanted: tuple[bool, ...]) -> list[Tensor | None]:
        """Gradients of sum_i g_i sums_i + g_pairs_i pairs_i, to the features and the rates."""
        count = len(self.terms)
        share = torch.zeros_like(self.top)
        anchors = self._anchors(share)
        anchors.copy_(g / self._anchors(self.total))
        anchors.masked_fill_(self._anchors(self.total) == 0, 0.0)  # no candidate, no pull
        if self.layout.positive:
            weight = self.pair - self._anchors(self.top)
            if not self.bounded:
                weight.clamp_(max=0.0)
            g_pairs = g_pairs + (anchors * weight.exp()).sum(dim=0)
        pushed = [statistic.zeros() for statistic in self.statistics]
        turned = [0.0] * count
        kept, self.kept = self.kept, []  # used up here; another backward pass recomputes
        for tile, index, left in self._tiles():
            group, statistic = self.groups[index], self.statistics[index]
            was_kept = bool(kept)
            t, near, values = kept.pop(0) if was_kept else self._values(tile, index, left)
            weights: list[Tensor] = []
            for term, value in zip(group.terms, values, strict=True):
                pull = self._pull(tile, term, value, share)
                if term.own:
                    x = (t.square() if group.rooted else t) * term.rate
                    slope = term.leaf.slope(x)
                    if isinstance(statistic, Power):  # equal points do not pull
                        slope = slope.masked_fill(x == 0, 0.0)
                    pull.mul_(slope)
                if len(group.terms) > 1:
                    if wanted[count + term.index]:
                        shape = t.pow(term.gamma) if group.rooted else t
                        twice = 0.5 if tile.mirror else 1.0  # a mirror holds each pull twice
                        turned[term.index] += twice * float((pull * shape).sum())
                    pull.mul_(group.slope(term))
                if term.gamma == 2:
                    pass
                elif term.gamma == 1:
                    pull.div_(t)
                else:
                    pull.mul_(t.pow(term.gamma - 2))
                weights.append(weights.pop().add_(pull) if weights else pull)
            statistic.push(weights[0], tile.i, tile.j, near, tile.pulls_back, pushed[index])
            if was_kept:
                scratch.give_back(t, *values)
        if self.layout.views == 2:
            self._pull_pairs(g_pairs, pushed, turned)
        return self._gradients(pushed, turned, wanted)

    def _pull_pairs(self, g: Tensor, pushed: list[Tensor], turned: list[float]) -> None:
        """What the partners add to the gradient."""
        paired = iter(self.paired)
        for group, statistic, push in zip(self.groups, self.statistics, pushed, strict=True):
            for term in group.terms:
                t, log_k = next(paired)
                pull = g if len(self.terms) == 1 else g * (log_k - self.pair).exp()
                if term.own:
                    slope = term.leaf.slope(t * term.rate)
                    pull = torch.where(t > 0, pull * slope, 0.0)
                if len(group.terms) > 1:
                    turned[term.index] += float((pull * t.pow(term.gamma / 2)).sum())
                    pull = pull * group.slope(term)
                if term.gamma != 2:
                    pull = torch.where(t > 0, pull * t.pow(term.gamma / 2 - 1), 0.0)
                statistic.push_paired(pull, *self.partners, push)

    def _pull(self, tile: Tile, term: Term, value: Tensor, share: Tensor) -> Tensor:
        """P_ij = g_i k_ij / S_i, and g_j k_ij / S_j where the tile counts for its columns too."""
        if self.bounded:
            if tile.columns or tile.mirror:
                both = torch.add(share[tile.i, None], share[tile.j], out=self._buffer("e", tile))
            else:
                both = share[tile.i, None]
            return value.mul_(both)
        pull = torch.sub(value, self.top[tile.i, None], out=self._buffer(f"p{term.index}", tile))
        pull.clamp_(FAINT, 0.0).exp_().mul_(share[tile.i, None])
        if tile.mirror:  # not k_ji with the level of row j: both were rounded, and differently
            pull.add_(self._buffer("e", tile).copy_(pull.T))
        elif tile.columns:
            back = torch.sub(value, self.top[tile.j], out=self._buffer("e", tile))
            pull.add_(back.clamp_(FAINT, 0.0).exp_().mul_(share[tile.j]))
        return pull

    def _gradients(
        self, pushed: list[Tensor], turned: list[float], wanted: tuple[bool, ...]
    ) -> list[Tensor | None]:
        count = len(self.terms)
        features: list[Tensor | None] = [None] * count
        rates: list[Tensor | None] = [None] * count
        for group, statistic, push in zip(self.groups, self.statistics, pushed, strict=True):
            first = group.terms[0]
            alone = len(group.terms) == 1
            gradient = statistic.gradient(push, group.slope(first) if alone else 1.0)
            features[first.index] = gradient
            if alone and wanted[count + first.index]:
                # log k is homogeneous in the rows: Euler's theorem gives the slope along the rate.
                work = (statistic.centred * gradient).sum()
                rates[first.index] = work / (first.part.leaf.degree * first.rate)
        for term in self.terms:
            if rates[term.index] is None and wanted[count + term.index]:
                factor = 1.0 if term.own else term.leaf.factor
                rates[term.index] = self.like.new_tensor(turned[term.index] * factor)
        return [*features, *rates]


def _raise(top: Tensor, total: Tensor, rows: slice, log_k: Tensor, dim: int, e: Tensor) -> None:
    """Add the exponentials of a tile to sums kept relative to a running maximum."""
    old = top[rows]
    new = torch.maximum(old, log_k.amax(dim=dim))
    level = new.masked_fill(new == -torch.inf, 0.0)
    torch.sub(log_k, level.unsqueeze(dim), out=e).clamp_(FAINT, 0.0).exp_()
    total[rows] = total[rows] * (old - level).exp() + e.sum(dim=dim)
    top[rows] = new


def _dense_gradients(
    visit: _Visit,
    features: Any,
    rates: Any,
    wanted: tuple[bool, ...],
    g_pairs: Tensor,
    g: Tensor,
) -> list[Tensor | None]:
    """The same gradients by differentiable operations on the whole matrix."""
    layout = visit.layout
    candidate = torch.zeros(layout.rows, layout.rows, dtype=torch.bool, device=g.device)
    for tile in layout.tiles(max(1, layout.rows)):
        block = torch.ones(tile.shape, dtype=torch.bool, device=g.device)
        for offset in tile.drop:
            block.diagonal(offset).fill_(False)
        candidate[tile.i, tile.j] |= block
        if tile.columns:
            candidate[tile.j, tile.i] |= block.T
    features = [a.view_as(a) for a in features]  # terms may share one tensor: tell them apart
    rows = torch.arange(layout.rows, device=g.device)
    anchors = visit._anchors(rows).flatten()
    i, j = visit.partners
    if layout.positive:
        candidate[rows[i], rows[j]] = candidate[rows[j], rows[i]] = True
    occupied = candidate[anchors].any(dim=1)
    anchors = anchors[occupied]
    parts = [term.part for term in sorted(visit.terms, key=lambda term: term.index)]
    sources = list(zip(parts, features, rates, strict=True))
    logs = [
        part.log(a[anchors], a, rate).masked_fill(~candidate[anchors], -torch.inf)
        for part, a, rate in sources
    ]
    out, gradients = [torch.logsumexp(torch.cat(logs, dim=1), dim=1)], [g.flatten()[occupied]]
    if layout.views == 2:
        out.append(mixture([part.log_paired(a[i], a[j], rate) for part, a, rate in sources]))
        gradients.append(g_pairs)
    sought = [tensor for tensor, want in zip([*features, *rates], wanted, strict=True) if want]
    computed = iter(
        torch.autograd.grad(out, sought, gradients, create_graph=True, allow_unused=True)
    )
    return [next(computed) if want else None for want in wanted]
