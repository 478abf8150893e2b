"""Projectors: from the representation h to the projection z that the objective sees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.mlp import perceptron, rows
from chiaroscuro.models.model import Model, one_of, positive
from chiaroscuro.numerics import unit

__all__ = ["Projector"]


class Projector(Model):
    """Projector: identity, linear map or perceptron on h, with optional output normalisation.

        depth 0: z = last(h);  depth 1: z = last(W h);  depth 2: z = last(W_2 relu(norm(W_1 h)))

    With `last="standardise"` each dimension of z has mean 0 and variance 1 over the batch. Without
    it a small network may stay at the collapsed loss log(2n-1) from the start: all embeddings
    begin in one narrow cone, and the cosine between them has hardly a gradient.

    Args:
        d_in: dimension of h, the encoder's `d`.
        d: dimension of z; 128 [chen2020simclr, Sec. 2.3]. None keeps that of h.
        depth: linear layers; 2 [chen2020simclr, Sec. 2.3]; 1 is the linear projector of
            [cosentino2022]; 0 the identity.
        width: width of the hidden layers; None is that of h, as in the code of [chen2020simclr].
        batch_norm: whether a batch norm precedes each relu, as in the code of [chen2020simclr].
        last: "standardise" (a BatchNorm without affine part), "unit" (rows of norm 1) or "none".

    Numerics: a BatchNorm needs at least two samples in a training batch; a zero row stays zero
    under "unit".

    References:
        chen2020simclr, cosentino2022, rusak2022

    Example:
        >>> z = Projector(d_in=8, d=4)(torch.randn(100, 8))
        >>> bool(z.mean(0).abs().max() < 1e-5)
        True
        >>> Projector(d_in=512, d=128, depth=1, last="none")
        Projector(d_in=512, d=128, depth=1, batch_norm=True, last='none')
    """

    def __init__(
        self,
        d_in: int,
        d: int | None = 128,
        depth: int = 2,
        width: int | None = None,
        batch_norm: bool = True,
        last: str = "standardise",
    ):
        super().__init__()
        positive(self, d_in=d_in, **{"d": d} if d is not None else {})
        positive(self, **{"width": width} if width is not None else {})
        one_of(self, "last", last, ("standardise", "unit", "none"))
        need(
            isinstance(depth, int) and depth >= 0,
            lambda: f"`Projector(depth={depth!r})` needs an integer `depth >= 0`.",
        )
        need(
            depth > 0 or d in (None, d_in),
            lambda: (
                f"`Projector(d_in={d_in}, d={d}, depth=0)` is the identity and needs "
                f"`d == d_in`; received {d} and {d_in}. Write `d=None`, or `depth=1` to project."
            ),
        )
        self.d_in, self.d, self.depth, self.width = d_in, d or d_in, depth, width
        self.batch_norm, self.last = batch_norm, last
        sizes = [d_in, *[width or d_in] * (depth - 1), self.d]
        self.layers: nn.Module = nn.Identity()
        if depth:
            normalisation = "batch" if batch_norm else "none"
            self.layers = perceptron(sizes, "relu", normalisation, "he", last != "standardise")
        self.standard = nn.BatchNorm1d(self.d, affine=False) if last == "standardise" else None

    def forward(self, h: Tensor) -> Tensor:
        normalises = self.last == "standardise" or (self.batch_norm and self.depth > 1)
        z = self.layers(rows(self, h, self.d_in, normalises))
        if self.standard is not None:
            return self.standard(z)
        return unit(z) if self.last == "unit" else z

    def example(self, n: int = 2) -> Tensor:
        return torch.zeros(n, self.d_in)
