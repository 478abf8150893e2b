"""What a model is: a finished network whose output dimension is known before it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.numerics import readable
from chiaroscuro.spec import notation, same

__all__ = ["Model", "images", "one_of", "positive", "readable"]


class Model(nn.Module, ABC):
    """Abstract network that maps n samples to an (n, d) matrix.

    Its notation is its architecture: two models are equal when they are built alike, whatever
    their weights. Weights are drawn at construction from torch's generator, so that one seed gives
    one model.
    """

    d: int
    """Dimension of the output."""

    pretrained: bool = False
    """Whether its weights were learnt elsewhere before it was built, not drawn."""

    origin: str | None = None
    """The call that makes it again, where that is not its constructor's."""

    fitted: str = ""
    """Which tensors of a file of weights fitted, with counts, where it was built from one."""

    @abstractmethod
    def example(self, n: int = 2) -> Tensor:
        """n samples of the kind the model takes, all alike."""

    def __repr__(self) -> str:
        return self.origin or notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    __hash__ = object.__hash__  # nn.Module needs identity here; equality is by value


def positive(model: object, **counts: int) -> None:
    """Refuse a count that is not a positive integer, naming it."""
    for name, count in counts.items():
        need(
            isinstance(count, int) and not isinstance(count, bool) and count > 0,
            lambda name=name, count=count: (
                f"`{type(model).__name__}({name}={count!r})` needs a positive integer; "
                f"received `{count!r}`."
            ),
        )


def one_of(model: object, name: str, value: object, allowed: Collection) -> None:
    """Refuse a choice that does not exist, listing those that do."""
    need(
        value in allowed,
        lambda: (
            f"`{type(model).__name__}({name}={value!r})` needs one of "
            f"{', '.join(f'`{choice!r}`' for choice in allowed)}; received `{value!r}`."
        ),
    )


def images(model: object, x: Tensor, channels: int) -> None:
    """Refuse anything but floating-point images (n, channels, height, width)."""
    name = type(model).__name__
    need(
        isinstance(x, Tensor) and x.ndim == 4,
        lambda: (
            f"`{name}` needs images (n, {channels}, height, width); received "
            f"{tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__}."
        ),
    )
    need(
        x.shape[1] == channels,
        lambda: (
            f"`{name}(channels={channels})` needs images with {channels} channels, channels "
            f"first; received {tuple(x.shape)}, which has {x.shape[1]}."
            + (" It looks like channels last: `x.permute(0, 3, 1, 2)`." * (x.shape[3] == channels))
            + (" Data give grey images as 3 equal channels." * (channels == 1 and x.shape[1] == 3))
        ),
    )
    need(
        x.is_floating_point(),
        lambda: (
            f"`{name}` needs floating-point images; received {str(x.dtype).removeprefix('torch.')}."
            + (" Divide by 255 first." * (x.dtype == torch.uint8))
        ),
    )
