"""Will these data help? What a downstream task takes for the same, against what the data tell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.artifacts.numpy_files import read_npz
from chiaroscuro.diagnostics.semantics.distributional import distributional_alignment
from chiaroscuro.diagnostics.semantics.equivalence import equivalence, tabulate
from chiaroscuro.errors import need
from chiaroscuro.measures.controls import Control

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = ["read_task", "semantic_measures"]

NEEDED = ("symbols", "contexts", "labels")
PAIRED = ("pair_symbols", "pair_contexts")


def read_task(given: Any) -> dict[str, np.ndarray]:
    """Read the arrays of a task from a dictionary or an `.npz`.

    Args:
        given: with `symbols`, `contexts`, `labels`, and `pair_symbols`, `pair_contexts` if the
            contrastive data are others.

    Example:
        >>> sorted(read_task({"symbols": [0, 1], "contexts": [0, 0], "labels": [1, 1]}))
        ['contexts', 'labels', 'symbols']
    """
    if given is None:
        return {}
    if isinstance(given, str | os.PathLike):
        need(os.path.isfile(given), lambda: f"There is no task `{given}`.")
        given = {n: a for n, a in read_npz(given).items() if n in NEEDED + PAIRED}
    arrays = {name: np.asarray(value) for name, value in given.items()}
    missing = [name for name in NEEDED if name not in arrays]
    need(
        not missing,
        lambda: f"A task needs `symbols`, `contexts` and `labels`; it lacks {', '.join(missing)}.",
    )
    return arrays


def semantic_measures(out: Measured, task: Mapping[str, Any], seed: int) -> None:
    """Add the alignment of contrastive data with a task [semantic2025, Defs 2.1, 4.1].

    Args:
        out: is added to.
        task: `symbols`, `contexts`, `labels`: which symbols are the same is tested from them.
            `pair_symbols`, `pair_contexts`: the contrastive data, if not those of the task.
        seed: seed of all random choices.
    """
    same = equivalence(tabulate(task["symbols"], task["contexts"], task["labels"]))
    symbols = np.asarray(task.get("pair_symbols", task["symbols"]))
    counts = tabulate(symbols, task.get("pair_contexts", task["contexts"]))
    known = min(len(counts), len(same.classes))
    there = counts[:known].sum(axis=1) > 0
    classes = same.classes[:known][there]
    out.numbers |= {"symbols": int(there.sum()), "meanings": len(np.unique(classes))}
    if len(np.unique(classes)) in (1, len(classes)):
        return  # no two symbols mean the same, or all do: there is nothing to be aligned with
    estimate = distributional_alignment(counts[:known][there], classes, seed=seed)
    out.numbers |= {
        "data_task_alignment": estimate.score,
        "data_task_floor": estimate.floor,
        "data_task_split": estimate.split,
        "data_task_merged": estimate.merged,
    }
    sd = estimate.shuffled_sd
    out.controls["data_task_alignment"] = Control(
        value=estimate.score,
        mean=estimate.shuffled,
        sd=sd,
        least=estimate.shuffled - 2 * sd,
        most=estimate.shuffled + 2 * sd,
        beyond=(estimate.score - estimate.shuffled) / sd if sd else 0.0,
        repeats=40,
        n=len(classes),
    )
