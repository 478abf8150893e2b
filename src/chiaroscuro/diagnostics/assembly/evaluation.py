"""`evaluate`: what embeddings are good for, by a stated protocol, beside two controls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chiaroscuro import figures
from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.assembly.probe import PROBES
from chiaroscuro.diagnostics.assembly.tables import table
from chiaroscuro.diagnostics.rows import Labelled
from chiaroscuro.diagnostics.semantics.labels import DRAWS, few_shot, label_retrieval
from chiaroscuro.diagnostics.semantics.matching import retrieval, zero_shot_accuracy
from chiaroscuro.display import html_table
from chiaroscuro.errors import need
from chiaroscuro.measures.accuracy import knn_accuracies, knn_accuracy

__all__ = ["SUBJECTS", "Evaluation", "evaluate", "glance"]

SUBJECTS = ("input", "untrained", "encoder", "projector")
"""Raw input and untrained encoder are the controls; h is the encoder's, z the projector's."""

_NEIGHBOURS = (20, 200)
_SHOTS = (1, 5)
_ABOUT = {
    "ridge": "closed form on standardised features, penalty 1",
    "logistic": "L-BFGS on standardised features, penalty 1",
    "sgd": (
        "SGD, lr 0.3 to 0 by cosine, batch 64, weight decay 1e-6, 100 epochs, the last epoch "
        "[tan2024, Appendix B]; null: it diverged"
    ),
}


def evaluate(embeddings: Embeddings, probes: Sequence[str] = ("ridge", "sgd")) -> Evaluation:
    """Evaluate embeddings on held-out rows, and return a dictionary for JSON.

    With labels: accuracy of neighbours and of linear probes, fitted on the rows with `split` 0 and
    asked about those with `split` 1. With both sides of pairs (`z1`, `z2`): retrieval among the
    rows with `split` 1, both ways; with `prompts` also zero-shot accuracy. Nothing is chosen by the
    test side. The controls are the raw input (`layer_input`, or the thumbnails) and networks with
    their weights before training (`layer_untrained` and its kin), fresh or pretrained: what
    training did not add. `trained_on` of the protocol says what training saw, rows of the test side
    and labels among it, where the embeddings know (`about`). What the file lacks is listed with the
    reason.

    Args:
        embeddings: with a `split`, with `labels` or the two sides of pairs, and whatever of the
            rest there is.
        probes: of "ridge" (which is `linear` in the results), "logistic" and "sgd".

    References:
        wu2018instance, tan2024, radford2021clip

    Example:
        >>> h = np.concatenate([np.eye(3)] * 20)
        >>> evaluation = evaluate(
        ...     Embeddings(h=h, labels=np.tile(np.arange(3), 20), split=np.repeat([0, 1], 30)),
        ...     probes=["ridge"],
        ... )
        >>> evaluation["results"]["encoder"]["linear"], evaluation["protocol"]["n_test"]
        (1.0, 30)
    """
    for probe in probes:
        need(
            probe in PROBES,
            lambda probe=probe: f"`evaluate` knows the probes {', '.join(PROBES)}, not `{probe}`.",
        )
    split, labels = embeddings.split, embeddings.labels
    pairs = embeddings.z1 is not None and embeddings.texts is not None
    received = ", ".join(embeddings.arrays()) or "nothing"
    need(
        labels is not None or pairs,
        lambda: (
            f"`evaluate` needs `labels`, or images with texts; received {received}. "
            "`chiaro diagnose` judges embeddings without labels."
        ),
    )
    need(
        split is not None,
        lambda: (
            f"`evaluate` needs a held-out `split` (0 train, 1 test); received {received}. Data "
            "without a split hold rows out by `test`, before training: "
            "`data.source=arrays('mine.npz', test=0.2)`, objects by "
            "`data.from_object(mine).with_split(0.2)`."
        ),
    )
    side = np.asarray(split)
    protocol: dict[str, Any] = {
        "trained_on": _trained_on(embeddings),
        "fitted_on": "split 0",
        "tested_on": "split 1",
    }
    results: dict[str, Any] = {name: {} for name in SUBJECTS}
    if labels is not None:
        _classify(embeddings, side, probes, protocol, results)
    if pairs:
        _match(embeddings, side, protocol, results)
    if "untrained" in embeddings.layers:
        protocol["untrained"] = embeddings.facts().get("untrained", "before training")
    protocol["selection"] = (
        "nothing is chosen here by the test side, and no maximum is taken; how the settings were "
        "chosen is not known here"
    )
    return Evaluation(protocol=protocol, results=results)


class Evaluation(dict[str, Any]):
    """Result of `evaluate`: a JSON dictionary that prints as a table and has a `plot` method."""

    def __str__(self) -> str:
        return table(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw each accuracy beside its controls; needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        ax, rows = figures.axes(ax), self._accuracies()
        names = list(dict.fromkeys(name for row in rows.values() for name in row))
        width = 0.8 / max(1, len(rows))
        for at, (subject, row) in enumerate(rows.items()):
            places = np.arange(len(names)) + (at - (len(rows) - 1) / 2) * width
            control = subject in ("input", "untrained")
            shades = ("#b8b8b8", figures.GREY, *figures.COLOURS)
            colour = shades[at] if control else figures.COLOURS[at % 2]
            ax.bar(places, [row.get(n, np.nan) for n in names], width, label=subject, color=colour)
        slanted = {"rotation": 30, "ha": "right"} if len(names) > 4 else {}
        ax.set_xticks(np.arange(len(names)), names, **slanted)
        ax.set_ylim(0, 1)
        ax.set_ylabel("accuracy on held-out rows")
        if rows:  # above the bars, which may reach the top
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(rows))
        return ax

    def _accuracies(self) -> dict[str, dict[str, float]]:
        """Numbers from 0 to 1 by subject and name."""
        return {
            subject: numbers
            for subject, row in self["results"].items()
            if isinstance(row, Mapping)
            and (numbers := {k: v for k, v in row.items() if _is_share(k, v)})
        }

    def _repr_html_(self) -> str:
        rows = self._accuracies()
        names = list(dict.fromkeys(name for row in rows.values() for name in row))
        shown = [(s, *(f"{r[n]:.3f}" if n in r else "-" for n in names)) for s, r in rows.items()]
        return html_table("Evaluation on held-out rows", shown, ("", *names))


def _is_share(name: str, value: Any) -> bool:
    return isinstance(value, float) and 0 <= value <= 1 and not name.endswith("_interval")


def _trained_on(embeddings: Embeddings) -> dict[str, Any] | str:
    """What training saw, as the embeddings tell: source, part, rows of either side, labels."""
    facts = {
        name.removeprefix("trained_on."): value
        for name, value in embeddings.facts().items()
        if name.startswith("trained_on.")
    }
    counts = ("rows", "test_rows")
    return {k: int(v) if k in counts else v for k, v in facts.items()} or "not known"


def _classify(
    embeddings: Embeddings,
    side: np.ndarray,
    probes: Sequence[str],
    protocol: dict[str, Any],
    results: dict[str, Any],
) -> None:
    """Neighbours and probes of every subject."""
    y = _numbered(np.asarray(embeddings.labels))
    train, test = ((side == s) & (y >= 0) for s in (0, 1))
    need(
        train.sum() >= 2 and test.sum() >= 1,
        lambda: (
            "`evaluate` needs labelled rows on both sides of the split; received "
            f"{int(train.sum())} for training and {int(test.sum())} for the test."
        ),
    )
    for name in SUBJECTS:
        rows = _rows(embeddings, name)
        if rows is None:
            results[name]["missing"] = _WHY[name]
            continue
        if name == "input":
            rows = rows - rows[train].mean(axis=0)
        both = [Labelled(rows[mask], y[mask]) for mask in (train, test)]
        results[name] |= _accuracies(both[0], both[1], probes)
    protocol |= _protocol(train, test, y, probes)
    protocol["input"] = f"{_raw(embeddings)}, centred by the mean of the training side"


def _numbered(y: np.ndarray) -> np.ndarray:
    """Return labels that are ids as 0, 1, ... in their order: a probe has a column for each."""
    if not y.size or int(y.max()) < len(y):
        return y
    names, places = np.unique(y, return_inverse=True)
    return np.where(y < 0, -1, places - int((names < 0).sum()))


def _match(
    embeddings: Embeddings, side: np.ndarray, protocol: dict[str, Any], results: dict[str, Any]
) -> None:
    """Retrieval and zero-shot accuracy of the projections, trained and untrained."""
    test = side == 1
    need(test.any(), "`evaluate` needs held-out pairs, `split` 1; received 0 of them.")
    texts = np.asarray(embeddings.texts)[test]
    protocol["retrieval"] = (
        f"each of {int(test.sum())} held-out images among the first texts of all of them, and "
        "each text among the images, by cosine of the projections; cosines within 1e-6 are level "
        "and in random order, of which the expectation is reported; chance: random embeddings"
    )
    protocol["n_pairs"] = int(test.sum())
    protocol["n_distinct_texts"] = len(np.unique(texts))
    prompts = embeddings.prompts
    named = prompts is not None and embeddings.labels is not None
    if named:
        protocol["zero_shot"] = "nearest prompt by cosine; level prompts share the image equally"
        protocol["prompts"] = [str(prompt) for prompt in np.asarray(prompts)]
    trained = (embeddings.z1, embeddings.z2, embeddings.prompt_z)
    layers = embeddings.layers
    untrained = (
        *(layers.get(f"untrained_z{s}") for s in (1, 2)),
        embeddings.untrained_prompt_z,
    )
    for name, (z1, z2, prompt_z) in (("untrained", untrained), ("projector", trained)):
        if z1 is None or z2 is None:
            results[name]["retrieval"] = {"missing": "the embeddings hold no `layer_untrained_z1`"}
            continue
        results[name]["retrieval"] = retrieval(z1[test], z2[test])
        if named and prompt_z is not None:
            y = np.asarray(embeddings.labels)
            known = test & (y >= 0)
            results[name] |= zero_shot_accuracy(z1[known], prompt_z, y[known])


def glance(train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, float]:
    """Return the accuracy of 20 nearest neighbours, one vote each; quick enough during training.

    Called `online_knn`, and not comparable with `knn_20` of `evaluate`: it is taken of a few rows,
    inside the training side where `engine.held_out` hands it over, and its votes are not weighted.
    Fewer neighbours where there are fewer rows; nothing where a side has no labels.

    Args:
        train: (h, labels) of the rows that may be neighbours.
        test: (h, labels) of the rows asked about. Of both, rows with a negative label are left out.

    Example:
        >>> both = np.eye(3).repeat(9, axis=0), np.arange(3).repeat(9)
        >>> glance(both, both)
        {'online_knn': 1.0}
    """
    sides = [Labelled(h[y >= 0], y[y >= 0]) for h, y in (train, test)]
    if min(len(side.h) for side in sides) == 0:
        return {}
    n_neighbours = min(20, len(sides[0].h))
    return {"online_knn": knn_accuracy(sides[0], sides[1], n_neighbours, "majority")}


_WHY = {
    "input": "the embeddings hold neither `layer_input` nor `thumbnails`",
    "untrained": "the embeddings hold no `layer_untrained`",
    "encoder": "the embeddings hold no `h`",
    "projector": "the embeddings hold no `z`",
}


def _rows(embeddings: Embeddings, name: str) -> np.ndarray | None:
    if name == "input":
        vectors = embeddings.layers.get("input", embeddings.thumbnails)
    elif name == "untrained":
        vectors = embeddings.layers.get("untrained")
    else:
        vectors = embeddings.h if name == "encoder" else embeddings.z
    if vectors is None:
        return None
    rows = np.asarray(vectors).reshape(len(vectors), -1)
    return rows / 255.0 if rows.dtype == np.uint8 else rows.astype(np.float64)


def _raw(embeddings: Embeddings) -> str:
    if "input" in embeddings.layers:
        return "raw input, `layer_input`"
    if embeddings.thumbnails is None:
        return "missing"
    side = embeddings.thumbnails.shape[1]
    return f"raw input, the pixels of images of {side} x {side} (larger ones averaged down)"


def _accuracies(train: Labelled, test: Labelled, probes: Sequence[str]) -> dict[str, Any]:
    scores: dict[str, Any] = {"d": train.h.shape[1]}
    endings = {"weighted": "", "majority": "_majority"}
    few = [k for k in _NEIGHBOURS if k <= len(train.h)]
    named = knn_accuracies(train, test, few, list(endings)) if few else {}
    for k in _NEIGHBOURS:
        for vote, ending in endings.items():
            scores[f"knn_{k}{ending}"] = named.get((k, vote))
    for probe in probes:
        key = "linear" if probe == "ridge" else f"linear_{probe}"
        accuracy = PROBES[probe](train, test)
        scores[key] = accuracy if math.isfinite(accuracy) else None
    for shots in _SHOTS:
        mean, half = few_shot(train, test, shots) or (None, None)
        scores |= {f"few_shot_{shots}": mean, f"few_shot_{shots}_interval": half}
    return scores | label_retrieval(train, test)


def _protocol(
    train: np.ndarray, test: np.ndarray, y: np.ndarray, probes: Sequence[str]
) -> dict[str, Any]:
    _, counts = np.unique(y[test], return_counts=True)
    return {
        "n_train": int(train.sum()),
        "n_test": int(test.sum()),
        "n_unlabelled": int((y < 0).sum()),
        "n_classes": len(np.unique(y[train | test])),
        "most_frequent_class": float(counts.max() / counts.sum()),
        "knn": "cosine; weighted by exp(s / 0.07); _majority: one vote each; null: too few rows",
        "few_shot": (
            f"{' or '.join(map(str, _SHOTS))} training rows per class, nearest class mean by "
            f"cosine, {DRAWS} draws; _interval: half of the 95 % interval; null: too few rows"
        ),
        "retrieval_by_label": (
            "test rows as queries among training rows, by cosine; the same class is relevant; "
            "map: mean average precision; recall_k: a hit among the first k"
        ),
        "linear": {("linear" if p == "ridge" else f"linear_{p}"): _ABOUT[p] for p in probes},
    }
