"""The order of samples: a function of (seed, epoch, position) alone.

Nothing here has a state. The batch at a position is the same whoever asks for it, with any number
of workers and of ranks, at once or after a resume.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.counter import hashed, words
from chiaroscuro.errors import need

__all__ = ["BlockOrder", "Blocks", "Order", "order_of", "permuted"]

SORTED_UP_TO = 1 << 20
"""Samples up to which an epoch is a sorted list of random numbers, kept in memory."""

_ROUNDS = 8


@dataclasses.dataclass(frozen=True)
class Order:
    """Epochs of shuffled batches over n samples.

        permutation(epoch) = argsort of words(seed, epoch, i), i = 0 ... n-1

    Every sample gets a random 64-bit number from (seed, epoch, sample), and the epoch goes through
    them by size (equal ones by index): each of the n! orders is as likely as any other. Beyond
    1,048,576 samples the permutation is a cipher instead (`permuted`), of which any part is
    computed alone, so that no memory grows with n. Batch b is positions b * batch to (b+1) * batch;
    rank r of w has the r-th of w equal parts of it, in order. The samples at the end that fill no
    batch are left out, others in every epoch.

    Relations:
        The parts of a batch over the ranks, put together, are the batch on one rank, for any number
        of ranks that divides it.

    Args:
        n: how many samples.
        batch: samples of one step, all ranks together.
        seed: seed of the shuffling.
        at_least: the fewest samples a batch of a rank may have: 2 where samples are each other's
            negatives.

    Example:
        >>> order = Order(n=10, batch=4, seed=1)
        >>> len(order), order.indices(epoch=0, batch=1).shape
        (2, (4,))
        >>> halves = [order.indices(0, 1, rank=r, world=2) for r in (0, 1)]
        >>> bool((np.concatenate(halves) == order.indices(0, 1)).all())
        True
    """

    n: int
    batch: int
    seed: int = 0
    at_least: int = 2

    def __post_init__(self) -> None:
        need(self.n >= 1, lambda: f"`Order(n)` needs at least 1 sample; received `{self.n}`.")
        need(
            self.batch >= 1,
            lambda: f"`Order(batch)` needs at least 1 sample a batch; received `{self.batch}`.",
        )
        need(
            self.batch <= self.n,
            lambda: (
                f"A batch of {self.batch} needs at least as many samples; the data have {self.n}. "
                f"Take a batch of at most {self.n}, or more data."
            ),
        )
        need(
            self.batch >= self.at_least,
            lambda: (
                f"Every batch needs at least {self.at_least} samples, for they are each other's "
                f"negatives; received a batch of {self.batch}."
            ),
        )

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.n // self.batch

    def permutation(self, epoch: int) -> NDArray[np.int64]:
        """Return all samples in the order of this epoch, those that fill no batch at the end."""
        return self._at(epoch, 0, self.n)

    def indices(self, epoch: int, batch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """Return the samples of one rank's part of one batch."""
        self.check(batch, rank, world)
        part = self.batch // world
        low = batch * self.batch + rank * part
        return self._at(epoch, low, low + part)

    def _at(self, epoch: int, low: int, high: int) -> NDArray[np.int64]:
        if self.n <= SORTED_UP_TO:
            return _shuffled(self.n, self.seed, epoch)[low:high]
        return permuted(np.arange(low, high), self.n, self.seed, epoch)

    def check(self, batch: int, rank: int, world: int) -> None:
        """Refuse a batch that is not in an epoch, and ranks that do not divide it."""
        need(
            0 <= batch < len(self),
            lambda: f"Epochs have batches 0 to {len(self) - 1}; received `{batch}`.",
        )
        need(
            world >= 1 and 0 <= rank < world,
            lambda: f"`rank` needs to be from 0 to {world - 1}; received `{rank}`.",
        )
        need(
            self.batch % world == 0,
            lambda: (
                f"A batch of {self.batch} needs to be divisible by {world} ranks, so that each has "
                f"the same share; {self.batch // world * world or world} would be."
            ),
        )
        need(
            self.batch // world >= self.at_least or world == 1,
            lambda: (
                f"Every rank needs at least {self.at_least} samples of a batch; a batch of "
                f"{self.batch} on {world} ranks leaves {self.batch // world}."
            ),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """Layout of a dataset in storage: blocks that are cheap to read one at a time.

    Args:
        sizes: rows of each block, in the order of the rows: of a shard, of a row group.
        buffer: samples among which a block-wise order shuffles.
    """

    sizes: NDArray[np.int64]
    buffer: int = 4096

    def __post_init__(self) -> None:
        need(
            1 <= self.buffer <= SORTED_UP_TO,
            lambda: f"`buffer` needs 1 to {SORTED_UP_TO} samples; received `{self.buffer}`.",
        )

    def of_rows(self, rows: NDArray[np.int64]) -> Blocks | None:
        """Return the blocks of a subset of the rows; None where the rows are out of order."""
        if len(rows) > 1 and bool((np.diff(rows) <= 0).any()):
            return None
        ends = np.searchsorted(rows, np.cumsum(self.sizes))
        sizes = np.diff(ends, prepend=0)
        return Blocks(sizes[sizes > 0], self.buffer)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockOrder:
    """Shuffled batches that read storage block by block, for data where random access is slow.

    An epoch takes the blocks (shards, row groups) in a random order and cuts that sequence of
    samples into `lanes` stretches of equal length. Within each, windows of `buffer` samples are
    shuffled, and a batch takes the next few samples of every lane. With as many lanes as ranks,
    a rank reads only the blocks of its own lane and at most two of another's. Every sample is seen
    at most once an epoch; the order is a function of (seed, epoch, lanes), whatever the number of
    ranks, and the batch at any step is found without those before it.

    Relations:
        With one block and a buffer of n samples, every order of n samples is as likely as any
        other, as in `Order`.

    Args:
        blocks: the blocks and the buffer.
        batch: samples of one step, all ranks together.
        seed: seed of the shuffling.
        at_least: as in `Order`.
        lanes: stretches that are read side by side; they need to divide the batch.

    Example:
        >>> order = BlockOrder(Blocks(np.array([4, 4, 4]), buffer=2), batch=4)
        >>> sorted(np.concatenate([order.indices(0, b) for b in range(3)]).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    """

    blocks: Blocks
    batch: int
    seed: int = 0
    at_least: int = 2
    lanes: int = 1

    def __post_init__(self) -> None:
        Order(self.n, self.batch, self.seed, self.at_least)  # the same needs
        need(
            self.lanes >= 1 and self.batch % self.lanes == 0,
            lambda: (
                f"`BlockOrder(lanes={self.lanes})` needs a divisor of the batch; received a batch "
                f"of {self.batch}."
            ),
        )

    @property
    def n(self) -> int:
        """Samples of all blocks."""
        return int(self.blocks.sizes.sum())

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.n // self.batch

    def permutation(self, epoch: int) -> NDArray[np.int64]:
        """Return the samples of this epoch in the order of a single rank."""
        return np.concatenate([self.indices(epoch, b) for b in range(len(self))])

    def indices(self, epoch: int, batch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """Return the samples of one rank's part of one batch."""
        Order(self.n, self.batch, self.seed, self.at_least).check(batch, rank, world)
        part, wide = self.batch // world, self.batch // self.lanes
        at = np.arange(rank * part, (rank + 1) * part)
        lane, places = at // wide, batch * wide + at % wide
        stretch = len(self) * wide
        windows = places // self.blocks.buffer
        within = np.empty_like(places)
        for one, window in dict.fromkeys(zip(lane.tolist(), windows.tolist(), strict=True)):
            start = window * self.blocks.buffer
            size = min(self.blocks.buffer, stretch - start)
            mixed = _window(size, self.seed, epoch, one, self.lanes, window)
            mine = (lane == one) & (windows == window)
            within[mine] = start + mixed[places[mine] - start]
        return self._rows(epoch, lane * stretch + within)

    def _rows(self, epoch: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows at these places of the sequence of shuffled blocks."""
        sizes = self.blocks.sizes
        order = _shuffled(len(sizes), self.seed, epoch)
        ends = np.cumsum(sizes[order])
        turn = np.searchsorted(ends, at, side="right")
        begins = np.cumsum(sizes) - sizes
        return begins[order[turn]] + at - (ends[turn] - sizes[order[turn]])


def order_of(data: Any, batch: int, seed: int = 0, at_least: int = 2) -> Order | BlockOrder:
    """Return the order in which a dataset is read in training; block by block if it has blocks.

    Args:
        data: a `Dataset`.
        batch, seed, at_least: as in `Order`.
    """
    blocks = data.blocks_now()
    if blocks is None:
        return Order(len(data), batch, seed, at_least)
    return BlockOrder(blocks, batch, seed, at_least)


def permuted(at: NDArray[np.int64], n: int, *key: int) -> NDArray[np.int64]:
    """Return the places of a random permutation of n, at some positions, without the others.

    A Feistel network on the smallest power of two that holds n: each of eight rounds adds, modulo
    two, a hash of one half of the bits to the other, which is a permutation whatever the hash. A
    result outside 0 ... n-1 is put in again until it is inside (less than twice on average), which
    is a permutation of those inside. The permutation is one of 2^64 that the key chooses, not one
    of all n!.

    Args:
        at: positions, 0 to n - 1.
        n: of the permutation, 2 or more.
        key: integers that choose the permutation: seed and epoch.

    Example:
        >>> sorted(permuted(np.arange(10), 10, 0).tolist()) == list(range(10))
        True
    """
    bits = max(2, int(n - 1).bit_length())
    low_bits = bits // 2
    low = np.uint64((1 << low_bits) - 1)
    keys = words(_ROUNDS, *key)[0]
    out = np.asarray(at).astype(np.uint64)
    walking = np.ones(len(out), bool)
    while walking.any():
        out[walking] = _rounds(out[walking], keys, low, np.uint64(low_bits), bits)
        walking = out >= np.uint64(n)
    return out.astype(np.int64)


def _rounds(
    x: NDArray[np.uint64], keys: NDArray[np.uint64], low: np.uint64, shift: np.uint64, bits: int
) -> NDArray[np.uint64]:
    high = np.uint64((1 << (bits - int(shift))) - 1)
    left, right = x >> shift, x & low
    for at in range(0, len(keys), 2):  # the halves may differ by a bit: they take turns
        left = left ^ (hashed(right, keys[at]) & high)
        right = right ^ (hashed(left, keys[at + 1]) & low)
    return (left << shift) | right


@functools.lru_cache(maxsize=4)
def _shuffled(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    order = np.argsort(words(1, seed, epoch, np.arange(n))[:, 0], kind="stable")
    order.setflags(write=False)  # it is shared by all who ask
    return order


@functools.lru_cache(maxsize=64)  # one for each lane
def _window(n: int, *key: int) -> NDArray[np.int64]:
    order = np.argsort(words(1, *key, np.arange(n))[:, 0], kind="stable")
    order.setflags(write=False)
    return order
