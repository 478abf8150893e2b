"""The batches of a training, one after another: prepared here, or ahead in worker processes.

A batch is a function of the settings and the step alone, and is prepared on one thread wherever
that happens: vectorised loops round differently where several threads cut them.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from chiaroscuro.data import Dataset, Order
from chiaroscuro.engine.batches import Pairs
from chiaroscuro.engine.settings import Settings
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["Batch", "Steps", "watched_workers"]

Batch = tuple[Tensor, Tensor, Tensor | None]
"""Two views of the same samples, and their labels where the objective takes them."""

AHEAD = 2
"""Batches that each worker has ready."""


@dataclass(frozen=True, eq=False)
class Steps(TorchDataset):
    """This rank's part of the batch of every step, by the number of the step.

    Args:
        pairs: what makes two views of samples.
        order: which samples.
        labels: of all samples, or None.
        rank, world: which part.
    """

    pairs: Pairs
    order: Order
    labels: NDArray[np.int64] | None
    rank: int = 0
    world: int = 1

    @classmethod
    def of(
        cls, settings: Settings, data: Dataset, takes_labels: bool, rank: int, world: int
    ) -> Steps:
        """The batches that the settings ask for."""
        need(
            not takes_labels or data.labels is not None,
            lambda: f"`{settings.objective}` needs labels; `{data.name}` has none.",
        )
        labels = np.asarray(data.labels, dtype=np.int64) if takes_labels else None
        order = Order(len(data), settings.batch, settings.seed)
        return cls(Pairs.of(settings, data), order, labels, rank, world)

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return len(self.order)

    def __getitem__(self, step: int) -> Batch:
        epoch, batch = divmod(step, len(self.order))
        indices = self.order.indices(epoch, batch, self.rank, self.world)
        with _one_thread():
            x1, x2 = self.pairs(indices, epoch)
        for x in (x1, x2):
            self._require_finite(x, indices)
        y = None if self.labels is None else torch.from_numpy(self.labels[indices])
        return x1, x2, y

    def _require_finite(self, x: Tensor, indices: NDArray[np.int64]) -> None:
        if not x.is_floating_point() or bool(torch.isfinite(x).all()):
            return
        bad = (~torch.isfinite(x.flatten(1))).any(dim=1).numpy()
        data = self.pairs.data
        row = data[indices[bad][:1]]["row"][0]
        name = data.ids[indices[bad][0]]
        raise InputError(
            f"Training needs finite samples; of `{data.name}` the views of {int(bad.sum())} in a "
            f"batch of {len(bad)} have NaN or infinity, the first is row {row}"
            + (f" (`{name}`)" if str(name) != str(row) else "")
            + ". Leave such rows out, or fill their gaps."
        )

    def stream(self, start: int, stop: int, workers: int = 0) -> Generator[Batch, None, None]:
        """The batches of steps `start` to `stop`, in order; to be closed where it is left early.

        Args:
            start, stop: as for `range`.
            workers: processes that prepare them ahead; 0 prepares each when it is asked for.
        """
        steps = range(start, stop)
        yield from map(self.__getitem__, steps) if workers == 0 else _ahead(self, steps, workers)


def _ahead(batches: Steps, steps: range, workers: int) -> Generator[Batch, None, None]:
    """The same, by worker processes; they end when the iterator is closed, or their parent does."""
    with warnings.catch_warnings():
        # more workers than cores is slow, not wrong
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loader = DataLoader(
            _Told(batches),
            batch_size=None,
            sampler=steps,
            num_workers=workers,
            prefetch_factor=AHEAD,
            worker_init_fn=_begin,
            # not torch's own: drawing the workers' seed would move the random numbers of training
            generator=torch.Generator(),
            # what was opened is shared, not copied
            multiprocessing_context="fork" if sys.platform == "linux" else None,
        )
    for came in loader:
        if isinstance(came, _Failure):
            raise came.error
        yield came


@contextmanager
def watched_workers() -> Iterator[None]:
    """Turn the end of a worker, which torch raises wherever the parent happens to be, into ours."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        why = " ".join(str(error).split())
        raise ChiaroError(
            f"A process that prepares batches has ended: {why} Resume with fewer `data.workers`; 0 "
            "prepares batches in the training process."
        ) from None


@dataclass(frozen=True)
class _Failure:
    """An error on its way from a worker: the loader itself would turn it into a long text."""

    error: Exception


@dataclass(frozen=True, eq=False)
class _Told(TorchDataset):
    """Batches, or the error in the place of one."""

    batches: Steps

    def __getitem__(self, step: int) -> Any:
        try:
            return self.batches[step]
        except (ChiaroError, OSError) as error:
            return _Failure(error)


def _begin(worker: int) -> None:
    """A worker leaves Ctrl-C to its parent, which finishes its step."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
