"""Kill trainings of one's own objects at 50 moments, resume them, and compare every byte.

    python benchmarks/kill_objects.py

A module with dropout and batch norm, a dataset, a view and a loss that have no notation train with
an average of the weights and save every second step: by `train`, with batches prepared in the
process or by 2 workers, or by `fit`, with a `DataLoader` that shuffles and draws noise. Each is
killed with SIGKILL after a time drawn at random, and resumed in a new process with a module of
other weights. It has to end with the arrays of the training that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import chiaroscuro as cs
from chiaroscuro.artifacts import checkpoints
from chiaroscuro.engine import FitOptions, SavingSettings, fit
from environment import save
from kill import different, final

STEPS = 96


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(12, 32), nn.BatchNorm1d(32)
        self.last = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        return self.last(nn.functional.dropout(hidden, 0.2, self.training))


class Points(Dataset):
    """Points with labels."""

    def __init__(self) -> None:
        self.x = torch.randn(512, 12, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.x[row], row % 4


class NoisyPairs(Points):
    """Two noisy copies of a point."""

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x = self.x[row]
        return noisy(x), noisy(x)


def noisy(x: Tensor) -> Tensor:
    """Return a point with noise."""
    return x + 0.3 * torch.randn(x.shape)


def loss(z1: Tensor, z2: Tensor) -> Tensor:
    """A loss that no text makes."""
    return cs.InfoNCE(cs.Gaussian(tau=0.5))(z1, z2) + 0.01 * z1.square().mean()


def by_train(out: Path, workers: int) -> None:
    """Train by settings and objects."""
    settings = {
        "epochs": STEPS // 8,
        "batch": 64,
        "data": {"workers": workers},
        "network": {"projector": "Projector(d=6)", "average": 0.9},
        "optimiser": {"name": "adamw", "lr": 1e-2},
        "schedule": {"warmup": 1.0},
        "saving": {"every": 2, "record": 1},
    }
    cs.train(
        settings,
        out,
        resume=True,
        restart=True,
        data=Points(),
        encoder=Net(),
        view=noisy,
        objective=loss,
    )


def by_fit(out: Path, workers: int) -> None:
    """Train by the loop itself, on a loader that shuffles."""
    net = Net()
    sgd = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, STEPS)
    loader = DataLoader(NoisyPairs(), 64, shuffle=True, num_workers=workers)
    options = FitOptions(average=0.9, saving=SavingSettings(every=2, record=1))
    fit(
        *(net, loss, loader, sgd, falling),
        epochs=STEPS // 8,
        options=options,
        out=out,
        resume=True,
        restart=True,
    )


KINDS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "train, 0 workers": (by_train, 0),
    "train, 2 workers": (by_train, 2),
    "fit, 0 workers": (by_fit, 0),
    "fit, 2 workers": (by_fit, 2),
}


def started(kind: str, out: Path, seed: int) -> int:
    """Fork a training, whose modules begin with weights of this seed, and return its process."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with (out.parent / f"{out.name}.log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        torch.manual_seed(seed)
        train, workers = KINDS[kind]
        train(out, workers)
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)
    return 0


def ended(pid: int) -> int:
    """Wait for a training, and return its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kills(folder: Path, count: int) -> dict[str, Any]:
    """Kill, resume and compare, `count` times."""
    wholes: dict[str, checkpoints.Checkpoint] = {}
    durations: dict[str, float] = {}
    for kind in KINDS:
        out, start = folder / f"whole {kind}", time.monotonic()
        if ended(started(kind, out, seed=0)):
            raise SystemExit(f"the undisturbed training failed; see {out}.log")
        durations[kind], wholes[kind] = time.monotonic() - start, final(out)
    found: list[dict[str, Any]] = []
    late = 0
    for case in range(20 * count):
        if len(found) == count:
            break
        luck = random.Random(case)
        kind, out = luck.choice(list(KINDS)), folder / f"case {case}"
        pid = started(kind, out, seed=0)
        time.sleep(luck.uniform(0.1, 1) * durations[kind])
        os.kill(pid, signal.SIGKILL)
        if ended(pid) != -signal.SIGKILL:
            late += 1
            continue
        left = checkpoints.latest_good(out / "checkpoints").checkpoint if out.is_dir() else None
        # before there is something to go on with it begins as it began: `train` goes on from the
        # initial weights too, `fit` from checkpoints alone
        begun = left is not None or (
            kind.startswith("train") and checkpoints.any_saved(out / "initial")
        )
        status = ended(started(kind, out, seed=case + 1 if begun else 0))
        apart = ["it did not end"] if status else different(wholes[kind], final(out))
        step = None if left is None else left.step
        found.append({"kind": kind, "resumed_from": step, "different": apart})
        print(f"{len(found)} of {count}: {found[-1]}", flush=True)
    return {
        "killed": len(found),
        "bitwise_equal": sum(not one["different"] for one in found),
        "by_kind": dict(sorted(Counter(one["kind"] for one in found).items())),
        "resumed_from_step": sorted(one["resumed_from"] or 0 for one in found),
        "not_equal": [one for one in found if one["different"]],
        "came_too_late_and_drawn_again": late,
        "arrays_compared": {kind: len(whole.arrays) for kind, whole in wholes.items()},
        "steps": STEPS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    call = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chiaro-kill-objects-") as name:
        result = kills(Path(name), call.kills)
    result["seconds"] = round(time.monotonic() - start)
    print(json.dumps(result, indent=2))
    if call.kills >= 50:
        print(save("kill_objects", result, "python benchmarks/kill_objects.py"))
    if result["not_equal"]:
        raise SystemExit("not all is well")


if __name__ == "__main__":
    main()
