"""`continued`: the settings with which a run goes on, for longer where that is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, BinaryIO

from chiaroscuro.artifacts import Run, to_toml
from chiaroscuro.artifacts.files import replace
from chiaroscuro.artifacts.run import RUN_FORMAT
from chiaroscuro.engine.read_settings import read_settings
from chiaroscuro.engine.settings import WITHOUT_EFFECT, Settings
from chiaroscuro.errors import need

__all__ = ["continued"]


def continued(
    folder: str | os.PathLike, overrides: Iterable[str] = ()
) -> tuple[Settings, list[str]]:
    """Return the settings of a run to go on with, and what to say about them.

    Overrides may lengthen training (`epochs`), say where the data are now (`data.source`; they have
    to be the same data), and change what has no effect on the weights. More epochs are written into
    the run's settings and its history.

    Args:
        folder: of the run.
        overrides: `key=value`, as for `--set`.
    """
    run = Run.open(folder)
    before = Settings.of(run.settings())
    after = read_settings(before, overrides)
    old, new = _flat(before.table()), _flat(after.table())
    changed = {key for key in new if new[key] != old[key]}
    refused = sorted(
        key
        for key in changed - {"epochs", "data.source"}
        if not key.startswith(tuple(WITHOUT_EFFECT))
    )
    need(
        not refused,
        lambda: (
            f"Resuming `{folder}` can change `epochs`, `data.source` and `saving`; `{refused[0]}` "
            f"was {old[refused[0]]!r} and is {new[refused[0]]!r} now. Train a new run, from these "
            f"weights if you like: `--init {folder}`."
        ),
    )
    need(
        after.epochs >= before.epochs,
        lambda: (
            f"`{folder}` was asked for {before.epochs} epochs; resuming can add to them, not stop "
            f"at {after.epochs}."
        ),
    )
    notes = []
    if changed:
        text = to_toml({"format": RUN_FORMAT, **after.table()}).encode()

        def write(file: BinaryIO) -> None:
            file.write(text)

        replace(run.folder / "settings.toml", write)
    if after.epochs > before.epochs:
        notes.append(
            f"{after.epochs} epochs in place of {before.epochs}: the schedule "
            f"`{after.schedule.name}` is that of a run of {after.epochs} epochs from here on, so "
            "that the learning rate may rise again."
        )
        last = max((int(r["step"]) for r in run.history().records if "step" in r), default=0)
        run.append({"step": last, "epochs_before": before.epochs, "epochs_now": after.epochs})
    return after, notes


def _flat(table: dict[str, Any], under: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        inner = isinstance(value, dict)
        flat |= _flat(value, f"{under}{key}.") if inner else {f"{under}{key}": value}
    return flat
