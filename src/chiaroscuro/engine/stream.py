"""The batches of a training, one after another: of our data and views, or of any iterable.

A batch of our data and views is a function of the settings and the step alone, prepared here or
ahead in worker processes, on one thread wherever that happens: vectorised loops round differently
where several threads cut them.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import Dataset as TorchDataset

from chiaroscuro.data import BlockOrder, Dataset, Order, open_data, order_of
from chiaroscuro.engine.batches import Pairs, ViewPair, as_view
from chiaroscuro.engine.crops import Crops, Triples, views_of
from chiaroscuro.engine.settings import Settings
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = [
    "Iterated",
    "PairBatch",
    "Steps",
    "copies_pinned",
    "prefetched",
    "view_batches",
    "watched_workers",
]

PairBatch = tuple[Any, Any, Tensor | None]
"""Two views of the same samples (the second may be `Crops` or `Triples`), and labels where the
objective takes them."""

AHEAD = 2
"""Batches that each worker has ready."""


@dataclass(frozen=True, eq=False)
class Steps(TorchDataset):
    """This rank's part of each batch, by step number.

    Args:
        pairs: what makes two views of samples.
        order: which samples.
        labels: labels of all samples, or None.
        rank, world: which part.
    """

    pairs: Pairs
    order: Order | BlockOrder
    labels: NDArray[np.int64] | None
    rank: int = 0
    world: int = 1
    unfinished: bool = False
    """Whether batches are images in uint8 and the recipes of their views, for a device."""
    pinned: bool = False
    """Whether workers leave batches where a device copies them from by itself."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        data: Dataset,
        takes_labels: bool,
        rank: int = 0,
        world: int = 1,
        views: ViewPair | None = None,
        grouped: bool = False,
    ) -> Steps:
        """Return the batches that the settings ask for.

        Args:
            settings: batch, seed and what a pair is made of.
            data: the samples.
            takes_labels: whether the objective does.
            rank, world: which part.
            views: in the place of the settings' texts.
            grouped: whether its labels are the groups of the data, where these have any.
        """
        given = data.groups if grouped and data.groups is not None else data.labels
        need(
            not takes_labels or given is not None,
            lambda: (
                f"`{settings.objective}` needs labels{' or groups' * grouped}; `{data.name}` has "
                "none."
            ),
        )
        labels = np.asarray(given, dtype=np.int64) if takes_labels else None
        order = order_of(data, settings.batch, settings.seed)
        return cls(Pairs.of(settings, data, views), order, labels, rank, world)

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return len(self.order)

    @property
    def batch(self) -> int:
        """Pairs of a step, all ranks together."""
        return self.order.batch

    def on_rank(self, rank: int, world: int) -> Steps:
        """Return the same batches, of which this rank takes its part."""
        return dataclasses.replace(self, rank=rank, world=world)

    def for_device(self, device: torch.device) -> Steps:
        """Return the same, of which an accelerator makes the views itself, where it can."""
        wait = device.type != "cpu" and self.pairs.can_wait()
        return dataclasses.replace(self, unfinished=wait, pinned=copies_pinned(device))

    def in_lanes(self, lanes: int) -> Steps:
        """Return the same, read from so many places of storage at a time, where it has blocks.

        That decides the order; the number of ranks does not.
        """
        if not isinstance(self.order, BlockOrder) or self.order.lanes == lanes:
            return self
        return dataclasses.replace(self, order=dataclasses.replace(self.order, lanes=lanes))

    def __getitem__(self, step: int) -> PairBatch:
        epoch, batch = divmod(step, len(self.order))
        indices = self.order.indices(epoch, batch, self.rank, self.world)
        y = None if self.labels is None else torch.from_numpy(self.labels[indices])
        if self.unfinished:
            return self.pairs.unfinished(indices, epoch), None, y
        with _one_thread():
            x1, x2 = self.pairs(indices, epoch)
            more = self.pairs.crops(indices, epoch)
            hard = self.pairs.negatives(indices, epoch)
        for x in (x1, x2, *more):
            self._require_finite(x, indices)
        if hard is not None:
            need(
                not more and _is_finite(hard),
                lambda: (
                    "Training on triples needs two views and finite negatives; received "
                    f"{2 + len(more)} views, and {int((~torch.isfinite(hard)).sum())} numbers of "
                    "the negatives are NaN or infinite."
                ),
            )
            return x1, Triples([x2, hard]), y
        return x1, Crops([x2, *more]) if more else x2, y

    def _require_finite(self, x: Any, indices: NDArray[np.int64]) -> None:
        if _is_finite(x):
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

    def stream(
        self, start: int, stop: int, workers: int = 0, timeout: float = 0.0
    ) -> Generator[PairBatch, None, None]:
        """Yield the batches of steps `start` to `stop`, in order; to be closed if left early.

        Args:
            start, stop: as for `range`.
            workers: processes that prepare them ahead; 0 prepares each when it is asked for.
            timeout: seconds to wait for a batch of theirs; 0 waits for ever.
        """
        steps = range(start, stop)
        if workers == 0:
            yield from map(self.__getitem__, steps)
        else:
            yield from prefetched(self, steps, workers, timeout, self.pinned)


def _is_finite(x: Any) -> bool:
    """Return whether a view is no float tensor in this process's memory, or finite."""
    checked = isinstance(x, Tensor) and x.is_floating_point() and x.device.type == "cpu"
    return not checked or bool(torch.isfinite(x).all())


def view_batches(
    data: Any, view: Any = None, batch: int = 256, seed: int = 0, second_view: Any = None
) -> Steps:
    """Return shuffled batches of two views of each sample, for `fit`.

    Which samples and which views is a function of the seed and the step alone.

    Args:
        data: whatever `open_data` takes: a name, a file, arrays, or a dataset of another library.
        view: a `View`, a transform of one sample, or a text; None leaves samples as they are.
        batch: pairs of a step, all ranks together.
        seed: seed of order and views.
        second_view: of the other side of a pair; None is the same as the first.

    Example:
        >>> from chiaroscuro.views import Jitter
        >>> batches = view_batches(np.eye(8, dtype=np.float32), Jitter(noise=0.1), batch=4)
        >>> x1, x2, labels = batches[0]
        >>> x1.shape, batches.per_epoch
        (torch.Size([4, 8]), 2)
    """
    table = open_data(data)
    first = as_view(view)
    pairs = Pairs(table, first, as_view(second_view) or first, seed=seed)
    labels = None if table.labels is None else np.asarray(table.labels, dtype=np.int64)
    return Steps(pairs, order_of(table, batch, seed), labels)


@dataclass(frozen=True, eq=False)
class Iterated:
    """The batches of any iterable, epoch by epoch: a `DataLoader`, a list, a generator.

    Each is `(x1, x2)`, `(x1, x2, labels)` or `((x1, x2), labels)`. On several ranks every rank
    brings its own part of each batch, as many in an epoch as the others.

    What is drawn from torch's own generator while a batch is made (the order of a `DataLoader`
    that shuffles, an augmentation, the seeds of its workers) comes from a stream that is a function
    of the seed and the epoch, apart from that of training. So a resumed training meets the batches
    it would have met: it goes through those of the epoch again up to its step. Not so where they
    come from other random numbers (a `torch.Generator` of one's own, numpy's or Python's global
    one in this process) or a `DataLoader` has another number of workers.

    Args:
        batches: the iterable.
        seed: seed of that stream.
        length: batches of an epoch, needed where the iterable does not say.
    """

    batches: Iterable[Any]
    seed: int = 0
    length: int | None = None

    def __post_init__(self) -> None:
        kind = type(self.batches).__name__
        need(
            isinstance(self.batches, Iterable) or hasattr(self.batches, "__getitem__"),
            lambda: (
                f"Batches need an iterable of `(x1, x2)` or `(x1, x2, labels)`; received a `{kind}`"
                + (", which is called first." if callable(self.batches) else ".")
            ),
        )
        need(
            not isinstance(self.batches, TorchDataset) or isinstance(self.batches, IterableDataset),
            lambda: (
                f"Batches need several samples each; a `{kind}` gives one at a time: "
                "`DataLoader(dataset, batch_size=256)`, with `batch_size=None` if they are batches."
            ),
        )
        known = _length(self.batches)
        need(
            known is not None or self.length is not None,
            lambda: (
                f"Batches without a length, a `{type(self.batches).__name__}`, need the number of "
                "them that makes an epoch: `steps_per_epoch=100`."
            ),
        )
        need(
            known is None or self.length in (None, known),
            lambda: (
                f"`steps_per_epoch` is for batches without a length; these have {known}, received "
                f"{self.length}."
            ),
        )
        need(self.per_epoch >= 1, lambda: f"An epoch needs a batch; received {self.per_epoch}.")

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        known = _length(self.batches)
        return int(self.length or 0) if known is None else known

    @property
    def batch(self) -> int:
        """Pairs of a step, where the iterable says so; else 1, so that speed counts steps."""
        return int(getattr(self.batches, "batch_size", None) or 1)

    def on_rank(self, rank: int, world: int) -> Iterated:
        """Return the same: every rank brings its own."""
        return self

    def for_device(self, device: torch.device) -> Iterated:
        """Return the same: the batches come as they are."""
        return self

    def in_lanes(self, lanes: int) -> Iterated:
        """Return the same: an iterable has an order of its own."""
        return self

    def stream(
        self, start: int, stop: int, workers: int = 0, timeout: float = 0.0
    ) -> Generator[PairBatch, None, None]:
        """Yield the batches of steps `start` to `stop`, in order.

        Args:
            start, stop: as for `range`.
            workers: 0; a `DataLoader` has its own.
            timeout: of no effect; a `DataLoader` has its own.
        """
        need(
            workers == 0,
            lambda: (
                f"`workers={workers}` prepare batches of our data and views; give a `DataLoader` "
                "its own `num_workers`."
            ),
        )
        if hasattr(self.batches, "__getitem__") and not isinstance(self.batches, DataLoader):
            sequence: Any = self.batches
            for step in range(start, stop):
                yield _as_pair(sequence[step % self.per_epoch], step)
            return
        once = isinstance(self.batches, Iterator)  # a generator goes on, and never begins again
        epoch, place = (0, 0) if once else divmod(start, self.per_epoch)
        passed, step = (start, 0) if once else (place, start - place)
        while step < stop:
            draws = _Draws(self.seed, epoch)
            batches = draws.inside(lambda epoch=epoch: _epoch(self.batches, epoch))
            for _ in range(stop if once else self.per_epoch):
                if step >= stop:
                    return
                came = draws.inside(lambda batches=batches: next(batches, _END))
                if came is _END:
                    raise ChiaroError(
                        f"The batches ended after {step} of {stop} steps; an epoch needs "
                        f"{self.per_epoch} of them."
                    )
                if passed:
                    passed -= 1
                else:
                    yield _as_pair(came, step)
                step += 1
            epoch += 1


_END = object()


def _length(batches: Any) -> int | None:
    try:
        return len(batches)
    except TypeError:  # a generator, or a loader of a stream
        return None


def _epoch(batches: Any, epoch: int) -> Iterator[Any]:
    """Return the batches of an epoch; samplers of several ranks shuffle by its number."""
    for name in ("sampler", "batch_sampler"):
        part: Any = getattr(batches, name, None)
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
    return iter(batches)


class _Draws:
    """torch's random state of the batches of an epoch, kept apart from that of training."""

    def __init__(self, seed: int, epoch: int):
        words = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint32)
        self.state = torch.Generator().manual_seed(int(words[0]) << 32 | int(words[1])).get_state()

    def inside(self, work: Callable[[], Any]) -> Any:
        """Return what `work()` gives with this state in the place of torch's own."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            return work()
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(before)


def _as_pair(came: Any, step: int) -> PairBatch:
    """Return a batch as two views and labels, or say what it is instead."""
    parts = list(came) if isinstance(came, tuple | list) else [came]
    if len(parts) == 2 and isinstance(parts[0], tuple | list) and len(parts[0]) >= 2:
        first, *others = parts[0]  # of a transform that makes several crops, where they are more
        parts = [first, others[0] if len(others) == 1 else Crops(others), parts[1]]
    need(
        len(parts) in (2, 3),
        lambda: (
            f"A batch needs two views, `(x1, x2)` or `(x1, x2, labels)`; that of step {step} is a "
            f"`{type(came).__name__}` of {len(parts)}."
        ),
    )
    parts = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in parts]
    x1, x2, labels = parts if len(parts) == 3 else (*parts, None)
    tensors = isinstance(x1, Tensor) and isinstance(x2, Tensor)
    need(
        not tensors or (len(x1) == len(x2) and (x2.ndim > 1 or x1.ndim == x2.ndim)),
        lambda: (
            f"A batch needs two views of the same samples; that of step {step} has shapes "
            f"{tuple(x1.shape)} and {tuple(x2.shape)}. A loader of (sample, label) has one view: "
            "give its dataset and a view to `view_batches` or `train`."
        ),
    )
    for x in views_of(x1, x2):
        need(
            _is_finite(x),
            lambda x=x: (
                f"Training needs finite samples; {int((~torch.isfinite(x)).sum())} numbers of step "
                f"{step} are NaN or infinite. Leave such rows out, or fill their gaps."
            ),
        )
    return x1, x2, None if labels is None else torch.as_tensor(labels)


def prefetched(
    batches: TorchDataset, steps: range, workers: int, timeout: float, pinned: bool = False
) -> Generator[Any, None, None]:
    """Yield `batches[step]` in order, made by worker processes.

    They end when the iterator is closed, or their parent does.

    Args:
        batches: by number; opened here, and shared with the workers.
        steps: which of them.
        workers: processes, 1 or more.
        timeout: seconds to wait for a batch; 0 waits for ever.
        pinned: whether to leave batches in pinned memory, see `copies_pinned`.
    """
    with warnings.catch_warnings():
        # more workers than cores is slow, not wrong
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loader = DataLoader(
            _Told(batches),
            batch_size=None,
            sampler=steps,
            num_workers=workers,
            prefetch_factor=AHEAD,
            timeout=timeout,
            worker_init_fn=_begin,
            collate_fn=_as_they_are,
            # not torch's own: drawing the workers' seed would move the random numbers of training
            generator=torch.Generator(),
            # what was opened is shared, not copied
            multiprocessing_context="fork" if sys.platform == "linux" else None,
            pin_memory=pinned,
        )
    iterator = iter(loader)
    try:
        for came in iterator:
            if isinstance(came, _Failure):
                raise came.error
            yield came.batch
    except (ConnectionError, EOFError) as error:  # it ended while it handed over a batch
        raise _ended(f"{type(error).__name__}: {error}") from None
    finally:
        _wake(getattr(iterator, "_workers", ()))
        del iterator  # ends the workers now: the traceback of an error would keep them


def copies_pinned(device: torch.device) -> bool:
    """Return whether a device copies from pinned memory by itself, while the host goes on."""
    return device.type not in ("cpu", "mps")


def _wake(workers: Iterable[Any]) -> None:
    """Let workers that were stopped (SIGSTOP) go on, so that they hear that they are to end."""
    for worker in workers if hasattr(signal, "SIGCONT") else ():
        if worker.is_alive():
            os.kill(worker.pid, signal.SIGCONT)


@contextmanager
def watched_workers() -> Iterator[None]:
    """Turn the end of a worker, which torch raises wherever the parent happens to be, into ours."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader "):
            raise
        raise _ended(str(error)) from None


def _ended(why: str) -> ChiaroError:
    reason = " ".join(why.split()).rstrip(".")
    return ChiaroError(
        f"A process that prepares batches has ended or does not answer: {reason}. Resume with "
        "fewer `data.workers`; 0 prepares batches in the training process."
    )


@dataclass(frozen=True)
class _Failure:
    """An error on its way from a worker: the loader itself would turn it into a long text."""

    error: Exception


@dataclass(frozen=True, eq=False)
class _Parcel:
    """A batch on its way from a worker; torch's own pinning would turn `Crops` into a list."""

    batch: Any

    def pin_memory(self, *device: Any) -> _Parcel:
        return _Parcel(_pinned(self.batch, *device))


def _pinned(x: Any, *device: Any) -> Any:
    """Return what is in a batch, its tensors in pinned memory."""
    if hasattr(x, "pin_memory"):
        return x.pin_memory(*device)
    if isinstance(x, Mapping):
        return {name: _pinned(value, *device) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(_pinned(value, *device) for value in x)
    return x


@dataclass(frozen=True, eq=False)
class _Told(TorchDataset):
    """Batches, or the error in the place of one."""

    batches: TorchDataset

    def __getitem__(self, step: int) -> Any:
        try:
            return _Parcel(self.batches[step])
        except (ChiaroError, OSError) as error:
            return _Failure(error)


def _as_they_are(batch: Any) -> Any:
    """Keep what a worker made: torch would turn `Crops` into a list."""
    return batch


def _begin(worker: int) -> None:
    """A worker leaves signals to its parent, which finishes its step.

    A terminal, a scheduler and `torchrun` send theirs to every process of a job. Of SIGTERM only
    that of the parent counts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # not on macOS and Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)  # as torch's own handler does


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
