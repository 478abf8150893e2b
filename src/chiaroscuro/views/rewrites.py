"""One of several texts of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.views.view import View, located, record

__all__ = ["Rewrites"]


@dataclass(frozen=True, repr=False, eq=False)
class Rewrites(View):
    """Choose one of several texts of each sample: the original, or a rewrite of it.

        x_v = x[j],   j uniform over the sample's texts, or 0 with probability `original`

    Args:
        original: probability of the first text, the rest shared equally by the others; None is
            uniform over all, the random choice between original and rewrites of [fan2023laclip].
            A sample with one text always gets it.

    Relations: `original=1` is CLIP, with the original text always; every text of a sample has
    probability 1 / count under None.

    References:
        fan2023laclip, radford2021clip

    Example:
        >>> texts = [["a cat", "one cat"], ["dogs"]]
        >>> Rewrites()(texts, ids=[0, 1])[0]
        ['a cat', 'dogs']
    """

    original: float | None = None

    def __post_init__(self) -> None:
        need(
            self.original is None or 0 <= self.original <= 1,
            lambda: (
                f"`Rewrites(original={self.original})` needs a probability from 0 to 1; received "
                f"`{self.original}`."
            ),
        )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return a list with one text per sample, and the `choice` among `count`.

        Args:
            batch: for each sample a list of texts (not a text); or tensors (n, count, ...), of
                which (n, ...) is returned.
            ids, seed, epoch, view: as everywhere.
        """
        located("Rewrites", len(batch), ids)
        plain = not isinstance(batch, Tensor | np.ndarray)
        counts = np.array(
            [_count(texts) if plain else batch.shape[1] for texts in batch], dtype=int
        )
        need(
            bool((counts > 0).all()),
            lambda: (
                "`Rewrites` needs at least one text per sample, each sample's texts in a list; "
                f"sample {int(counts.argmin())} of {len(counts)} has none."
            ),
        )
        u = self.draws(ids, seed, epoch, view).uniform(2)
        choice = np.floor(u[:, 0] * counts).astype(np.int64)
        if self.original is not None:
            others = 1 + np.floor(u[:, 0] * (counts - 1)).astype(np.int64)
            choice = np.where((u[:, 1] < self.original) | (counts == 1), 0, others)
        rows = record(len(counts), choice=choice, count=counts)
        if plain:
            return [texts[j] for texts, j in zip(batch, choice, strict=True)], rows
        n = np.arange(len(batch))
        if isinstance(batch, Tensor):
            return batch[torch.from_numpy(n), torch.from_numpy(choice)], rows
        return batch[n, choice], rows


def _count(texts: Any) -> int:
    return 0 if isinstance(texts, str | bytes) else len(texts)
