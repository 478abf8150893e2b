"""Does `diagnose` see a start that was not forgotten, and does its advice mend it?

    python benchmarks/kept_start.py planted      a random start, mixed into known rows
    python benchmarks/kept_start.py trainings    symbols of modular addition, by start and decay
    python benchmarks/kept_start.py judged       fresh sources and starts, once, after the design

Planted: rows of three sources (third-party features of CIFAR-10, Omniglot and digits as pixels), to
which so many parts of a random start are added: rows of a table (each row random) or features of a
random network of the same inputs. Harm is what neighbours lose of the labels. Named: among the
first two findings, as more than a note. A random network tells labels itself: it may be no ill.
Counted are rows with a part of a start, as harmful (0.03 of the labels lost, or more), harmless
(less than 0.005), or between the two; rows without any start (part 0) are in no group.

Trainings: CModAdd (semantic2025, Sec. 5) by the preset `symbol-context-tokens` at ten times its
rate and a tenth of its steps, over scales of the table's start (2.83 is torch's own deviation, 1)
and decays. The effect: equivalent symbols are each other's nearest, and their distance is below
half of that of others. Where the finding is there, its setting is followed, once.

Judged: the cases of `kept_start_judged.py`, counted as the planted ones are. Harmful by the start
are those without a training, and those that lose as much against the same training from a small
start. The intervals (exact, 95 %) are those of independent cases; these share their sources.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest

import chiaroscuro as cs
from environment import save
from kept_start_judged import Case, cases

PARTS = (0.0, 0.5, 1.0, 2.0, 4.0)
ROWS = 800
HARMFUL, HARMLESS = 0.03, 0.005
SEEDS = (0, 1)
SCALES, DECAYS = (1.0, 2.83, 5.66), (0.01, 0.5)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("task", choices=["planted", "trainings", "judged"])
    given = asked.parse_args()
    rows = {"planted": planted, "trainings": trainings, "judged": judged}[given.task]()
    save(f"kept_start-{given.task}", rows, f"python benchmarks/kept_start.py {given.task}")


# ---- planted ----


def sources() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows and labels."""
    features = np.load(Path(os.environ["CHIARO_DATA"]) / "cifar10_test_resnet20_embeddings.npz")
    names = {key: features[key] for key in features.files}
    x = next(v for v in names.values() if v.ndim == 2)
    y = next(v for v in names.values() if v.ndim == 1 and v.dtype.kind in "iu")
    omniglot = cs.data.open_data("omniglot_small")
    digits = cs.data.open_data("digits")
    flat = lambda data: np.asarray(data.column("images"), np.float64).reshape(len(data), -1)
    return {
        "features of CIFAR-10": (x[:ROWS].astype(np.float64), y[:ROWS]),
        "Omniglot": (_principal(flat(omniglot)[:ROWS]), np.asarray(omniglot.labels)[:ROWS]),
        "digits": (_principal(flat(digits)[:ROWS]), np.asarray(digits.labels)[:ROWS]),
    }


def _principal(x: np.ndarray, d: int = 48) -> np.ndarray:
    x = x - x.mean(axis=0)
    return x @ np.linalg.svd(x, full_matrices=False)[2][:d].T


def starts(x: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """A table's random rows, and features of a random network of two layers, as spread as x."""
    draw = np.random.default_rng(seed)
    d = x.shape[1]
    u = x / x.std()
    hidden = np.maximum(u @ draw.normal(size=(d, 4 * d)) / d**0.5, 0)
    made = {"table": draw.normal(size=x.shape), "network": hidden @ draw.normal(size=(4 * d, d))}
    centred = {name: h - h.mean(axis=0) for name, h in made.items()}
    spread = (x - x.mean(axis=0)).std()
    return {name: h * (spread / h.std()) for name, h in centred.items()}


def planted() -> dict[str, Any]:
    rows = []
    for name, (x, y) in sources().items():
        for seed in SEEDS:
            for kind, h0 in starts(x, seed).items():
                for part in PARTS:
                    rows.append({"source": name, "start": kind, "part": part, "seed": seed}
                                | seen(x, y, h0, part))  # fmt: skip
                    print(json.dumps(rows[-1]), flush=True)
    begun = [row for row in rows if row["part"] > 0]
    harmed = [row for row in begun if row["harm"] >= HARMFUL]
    spared = [row for row in begun if row["harm"] < HARMLESS]
    table = [row for row in harmed if row["start"] == "table"]
    counts = {
        "harmful": len(harmed),
        "named": sum(row["named"] for row in harmed),
        "harmful_tables": len(table),
        "named_tables": sum(row["named"] for row in table),
        "harmless": len(spared),
        "accused": sum(row["accused"] for row in spared),
        "between": len(begun) - len(harmed) - len(spared),
        "without_start": len(rows) - len(begun),
    }
    print(json.dumps(counts), flush=True)
    return counts | {"rows": rows}


def seen(x: np.ndarray, y: np.ndarray, h0: np.ndarray, part: float) -> dict[str, Any]:
    """What a start costs, and what is said of it."""
    told = lambda h: cs.diagnose(cs.Embeddings(h=h, labels=y, layers={"untrained": h0}))
    found = told(x + part * h0)
    whole = found if part == 0 else told(x)
    grave = [one.name for one in found.findings if one.severity != "note"]
    return {
        "harm": whole.measures["knn_accuracy"] - found.measures["knn_accuracy"],
        "overlap": found.measures["start_overlap"],
        "named": "kept_start" in grave[:2],
        "accused": "kept_start" in grave,
        "first": grave[:2],
    }


# ---- trainings ----


def trainings() -> dict[str, Any]:
    rows = []
    for scale, decay in itertools.product(SCALES, DECAYS):
        row = trained(scale, decay)
        if "optimiser.weight_decay" in row["settings"]:
            row["followed"] = trained(scale, float(row["settings"]["optimiser.weight_decay"]))
        rows.append(row)
        print(json.dumps(row), flush=True)
    there = [row for row in rows if not row["effect"]]
    followed = [row["followed"] for row in rows if "followed" in row]
    return {
        "without_effect": len(there),
        "named": sum(row["named"] for row in there),
        "with_effect": len(rows) - len(there),
        "named_wrongly": sum(row["named"] for row in rows if row["effect"]),
        "followed": len(followed),
        "mended": sum(row["effect"] for row in followed),
        "rows": rows,
    }


def trained(scale: float, decay: float, seed: int = 0) -> dict[str, Any]:
    """One training and its diagnosis."""
    asked = cs.engine.read_settings(
        "symbol-context-tokens",
        [
            f"network.encoder=Table(n_symbols=16, d=8, scale={scale})",
            *(f"optimiser.weight_decay={decay}", "optimiser.lr=1e-3", "epochs=1000"),
            f"seed={seed}",
        ],
    )
    run = cs.train(asked)
    table = run.networks.encoders[0](torch.arange(16)).detach().numpy()
    apart = cs.diagnostics.semantic_ratio(table, np.arange(16) % 8)
    made = cs.diagnose(run, rows=512)
    finding = next((one for one in made.findings if one.name == "kept_start"), None)
    return {
        "scale": scale, "decay": decay, "seed": seed,
        "ratio": apart.ratio, "nearest": apart.nearest,
        "effect": bool(apart.ratio < 0.5 and apart.nearest >= 0.9),
        "overlap": made.measures["start_overlap"],
        "decay_exponent": made.measures["decay_exponent"],
        "named": finding is not None,
        "settings": {} if finding is None else dict(finding.settings),
    }  # fmt: skip


# ---- judged ----


def judged() -> dict[str, Any]:
    rows = []
    for case in cases():
        rows.append(judge(case))
        print(json.dumps(rows[-1]), flush=True)
    healthy = [row for row in rows if row["kind"].startswith("healthy")]
    begun = [row for row in rows if not row["kind"].startswith("healthy")]
    harmed = [row for row in begun if row["harm"] >= HARMFUL]
    spared = [row for row in begun if row["harm"] < HARMLESS]
    between = [row for row in begun if HARMLESS <= row["harm"] < HARMFUL]
    by_start = [row for row in harmed if row["by_start"] >= HARMFUL]
    untold = [row for row in healthy if row["kind"] != "healthy: fine-tuned, told"]
    counts = {
        "harmful": share(harmed, "named"),
        "harmful_by_the_start": share(by_start, "named"),
        "harmful_at_any_rank": share(harmed, "accused"),
        "harmless": share(spared, "accused"),
        "between": share(between, "accused"),
        "healthy": share(healthy, "accused"),
        "healthy_without_told": share(untold, "accused"),
        "harmful_by_kind": by_kind(harmed, "named"),
        "harmless_by_kind": by_kind(spared, "accused"),
        "healthy_by_kind": by_kind(healthy, "accused"),
    }
    print(json.dumps(counts, indent=2), flush=True)
    return counts | {"rows": rows}


def judge(case: Case) -> dict[str, Any]:
    """What neighbours lose in a case, and what is said of it."""
    told = lambda h, **more: cs.diagnose(cs.Embeddings(h=h, labels=case.labels, **more))
    right = lambda found: found.measures["knn_accuracy"]
    found = told(case.h, layers={"untrained": case.start}, about=case.about)
    harm = right(told(case.well)) - right(found)
    grave = [one.name for one in found.findings if one.severity != "note"]
    return {
        "kind": case.kind, "name": case.name, "harm": harm,
        "by_start": harm if case.twin is None else right(told(case.twin)) - right(found),
        "overlap": found.measures.get("start_overlap"),
        "named": "kept_start" in grave[:2],
        "accused": "kept_start" in grave,
        "first": grave[:2],
    }  # fmt: skip


def share(rows: list[dict[str, Any]], what: str) -> dict[str, Any]:
    """How many of them, with the exact interval of 95 %."""
    k, n = sum(row[what] for row in rows), len(rows)
    interval = binomtest(k, n).proportion_ci(method="exact") if n else (0.0, 1.0)
    return {"n": n, what: k, "interval": [float(end) for end in interval]}


def by_kind(rows: list[dict[str, Any]], what: str) -> dict[str, list[int]]:
    """How many of how many, by kind."""
    own = {kind: [r[what] for r in rows if r["kind"] == kind] for kind in {r["kind"] for r in rows}}
    return {kind: [sum(said), len(said)] for kind, said in sorted(own.items())}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
