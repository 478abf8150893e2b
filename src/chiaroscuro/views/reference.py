"""The SimCLR recipe in batched torch, on any device: what every other backend must equal.

Each function takes images (n, c, h, w) of floats in [0, 1] and numbers per image. The formulas
are torchvision's for float tensors; here they run on a batch, each image with its own numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from chiaroscuro.views.view import alike, column

if TYPE_CHECKING:
    from chiaroscuro.views.simclr import SimCLR

__all__ = [
    "blend",
    "blur",
    "brightness",
    "coloured",
    "contrast",
    "crop_resize",
    "grayscale",
    "hue",
    "jitter",
    "render",
    "resize",
    "resize_matrix",
    "saturation",
    "solarise",
]


def render(
    policy: SimCLR,
    images: Tensor | Sequence[Tensor],
    parameters: np.ndarray,
    normalise: bool = True,
) -> Tensor:
    """Return the views of images, uint8 or float in [0, 1], as floats (n, c, size, size)."""
    full = policy.explicit()
    if isinstance(images, Tensor):
        x = crop_resize(unit(images), parameters, full.size, full.antialias)
    else:  # images of different sizes
        one = [slice(i, i + 1) for i in range(len(images))]
        x = torch.cat(
            [
                crop_resize(unit(image[None]), parameters[i], full.size, full.antialias)
                for image, i in zip(images, one, strict=True)
            ]
        )
    return coloured(full, x, parameters, normalise)


def coloured(full: SimCLR, x: Tensor, parameters: np.ndarray, normalise: bool = True) -> Tensor:
    """Everything after the crop: jitter, gray, blur, solarise and the normalisation."""
    x = jitter(x, parameters)
    gray = _rows(parameters["grayscale"], x)
    x[gray] = grayscale(x[gray]).expand(-1, x.shape[1], -1, -1)
    if full.kernel and full.kernel > 1:
        blurred = np.flatnonzero(parameters["sigma"] > 0)
        rows = torch.from_numpy(blurred).to(x.device)
        x[rows] = blur(x[rows], parameters["sigma"][blurred], full.kernel)
    inverted = _rows(parameters["solarise"], x)
    x[inverted] = solarise(x[inverted], full.threshold)
    return normalised(x, full) if normalise else x


def unit(images: Tensor) -> Tensor:
    """Return images as floats in [0, 1]: uint8 is divided by 255, floats are taken as they are."""
    if images.is_floating_point():
        return images if images.dtype == torch.float64 else images.float()
    return images.float() / 255


def normalised(x: Tensor, policy: SimCLR) -> Tensor:
    """(x - mean) / std per channel, where the policy says so."""
    if policy.mean is None or policy.std is None:
        return x
    mean, std = (x.new_tensor(v).view(-1, 1, 1) for v in (policy.mean, policy.std))
    return (x - mean) / std


# ---- geometry ----


def crop_resize(x: Tensor, parameters: np.ndarray, size: int, antialias: bool) -> Tensor:
    """Cut each image's box out, resize it to (size, size), and mirror it where `flip` says so.

    Resizing is linear in the pixels: R_y x R_x^T, with one matrix per side and image.
    """
    n, _, height, width = x.shape
    R_y = np.zeros((n, size, height))
    R_x = np.zeros((n, size, width))
    for i, p in enumerate(parameters):
        top, left, h, w = (int(p[name]) for name in ("top", "left", "height", "width"))
        R_y[i, :, top : top + h] = resize_matrix(h, size, antialias)
        R_x[i, :, left : left + w] = resize_matrix(w, size, antialias)[:: -1 if p["flip"] else 1]
    return alike(R_y, x)[:, None] @ x @ alike(R_x, x)[:, None].mT


def resize(x: Tensor, size: int, antialias: bool) -> Tensor:
    """Return whole images, uint8 or float in [0, 1], bilinearly as floats (n, c, size, size)."""
    x = unit(x)
    if tuple(x.shape[2:]) == (size, size):
        return x
    return F.interpolate(x, (size, size), mode="bilinear", antialias=antialias)


@lru_cache(maxsize=256)
def resize_matrix(source: int, size: int, antialias: bool) -> np.ndarray:
    """Bilinear resizing of a line of `source` pixels to `size`, as a matrix (size, source).

        R_ij ~ max(0, 1 - |j + 1/2 - c_i| / r),  c_i = (i + 1/2) source / size,  rows summing to 1

    with r = 1, or source / size where antialiasing makes a line shorter. Pixel centres are at
    halves (torch's `align_corners=False`); both choices equal `F.interpolate`.
    """
    scale = source / size
    reach = max(scale, 1.0) if antialias else 1.0
    centre = scale * (np.arange(size)[:, None] + 0.5)
    pixel = np.arange(source)[None] + 0.5
    weights = np.maximum(0, 1 - np.abs(pixel - centre) / reach)
    return weights / weights.sum(axis=1, keepdims=True)


# ---- colour ----


def grayscale(x: Tensor) -> Tensor:
    """Return 0.2989 r + 0.587 g + 0.114 b, as (n, 1, h, w); the mean of channels that are not RGB.

    An image of one channel is its own.
    """
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    r, g, b = x.unbind(1)
    return (0.2989 * r + 0.587 * g + 0.114 * b)[:, None]


def blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """factor x + (1 - factor) other, clamped to [0, 1]; the factor may exceed 1."""
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with black."""
    return blend(x, torch.zeros_like(x), factor)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean of the grayscale image."""
    return blend(x, grayscale(x).mean(dim=(1, 2, 3), keepdim=True), factor)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grayscale image; an image of one channel stays as it is."""
    return blend(x, grayscale(x), factor) if x.shape[1] == 3 else x


def hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of HSV by `turn` circles; an image of one channel stays as it is.

        v = max(r, g, b),  c = v - min(r, g, b),  h = the hue in sixths of a circle, 0 to 6
        channel(k) = v - c max(0, min(k, 4 - k, 1)),  k = (5, 3, 1 for r, g, b) + h  modulo 6

    The way back through saturation s = c / v is never taken, for s v = c; in exact arithmetic this
    equals torchvision's.
    """
    if x.shape[1] != 3:
        return x
    r, g, b = x.unbind(1)
    v = x.amax(dim=1)
    c = v - x.amin(dim=1)
    over = torch.where(c > 0, c, torch.ones_like(c))
    h = torch.where(v == g, 2 + (b - r) / over, 4 + (r - g) / over)
    h = torch.where(v == r, (g - b) / over, h) + 6 * turn.reshape(-1, 1, 1)
    k = (h[:, None] + h.new_tensor([5.0, 3.0, 1.0]).view(3, 1, 1)) % 6
    return (v[:, None] - c[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)).clamp(0, 1)


_OPERATIONS = (brightness, contrast, saturation, hue)


def jitter(x: Tensor, parameters: np.ndarray) -> Tensor:
    """Return the four colour operations, in each image's own order, where `jitter` says so."""
    x = x.clone()
    for place in range(4):
        for number, operation in enumerate(_OPERATIONS):
            here = np.flatnonzero(parameters["jitter"] & (parameters["order"][:, place] == number))
            rows = torch.from_numpy(here).to(x.device)
            x[rows] = operation(x[rows], column(parameters[operation.__name__][here], x))
    return x


# ---- blur and solarise ----


def blur(x: Tensor, sigma: np.ndarray, kernel: int) -> Tensor:
    """Gaussian blur with one width per image, `kernel` pixels wide, reflected at the border.

    Separable: w_j ~ exp(-j^2 / (2 sigma^2)), |j| <= kernel // 2, summing to 1.
    """
    half = kernel // 2
    j = np.arange(-half, half + 1)
    w = np.exp(-0.5 * (j / sigma[:, None].astype(np.float64)) ** 2)
    weight = alike(w / w.sum(axis=1, keepdims=True), x).view(len(x), kernel, 1, 1, 1).unbind(1)
    height, width = x.shape[2:]
    padded = F.pad(x, (half, half, half, half), mode="reflect")
    rows = torch.zeros_like(padded[..., :width])
    for i in range(kernel):
        rows += weight[i] * padded[..., i : i + width]
    out = torch.zeros_like(x)
    for i in range(kernel):
        out += weight[i] * rows[:, :, i : i + height]
    return out


def solarise(x: Tensor, threshold: float) -> Tensor:
    """Invert what is at or above the threshold."""
    return torch.where(x >= threshold, 1 - x, x)


def _rows(flags: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.flatnonzero(flags)).to(like.device)
