"""A small transformer encoder for token sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model, one_of, positive, readable
from chiaroscuro.models.transformer import Block, initialise, split_heads

__all__ = ["SequenceTransformer"]


class SequenceTransformer(Model):
    """Transformer for token sequences (pre-norm), pooled to one vector per sequence.

        h = pool(norm(blocks(E[token] + P[position])))

    Padding is neither attended to nor pooled, so that a sequence's embedding does not depend on
    how far its batch was padded.

    Args:
        n_tokens: size of the vocabulary; tokens are 0 to n_tokens - 1.
        length: how many positions there are, the longest sequence it takes.
        d, depth, heads: 128, 2, 4: small, for two cores; no paper behind them.
        pool: "mean" over the tokens, or "cls", an extra learnt token in front.
        padding: the token that fills short sequences; None if there is none.
        dropout: after attention and perceptron, in training; 0.

    Numerics: weights start at deviation 0.02; the last LayerNorm keeps h at unit variance.

    Example:
        >>> net = SequenceTransformer(n_tokens=50, length=8, d=16, padding=0)
        >>> net(torch.tensor([[4, 7, 0], [5, 6, 9]])).shape
        torch.Size([2, 16])
    """

    def __init__(
        self,
        n_tokens: int,
        length: int = 64,
        d: int = 128,
        depth: int = 2,
        heads: int = 4,
        pool: str = "mean",
        padding: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        positive(self, n_tokens=n_tokens, length=length, d=d, depth=depth, heads=heads)
        one_of(self, "pool", pool, ("mean", "cls"))
        split_heads("SequenceTransformer", d, heads)
        need(
            0 <= dropout < 1,
            lambda: f"`SequenceTransformer(dropout={dropout})` needs `0 <= dropout < 1`.",
        )
        need(
            padding is None or 0 <= padding < n_tokens,
            lambda: (
                f"`SequenceTransformer(padding={padding})` needs a token from 0 to {n_tokens - 1}."
            ),
        )
        self.n_tokens, self.length, self.d, self.depth = n_tokens, length, d, depth
        self.heads, self.pool, self.padding, self.dropout = heads, pool, padding, float(dropout)
        self.tokens = nn.Embedding(n_tokens, d)
        self.positions = nn.Embedding(length, d)
        self.cls = nn.Parameter(torch.zeros(1, 1, d)) if pool == "cls" else None
        self.blocks = nn.ModuleList(Block(d, heads, dropout=self.dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(d, eps=1e-6)
        initialise(self)
        if self.cls is not None:
            nn.init.trunc_normal_(self.cls, std=0.02)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Embeddings (n, d) of integer tokens (n, t); `mask` is True where a token is real."""
        self._check(tokens, mask)
        if mask is None and self.padding is not None:
            mask = tokens != self.padding
        if mask is not None and readable(mask):
            empty = (~mask.any(dim=1)).nonzero().flatten()
            need(
                len(empty) == 0,
                lambda: (
                    f"`SequenceTransformer` needs at least one token in each sequence; "
                    f"{len(empty)} of {len(tokens)} are all padding, the first is row "
                    f"{int(empty[0])}."
                ),
            )
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)
            mask = None if mask is None else torch.cat([mask.new_ones(x.shape[0], 1), mask], dim=1)
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        if self.cls is not None:
            return x[:, 0]
        if mask is None:
            return x.mean(1)
        share = mask.to(x.dtype)
        return (x * share[:, :, None]).sum(1) / share.sum(1, keepdim=True)

    def example(self, n: int = 2) -> Tensor:
        # a token that is not padding, in all positions
        token = 0 if self.padding != 0 else min(1, self.n_tokens - 1)
        return torch.full((n, self.length), token, dtype=torch.long)

    def _check(self, tokens: Tensor, mask: Tensor | None) -> None:
        need(
            isinstance(tokens, Tensor)
            and tokens.ndim == 2
            and tokens.dtype in (torch.int64, torch.int32),
            lambda: (
                "`SequenceTransformer` needs integer tokens (n, t); received "
                f"{getattr(tokens, 'dtype', type(tokens).__name__)} of shape "
                f"{tuple(getattr(tokens, 'shape', ()))}."
            ),
        )
        n, t = tokens.shape
        need(
            1 <= t <= self.length,
            lambda: (
                f"`SequenceTransformer(length={self.length})` needs sequences of 1 to "
                f"{self.length} tokens, for which it has positions; received {t}. "
                "Truncate, or build it longer."
            ),
        )
        if n and readable(tokens):
            low, high = (int(bound) for bound in tokens.aminmax())
            need(
                low >= 0 and high < self.n_tokens,
                lambda: (
                    f"`SequenceTransformer(n_tokens={self.n_tokens})` needs tokens from 0 to "
                    f"{self.n_tokens - 1}; received {low} to {high}."
                ),
            )
        need(
            mask is None or (mask.shape == tokens.shape and mask.dtype == torch.bool),
            lambda: (
                f"`SequenceTransformer(tokens, mask)` needs a boolean mask {tuple(tokens.shape)}; "
                f"received {getattr(mask, 'dtype', mask)} of shape "
                f"{tuple(getattr(mask, 'shape', ()))}."
            ),
        )
