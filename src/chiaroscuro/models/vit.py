"""The vision transformer, tiny by default."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model, images, one_of, positive
from chiaroscuro.models.transformer import Block, initialise, split_heads

__all__ = ["ViT"]


class ViT(Model):
    """Patches as tokens with learnt positions, pre-norm transformer blocks, one vector per image.

    Relations: `ViT(size=224, patch=16)` is ViT-Tiny without its classifier, with the submodule
    names of timm, so its weights load.

    Args:
        size: side of the square images it takes.
        patch: side of a patch; divides `size`.
        d, depth, heads: 192, 12, 3: the usual tiny network.
        channels: of the input.
        pool: "cls", an extra learnt token, or "mean" over the patches.

    Numerics: weights start at deviation 0.02; the last LayerNorm keeps h at unit variance.

    Example:
        >>> net = ViT(size=32, patch=8, d=24, depth=2)
        >>> net(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 24])
    """

    def __init__(
        self,
        size: int = 32,
        patch: int = 4,
        d: int = 192,
        depth: int = 12,
        heads: int = 3,
        channels: int = 3,
        pool: str = "cls",
    ):
        super().__init__()
        positive(self, size=size, patch=patch, d=d, depth=depth, heads=heads, channels=channels)
        one_of(self, "pool", pool, ("cls", "mean"))
        split_heads("ViT", d, heads)
        need(
            size % patch == 0,
            lambda: (
                f"`ViT(size={size}, patch={patch})` needs `size` to be a multiple of `patch`; "
                f"{size} = {patch} * {size // patch} + {size % patch}."
            ),
        )
        self.size, self.patch, self.d, self.depth = size, patch, d, depth
        self.heads, self.channels, self.pool = heads, channels, pool
        n_tokens = (size // patch) ** 2 + (pool == "cls")
        self.patch_embed = _Patches(channels, d, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, d)) if pool == "cls" else None
        self.pos_embed = nn.Parameter(torch.empty(1, n_tokens, d))
        self.blocks = nn.Sequential(*(Block(d, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(d, eps=1e-6)
        initialise(self)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        images(self, x, self.channels)
        need(
            x.shape[2] == x.shape[3] == self.size,
            lambda: (
                f"`ViT(size={self.size})` needs images of {self.size}x{self.size} pixels, for "
                f"which it has positions; received {x.shape[2]}x{x.shape[3]}."
            ),
        )
        x = self.patch_embed(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.norm(self.blocks(x + self.pos_embed))
        return x[:, 0] if self.pool == "cls" else x.mean(1)

    def example(self, n: int = 2) -> Tensor:
        return torch.zeros(n, self.channels, self.size, self.size)


class _Patches(nn.Module):
    def __init__(self, channels: int, d: int, patch: int):
        super().__init__()
        self.proj = nn.Conv2d(channels, d, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)
