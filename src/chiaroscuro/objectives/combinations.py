"""Objectives made of objectives: weighted sums, slices of the dimensions, groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from chiaroscuro.errors import need, number
from chiaroscuro.objectives.objective import Batch, Objective

__all__ = ["Grouped", "Matryoshka", "OnDims", "Weighted"]


class Weighted(Objective):
    """Weighted sum of losses on the same batch, such as the mixtures of [tan2024, Table 2].

        loss = sum_m weight_m loss_m(z1, z2)

    A sum of losses is not the loss of a sum of kernels: compare `InfoNCE(Sum(k1, k2))`.

    Relations: `Weighted((1.0, f))` is f.

    Args:
        members: pairs (weight, objective) with positive weights.

    References:
        tan2024

    Example:
        >>> from chiaroscuro.objectives import BYOL, SpectralContrastive
        >>> Weighted((0.8, BYOL()), (0.2, SpectralContrastive()))
        Weighted((0.8, BYOL(normalise=True)), (0.2, SpectralContrastive()))
    """

    def __init__(self, *members: tuple[float, Objective]):
        super().__init__()
        need(
            len(members) > 0
            and all(isinstance(m, (tuple, list)) and len(m) == 2 for m in members)
            and all(isinstance(m[1], Objective) for m in members),
            lambda: (
                f"`Weighted((weight, objective), ...)` needs pairs of a number and an "
                f"objective; received {members}."
            ),
        )
        self.members = tuple(
            (number("Weighted", "weight", weight, above=True), objective)
            for weight, objective in members
        )
        for m, (_, objective) in enumerate(self.members):
            self.add_module(str(m), objective)
        kinds = {objective.reduces for _, objective in members}
        self.reduces = kinds.pop() if len(kinds) == 1 else "batch"
        takes = [objective.takes for _, objective in members]
        # labels serve those who know them; extra candidates must not be lost on anyone
        self.takes = frozenset.intersection(*takes) | (frozenset.union(*takes) & {"labels"})
        self.needs = frozenset.union(*(objective.needs for _, objective in members))
        self.least = max(objective.least for _, objective in members)
        self.directed = any(objective.directed for _, objective in members)

    def loss(self, batch: Batch) -> Tensor:
        return torch.stack([w * f.loss(batch) for w, f in self.members]).sum()

    def losses(self, batch: Batch) -> Tensor:
        each = [w * f.losses(batch) for w, f in self.members]
        need(
            len({len(one) for one in each}) == 1,
            lambda: (
                f'`Weighted(..., reduction)` needs members with the same anchors, or "mean"; '
                f"received {[len(one) for one in each]} losses per anchor."
            ),
        )
        return torch.stack(each).sum(dim=0)

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        attracts, repels = [], []
        for w, f in self.members:
            attract, repel = f.split(batch)
            attracts.append(w * attract)
            repels.append(w * repel)
        return torch.stack(attracts).sum(), torch.stack(repels).sum()


class OnDims(Objective):
    """Apply an objective to the dimensions start <= k < stop only.

        loss = objective(z1[:, start:stop], z2[:, start:stop])

    DirectCLR is this on the encoder's own output [jing2022directclr]; halves of a concatenation
    are two of these in a `Weighted` [tan2024, Table 2].

    Relations: `OnDims(f, 0, d)` is f; the gradient of the dimensions outside is zero.

    Args:
        objective: what is computed.
        start: first dimension seen.
        stop: first dimension no longer seen.

    References:
        jing2022directclr, rusak2022, tan2024

    Example:
        >>> from chiaroscuro.objectives import BYOL
        >>> OnDims(BYOL(), 0, 64)
        OnDims(objective=BYOL(normalise=True), start=0, stop=64)
    """

    def __init__(self, objective: Objective, start: int, stop: int):
        super().__init__()
        need(
            isinstance(objective, Objective),
            lambda: (
                f"`OnDims(objective, start, stop)` needs an objective; received "
                f"{type(objective).__name__}."
            ),
        )
        need(
            isinstance(start, int) and isinstance(stop, int) and 0 <= start < stop,
            lambda: (
                f"`OnDims(objective, start, stop)` needs whole numbers `0 <= start < stop`; "
                f"received {start!r} and {stop!r}."
            ),
        )
        self.objective = objective
        self.start, self.stop = start, stop
        _declare_as(self, objective)

    def loss(self, batch: Batch) -> Tensor:
        return self.objective.loss(self._seen(batch))

    def losses(self, batch: Batch) -> Tensor:
        return self.objective.losses(self._seen(batch))

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.objective.split(self._seen(batch))

    def _seen(self, batch: Batch) -> Batch:
        need(
            self.stop <= batch.z1.shape[1],
            lambda: (
                f"`OnDims(objective, {self.start}, {self.stop})` needs at least {self.stop} "
                f"dimensions; received {batch.z1.shape[1]}."
            ),
        )
        return batch.map(lambda z: z[:, self.start : self.stop])


class Matryoshka(Objective):
    """Apply an objective to several prefixes of the dimensions, so that each can be used alone.

        loss = sum_m weight_m objective(z1[:, :dims_m], z2[:, :dims_m])        [kusupati2022, eq. 1]

    Afterwards the first dims_m dimensions can be used alone, for a cheaper index or a first search.

    Relations: `Matryoshka(f, (d,))` is f; in general it is a `Weighted` of `OnDims(f, 0, dims_m)`
    that share their parameters.

    Args:
        objective: any that measures nothing of its batches; one temperature serves all prefixes.
        dims: lengths of the prefixes, each longer than the one before; halves of the dimension
            down to 8 in [kusupati2022, Sec. 3].
        weights: one per prefix; all 1 as in [kusupati2022, Sec. 3].

    References:
        kusupati2022

    Example:
        >>> from chiaroscuro.objectives import BYOL
        >>> loss = Matryoshka(BYOL(), (1, 2))  # equal in one dimension, orthogonal in two
        >>> round(float(loss(torch.ones(3, 2), torch.tensor([[1.0, -1.0]] * 3))), 4)
        2.0
    """

    def __init__(
        self, objective: Objective, dims: Sequence[int], weights: Sequence[float] | None = None
    ):
        super().__init__()
        need(
            isinstance(objective, Objective),
            lambda: (
                "`Matryoshka(objective, dims)` needs an objective; received "
                f"{type(objective).__name__}."
            ),
        )
        measuring = [
            type(part).__name__
            for part in objective.modules()
            if hasattr(part, "observe") and getattr(part, "centring", "mean") == "mean"
        ]
        need(
            not measuring,
            lambda: (
                f"`Matryoshka({objective!r}, dims)` needs an objective that is alike for all "
                f"prefixes; `{measuring[0]}` measures rows of one width. `DINO` has "
                "`centring='sinkhorn'`, kernels fixed or learnable temperatures."
            ),
        )
        need(
            isinstance(dims, (tuple, list))
            and len(dims) > 0
            and all(isinstance(k, int) and not isinstance(k, bool) for k in dims)
            and all(a < b for a, b in zip((0, *dims), dims, strict=False)),
            lambda: (
                "`Matryoshka(objective, dims)` needs whole numbers `0 < dims[0] < dims[1] < ...`; "
                f"received {dims!r}."
            ),
        )
        need(
            weights is None or (isinstance(weights, (tuple, list)) and len(weights) == len(dims)),
            lambda: (
                f"`Matryoshka(..., weights)` needs one weight for each of {len(dims)} prefixes; "
                f"received {weights!r}."
            ),
        )
        each = [number("Matryoshka", "weights", w, above=True) for w in weights or ()]
        self.objective = objective
        self.dims = tuple(dims)
        self.weights = None if weights is None else tuple(each)
        _declare_as(self, objective)

    def loss(self, batch: Batch) -> Tensor:
        return torch.stack(
            [w * self.objective.loss(some) for w, some in self._prefixes(batch)]
        ).sum()

    def losses(self, batch: Batch) -> Tensor:
        each = [w * self.objective.losses(some) for w, some in self._prefixes(batch)]
        return torch.stack(each).sum(dim=0)

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        attracts, repels = [], []
        for w, some in self._prefixes(batch):
            attract, repel = self.objective.split(some)
            attracts.append(w * attract)
            repels.append(w * repel)
        return torch.stack(attracts).sum(), torch.stack(repels).sum()

    def _prefixes(self, batch: Batch) -> list[tuple[float, Batch]]:
        need(
            self.dims[-1] <= batch.z1.shape[1],
            lambda: (
                f"`Matryoshka(objective, {self.dims})` needs at least {self.dims[-1]} dimensions; "
                f"received {batch.z1.shape[1]}."
            ),
        )
        weights = self.weights or (1.0,) * len(self.dims)
        return [
            (w, batch.map(lambda z, stop=stop: z[:, :stop]))
            for w, stop in zip(weights, self.dims, strict=True)
        ]


class Grouped(Objective):
    """Exclude the anchor's own group, given by the labels, from its negatives.

        loss = objective(z1, z2, groups=labels)

    Groups are duplicates, views of one patient, captions of one image: what is known not to be a
    negative. Unlike in `SupCon`, the others of a group are no positives either. `train` gives it
    the `groups` of the data, or else their labels. In a loop of your own
    `objective(z1, z2, groups=...)` does the same.

    Relations: with all labels different it is the objective itself.

    Args:
        objective: one that takes groups: `InfoNCE`, `SigLIP`.

    References:
        khosla2020supcon

    Example:
        >>> from chiaroscuro.objectives import InfoNCE
        >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> round(float(Grouped(InfoNCE())(z, z, y)), 6)  # log(1 + 4 exp(-2))
        0.432653
    """

    needs = frozenset({"labels"})

    def __init__(self, objective: Objective):
        super().__init__()
        need(
            isinstance(objective, Objective) and "groups" in objective.takes,
            lambda: (
                "`Grouped(objective)` needs an objective that takes groups, such as `InfoNCE()`; "
                f"received {objective!r}."
            ),
        )
        self.objective = objective
        _declare_as(self, objective)
        self.takes = (objective.takes - {"groups"}) | {"labels"}
        self.needs = objective.needs | {"labels"}

    def loss(self, batch: Batch) -> Tensor:
        return self.objective.loss(_grouped(batch))

    def losses(self, batch: Batch) -> Tensor:
        return self.objective.losses(_grouped(batch))

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.objective.split(_grouped(batch))


def _grouped(batch: Batch) -> Batch:
    groups = None if batch.labels is None else batch.labels.to(batch.z1.device)
    return replace(batch, groups=groups, labels=None)


def _declare_as(wrapper: Objective, objective: Objective) -> None:
    """Declare what the objective inside declares."""
    wrapper.reduces, wrapper.takes, wrapper.needs = (
        objective.reduces,
        objective.takes,
        objective.needs,
    )
    wrapper.least, wrapper.directed = objective.least, objective.directed
