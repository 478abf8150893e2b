"""What a view is: a random map of a sample, whose chance depends on the sample's name alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.spec import notation, same
from chiaroscuro.views.counter import Draws

__all__ = ["View", "alike", "column", "from_array", "located", "record", "tensor"]


class View(ABC):
    """A random transformation of samples (abstract).

        x_v = T(x; omega),   omega = omega(seed, epoch, id, view)

    Calling one on a batch gives the views and the parameters omega that made them, as a structured
    array with one row per sample. The parameters are a function of the four numbers alone: a
    sample is seen the same way in any batch, worker or rank, and again when a run is resumed.
    Each class has random numbers of its own, so that two different transformations of one sample
    are independent; two of the same class in a row need a `Chain`.

    Views are values: `parse(repr(x)) == x`.
    """

    @abstractmethod
    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the views of a batch, and the parameters that made them.

        Args:
            batch: n samples.
            ids: n integers, the samples' names; their position in the dataset, for example.
            seed: seed of the run.
            epoch: how often the sample was seen before.
            view: 0 for the first view, 1 for the second, and so on.
        """

    def plain(self, batch: Any) -> Any:
        """Return the samples as a network that learnt from this view takes them, with nothing
        random.

        What a view does to every sample alike (a size, a normalisation) belongs here: what is
        embedded must look like what was trained on. As they are, by default.

        Args:
            batch: n samples, as for a call.
        """
        return batch

    def draws(self, ids: Any, seed: int, epoch: int, view: int) -> Draws:
        """Return the random numbers of this class for these samples."""
        return Draws(ids, seed=seed, epoch=epoch, view=view, stream=type(self).__name__)

    def __repr__(self) -> str:
        return notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def __hash__(self) -> int:
        return hash(repr(self))


def record(n: int, **columns: np.ndarray) -> np.ndarray:
    """Return a structured array of n rows with the given columns, each of shape (n, ...).

    Example:
        >>> record(2, angle=np.array([0.5, 1.0]), flip=np.array([True, False]))["angle"]
        array([0.5, 1. ])
    """
    kinds = [(name, values.dtype, values.shape[1:]) for name, values in columns.items()]
    rows = np.zeros(n, dtype=np.dtype(kinds))
    for name, values in columns.items():
        rows[name] = values
    return rows


def tensor(call: str, batch: Any, ids: Any, what: str) -> Tensor:
    """Return the batch as a tensor with one id per row, or a sentence that says what is wrong."""
    x = from_array(batch)
    need(
        isinstance(x, Tensor) and x.ndim >= 1,
        lambda: (
            f"`{call}` needs {what} as a tensor or an array; received `{type(batch).__name__}`."
        ),
    )
    located(call, len(x), ids)
    return x


def located(call: str, n: int, ids: Any) -> None:
    """Refuse a batch whose ids are not one per sample."""
    need(
        isinstance(ids, Sequence | np.ndarray | Tensor | range) and len(ids) == n,
        lambda: (
            f"`{call}` needs one id per sample; received {n} samples and "
            f"{len(ids) if hasattr(ids, '__len__') else type(ids).__name__} ids."
        ),
    )


def column(values: np.ndarray, like: Tensor) -> Tensor:
    """Return numbers per sample as a tensor that multiplies `like`: (n, 1, ..., 1), or (n, k, 1,
    ...).
    """
    got = alike(values, like)
    return got.reshape(*got.shape, *[1] * (like.ndim - got.ndim))


def alike(values: np.ndarray, like: Tensor) -> Tensor:
    """Return an array as a tensor of the kind (float32 for integers) and on the device of
    `like`.
    """
    dtype = like.dtype if like.is_floating_point() else torch.float32
    return from_array(np.ascontiguousarray(values)).to(dtype).to(like.device)


def from_array(values: Any) -> Any:
    """Return an array as a tensor, which shares its memory if that may be written to; else as it
    is.
    """
    if not isinstance(values, np.ndarray):
        return values
    return torch.from_numpy(values if values.flags.writeable else values.copy())
