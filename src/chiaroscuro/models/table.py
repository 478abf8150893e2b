"""An embedding table: one free vector per symbol."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model, positive, readable

__all__ = ["Table"]


class Table(Model):
    """Embedding table: row i of a trainable matrix for symbol i.

        h = W[x]

    Args:
        n_symbols: rows; symbols are 0 to n_symbols - 1.
        d: dimension of a row.
        scale: rows start normal, of mean norm about `scale`; 1.

    Relations: is `MLP(n_symbols, d, depth=1)` without bias on one-hot rows.

    References:
        semantic2025

    Example:
        >>> Table(n_symbols=10, d=4)(torch.tensor([3, 3, 7])).shape
        torch.Size([3, 4])
    """

    def __init__(self, n_symbols: int, d: int = 64, scale: float = 1.0):
        super().__init__()
        positive(self, n_symbols=n_symbols, d=d)
        need(
            0 <= scale < math.inf,
            lambda: f"`Table(scale={scale})` needs a finite `scale >= 0`; received `{scale}`.",
        )
        self.n_symbols, self.d, self.scale = n_symbols, d, float(scale)
        self.weight = nn.Parameter(torch.randn(n_symbols, d) * (scale / math.sqrt(d)))

    def forward(self, x: Tensor) -> Tensor:
        need(
            isinstance(x, Tensor) and x.ndim == 1 and x.dtype in (torch.int64, torch.int32),
            lambda: (
                "`Table` needs integer symbols (n,); received "
                f"{getattr(x, 'dtype', type(x).__name__)} of shape "
                f"{tuple(getattr(x, 'shape', ()))}."
            ),
        )
        if readable(x) and len(x):
            low, high = (int(bound) for bound in x.aminmax())
            need(
                low >= 0 and high < self.n_symbols,
                lambda: (
                    f"`Table(n_symbols={self.n_symbols})` needs symbols from 0 to "
                    f"{self.n_symbols - 1}; received {low} to {high}."
                ),
            )
        return nn.functional.embedding(x, self.weight)

    def example(self, n: int = 2) -> Tensor:
        return torch.zeros(n, dtype=torch.long)
