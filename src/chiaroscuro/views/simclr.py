"""The SimCLR recipe: what is drawn for an image, and how strong it may be."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, ClassVar

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.views.counter import Draws
from chiaroscuro.views.render import image_batch, plain, render
from chiaroscuro.views.view import View

__all__ = ["PARAMETERS", "STRENGTHS", "SimCLR"]

STRENGTHS = {"small": 0.05, "moderate": 0.25, "large": 0.5}
"""The strengths of the three policies of [cosentino2022, Table 2], which calls them s."""

PARAMETERS = np.dtype(
    [
        *((name, np.int32) for name in ("top", "left", "height", "width")),
        *((name, np.float32) for name in ("brightness", "contrast", "saturation", "hue", "sigma")),
        *((name, np.bool_) for name in ("flip", "jitter", "grayscale", "solarise")),
        ("order", np.uint8, (4,)),
    ]
)
"""What a view of an image is made of, one row per image; `native.c` has the same struct.

`top`, `left`, `height`, `width`: the box cut out, in pixels. `brightness`, `contrast`,
`saturation`: factors, 1 leaves alone; `hue`: a part of a circle, 0 leaves alone; all of them
neutral where `jitter` is false. `order`: which of these four (0 to 3) comes first, second, third,
fourth. `sigma`: width of the blur in pixels of the view, 0 without blur.
"""

_KNOTS = (0.0, *STRENGTHS.values())
_ORDERS = np.array(list(permutations(range(4))), dtype=np.uint8)
_TRIES = 10
_FIRST_TRY = 12  # words before the tries: see `_sample`


@dataclass(frozen=True, repr=False, eq=False)
class SimCLR(View):
    """SimCLR's image augmentation: crop, flip, colour jitter, greyscale, blur; one strength.

        x_v = solarise(blur(gray(jitter(flip(resize(crop(x)))))))

    The semantics are torchvision's on float tensors: a box of random area and aspect ratio (ten
    tries, then the largest central box whose ratio is allowed), resized bilinearly; mirrored;
    brightness, contrast, saturation and hue in random order, clamped to [0, 1] after each; gray;
    Gaussian blur; solarised.

    `strength` is the s of SimCLR and of [cosentino2022, Table 2]. Whatever is None follows it along
    a path that is continuous, leaves an image alone at 0, and passes through Table 2:

        strength                   0    0.05   0.25   0.5    1      beyond
        policy                          small  moderate large
        smallest area of a crop    1    0.9    0.5    0.08   0.08   0.08
        flip                       0    0      0.5    0.5    0.5    0.5
        grayscale                  0    0.2    0.2    0.2    0.2    0.2
        brightness, contrast, saturation: 0.8 strength;  hue: 0.2 strength

    and linearly in between. Table 2 gives the flip of `small` as a cross: probability 0.

    Where it fails: an image whose class is its colour, its size or its orientation loses it.

    Relations: `small`, `moderate` and `large` are strengths 0.05, 0.25 and 0.5; strength 0 without
    blur is `plain`, a resize; `explicit()` draws the same views.

    Args:
        size: side of the views, in pixels. The image's own size in [cosentino2022]; 224 in
            [chen2020simclr, App. A].
        strength: 1 in [chen2020simclr, App. A] for ImageNet; 0.5 for CIFAR [App. B.9], which is
            `large`.
        scale: area of the crop, as parts of the image's: (0.08, 1) in [chen2020simclr, App. A].
        ratio: width over height of the crop, log-uniform: (3/4, 4/3) [chen2020simclr, App. A].
        flip: probability to mirror left and right: 0.5 [chen2020simclr, App. A].
        jitter: probability of the four colour operations together: 0.8 [chen2020simclr, App. A].
        brightness, contrast, saturation: factors are uniform in [max(0, 1 - b), 1 + b].
        hue: uniform in [-hue, hue], parts of a circle, at most 0.5.
        grayscale: probability: 0.2 [chen2020simclr, App. A].
        blur: probability: none on CIFAR [chen2020simclr, App. B.9; cosentino2022, Table 2], 0.5 on
            ImageNet [chen2020simclr, App. A].
        kernel: width of the blur's window in pixels, odd; None is a tenth of the view's side, as
            SimCLR's code rounds it, 2 (size // 20) + 1.
        sigma: width of the blur in pixels, uniform: (0.1, 2) [chen2020simclr, App. A].
        solarise: probability: none in SimCLR; 0.2 for the second view in [grill2020byol, App. B].
        threshold: what is at or above it is inverted: 0.5 [grill2020byol, App. B].
        antialias: whether a crop larger than the view is smoothed as it shrinks, as torchvision
            does by default. Where no crop is larger than the view both are the same.
        mean, std: per channel; the views are (x - mean) / std. None leaves them in [0, 1].

    Numerics: the compiled backends work in float32 throughout and agree with the torch one to 2e-5
    (a pixel at the very threshold of `solarise`, if that is not 0.5, can fall on either side).

    References:
        chen2020simclr, cosentino2022, grill2020byol

    Example:
        >>> import torch
        >>> policy = SimCLR(size=8, strength=0.25)
        >>> x, parameters = policy(torch.zeros(2, 3, 16, 16, dtype=torch.uint8), ids=[0, 1])
        >>> x.shape, parameters["height"].tolist()
        (torch.Size([2, 3, 8, 8]), [12, 15])
        >>> policy.explicit().scale, SimCLR.large(32)
        ((0.5, 1.0), SimCLR(size=32, strength=0.5, ...))
    """

    size: int
    strength: float = 1.0
    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float | None = None
    jitter: float = 0.8
    brightness: float | None = None
    contrast: float | None = None
    saturation: float | None = None
    hue: float | None = None
    grayscale: float | None = None
    blur: float = 0.0
    kernel: int | None = None
    sigma: tuple[float, float] = (0.1, 2.0)
    solarise: float = 0.0
    threshold: float = 0.5
    antialias: bool = True
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    _explicit: ClassVar[SimCLR]  # of the instance; said so that it is no field

    def __post_init__(self) -> None:
        for name in ("scale", "ratio", "sigma", "mean", "std"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        _check(self)
        object.__setattr__(self, "_explicit", self._filled())
        _check_filled(self._explicit)

    @classmethod
    def at(cls, strength: float, size: int = 32) -> SimCLR:
        """Return the policy of a given strength on the path through small, moderate and large."""
        return cls(size=size, strength=strength)

    @classmethod
    def small(cls, size: int = 32) -> SimCLR:
        """Return the small augmentations of [cosentino2022, Table 2]."""
        return cls.at(STRENGTHS["small"], size)

    @classmethod
    def moderate(cls, size: int = 32) -> SimCLR:
        """Return the moderate augmentations of [cosentino2022, Table 2]."""
        return cls.at(STRENGTHS["moderate"], size)

    @classmethod
    def large(cls, size: int = 32) -> SimCLR:
        """Return the large augmentations of [cosentino2022, Table 2]: SimCLR's own for CIFAR."""
        return cls.at(STRENGTHS["large"], size)

    def explicit(self) -> SimCLR:
        """Return the same policy with every None that follows the strength or the size written
        out.
        """
        return self._explicit

    def _filled(self) -> SimCLR:
        s = self.strength
        follows: dict[str, Any] = {
            "scale": (float(np.interp(s, _KNOTS, (1.0, 0.9, 0.5, 0.08))), 1.0),
            "flip": float(np.interp(s, _KNOTS, (0.0, 0.0, 0.5, 0.5))),
            "brightness": 0.8 * s,
            "contrast": 0.8 * s,
            "saturation": 0.8 * s,
            "hue": 0.2 * s,
            "grayscale": float(np.interp(s, _KNOTS, (0.0, 0.2, 0.2, 0.2))),
            "kernel": 2 * (self.size // 20) + 1,
        }
        unset = {name: value for name, value in follows.items() if getattr(self, name) is None}
        if not unset:
            return self
        full = object.__new__(SimCLR)  # `__post_init__` checks it
        object.__setattr__(full, "_explicit", full)
        for field in dataclasses.fields(self):
            value = unset.get(field.name, getattr(self, field.name))
            object.__setattr__(full, field.name, value)
        return full

    def sample(
        self, sides: tuple[int, int] | Sequence[tuple[int, int]], draws: Draws
    ) -> np.ndarray:
        """Return the parameters of one view of each image: an array of `PARAMETERS`.

        Args:
            sides: height and width of all images, or of each.
            draws: from `policy.draws(ids, seed, epoch, view)`.

        Example:
            >>> policy = SimCLR.large(32)
            >>> policy.sample((32, 32), policy.draws([5], seed=0, epoch=1, view=1))["width"]
            array([16], dtype=int32)
        """
        n = len(draws.ids)
        need(
            np.shape(sides) in ((2,), (n, 2)),
            lambda: (
                f"`SimCLR.sample` needs one height and width, or one for each of {n} ids; "
                f"received shape {np.shape(sides)}."
            ),
        )
        u = draws.uniform(_FIRST_TRY + 4 * _TRIES)
        height, width = np.broadcast_to(np.asarray(sides, dtype=np.int64).reshape(-1, 2), (n, 2)).T
        return _sample(self.explicit(), height, width, u)

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Views (n, c, size, size) as floats, and their parameters, of images (n, c, h, w).

        Images have 1 to 13 channels, as uint8 or as floats in [0, 1]; saturation, hue and
        grayscale need RGB, or one channel, which they leave alone. A list may hold images
        (c, h, w) of different sizes. uint8 in main memory takes the fast backend, which
        runs on `torch.get_num_threads()` threads; `render` has the choices.
        """
        images, sides = image_batch(batch, ids)
        parameters = self.sample(sides, self.draws(ids, seed, epoch, view))
        return render(self, images, parameters), parameters

    def plain(self, batch: Any) -> Any:
        """Return whole images in the size of the views, (n, c, size, size), normalised as they are.

        Args:
            batch: images, as for a call.
        """
        images, _ = image_batch(batch, range(len(batch)))
        return plain(self, images)


def _sample(p: SimCLR, height: np.ndarray, width: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return parameters from uniform numbers, (n, 52): 12, and 4 for each try of a crop."""
    out = np.zeros(len(u), dtype=PARAMETERS)
    out["flip"] = u[:, 0] < p.flip
    out["jitter"] = jitter = u[:, 1] < p.jitter
    out["order"] = _ORDERS[(u[:, 2] * len(_ORDERS)).astype(np.intp)]
    out["grayscale"] = u[:, 3] < p.grayscale
    for at, name in enumerate(("brightness", "contrast", "saturation"), start=4):
        reach = getattr(p, name)
        low, high = max(0.0, 1 - reach), 1 + reach
        out[name] = np.where(jitter, low + (high - low) * u[:, at], 1.0)
    out["hue"] = np.where(jitter, (2 * u[:, 7] - 1) * p.hue, 0.0)
    out["sigma"] = np.where(u[:, 8] < p.blur, p.sigma[0] + (p.sigma[1] - p.sigma[0]) * u[:, 9], 0.0)
    out["solarise"] = u[:, 10] < p.solarise
    boxes = _boxes(p, height, width, u[:, _FIRST_TRY:].reshape(-1, _TRIES, 4))
    for name, values in zip(("top", "left", "height", "width"), boxes, strict=True):
        out[name] = values
    return out


def _boxes(
    p: SimCLR, height: np.ndarray, width: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the first of ten random boxes that lies inside the image, or else the central one."""
    area, ratio = _area(p, height, width, u[..., 0]), np.exp(_between(np.log(p.ratio), u[..., 1]))
    w, h = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (w > 0) & (w <= width[:, None]) & (h > 0) & (h <= height[:, None])
    n, first, fitted = np.arange(len(u)), fits.argmax(axis=1), fits.any(axis=1)
    w, h, place = w[n, first], h[n, first], u[n, first, 2:]
    top = np.floor(place[:, 0] * (height - h + 1))
    left = np.floor(place[:, 1] * (width - w + 1))
    if not fitted.all():
        narrow, flat = width / height < p.ratio[0], width / height > p.ratio[1]
        centre_h = np.where(narrow, np.rint(width / p.ratio[0]), height)
        centre_w = np.where(flat, np.rint(height * p.ratio[1]), width)
        h, w = np.where(fitted, h, centre_h), np.where(fitted, w, centre_w)
        top = np.where(fitted, top, (height - h) // 2)
        left = np.where(fitted, left, (width - w) // 2)
    return top, left, h, w


def _area(p: SimCLR, height: np.ndarray, width: np.ndarray, u: np.ndarray) -> np.ndarray:
    return (height * width)[:, None] * _between(p.scale, u)


def _between(ends: Any, u: np.ndarray) -> np.ndarray:
    return ends[0] + (ends[1] - ends[0]) * u


# ---- what a policy needs ----


def _check(p: SimCLR) -> None:
    need(
        isinstance(p.size, int) and not isinstance(p.size, bool) and 1 <= p.size <= 8192,
        lambda: f"`SimCLR(size={p.size!r})` needs an integer `1 <= size <= 8192`, in pixels.",
    )
    need(
        _number(p.strength) and 0 <= p.strength < np.inf,
        lambda: (
            f"`SimCLR(strength={p.strength!r})` needs `strength >= 0`; received `{p.strength!r}`. "
            "0 leaves images alone, 0.5 is SimCLR on CIFAR, 1 on ImageNet."
        ),
    )
    need(
        (p.mean is None) == (p.std is None),
        lambda: f"`SimCLR` needs both `mean` and `std` or neither; received {p.mean} and {p.std}.",
    )


def _check_filled(p: SimCLR) -> None:
    for name in ("flip", "jitter", "grayscale", "blur", "solarise"):
        value = getattr(p, name)
        need(
            _number(value) and 0 <= value <= 1,
            lambda name=name, value=value: (
                f"`SimCLR({name}={value!r})` needs a probability from 0 to 1; received `{value!r}`."
            ),
        )
    for name in ("brightness", "contrast", "saturation", "hue", "threshold"):
        value, limit = getattr(p, name), 0.5 if name == "hue" else np.inf
        need(
            _number(value) and 0 <= value <= limit and np.isfinite(value),
            lambda name=name, value=value, limit=limit: (
                f"`SimCLR(strength={p.strength!r}, {name}={value!r})` needs a number from "
                f"0 to {limit} for `{name}`; received `{value!r}`."
            ),
        )
    for name in ("scale", "ratio", "sigma"):
        value, most = getattr(p, name), 1.0 if name == "scale" else np.inf
        need(
            isinstance(value, tuple)
            and len(value) == 2
            and all(_number(v) and np.isfinite(v) and 0 < v <= most for v in value)
            and value[0] <= value[1],
            lambda name=name, value=value, most=most: (
                f"`SimCLR({name}={value!r})` needs a pair `0 < low <= high <= {most:g}`; "
                f"received `{value!r}`."
            ),
        )
    kernel = p.kernel
    need(
        isinstance(kernel, int) and kernel % 2 == 1 and 1 <= kernel <= 2 * p.size - 1,
        lambda: (
            f"`SimCLR(size={p.size}, kernel={kernel!r})` needs an odd `1 <= kernel <= "
            f"{2 * p.size - 1}`: the blur reflects at the border; received `{kernel!r}`."
        ),
    )
    for name in ("mean", "std"):
        value = getattr(p, name)
        need(
            value is None
            or (
                isinstance(value, tuple)
                and 1 <= len(value) <= 13
                and all(_number(v) and np.isfinite(v) for v in value)
                and (name == "mean" or min(value) > 0)
            ),
            lambda name=name, value=value: (
                f"`SimCLR({name}={value!r})` needs one number per channel (1 to 13)"
                f"{', above 0' if name == 'std' else ''}; received `{value!r}`."
            ),
        )


def _number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
