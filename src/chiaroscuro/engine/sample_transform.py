"""A transform of one sample, such as torchvision's, as a view."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.data import words
from chiaroscuro.engine.settings import parse_view
from chiaroscuro.errors import need
from chiaroscuro.views import View

__all__ = ["SampleTransform", "ViewPair", "as_view"]

ViewPair = tuple[View | None, View | None]
"""The views of the two sides of a pair; None leaves samples as they are."""


class SampleTransform(View):
    """A function of one sample, called for every sample of a batch.

    It receives a PIL image where the data hold image files or PIL images, a string where they hold
    texts, and a tensor otherwise (images as uint8, channels first); it returns a tensor, an array,
    a PIL image or a string. Random numbers that it draws from torch, numpy or Python's `random` are
    a function of (seed, epoch, sample, view): each of their generators is set before the call and
    put back after the batch.

    What it does to every sample alike (a size, a normalisation) is not known here, and embedding
    takes samples as they are, unless the function has an attribute `plain`: a function of a batch.

    Args:
        function: of one sample.

    Example:
        >>> flip = SampleTransform(lambda x: x.flip(0))
        >>> flip(torch.arange(6.0).reshape(2, 3), [0, 1])[0]
        tensor([[2., 1., 0.],
                [5., 4., 3.]])
    """

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, Any]:
        seeds = words(1, seed, epoch, np.asarray(ids, dtype=np.int64), view)[:, 0]
        made = []
        with _preserved_generators():
            for sample, number in zip(batch, seeds.tolist(), strict=True):
                torch.default_generator.manual_seed(number)
                random.seed(number)
                np.random.seed(number % 2**32)  # noqa: NPY002 - the one that transforms draw from
                made.append(_value(self.function(sample)))
        return _stacked(made), None

    def plain(self, batch: Any) -> Any:
        own = getattr(self.function, "plain", None)
        return batch if own is None else own(batch)


def as_view(view: Any) -> View | None:
    """Return a view: one of ours as it is, that of a text, or a function of one sample as one.

    Example:
        >>> as_view("Jitter(noise=0.5)"), as_view(None)
        (Jitter(noise=0.5, scale=0.0), None)
    """
    if view is None or isinstance(view, View):
        return view
    if isinstance(view, str):
        return parse_view(view)
    need(
        callable(view),
        lambda: (
            "A view needs a `View`, its text, or a function of one sample; received "
            f"`{type(view).__name__}`."
        ),
    )
    return SampleTransform(view)


@contextlib.contextmanager
def _preserved_generators() -> Iterator[None]:
    """Leave the generators of torch, numpy and Python as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _value(made: Any) -> Any:
    """Return what a function gave as a tensor or a string."""
    if isinstance(made, Tensor | str):
        return made
    array = np.asarray(made)
    need(
        array.dtype.kind in "biuf",
        lambda: (
            "A view of one sample needs to return a tensor, an array, an image or a string; "
            f"received `{type(made).__name__}`."
        ),
    )
    image = array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] in (1, 3)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(array, -1, 0) if image else array))


def _stacked(made: list[Any]) -> Any:
    if made and isinstance(made[0], str):
        return made
    shapes = sorted({tuple(one.shape) for one in made})
    need(
        len(shapes) == 1,
        lambda: (
            f"A view needs to bring all samples to one shape; received {len(shapes)}, from "
            f"{shapes[0]} to {shapes[-1]}. Crop or resize in it."
        ),
    )
    return torch.stack(made)
