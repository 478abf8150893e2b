"""The vision transformer, tiny by default."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model, images, one_of, positive
from chiaroscuro.models.transformer import Block, initialise, split_heads

__all__ = ["ViT"]


class ViT(Model):
    """Vision transformer (pre-norm) with learned position embeddings.

    Relations: `ViT(size=224, patch=16)` is ViT-Tiny without its classifier, with the submodule
    names of timm, so its weights load.

    Args:
        size: side of the square images it takes.
        patch: side of a patch; divides `size`.
        d, depth, heads: 192, 12, 3: the usual tiny network.
        channels: of the input.
        pool: "cls", an extra learnt token, or "mean" over the patches.
        any_size: take images of any multiple of `patch`, as multi-crop training needs; positions
            are resampled (bicubic, antialiased) from the grid of `size`.
        frozen_patches: keep the first weights of the patch embedding, which are drawn uniformly
            [glorot2010] then: training is more stable [chen2021mocov3, Sec. 4].

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
        any_size: bool = False,
        frozen_patches: bool = False,
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
        self.any_size, self.frozen_patches = any_size, frozen_patches
        n_tokens = (size // patch) ** 2 + (pool == "cls")
        self.patch_embed = _Patches(channels, d, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, d)) if pool == "cls" else None
        self.pos_embed = nn.Parameter(torch.empty(1, n_tokens, d))
        self.blocks = nn.Sequential(*(Block(d, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(d, eps=1e-6)
        initialise(self)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if frozen_patches:
            bound = math.sqrt(6 / (channels * patch**2 + d))
            nn.init.uniform_(self.patch_embed.proj.weight, -bound, bound)
            self.patch_embed.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        images(self, x, self.channels)
        need(
            x.shape[2] == x.shape[3] == self.size
            or (self.any_size and not (x.shape[2] % self.patch or x.shape[3] % self.patch)),
            lambda: (
                f"`ViT(size={self.size}, patch={self.patch})` needs images of {self.size}x"
                f"{self.size} pixels, for which it has positions"
                + (f", or multiples of {self.patch}" if self.any_size else "")
                + f"; received {x.shape[2]}x{x.shape[3]}."
                + ("" if self.any_size else " `any_size=True` resamples the positions.")
            ),
        )
        grid = x.shape[2] // self.patch, x.shape[3] // self.patch
        positions: Tensor = self.pos_embed
        if x.shape[2:] != (self.size, self.size):
            positions = resampled(positions, grid, front=int(self.pool == "cls"))
        x = self.patch_embed(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.norm(self.blocks(x + positions))
        return x[:, 0] if self.pool == "cls" else x.mean(1)

    def example(self, n: int = 2) -> Tensor:
        return torch.zeros(n, self.channels, self.size, self.size)


def resampled(positions: Tensor, grid: tuple[int, int], front: int) -> Tensor:
    """Return positions (1, front + side^2, d) of a square grid on another grid.

    Args:
        positions: learnt ones.
        grid: rows and columns.
        front: tokens before the patches, whose positions stay.
    """
    side = math.isqrt(positions.shape[1] - front)
    square = positions[:, front:].float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
    square = F.interpolate(square, grid, mode="bicubic", antialias=True)
    rows = square.flatten(2).transpose(1, 2).to(positions.dtype)
    return torch.cat([positions[:, :front], rows], dim=1)


class _Patches(nn.Module):
    def __init__(self, channels: int, d: int, patch: int):
        super().__init__()
        self.proj = nn.Conv2d(channels, d, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)
