"""The history of a run that is being written: every line is read once, and memory is bounded."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts.bounded import fits, open_regular
from chiaroscuro.artifacts.run import History, record_of

__all__ = ["Tails"]

KEPT = 4000
"""Records of steps, and of epochs, that are kept of a run; beyond, every other old one goes."""
RUNS = 16
"""Runs whose records are kept: those that changed last."""
_LAST = 64  # bytes before the end that have to be the same, or the file is another one


class Tails:
    """The histories of the runs that changed last.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "history.jsonl").write_text('{"step": 1, "loss": 2.0}\\n')
        ...     Tails().history(Path(folder)).records
        [{'step': 1, 'loss': 2.0}]
    """

    def __init__(self) -> None:
        self._tails: OrderedDict[Path, _Tail] = OrderedDict()
        self._lock = threading.Lock()

    def history(self, run: Path) -> History:
        """Return the records of a run, thinned if there are many, and what is wrong with lines."""
        with self._lock:
            tail = self._tails.pop(run, None) or _Tail(run / "history.jsonl")
            history = tail.read()
            self._tails[run] = tail
            while len(self._tails) > RUNS:
                self._tails.popitem(last=False)
            return history


class _Tail:
    """One growing file of records."""

    def __init__(self, path: Path):
        self.path = path
        self._start_again()

    def _start_again(self) -> None:
        self.offset, self.lines, self.last = 0, 0, b""
        self.identity: tuple[int, int] | None = None
        self.steps = _Thinned()
        self.epochs = _Thinned()
        self.problem: str | None = None

    def read(self) -> History:
        """Read what was added, and return all that is kept."""
        if not self.path.exists():
            self._start_again()
            return History([], [])
        with open_regular(self.path) as file:
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino)
            if identity != self.identity or status.st_size < self.offset or self._differs(file):
                self._start_again()
                self.identity = identity
            fits(f"`{self.path}`", status.st_size - self.offset)
            file.seek(self.offset)
            added = file.read(status.st_size - self.offset)
        whole = added[: added.rfind(b"\n") + 1]
        for line in whole.split(b"\n")[:-1]:
            self._take(line)
        self.offset += len(whole)
        self.last = (self.last + whole)[-_LAST:]
        problems = [] if self.problem is None else [self.problem]
        if len(added) > len(whole):
            problems.append(
                f"`{self.path.name}` ends in {len(added) - len(whole)} bytes without a line end."
            )
        records = sorted(
            [*self.steps.kept(), *self.epochs.kept()], key=lambda numbered: numbered[0]
        )
        return History([record for _, record in records], problems)

    def _differs(self, file: Any) -> bool:
        """Whether the file no longer holds what was read before."""
        file.seek(self.offset - len(self.last))
        return file.read(len(self.last)) != self.last

    def _take(self, line: bytes) -> None:
        self.lines += 1
        record, wrong = record_of(line)
        if record is None:
            self.problem = self.problem or (
                f"`{self.path.name}` line {self.lines} is left out: {wrong}."
            )
            return
        (self.epochs if "epoch" in record else self.steps).add(self.lines, record)


class _Thinned:
    """At most some thousand numbered records: evenly spaced ones, and always the last."""

    def __init__(self) -> None:
        self.every, self.seen = 1, 0
        self.records: list[tuple[int, dict[str, Any]]] = []
        self.newest: tuple[int, dict[str, Any]] | None = None

    def add(self, number: int, record: dict[str, Any]) -> None:
        self.newest = number, record
        if self.seen % self.every == 0:
            self.records.append(self.newest)
            if len(self.records) > KEPT:
                self.records = self.records[::2]
                self.every *= 2
        self.seen += 1

    def kept(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the records with their numbers."""
        if self.newest is None or self.records[-1] is self.newest:
            return self.records
        return [*self.records, self.newest]
