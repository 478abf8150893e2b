"""The pre-norm transformer block that images and sequences share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from chiaroscuro.errors import need

__all__ = ["Block", "initialise", "split_heads"]


def split_heads(name: str, d: int, heads: int) -> None:
    """Refuse a dimension that the heads do not divide."""
    need(
        d % heads == 0,
        lambda: (
            f"`{name}(d={d}, heads={heads})` needs `d` to be a multiple of `heads`; "
            f"{d} = {heads} * {d // heads} + {d % heads}."
        ),
    )


def initialise(module: nn.Module) -> None:
    """Linear weights and tables from a normal of deviation 0.02 cut at 2, biases 0 (as ViT)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding | nn.Conv2d):
            nn.init.trunc_normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear | nn.Conv2d) and part.bias is not None:
            nn.init.zeros_(part.bias)


class Block(nn.Module):
    """Attention and a two-layer perceptron, each normalised before and added to its input.

        x <- x + attention(norm(x));  x <- x + mlp(norm(x))

    Example:
        >>> import torch
        >>> Block(d=8, heads=2)(torch.zeros(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(self, d: int, heads: int, ratio: int = 4, dropout: float = 0.0):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(d, eps=1e-6), _Attention(d, heads, dropout)
        self.norm2, self.mlp = nn.LayerNorm(d, eps=1e-6), _Perceptron(d, ratio, dropout)

    def forward(self, x: Tensor, attended: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.norm1(x), attended)
        return x + self.mlp(self.norm2(x))


class _Attention(nn.Module):
    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, attended: Tensor | None) -> Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mask = None if attended is None else attended[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.drop(self.proj(y.transpose(1, 2).reshape(n, t, d)))


class _Perceptron(nn.Module):
    def __init__(self, d: int, ratio: int, dropout: float):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, ratio * d), nn.Linear(ratio * d, d)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(F.gelu(self.fc1(x))))
