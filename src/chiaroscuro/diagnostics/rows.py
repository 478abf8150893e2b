"""Rows of numbers: what every diagnostic takes, checked once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need

__all__ = ["Labelled", "labels_of", "rows_of"]


class Labelled(NamedTuple):
    """Samples and their classes: (n, d) numbers and (n,) integers, tensors or arrays."""

    h: Any
    labels: Any


def rows_of(call: str, h: Any, least: int = 2) -> Tensor:
    """The rows as a float64 tensor without gradient; a sentence if they are no finite matrix.

    Example:
        >>> rows_of("effective_rank", np.eye(2)).dtype
        torch.float64
    """
    x = h.detach() if isinstance(h, Tensor) else torch.from_numpy(np.array(h, dtype=np.float64))
    need(
        x.ndim == 2 and len(x) >= least and x.shape[1] > 0,
        lambda: (
            f"`{call}` needs a matrix (n, d) of at least {least} rows; received {tuple(x.shape)}."
        ),
    )
    x = x.to("cpu", torch.float64)
    bad = (~x.isfinite().all(dim=1)).nonzero().flatten()
    need(
        len(bad) == 0,
        lambda: (
            f"`{call}` needs finite numbers; {len(bad)} of {len(x)} rows have NaN or infinity, the "
            f"first is row {int(bad[0])}."
        ),
    )
    return x


def labels_of(call: str, labels: Any, n: int) -> Tensor:
    """The labels as an integer tensor, one for each of n rows, none negative."""
    y = labels.detach() if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    need(
        y.shape == (n,) and not y.is_floating_point() and not y.is_complex(),
        lambda: (
            f"`{call}` needs one whole number as label for each of {n} rows; received {y.dtype} of "
            f"shape {tuple(y.shape)}."
        ),
    )
    y = y.to("cpu", torch.int64)
    need(
        bool((y >= 0).all()),
        lambda: (
            f"`{call}` needs labels from 0; {int((y < 0).sum())} of {n} are negative, which means "
            "unlabelled: leave those rows out."
        ),
    )
    return y
