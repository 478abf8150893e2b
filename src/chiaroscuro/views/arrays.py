"""Views of arrays and series: hide some of it, disturb all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.views.view import View, alike, column, record, tensor

__all__ = ["Jitter", "Mask"]


@dataclass(frozen=True, repr=False, eq=False)
class Mask(View):
    """Mask part of each sample: single coordinates, or spans of time.

        x_v = fill where hidden, else x;   each place is hidden with probability p

    Places are along the last dimension: the coordinates of (n, d), the times of (n, c, length),
    where all channels are hidden together.

    Relations: p = 0 leaves samples alone, p = 1 hides everything; every place, also at the ends, is
    hidden with probability p, whatever the span.

    Args:
        p: 0 to 1. No default: it depends on how much of a sample says what it is.
        span: how many neighbouring places are hidden together; spans may overlap.
        fill: what is shown instead: 0 suits standardised data.

    Example:
        >>> x, parameters = Mask(p=0.5)(torch.ones(1, 6), ids=[0])
        >>> x[0].tolist(), parameters["hidden"][0].sum()
        ([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], np.int64(3))
    """

    p: float
    span: int = 1
    fill: float = 0.0

    def __post_init__(self) -> None:
        need(
            isinstance(self.p, int | float) and 0 <= self.p <= 1,
            lambda: f"`Mask(p={self.p!r})` needs a probability from 0 to 1; received `{self.p!r}`.",
        )
        need(
            isinstance(self.span, int) and self.span >= 1,
            lambda: f"`Mask(span={self.span!r})` needs `span >= 1`; received `{self.span!r}`.",
        )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the samples with places hidden, and `hidden` (n, length)."""
        x = _series("Mask", batch, ids)
        length = x.shape[-1]
        # a place is free if no span starts at it or less than `span` before it
        starts = 1 - (1 - self.p) ** (1 / self.span)
        u = self.draws(ids, seed, epoch, view).uniform(length + self.span - 1)
        begun = np.cumsum(np.pad(u < starts, ((0, 0), (1, 0))), axis=1)
        hidden = begun[:, self.span :] > begun[:, :length]
        places = torch.from_numpy(hidden).to(x.device)
        places = places.view(len(x), *[1] * (x.ndim - 2), length)
        return x.masked_fill(places, self.fill), record(len(x), hidden=hidden)


@dataclass(frozen=True, repr=False, eq=False)
class Jitter(View):
    """Add noise to every number, and scale each channel by a random factor.

        x_v = x (1 + scale e_c) + noise e,   e standard normal

    The factor e_c is one per channel of a series (n, c, length), and one per sample (n, d).

    Args:
        noise: standard deviation, in the data's units; standardise first, or give one per
            coordinate (the last dimension).
        scale: standard deviation of the factor.

    Relations: 0 and 0 leave samples alone; noise alone has the law of
    `Directions` along all axes.

    Numerics: a sample has at most 2^18 - 2^8 numbers.

    Example:
        >>> x, parameters = Jitter(noise=0.0, scale=0.5)(torch.ones(2, 3), ids=[0, 1])
        >>> bool((x.numpy() == parameters["factor"]).all())
        True
    """

    noise: float | tuple[float, ...]
    scale: float = 0.0

    def __post_init__(self) -> None:
        got = self.noise
        noise = np.asarray(getattr(got, "tolist", lambda: got)(), dtype=float)
        need(
            noise.ndim <= 1 and bool((noise >= 0).all() and np.isfinite(noise).all()),
            lambda: f"`Jitter(noise={got!r})` needs `noise >= 0`, one or one per coordinate.",
        )
        need(
            isinstance(self.scale, int | float) and 0 <= self.scale < math.inf,
            lambda: (
                f"`Jitter(scale={self.scale!r})` needs `scale >= 0`; received `{self.scale!r}`."
            ),
        )
        object.__setattr__(
            self, "noise", float(noise) if noise.ndim == 0 else tuple(noise.tolist())
        )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the disturbed samples, and `factor` (n, c): 1 + scale e_c."""
        x = _series("Jitter", batch, ids)
        need(
            x.is_floating_point(),
            lambda: (
                f"`Jitter` needs floats; received {x.dtype}, which are tokens here. Save measured "
                "numbers as floats: `x.astype(np.float32)`."
            ),
        )
        need(
            not isinstance(self.noise, tuple) or len(self.noise) == x.shape[-1],
            lambda: (
                f"`Jitter` with {len(np.atleast_1d(self.noise))} noises needs as many coordinates; "
                f"received shape {tuple(x.shape)}."
            ),
        )
        channels = math.prod(x.shape[1:-1])
        each = math.prod(x.shape[1:]) if np.any(self.noise) else 0
        e = self.draws(ids, seed, epoch, view).normal(channels + each)
        factor = (1 + self.scale * e[:, :channels]).astype(np.float32)
        moved = x * column(factor, x.reshape(len(x), channels, -1)).view(len(x), *x.shape[1:-1], 1)
        if each:
            noise = alike(e[:, channels:].reshape(x.shape), x)
            moved = moved + noise * alike(np.asarray(self.noise), x)
        return moved, record(len(x), factor=factor)


def _series(name: str, batch: Any, ids: Any) -> Tensor:
    x = tensor(name, batch, ids, "samples")
    need(
        x.ndim >= 2 and x.shape[-1] > 0,
        lambda: (
            f"`{name}` needs arrays (n, d) or series (n, c, length); received shape "
            f"{tuple(x.shape)}."
        ),
    )
    return x
