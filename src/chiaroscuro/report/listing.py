"""The runs of one folder, as the live list shows them; nothing outside the folder is read."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts import Run
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.report.document import history_of
from chiaroscuro.report.packing import short
from chiaroscuro.report.reading import find_runs

__all__ = ["Listing"]

_IDLE = 120  # seconds without a new record, after which an unfinished run counts as stopped
_CURVE = 60  # points of a small curve


class Listing:
    """The runs in a folder, by an identifier that is no path.

    An identifier is looked up among the runs that are there, never joined to a path. A run with a
    link that leads out of the folder is not listed.

    Args:
        folder: the only one that is read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Run.create(Path(folder) / "one", {"seed": 0, "epochs": 3})
        ...     [run["name"] for run in Listing(folder).rows()]
        ['one']
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).resolve()
        need(self.folder.is_dir(), lambda: f"There is no folder `{folder}`.")

    def runs(self) -> dict[str, Path]:
        """Run folders by identifier."""
        found = find_runs(self.folder)
        return {self._identifier(path): path for path in found if self._inside(path)}

    def _identifier(self, path: Path) -> str:
        name = path.relative_to(self.folder).as_posix()
        return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]

    def _inside(self, run: Path) -> bool:
        """Whether all of a run is in the folder, with every link followed."""
        own = (run, *run.iterdir(), *(run / "embeddings").glob("*"), *(run / "labs").rglob("*"))
        return all(path.resolve().is_relative_to(self.folder) for path in own)

    def named(self, path: Path) -> str:
        """What a run is called: its place in the folder."""
        name = path.relative_to(self.folder).as_posix()
        return path.name if name == "." else name

    def rows(self) -> list[dict[str, Any]]:
        """One record per run, for the table."""
        out = []
        for identifier, path in self.runs().items():
            try:
                out.append({"id": identifier, "name": self.named(path), **_row(Run.open(path))})
            except (ChiaroError, OSError) as error:
                out.append({"id": identifier, "name": self.named(path), **_NOTHING} | _said(error))
        return out

    def mark(self, path: Path) -> tuple[int, ...]:
        """Changes whenever the run has something new to show."""
        parts = ("history.jsonl", "settings.toml", "diagnosis.json", "evaluation.json")
        files = [path / part for part in parts]
        files += sorted((path / "embeddings").glob("*.npz"))
        stats = [file.stat() for file in files if file.exists()]
        return tuple(number for one in stats for number in (one.st_size, one.st_mtime_ns))

    def news(self, path: Path) -> dict[str, Any]:
        """What a live page needs to go on: the curves, and how many snapshots there are."""
        records = Run.open(path).history().records
        frames = len(list((path / "embeddings").glob("epoch-*.npz")))
        return short({"training": history_of(records), "snapshots": frames})


_NOTHING: dict[str, Any] = dict.fromkeys(
    ("epoch", "epochs", "loss", "online", "accuracy", "findings")
)


def _said(error: Exception) -> dict[str, Any]:
    return {"state": "stopped", "about": str(error), "changed": 0.0, "curve": []}


def _row(run: Run) -> dict[str, Any]:
    settings = run.settings()
    records = run.history().records
    epochs = [one for one in records if "epoch" in one]
    losses = [one.get("mean_loss", one.get("loss")) for one in epochs or records]
    file = run.folder / "history.jsonl"
    changed = (file if file.exists() else run.folder / "settings.toml").stat().st_mtime
    planned = settings.get("epochs")
    done = bool(epochs) and isinstance(planned, int) and epochs[-1]["epoch"] >= planned
    idle = time.time() - changed > _IDLE
    network = settings.get("network")
    encoder = network.get("encoder", "") if isinstance(network, Mapping) else ""
    diagnosis = run.diagnosis()
    return short(
        {
            "about": f"{settings.get('objective', '')} · {encoder}",
            "state": "finished" if done else "stopped" if idle else "training",
            "epoch": epochs[-1]["epoch"] if epochs else None,
            "epochs": planned,
            "loss": losses[-1] if losses else None,
            "accuracy": _accuracy(run),
            "online": next((e["online_knn"] for e in reversed(epochs) if "online_knn" in e), None),
            "findings": None if diagnosis is None else len(diagnosis.get("findings") or []),
            "curve": _thinned(losses),
        }
    ) | {"changed": round(changed, 1)}  # a time has more than six figures


def _accuracy(run: Run) -> float | None:
    """Of the evaluation, on held-out data."""
    path = run.folder / "evaluation.json"
    if not path.is_file():
        return None
    try:
        return float(json.loads(path.read_bytes())["results"]["encoder"]["knn_20"])
    except (ValueError, LookupError, TypeError):
        return None


def _thinned(values: Sequence[Any]) -> list[Any]:
    step = max(1, len(values) // _CURVE)
    return list(values[::step])
