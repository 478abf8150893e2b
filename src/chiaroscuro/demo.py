"""The main job on the embedded data: train, embed, evaluate beside two controls."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import chiaroscuro as cs

__all__ = ["main"]


def main(out: str | None = None, overrides: Sequence[str] = ()) -> None:
    """Train on wandering digits, evaluate the result, and print a table and where the files are.

    Handwritten digits at random places, turns and colours; the network sees pairs of drawings of
    one handwriting, and no label. Then the nearest neighbours of held-out handwriting name the
    digit: by raw pixels, by the untrained network, by the trained one.

    Args:
        out: the folder for runs, each in its own; `chiaro-demo` unless given.
        overrides: of the preset `digits`, as for `--set`.
    """
    folder = _next(Path(out or "chiaro-demo"))
    settings = cs.engine.read_settings("digits", overrides)
    print(f"training on wandering digits: {settings.epochs} epochs, batch {settings.batch}")
    print(f"  {settings.objective}\n  {settings.network.encoder}\n  {settings.network.projector}")
    sys.stdout.flush()
    look = cs.engine.held_out(cs.diagnostics.glance, rows=300, every=max(1, settings.epochs // 6))
    began = time.perf_counter()
    monitors = [look, cs.engine.snapshots(rows=500)]
    run = cs.train(settings, folder, monitors, progress=sys.stderr)
    seconds = time.perf_counter() - began
    embeddings = cs.embed(run)
    path = embeddings.save(run.embeddings("all"))
    found = cs.diagnostics.evaluate(embeddings, probes=["ridge"])
    results = run.folder / "evaluation.json"
    results.write_text(json.dumps(found, indent=2) + "\n")
    print(f"trained in {seconds:.0f} s; which digit is it?")
    print(cs.diagnostics.table(found))
    diagnosis = cs.diagnose(run)
    print(f"diagnosis: {diagnosis.verdict}")
    page = cs.report(run, run.folder / "report.html")
    print(f"run: {run.folder}\nembeddings: {path}\nnumbers: {results}\npage to look at: {page}")


def _next(folder: Path) -> Path:
    """The first `run-N` that is not there yet."""
    taken = {path.name for path in folder.glob("run-*")}
    return folder / next(f"run-{n}" for n in range(1, len(taken) + 2) if f"run-{n}" not in taken)
