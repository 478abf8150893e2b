"""Monitors: cheap measures of embeddings, taken while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from chiaroscuro.data import Dataset
from chiaroscuro.engine.batches import ViewPair, spaced
from chiaroscuro.engine.embedding import embed, pass_through
from chiaroscuro.engine.fitting import Callback, Moment
from chiaroscuro.errors import ChiaroError, need

__all__ = ["held_out", "watch"]


def watch(
    measure: Callable[[Any], Mapping[str, float]], rows: int = 512, every: int = 1
) -> Callback:
    """Return a callback that measures h and z of the same rows at the end of epochs.

    The numbers join the history: those of h as they are named, those of z under `z_`. It costs one
    pass of `rows` samples through the networks, and the measure: `diagnostics.monitor` takes about
    20 ms for 512 rows of 128 dimensions on one core.

    Args:
        measure: function from embeddings (n, d) to numbers by name, such as `diagnostics.monitor`.
        rows: of the training data, at most, evenly spaced.
        every: epochs between looks; the last is always looked at.

    Example:
        >>> import tempfile
        >>> from chiaroscuro.engine import read_settings, train
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=1"
        >>> spread = watch(lambda h: {"spread": float(h.std())}, rows=20)
        >>> run = train(read_settings("digits", small), callbacks=[spread])
        >>> sorted(set(run.history().records[-1]) & {"spread", "z_spread"})
        ['spread', 'z_spread']
    """
    need(rows >= 2, lambda: f"`watch(rows)` needs at least 2 rows; received {rows}.")
    need(every >= 1, lambda: f"`watch(every)` needs at least 1 epoch; received {every}.")
    looked_at: list[Dataset] = []

    def callback(moment: Moment) -> Mapping[str, float]:
        if (moment.epoch + 1) % every and moment.step < moment.steps:
            return {}
        if not looked_at:
            looked_at.append(spaced(_data(moment), rows))
        embeddings = embed(moment.networks, looked_at[0], views=_views(moment))
        numbers = dict(measure(embeddings.h))
        if embeddings.z is not None:
            numbers |= {f"z_{name}": value for name, value in measure(embeddings.z).items()}
        return numbers

    return callback


def held_out(
    measure: Callable[[tuple[Any, Any], tuple[Any, Any]], Mapping[str, float]],
    rows: int = 1000,
    every: int = 1,
) -> Callback:
    """Return a callback that hands representations of two parts of the training rows to a measure.

    A third of the rows that training sees is held out from the others, class by class and with
    groups kept whole. The test side of a split is never looked at, so that whoever stops a training
    or chooses settings by these numbers has not chosen by the test. Both parts were trained on: an
    objective that sees labels flatters itself here. Data without labels give no measure. It decides
    nothing: it is there to look at. Labels that are ids, however large, are numbered from 0 first.

    Args:
        measure: function from (h, labels) of the larger part and of the held-out part to numbers by
            name.
        rows: at most so many of the part held out, and twice as many of the other, evenly spaced.
        every: epochs between looks; the last epoch is always looked at.
    """
    chosen: list[tuple[Dataset, ...]] = []

    def callback(moment: Moment) -> Mapping[str, float]:
        if (moment.epoch + 1) % every and moment.step < moment.steps:
            return {}
        if not chosen:
            chosen.append(_parts(_data(moment), rows))
        if not chosen[0]:
            return {}
        h = [pass_through(moment.networks, part, 0, _views(moment))[0] for part in chosen[0]]
        known, asked = zip(h, _numbered([part.labels for part in chosen[0]]), strict=True)
        return measure(known, asked)

    return callback


def _numbered(labels: list[Any]) -> list[np.ndarray]:
    """Return the labels of all parts numbered from 0 in their order; unknown ones stay -1."""
    both = np.concatenate([np.asarray(part) for part in labels])
    if not both.size or int(both.max()) < 65_536:
        return labels
    names, places = np.unique(both, return_inverse=True)
    numbered = np.where(both < 0, -1, places - int((names < 0).sum()))
    return np.split(numbered, np.cumsum([len(part) for part in labels])[:-1])


def _data(moment: Moment) -> Dataset:
    if moment.data is None:
        raise ChiaroError("A monitor of samples needs data of ours: `view_batches`, or `train`.")
    return moment.data


def _views(moment: Moment) -> ViewPair:
    return (None, None) if moment.origin is None else moment.origin.views


def _parts(data: Dataset, rows: int) -> tuple[Dataset, ...]:
    """Return two parts of the training side, the second a third of it; none where that fails."""
    data = data if data.split is None else data.part("train")
    groups = np.arange(len(data)) if data.groups is None else data.groups
    if data.labels is None or len(np.unique(groups)) < 2:
        return ()
    halves = data.with_split(1 / 3)
    known, asked = spaced(halves.part("train"), 2 * rows), spaced(halves.part("test"), rows)
    return (known, asked) if len(known) and len(asked) else ()
