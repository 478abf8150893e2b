"""Several crops of one sample, in any number of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.views.view import View

__all__ = ["MultiCrop"]


class MultiCrop(View):
    """Multi-crop: groups of views, such as two large crops and many small ones.

        x_v = T_g(x; omega_v),   g the group that crop v falls into, v = 0, 1, ..., n_crops - 1

    The first two crops are the two sides of a pair, and the targets of all others: `train` gives
    the mean loss of the ordered pairs (crop v, target i), i = 0, 1 and v != i
    [caron2020swav, Sec. 3.4; caron2021dino, eq. 3]. Crops of one size go through the encoder in one
    batch; an encoder that takes each of the sizes is needed: `ResNet`, or `ViT(any_size=True)`.

    Relations: crop v is the view number v of its group's view; `MultiCrop((2, T))` is `T`.

    Args:
        groups: pairs (count, view), the largest crops first; together at least 2 crops.

    References:
        caron2020swav, caron2021dino

    Example:
        >>> import torch
        >>> from chiaroscuro.views import SimCLR
        >>> crops = MultiCrop((2, SimCLR(size=32)), (6, SimCLR(size=16, scale=(0.05, 0.4))))
        >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
        >>> crops.n_crops, crops(images, ids=range(4), view=5)[0].shape
        (8, torch.Size([4, 3, 16, 16]))
    """

    def __init__(self, *groups: tuple[int, View]):
        fits = all(
            isinstance(group, tuple | list)
            and len(group) == 2
            and isinstance(group[0], int)
            and not isinstance(group[0], bool)
            and group[0] >= 1
            and isinstance(group[1], View)
            and not isinstance(group[1], MultiCrop)
            for group in groups
        )
        need(
            fits and sum(count for count, _ in groups) >= 2,
            lambda: (
                "`MultiCrop((count, view), ...)` needs pairs of a whole number and a view, at "
                f"least 2 crops together; received {groups!r}."
            ),
        )
        self.groups = tuple((count, view) for count, view in groups)

    @property
    def n_crops(self) -> int:
        """How many crops there are of a sample."""
        return sum(count for count, _ in self.groups)

    def member(self, crop: int) -> View:
        """Return the view that makes a crop.

        Args:
            crop: its number, from 0.
        """
        need(
            0 <= crop < self.n_crops,
            lambda: f"`MultiCrop` needs a crop from 0 to {self.n_crops - 1}; received {crop}.",
        )
        return [view for count, view in self.groups for _ in range(count)][crop]

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Crop number `view` of each sample, and its parameters."""
        return self.member(view)(batch, ids, seed, epoch, view)

    def plain(self, batch: Any) -> Any:
        """Return the samples as the first group gives them, with nothing random."""
        return self.groups[0][1].plain(batch)
