"""List the runs of one folder for the live page; nothing outside the folder is read."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts import Run
from chiaroscuro.artifacts.bounded import open_regular
from chiaroscuro.artifacts.files import read_json
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.report.document import history_of, is_number
from chiaroscuro.report.packing import readable, short
from chiaroscuro.report.subject import find_runs
from chiaroscuro.report.tail import Tails

__all__ = ["Listing", "Snapshot"]

_IDLE = 120.0  # seconds without a record after which an unfinished run may count as stopped,
_EPOCHS = 3.0  # but not before so many of its longest epochs have passed,
_FIRST_STEPS = 3600.0  # nor in the first epoch, whose length nobody knows: after its last step
_FIRST_EPOCH = 86400.0  # and before its first
_CURVE = 60  # points of a small curve
_REASON = 300  # letters of a reason
_WATCHED = ("history.jsonl", "settings.toml", "diagnosis.json", "evaluation.json", "embeddings")


@dataclass(frozen=True)
class Snapshot:
    """What one look at the folder saw.

    Args:
        version: grows whenever a row, or the set of rows, is not what it was.
        rows: one record per run by identifier; the same object as before if it did not change.
        paths: run folders by identifier.
    """

    version: int
    rows: Mapping[str, dict[str, Any]]
    paths: Mapping[str, Path]


@dataclass
class _CachedRun:
    """What is remembered of a run, and under which state of its files it holds."""

    guard: tuple[int, ...] | None = None
    folders: list[Path] = field(default_factory=list)
    inside: bool = False
    mark: tuple[int, ...] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict)


class Listing:
    """The runs in a folder, by an identifier that is no path.

    An identifier is looked up among the runs that are there, never joined to a path. A run with a
    link that leads out of the folder is not listed. A run that cannot be read is listed with the
    reason, and hides no other. What did not change on disk is not read again.

    Args:
        folder: the only one that is read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Run.create(Path(folder) / "one", {"seed": 0, "epochs": 3})
        ...     [(run["name"], run["state"]) for run in Listing(folder).rows()]
        [('one', 'starting')]
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).resolve()
        need(self.folder.is_dir(), lambda: f"There is no folder `{folder}`.")
        self._cached: dict[Path, _CachedRun] = {}
        self._tails = Tails()
        self._last = Snapshot(0, {}, {})

    def look(self) -> Snapshot:
        """Look at the folder: every run that is there now. One thread at a time."""
        try:
            paths = find_runs(self.folder)
        except ChiaroError:  # the folder itself is gone, or closed to us
            paths = []
        now: dict[str, dict[str, Any]] = {}
        places: dict[str, Path] = {}
        known: dict[Path, _CachedRun] = {}
        for path in paths:
            one = self._cached.get(path) or _CachedRun()
            try:
                if not self._refresh(path, one):
                    continue
            except (FileNotFoundError, NotADirectoryError):  # it was removed between two looks
                continue
            except OSError as error:
                one = _CachedRun(row=self._row(path, {**_EMPTY, "problem": _reason(error)}))
            known[path] = one
            identifier = self._identifier(path)
            now[identifier], places[identifier] = one.row, path
        self._cached = known
        last = self._last
        same = list(now) == list(last.rows) and all(
            mine is last.rows[key] for key, mine in now.items()
        )
        if not same:
            self._last = Snapshot(last.version + 1, now, places)
        return self._last

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per run, for the table."""
        return list(self.look().rows.values())

    def path(self, identifier: str) -> Path | None:
        """Return the folder of a run by its identifier, with its links followed once more."""
        path = self._last.paths.get(identifier) or self.look().paths.get(identifier)
        return path if path is not None and self.inside(path) else None

    def inside(self, run: Path) -> bool:
        """Return whether all of a run is in the folder, with every link followed."""
        try:
            return self._inside(_entries(run))
        except OSError:
            return False

    def _inside(self, entries: Sequence[tuple[Path, bool]]) -> bool:
        """Whether all entries lie in the folder; a link in a circle leads nowhere."""
        return all(
            not link or _resolved(path).is_relative_to(self.folder) for path, link in entries
        )

    def _refresh(self, path: Path, one: _CachedRun) -> bool:
        """Bring what is known of a run up to date; False if it is not to be listed."""
        guard = _times(one.folders)
        if guard is None or guard != one.guard:
            entries = _entries(path)
            one.inside = self._inside(entries)
            one.folders = [path, *(p for p, _ in entries if p.is_dir() and not p.is_symlink())]
            # a link may lead elsewhere tomorrow though nothing here changes: look again each time
            one.guard = None if any(link for _, link in entries) else _times(one.folders)
        if not one.inside:
            return False
        mark = self.mark(path)
        if mark != one.mark:
            one.facts = _facts(path, self._tails)
            one.mark = mark
        row = self._row(path, one.facts)
        if row != one.row:
            one.row = row
        return True

    def _row(self, path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": self._identifier(path),
            "name": readable(self.named(path)),
            **{key: value for key, value in facts.items() if key not in ("done", "wait")},
            "state": _state(path, facts),
        }

    def _identifier(self, path: Path) -> str:
        name = path.relative_to(self.folder).as_posix()
        return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]

    def named(self, path: Path) -> str:
        """Return what a run is called: its place in the folder."""
        name = path.relative_to(self.folder).as_posix()
        return path.name if name == "." else name

    def mark(self, path: Path) -> tuple[int, ...]:
        """Return numbers that change whenever the run has something new to show.

        A snapshot is written beside its place and renamed, which the folder's own time tells.
        """
        numbers: list[int] = []
        for name in _WATCHED:
            try:
                status = os.stat(path / name)
            except OSError:
                numbers += (-1, -1)
                continue
            numbers += (status.st_size, status.st_mtime_ns)
        return tuple(numbers)

    def news(self, path: Path) -> dict[str, Any]:
        """Return what a live page needs to go on: the curves, and how many snapshots there are."""
        try:
            records = self._tails.history(path).records
        except (ChiaroError, OSError) as error:
            return {"problem": _reason(error)}
        frames = len(list((path / "embeddings").glob("epoch-*.npz")))
        return short({"training": history_of(records), "snapshots": frames})


# ---- files ----


def _entries(run: Path) -> list[tuple[Path, bool]]:
    """Return what a report may read of a run: each path, and whether it is a link."""
    entries = list(_scan(run))
    below = [run / "embeddings", run / "labs"]
    for folder in below:
        if folder.is_dir() and not folder.is_symlink():
            for path, link in _scan(folder):
                entries.append((path, link))
                if folder.parts[len(run.parts)] == "labs" and not link and path.is_dir():
                    below.append(path)
    return entries


def _scan(folder: Path) -> Iterator[tuple[Path, bool]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield folder / entry.name, entry.is_symlink()


def _resolved(path: Path) -> Path:
    """Return where a path leads; itself if in a circle, over which pathlib raises RuntimeError."""
    try:
        return path.resolve()
    except RuntimeError:
        return path


def _times(folders: Sequence[Path]) -> tuple[int, ...] | None:
    """When the names in each folder last changed; None if one is not there."""
    try:
        return tuple(os.stat(folder).st_ctime_ns for folder in folders) or None
    except OSError:
        return None


# ---- rows ----

_EMPTY: dict[str, Any] = {
    **dict.fromkeys(("epoch", "epochs", "loss", "online", "accuracy", "findings", "problem")),
    "about": "",
    "changed": 0.0,
    "curve": [],
    "done": False,
    "wait": 0.0,
}


def _facts(path: Path, tails: Tails) -> dict[str, Any]:
    """Return what the table shows of a run, or why it cannot be read."""
    try:
        return _row(Run(path), tails)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one run is said in its row
        if not (path / "settings.toml").is_file():
            raise FileNotFoundError(path) from None
        return {**_EMPTY, "problem": _reason(error)}


def _reason(error: Exception) -> str:
    known = isinstance(error, ChiaroError)
    text = readable(str(error) if known else f"{type(error).__name__}: {error}")
    return text if len(text) <= _REASON else f"{text[:_REASON]}…"


def _row(run: Run, tails: Tails) -> dict[str, Any]:
    settings = run.settings()
    history = tails.history(run.folder)
    problems = [*history.problems[:1]]
    epochs = [one for one in history.records if "epoch" in one]
    for one, name in itertools.product(epochs, ("epoch", "mean_loss")):
        if name in one and not is_number(one[name]) and one[name] is not None:
            problems.append(f"`{name}` in `history.jsonl` needs a number; received {one[name]!r}.")
            break
    epochs = [one for one in epochs if is_number(one["epoch"])]
    losses = [one.get("mean_loss", one.get("loss")) for one in epochs or history.records]
    losses = [loss if is_number(loss) else None for loss in losses]
    planned = settings.get("epochs")
    if planned is not None and not is_number(planned):
        problems.append(f"`epochs` in `settings.toml` needs a number; received {planned!r}.")
        planned = None
    network = settings.get("network")
    encoder = network.get("encoder", "") if isinstance(network, Mapping) else ""
    online = [one["online_knn"] for one in epochs if is_number(one.get("online_knn"))]
    file = run.folder / "history.jsonl"
    changed = (file if file.is_file() else run.folder / "settings.toml").stat().st_mtime
    last = epochs[-1]["epoch"] if epochs else None
    row = {
        "about": f"{settings.get('objective', '')} · {encoder}",
        "epoch": last,
        "epochs": planned,
        "loss": losses[-1] if losses else None,
        "accuracy": _accuracy(run, problems),
        "online": online[-1] if online else None,
        "findings": _findings(run, problems),
        "curve": _thinned(losses),
        "done": last is not None and planned is not None and last >= planned,
        "wait": _wait(epochs, bool(history.records)),
        "problem": _reason(ChiaroError(problems[0])) if problems else None,
    }
    return short(row) | {"changed": round(changed, 1)}  # a time has more than six figures


def _state(path: Path, facts: Mapping[str, Any]) -> str:
    if facts["done"]:
        return "finished"
    if not facts["changed"]:
        return "unreadable"
    writing = _is_written(path)
    if writing is None:  # nothing says so: by how long it has been silent
        writing = time.time() - facts["changed"] <= facts["wait"]
    return ("starting" if facts["epoch"] is None else "training") if writing else "stopped"


def _is_written(run: Path) -> bool | None:
    """Return whether the process that `writer.lock` names is alive; None where it names none of
    ours.
    """
    path = run / "writer.lock"
    if not path.is_file():
        return None
    try:
        with open_regular(path) as file:
            holder = json.loads(file.read(1000))
        if holder["host"] != socket.gethostname() or type(holder["pid"]) is not int:
            return None
        if holder["pid"] <= 0:
            return None
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, and somebody else's
        return True
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None
    except ChiaroError:  # it cannot be read
        return None
    return True


def _wait(epochs: Sequence[Mapping[str, Any]], begun: bool) -> float:
    """Seconds of silence that a run of this pace may have before it counts as stopped."""
    if not epochs:
        return _FIRST_STEPS if begun else _FIRST_EPOCH
    timed = [
        (one["epoch"], float(one["seconds"])) for one in epochs if is_number(one.get("seconds"))
    ]
    pairs = itertools.pairwise(
        [(0, 0.0), *timed]
    )  # of thinned epochs only neighbours tell the pace
    longest = max((after - before for (a, before), (b, after) in pairs if b - a == 1), default=0.0)
    return max(_IDLE, _EPOCHS * longest)


def _findings(run: Run, problems: list[str]) -> int | None:
    diagnosis = run.diagnosis()
    listed = None if diagnosis is None else diagnosis.get("findings") or []
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        problems.append("`findings` in `diagnosis.json` needs a list of objects.")
        return None
    return len(listed)


def _accuracy(run: Run, problems: list[str]) -> float | None:
    """Read the held-out accuracy of the evaluation, if there is one."""
    path = run.folder / "evaluation.json"
    if not path.is_file():
        return None
    value = read_json(path)
    for key in ("results", "encoder", "knn_20"):
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is not None and not is_number(value):
        problems.append("`knn_20` in `evaluation.json` needs a number.")
        return None
    return value


def _thinned(values: Sequence[Any]) -> list[Any]:
    step = max(1, len(values) // _CURVE)
    return list(values[::step])
