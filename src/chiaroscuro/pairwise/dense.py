"""The plain case of `log_sum_exp` for a batch of a few hundred: one matrix, a dozen operations.

Tiles cost some bookkeeping each, which counts when the whole step takes two milliseconds. This is
the same arithmetic, written out for the commonest kernel, unit rows and one temperature, where
every anchor meets everyone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chiaroscuro.errors import InputError
from chiaroscuro.kernels.kernel import Features, Part
from chiaroscuro.numerics import full_precision
from chiaroscuro.pairwise import scratch
from chiaroscuro.pairwise.layout import Layout

__all__ = ["dense", "is_plain", "number_of"]

ROWS = 128, 768
"""Above so many rows, where float64 is no longer free, and up to so many this is the fastest."""
STEEP = 30.0
"""1/tau up to this can be exponentiated and summed without tracking a maximum."""


def is_plain(parts: list[Part], features: list[Features], layout: Layout) -> bool:
    """Whether `dense` computes this."""
    leaf = parts[0].leaf
    return (
        len(parts) == 1
        and not leaf.own
        and leaf.unit_rows
        and leaf.isotropic
        and parts[0].weight == 1
        and ROWS[0] < layout.rows <= ROWS[1]
        and layout.is_everyone
        and number_of(features[0].rate) <= STEEP
    )


def dense(rows: Tensor, rate: float | Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs, sums and gap of `log_sum_exp`, for a . b * rate over everyone."""
    return _Dense.apply(rows, rate, layout.n, layout.positive)


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, rate: Any, n: int, positive: bool) -> Any:
        ctx.set_materialize_grads(False)
        ctx.n, ctx.positive, ctx.rate = n, positive, number_of(rate)
        ctx.save_for_backward(rows, *([rate] if isinstance(rate, Tensor) else []))
        a, c = rows.detach(), ctx.rate
        with full_precision(a.device):
            k = _kernel(a, c, n)
        total = k.sum(dim=1).view(2, n)
        pair = (a[:n] * a[n:]).sum(dim=1).mul_(c)
        if positive:
            total += pair.exp()
        ctx.k, ctx.total, ctx.pair = k, total, pair
        sums = total.log()
        return pair.clone(), sums, (sums - pair).sum()

    @staticmethod
    def backward(ctx: Any, g_pairs: Any, g_sums: Any, g_gap: Any) -> Any:
        (rows, *learnt), n, c = ctx.saved_tensors, ctx.n, ctx.rate
        g = torch.zeros_like(ctx.total) if g_sums is None else g_sums
        g_pair = torch.zeros_like(ctx.pair) if g_pairs is None else g_pairs
        if g_gap is not None:
            g, g_pair = g + g_gap, g_pair - 2 * g_gap
        if torch.is_grad_enabled():  # the gradient will be differentiated: stay in the graph
            rate = learnt[0] if learnt else c
            with full_precision(rows.device):
                return _again(rows, rate, n, ctx.positive, g, g_pair, ctx.needs_input_grad)
        a = rows.detach()
        share = (g / ctx.total).view(-1)
        k, ctx.k = ctx.k, None  # used up here; another backward pass recomputes
        with full_precision(a.device):
            if k is None:
                k = _kernel(a, c, n)
            both = scratch.shared("e", a, (2 * n, 2 * n))
            gradient = k.mul_(torch.add(share[:, None], share, out=both)) @ a
        scratch.give_back(k)
        if ctx.positive:
            g_pair = g_pair + share.view(2, n).sum(dim=0) * ctx.pair.exp()
        gradient[:n].addcmul_(a[n:], g_pair[:, None])
        gradient[n:].addcmul_(a[:n], g_pair[:, None])
        slope = (a * gradient).sum() / 2 if ctx.needs_input_grad[1] else None
        return gradient.mul_(c), slope, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise InputError(
            "`log_sum_exp` needs reverse mode; received a forward-mode tangent. Use `backward` "
            "or `torch.autograd.grad`."
        )


def number_of(rate: float | Tensor) -> float:
    """A rate as a plain number."""
    return float(rate.detach()) if isinstance(rate, Tensor) else rate


def _kernel(a: Tensor, c: float, n: int) -> Tensor:
    """k of everyone with everyone, self and partner left out."""
    k = scratch.own(a, (2 * n, 2 * n)).addmm_(a, a.T, beta=0, alpha=c).exp_()
    for offset in (0, n, -n):
        k.diagonal(offset).zero_()
    return k


def _again(
    rows: Tensor, rate: Any, n: int, positive: bool, g: Tensor, g_pair: Tensor, wanted: Any
) -> Any:
    """The same gradients by differentiable operations."""
    log_k = (rows @ rows.T) * rate
    left_out = torch.eye(2 * n, dtype=torch.bool, device=rows.device)
    if not positive:
        left_out = left_out | left_out.roll(n, dims=0)
    sums = torch.logsumexp(log_k.masked_fill(left_out, -torch.inf), dim=1).view(2, n)
    pair = (rows[:n] * rows[n:]).sum(dim=1) * rate
    sought = [x for x, want in zip((rows, rate), wanted[:2], strict=True) if want]
    found = iter(torch.autograd.grad((sums, pair), sought, (g, g_pair), create_graph=True))
    return *(next(found) if want else None for want in wanted[:2]), None, None
