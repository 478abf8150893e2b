"""Random numbers by name: (seed, epoch, sample, view) -> numbers, with no state in between."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.views import compiled

__all__ = ["Draws"]

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_MAX_BLOCKS = 1 << 16


class Draws:
    """Random numbers of some samples, each determined by the key of the sample alone.

        word(id, j) = Philox4x32-10(counter = (id, epoch, view, j // 4), key = seed ^ stream)[j % 4]

    A counter-based generator is a cipher: it turns a place into a number, and any number can be
    had without the ones before it. So a sample's numbers do not depend on the batch, worker or
    rank it is in. Where it ends: 2^18 words per sample, epoch and view.

    Relations: row i of a batch is the batch of sample i alone; the first k words are the first k
    of any longer request.

    Args:
        ids: integers, one per sample.
        seed: 0 to 2^64 - 1.
        epoch: 0 to 2^32 - 1.
        view: 0 to 2^16 - 1.
        stream: a name; different names give independent numbers.

    Numerics: integer arithmetic, the same bits on every machine, with a compiler or without.
    Uniform numbers are the centres of 2^32 equal cells of (0, 1).

    The generator is that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
    2, 3" (SC 2011).

    Example:
        >>> Draws([7, 3], seed=1).words(2)
        array([[2064558333, 2007762709],
               [3253981089,  156954468]], dtype=uint32)
        >>> Draws([3], seed=1).words(2)
        array([[3253981089,  156954468]], dtype=uint32)
    """

    def __init__(self, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0, stream: str = ""):
        self.ids = _integers(ids)
        for name, value, bits in (("seed", seed, 64), ("epoch", epoch, 32), ("view", view, 16)):
            need(
                isinstance(value, int | np.integer) and 0 <= value < 1 << bits,
                lambda name=name, value=value, bits=bits: (
                    f"A view's random numbers need an integer `0 <= {name} < 2^{bits}`; "
                    f"received `{value!r}`."
                ),
            )
        self.seed, self.epoch, self.view, self.stream = int(seed), int(epoch), int(view), stream

    def words(self, count: int) -> np.ndarray:
        """Return the first `count` random words of each sample: (n, count) uint32."""
        blocks = -(-count // 4)
        need(
            blocks <= _MAX_BLOCKS,
            lambda: (
                f"A sample has {4 * _MAX_BLOCKS} random words per epoch and view; "
                f"{count} were asked for. Cut the sample into pieces with ids of their own."
            ),
        )
        native = compiled.library()
        make = native.words if native else philox
        return make(self.ids, self.epoch, self.view, blocks, self.key)[:, :count]

    def uniform(self, count: int) -> np.ndarray:
        """Return numbers in (0, 1): (n, count) float64."""
        return (self.words(count) + 0.5) * 2.0**-32

    def normal(self, count: int) -> np.ndarray:
        """Standard normal numbers, by Box and Muller: (n, count) float64."""
        u = self.uniform(count + count % 2)
        radius, angle = np.sqrt(-2 * np.log(u[:, ::2])), 2 * np.pi * u[:, 1::2]
        both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
        return both.reshape(u.shape)[:, :count]

    @property
    def key(self) -> int:
        """The cipher's key, 64 bits; for one stream, different seeds have different keys."""
        if not self.stream:
            return self.seed
        salt = hashlib.sha256(self.stream.encode()).digest()[:8]
        return self.seed ^ int.from_bytes(salt, "little")


def philox(ids: np.ndarray, epoch: int, view: int, blocks: int, key: int) -> np.ndarray:
    """Philox4x32-10 in numpy: (n, 4 blocks) words, the same as the compiled ones."""
    shape = len(ids), blocks
    c0 = np.broadcast_to((ids & _LOW)[:, None], shape)
    c1 = np.broadcast_to((ids >> _32)[:, None], shape)
    c2 = np.broadcast_to(np.uint64(epoch), shape)
    c3 = np.broadcast_to(np.uint64(view << 16) + np.arange(blocks, dtype=np.uint64), shape)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(_ROUNDS):
        a, b = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1 = (b >> _32) ^ c1 ^ np.uint64(k0), b & _LOW
        c2, c3 = (a >> _32) ^ c3 ^ np.uint64(k1), a & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    words = np.stack([c0, c1, c2, c3], axis=2)
    return words.reshape(len(ids), 4 * blocks).astype(np.uint32)


def _integers(ids: Any) -> np.ndarray:
    values = ids.cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    need(
        values.ndim == 1 and (values.dtype.kind in "iu" or len(values) == 0),
        lambda: (
            "The ids of samples need to be integers, one per sample; received "
            f"{values.dtype} of shape {values.shape}."
        ),
    )
    return np.ascontiguousarray(values.astype(np.int64, copy=False)).view(np.uint64)
