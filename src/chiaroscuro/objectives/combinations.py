"""Objectives made of objectives: weighted sums, and slices of the dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.errors import need, number
from chiaroscuro.objectives.objective import Batch, Objective

__all__ = ["OnDims", "Weighted"]


class Weighted(Objective):
    """A weighted sum of losses on the same batch, such as the mixtures of [tan2024, Table 2].

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
        self.least = max(objective.least for _, objective in members)

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
    """An objective that sees only dimensions start <= k < stop.

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
        self.reduces, self.takes, self.least = objective.reduces, objective.takes, objective.least

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
