"""`log_sum_exp` of a batch of a few hundred: one matrix, about forty operations.

Tiles cost some bookkeeping each, which counts when the whole step takes a millisecond. This is the
same arithmetic, written out for members that compare the same rows, where every anchor meets
everyone. The forward pass leaves what the backward pass multiplies by: the slope of k.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from chiaroscuro.errors import InputError
from chiaroscuro.kernels.kernel import Leaf, Part, mixture
from chiaroscuro.kernels.temperature import Temperature
from chiaroscuro.numerics import NEAR, full_precision
from chiaroscuro.pairwise import scratch
from chiaroscuro.pairwise.layout import Layout
from chiaroscuro.pairwise.statistics import Near, Squared
from chiaroscuro.pairwise.terms import FAINT, Term, number_of, safe

__all__ = ["dense"]

ROWS = 128, 768
"""Above so many rows, where float64 is no longer free, and up to so many this is the fastest."""

_Result = tuple[Tensor, Tensor, Tensor]


def dense(parts: list[Part], z: Tensor, layout: Layout) -> _Result | None:
    """Pairs, sums and gap of `log_sum_exp`, or None where the tiles have to do it."""
    if not (ROWS[0] < layout.rows <= ROWS[1] and layout.is_everyone and _alike(parts)):
        return None
    first = parts[0]
    base = first.leaf.base(first.seen(z))
    rate, scale = first.leaf.rate_and_scale(base)
    rates = [rate, *(part.leaf.rate_and_scale(base)[0] for part in parts[1:])]
    terms = [
        Term(part, k, number_of(x)) for k, (part, x) in enumerate(zip(parts, rates, strict=True))
    ]
    with full_precision(z.device):
        matrix = _Matrix(terms, base.detach(), scale, layout.n)
        return _Dense.apply(base, rate, matrix, layout.positive) if matrix.possible else None


def _alike(parts: list[Part]) -> bool:
    """Whether all parts are functions of one scalar product, or of one squared distance."""
    first = parts[0]
    leaf = first.leaf
    if len(parts) == 1:
        linear = leaf.statistic == "inner" and not leaf.own and leaf.exponent == 1
        fixed = leaf.isotropic or not isinstance(leaf.tau, Temperature)
        return first.weight == 1 and fixed and (linear or leaf.statistic == "squared")
    return all(_joins(part, first) for part in parts)


def _joins(part: Part, first: Part) -> bool:
    leaf: Leaf = part.leaf
    return (
        leaf.statistic == "squared"
        and isinstance(leaf.tau, float)
        and type(leaf).base is type(first.leaf).base
        and (part.start, part.stop) == (first.start, first.stop)
    )


class _Matrix:
    """k of everyone with everyone, the two views of a sample left out.

    Its entries are made of x = factor * t, of the statistic t; the factor is chosen so that few
    passes lead from x to k. `pull` times `slope` times `constant` is the derivative of k by t, of a
    product or half that by the rows of a distance.
    """

    def __init__(self, terms: list[Term], base: Tensor, scale: Tensor | None, n: int):
        self.terms, self.base, self.scale, self.n = terms, base, scale, n
        term, leaf = terms[0], terms[0].part.leaf
        self.alone = len(terms) == 1
        self.squared = leaf.statistic == "squared"
        if self.squared:
            self.a = base - base.mean(dim=0)
            if scale is not None:
                self.a *= scale
            self.size = torch.linalg.vecdot(self.a, self.a)
            self.widest = float(self.size.amax())
            largest = 4 * self.widest
        else:
            self.a = base if scale is None else base * scale
            unit = leaf.unit_rows and leaf.isotropic
            largest = 1.0 if unit else float(torch.linalg.vecdot(self.a, self.a).amax())
        self.bounded = safe([(each, largest) for each in terms], base)
        self.rooted = not term.own and term.gamma == 1 and 1e-12 < abs(term.coefficient) < 1e12
        self.factor, self.constant = self._factors(term) if self.alone else (1.0, 2.0)
        fits = 2 * largest * abs(self.factor) < torch.finfo(base.dtype).max
        self.possible = fits and (self.bounded or (self.alone and not term.own))
        self.pull: Tensor | None = None
        self.slope: Tensor | None = None
        self.top: Tensor | None = None
        self.near: Near = None
        self.statistic: Squared | None = None

    def _factors(self, term: Term) -> tuple[float, float]:
        """What the statistic is multiplied by, and what is left of the slope."""
        c = term.coefficient
        if term.own or term.gamma == 2:
            return c, 2 * c if self.squared else c
        return (c * c, math.copysign(c * c, c)) if self.rooted else (1.0, term.gamma)

    def _left_out(self, x: Tensor) -> Tensor:
        """The entries of a sample with itself, in either view."""
        return x.view(2, self.n, 2, self.n).diagonal(dim1=1, dim2=3)

    def _buffer(self) -> Tensor:
        return scratch.own(self.a, (2 * self.n, 2 * self.n))

    def _compare(self) -> Tensor:
        """x of everyone with everyone."""
        a, f, x = self.a, self.factor, self._buffer()
        if not self.squared:
            return x.addmm_(a, a.T, beta=0, alpha=f)
        size = self.size * f
        torch.add(size[:, None], size, out=x).addmm_(a, a.T, alpha=-2 * f)
        self._left_out(x).fill_((4 * self.widest or 1.0) * f)  # not near anything
        limit = 2 * self.widest * NEAR * f
        if (float(x.amax()) < limit) if f < 0 else (float(x.amin()) > limit):
            return x
        everyone = slice(0, 2 * self.n)
        self.statistic = Squared(self.base, self.scale, f)
        self.near = self.statistic.settle(everyone, everyone, (0, self.n, -self.n), x)
        return x

    def log_sums(self) -> Tensor:
        """log of the sum of k over each row, (2, n); what the gradient needs is kept."""
        x = self._compare()
        total = self._sums_of_one(x) if self.alone else self._sums_of_many(x)
        sums = total.log_()
        if self.top is not None:
            sums += self.top
        return sums.view(2, self.n)

    def _sums_of_one(self, x: Tensor) -> Tensor:
        term = self.terms[0]
        if term.own:
            k, self.slope = term.leaf.k_and_slope(x, self._buffer())
        else:
            k = self._log_of_one(x, term)
            if not self.bounded:
                self._left_out(k).fill_(-torch.inf)
                self.top = k.amax(dim=1)
                k.sub_(self.top[:, None]).clamp_(FAINT, 0.0)
            k.exp_()
        self._left_out(k).zero_()
        self.pull = k
        return k.sum(dim=1)

    def _log_of_one(self, x: Tensor, term: Term) -> Tensor:
        """log k in the place of x; its slope beside it."""
        if term.gamma == 2:
            return x
        if self.rooted:
            self.slope = self._reciprocal_root(x)
            sign = math.copysign(1.0, term.coefficient)
            return torch.addcmul(x.new_zeros(()), x, self.slope, value=sign, out=x)
        log_k = torch.pow(x, term.gamma / 2, out=self._buffer()).mul_(term.coefficient)
        self.slope = torch.div(log_k, x, out=x)
        return log_k

    def _reciprocal_root(self, x: Tensor) -> Tensor:
        """1 / sqrt(x), and 0 for equal points."""
        root = torch.rsqrt(x, out=self._buffer())
        return root if self.near is None else root.masked_fill_(x == 0, 0.0)

    def _sums_of_many(self, x: Tensor) -> Tensor:
        """A sum of kernels has one slope, the sum of theirs."""
        total, root = torch.zeros_like(self.size), None
        for term in self.terms:
            c, slope, share = term.coefficient, None, term.coefficient
            if term.own:
                y = torch.mul(x, c, out=self._buffer())
                k, slope = term.leaf.k_and_slope(y, self._buffer())
            elif term.gamma == 2:
                k = torch.mul(x, c, out=self._buffer()).exp_()
            elif term.gamma == 1:
                root = self._reciprocal_root(x) if root is None else root
                k = torch.addcmul(x.new_zeros(()), x, root, value=c, out=self._buffer()).exp_()
                slope, share = root, c / 2
            else:
                log_k = x.pow(term.gamma / 2).mul_(c)
                slope, share = log_k / x, term.gamma / 2
                k = log_k.exp_()
            self._left_out(k).zero_()
            total.add_(k.sum(dim=1), alpha=term.part.weight)
            self._add_slope(k, slope, share * term.part.weight)
        scratch.give_back(x, *([] if root is None else [root]))
        return total

    def _add_slope(self, k: Tensor, slope: Tensor | None, share: float) -> None:
        if self.pull is None:
            self.pull = k.mul_(share) if slope is None else k.mul_(slope).mul_(share)
            return
        if slope is None:
            self.pull.add_(k, alpha=share)
        else:
            self.pull.addcmul_(k, slope, value=share)
        scratch.give_back(k)

    def gradient(self, share: Tensor) -> Tensor:
        """What k_ij (share_i + share_j) pulls at the rows; uses up what was kept."""
        if self.pull is None:  # another backward pass
            self.log_sums()
        pull, slope, a = cast("Tensor", self.pull), self.slope, self.a
        both = scratch.shared("e", a, (len(a), len(a)))
        if self.top is None:
            weights = pull.mul_(torch.add(share[:, None], share, out=both))
        else:  # not k_ji with the level of row j: both were rounded, and differently
            weights = torch.add(pull.mul_(share[:, None]), pull.T, out=both)
        if slope is not None:
            weights.mul_(slope)
        if self.statistic is not None:
            everyone, pushed = slice(0, len(a)), self.statistic.zeros()
            self.statistic.push(weights, everyone, everyone, self.near, False, pushed)
            gradient = self.statistic.gradient(pushed, 1.0)
        elif self.squared:
            gradient = (a * weights.sum(dim=1, keepdim=True)).addmm_(weights, a, alpha=-1)
        else:
            gradient = weights @ a
        self.release()
        return gradient

    def release(self) -> None:
        """Let go of what was kept for the gradient."""
        scratch.give_back(*(x for x in (self.pull, self.slope) if x is not None))
        self.pull = self.slope = None

    def paired(self) -> tuple[Tensor, Tensor]:
        """The statistic of partners, and their difference, or what stands for it."""
        if not self.squared:
            return torch.linalg.vecdot(self.a[: self.n], self.a[self.n :]), self.a
        difference = self.base[: self.n] - self.base[self.n :]
        if self.scale is not None:  # scaled after it was taken: before, it would be rounded
            difference *= self.scale
        return torch.linalg.vecdot(difference, difference), difference

    def add_pairs(self, gradient: Tensor, weights: Tensor, difference: Tensor) -> None:
        """Add what partners pull at each other, by the derivative of the loss by their t."""
        first, second = gradient.view(2, self.n, -1).unbind()
        if self.squared:
            pull = difference * (weights * 2)[:, None]
            first.add_(pull)
            second.sub_(pull)
        else:
            first.addcmul_(self.a[self.n :], weights[:, None])
            second.addcmul_(self.a[: self.n], weights[:, None])


def _slope(matrix: _Matrix, t: Tensor, logs: list[Tensor], pair: Tensor) -> Tensor | float:
    """d log k / d t of partners."""
    slopes = [term.slope(t) for term in matrix.terms]
    if matrix.alone:
        return slopes[0]
    each = zip(logs, slopes, strict=True)
    return torch.stack([(log_k - pair).exp_() * slope for log_k, slope in each]).sum(dim=0)


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base: Tensor, rate: Any, matrix: _Matrix, positive: bool) -> _Result:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(base, *([rate] if isinstance(rate, Tensor) else []))
        ctx.matrix, ctx.positive = matrix, positive
        others = matrix.log_sums()
        t, ctx.difference = matrix.paired()
        logs = [term.log(t) for term in matrix.terms]
        pair = logs[0] if matrix.alone else mixture(logs)
        ctx.ahead = ahead = others - pair
        above = softplus(ahead, 1.0, 50.0) if positive else ahead
        sums = pair + above
        if any(ctx.needs_input_grad):
            level = -sums if matrix.top is None else matrix.top.view_as(sums) - sums
            ctx.share = level.exp_()
            ctx.slope = _slope(matrix, t, logs, pair)
        else:
            matrix.release()
        return pair, sums, above.sum()

    @staticmethod
    def backward(ctx: Any, g_pairs: Any, g_sums: Any, g_gap: Any) -> Any:
        (base, *learnt), matrix = ctx.saved_tensors, ctx.matrix
        if torch.is_grad_enabled():  # the gradient will be differentiated: stay in the graph
            with full_precision(base.device):
                return _again(ctx, base, learnt, (g_pairs, g_sums, g_gap))
        g = g_gap if g_sums is None else g_sums if g_gap is None else g_sums + g_gap
        g_pair = g_pairs
        if g is None:
            gradient = torch.zeros_like(matrix.a)
        else:
            with full_precision(base.device):
                gradient = matrix.gradient((ctx.share * (g * matrix.constant)).view(-1))
            lost = torch.sigmoid(ctx.ahead) if ctx.positive else torch.ones_like(ctx.ahead)
            # a sum rises by 1 - lost with the partner's log k; the gap, sum less pair, by -lost
            pulls = None if g_gap is None else lost.sum(dim=0).mul_(-g_gap)
            if g_sums is not None and ctx.positive:
                gains = (g_sums * (1 - lost)).sum(dim=0)
                pulls = gains if pulls is None else pulls + gains
            if pulls is not None:
                g_pair = pulls if g_pair is None else g_pair + pulls
        if g_pair is not None:
            matrix.add_pairs(gradient, g_pair * ctx.slope, ctx.difference)
        slope = None
        if ctx.needs_input_grad[1]:
            # log k is homogeneous in the rows: Euler's theorem gives the slope along the rate.
            term = matrix.terms[0]
            slope = (matrix.a * gradient).sum() / (term.leaf.degree * term.rate)
        if matrix.scale is not None:
            gradient *= matrix.scale
        return gradient, slope, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise InputError(
            "`log_sum_exp` needs reverse mode; received a forward-mode tangent. Use `backward` "
            "or `torch.autograd.grad`."
        )


def _again(ctx: Any, base: Tensor, learnt: list[Tensor], grads: tuple[Tensor | None, ...]) -> Any:
    """The same gradients by differentiable operations."""
    matrix, n = ctx.matrix, ctx.matrix.n
    rates = [*learnt, *(term.rate for term in matrix.terms[len(learnt) :])]
    sources = [(term.part, rate) for term, rate in zip(matrix.terms, rates, strict=True)]
    rows = base if matrix.scale is None else base * matrix.scale
    left_out = torch.eye(n, dtype=torch.bool, device=base.device).repeat(2, 2)
    log_k = mixture([part.log(rows, rows, rate) for part, rate in sources])
    others = torch.logsumexp(log_k.masked_fill(left_out, -torch.inf), dim=1).view(2, n)
    pair = mixture([part.log_paired(rows[:n], rows[n:], rate) for part, rate in sources])
    above = -logsigmoid(pair - others) if ctx.positive else others - pair
    outs = zip((pair, pair + above, above.sum()), grads, strict=True)
    given = [(out, g) for out, g in outs if g is not None]
    wanted = ctx.needs_input_grad[:2]
    sought = [x for x, want in zip((base, *learnt), wanted, strict=False) if want]
    results = torch.autograd.grad(
        [out for out, _ in given], sought, [g for _, g in given], create_graph=True
    )
    gradients = iter(results)
    return *(next(gradients) if want else None for want in wanted), None, None
