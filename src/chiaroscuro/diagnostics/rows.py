"""Rows as tensors, for the diagnostics that are written in torch; checked as in `measures`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chiaroscuro import measures
from chiaroscuro.measures import Labelled

__all__ = ["Labelled", "labels_of", "pairs_of", "rows_of", "some_of"]


def rows_of(call: str, h: Any, least: int = 2) -> Tensor:
    """Return the rows as a float64 tensor of its own; a sentence if they are no finite matrix.

    Example:
        >>> rows_of("effective_rank", [[1, 2], [3, 4]]).dtype
        torch.float64
    """
    return torch.tensor(measures.rows_of(call, h, least))


def labels_of(call: str, labels: Any, n: int) -> Tensor:
    """Return the labels as an integer tensor, one for each of n rows, none negative."""
    return torch.from_numpy(measures.labels_of(call, labels, n))


def pairs_of(call: str, h1: Any, h2: Any, least: int = 2) -> tuple[Tensor, Tensor]:
    """Return two views as float64 tensors of one shape, row i of both from sample i."""
    x1, x2 = measures.pairs_of(call, h1, h2, least)
    return torch.tensor(x1), torch.tensor(x2)


def some_of(call: str, n: int, rows: int | None, seed: int) -> Tensor:
    """Return which rows are used: all of n, or so many drawn by the seed, in order."""
    return torch.from_numpy(measures.some_of(call, n, rows, seed))
