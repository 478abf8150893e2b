"""One trial: a training that says how it goes after every epoch, and may be told to stop."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts import Run
from chiaroscuro.diagnostics import Labelled, glance, ridge_probe
from chiaroscuro.engine import Moment, StopTraining, held_out, open_training_data, train
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.tuning.search import Search

__all__ = ["check_data", "clear", "folder_of", "online", "run_trial"]

ROWS = 1000
"""Of the part held out that are asked about, and twice as many to learn from."""

WORSE = "not among the best so far"
"""Why a trial is stopped."""

Report = Callable[[int, float], bool]
"""`report(epoch, value)`: whether the trial goes on."""


def online(train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, float]:
    """Return accuracy of a linear classifier and of neighbours, on rows held out from both.

    Args:
        train: (h, labels) to learn from.
        test: (h, labels) asked about. Of both, rows with a negative label are left out.

    Example:
        >>> import numpy as np
        >>> both = np.eye(3).repeat(9, axis=0), np.arange(3).repeat(9)
        >>> online(both, both)
        {'online_linear': 1.0, 'online_knn': 1.0}
    """
    known, asked = (Labelled(h[y >= 0], y[y >= 0]) for h, y in (train, test))
    return {"online_linear": ridge_probe(known, asked), **glance(train, test)}


def check_data(search: Search) -> None:
    """Refuse data and objectives by which nothing can be chosen, before anything is trained."""
    settings = search.settings(0)
    data = open_training_data(settings)
    labels = data.labels
    classes = 0 if labels is None else len(set(labels[labels >= 0].tolist()))
    need(
        classes >= 2,
        lambda: (
            f"A search chooses by `{search.measure}` and needs labels of at least 2 classes; "
            f"`{settings.data.source}` has {classes}."
        ),
    )
    need(
        "labels" not in settings.make_objective().takes,
        lambda: (
            f"A search chooses by `{search.measure}` of rows inside the training side, and "
            f"`{settings.objective}` has seen their labels: 1 choice would flatter itself."
        ),
    )


def folder_of(out: Path, number: int) -> Path:
    """Return the run folder of a trial."""
    return out / "trials" / f"{number:04d}"


def run_trial(search: Search, number: int, out: Path, report: Report) -> str:
    """Train a trial, from the start or from where it was stopped; "complete" or "stopped".

    Args:
        search: whose trial.
        number: number of the trial.
        out: the folder of the search.
        report: told the accuracy after every epoch. After a stop it may be told an epoch again.
    """
    settings = search.settings(number)
    look = held_out(online, rows=ROWS)

    verdict, unmeasured = "complete", ""
    folder = folder_of(out, number)
    if folder.is_dir() and any(r.get("stopped") == WORSE for r in Run(folder).history().records):
        return "stopped"  # and killed before this was known

    def callback(moment: Moment) -> Mapping[str, float]:
        nonlocal verdict, unmeasured
        try:
            measured = look(moment) or {}
            if search.measure not in measured:
                unmeasured = f"Its data give no `{search.measure}`."
        except ChiaroError as error:
            unmeasured = str(error)
        if unmeasured:
            raise StopTraining(unmeasured)
        if not report(moment.epoch + 1, measured[search.measure]):
            verdict = "stopped"
            raise StopTraining(WORSE)
        return measured

    train(settings, folder, [callback], resume=True)
    if unmeasured:
        raise ChiaroError(f"Epoch by epoch it cannot be judged: {unmeasured}")
    return verdict


def clear(out: Path, number: int) -> None:
    """Drop the weights of a trial that has ended; settings and history stay."""
    weights = folder_of(out, number) / "checkpoints"
    if weights.is_dir():
        try:
            shutil.rmtree(weights)
        except FileNotFoundError:
            return  # another worker was faster
        except OSError as error:
            raise ChiaroError(f"`{weights}` cannot be removed: {error.strerror}.") from None
