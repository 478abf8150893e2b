"""Rows that a measure singles out, with what is known of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record, plain

__all__ = ["LISTED", "Listed"]

LISTED = 100_000
"""Rows that are listed at most, the worst first."""


@dataclass(frozen=True, eq=False)
class Listed(Record):
    """A list of rows with something in common, the worst first.

    Args:
        says: what they have in common, in a sentence.
        rows: (m,) row numbers.
        columns: (m,) each, by name; `score` is what they are sorted by, where there is one.
        pointers: names of the columns that are row numbers themselves, such as `twin`.
        total: how many there are, if `rows` are only the worst of them.
        ids: (m,) identifiers, where the rows have any.

    Example:
        >>> Listed("are zero", np.array([4, 9]), {"norm": np.zeros(2)}).table()
        {'row': [4, 9], 'norm': [0.0, 0.0]}
    """

    says: str
    rows: np.ndarray
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    pointers: tuple[str, ...] = ()
    total: int | None = None
    ids: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            need(
                len(column) == len(self.rows),
                lambda name=name, column=column: (
                    f"`Listed` needs a value for each of {len(self.rows)} rows; `{name}` has "
                    f"{len(column)}."
                ),
            )

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, most: int = LISTED) -> Listed:
        """Return the worst so many of them; `total` still counts all."""
        total = len(self.rows) if self.total is None else self.total
        columns = {name: column[:most] for name, column in self.columns.items()}
        return replace(self, rows=self.rows[:most], columns=columns, total=total)

    def of(self, numbers: np.ndarray) -> Listed:
        """Return the same rows by their numbers in a larger whole: row i there is numbers[i]."""
        columns = {
            name: np.where(column >= 0, numbers[column], -1) if name in self.pointers else column
            for name, column in self.columns.items()
        }
        return replace(self, rows=numbers[self.rows], columns=columns)

    def named(self, ids: Callable[[np.ndarray], np.ndarray]) -> Listed:
        """Return the same with identifiers of the rows, and of those they point to."""
        columns = dict(self.columns)
        for name in self.pointers:
            known = columns[name] >= 0
            called = ids(np.where(known, columns[name], 0)).astype(str).astype(object)
            columns[f"{name}_id"] = np.where(known, called, "")
        return replace(self, ids=ids(self.rows), columns=columns)

    def table(self) -> dict[str, list[Any]]:
        """Return the columns as plain lists: `row`, `id` where there are ids, and the others."""
        ids = {} if self.ids is None else {"id": self.ids}
        return {
            k: plain(np.asarray(v))
            for k, v in ({"row": self.rows} | ids | {**self.columns}).items()
        }

    def json(self) -> dict[str, Any]:
        """Return what a page and a program read: `says`, `total`, `ids` and the columns."""
        table = self.table()
        total = len(self.rows) if self.total is None else self.total
        ids = table.pop("id", table["row"])
        return {"says": self.says, "total": total, "ids": ids, **table}
