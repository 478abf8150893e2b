"""Snapshots: a callback that embeds the same rows as training goes on, for the report's slider."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.data import Dataset, open_data
from chiaroscuro.engine.batches import Pairs, spaced
from chiaroscuro.engine.embedding import embed
from chiaroscuro.engine.networks import Networks, build
from chiaroscuro.engine.settings import Settings
from chiaroscuro.engine.training import Callback, Moment
from chiaroscuro.errors import need

__all__ = ["FRAMES", "snapshots", "two_views"]

FRAMES = 20
"""About so many snapshots of a training, unless told."""

BATCH = 256
_VECTORS = ("h", "z", "h1", "h2", "z1", "z2")


def snapshots(rows: int = 1000, every: int | None = None) -> Callback:
    """A callback that leaves `embeddings/epoch-0005.npz` and the like in the run folder.

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
        settings, run, epoch = moment.settings, moment.run, moment.epoch + 1
        if not looked_at:
            looked_at.append(spaced(open_data(settings.data.source), rows))
            if not run.embeddings("epoch-0000").exists():
                before = build(settings.network, settings.seed).eval()
                _save(before, looked_at[0], settings, run, 0)
        apart = every or math.ceil(settings.epochs / FRAMES)
        if epoch % apart == 0 or moment.step >= moment.steps:
            _save(moment.networks, looked_at[0], settings, run, epoch)
        return {}

    return callback


def _save(networks: Networks, data: Dataset, settings: Settings, run: Run, epoch: int) -> None:
    found = embed(networks, data, views=settings.views).arrays()
    vectors: dict[str, Any] = {name: a for name, a in found.items() if name in _VECTORS}
    if "z1" not in vectors:
        vectors |= two_views(networks, data, settings)
    known: dict[str, Any] = {name: a for name, a in found.items() if name in _KNOWN}
    if not run.embeddings("rows").exists():
        Embeddings(**known).save(run.embeddings("rows"))
    Embeddings(ids=known["ids"], **vectors).save(run.embeddings(f"epoch-{epoch:04d}"))


_KNOWN = (
    *("labels", "class_names", "coarse_labels", "factors", "factor_names"),
    *("split", "ids", "texts", "thumbnails"),
)


def two_views(networks: Networks, data: Dataset, settings: Settings) -> dict[str, np.ndarray]:
    """h and z of the two views that training would draw of these rows in its first epoch."""
    pairs = Pairs.of(settings, data)
    device = next(networks.parameters()).device
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("h1", "h2", "z1", "z2")}
    with torch.no_grad():
        for start in range(0, len(data), BATCH):
            rows = np.arange(start, min(start + BATCH, len(data)))
            for side, x in enumerate(pairs(rows, 0)):
                h = networks.encode(x.to(device), side)
                found[f"h{side + 1}"].append(h.float().cpu().numpy())
                z = networks.project(h, side)
                found[f"z{side + 1}"].append(z.float().cpu().numpy())
    return {name: np.concatenate(parts) for name, parts in found.items()}
