"""A copy of a model that follows it slowly."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.errors import SpecError, need
from chiaroscuro.spec import notation

__all__ = ["Momentum"]


class Momentum(nn.Module):
    """Exponential moving average of a model, without gradients.

        theta' <- m theta' + (1 - m) theta      parameters
        b'     <- b                             buffers (BatchNorm statistics, counters)

    The key encoder of MoCo, the target of BYOL, and the average of weights for evaluation.

    Args:
        module: the model to start from; it is copied.

    Numerics: at m = 1 nothing moves and at m = 0 the copy is exact. All tensors move in a few
    operations, however many there are.

    References:
        he2020moco, grill2020byol

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> average = Momentum(model)
        >>> _ = nn.init.zeros_(average.module.weight), nn.init.ones_(model.weight)
        >>> average.update(model, m=0.75)
        >>> average(torch.ones(1, 1))
        tensor([[0.2500]])
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = copy.deepcopy(module).requires_grad_(False)

    @property
    def d(self) -> int:
        """Dimension of the output, where the model knows it."""
        return self.module.d  # type: ignore[return-value]

    @torch.no_grad()
    def forward(self, *args: Any) -> Tensor:
        return self.module(*args)

    @torch.no_grad()
    def update(self, model: nn.Module, m: float) -> None:
        """One step of the average towards `model`, 0 <= m <= 1."""
        need(0 <= m <= 1, lambda: f"`Momentum.update(model, m={m})` needs `0 <= m <= 1`.")
        ours, theirs = dict(self.module.named_parameters()), dict(model.named_parameters())
        buffers, sources = dict(self.module.named_buffers()), dict(model.named_buffers())
        _matching(ours | buffers, theirs | sources)
        if ours:
            slow: list[Tensor] = list(ours.values())
            torch._foreach_lerp_(slow, [theirs[name].to(p) for name, p in ours.items()], 1 - m)
        if buffers:
            torch._foreach_copy_(list(buffers.values()), [sources[name] for name in buffers])

    def __repr__(self) -> str:
        try:
            return notation(self)
        except SpecError:  # a module from elsewhere has no notation, and must print all the same
            return f"Momentum(module=<{type(self.module).__name__}>)"


def _matching(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    apart = sorted(ours.keys() ^ theirs.keys())
    apart += [
        name for name in ours.keys() & theirs.keys() if ours[name].shape != theirs[name].shape
    ]
    need(
        not apart,
        lambda: (
            f"`Momentum.update(model)` needs the model it was made of; {len(apart)} of "
            f"{len(ours)} tensors differ in name or shape, the first is `{apart[0]}`."
        ),
    )
