"""The views of a batch made where it lies: matrices from the boxes, nothing from the host but them.

An image crosses to an accelerator as uint8, and with it some 60 bytes that say what its views are
made of; the recipe is that of `reference`, which every backend must equal to 2e-5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.views.reference import coloured, unit
from chiaroscuro.views.simclr import SimCLR

__all__ = ["Unfinished", "crop_matrices", "finish"]


def finish(policy: SimCLR, images: Tensor, parameters: np.ndarray) -> Tensor:
    """Return the views of images under given parameters, (n, c, size, size), on their device.

    Args:
        policy: gives the size, the blur's window, the threshold and the normalisation.
        images: (n, c, h, w), uint8 or floats in [0, 1].
        parameters: from `policy.sample`, one row per image.

    Example:
        >>> policy = SimCLR(size=2, strength=0.0)
        >>> x = torch.full((1, 3, 4, 4), 51, dtype=torch.uint8)
        >>> drawn = policy.sample((4, 4), policy.draws([0], seed=0, epoch=0, view=0))
        >>> finish(policy, x, drawn).round(decimals=4).unique()
        tensor([0.2000])
    """
    full = policy.explicit()
    x = unit(images)
    R_y, R_x = crop_matrices(parameters, full.size, x, full.antialias)
    return coloured(full, R_y[:, None] @ x @ R_x[:, None].mT, parameters)


def crop_matrices(
    parameters: np.ndarray, size: int, x: Tensor, antialias: bool
) -> tuple[Tensor, Tensor]:
    """Return what cuts and resizes each image, R_y (n, size, h) and R_x (n, size, w).

        R_ij ~ max(0, 1 - |(2j + 1) size - (2i + 1) s| / (2 size r)),  j = 0 ... s - 1 in the box

    with r as in `reference.resize_matrix`: distances are whole numbers, exact on any device, so
    that float32 suffices.

    Args:
        parameters: boxes and flips, one row per image.
        size: size of the views.
        x: images (n, c, h, w), for their shape, type and device.
        antialias: whether a line that becomes shorter is smoothed.
    """
    names = ("top", "left", "height", "width", "flip")
    boxes = np.stack([parameters[name].astype(np.int32) for name in names])
    top, left, height, width, flip = torch.from_numpy(boxes).to(x.device, non_blocking=True)
    never = torch.zeros_like(flip)
    return (
        _lines(top, height, never, size, x.shape[2], antialias).to(x.dtype),
        _lines(left, width, flip, size, x.shape[3], antialias).to(x.dtype),
    )


def _lines(
    start: Tensor, length: Tensor, flip: Tensor, size: int, pixels: int, antialias: bool
) -> Tensor:
    """One matrix (size, pixels) for each image."""
    start, length, flip = (t[:, None, None] for t in (start, length, flip))
    i = torch.arange(size, dtype=torch.int32, device=start.device)[None, :, None]
    i = torch.where(flip > 0, size - 1 - i, i)
    j = torch.arange(pixels, dtype=torch.int32, device=start.device)[None, None, :] - start
    apart = ((2 * j + 1) * size - (2 * i + 1) * length).abs().float()
    reach = 2.0 * torch.clamp(length, min=size).float() if antialias else 2.0 * size
    weights = torch.clamp(1 - apart / reach, min=0) * ((j >= 0) & (j < length))
    return weights / weights.sum(dim=2, keepdim=True)


@dataclass(frozen=True, eq=False)
class Unfinished:
    """uint8 images on their way to a device, with the parameters of their views.

    Args:
        images: (n, c, h, w), shared by all views.
        recipes: of each view, a policy and its parameters.
    """

    images: Tensor
    recipes: tuple[tuple[SimCLR, np.ndarray], ...]

    def __len__(self) -> int:
        return len(self.images)

    def pin_memory(self, *device: Any) -> Unfinished:
        """Return the same in memory that a device can copy from by itself."""
        return replace(self, images=self.images.pin_memory(*device))

    def views(self, device: torch.device) -> list[Tensor]:
        """Return the views, made on a device."""
        images = self.images.to(device, non_blocking=True)
        return [finish(policy, images, parameters) for policy, parameters in self.recipes]
