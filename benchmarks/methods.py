"""Every method for images at equal network, data and seconds, beside two controls.

    CHIARO_DATA=... python benchmarks/methods.py --threads 1 --jobs 2   a core each, two at a time
    CHIARO_DATA=... python benchmarks/methods.py                        two cores, one at a time
    ... --seconds 5 --seeds 0 --rows 600 --only SimCLR DINO --out look.json     a look

Each method is its preset with the same encoder, data, size of images, batch and optimiser (AdamW);
its objective, head, target and crops are its own, slow copies follow with 0.99. The rate is one of
RATES, chosen with seed 0 on a fifth of the training side that this choice does not train on, a
third of the seconds each, by kNN. How many epochs fit in the seconds is planned once for all
methods, from the speed of each, measured in turn, the best of several rounds and as many processes
at a time as the race runs: a moment when the machine is slow costs no method anything. With one
thread the seconds are those that the process computes (CPU time), with more those of the clock.
`raw pixels` and `untrained` are the controls. Reported is the encoder's h on the held-out images:
weighted kNN (k = 20) and the ridge probe. Images per second count samples, not views, and are those
of the plan; memory is the largest resident size of the training process above what it had with the
data loaded, before any step.

Each piece runs in a process of its own and is written to the results at once; what is there with as
many epochs as planned is not run again, so that a stopped race goes on with the same command. A
piece that fails is named at the end and tried again by the next call; one that diverges counts as
such.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
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
CLUSTERS = "network.projector=Prototypes(d=100, bottleneck=128, depth=2, width=256)"
"""Fewer than the batch: of SwAV with 300, 100 and 30 of them, 100 had the best kNN after 60 s on
the fifth of the training side that chooses the rates (28.1, 30.8, 29.9 %)."""
SLOW = "network.momentum=0.99"
"""As in BYOL and MoCo v3. The 0.999 of MoCo and 0.996 of DINO are for 100 times the steps: after
the 400 of this race two thirds and a fifth of the slow copy would still be its initial weights."""
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
    "Debiased": ("debiased", [HEAD]),
    "Hard negatives": ("hard-negatives", [HEAD]),
    "Matryoshka": ("matryoshka", [HEAD]),
    "DirectCLR": (
        "directclr",
        ["objective=OnDims(InfoNCE(kernel=Cosine(tau=0.1), negatives=OtherView()), 0, 64)"],
    ),
    "MoCo": ("moco", [HEAD, SLOW]),
    "MoCo v3": ("moco-v3", [HEAD, PREDICTOR]),
    "BYOL": ("byol", [HEAD, PREDICTOR]),
    "SimSiam": ("simsiam", [HEAD, PREDICTOR]),
    "NNCLR": ("nnclr", [HEAD, PREDICTOR]),
    "SwAV": ("swav", [CLUSTERS, f"views.first={CROPS}"]),
    "SwAV, two views": ("swav", [CLUSTERS, "objective=SwAV()"]),
    "DINO": ("dino", [CLUSTERS, SLOW, f"views.first={CROPS}"]),
    "DINO, Sinkhorn": (
        "dino",
        [CLUSTERS, SLOW, f"views.first={CROPS}", "objective=DINO(centring='sinkhorn')"],
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


def measured(run: Any, data: Any, subject: str) -> dict[str, float | None]:
    """kNN and ridge accuracy of the encoder, of the untrained network or of the input."""
    import chiaroscuro as cs

    seen = cs.embed(run, data)
    rows = {"encoder": seen.h, "untrained": seen.layers["untrained"], "input": None}[subject]
    alone = cs.Embeddings(
        h=rows,
        labels=seen.labels,
        split=seen.split,
        thumbnails=seen.thumbnails if subject == "input" else None,
    )
    name = "input" if subject == "input" else "encoder"
    found = cs.diagnostics.evaluate(alone, ["ridge"])["results"][name]
    return {key: found[key] for key in ("knn_20", "linear")}


def control(subject: str, seed: int, rows: int) -> dict[str, Any]:
    """Measure the input, or the network of a seed before its first step."""
    import numpy as np

    import chiaroscuro as cs

    arrays = data_of(rows, False)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/images.npz", **arrays)
        np.savez(f"{folder}/short.npz", **{k: v[:512] for k, v in arrays.items()})
        settings = settings_of("SimCLR", f"{folder}/short.npz", RATES[0], seed, 1)
        cs.train(settings, f"{folder}/run")
        return measured(f"{folder}/run", f"{folder}/images.npz", subject)


def speeds(methods: list[str], seconds: float, rows: int) -> dict[str, Any]:
    """Seconds of a step of each method, the best of ROUNDS, and the epochs that fit."""
    import numpy as np
    import torch

    import chiaroscuro as cs

    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    arrays = data_of(rows, False)
    n = int((arrays["split"] == 0).sum())
    best = dict.fromkeys(methods, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/short.npz", **{k: v[: min(n, 1536)] for k, v in arrays.items()})
        for _ in range(ROUNDS):
            for method in methods:
                marks: list[tuple[float, int]] = []
                look = lambda moment, marks=marks: marks.append((now(), moment.step))
                settings = settings_of(method, f"{folder}/short.npz", RATES[0], 0, 2)
                cs.train(settings, None, [look])
                (began, first), (ended, last) = marks  # of two epochs the second is timed
                best[method] = min(best[method], (ended - began) / (last - first))
    per_epoch = n // settings.batch
    return {
        method: {
            "seconds_per_step": step,
            "images_per_second": settings.batch / step,
            "epochs": max(2, round(seconds / (step * per_epoch))),
        }
        for method, step in best.items()
    }


def piece(
    method: str, lr: float, seed: int, epochs: int, rows: int, validate: bool
) -> dict[str, Any]:
    """Train one method for its epochs, and measure it."""
    import numpy as np
    import torch

    import chiaroscuro as cs
    from chiaroscuro.engine.state import Diverged

    threads = torch.get_num_threads()
    now = time.process_time if threads == 1 else time.perf_counter
    arrays = data_of(rows, validate)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/images.npz", **arrays)
        before, memory = resident(), Memory()
        settings = settings_of(method, f"{folder}/images.npz", lr, seed, epochs)
        began, clock_began = now(), time.perf_counter()
        try:
            cs.train(settings, f"{folder}/run")
        except Diverged as error:
            return {"diverged": str(error), "lr": lr, "epochs": epochs}
        finally:
            most = memory.end()
        took, by_the_clock = now() - began, time.perf_counter() - clock_began
        measures = measured(f"{folder}/run", f"{folder}/images.npz", "encoder")
    return {
        **measures,
        "seconds": took,
        "seconds_by_the_clock": by_the_clock,
        "epochs": epochs,
        "memory_mb": most - before,
        "lr": lr,
        "threads": threads,
    }


def apart(arguments: dict[str, Any], threads: int) -> dict[str, Any]:
    """One piece in a process of its own."""
    command = [sys.executable, __file__, "--piece", json.dumps(arguments)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:] or f"exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


class Results:
    """Pieces by name, in a file that a stopped race goes on from."""

    def __init__(self, call: argparse.Namespace):
        self.path, self.call = call.out, call
        self.about = {
            "seconds": call.seconds,
            "clock": "CPU seconds of the process" if call.threads == 1 else "wall clock",
            "rows": call.rows,
            "threads": call.threads,
            "jobs": call.jobs,
            "source": SOURCE,
            "encoder": RESNET,
            "rates": list(RATES),
        }
        known = json.loads(self.path.read_text())["result"] if self.path.is_file() else {}
        if known and known["about"] != self.about:
            raise SystemExit(
                f"`{self.path}` holds a race of other settings, {known['about']}; this one has "
                f"{self.about}. Move it away, or choose `--out`."
            )
        self.pieces: dict[str, Any] = known.get("pieces", {})
        self.plan: dict[str, Any] = known.get("plan", {})
        self.failed: dict[str, str] = {}
        self.lock = threading.Lock()

    def begin(self, pool: ThreadPoolExecutor, name: str, arguments: dict[str, Any]) -> Future:
        """Run a piece unless it is there."""
        return pool.submit(self._run, name, arguments)

    def _run(self, name: str, arguments: dict[str, Any]) -> None:
        known = self.pieces.get(name)
        planned = not arguments.get("validate", True)  # a rate that was tried stays tried
        if known and not (planned and known["epochs"] != arguments["epochs"]):
            return
        try:
            found = apart(arguments, self.call.threads)
        except RuntimeError as error:  # named at the end; the others go on
            self.failed[name] = str(error)
            print(f"{name}: failed", flush=True)
            return
        with self.lock:
            self.pieces[name] = found
            self.write()
        shown = found.get("diverged") or f"kNN {100 * found['knn_20']:.1f} %"
        print(f"{name}: {shown}", flush=True)

    def write(self) -> None:
        """Keep what is known."""
        words = [f"--threads {self.call.threads}", f"--jobs {self.call.jobs}"]
        words += [f"--seconds {self.call.seconds:g}"] * (self.call.seconds != SECONDS)
        words += [f"--rows {self.call.rows}"] * bool(self.call.rows)
        result = {
            "about": self.about,
            "plan": self.plan,
            "summary": summary(self.pieces, self.plan),
            "pieces": self.pieces,
        }
        whole = {
            "command": f"python benchmarks/methods.py {' '.join(words)}",
            "environment": {**environment(), "threads": self.call.threads},
            "result": result,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_suffix(".part")
        half.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(half, self.path)


def choosing(method: str, lr: float) -> str:
    """The name of a piece that chooses the rate."""
    return f"{method}, choosing lr {lr:g}"


def race(call: argparse.Namespace) -> Results:
    """All methods, or those asked for: first the rates, then the seeds."""
    results = Results(call)
    methods = call.only or list(METHODS)
    with ThreadPoolExecutor(call.jobs) as pool:
        if any(method not in results.plan for method in methods):
            given = {"speeds": methods, "seconds": call.seconds, "rows": call.rows}
            timed = list(pool.map(lambda _: apart(given, call.threads), range(call.jobs)))
            for method in methods:
                results.plan[method] = max(
                    (one[method] for one in timed), key=lambda row: row["images_per_second"]
                )
            results.write()
        third = {"rows": call.rows, "seed": 0, "validate": True}
        tried = [
            results.begin(
                pool,
                choosing(method, lr),
                {"method": method, "lr": lr, "epochs": third_of(results.plan[method]), **third},
            )
            for method in methods
            for lr in RATES
        ]
        for subject, seeds in (("input", call.seeds[:1]), ("untrained", call.seeds)):
            for seed in seeds:
                given = {"control": subject, "seed": seed, "rows": call.rows}
                tried.append(results.begin(pool, f"{subject}, seed {seed}", given))
        for one in tried:
            one.result()
        whole = {"rows": call.rows, "validate": False}
        trained = [
            results.begin(
                pool,
                f"{method}, seed {seed}",
                {
                    "method": method,
                    "lr": lr,
                    "seed": seed,
                    "epochs": results.plan[method]["epochs"],
                    **whole,
                },
            )
            for seed in call.seeds
            for method in methods
            if (lr := chosen(results.pieces, method)) is not None
        ]
        for one in trained:
            one.result()
    return results


def third_of(plan: dict[str, Any]) -> int:
    """The epochs of a third of the seconds on four fifths of the images."""
    return max(2, round(plan["epochs"] / 3 / 0.8))


def chosen(pieces: dict[str, Any], method: str) -> float | None:
    """The rate with the best kNN, once both have been tried; None if neither trains."""
    tried = {lr: pieces.get(choosing(method, lr)) for lr in RATES}
    if any(one is None for one in tried.values()):
        return None
    known = {lr: one["knn_20"] for lr, one in tried.items() if "diverged" not in one}
    return max(known, key=known.__getitem__) if known else None


def summary(pieces: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Means over the seeds that are done, and the spread of the two accuracies."""
    found: dict[str, Any] = {}
    for name in ("input", "untrained", *METHODS):
        each = [one for key, one in pieces.items() if key.startswith(f"{name}, seed ")]
        trained = [one for one in each if "diverged" not in one]
        if not each:
            continue
        row: dict[str, Any] = {"seeds": len(each), "diverged": len(each) - len(trained)}
        for key in ("knn_20", "linear") if trained else ():
            values = [one[key] for one in trained]
            row[key] = statistics.mean(values)
            row[f"{key}_spread"] = statistics.stdev(values) if len(values) > 1 else None
        for key in ("memory_mb", "epochs", "seconds", "lr"):
            if trained and key in trained[0]:
                row[key] = statistics.mean(one[key] for one in trained)
        if name in plan:
            row["images_per_second"] = plan[name]["images_per_second"]
        found[name] = row
    return found


SECONDS = 180.0
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2, help="of each piece")
    parser.add_argument("--jobs", type=int, default=1, help="pieces at a time")
    parser.add_argument("--rows", type=int, default=0, help="training images; 0 is all")
    parser.add_argument("--only", nargs="+", choices=list(METHODS))
    parser.add_argument("--out", type=Path, help="JSON; a look needs one of its own")
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    call = parser.parse_args()
    if call.piece:
        arguments = json.loads(call.piece)
        subject = arguments.pop("control", None)
        if "speeds" in arguments:
            found = speeds(arguments.pop("speeds"), **arguments)
        elif subject is None:
            found = piece(**arguments)
        else:
            found = control(subject, **arguments)
        print(json.dumps(found))
        return
    if call.out is None:
        if call.seconds != SECONDS or call.rows:
            parser.error("a look, of other seconds or rows, needs `--out`")
        call.out = RESULTS
    results = race(call)
    from tables import methods

    print(methods(json.loads(call.out.read_text())))
    for name, error in results.failed.items():
        print(f"\n{name} failed:\n{error}", file=sys.stderr)
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
