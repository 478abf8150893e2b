"""Alignment as a predictor: which augmentation helps which label, said before anything is trained.

Wandering digits, several augmentation policies, three labels of the same pictures: the digit, the
colour of the ink, the place. Of Def. 4.1 of semantic2025, a picture is the symbol and its views are
the contexts: a policy is aligned with a label if pictures of one label, and no others, have the
same law of views. The laws are estimated: 48 views of each of 400 pictures, each view named by the
nearest of 60 centres (k-means of the views at 8 x 8 pixels). `auc` is the chance that two pictures
of one label have closer laws than two of different labels; what is predicted with is `auc` under
the policy less `auc` without any augmentation.

The gain is measured afterwards: SimCLR is trained with the policy, and the accuracy of 20 nearest
neighbours of held-out pictures on the label is compared with that of the untrained encoder.

What came out. It does not predict: Spearman -0.03 on the judged policies (95 % interval -0.41 to
0.49), 0.49 on those of the design; only for colour does it rank them (0.94). Policies change the
accuracy by up to 24 points, but `auc` by no more than 0.015: laws over 60 centres of views at 8 x 8
pixels hardly know the label, so there is little for a policy to spoil or mend in them.

The statistic was fixed on the policies named `design`; the others are judged. Every training is a
piece of its own: a stopped run goes on.

    nice -n 10 python benchmarks/alignment.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.cluster import MiniBatchKMeans

import chiaroscuro as cs
from chiaroscuro.labs.pieces import Pieces
from environment import HERE, save

PLAIN = "SimCLR(size=32, strength=0.0)"
DESIGN = {
    "crop": "SimCLR(size=32, strength=0.0, scale=(0.3, 1.0))",
    "hue": "SimCLR(size=32, strength=0.0, hue=0.5, jitter=1.0)",
    "gray": "SimCLR(size=32, strength=0.0, grayscale=0.5)",
    "simclr": "SimCLR(size=32, strength=0.5)",
}
JUDGED = {
    "light": "SimCLR(size=32, strength=0.0, brightness=0.6, contrast=0.6, jitter=1.0)",
    "small crop": "SimCLR(size=32, strength=0.0, scale=(0.7, 1.0))",
    "flip": "SimCLR(size=32, strength=0.0, flip=0.5)",
    "moderate": "SimCLR(size=32, strength=0.25)",
    "hue and crop": "SimCLR(size=32, strength=0.0, hue=0.5, jitter=1.0, scale=(0.3, 1.0))",
    "blur": "SimCLR(size=32, strength=0.0, blur=1.0, sigma=(1.0, 3.0))",
}
LABELS = ("digit", "colour", "place")
PICTURES, VIEWS, CENTRES = 400, 48, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--pieces", type=Path, default=HERE / "results" / "alignment.pieces")
    call = parser.parse_args()
    torch.set_num_threads(1)
    keep = Pieces(call.pieces, [call.epochs, PICTURES, VIEWS, CENTRES])
    policies = {**DESIGN, **JUDGED}
    data = cs.data.open_data("digits(renderings=(1, 2))")
    base = keep("estimate plain", lambda: estimated(data, PLAIN))
    estimates = {
        name: keep(f"estimate {name}", lambda policy=policy: estimated(data, policy))
        for name, policy in policies.items()
    }
    measured = {
        (name, s): keep(
            f"gain {name} {s}", lambda policy=policy, s=s: gained(data, policy, s, call.epochs)
        )
        for s in range(call.seeds)  # seed by seed: a stopped run has whole seeds
        for name, policy in policies.items()
    }
    rows: list[dict[str, Any]] = []
    for name, found in estimates.items():
        gains = [measured[name, s] for s in range(call.seeds)]
        for label in LABELS:
            each = [g[label]["trained"] - g[label]["untrained"] for g in gains]
            rows.append(
                {
                    "policy": name, "label": label, "held_out": name in JUDGED,
                    "auc": found[label]["auc"], "score": found[label]["score"],
                    "predicted": found[label]["auc"] - base[label]["auc"],
                    "gain": float(np.mean(each)), "seeds": each,
                    "trained": [g[label]["trained"] for g in gains],
                    "untrained": [g[label]["untrained"] for g in gains],
                }
            )  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    result = summary(rows)
    print({k: v for k, v in result.items() if k != "rows"})
    command = f"python benchmarks/alignment.py --seeds {call.seeds} --epochs {call.epochs}"
    print(save("alignment", result, command))
    keep.clear()


def labels_of(data: cs.data.Dataset) -> dict[str, np.ndarray]:
    """Digit, sixth of the circle of ink hues, and quarter of the frame."""
    factors, names = np.asarray(data.factors), list(data.factor_names)
    x, y, hue = (factors[:, names.index(name)] for name in ("x", "y", "ink_hue"))
    return {
        "digit": np.asarray(data.labels),
        "colour": np.minimum((6 * hue).astype(int), 5),
        "place": 2 * (x > 0) + (y > 0),
    }


def pictures_of(data: cs.data.Dataset) -> torch.Tensor:
    images = np.ascontiguousarray(data.column("images"))
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def estimated(data: cs.data.Dataset, policy: str) -> dict[str, dict[str, float]]:
    """Alignment of a policy with each label, from views alone."""
    some = data.part("train").take(np.arange(PICTURES))
    view = cs.spec.parse(policy, {"SimCLR": cs.views.SimCLR})
    x, ids = pictures_of(some), np.arange(PICTURES)
    small = [
        torch.nn.functional.interpolate(view(x, ids, seed=1, epoch=e)[0], size=8, mode="area")
        for e in range(VIEWS)
    ]
    flat = torch.stack(small, dim=1).reshape(PICTURES * VIEWS, -1).numpy()
    codes = MiniBatchKMeans(CENTRES, random_state=0, n_init=1, batch_size=2048).fit_predict(flat)
    counts = cs.diagnostics.tabulate(np.repeat(ids, VIEWS), codes)
    found = {}
    for label, classes in labels_of(some).items():
        one = cs.diagnostics.distributional_alignment(counts, classes, repeats=20)
        found[label] = {
            "auc": one.auc,
            "score": one.score,
            "split": one.split,
            "merged": one.merged,
        }
    return found


def gained(
    data: cs.data.Dataset, policy: str, seed: int, epochs: int
) -> dict[str, dict[str, float]]:
    """Accuracy of neighbours on each label, before and after training with the policy."""
    settings = cs.engine.read_settings(
        "cifar",
        [
            "data.source='digits(renderings=(1, 2))'",
            f"views.first='{policy}'",
            f"epochs={epochs}",
            "batch=128",
            "objective='InfoNCE(kernel=Cosine(tau=0.2))'",
            f"seed={seed}",
        ],
    )
    found = cs.embed(cs.train(settings))
    h = {"trained": np.asarray(found.h), "untrained": np.asarray(found.layers["untrained"])}
    split = np.asarray(found.split)
    measured: dict[str, dict[str, float]] = {}
    for label, y in labels_of(data).items():
        measured[label] = {
            which: cs.diagnostics.knn_accuracy(
                *(cs.diagnostics.Labelled(rows[split == side], y[split == side]) for side in (0, 1))
            )
            for which, rows in h.items()
        }
    return measured


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Correlation of prediction and gain: all, design, judged; with an interval over policies."""

    def spearman(some: list[dict[str, Any]]) -> float:
        return float(spearmanr([r["predicted"] for r in some], [r["gain"] for r in some]).statistic)

    judged = [row for row in rows if row["held_out"]]
    names = sorted({row["policy"] for row in judged})
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(1000):  # whole policies are drawn: their three labels belong together
        picked = rng.choice(names, len(names))
        draws.append(spearman([row for name in picked for row in judged if row["policy"] == name]))
    # does it say which label a policy helps most, and which least?
    best = [
        max(three, key=lambda r: r["predicted"])["label"]
        == max(three, key=lambda r: r["gain"])["label"]
        for three in ([row for row in judged if row["policy"] == name] for name in names)
    ]
    return {
        "spearman_judged": spearman(judged),
        "interval": [float(q) for q in np.nanquantile(draws, [0.025, 0.975])],
        "spearman_design": spearman([row for row in rows if not row["held_out"]]),
        "by_label": {
            label: spearman([row for row in judged if row["label"] == label]) for label in LABELS
        },
        "best_label_named": float(np.mean(best)),
        "rows": rows,
    }


if __name__ == "__main__":
    main()
