"""Contexts that carry the label of their sample: symbol-context learning with labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.views.splits import PatchSplit, TokenSplit
from chiaroscuro.views.view import View, from_array

__all__ = ["LabelledContext"]


class LabelledContext(View):
    """Split a sample into symbol and context, and add the label to the context.

        loss = -(1/n) sum_i log( exp(z1_i . z2_i) / sum_j exp(z1_i . z2_j) ),
        z1_i = symbol encoder(s_i),   z2_i = context encoder(r_i, y_i)   [semantic2025, eq. 2]

    The label is an *input* of the context encoder, so the objective is the one without labels,
    `InfoNCE(Dot(), OtherView(), anchors="first")`: only the second view differs. In an image the
    hole that the symbol left shows the label: its patch is divided into a grid, and the cell of
    the class is bright. To a sequence a token is appended.

    What labels add: the best symbol vectors depend on a symbol u through p(r, y | u) alone. Two
    symbols that occur in the same contexts but mean different labels there share a vector without
    labels, and do not with them [semantic2025, Thm 3.1 against Thm 4.2].

    Labels are seen in training alone: the symbol, which is what is kept, never shows them.

    Relations: the symbols are those of `split`; two contexts differ if their labels do.

    Args:
        split: `PatchSplit` or `TokenSplit`.
        classes: labels are 0 to classes - 1.
        first: the token of class 0, for `TokenSplit`; the others follow it.

    References:
        semantic2025

    Example:
        >>> view = LabelledContext(TokenSplit(mask=9), classes=2, first=10)
        >>> view((torch.tensor([[5, 6, 7]]), torch.tensor([1])), ids=[2], view=1)[0]
        tensor([[ 5,  9,  7, 11]])
    """

    def __init__(self, split: PatchSplit | TokenSplit, classes: int, first: int | None = None):
        self.split, self.classes, self.first = split, classes, first
        need(
            isinstance(split, PatchSplit | TokenSplit),
            lambda: (
                "`LabelledContext(split)` needs `PatchSplit` or `TokenSplit`; received "
                f"`{type(split).__name__}`."
            ),
        )
        need(
            isinstance(classes, int) and classes >= 2,
            lambda: f"`LabelledContext(classes)` needs at least 2 classes; received {classes!r}.",
        )
        if isinstance(split, TokenSplit):
            need(
                isinstance(first, int) and first >= 0,
                lambda: f"`LabelledContext(first)` needs the token of class 0; received {first!r}.",
            )
        else:
            need(
                split.patch >= self._grid,
                lambda: (
                    f"`LabelledContext(classes={classes})` needs a patch of at least {self._grid} "
                    f"pixels a side, one for each class; received {split.patch}."
                ),
            )

    @property
    def _grid(self) -> int:
        return math.isqrt(self.classes - 1) + 1

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Symbols, or contexts with labels; and the parameters of the split.

        Args:
            batch: (samples, labels).
            ids, seed, epoch, view: as everywhere.
        """
        need(
            isinstance(batch, tuple | list) and len(batch) == 2,
            "`LabelledContext` needs a pair (samples, labels).",
        )
        x, labels = batch[0], torch.as_tensor(from_array(batch[1]))
        need(
            labels.shape == (len(x),)
            and (len(x) == 0 or bool(((labels >= 0) & (labels < self.classes)).all())),
            lambda: (
                f"`LabelledContext(classes={self.classes})` needs a label from 0 to "
                f"{self.classes - 1} for each of {len(x)} samples; received {tuple(labels.shape)}"
                + (f" from {int(labels.min())} to {int(labels.max())}." if labels.numel() else ".")
            ),
        )
        out, where = self.split(x, ids, seed, epoch, view)
        if view == 0:
            return out, where
        if isinstance(self.split, TokenSplit):
            token = (labels + self.first).to(out.dtype).to(out.device)  # type: ignore[operator]
            return torch.cat([out, token[:, None]], dim=1), where
        return self._mark_labels(out, where, labels), where

    def _mark_labels(self, contexts: Tensor, where: np.ndarray, labels: Tensor) -> Tensor:
        """Return the hole with the cell of the class bright."""
        side = self.split.patch // self._grid  # type: ignore[union-attr]
        bright = 255 if contexts.dtype == torch.uint8 else 1
        y = labels.cpu().numpy()
        rows, columns = (
            torch.from_numpy(where[name] + cell * side).to(contexts.device)[:, None]
            for name, cell in (("top", y // self._grid), ("left", y % self._grid))
        )
        offset = torch.arange(side, device=contexts.device)
        n = torch.arange(len(contexts), device=contexts.device)[:, None, None]
        at = (n, slice(None), (rows + offset)[:, :, None], (columns + offset)[:, None, :])
        contexts = contexts.clone()
        contexts[at] = bright
        return contexts
