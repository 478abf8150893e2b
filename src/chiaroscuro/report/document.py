"""The document of a page: everything it shows, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chiaroscuro.artifacts import Embeddings, to_toml
from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.errors import ChiaroError
from chiaroscuro.measures import CATALOGUE, Space, accuracy_name, explained, spaced
from chiaroscuro.report import numbers, points
from chiaroscuro.report.axes import unit_rows
from chiaroscuro.report.packing import data_url, quoted, short
from chiaroscuro.report.points import VisibleRows, shown
from chiaroscuro.report.subject import Lab, Subject

__all__ = ["FORMAT", "document", "history_of", "is_number"]

FORMAT = 1
"""Of a page's document."""

_RECORDS = 2000  # steps of a curve at most
_MEASURED = 1000  # rows that the measures of an epoch look at
_KINDS = {".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif"}
_FIGURE_BYTES = 3 << 20


def document(
    subjects: Sequence[Subject], most: int = points.POINTS, maps: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the document of a page about these subjects.

    Args:
        subjects: one, or several to compare.
        most: samples shown of each.
        maps: further maps to compute, of `axes.MAPS`.
    """
    try:
        runs = [short(_run(subject, most, maps)) for subject in subjects]
    except RecursionError:
        raise ChiaroError("A page cannot hold settings or findings nested this deeply.") from None
    return {
        "format": FORMAT,
        "kind": "report",
        "title": " and ".join(subject.name for subject in subjects[:3]),
        "measures": {name: one.json() for name, one in CATALOGUE.items()},
        "runs": runs,
    }


def _run(subject: Subject, most: int, maps: Sequence[str]) -> dict[str, Any]:
    rows = shown(subject, most)
    out: dict[str, Any] = {
        "name": subject.name,
        "where": _where(subject),
        "diagnosis": subject.diagnosis,
        "evaluation": _evaluation(subject.evaluation),
        "labs": [_lab(lab) for lab in subject.labs],
        "notes": list(subject.notes),
        "training": None,
        "samples": None,
    }
    if subject.run is not None:
        run = subject.run
        history = run.history()
        settings, environment = run.settings(), run.environment()
        command = environment.pop("command", None)
        out["training"] = history_of(history.records)
        out["notes"] += history.problems
        out["made"] = {
            "settings": to_toml(settings),
            "flat": _flat(settings),
            "environment": _flat(environment),
            "command": _typed(command),
        }
    elif subject.settings is not None:
        settings = dict(subject.settings)
        out["training"] = history_of(subject.records)
        out["made"] = {"settings": to_toml(settings), "flat": _flat(settings), "environment": {}}
    if rows is None and (why := points.why_none(subject.embeddings)):
        out["notes"].append(why)
    if rows is not None:
        out |= {
            "sentence": rows.sentence,
            "epochs": [epoch for epoch, _ in rows.frames],
            "samples": points.described(rows),
            "spaces": points.spaces(rows, maps),
            "opens": points.opens_on(rows, maps),
            "input": points.raw_input(rows) if "tsne" in maps else None,
            "frames": _frames(rows),
            "sensitivity": _sensitivity(rows),
            "factors": _factors(rows.embeddings, subject.diagnosis),
        }
    return out


def _typed(command: Any) -> str | None:
    """Return a recorded command as a person would type it; None of what nobody types."""
    if not isinstance(command, list) or not command:
        return command or None
    words = [str(word) for word in command]
    if words[0] == "__main__.py":  # of `python -m`, whose module is not recorded
        return None
    if words[0].endswith(".py"):
        words.insert(0, "python")
    return " ".join(map(quoted, words)) if words[0] in ("chiaro", "python") else None


def _where(subject: Subject) -> str | None:
    """Return what to type for a subject: its folder or file, seen from here, quoted for a shell."""
    path = subject.run.folder if subject.run is not None else subject.source
    if path is None:
        return None
    path = path.resolve()
    here = Path.cwd()
    return quoted(str(path.relative_to(here) if path.is_relative_to(here) else path))


# ---- training ----


def history_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return records of a history as columns: those of steps, and those of epochs.

    Example:
        >>> history_of([{"step": 1, "loss": 2.0}, {"step": 1, "epoch": 1, "mean_loss": 2.0}])
        {'steps': {'step': [1], 'loss': [2.0]}, 'epochs': {'step': [1], 'epoch': [1],
        'mean_loss': [2.0]}}
    """
    steps = [one for one in records if "loss" in one and "epoch" not in one]
    steps = [one for one in steps if is_number(one.get("step"))]
    if len(steps) > _RECORDS:
        steps = [steps[at] for at in spaced(len(steps), _RECORDS)]
    epochs = [one for one in records if is_number(one.get("epoch"))]
    return {"steps": _columns(steps), "epochs": _columns(epochs)}


def _columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(
        name for record in records for name, value in record.items() if is_number(value)
    )
    plain = lambda value: value if is_number(value) else None
    return {name: [plain(record.get(name)) for record in records] for name in names}


def is_number(value: Any) -> bool:
    """Return whether a value is a number that a page can show: no word, and no integer beyond 2^53.

    Example:
        >>> [is_number(value) for value in (1, 0.5, float("nan"), True, "x", 10**400)]
        [True, True, True, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= 1 << 53


# ---- measures at every epoch ----


def _frames(rows: VisibleRows) -> list[dict[str, Any]]:
    return [
        {"epoch": epoch, **{space: _measures(vectors, space, rows) for space in rows.spaces}}
        for epoch, vectors in rows.frames
    ]


def _measures(vectors: Mapping[str, np.ndarray], space: str, rows: VisibleRows) -> dict[str, Any]:
    labels = rows.embeddings.labels
    few = spaced(len(vectors[space]), _MEASURED)
    x = vectors[space][few]
    finite = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, 0.0)
    u, y = unit_rows(x), None if labels is None else labels[few]
    views = None
    if f"{space}1" in vectors and f"{space}2" in vectors:
        views = unit_rows(vectors[f"{space}1"][few]), unit_rows(vectors[f"{space}2"][few])
    space_of = Space(x, views, y)
    named = {"knn_accuracy": "shown_knn_accuracy"}  # of the samples shown, not of those diagnosed
    values = {named.get(m.name, m.name): m(space_of) for m in CATALOGUE.values() if m.of}
    return values | {
        "spectrum": space_of.spectrum.values.tolist(),
        "similarities": numbers.similarities(u, views, y),
        "not_finite": int((~finite).sum()),
    }


# ---- views and factors ----


def _sensitivity(rows: VisibleRows) -> dict[str, Any] | None:
    """Return how far two views of a sample are apart, as a share of two samples: by space and
    class.

    mean (1 - cos(views)) / mean (1 - cos(different samples)); 0 is invariant, 1 no better than
    chance.
    """
    by_space: dict[str, Any] = {}
    _, last = rows.frames[-1]
    labels = rows.embeddings.labels
    for space in rows.spaces:
        if f"{space}1" not in last:
            continue
        u1, u2 = unit_rows(last[f"{space}1"]), unit_rows(last[f"{space}2"])
        apart = 1 - (u1.astype(np.float64) * u2).sum(axis=1)
        few = spaced(len(u1), _MEASURED)
        cosines = (u1[few].astype(np.float64) @ u2[few].T)[~np.eye(len(few), dtype=bool)]
        scale = float((1 - cosines).mean()) or 1.0
        by_class = None
        if labels is not None:
            n_classes = int(labels.max(initial=-1)) + 1
            own = [apart[labels == c] for c in range(n_classes)]
            by_class = [float(a.mean() / scale) if len(a) else None for a in own]
        by_space[space] = {"all": float(apart.mean() / scale), "by_class": by_class}
    return by_space or None


def _factors(e: Embeddings, diagnosis: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """R^2 of each factor from each layer, in the order of the network.

    Where the diagnosis has one, from more rows than are shown, that is it.
    """
    if e.factors is None and e.labels is None:
        return None
    few = spaced(e.n, _MEASURED)
    layers: dict[str, np.ndarray] = {}
    if e.thumbnails is not None and e.thumbnails.shape[1]:
        layers["pixels"] = points.small_images(np.asarray(e.thumbnails)[few])
    inner = {k: v for k, v in e.layers.items() if k not in ("tsne", "umap")}
    for name in sorted(inner, key=lambda name: (name != "input", name != "untrained")):
        layers[name] = inner[name][few].reshape(len(few), -1)
    for name in ("h", "z"):
        if (array := getattr(e, name)) is not None:
            layers[name] = array[few]
    layers = {k: points.in_range(v) for k, v in layers.items() if v.size and np.isfinite(v).all()}
    if not layers or len(few) < 4:
        return None
    targets: dict[str, np.ndarray] = {}
    if e.labels is not None and (e.labels[few] >= 0).all():
        targets["label"] = np.eye(int(e.labels.max()) + 1)[e.labels[few]]
    if e.factors is not None:
        names = e.factor_names if e.factor_names is not None else range(e.factors.shape[1])
        for name, column in zip(names, e.factors[few].T, strict=True):
            # a factor with NaN or infinity is not asked for: it is shown as a constant is
            column = points.in_range(column) if np.isfinite(column).all() else np.zeros(len(few))
            targets[str(name)] = _circle(column) if str(name).endswith("hue") else column[:, None]
    if not targets:
        return None
    shares = [explained(x, list(targets.values())) for x in layers.values()]
    table = [list(of_target) for of_target in zip(*shares, strict=True)]
    known = (diagnosis or {}).get("measures", {})
    for row, target in zip(table, targets, strict=True):
        for at, layer in enumerate(layers):
            value = known.get(f"r2_{target}" if layer == "h" else f"{layer}_r2_{target}")
            if isinstance(value, int | float):
                row[at] = float(value)
    return {"layers": list(layers), "targets": list(targets), "shares": table, "n": len(few)}


def _circle(turns: np.ndarray) -> np.ndarray:
    """Return hues as points of a circle, on which 0 and 1 are the same."""
    return np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)


# ---- what others left ----


def _evaluation(evaluation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if evaluation is None or not isinstance(evaluation.get("results"), Mapping):
        return None
    results = {
        str(name): {k: v for k, v in one.items() if isinstance(v, int | float)}
        for name, one in evaluation["results"].items()
        if isinstance(one, Mapping)
    }
    protocol = evaluation.get("protocol")
    trained = protocol.get("trained_on") if isinstance(protocol, Mapping) else None
    seen = trained.get("test_rows") if isinstance(trained, Mapping) else None
    keys = dict.fromkeys(key for one in results.values() for key in one)
    searches = {
        str(name): ways
        for name, one in evaluation["results"].items()
        if isinstance(one, Mapping) and (ways := _searches(one.get("retrieval")))
    }
    return {
        "results": results,
        "names": {key: name for key in keys if (name := accuracy_name(key))},
        "searches": searches,
        "test_rows_seen": seen if isinstance(seen, int) else None,
    }


def _searches(record: Any) -> dict[str, dict[str, float]]:
    """Return how often search finds the partner, by way (`image_to_text`).

    What chance gives stands under the way and `, chance`.
    """
    if not isinstance(record, Mapping):
        return {}
    ways: dict[str, dict[str, float]] = {}
    for way, one in record.items():
        if isinstance(one, Mapping):
            chance = one.get("chance")
            shares = {way: one, f"{way}, chance": chance if isinstance(chance, Mapping) else {}}
            for name, values in shares.items():
                known = {
                    k: v for k, v in values.items() if k.startswith("recall_") and is_number(v)
                }
                if known:
                    ways[name] = known
    return ways


def _lab(lab: Lab) -> dict[str, Any]:
    names = ("lab", "paper", "scale", "seeds", "seconds", "claims")
    out: dict[str, Any] = {name: lab.record.get(name) for name in names}
    if lab.figure is not None and lab.figure.stat().st_size <= _FIGURE_BYTES:
        out["figure"] = data_url(read_regular(lab.figure), _KINDS[lab.figure.suffix])
    return out


def _flat(tree: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Nested settings by dotted key, values as text."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out |= _flat(value, f"{under}{key}.")
        else:
            out[f"{under}{key}"] = value if isinstance(value, int | float) else str(value)
    return out
