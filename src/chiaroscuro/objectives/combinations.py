"""Objectives made of objectives: weighted sums, and slices of the dimensions."""

from __future__ import annotations

import math

from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.objectives.objective import Objective

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
        >>> from chiaroscuro.objectives import InfoNCE
        >>> from chiaroscuro.kernels import Gaussian, Laplace
        >>> Weighted((0.8, InfoNCE(Laplace(tau=0.5))), (0.2, InfoNCE(Gaussian(tau=0.5))))
        Weighted((0.8, InfoNCE(kernel=Laplace(tau=0.5))), (0.2, InfoNCE(kernel=Gaussian(tau=0.5))))
    """

    def __init__(self, *members: tuple[float, Objective]):
        super().__init__()
        need(
            len(members) > 0
            and all(isinstance(m, (tuple, list)) and len(m) == 2 for m in members)
            and all(isinstance(m[1], Objective) for m in members),
            lambda: f"`Weighted((weight, objective), ...)` needs pairs of a number and an "
            f"objective; received {members}.",
        )
        for weight, _ in members:
            need(
                math.isfinite(weight) and weight > 0,
                lambda weight=weight: f"`Weighted((weight, objective), ...)` needs finite "
                f"`weight > 0`; received `{weight}`.",
            )
        self.weights = tuple(float(weight) for weight, _ in members)
        self.objectives = nn.ModuleList([objective for _, objective in members])
        kinds = {objective.reduces for _, objective in members}
        self.reduces = kinds.pop() if len(kinds) == 1 else "batch"
        self.takes = frozenset.intersection(*(objective.takes for _, objective in members))
        self.least = max(objective.least for _, objective in members)

    @property
    def members(self) -> tuple[tuple[float, Objective], ...]:
        """The pairs (weight, objective)."""
        return tuple(zip(self.weights, self.objectives, strict=True))

    def loss(self, z1, z2, labels, queue, window) -> Tensor:
        return sum(w * f.loss(z1, z2, labels, queue, window) for w, f in self.members)

    def split(self, z1, z2, labels, queue, window) -> tuple[Tensor, Tensor]:
        pairs = [(w, f.split(z1, z2, labels, queue, window)) for w, f in self.members]
        return sum(w * p[0] for w, p in pairs), sum(w * p[1] for w, p in pairs)


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
        >>> from chiaroscuro.objectives import InfoNCE
        >>> OnDims(InfoNCE(), 0, 64)
        OnDims(objective=InfoNCE(), start=0, stop=64)
    """

    def __init__(self, objective: Objective, start: int, stop: int):
        super().__init__()
        need(
            isinstance(objective, Objective),
            lambda: f"`OnDims(objective, start, stop)` needs an objective; received "
            f"{type(objective).__name__}.",
        )
        need(
            isinstance(start, int) and isinstance(stop, int) and 0 <= start < stop,
            lambda: f"`OnDims(objective, start, stop)` needs whole numbers `0 <= start < stop`; "
            f"received {start!r} and {stop!r}.",
        )
        self.objective = objective
        self.start, self.stop = start, stop
        self.reduces, self.takes, self.least = objective.reduces, objective.takes, objective.least

    def loss(self, z1, z2, labels, queue, window) -> Tensor:
        return self.objective.loss(*self._seen(z1, z2, labels, queue, window))

    def split(self, z1, z2, labels, queue, window) -> tuple[Tensor, Tensor]:
        return self.objective.split(*self._seen(z1, z2, labels, queue, window))

    def _seen(self, z1, z2, labels, queue, window):
        need(
            self.stop <= z1.shape[1],
            lambda: f"`OnDims(objective, {self.start}, {self.stop})` needs at least {self.stop} "
            f"dimensions; received {z1.shape[1]}.",
        )
        views = (None if z is None else z[:, self.start : self.stop] for z in (z1, z2, queue))
        z1, z2, queue = views
        return z1, z2, labels, queue, window
