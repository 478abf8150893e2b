"""From parameters to images, by the fastest way there is; and which way that is."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import InputError, need
from chiaroscuro.views import compiled, reference
from chiaroscuro.views.view import from_array, located

if TYPE_CHECKING:
    from chiaroscuro.views.simclr import SimCLR

__all__ = ["Backend", "backend", "image_batch", "plain", "render"]


@dataclass(frozen=True)
class Backend:
    """Code that augments uint8 images in main memory, and why it was chosen."""

    name: str
    why: str


def backend() -> Backend:
    """Return the backend in use: `c` if it compiles here, else `torch`.

    Both make the same images of the same parameters, to 2e-5. The environment variable
    `CHIARO_VIEWS` (`c` or `torch`) forces one, and it is an error if that one cannot be had.
    Floats, images of other than 1 or 3 channels and other devices always take `torch`.

    Example:
        >>> backend().name in ("c", "torch")
        True
    """
    choice = compiled.forced()
    if choice == "torch":
        return Backend("torch", f"{compiled.VARIABLE}=torch")
    library = compiled.library()
    if library:
        return Backend("c", f"built by {library.how}")
    need(choice is None, lambda: _unavailable("c", compiled.why_not()))
    return Backend("torch", compiled.why_not())


def _unavailable(name: str, why: str) -> str:
    return (
        f"`{compiled.VARIABLE}={name}` needs a backend that cannot be had here: {why}. "
        "Unset the variable to take the best there is."
    )


def image_batch(batch: Any, ids: Any) -> tuple[Tensor | list[Tensor], Any]:
    """Return a batch as (n, c, h, w), or as a list of (c, h, w);
    and the height and width of each.
    """
    if isinstance(batch, list | tuple):
        located("SimCLR", len(batch), ids)
        need(len(batch) > 0, "`SimCLR` needs at least one image in a list; received 0.")
        images = [from_array(x) for x in batch]
        for image in images:
            _check(image, 3, "each image as (c, h, w)")
        kinds = {(x.dtype, x.shape[0], x.device) for x in images}
        need(
            len(kinds) <= 1,
            lambda: (
                "The images of one batch need one dtype, one number of channels and one device; "
                f"received {len(kinds)} kinds: {sorted(map(str, kinds))}."
            ),
        )
        return images, [tuple(x.shape[1:]) for x in images]
    x = from_array(batch)
    _check(x, 4, "images as (n, c, h, w)")
    located("SimCLR", len(x), ids)
    return x, tuple(x.shape[2:])


def _check(x: Any, ndim: int, what: str) -> None:
    is_tensor = isinstance(x, Tensor)
    right = is_tensor and x.ndim == ndim and 1 <= x.shape[-3] <= 13 and min(x.shape[-2:]) > 0
    last = _channels_last(x, ndim)
    right = right and not last
    hint = " This looks like (h, w, c): permute it first." if last else ""
    need(
        right,
        lambda: (
            f"`SimCLR` needs {what} with 1 to 13 channels and at least one pixel; received "
            f"{tuple(x.shape) if is_tensor else type(x).__name__}.{hint}"
        ),
    )
    need(
        x.dtype == torch.uint8 or x.is_floating_point(),
        lambda: f"`SimCLR` needs uint8, or floats in [0, 1]; received {x.dtype}.",
    )
    need(
        x.dtype == torch.uint8 or x.numel() == 0 or bool(((x >= 0) & (x <= 1)).all()),
        lambda: (
            f"`SimCLR` needs floats in [0, 1]; received {float(x.min()):.4g} to "
            f"{float(x.max()):.4g}. Normalise after the views (`mean`, `std`), not before."
        ),
    )


def _channels_last(x: Any, ndim: int) -> bool:
    if not isinstance(x, Tensor) or x.ndim != ndim:
        return False
    return x.shape[-1] in (1, 3) and x.shape[-3] not in (1, 3)


def render(
    policy: SimCLR,
    images: Tensor | Sequence[Tensor],
    parameters: np.ndarray,
    *,
    threads: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the views of images under given parameters, (n, c, size, size).

    Args:
        policy: gives the size, the blur's window, the threshold and the normalisation; what is
            random comes from `parameters` alone.
        images: (n, c, h, w), or a list of (c, h, w); uint8, or floats in [0, 1].
        parameters: from `policy.sample`, one row per image.
        threads: threads of the fast backend; None is `torch.get_num_threads()`.
        out: where to put the views. A float32 tensor takes them normalised, a uint8 tensor in
            0 to 255 and not normalised. None is a new float tensor.

    Example:
        >>> from chiaroscuro.views import SimCLR
        >>> policy, x = SimCLR.large(8), torch.full((1, 3, 8, 8), 51, dtype=torch.uint8)
        >>> parameters = policy.sample((8, 8), policy.draws([0], seed=0, epoch=0, view=0))
        >>> parameters["jitter"] = parameters["grayscale"] = False
        >>> render(policy, x, parameters).unique()
        tensor([0.2000])
    """
    full = policy.explicit()
    channels = int(images.shape[1] if isinstance(images, Tensor) else len(images[0]))
    shape = (len(images), channels, full.size, full.size)
    _fits(full, channels)
    _colours(full, channels)
    need(
        len(parameters) == len(images),
        lambda: (
            f"`render` needs one row of parameters per image; received {len(parameters)} "
            f"rows and {len(images)} images."
        ),
    )
    need(
        out is None
        or (tuple(out.shape) == shape and out.is_contiguous() and out.dtype in _OUTPUTS),
        lambda: (
            f"`render(out=...)` needs a contiguous float32 or uint8 tensor of shape {shape}; "
            f"received {getattr(out, 'dtype', None)} of shape {tuple(getattr(out, 'shape', ()))}."
        ),
    )
    need(
        threads is None or threads >= 1,
        lambda: f"`render(threads={threads})` needs at least 1 thread; received {threads}.",
    )
    if len(images) == 0:
        return torch.empty(shape) if out is None else out
    fast = _fast(backend().name) if _is_plain(images[0], out) and channels in (1, 3) else None
    if fast is None:
        return _by_reference(full, images, parameters, out)
    _inside(images, parameters)
    got = torch.empty(shape) if out is None else out
    fast(full, images, np.ascontiguousarray(parameters), got, threads or torch.get_num_threads())
    return got


def plain(policy: SimCLR, images: Tensor | Sequence[Tensor]) -> Tensor:
    """Return whole images, resized and normalised as the views are, (n, c, size, size)."""
    _fits(policy, int(images.shape[1] if isinstance(images, Tensor) else len(images[0])))
    batches = [images] if isinstance(images, Tensor) else [x[None] for x in images]
    resized = torch.cat([reference.resize(x, policy.size, policy.antialias) for x in batches])
    return reference.normalised(resized, policy)


def _fits(policy: SimCLR, channels: int) -> None:
    need(
        policy.mean is None or len(policy.mean) == channels == len(policy.std or ()),
        lambda: (
            f"`SimCLR(mean={policy.mean}, std={policy.std})` needs one number per channel; "
            f"received images of {channels}."
        ),
    )


def _colours(policy: SimCLR, channels: int) -> None:
    """Refuse what needs red, green and blue where an image has other channels."""
    asked = {
        name: value
        for name in ("saturation", "hue", "grayscale")
        if (value := getattr(policy, name)) and (name == "grayscale" or policy.jitter)
    }
    need(
        channels in (1, 3) or not asked,
        lambda: (
            f"`SimCLR` with {', '.join(f'{k}={v:g}' for k, v in asked.items())} needs images in "
            f"RGB; received {channels} channels. Write `SimCLR(size={policy.size}, "
            f"strength={policy.strength:g}, saturation=0, hue=0, grayscale=0)`: crop, flip, "
            "brightness, contrast, blur and solarise take any channels."
        ),
    )


_OUTPUTS = (torch.float32, torch.uint8)


def _is_plain(image: Tensor, out: Tensor | None) -> bool:
    devices = {image.device.type, "cpu" if out is None else out.device.type}
    return image.dtype == torch.uint8 and devices == {"cpu"}


def _inside(images: Tensor | Sequence[Tensor], parameters: np.ndarray) -> None:
    """Refuse a box that leaves its image: compiled code would read beyond it."""
    h, w = _sides(images).T
    top, left = parameters["top"], parameters["left"]
    height, width = parameters["height"], parameters["width"]
    right = (top >= 0) & (left >= 0) & (height > 0) & (width > 0)
    right &= (top.astype(np.int64) + height <= h) & (left.astype(np.int64) + width <= w)
    need(
        bool(right.all()) and bool((parameters["order"] < 4).all()),
        lambda: (
            f"`render` needs boxes inside their images; {int((~right).sum())} of {len(right)} "
            f"are not: sample the parameters for images of this size, {int(h[0])} x {int(w[0])}."
        ),
    )


def _sides(images: Tensor | Sequence[Tensor]) -> np.ndarray:
    if isinstance(images, Tensor):
        return np.broadcast_to(np.array(images.shape[2:], dtype=np.int32), (len(images), 2))
    return np.array([x.shape[1:] for x in images], dtype=np.int32)


def _by_reference(
    policy: SimCLR, images: Tensor | Sequence[Tensor], parameters: np.ndarray, out: Tensor | None
) -> Tensor:
    bytes_out = out is not None and out.dtype == torch.uint8
    x = reference.render(policy, images, parameters, normalise=not bytes_out)
    if out is None:
        return x
    return out.copy_((x.clamp(0, 1) * 255 + 0.5).floor() if bytes_out else x)


# ---- the compiled ways ----

_Fast = Callable[["SimCLR", Any, np.ndarray, Tensor, int], None]


@cache
def _fast(name: str) -> _Fast | None:
    return _by_c if name == "c" else None


class _Recipe(ctypes.Structure):
    """`Recipe` of native.c."""

    _fields_ = (
        ("channels", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("kernel", ctypes.c_int32),
        ("antialias", ctypes.c_int32),
        ("threshold", ctypes.c_float),
        ("gain", ctypes.c_float * 3),
        ("offset", ctypes.c_float * 3),
    )


def _by_c(policy: SimCLR, images: Any, parameters: np.ndarray, out: Tensor, threads: int) -> None:
    library = compiled.library()
    if library is None:
        raise InputError(_unavailable("c", compiled.why_not()))
    expected = parameters.dtype.itemsize * 1000 + ctypes.sizeof(_Recipe)
    if library.sizes != expected:
        raise InputError(f"native.c needs structs of {expected}; it has {library.sizes}.")
    gain, offset = _gain_offset(policy, out.shape[1])
    recipe = _Recipe(
        out.shape[1],
        policy.size,
        policy.kernel,
        policy.antialias,
        policy.threshold,
        (ctypes.c_float * 3)(*gain),
        (ctypes.c_float * 3)(*offset),
    )
    kept = images.contiguous() if isinstance(images, Tensor) else [x.contiguous() for x in images]
    addresses = _addresses(kept)
    sides = np.ascontiguousarray(_sides(images))
    widest = int(max(parameters["height"].max(), parameters["width"].max()))
    floats = out.dtype == torch.float32
    places = (
        addresses.ctypes.data,
        sides.ctypes.data,
        parameters.ctypes.data,
        ctypes.addressof(recipe),
        out.data_ptr() if floats else None,
        None if floats else out.data_ptr(),
    )
    in_threads(lambda a, b: library.render(places, widest, a, b), len(out), threads)


def _addresses(images: Tensor | list[Tensor]) -> np.ndarray:
    if isinstance(images, Tensor):
        step = images[0].numel()
        return images.data_ptr() + step * np.arange(len(images), dtype=np.uint64)
    return np.array([x.data_ptr() for x in images], dtype=np.uint64)


def _gain_offset(policy: SimCLR, channels: int) -> tuple[list[float], list[float]]:
    if policy.mean is None or policy.std is None:
        return [1.0] * 3, [0.0] * 3
    gain = [1 / s for s in policy.std]
    offset = [-m / s for m, s in zip(policy.mean, policy.std, strict=True)]
    return gain + [1.0] * (3 - channels), offset + [0.0] * (3 - channels)


def in_threads(work: Callable[[int, int], None], n: int, threads: int) -> None:
    """`work(first, stop)` on equal parts of range(n), each in a thread; the first error is raised.

    Threads are made for the call and gone after it, so that a forked process inherits none.
    """
    threads = max(1, min(threads, n))
    if threads == 1:
        work(0, n)
        return
    cuts = [n * i // threads for i in range(threads + 1)]
    errors: list[BaseException] = []

    def part(first: int, stop: int) -> None:
        try:
            work(first, stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    others = [threading.Thread(target=part, args=ends) for ends in pairwise(cuts[1:])]
    for thread in others:
        thread.start()
    part(cuts[0], cuts[1])
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
