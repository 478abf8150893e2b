"""Rows of numbers: what every diagnostic takes, checked once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import need

__all__ = ["Labelled", "labels_of", "pairs_of", "rows_of", "some_of"]


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
    need(not x.is_complex(), lambda: f"`{call}` needs real numbers; received {x.dtype}.")
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


def pairs_of(call: str, h1: Any, h2: Any, least: int = 2) -> tuple[Tensor, Tensor]:
    """Two views as float64 tensors of one shape, row i of both from sample i.

    Example:
        >>> pairs_of("alignment(h1, h2)", np.eye(2), np.eye(3))
        Traceback (most recent call last):
        chiaroscuro.errors.InputError: `alignment(h1, h2)` needs paired rows; received (2, 2) and
        (3, 3).
    """
    x1, x2 = rows_of(call, h1, least), rows_of(call, h2, least)
    need(
        x1.shape == x2.shape,
        lambda: f"`{call}` needs paired rows; received {tuple(x1.shape)} and {tuple(x2.shape)}.",
    )
    return x1, x2


def some_of(call: str, n: int, rows: int | None, seed: int) -> Tensor:
    """Which rows are used: all of n if `rows` is None or enough, else so many, drawn by the seed.

    The rows keep their order.

    Example:
        >>> some_of("uniformity", 5, None, seed=0).tolist()
        [0, 1, 2, 3, 4]
        >>> len(some_of("uniformity", 100, 7, seed=0))
        7
    """
    need(
        rows is None or (isinstance(rows, int) and rows >= 2),
        lambda: f"`{call}` needs at least 2 rows, or None for all of them; received {rows!r}.",
    )
    if rows is None or rows >= n:
        return torch.arange(n)
    draw = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=draw)[:rows].sort().values
