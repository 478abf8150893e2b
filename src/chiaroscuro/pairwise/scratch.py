"""Memory for tiles that outlives a call: fresh pages would cost more than the arithmetic on them.

On the CPU a new megabyte is a few hundred page faults. Each thread keeps the few tiles it works
in, and those that a backward pass has finished with; elsewhere the device's allocator does this.
"""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

__all__ = ["give_back", "own", "shared"]

SPARE = 4
"""How many finished tiles a thread keeps."""


class _Mine(threading.local):
    def __init__(self) -> None:
        self.shared: dict[tuple[str, torch.dtype], Tensor] = {}
        self.spare: list[Tensor] = []


_mine = _Mine()


def shared(name: str, like: Tensor, shape: tuple[int, int]) -> Tensor:
    """The tile of this name: valid until the name is asked for again."""
    if like.device.type != "cpu" or torch.is_inference_mode_enabled():
        return like.new_empty(shape)
    n = math.prod(shape)
    tile = _mine.shared.get((name, like.dtype))
    if tile is None or tile.numel() < n:
        tile = _mine.shared[name, like.dtype] = like.new_empty(n)
    return tile[:n].view(shape)


def own(like: Tensor, shape: tuple[int, int]) -> Tensor:
    """A tile that belongs to the caller, perhaps one that was given back."""
    n = math.prod(shape)
    for k, tile in enumerate(_mine.spare):
        if tile.numel() == n and tile.dtype == like.dtype and tile.device == like.device:
            return _mine.spare.pop(k).view(shape)
    return like.new_empty(shape)


def give_back(*tiles: Tensor) -> None:
    """Tiles that nobody will look at again."""
    for tile in tiles:
        taken = any(tile.data_ptr() == other.data_ptr() for other in _mine.spare)
        if tile.device.type == "cpu" and not taken:
            _mine.spare = [tile.view(-1), *_mine.spare][:SPARE]
