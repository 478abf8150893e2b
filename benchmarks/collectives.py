"""Messages between ranks per training step, counted on two ranks over gloo.

Each row trains a small network by `chiaroscuro.engine.train` for one epoch of 4 and of 8 steps; the
difference of the messages, divided by that of the steps, is what a step sends. What
`DistributedDataParallel` sends by itself, the gradients in buckets, is not counted. A setting that
an older source does not know leaves its row out. `benchmarks/device.py` calls this.

    python -m torch.distributed.run --standalone --nproc-per-node 2 benchmarks/collectives.py OUT
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch.distributed as dist

from chiaroscuro.engine import distributed, joined_ranks, read_settings, train
from chiaroscuro.errors import ChiaroError

CALLS = [
    *("all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "broadcast"),
    *("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "barrier"),
]
BATCH = 8
COMMON = [
    "epochs=1",
    f"batch={BATCH}",
    "network.projector=Projector(d=8, depth=1, last='none')",
    "optimiser.name=sgd",
    "optimiser.lr=1e-4",
    "schedule.warmup=0",
    "saving.every=1000",
]
ARRAYS = ["views.first=Jitter(noise=0.1)", "network.encoder=MLP(d_in=8, d=8, depth=2, width=16)"]
PREDICTS = ["network.predictor=Projector(d=8, depth=1, last='none')"]
MORE: dict[str, list[str]] = {
    "BYOL": [*PREDICTS, "network.momentum=0.9", "symmetric=true"],
    "SimSiam": [*PREDICTS, "network.own_target=true", "symmetric=true"],
    "NNCLR": [*PREDICTS, "network.own_target=true", "network.queue=32", "symmetric=true"],
    "DINO": ["network.momentum=0.9", "network.projector=Prototypes(d=8)"],
    "SwAV": ["network.projector=Prototypes(d=8)"],
}
"""What training by an objective asks for besides."""
IMAGES = ["views.first=SimCLR(size=32, strength=0.5)", "network.sync_batch_norm=true"]


def rows(losses: dict[str, str]) -> dict[str, list[str]]:
    """The settings of each row."""
    found = {
        name: [*COMMON, *ARRAYS, f"objective={text.replace('cs.', '')}", *MORE.get(name, [])]
        for name, text in losses.items()
    }
    found["InfoNCE, in micro-batches"] = [*COMMON, *ARRAYS, "objective=InfoNCE()", "micro_batch=2"]
    found["step, ResNet-50"] = [*COMMON, *IMAGES, "network.encoder=ResNet(depth=50, stem='small')"]
    found["step, ViT"] = [*COMMON, *IMAGES, "network.encoder=ViT(size=32)"]
    return found


@contextmanager
def counted() -> Iterator[list[str]]:
    """The names of the messages that are sent inside."""
    sent: list[str] = []

    def counting(name, call):
        return lambda *a, **k: (sent.append(name), call(*a, **k))[1]

    places = [(dist, name) for name in CALLS if hasattr(dist, name)]
    places += [(distributed, name) for name in ("_REDUCE_SCATTER", "_ALL_GATHER")]
    before = [(place, name, getattr(place, name)) for place, name in places if hasattr(place, name)]
    for place, name, call in before:
        setattr(place, name, counting(name, call))
    try:
        yield sent
    finally:
        for place, name, call in before:
            setattr(place, name, call)


def per_step(name: str, settings: list[str], folder: Path) -> float:
    """Messages of a step."""
    totals = []
    kind = "images" if any("SimCLR(" in one for one in settings) else "rows"
    for k, steps in enumerate((4, 4, 8)):  # the first sends more: how large messages will be
        data = f"data.source={folder}/{kind}-{steps}.npz"
        with counted() as sent:
            train(read_settings("simclr", [*settings, data]), folder / f"{name}-{k}")
        totals.append(len(sent))
    return (totals[2] - totals[1]) / 4


def main() -> None:
    """Count every row and write the numbers of the first rank."""
    out, folder = Path(sys.argv[1]), Path(sys.argv[1]).parent
    losses = json.loads((folder / "losses.json").read_text())
    found, lacking = {}, {}
    with joined_ranks():
        for name, settings in rows(losses).items():
            try:
                found[name] = per_step(name, settings, folder)
            except ChiaroError as error:
                lacking[name] = str(error)
        if dist.get_rank() == 0:
            out.write_text(json.dumps({"per step": found, "lacking": lacking}))


def write_data(folder: Path) -> None:
    """Rows and images for 4 and for 8 steps."""
    random = np.random.default_rng(0)
    for steps in (4, 8):
        n = steps * BATCH
        x = random.normal(size=(n, 8)).astype(np.float32)
        np.savez(folder / f"rows-{steps}.npz", x=x, labels=np.arange(n) % 4)
        images = random.integers(0, 255, (n, 32, 32, 3), np.uint8)
        np.savez(folder / f"images-{steps}.npz", images=images)


if __name__ == "__main__":
    main()
