"""Monitors: cheap measures of embeddings, taken while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chiaroscuro.data import Dataset
from chiaroscuro.engine.batches import spaced
from chiaroscuro.engine.embedding import embed
from chiaroscuro.engine.training import Callback, Moment
from chiaroscuro.errors import need

__all__ = ["watch"]


def watch(
    measure: Callable[[Any], Mapping[str, float]], rows: int = 512, every: int = 1
) -> Callback:
    """A callback that measures h and z of the same rows at the end of epochs.

    The numbers join the history: those of h as they are named, those of z under `z_`. It costs one
    pass of `rows` samples through the networks, and the measure: `diagnostics.monitor` takes about
    20 ms for 512 rows of 128 dimensions on one core.

    Args:
        measure: of embeddings (n, d) to numbers by name, such as `diagnostics.monitor`.
        rows: of the training data, at most, evenly spaced.
        every: epochs between looks; the last is always looked at.

    Example:
        >>> import tempfile
        >>> from chiaroscuro.engine import read_settings, train
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=1"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spread = watch(lambda h: {"spread": float(h.std())}, rows=20)
        ...     run = train(read_settings("digits", small), folder, [spread])
        ...     sorted(set(run.history().records[-1]) & {"spread", "z_spread"})
        ['spread', 'z_spread']
    """
    need(rows >= 2, lambda: f"`watch(rows)` needs at least 2 rows; received {rows}.")
    need(every >= 1, lambda: f"`watch(every)` needs at least 1 epoch; received {every}.")
    looked_at: list[Dataset] = []

    def callback(moment: Moment) -> Mapping[str, float]:
        if (moment.epoch + 1) % every and moment.step < moment.steps:
            return {}
        if not looked_at:
            looked_at.append(spaced(moment.data, rows))
        found = embed(moment.networks, looked_at[0], views=moment.settings.views)
        numbers = dict(measure(found.h))
        if found.z is not None:
            numbers |= {f"z_{name}": value for name, value in measure(found.z).items()}
        return numbers

    return callback
