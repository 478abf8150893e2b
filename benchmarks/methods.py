"""Every method for images at equal network, data and seconds, beside two controls.

    CHIARO_DATA=... python benchmarks/methods.py                 180 s each, three seeds
    ... --seconds 5 --seeds 0 --rows 600 --only simclr dino      a look
    ... --threads 1                                              beside other work

Each method is its preset with the same encoder, data, size of images, batch and optimiser (AdamW);
its objective, head, target, crops and momentum are its own. The rate is one of RATES, chosen with
seed 0 on a fifth of the training side that this choice does not train on, a third of the seconds
each, by kNN. The epochs are planned from the measured speed, so that the schedules end with the
seconds; training stops after the epoch in which they are over. `raw pixels` and `untrained` are the
controls. Reported is the encoder's h on the held-out images: weighted kNN (k = 20) and the ridge
probe. Images per second count samples, not views; memory is the largest resident size of the
training process above what it had before the first step.

Each piece runs in a process of its own and is written to the results at once; what is there is not
run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from environment import HERE, environment

RESULTS = HERE / "results" / "methods.json"
SOURCE = "cifar10_12k"
RESNET = "ResNet(depth=9, width=0.25, stem='strided')"
VIEW = "SimCLR(size=32, strength=0.5)"
CROPS = (
    "MultiCrop((2, SimCLR(size=32, strength=0.5, scale=(0.2, 1.0))), "
    "(2, SimCLR(size=16, strength=0.5, scale=(0.05, 0.4))))"
)
HEAD = "network.projector=Projector(d=128, depth=2)"
PREDICTOR = "network.predictor=Projector(d=128, depth=2, width=256, last='none')"
CLUSTERS = "network.projector=Prototypes(d=300, bottleneck=128, depth=2, width=256)"
RATES = (1e-3, 3e-3)
COMMON = [
    f"network.encoder={RESNET}",
    "batch=256",
    "optimiser.name=adamw",
    "optimiser.weight_decay=1e-4",
    "schedule.name=cosine",
]
"""One optimiser for all: the race is of methods, not of optimisers."""

METHODS: dict[str, tuple[str, list[str]]] = {
    "SimCLR": ("simclr", [HEAD, "objective=InfoNCE(kernel=Cosine(tau=0.1))"]),
    "Kernel-InfoNCE, Gaussian": ("kernel-infonce-gaussian", [HEAD]),
    "Debiased": ("simclr", [HEAD, "objective=Debiased()"]),
    "Matryoshka": ("matryoshka", [HEAD]),
    "MoCo": ("moco", [HEAD]),
    "MoCo v3": ("moco-v3", [HEAD, PREDICTOR]),
    "BYOL": ("byol", [HEAD, PREDICTOR]),
    "SimSiam": ("simsiam", [HEAD, PREDICTOR]),
    "NNCLR": ("nnclr", [HEAD, PREDICTOR]),
    "SwAV": ("swav", [CLUSTERS, f"views.first={CROPS}"]),
    "SwAV, two views": ("swav", [CLUSTERS, "objective=SwAV()"]),
    "DINO": ("dino", [CLUSTERS, f"views.first={CROPS}"]),
    "DINO, Sinkhorn": (
        "dino",
        [CLUSTERS, f"views.first={CROPS}", "objective=DINO(centring='sinkhorn')"],
    ),
    "VICReg": ("vicreg", ["network.projector=Projector(d=256, depth=3, width=256, last='none')"]),
    "Barlow Twins": (
        "barlow-twins",
        ["network.projector=Projector(d=256, depth=3, width=256, last='none')"],
    ),
    "SupCon (sees labels)": ("supcon", [HEAD]),
}


def settings_of(method: str, source: str, lr: float, seed: int, epochs: int) -> Any:
    """The settings of a method: those of its preset, then what all share, then what is its own."""
    from chiaroscuro.engine import read_settings

    preset, own = METHODS[method]
    views = [] if any(one.startswith("views.") for one in own) else [f"views.first={VIEW}"]
    sets = [*COMMON, *views, *own, f"optimiser.lr={lr}", f"seed={seed}", f"epochs={epochs}"]
    sets += [f"data.source={source}", f"schedule.warmup={max(1.0, epochs / 20)}"]
    return read_settings(preset, sets)


def data_of(rows: int, validate: bool) -> dict[str, Any]:
    """Training and held-out images; with `validate` the latter are a fifth of the training side."""
    import numpy as np

    from chiaroscuro.data import open_data

    data = open_data(SOURCE)
    split = np.asarray(data.split)
    train, test = np.flatnonzero(split == 0), np.flatnonzero(split == 1)
    if rows:
        train, test = train[:rows], test[: max(1, rows // 5)]
    if validate:
        train, test = train[: len(train) * 4 // 5], train[len(train) * 4 // 5 :]
    kept = np.concatenate([train, test])
    side = np.repeat([0, 1], [len(train), len(test)])
    images, labels = data.column("images")[kept], np.asarray(data.labels)[kept]
    return {"images": images, "labels": labels, "split": side}


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Memory:
    """The largest resident size while it watches."""

    def __init__(self) -> None:
        self.most, self.stop = resident(), threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.stop.wait(0.05):
            self.most = max(self.most, resident())

    def end(self) -> float:
        """The largest size, in megabytes."""
        self.stop.set()
        self.thread.join()
        return self.most


def measured(run: Any, data: Any) -> dict[str, float]:
    """kNN and ridge accuracy of h, and of the two controls."""
    import chiaroscuro as cs

    found = cs.diagnostics.evaluate(cs.embed(run, data), ["ridge"])["results"]
    return {
        f"{subject}_{key}": float(found[subject][key] or math.nan)
        for subject in ("input", "untrained", "encoder")
        for key in ("knn_20", "linear")
    }


def piece(method: str, lr: float, seed: int, seconds: float, rows: int, validate: bool) -> dict:
    """Train one method for its seconds, and measure it."""
    import torch

    import chiaroscuro as cs
    from chiaroscuro.engine import StopTraining

    arrays = data_of(rows, validate)
    n = int((arrays["split"] == 0).sum())
    with tempfile.TemporaryDirectory() as folder:
        import numpy as np

        np.savez(f"{folder}/images.npz", **arrays)
        source = f"{folder}/images.npz"
        # two epochs of a tenth of the images, the second of them timed: how many steps fit
        short = {k: v[: max(512, n // 10)] for k, v in arrays.items()}
        np.savez(f"{folder}/short.npz", **short)
        marks: list[float] = []
        look = lambda moment: marks.append(time.perf_counter())
        cs.train(settings_of(method, f"{folder}/short.npz", lr, seed, 2), None, [look])
        per_sample = (marks[1] - marks[0]) / min(len(short["split"]), n)
        epochs = max(2, round(seconds / (per_sample * n)))
        before, memory = resident(), Memory()
        began = time.perf_counter()
        ended: list[tuple[float, int]] = []

        def clock(moment: Any) -> None:
            ended.append((time.perf_counter() - began, moment.step))
            if ended[-1][0] >= seconds:
                raise StopTraining

        settings = settings_of(method, source, lr, seed, epochs)
        with contextlib.suppress(StopTraining):
            cs.train(settings, f"{folder}/run", [clock])
        took, steps = ended[-1]
        most = memory.end()
        found = measured(f"{folder}/run", source)
    return {
        **found,
        "seconds": took,
        "planned_epochs": epochs,
        "epochs": steps * settings.batch / n,
        "images_per_second": steps * settings.batch / took,
        "memory_mb": most - before,
        "lr": lr,
        "threads": torch.get_num_threads(),
    }


def apart(name: str, arguments: dict[str, Any], threads: int) -> dict[str, Any]:
    """One piece in a process of its own."""
    command = [sys.executable, __file__, "--piece", json.dumps(arguments)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


class Results:
    """Pieces by name, in a file that a stopped race goes on from."""

    def __init__(self, path: Path, about: dict[str, Any]):
        self.path, self.about = path, about
        known = json.loads(path.read_text()) if path.is_file() else {}
        same = known.get("about") == about
        self.pieces: dict[str, Any] = known.get("pieces", {}) if same else {}

    def __call__(self, name: str, arguments: dict[str, Any], threads: int) -> dict[str, Any]:
        if name not in self.pieces:
            print(name, end=" ", flush=True)
            self.pieces[name] = apart(name, arguments, threads)
            self.write()
            print(f"kNN {100 * self.pieces[name]['encoder_knn_20']:.1f} %", flush=True)
        return self.pieces[name]

    def write(self, summary: dict[str, Any] | None = None) -> None:
        """Keep what is known."""
        whole = {"about": self.about, "environment": environment(), "pieces": self.pieces}
        if summary:
            whole["summary"] = summary
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_suffix(".part")
        half.write_text(json.dumps(whole, indent=1))
        os.replace(half, self.path)


def race(call: argparse.Namespace) -> dict[str, Any]:
    """All methods, or those asked for."""
    about = {
        "seconds": call.seconds,
        "rows": call.rows,
        "threads": call.threads,
        "source": SOURCE,
        "encoder": RESNET,
        "rates": list(RATES),
    }
    results = Results(call.out, about)
    summary: dict[str, Any] = {}
    for method in call.only or METHODS:
        common = {"method": method, "rows": call.rows}
        tried = {}
        for lr in RATES:
            arguments = {
                **common, "lr": lr, "seed": 0, "seconds": call.seconds / 3, "validate": True,
            }  # fmt: skip
            tried[lr] = results(f"{method}, choosing lr {lr:g}", arguments, call.threads)
        lr = max(RATES, key=lambda rate: tried[rate]["encoder_knn_20"])
        each = []
        for seed in call.seeds:
            arguments = {
                **common, "lr": lr, "seed": seed, "seconds": call.seconds, "validate": False,
            }  # fmt: skip
            each.append(results(f"{method}, seed {seed}", arguments, call.threads))
        summary[method] = summarised(each)
        for control in ("input", "untrained"):
            summary.setdefault(control, summarised(each, control))
        results.write(summary)
    return summary


def summarised(each: list[dict[str, Any]], subject: str = "encoder") -> dict[str, float]:
    """Means over seeds, and the spread of the two accuracies."""
    found: dict[str, float] = {}
    for key in ("knn_20", "linear"):
        values = [one[f"{subject}_{key}"] for one in each]
        found[key] = statistics.mean(values)
        found[f"{key}_spread"] = statistics.stdev(values) if len(values) > 1 else math.nan
    if subject == "encoder":
        for key in ("images_per_second", "memory_mb", "epochs", "seconds", "lr"):
            found[key] = statistics.mean(one[key] for one in each)
    return found


def table(summary: dict[str, Any]) -> str:
    """One line for each method, best kNN first, the controls below."""
    names = {"input": "raw pixels", "untrained": "untrained network"}
    lines = [
        "| method | kNN, % | linear, % | images/s | epochs | memory, MB | lr |",
        "|---|---|---|---|---|---|---|",
    ]
    order = sorted(summary, key=lambda name: (name in names, -summary[name]["knn_20"]))
    for name in order:
        row = summary[name]
        cells = [names.get(name, name)]
        for key in ("knn_20", "linear"):
            spread = row[f"{key}_spread"]
            more = "" if math.isnan(spread) else f" ± {100 * spread:.1f}"
            cells.append(f"{100 * row[key]:.1f}{more}")
        shown = [("images_per_second", ".0f"), ("epochs", ".0f"), ("memory_mb", ".0f"), ("lr", "g")]
        cells += [format(row[key], how) if key in row else "" for key, how in shown]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=0, help="training images; 0 is all")
    parser.add_argument("--only", nargs="+", choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    call = parser.parse_args()
    if call.piece:
        print(json.dumps(piece(**json.loads(call.piece))))
        return
    print(table(race(call)))


if __name__ == "__main__":
    main()
