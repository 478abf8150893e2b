"""`evaluate`: what embeddings are good for, by a stated protocol, beside two controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.neighbours import knn_accuracy
from chiaroscuro.diagnostics.probe import PROBES
from chiaroscuro.diagnostics.rows import Labelled
from chiaroscuro.errors import need

__all__ = ["SUBJECTS", "evaluate", "glance", "table"]

SUBJECTS = ("input", "untrained", "encoder", "projector")
"""Raw input and untrained encoder are the controls; h is the encoder's, z the projector's."""

_NEIGHBOURS = (20, 200)
_ABOUT = {
    "ridge": "closed form on standardised features, penalty 1",
    "logistic": "L-BFGS on standardised features, penalty 1",
    "sgd": "SGD, lr 0.3 to 0 by cosine, batch 64, weight decay 1e-6, 100 epochs, last epoch",
}


def evaluate(embeddings: Embeddings, probes: Sequence[str] = ("ridge", "sgd")) -> dict[str, Any]:
    """Accuracy of neighbours and linear probes on the held-out side, as a JSON-able dictionary.

    Neighbours and probes are fitted on the rows with `split` 0 and asked about those with `split`
    1; nothing is chosen by the test side. The controls are the raw input (`layer_input`, or the
    thumbnails) and an encoder with fresh weights (`layer_untrained`): what training did not add.
    One that the file lacks is listed with the reason.

    Args:
        embeddings: with `h`, `labels` and `split`, and whatever of the rest there is.
        probes: of "ridge" (which is `linear` in the results), "logistic" and "sgd".

    References:
        wu2018instance, tan2024

    Example:
        >>> h = np.concatenate([np.eye(3)] * 20)
        >>> found = evaluate(
        ...     Embeddings(h=h, labels=np.tile(np.arange(3), 20), split=np.repeat([0, 1], 30)),
        ...     probes=["ridge"],
        ... )
        >>> found["results"]["encoder"]["linear"], found["protocol"]["n_test"]
        (1.0, 30)
    """
    for probe in probes:
        need(
            probe in PROBES,
            lambda probe=probe: f"`evaluate` knows the probes {', '.join(PROBES)}, not `{probe}`.",
        )
    labels, split = embeddings.labels, embeddings.split
    need(
        labels is not None and split is not None,
        lambda: (
            "`evaluate` needs `labels` and a held-out `split` (0 train, 1 test); received "
            f"{', '.join(embeddings.arrays()) or 'nothing'}."
        ),
    )
    y, side = np.asarray(labels), np.asarray(split)
    train, test = ((side == s) & (y >= 0) for s in (0, 1))
    need(
        train.sum() >= 2 and test.sum() >= 1,
        lambda: (
            "`evaluate` needs labelled rows on both sides of the split; received "
            f"{int(train.sum())} for training and {int(test.sum())} for the test."
        ),
    )
    results: dict[str, Any] = {}
    for name in SUBJECTS:
        rows = _rows(embeddings, name)
        if rows is None:
            results[name] = {"missing": _WHY[name]}
            continue
        if name == "input":
            rows = rows - rows[train].mean(axis=0)
        both = [Labelled(rows[mask], y[mask]) for mask in (train, test)]
        results[name] = _accuracies(both[0], both[1], probes)
    return {"protocol": _protocol(train, test, y, probes), "results": results}


def table(found: dict[str, Any]) -> str:
    """What `evaluate` found, as lines for people.

    Args:
        found: from `evaluate`.

    Example:
        >>> scores = {"d": 2, "knn_20": 0.5, "knn_200": None, "linear": 1.0}
        >>> protocol = {"n_train": 4, "n_test": 2, "most_frequent_class": 0.5}
        >>> print(table({"protocol": protocol, "results": {"encoder": scores}}))
        fitted on 4 rows, tested on 2 others; the most frequent class has 50.0 %
                        d   knn_20  knn_200   linear
        encoder         2   50.0 %        -  100.0 %
    """
    protocol, results = found["protocol"], found["results"]
    there = [row for row in results.values() if "missing" not in row]
    keys = [key for key in (there[0] if there else {}) if key != "d" and "majority" not in key]
    widths = [max(8, len(key) + 2) for key in keys]
    lines = [
        f"fitted on {protocol['n_train']} rows, tested on {protocol['n_test']} others; the most "
        f"frequent class has {100 * protocol['most_frequent_class']:.1f} %",
        f"{'':<10}{'d':>7}" + "".join(f" {k:>{w}}" for k, w in zip(keys, widths, strict=True)),
    ]
    for name, row in results.items():
        if "missing" in row:
            lines.append(f"{name:<10}{'-':>7}  {row['missing']}")
            continue
        shown = ["-" if row[key] is None else f"{100 * row[key]:.1f} %" for key in keys]
        cells = "".join(f" {x:>{w}}" for x, w in zip(shown, widths, strict=True))
        lines.append(f"{name:<10}{row['d']:>7}{cells}")
    return "\n".join(lines)


def glance(train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, float]:
    """A quick look while training goes on: plain 20-neighbour accuracy on the test side.

    Fewer neighbours where the training side has fewer rows; nothing where a side has no labels.

    Args:
        train, test: (h, labels) each; rows with a negative label are left out.

    Example:
        >>> both = np.eye(3).repeat(9, axis=0), np.arange(3).repeat(9)
        >>> glance(both, both)
        {'knn_20': 1.0}
    """
    sides = [Labelled(h[y >= 0], y[y >= 0]) for h, y in (train, test)]
    if min(len(side.h) for side in sides) == 0:
        return {}
    n_neighbours = min(20, len(sides[0].h))
    return {"knn_20": knn_accuracy(sides[0], sides[1], n_neighbours, "majority")}


_WHY = {
    "input": "the embeddings hold neither `layer_input` nor `thumbnails`",
    "untrained": "the embeddings hold no `layer_untrained`",
    "encoder": "the embeddings hold no `h`",
    "projector": "the embeddings hold no `z`",
}


def _rows(embeddings: Embeddings, name: str) -> np.ndarray | None:
    if name == "input":
        found = embeddings.layers.get("input", embeddings.thumbnails)
    elif name == "untrained":
        found = embeddings.layers.get("untrained")
    else:
        found = embeddings.h if name == "encoder" else embeddings.z
    if found is None:
        return None
    rows = np.asarray(found).reshape(len(found), -1)
    return rows / 255.0 if rows.dtype == np.uint8 else rows.astype(np.float64)


def _accuracies(train: Labelled, test: Labelled, probes: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"d": train.h.shape[1]}
    for k in _NEIGHBOURS:
        for vote, ending in (("weighted", ""), ("majority", "_majority")):
            enough = k <= len(train.h)
            found[f"knn_{k}{ending}"] = knn_accuracy(train, test, k, vote) if enough else None
    for probe in probes:
        key = "linear" if probe == "ridge" else f"linear_{probe}"
        found[key] = PROBES[probe](train, test)
    return found


def _protocol(
    train: np.ndarray, test: np.ndarray, y: np.ndarray, probes: Sequence[str]
) -> dict[str, Any]:
    classes, counts = np.unique(y[test], return_counts=True)
    return {
        "fitted_on": "split 0",
        "tested_on": "split 1",
        "n_train": int(train.sum()),
        "n_test": int(test.sum()),
        "n_unlabelled": int((y < 0).sum()),
        "n_classes": len(np.unique(y[train | test])),
        "most_frequent_class": float(counts.max() / counts.sum()) if len(classes) else None,
        "knn": "cosine; weighted by exp(s / 0.07); _majority: one vote each; null: too few rows",
        "input": "raw input, centred by the mean of the training side",
        "linear": {("linear" if p == "ridge" else f"linear_{p}"): _ABOUT[p] for p in probes},
        "selection": "nothing is chosen here by the test side; how the settings were, is not known",
    }
