"""What a search found: one format, whichever engine ran it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from chiaroscuro.artifacts.files import newer, read_json, replace, to_json
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.tuning.search import SEARCH_FORMAT, Search, read_search

__all__ = ["STATES", "SearchResult", "Trial", "read_result", "write_result", "write_text"]

STATES = ("waiting", "running", "complete", "stopped", "failed")
"""Of a trial: the last three have ended."""


@dataclass(frozen=True)
class Trial:
    """One trial of a search.

    Args:
        number: from 0.
        state: one of `STATES`.
        values: what was drawn, by name.
        curve: (epoch, accuracy) of each look.
        why: of a trial that failed, the sentence.
    """

    number: int
    state: str
    values: dict[str, Any]
    curve: tuple[tuple[int, float], ...] = ()
    why: str = ""

    @property
    def value(self) -> float | None:
        """The accuracy at the last look; None before the first."""
        return self.curve[-1][1] if self.curve else None

    @property
    def epochs(self) -> int:
        """How far it came."""
        return self.curve[-1][0] if self.curve else 0

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in STATES[2:]


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search, in their order.

    Args:
        search: what was searched.
        trials: one of each number.
    """

    search: Search
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The complete trial of the largest accuracy at its end, the first of equals."""
        whole = [trial for trial in self.trials if trial.state == "complete" and trial.curve]
        return max(whole, key=lambda trial: (trial.curve[-1][1], -trial.number), default=None)

    @property
    def epochs(self) -> int:
        """Trained in all."""
        return sum(trial.epochs for trial in self.trials)

    def count(self, state: str) -> int:
        """Trials in a state."""
        return sum(trial.state == state for trial in self.trials)

    def json(self) -> dict[str, Any]:
        """As `trials.json` holds it."""
        best = self.best
        return {
            "format": SEARCH_FORMAT,
            "measure": self.search.measure,
            "space": {name: repr(law) for name, law in self.search.space.items()},
            "best": None if best is None else best.number,
            "trials": [{**dataclasses.asdict(t), "value": t.value} for t in self.trials],
        }


def write_result(result: SearchResult, out: Path) -> None:
    """`trials.json`, and `best.toml` once a trial is complete: settings for `chiaro train`."""
    text = to_json(result.json(), indent=1) + "\n"
    write_text(out / "trials.json", text)
    if (best := result.best) is not None:
        write_text(out / "best.toml", result.search.settings(best.number).toml())


def write_text(path: Path, text: str) -> None:
    """A file, whole or not at all."""

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    replace(path, write)


def read_result(out: str | Path) -> SearchResult:
    """Read the result of a search from its folder.

    Args:
        out: the folder.
    """
    path = Path(out) / "trials.json"
    need(path.is_file(), lambda: f"`{out}` holds no search: it has no `trials.json`.")
    table = read_json(path)
    if not (isinstance(table, dict) and isinstance(table.get("trials"), list)):
        raise ChiaroError(f"`{path}` needs an object with `trials`; it holds another value.")
    newer(f"`{path}`", table.get("format"), SEARCH_FORMAT)
    try:
        trials = tuple(
            Trial(
                row["number"],
                row["state"],
                row["values"],
                tuple((int(epoch), float(value)) for epoch, value in row["curve"]),
                row["why"],
            )
            for row in table["trials"]
        )
    except (LookupError, TypeError, ValueError) as error:
        raise ChiaroError(f"`{path}` is damaged: {type(error).__name__}: {error}.") from None
    return SearchResult(read_search(Path(out) / "search.toml"), trials)
