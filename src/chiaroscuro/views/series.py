"""Views of tables and series: a fixed scaling, and a random window of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.views.view import View, record, tensor

__all__ = ["Standardise", "Window"]


@dataclass(frozen=True, repr=False, eq=False)
class Standardise(View):
    """Standardise columns or channels with a given mean and standard deviation.

        x_v = (x - mean) / std

    Nothing is random: embedding applies it too, so that a run carries its own scaling. The numbers
    are one for all, or one for each column of (n, d) or channel of (n, c, length).

    Relations: mean 0 and std 1 leave samples alone.

    Args:
        mean: one number, or one per column or channel.
        std: the same; greater than 0.

    Example:
        >>> Standardise(mean=[1.0, 2.0], std=[1.0, 4.0]).plain(torch.tensor([[2.0, 6.0]]))
        tensor([[1., 1.]])
    """

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            got = getattr(self, name)
            values = np.asarray(getattr(got, "tolist", lambda got=got: got)(), dtype=float)
            need(
                values.ndim <= 1 and bool(np.isfinite(values).all()),
                lambda name=name: f"`Standardise({name})` needs one number, or one per column.",
            )
            plain = float(values) if values.ndim == 0 else tuple(values.tolist())
            object.__setattr__(self, name, plain)
        need(
            bool(np.all(np.asarray(self.std) > 0)),
            lambda: f"`Standardise(std)` needs `std > 0`; received {np.min(self.std)}.",
        )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the scaled samples; there are no parameters."""
        x = tensor("Standardise", batch, ids, "samples")
        return self.plain(x), record(len(x))

    def plain(self, batch: Any) -> Any:
        """Return the samples, scaled."""
        x = batch if isinstance(batch, Tensor) else torch.as_tensor(np.asarray(batch))
        need(
            x.is_floating_point() and x.ndim >= 2,
            lambda: (
                f"`Standardise` needs floats (n, d) or (n, c, length); received {x.dtype} of shape "
                f"{tuple(x.shape)}. Save measured numbers as floats: `x.astype(np.float32)`."
            ),
        )
        return (x - self._along(self.mean, x)) / self._along(self.std, x)

    def _along(self, values: float | tuple[float, ...], x: Tensor) -> Tensor:
        made = torch.as_tensor(values, dtype=x.dtype, device=x.device)
        if made.ndim == 0:
            return made
        need(
            len(made) == x.shape[1],
            lambda: (
                f"`Standardise` of {len(made)} columns needs samples with as many; received shape "
                f"{tuple(x.shape)}."
            ),
        )
        return made.view(-1, *[1] * (x.ndim - 2))


@dataclass(frozen=True, repr=False, eq=False)
class Window(View):
    """Cut a random window of time out of each series.

        x_v = x[..., start : start + length],   start uniform over all places where it fits

    Embedding takes the whole series: use it with an encoder that takes any length (`SeriesNet`).

    Args:
        share: length of the window as a share of the series, above 0 and at most 1; 0.7 is a plain
            value without a paper behind it.

    Relations: share = 1 leaves samples alone.

    Example:
        >>> x, parameters = Window(share=0.5)(torch.arange(8.0).repeat(2, 1), ids=[0, 1])
        >>> x.shape, [row[0] for row in x.tolist()] == parameters["start"].tolist()
        (torch.Size([2, 4]), True)
    """

    share: float = 0.7

    def __post_init__(self) -> None:
        need(
            isinstance(self.share, int | float) and 0 < self.share <= 1,
            lambda: f"`Window(share={self.share!r})` needs `0 < share <= 1`.",
        )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the windows, and the `start` of each."""
        x = tensor("Window", batch, ids, "samples")
        need(
            x.ndim >= 2 and x.shape[-1] > 0,
            lambda: f"`Window` needs series (n, c, length); received shape {tuple(x.shape)}.",
        )
        length = max(1, round(self.share * x.shape[-1]))
        u = self.draws(ids, seed, epoch, view).uniform(1)[:, 0]
        start = np.floor(u * (x.shape[-1] - length + 1)).astype(np.int64)
        places = torch.from_numpy(start).to(x.device)[:, None] + torch.arange(
            length, device=x.device
        )
        places = places.view(len(x), *[1] * (x.ndim - 2), length)
        cut = torch.gather(x, -1, places.expand(*x.shape[:-1], length))
        return cut, record(len(x), start=start)
