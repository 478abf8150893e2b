"""Snapshots: a callback that embeds the same rows as training goes on, for the report's slider."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.data import Dataset
from chiaroscuro.engine.batches import Pairs, spaced
from chiaroscuro.engine.distributed import gather_rows
from chiaroscuro.engine.embedding import BATCH, Passing, embed, half_type, stretch
from chiaroscuro.engine.fitting import Callback, Moment
from chiaroscuro.engine.networks import Networks
from chiaroscuro.engine.opening import OpenRun
from chiaroscuro.engine.state import device_of
from chiaroscuro.engine.stream import copies_pinned, prefetched
from chiaroscuro.errors import ChiaroError, need

__all__ = ["FRAMES", "pairs_of", "snapshots", "two_views"]

FRAMES = 20
"""About so many snapshots of a training, unless told."""

_VECTORS = ("h", "z", "h1", "h2", "z1", "z2")


def snapshots(rows: int = 1000, every: int | None = None) -> Callback:
    """Return a callback that writes snapshots `embeddings/epoch-0005.npz`, ... into the run folder.

    Each file holds `ids`, `h`, `z` and, for two views of every row, `h1 h2 z1 z2`; rows and views
    are the same in all files. `epoch-0000` is the untrained network. `embeddings/rows.npz` holds
    labels, factors and thumbnails of the rows. Training is not affected.

    Args:
        rows: maximum number of rows, evenly spaced over both sides of the split.
        every: epochs between snapshots; None takes about 20 in all. The last epoch is always saved.

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


def two_views(
    networks: Networks, pairs: Pairs, passing: Passing | None = None
) -> dict[str, np.ndarray]:
    """Return h and z of the two views that training would draw of these rows in its first epoch.

    Args:
        networks: in evaluation mode.
        pairs: of the rows.
        passing: the device, precision, workers and ranks; None leaves networks where they are.
    """
    home = next((p.device for p in networks.parameters()), torch.device("cpu"))
    device = home if passing is None else device_of(passing.device)
    half = half_type(passing, device)
    mine, ranks = stretch(len(pairs.data), passing)
    drawn, numbers = _Drawn(pairs), mine or range(1)
    workers = 0 if passing is None else passing.workers
    stream = (
        prefetched(drawn, numbers, workers, 0.0, copies_pinned(device))
        if workers
        else map(drawn.__getitem__, numbers)
    )
    parts: dict[str, list[Tensor]] = {name: [] for name in ("h1", "h2", "z1", "z2")}
    networks.to(device)
    try:
        for views in stream:
            with torch.no_grad(), torch.autocast(device.type, half, enabled=half is not None):
                for side, x in enumerate(views):
                    h = networks.encode(x.to(device, non_blocking=True), side)
                    parts[f"h{side + 1}"].append(h.float().cpu())
                    parts[f"z{side + 1}"].append(networks.project(h, side).float().cpu())
    finally:
        networks.to(home)
    whole = {name: torch.cat(some) for name, some in parts.items()}
    if ranks > 1:
        keep = slice(None) if mine else slice(0)
        whole = {name: gather_rows(some[keep]) for name, some in whole.items()}
    return {name: some.numpy() for name, some in whole.items()}


@dataclass(frozen=True, eq=False)
class _Drawn(TorchDataset):
    """Batches of the two views of the rows."""

    pairs: Pairs

    def __getitem__(self, batch: int) -> tuple[Tensor, Tensor]:
        n = len(self.pairs.data)
        return self.pairs(np.arange(batch * BATCH, min((batch + 1) * BATCH, n)), 0)
