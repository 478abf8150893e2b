"""Gradients of each sample's output, layer by layer, in the form in which they are smallest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Factor", "Lazy", "Outer", "Rows"]

BUDGET = 1 << 29
"""Bytes that the gradients formed at once may take."""


class Factor(ABC):
    """Gradients of n samples' d outputs by some parameters: (n, d, p), formed or not (abstract)."""

    @abstractmethod
    def matrices(self) -> Iterator[Tensor]:
        """Yield the gradients as matrices (n d, p'), some parameters at a time."""

    @abstractmethod
    def weighed(self, u: Tensor) -> list[Tensor]:
        """sum_{i,k} u_ik grad of output k of sample i: one gradient, parameter by parameter."""

    def squares(self) -> Tensor:
        """Return the sum of all squared gradients: this factor's share of the trace."""
        return sum(
            (matrix.square().sum(dtype=torch.float64) for matrix in self.matrices()),
            start=torch.zeros((), dtype=torch.float64),
        )


@dataclass(frozen=True, eq=False)
class Outer(Factor):
    """A matrix of weights [W, b] that meets inputs at T places: grad = sum_t g_t [a_t, 1]^T.

    Args:
        g: (n, d, T, out), gradients of the layer's outputs.
        a: (n, T, in), its inputs; a last column of ones if it has a bias.
        shapes: shapes of the parameters whose gradients stand side by side in (out, in).
        entries: of a table, which of its entries the `in` columns stand for.
    """

    g: Tensor
    a: Tensor
    shapes: tuple[torch.Size, ...]
    entries: Tensor | None = None

    def matrices(self) -> Iterator[Tensor]:
        n, d, places, out = self.g.shape
        width = self.a.shape[2]
        some = max(1, BUDGET // (n * d * width * self.g.element_size()))
        for start in range(0, out, some):
            g = self.g[..., start : start + some].transpose(2, 3)
            yield torch.bmm(g.reshape(n, -1, places), self.a).view(n * d, -1)

    def weighed(self, u: Tensor) -> list[Tensor]:
        g = torch.einsum("nkto,nk->nto", self.g, u)
        both = torch.einsum("nto,nti->oi", g, self.a)
        if self.entries is not None:
            return [both.new_zeros(self.shapes[0]).index_copy(0, self.entries, both.T)]
        parts = both.split([max(1, shape.numel() // shape[0]) for shape in self.shapes], dim=1)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def squares(self) -> Tensor:
        if self.g.shape[2] > 1:
            return super().squares()
        g, a = (x.square().sum(dim=-1, dtype=torch.float64) for x in (self.g, self.a))
        return (g[:, :, 0] * a).sum()

    @property
    def by_places(self) -> bool:
        """Whether products of places are cheaper than gradients: always so for one place."""
        n, d, places, out = self.g.shape
        rows, width = n * d, self.a.shape[2]
        formed = rows * places * out * width + rows**2 * out * width
        products = (rows * places) ** 2 * (out + 3) + (n * places) ** 2 * width
        return products < formed

    def block(self, i: slice, j: slice) -> Tensor:
        """Return the share of K of samples i and j, (n_i d, n_j d), by products of places.

        sum_{t,s} (g_it . g_js) (a_it . a_js): gradients themselves are never formed.
        """
        gi, gj, ai, aj = self.g[i], self.g[j], self.a[i], self.a[j]
        (n, d, places, out), m = gi.shape, len(gj)
        near = gi.reshape(-1, out) @ gj.reshape(-1, out).T
        like = ai.reshape(n * places, -1) @ aj.reshape(m * places, -1).T
        if places == 1:
            return near.view(n, d, m, d).mul_(like.view(n, 1, m, 1)).view(n * d, m * d)
        near = near.view(n, d, places, m, d, places).mul_(like.view(n, 1, places, m, 1, places))
        return near.sum(dim=(2, 5)).view(n * d, m * d)


@dataclass(frozen=True, eq=False)
class Rows(Factor):
    """Gradients as they are: one tensor (n, d, *shape) for each parameter."""

    grads: tuple[Tensor, ...]

    def matrices(self) -> Iterator[Tensor]:
        for grad in self.grads:
            matrix = grad.reshape(grad.shape[0] * grad.shape[1], -1)
            some = max(1, BUDGET // (len(matrix) * matrix.element_size()))
            yield from matrix.split(some, dim=1)

    def weighed(self, u: Tensor) -> list[Tensor]:
        return [torch.tensordot(u, grad, dims=2) for grad in self.grads]


@dataclass(frozen=True, eq=False)
class Lazy(Factor):
    """Gradients that are made when they are asked for, some parameters at a time."""

    groups: tuple[Callable[[], Rows], ...]

    def matrices(self) -> Iterator[Tensor]:
        for group in self.groups:
            yield from group().matrices()

    def weighed(self, u: Tensor) -> list[Tensor]:
        return [grad for group in self.groups for grad in group().weighed(u)]
