"""What `evaluate` found, as lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chiaroscuro.measures import accuracy_name

__all__ = ["table"]

_RANKS = ("recall_1", "recall_5", "recall_10", "median_rank")
_WAYS = {"image_to_text": "image to text", "text_to_image": "text to image"}


def table(evaluation: Mapping[str, Any]) -> str:
    """Format an evaluation as a table: accuracies, then retrieval and zero-shot.

    Args:
        evaluation: from `evaluate`.

    Example:
        >>> scores = {"d": 2, "knn_20": 0.5, "knn_200": None, "linear": 1.0}
        >>> protocol = {"n_train": 4, "n_test": 2, "most_frequent_class": 0.5}
        >>> print(table({"protocol": protocol, "results": {"encoder": scores}}))
        fitted on 4 rows, tested on 2 held-out rows; the largest class has 50.0 %
                       encoder
        dimensions           2
        knn_20          50.0 %   kNN accuracy, 20 neighbours
        knn_200              -   kNN accuracy, 200 neighbours
        linear         100.0 %   linear probe accuracy, by ridge regression
    """
    protocol, results = evaluation["protocol"], evaluation["results"]
    lines = _warnings(protocol)
    if "n_train" in protocol:
        lines += _accuracies(protocol, results)
    if "retrieval" in protocol:
        lines += _retrieval(protocol, results)
    if "zero_shot" in protocol:
        lines += _zero_shot(protocol, results)
    return "\n".join(lines)


def _warnings(protocol: Mapping[str, Any]) -> list[str]:
    """What a reader must know before the numbers: a test side that was trained on, a control."""
    lines, trained = [], protocol.get("trained_on")
    seen = trained.get("test_rows", 0) if isinstance(trained, Mapping) else 0
    if seen and isinstance(trained, Mapping):
        labels = " with their labels" if trained["labels"] == "seen" else ""
        lines.append(
            f"training used {seen:,} rows of the test set{labels} (data.part = {trained['part']}): "
            "nothing below is held out"
        )
    if "pretrained" in protocol.get("untrained", ""):
        lines.append(f"untrained is {protocol['untrained']}: not fresh weights")
    return lines


def _accuracies(protocol: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    known = {name: row for name, row in results.items() if "missing" not in row}
    first: Mapping[str, Any] = next((row for row in known.values() if "d" in row), {})
    starts = ("knn", "linear", "few_shot", "map", "recall")
    left_out = ("majority", "interval")
    keys = [key for key in first if key.startswith(starts) and not key.endswith(left_out)]
    lines = [
        f"fitted on {protocol['n_train']:,} rows, tested on {protocol['n_test']:,} held-out rows; "
        f"the largest class has {100 * protocol['most_frequent_class']:.1f} %",
        f"{'':<11}" + "".join(f"{name:>11}" for name in known),
        f"{'dimensions':<11}" + "".join(f"{row['d']:>11}" for row in known.values()),
    ]
    for key in keys:
        cells = "".join(f"{_percent(row[key]):>11}" for row in known.values())
        lines.append(f"{key:<11}{cells}   {accuracy_name(key)}".rstrip())
    lines += [f"{name}: {row['missing']}" for name, row in results.items() if "missing" in row]
    return lines


def _retrieval(protocol: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    rows = {name: row["retrieval"] for name, row in results.items() if "retrieval" in row}
    known = {name: row for name, row in rows.items() if "missing" not in row}
    chance = {way: known["projector"][way]["chance"] for way in _WAYS}
    lines = []
    for way, words in _WAYS.items():
        lines.append(f"{words}, {protocol['n_pairs']} held-out pairs")
        lines.append(f"{'':<10}" + "".join(f"{key:>12}" for key in _RANKS))
        for name, row in {"chance": chance, **known}.items():
            cells = [_percent(row[way][key]) for key in _RANKS[:3]]
            cells.append(f"{row[way]['median_rank']:.1f}")
            lines.append(f"{name:<10}" + "".join(f"{cell:>12}" for cell in cells))
    lines += [f"{name:<10}  {row['missing']}" for name, row in rows.items() if "missing" in row]
    return lines


def _zero_shot(protocol: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    prompts = protocol["prompts"]
    lines = [
        f'zero-shot, {len(prompts)} prompts such as "{prompts[0]}"',
        f"{'':<10}{'all':>12}{'balanced':>12}",
        f"{'chance':<10}{_percent(1 / len(prompts)):>12}{_percent(1 / len(prompts)):>12}",
    ]
    for name, row in results.items():
        if "zero_shot" in row:
            both = row["zero_shot"], row["zero_shot_balanced"]
            lines.append(f"{name:<10}" + "".join(f"{_percent(x):>12}" for x in both))
    return lines


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
