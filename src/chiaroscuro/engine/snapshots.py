"""Snapshots: a callback that embeds the same rows as training goes on, for the report's slider."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.data import Dataset
from chiaroscuro.engine.batches import Pairs, spaced
from chiaroscuro.engine.embedding import embed
from chiaroscuro.engine.fitting import Callback, Moment
from chiaroscuro.engine.networks import Networks
from chiaroscuro.engine.opening import OpenRun
from chiaroscuro.errors import ChiaroError, need

__all__ = ["FRAMES", "pairs_of", "snapshots", "two_views"]

FRAMES = 20
"""About so many snapshots of a training, unless told."""

BATCH = 256
_VECTORS = ("h", "z", "h1", "h2", "z1", "z2")


def snapshots(rows: int = 1000, every: int | None = None) -> Callback:
    """Return a callback that leaves `embeddings/epoch-0005.npz` and the like in the run folder.

    Each holds `ids`, `h`, `z` and, of two views of every row, `h1 h2 z1 z2`; the rows and their
    views are the same in all of them. `epoch-0000` is the network before its first step.
    `embeddings/rows.npz` holds once what is known of the rows: labels, factors, thumbnails. It
    measures nothing and changes nothing.

    Args:
        rows: at most so many, evenly spaced over both sides of the split.
        every: epochs between snapshots; None spreads about 20 over the training. The last epoch is
            always taken.

    Example:
        >>> import tempfile
        >>> from chiaroscuro.engine import read_settings, train
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=1"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = train(read_settings("digits", small), folder, [snapshots(rows=20)])
        ...     sorted(path.name for path in (run.folder / "embeddings").iterdir())
        ['epoch-0000.npz', 'epoch-0001.npz', 'rows.npz']
    """
    need(rows > 0, lambda: f"`snapshots(rows)` needs at least 1; received {rows}.")
    need(
        every is None or every > 0,
        lambda: f"`snapshots(every)` needs at least 1 epoch; received {every}.",
    )
    looked_at: list[Dataset] = []

    def callback(moment: Moment) -> Mapping[str, float]:
        source, run, epoch = moment.origin, moment.run, moment.epoch + 1
        if source is None or run is None:
            raise ChiaroError("Snapshots need a run folder and its data: `train(..., out)`.")
        if not looked_at:
            looked_at.append(spaced(source.data, rows))
            if not run.embeddings("epoch-0000").exists():
                before = source.untrained.to(next(moment.networks.parameters()).device)
                _save(before, looked_at[0], source, run, 0)
        apart = every or math.ceil(moment.epochs / FRAMES)
        if epoch % apart == 0 or moment.step >= moment.steps:
            _save(moment.networks, looked_at[0], source, run, epoch)
        return {}

    return callback


def _save(networks: Networks, data: Dataset, source: OpenRun, run: Run, epoch: int) -> None:
    arrays = embed(networks, data, views=source.views).arrays()
    vectors: dict[str, Any] = {name: a for name, a in arrays.items() if name in _VECTORS}
    if "z1" not in vectors:
        vectors |= two_views(networks, pairs_of(source, data))
    known: dict[str, Any] = {name: a for name, a in arrays.items() if name in _KNOWN}
    if not run.embeddings("rows").exists():
        Embeddings(**known).save(run.embeddings("rows"))
    Embeddings(ids=known["ids"], **vectors).save(run.embeddings(f"epoch-{epoch:04d}"))


_KNOWN = (
    *("labels", "class_names", "coarse_labels", "factors", "factor_names"),
    *("split", "ids", "texts", "thumbnails"),
)


def pairs_of(run: OpenRun, data: Dataset) -> Pairs:
    """Return the pairs that a training would draw of these rows."""
    return Pairs.of(run.settings, data, run.views)


def two_views(networks: Networks, pairs: Pairs) -> dict[str, np.ndarray]:
    """Return h and z of the two views that training would draw of these rows in its first epoch."""
    n = len(pairs.data)
    device = next((p.device for p in networks.parameters()), torch.device("cpu"))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("h1", "h2", "z1", "z2")}
    with torch.no_grad():
        for start in range(0, n, BATCH):
            rows = np.arange(start, min(start + BATCH, n))
            for side, x in enumerate(pairs(rows, 0)):
                h = networks.encode(x.to(device), side)
                parts[f"h{side + 1}"].append(h.float().cpu().numpy())
                z = networks.project(h, side)
                parts[f"z{side + 1}"].append(z.float().cpu().numpy())
    return {name: np.concatenate(some) for name, some in parts.items()}
