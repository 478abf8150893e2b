"""Symbols and their contexts: a part of a sample, and the sample without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from chiaroscuro.errors import need
from chiaroscuro.views.reference import unit
from chiaroscuro.views.view import View, record, tensor

__all__ = ["PatchSplit", "TokenSplit"]


@dataclass(frozen=True, repr=False, eq=False)
class PatchSplit(View):
    """Split an image into a patch (view 0, the symbol) and the rest (view 1, the context).

    The two views of a sample are drawn together: they speak of the same patch. The symbol is
    "crop and resize", the context a "Cutout specifically removing the previous symbol"
    [semantic2025, Sec. 3].

    Relations: the context, with the symbol put back in its place, is the image.

    Args:
        patch: side of the patch in pixels.
        grid: True: the patch is one of the image's non-overlapping patches (the i-th patch of
            [semantic2025]); False: it may lie anywhere.
        fill: what the context shows in its place.
        resize: side to which the symbol is resized bilinearly, so that one encoder can take both;
            None leaves it at `patch`.

    Numerics: images keep their dtype; but with `resize` uint8 becomes floats in [0, 1] in both
    views, so that they stay comparable.

    References:
        semantic2025

    Example:
        >>> x = torch.arange(16.0).view(1, 1, 4, 4)
        >>> PatchSplit(patch=2)(x, ids=[3], view=0)[0].flatten().tolist()
        [8.0, 9.0, 12.0, 13.0]
        >>> PatchSplit(patch=2)(x, ids=[3], view=1)[0][0, 0, 2].tolist()
        [0.0, 0.0, 10.0, 11.0]
    """

    patch: int
    grid: bool = True
    fill: float = 0.0
    resize: int | None = None

    def __post_init__(self) -> None:
        for name in ("patch", "resize"):
            value = getattr(self, name)
            need(
                (isinstance(value, int) and value >= 1) or (name == "resize" and value is None),
                lambda name=name, value=value: (
                    f"`PatchSplit({name}={value!r})` needs at least one pixel; "
                    f"received `{value!r}`."
                ),
            )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Symbols (n, c, patch, patch) or contexts (n, c, h, w); and `top`, `left` of the patch."""
        x = tensor("PatchSplit", batch, ids, "images")
        check_side("PatchSplit", view)
        need(
            x.ndim == 4 and min(x.shape[2:]) >= self.patch,
            lambda: (
                f"`PatchSplit(patch={self.patch})` needs images (n, c, h, w) of at least "
                f"{self.patch} pixels a side; received {tuple(x.shape)}."
            ),
        )
        u = self.draws(ids, seed, epoch, 0).uniform(2)
        place = [self._start(side, u[:, i]) for i, side in enumerate(x.shape[2:])]
        where = record(len(x), top=place[0], left=place[1])
        rows, columns = (torch.from_numpy(p).to(x.device)[:, None] for p in place)
        offset = torch.arange(self.patch, device=x.device)
        n = torch.arange(len(x), device=x.device)[:, None, None]
        at = (n, slice(None), (rows + offset)[:, :, None], (columns + offset)[:, None, :])
        if self.resize is not None:
            x = unit(x)
        if view == 1:
            context = x.clone()
            context[at] = self.fill
            return context, where
        symbol = x[at].permute(0, 3, 1, 2)
        if self.resize is None:
            return symbol, where
        return F.interpolate(symbol, size=(self.resize, self.resize), mode="bilinear"), where

    def _start(self, side: int, u: np.ndarray) -> np.ndarray:
        if self.grid:
            return np.floor(u * (side // self.patch)).astype(np.int64) * self.patch
        return np.floor(u * (side - self.patch + 1)).astype(np.int64)


@dataclass(frozen=True, repr=False, eq=False)
class TokenSplit(View):
    """Split a sequence into a token (view 0, the symbol) and the rest with it masked (view 1).

    The two views of a sample are drawn together: they speak of the same position.

    Relations: the context, with the symbol put back at its position, is the sequence.

    Args:
        mask: the token that stands in the context for the one taken out.
        padding: a token that is never taken; None if there is none.
        positions: the symbols come from these places alone, such as (0, 1) for the two addends of
            [semantic2025, Sec. 5]; None is all.

    References:
        semantic2025

    Example:
        >>> x = torch.tensor([[5, 6, 7, 0]])
        >>> TokenSplit(mask=1, padding=0)(x, ids=[2], view=0)[0]
        tensor([6])
        >>> TokenSplit(mask=1, padding=0)(x, ids=[2], view=1)[0]
        tensor([[5, 1, 7, 0]])
    """

    mask: int
    padding: int | None = None
    positions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        need(
            self.positions is None or (len(self.positions) > 0 and min(self.positions) >= 0),
            lambda: f"`TokenSplit(positions={self.positions})` needs places from 0.",
        )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Symbols (n,) or contexts (n, length); and the `position` of each symbol."""
        x = tensor("TokenSplit", batch, ids, "sequences")
        check_side("TokenSplit", view)
        need(
            x.ndim == 2 and not x.is_floating_point() and x.shape[1] > 0,
            lambda: (
                "`TokenSplit` needs integer tokens (n, length) with length > 0; received "
                f"{x.dtype} of shape {tuple(x.shape)}."
            ),
        )
        real = torch.ones_like(x, dtype=torch.bool) if self.padding is None else x != self.padding
        if self.positions is not None:
            need(
                max(self.positions) < x.shape[1],
                lambda: (
                    f"`TokenSplit(positions={self.positions})` needs sequences of at least "
                    f"{max(self.positions or ()) + 1} tokens; received {x.shape[1]}."
                ),
            )
            allowed = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
            allowed[list(self.positions)] = True
            real = real & allowed
        counts = real.sum(dim=1)
        need(
            bool((counts > 0).all()),
            lambda: (
                f"`TokenSplit(padding={self.padding})` needs a token in every sequence; "
                f"{int((counts == 0).sum())} of {len(x)} are all padding."
            ),
        )
        u = self.draws(ids, seed, epoch, 0).uniform(1)[:, 0]
        nth = np.floor(u * counts.cpu().numpy()).astype(np.int64)  # of the real tokens
        rank = real.cumsum(dim=1) - 1
        hit = real & (rank == torch.from_numpy(nth).to(x.device)[:, None])
        position = hit.int().argmax(dim=1)
        where = record(len(x), position=position.cpu().numpy())
        if view == 0:
            return x.gather(1, position[:, None])[:, 0], where
        return torch.where(hit, torch.full_like(x, self.mask), x), where


def check_side(name: str, view: int) -> None:
    """Refuse a view that is neither symbol nor context."""
    need(
        view in (0, 1),
        lambda: f"`{name}` has view 0, the symbol, and view 1, the context; received {view!r}.",
    )
