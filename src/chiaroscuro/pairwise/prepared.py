"""log k by blocks where no number may be read: on an accelerator, and inside transforms.

A block costs an accelerator little arithmetic and many launches, so what does not depend on the
block (unit rows, scales, squared norms) is computed once, and members of a mixture that compare the
same rows in the same way share the comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.kernels.kernel import Kernel, Part, mixture
from chiaroscuro.numerics import (
    device_distances,
    power,
    power_sums,
    product,
    readable,
    transformed,
)

__all__ = ["Prepared", "Rows", "Views", "prepare"]

_NOTHING = 32
"""Squared distances below so many roundings of the norms, alike for near points, are 0."""


@dataclass(frozen=True)
class Views:
    """The first 2n rows as two views (2, n, d), one above the other or exchanged."""

    n: int
    exchanged: bool = False


Rows = slice | Views


class Prepared(ABC):
    """A kernel on given rows: the tensors that it needs of them, and its blocks (abstract)."""

    tensors: list[Tensor]
    """What blocks depend on; their gradient is that of the rows and the parameters."""

    in_views = False
    """Whether rows can also be chosen as `Views`."""

    breadth = 1
    """How many numbers the comparison of two rows keeps until its gradient is taken."""

    @abstractmethod
    def logs(self, tensors: Sequence[Tensor], i: Rows, j: Rows, twice: bool) -> list[Tensor]:
        """log k of rows i and j, of each member of a mixture.

        `twice` where the gradient itself will be differentiated.
        """

    def log(self, tensors: Sequence[Tensor], i: Rows, j: Rows, twice: bool) -> Tensor:
        """log k of rows i and j."""
        return mixture(self.logs(tensors, i, j, twice))

    @abstractmethod
    def log_paired(self, i: slice, j: slice) -> Tensor:
        """log k of row with row, of the tensors as they are."""


def prepare(kernel: Kernel, z: Tensor) -> Prepared:
    """The kernel on the rows of z, in the way that suits kernel and device."""
    parts = kernel.parts(z.shape[1])
    if readable(z) or not all(part.is_leaf for part in parts):
        return _Plain(kernel, z)
    return _Shared(parts, z)


class _Plain(Prepared):
    """Any kernel: `kernel.log` of the rows themselves."""

    def __init__(self, kernel: Kernel, z: Tensor):
        self.kernel, self.z = kernel, z
        # inside a transform everything is in its graph: nothing has to be handed over
        named = {} if transformed() else dict(kernel.named_parameters())
        self.names = tuple(named)
        self.tensors = [z, *named.values()]

    def logs(self, tensors: Sequence[Tensor], i: Rows, j: Rows, twice: bool) -> list[Tensor]:
        if not self.names:
            return [self.kernel.matrix(_take(tensors[0], i), _take(tensors[0], j))]
        with _standing_in(self.kernel, self.names, tensors[1 : 1 + len(self.names)]):
            return [self.kernel.matrix(_take(tensors[0], i), _take(tensors[0], j))]

    def log_paired(self, i: slice, j: slice) -> Tensor:
        return self.kernel.log_paired(self.z[i], self.z[j])


@contextmanager
def _standing_in(
    module: nn.Module, names: Sequence[str], tensors: Sequence[Tensor]
) -> Iterator[None]:
    """Let tensors stand in the places of parameters.

    Where others stood there in the forward pass, as inside `torch.func.functional_call`, they do
    in the backward pass as well.
    """
    places = [
        (module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in names
    ]
    before = [owner._parameters[leaf] for owner, leaf in places]
    try:
        for (owner, leaf), tensor in zip(places, tensors, strict=True):
            owner._parameters[leaf] = tensor  # type: ignore[assignment]
        yield
    finally:
        for (owner, leaf), kept in zip(places, before, strict=True):
            owner._parameters[leaf] = kept


@dataclass(frozen=True)
class _Member:
    """A part, and where it finds its comparison and its rate."""

    part: Part
    rows: Tensor
    rate: float | Tensor
    first: int
    """Place of the first tensor of its comparison."""
    place: int | None
    """Place of the rate, where it learns."""


class _Shared(Prepared):
    """Parts that are functions of a statistic; equal comparisons are made once."""

    in_views = True

    def __init__(self, parts: list[Part], z: Tensor):
        self.tensors: list[Tensor] = []
        self.members: list[_Member] = []
        known: dict[Any, tuple[int, Tensor]] = {}
        for k, part in enumerate(parts):
            leaf = part.leaf
            if leaf.statistic == "power":  # the gradient of `cdist` holds all differences
                self.breadth = max(self.breadth, part.stop - part.start)
            alone = () if leaf.isotropic else (k,)
            key = (leaf.statistic, leaf.p, part.start, part.stop, type(leaf).base, *alone)
            if key in known:
                first, rows = known[key]
                rate = leaf.rate_and_scale(part.seen(z))[0]
            else:
                rows, rate, *_ = part.features(z)
                first = len(self.tensors)
                sides = leaf.statistic == "squared" and transformed()
                self.tensors += _sides(rows) if sides else [rows]
                known[key] = first, rows
            place = None
            if isinstance(rate, Tensor):
                place = len(self.tensors)
                self.tensors.append(rate)
            self.members.append(_Member(part, rows, rate, first, place))

    def logs(self, tensors: Sequence[Tensor], i: Rows, j: Rows, twice: bool) -> list[Tensor]:
        seen: dict[int, Tensor] = {}
        logs = []
        for m in self.members:
            if m.first not in seen:
                seen[m.first] = _statistic(m, tensors, i, j, twice)
            rate = m.rate if m.place is None else tensors[m.place]
            logs.append(m.part.of_statistic(seen[m.first], rate))
        return logs

    def log_paired(self, i: slice, j: slice) -> Tensor:
        seen: dict[int, Tensor] = {}
        logs = []
        for m in self.members:
            if m.first not in seen:
                seen[m.first] = m.part.paired(*_halves(m.rows, i, j))
            logs.append(m.part.of_statistic(seen[m.first], m.rate))
        return mixture(logs)


def _sides(rows: Tensor) -> list[Tensor]:
    """[-2a, |a|^2, 1] and [a, 1, |a|^2] around the mean, whose product is all squared distances.

    Only inside a transform; on the CPU in float64, where near points keep their digits, elsewhere
    in the format of the rows, where they keep fewer. The 1 is short by a few roundings, so that
    equal points come out below 0, and a `relu` gives them distance 0 and gradient 0; what that
    takes from a distance of float64 is less than float32 resolves.
    """
    a = rows.double() if rows.device.type == "cpu" else rows
    a = a - a.detach().mean(dim=0)
    size = a.square().sum(dim=1, keepdim=True)
    one = torch.full_like(size, 1 - _NOTHING * torch.finfo(a.dtype).eps)
    return [torch.cat([a * -2, size, one], dim=1), torch.cat([a, one, size], dim=1)]


def _halves(rows: Tensor, i: slice, j: slice) -> tuple[Tensor, Tensor]:
    if i.start == 0 and i.stop == j.start and j.stop == len(rows):
        first, second = rows.view(2, i.stop, rows.shape[1]).unbind()
        return first, second
    return rows[i], rows[j]


def _take(x: Tensor, rows: Rows) -> Tensor:
    if isinstance(rows, slice):
        return x if (rows.start, rows.stop) == (0, len(x)) else x[rows]
    views = _take(x, slice(0, 2 * rows.n)).view(2, rows.n, x.shape[1])
    return views.flip(0) if rows.exchanged else views


def _statistic(m: _Member, tensors: Sequence[Tensor], i: Rows, j: Rows, twice: bool) -> Tensor:
    leaf = m.part.leaf
    if leaf.statistic == "squared" and transformed():
        left, right = _take(tensors[m.first], i), _take(tensors[m.first + 1], j)
        return torch.relu(product(left, right)).to(m.rows.dtype)
    a, b = _take(tensors[m.first], i), _take(tensors[m.first], j)
    if leaf.statistic == "inner":
        return product(a, b)
    if leaf.statistic == "squared":
        return device_distances(a, b)
    # one launch each way and no (i, j, d) tensor; but its gradient has no gradient
    return _differences(a, b, leaf.p) if twice else power(torch.cdist(a, b, leaf.p), leaf.p)


def _differences(a: Tensor, b: Tensor, p: float) -> Tensor:
    if a.ndim == 2:
        return power_sums(a, b, p)
    return torch.stack([power_sums(x, y, p) for x, y in zip(a, b, strict=True)])
