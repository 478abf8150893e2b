"""The settings with which a run goes on: the same, but for what a resumed run may change."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from chiaroscuro.artifacts import Run
from chiaroscuro.engine.read_settings import read_settings
from chiaroscuro.engine.settings import WITHOUT_EFFECT, Settings
from chiaroscuro.errors import need

__all__ = ["Changes", "changes", "continued"]

_LR = "optimiser.lr"


def continued(folder: str | os.PathLike, overrides: Iterable[str] = ()) -> Settings:
    """Return the settings for continuing a run. Nothing is written: `train(resume=True)` does so.

    Overrides may lengthen training (`epochs`), say where the data are now (`data.source`; they have
    to be the same data), lower the learning rate of a run that diverged (`optimiser.lr`), and
    change what has no effect on the weights.

    Args:
        folder: folder of the run.
        overrides: `key=value`, as for `--set`.
    """
    run = Run.open(folder)
    after = read_settings(Settings.of(run.settings()), overrides)
    changes(run, after)
    return after


@dataclass(frozen=True)
class Changes:
    """What a run goes on with that it did not begin with.

    Args:
        any: whether any setting differs.
        records: for the history.
        notes: sentences to say before the first step.
    """

    any: bool = False
    records: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def changes(run: Run, after: Settings) -> Changes:
    """Return how settings differ from those of a run, and refuse what a resumed run cannot change.

    Args:
        run: to go on with.
        after: the settings to go on with.
    """
    before = Settings.of(run.settings())
    old, new = _flat(before.table()), _flat(after.table())
    changed = {key for key in new if new[key] != old[key]}
    diverged = any("diverged" in record for record in run.history().records[-1:])
    allowed = {"epochs", "data.source", *([_LR] if diverged and new[_LR] < old[_LR] else [])}
    refused = sorted(key for key in changed - allowed if not key.startswith(WITHOUT_EFFECT))
    need(
        not refused,
        lambda: (
            f"Resuming `{run.folder}` can change `epochs`, `data.source` and `saving`, and lower "
            f"`{_LR}` after a divergence; `{refused[0]}` was {old[refused[0]]!r} and is "
            f"{new[refused[0]]!r} now. Train a new run, from these weights if you like: `--init "
            f"{run.folder}`."
        ),
    )
    need(
        after.epochs >= before.epochs,
        lambda: (
            f"`{run.folder}` was asked for {before.epochs} epochs; resuming can add to them, not "
            f"stop at {after.epochs}."
        ),
    )
    continued = Changes(bool(changed))
    if after.epochs > before.epochs:
        continued.records.append({"epochs_before": before.epochs, "epochs_now": after.epochs})
        continued.notes.append(
            f"{after.epochs} epochs in place of {before.epochs}: the schedule "
            f"`{after.schedule.name}` is that of a run of {after.epochs} epochs from here on, so "
            "that the learning rate may rise again."
        )
    if _LR in changed:
        continued.records.append({"lr_lowered_from": old[_LR], "lr_lowered_to": new[_LR]})
        continued.notes.append(f"`{_LR}` is {new[_LR]:g} in place of {old[_LR]:g} from here on.")
    return continued


def _flat(table: dict[str, Any], under: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        inner = isinstance(value, dict)
        flat |= _flat(value, f"{under}{key}.") if inner else {f"{under}{key}": value}
    return flat
