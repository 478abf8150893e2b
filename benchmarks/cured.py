"""Sick trainings, cured by the advice: train, diagnose, apply the `--set` lines, train again.

For arrays, pictures and texts: a healthy training, a sick one whose settings differ in one place,
and one with the settings that the diagnosis of the sick one says to set. Reported: whether the
diagnosis names the fault, whether the quantity it names recovers, and how much of the lost accuracy
of neighbours comes back. Nothing is chosen by hand between the second and the third.

    CHIARO_DATA=... python benchmarks/advice.py --loop [--only arrays] [--epochs 2]

Runs are kept in `out/advice/loop` and go on from their checkpoints.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import chiaroscuro as cs
from chiaroscuro.engine import Settings, read_settings
from environment import save
from planted import KEPT, digit_arrays

FOLDER = KEPT / "loop"


class Sick(NamedTuple):
    """A fault: what it is trained on, what is set wrong, what should be found and recover."""

    domain: str
    wrong: list[str]
    finding: str
    quantity: str


CASES = {
    "arrays-hot": Sick(
        "arrays",
        ["objective=InfoNCE(kernel=Cosine(tau=10.0))"],
        "high_temperature",
        "negative_deviation",
    ),
    "arrays-cold": Sick(
        "arrays",
        ["objective=InfoNCE(kernel=Cosine(tau=0.003))"],
        "low_temperature",
        "negative_deviation",
    ),
    "arrays-few": Sick("arrays", ["batch=2"], "few_negatives", "candidates"),
    "pictures-stuck": Sick(
        "pictures",
        ["network.projector=Projector(d=64, depth=1, last='none')"],
        "stuck_at_the_start",
        "last_loss",
    ),
    "pictures-hot": Sick(
        "pictures",
        ["objective=InfoNCE(kernel=Cosine(tau=10.0))"],
        "high_temperature",
        "negative_deviation",
    ),
    "pictures-cold": Sick(
        "pictures",
        ["objective=InfoNCE(kernel=Cosine(tau=0.003))"],
        "low_temperature",
        "negative_deviation",
    ),
    "texts-hot": Sick(
        "texts",
        ["objective=InfoNCE(kernel=Cosine(tau=10.0))"],
        "high_temperature",
        "negative_deviation",
    ),
    "texts-cold": Sick(
        "texts",
        ["objective=InfoNCE(kernel=Cosine(tau=0.003))"],
        "low_temperature",
        "negative_deviation",
    ),
    "texts-few": Sick("texts", ["batch=2"], "few_negatives", "candidates"),
}


# ---- data and healthy settings ----


def _noisy() -> Path:
    """Digits as arrays beside as many numbers of strong noise, which views draw anew."""
    path = FOLDER / "noisy.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = np.load(digit_arrays(KEPT / "digits.npz"))
        noise = 2.0 * np.random.default_rng(0).normal(size=found["x"].shape)
        x = np.concatenate([found["x"], noise.astype(np.float32)], axis=1)
        np.savez(path, x=x, labels=found["labels"], split=found["split"])
    return path


def _captions() -> Path:
    """The captions of emoji without their pictures, with the category as the class."""
    path = FOLDER / "texts" / "captions.jsonl"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        source = Path(os.environ.get("CHIARO_DATA", "")) / "emoji_captions.jsonl.gz"
        with gzip.open(source, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        kept = [
            {"captions": one["captions"], "category": one["category"]}
            for one in lines
            if not one["is_skin_variant"] and len(one["captions"]) > 1
        ]
        path.write_text("".join(json.dumps(one) + "\n" for one in kept))
    return path


def arrays() -> Settings:
    noise = (*[0.5] * 64, *[2.0] * 64)
    return Settings.of(
        {
            "objective": "InfoNCE(kernel=Cosine(tau=0.2))",
            "epochs": 40,
            "batch": 128,
            "data": {"source": str(_noisy())},
            "views": {"first": f"Jitter(noise={noise})"},
            "network": {
                "encoder": "MLP(d_in=128, d=64, depth=2, width=256)",
                "projector": "Projector(d=32, depth=2)",
            },
            "optimiser": {"name": "adamw", "lr": 2e-3, "weight_decay": 1e-4},
            "schedule": {"warmup": 2.0},
        }
    )


def pictures() -> Settings:
    return read_settings("digits")


def texts() -> Settings:
    return Settings.of(
        {
            "objective": "InfoNCE(kernel=Cosine(tau=0.2))",
            "epochs": 20,
            "batch": 128,
            "data": {"source": f"pairs('{_captions()}', pictures=False, test=0.25)"},
            "views": {"first": "Rewrites()"},
            "network": {
                "encoder": "SequenceTransformer(n_tokens=258, length=96, d=64, depth=2, padding=0)",
                "projector": "Projector(d=32, depth=2)",
            },
            "optimiser": {"name": "adamw", "lr": 1e-3, "weight_decay": 1e-2},
            "schedule": {"warmup": 2.0},
        }
    )


DOMAINS: dict[str, Callable[[], Settings]] = {
    "arrays": arrays,
    "pictures": pictures,
    "texts": texts,
}


# ---- the loop ----


def trained(name: str, settings: Settings) -> dict[str, Any]:
    """The diagnosis of a training, from disk if it is there; an unfinished one goes on."""
    folder = FOLDER / "runs" / name
    done = folder.with_suffix(".json")
    if not done.exists():
        # steps are what a training costs: a small batch gets as many as the healthy one
        begun = (folder / "settings.toml").exists()
        run = cs.train(settings, folder, resume=begun)
        found = cs.diagnose(run).json()
        kept = {key: found[key] for key in ("verdict", "findings", "measures")}
        done.write_text(json.dumps(kept))
    return json.loads(done.read_text())


def one(name: str, epochs: int | None) -> dict[str, Any]:
    sick = CASES[name]
    few = [] if epochs is None else [f"epochs={epochs}"]
    ending = "" if epochs is None else f"-{epochs}"
    well = DOMAINS[sick.domain]()
    base = read_settings(well, few)
    healthy = trained(f"{sick.domain}{ending}", base)
    ill_settings = read_settings(base, [*sick.wrong, *_same_steps(base, sick.wrong)])
    ill = trained(f"{name}-sick{ending}", ill_settings)
    grave = [finding for finding in ill["findings"] if finding["severity"] != "note"]
    change = grave[0]["change"] if grave else []
    result: dict[str, Any] = {
        "case": name,
        "planted": sick.finding,
        "found": [finding["name"] for finding in grave],
        "named": sick.finding in [finding["name"] for finding in grave[:2]],
        "change": change,
    }
    if not change:
        return result
    # epochs go with the batch: the cure is trained for as many steps as the healthy one
    cure = [*change, f"epochs={base.epochs}"] if any("batch" in c for c in change) else change
    better = trained(f"{name}-cured{ending}", read_settings(ill_settings, cure))
    knn = [found["measures"].get("knn_accuracy") for found in (healthy, ill, better)]
    lost = knn[0] - knn[1]
    result |= {
        "quantity": sick.quantity,
        "values": [found["measures"].get(sick.quantity) for found in (healthy, ill, better)],
        "knn_accuracy": knn,
        "lost": lost,
        "regained": (knn[2] - knn[1]) / lost if lost > 0.01 else None,
    }
    return result


def _same_steps(base: Settings, wrong: list[str]) -> list[str]:
    """Fewer epochs for a smaller batch, so that the number of steps is at most four times that."""
    for line in wrong:
        if line.startswith("batch="):
            share = int(line.removeprefix("batch=")) / base.batch
            return [f"epochs={max(1, round(4 * share * base.epochs))}"]
    return []


def loop(only: str | None, epochs: int | None) -> None:
    """Run every case, print it, and save the table when all are done at full length."""
    rows = []
    for name in CASES:
        if only is None or only in name:
            rows.append(one(name, epochs))
            print(json.dumps(rows[-1]), flush=True)
    if only is None and epochs is None:
        back = [row["regained"] for row in rows if row.get("regained") is not None]
        result = {"cases": rows, "regained_80": sum(x >= 0.8 for x in back), "judged": len(back)}
        print(save("advice-loop", result, "python benchmarks/advice.py --loop"))
