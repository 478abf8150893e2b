"""The demo: train on the bundled digits, evaluate beside two controls, diagnose, write a page."""

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
    """Train on wandering digits, evaluate the result, and print a table and where the page is.

    Handwritten digits at random places, angles, sizes and colours; the network sees pairs of
    drawings of one handwriting, and no label. Then the nearest neighbours of held-out handwriting
    name the digit: by raw pixels, by the untrained network, by the trained one.

    Args:
        out: the folder for runs, each in its own; `chiaro-demo` unless given.
        overrides: changes of the preset `demo`, as for `--set`.
    """
    folder = _next_free(Path(out or "chiaro-demo"))
    settings = cs.engine.read_settings("demo", overrides)
    print(
        "Handwritten digits at random places, angles, sizes and colours. A small network learns, "
        "without\nlabels, which two drawings show the same handwriting: about two minutes on two "
        "cores.",
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
    print(f"\nTrained in {seconds:.0f} s. Which digit is it? (held-out handwriting)\n")
    print(cs.diagnostics.table(results))
    diagnosis = cs.diagnose(opened)
    page = cs.report(run, run.folder / "report.html")
    print(f"\n{_learned(results)}\nDiagnosis: {diagnosis.verdict}")
    print(
        "\nTry next: `chiaro train photos/` with a folder of your own images, or "
        f"`chiaro diagnose {run.folder}`.\nrun: {run.folder}\nopen this page: {page}"
    )


def _learned(results: Mapping[str, Any]) -> str:
    """Return what was learned, as a sentence."""
    rows = results["results"]
    name = lambda row: f"{100 * rows[row]['knn_20']:.0f} %"
    return (
        f"Learned: neighbours in pixel space name {name('input')} of the digits, in the trained "
        f"space {name('encoder')}."
    )


def _next_free(folder: Path) -> Path:
    """Return the first `run-N` that is not there yet, beside a run if `folder` is one itself."""
    if (folder / "settings.toml").is_file():
        folder = folder.parent
    taken = {path.name for path in folder.glob("run-*")}
    return folder / next(f"run-{n}" for n in range(1, len(taken) + 2) if f"run-{n}" not in taken)
