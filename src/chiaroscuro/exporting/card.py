"""The model card of an export, filled in from the run it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chiaroscuro.references import bibliography, cited

__all__ = ["Facts", "card"]

_SHOWN = (
    *("effective_rank", "participation_ratio", "uniformity", "mean_cosine", "alignment"),
    *("knn_accuracy", "linear_accuracy"),
)
_SUBJECTS = {
    "input": "raw input (control)",
    "untrained": "the network before training (control)",
    "encoder": "encoder",
    "projector": "projector",
}


@dataclass(frozen=True)
class Facts:
    """What the card says about a network.

    Args:
        title: title of the card.
        library: that loads the export.
        encoder: its notation.
        d: dimension of its output.
        n_parameters: how many numbers it has.
        prepare: preprocessing as a dictionary; empty where there are no images.
        n_features: of a table that is standardised by `config.json`; 0 where it is not.
        usage: lines of Python that load the export.
        settings: settings of the training, nested; empty if unknown.
        environment: of the training.
        epochs, steps: how long it was trained, if known.
        evaluation: of `evaluate`, or the sentence that says why there is none.
        diagnosis: of the run, if one was made.
        licence: licence of the weights, as you state it; empty if you do not.
        objects: objective, view and so on, whose papers are cited.
    """

    title: str
    library: str
    encoder: str
    d: int
    n_parameters: int
    prepare: Mapping[str, Any]
    n_features: int
    usage: str
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    steps: int | None
    evaluation: Mapping[str, Any] | str
    diagnosis: Mapping[str, Any] | None
    licence: str
    objects: tuple[object, ...]


def card(facts: Facts) -> str:
    """Write the card in Markdown, with the header that model hubs read."""
    header = [
        "---",
        f"library_name: {facts.library}",
        f"license: {json.dumps(facts.licence.lower() or 'unknown')}",
        "pipeline_tag: feature-extraction",
        "tags: [contrastive-learning, self-supervised-learning, chiaroscuro]",
        "---",
    ]
    parts = [
        "\n".join(header),
        f"# {facts.title}",
        f"An encoder that maps a sample to {facts.d} numbers, trained with Chiaroscuro. "
        f"It has {facts.n_parameters:,} parameters: `{facts.encoder}`.",
        f"## Use\n\n```python\n{facts.usage}\n```",
        _preprocessing(facts),
        _training(facts),
        _evaluation(facts),
        _diagnosis(facts),
        _licence(facts),
        _citation(facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _preprocessing(facts: Facts) -> str:
    if facts.n_features:
        return (
            f"## Preprocessing\n\n{facts.n_features} features, each minus its mean and divided by "
            "its standard deviation, which `scaling` in `config.json` holds in their order."
        )
    if not facts.prepare:
        return ""
    p = facts.prepare
    return (
        f"## Preprocessing\n\nImages with {p['channels']} channels, resized to {p['size']}x"
        f"{p['size']} pixels (bilinear), divided by 255 (65,535 if they have 16 bits), minus "
        f"{p['mean']}, divided by {p['std']}."
    )


def _training(facts: Facts) -> str:
    if not facts.settings:
        return ""
    get = lambda *keys: _inside(facts.settings, keys)
    steps = "" if facts.steps is None else f"{facts.steps:,} steps"
    rows = {
        "data": get("data", "source"),
        "part": get("data", "part"),
        "view": get("views", "first"),
        "objective": get("objective"),
        "projector": get("network", "projector"),
        "optimiser": " ".join(str(get("optimiser", k)) for k in ("name", "lr", "weight_decay")),
        "batch": get("batch"),
        "epochs": get("epochs"),
        "length": steps,
        "seed": get("seed"),
        "torch": _inside(facts.environment, ("packages", "torch")),
        "chiaroscuro": facts.environment.get("chiaroscuro"),
    }
    lines = [f"| {k} | `{v}` |" for k, v in rows.items() if v not in (None, "")]
    return "\n".join(
        [
            "## Training",
            "",
            "All settings are in `settings.toml`.",
            "",
            "| | |",
            "|---|---|",
            *lines,
        ]
    )


def _evaluation(facts: Facts) -> str:
    if isinstance(facts.evaluation, str):
        return f"## Evaluation\n\nNot evaluated: {facts.evaluation}"
    results = facts.evaluation.get("results", {})
    protocol = facts.evaluation.get("protocol", {})
    rows = {k: _shares(v) for k, v in results.items() if k in _SUBJECTS and isinstance(v, Mapping)}
    rows = {k: v for k, v in rows.items() if v}
    measured = (k for row in rows.values() for k, share in row.items() if share is not None)
    names = list(dict.fromkeys(measured))
    if not names:
        return ""
    lines = [
        f"| {_SUBJECTS[who]} | " + " | ".join(_percent(row.get(n)) for n in names) + " |"
        for who, row in rows.items()
    ]
    counts = ""
    if "n_train" in protocol and "n_test" in protocol:
        counts = f"Fitted on {protocol['n_train']:,} rows, tested on {protocol['n_test']:,} others."
    if "n_pairs" in protocol:
        counts = f"{counts} Retrieval among {protocol['n_pairs']:,} held-out pairs.".strip()
    head = [f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    return "\n".join(["## Evaluation", "", counts, "", *head, *lines])


def _shares(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the card shows of a subject: accuracies, and recall where there are pairs."""
    shown = {
        name: row[name] for name in ("knn_20", "knn_200", "linear", "zero_shot") if name in row
    }
    retrieval = row.get("retrieval", {})
    for way in ("image_to_text", "text_to_image"):
        if way in retrieval:
            shown[f"{way.replace('_', ' ')}, recall@1"] = retrieval[way].get("recall_1")
    return shown


def _diagnosis(facts: Facts) -> str:
    if not facts.diagnosis:
        return "## Diagnosis\n\nNot diagnosed; `chiaro diagnose RUN` does."
    measures = facts.diagnosis.get("measures", {})
    shown = [
        f"- {name}: {measures[name]:.4g}"
        for name in _SHOWN
        if isinstance(measures.get(name), int | float)
    ]
    findings = [
        f"- {one['severity']}: {one['name']}. {one.get('evidence', '')}".rstrip()
        for one in facts.diagnosis.get("findings", [])
    ]
    verdict = str(facts.diagnosis.get("verdict", "")).strip()
    return "\n".join(["## Diagnosis", "", verdict, "", *shown, *findings]).replace("\n\n\n", "\n\n")


def _licence(facts: Facts) -> str:
    if facts.licence:
        return f"## Licence\n\nThe weights: {facts.licence}. The data have their own."
    return (
        "## Licence\n\nNo licence was stated for these weights. They derive from the data above, "
        "whose licence applies; Chiaroscuro itself is Apache-2.0."
    )


def _citation(facts: Facts) -> str:
    known = bibliography()
    keys = list(dict.fromkeys(key for one in facts.objects for key in cited(one)))
    entries = [known[key] for key in keys if key in known]
    if not entries:
        return ""
    return "## Citation\n\n```bibtex\n" + "\n\n".join(entries) + "\n```"


def _percent(value: Any) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else "-"


def _inside(tree: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree
