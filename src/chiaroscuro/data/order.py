"""The order of samples: a function of (seed, epoch, position) alone.

Nothing here has a state. The batch at a position is the same whoever asks for it, with any number
of workers and ranks, at once or after a resume.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.counter import words
from chiaroscuro.errors import need

__all__ = ["Order"]


@dataclasses.dataclass(frozen=True)
class Order:
    """Epochs of shuffled batches over n samples.

        permutation(epoch) = argsort of words(seed, epoch, i), i = 0 ... n-1

    Every sample gets a random 64-bit number from (seed, epoch, sample), and the epoch goes through
    them by size (equal ones by index): each of the n! orders is as likely as any other. Batch b is
    positions b * batch to (b+1) * batch; rank r of w has the r-th of w equal parts of it, in order.
    The samples at the end that fill no batch are left out, others in every epoch.

    Relations:
        The parts of a batch over the ranks, put together, are the batch on one rank, for any number
        of ranks that divides it.

    Args:
        n: how many samples.
        batch: samples of one step, all ranks together.
        seed: of the shuffling.
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
        """All samples in the order of this epoch, those that fill no batch at the end."""
        return _shuffled(self.n, self.seed, epoch)

    def indices(self, epoch: int, batch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """The samples of one rank's part of one batch."""
        need(
            0 <= batch < len(self),
            lambda: f"Epochs have batches 0 to {len(self) - 1}; received `{batch}`.",
        )
        self._check_world(rank, world)
        part = self.batch // world
        low = batch * self.batch + rank * part
        return self.permutation(epoch)[low : low + part]

    def _check_world(self, rank: int, world: int) -> None:
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


@functools.lru_cache(maxsize=4)
def _shuffled(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    order = np.argsort(words(1, seed, epoch, np.arange(n))[:, 0], kind="stable")
    order.setflags(write=False)  # it is shared by all who ask
    return order
