"""The demo: train on the bundled digits, evaluate, diagnose and write a report page."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import chiaroscuro as cs

__all__ = ["main"]

FRAMES = 10
"""Snapshots of the training, besides the untrained network: each is a map on the page."""


def main(out: str | None = None, overrides: Sequence[str] = ()) -> None:
    """Train on wandering digits, evaluate the result, write a report page and print its path.

    Handwritten digits are drawn at random positions, angles, sizes and colours. The network sees
    pairs of drawings of the same handwriting, and no labels. Held-out handwriting is then
    classified by nearest neighbours: of raw pixels, of the untrained and of the trained network.

    Args:
        out: folder for the runs of the demo; None is `chiaro-demo`.
        overrides: changes to the preset `demo`, as for `--set`.
    """
    folder = _next_free(Path(out or "chiaro-demo"))
    settings = cs.engine.read_settings("demo", overrides)
    print(
        "Training a small network without labels on handwritten digits at random positions, angles,"
        "\nsizes and colours. This takes about two minutes on two cores.",
        flush=True,
    )
    measure = cs.engine.held_out(
        cs.diagnostics.glance, rows=300, every=max(1, settings.epochs // 6)
    )
    monitors = [measure, cs.engine.snapshots(rows=500, every=max(1, settings.epochs // FRAMES))]
    shown = sys.stderr if sys.stderr.isatty() else None  # a bar; lines would only scroll by
    began = time.perf_counter()
    run = cs.train(settings, folder, monitors, progress=shown)
    seconds = time.perf_counter() - began
    opened = cs.engine.open_run(run)
    cs.embed(opened).save(run.embeddings("all"))
    results = cs.evaluate(opened, probes=["ridge"])
    print(f"\nTrained in {seconds:.0f} s. Accuracy on held-out handwriting:\n")
    print(cs.diagnostics.table(results))
    diagnosis = cs.diagnose(opened)
    page = cs.report(run, run.folder / "report.html")
    print(f"\n{_learned(results)}\nDiagnosis: {_diagnosed(diagnosis)}")
    print(
        f"\nrun: {run.folder}\nnext: `chiaro train photos/` with a folder of your own images, or "
        f"`chiaro diagnose {run.folder}`\nopen this page: {page}"
    )


def _learned(results: Mapping[str, Any]) -> str:
    """Return what was learned, as a sentence."""
    rows = results["results"]
    name = lambda row: f"{100 * rows[row]['knn_20']:.0f} %"
    return (
        f"Learned: nearest neighbours recognise {name('encoder')} of the digits, and "
        f"{name('input')} in raw pixels."
    )


def _diagnosed(diagnosis: cs.diagnostics.Diagnosis) -> str:
    """Return the verdict, without the numbers that the table above already has."""
    if diagnosis.state != "nothing found":
        return diagnosis.verdict
    notes = len(diagnosis.findings)
    more = f", {notes} note{'s' * (notes != 1)}" if notes else ""
    return f"no problem found by {len(diagnosis.checks)} checks{more}."


def _next_free(folder: Path) -> Path:
    """Return the first free `run-N` in a folder, or beside it if it is a run itself."""
    if (folder / "settings.toml").is_file():
        folder = folder.parent
    taken = {path.name for path in folder.glob("run-*")}
    return folder / next(f"run-{n}" for n in range(1, len(taken) + 2) if f"run-{n}" not in taken)
