"""Two embeddings beside each other: their measures, and which is better for which rows."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.assembly.diagnosis import Diagnosis
from chiaroscuro.errors import need
from chiaroscuro.extras import bring
from chiaroscuro.measures import CATALOGUE, Listed, Versus, versus
from chiaroscuro.measures.record import Record, plain

__all__ = ["Comparison", "compare"]

COMPARISON_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Comparison(Record):
    """Comparison of two diagnoses, and of the rows that both have.

    Args:
        first, second: the diagnoses.
        versus: row by row; None where the rows are not the same.
        why_not: why not, in a sentence.
        lists: `first_better`, `second_better`, or `changed` without labels.
    """

    first: Diagnosis
    second: Diagnosis
    versus: Versus | None
    why_not: str
    lists: dict[str, Listed] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Return both diagnoses, the differences of their measures, and the lists of rows."""
        return {
            "format": COMPARISON_FORMAT,
            "kind": "comparison",
            "first": self.first.json(),
            "second": self.second.json(),
            "differences": self.differences(),
            "versus": None if self.versus is None else _numbers(self.versus),
            "why_not": self.why_not,
            "rows": {name: one.json() for name, one in self.lists.items()},
        }

    def differences(self) -> dict[str, float]:
        """Return second minus first, of each measure that both have."""
        both = [m for m in self.first.measures if m in self.second.measures and m in CATALOGUE]
        pairs = {m: (self.first.measures[m], self.second.measures[m]) for m in both}
        return {
            m: float(b - a)
            for m, (a, b) in pairs.items()
            if isinstance(a, int | float) and isinstance(b, int | float)
        }

    def rows(self, name: str) -> Any:
        """Return the rows of a list as a pandas `DataFrame`; needs `chiaroscuro[notebook]`."""
        need(
            name in self.lists,
            lambda: (
                f"`Comparison.rows(name)` needs one of {', '.join(self.lists) or 'no lists'}; "
                f"received `{name}`."
            ),
        )
        pandas = bring("pandas", "`Comparison.rows`", "'chiaroscuro[notebook]'")
        return pandas.DataFrame(self.lists[name].table())

    def page(self, out: TextIO | None = None, width: int | None = None) -> None:
        """Print both verdicts, the measures side by side, and which is better for which rows."""
        console = Console(file=out, width=width, highlight=False)
        for one in (self.first, self.second):
            console.print(Text(f"{one.subject}: {one.verdict}"))
        table = Table(box=None, padding=(0, 1), header_style="dim")
        table.add_column("")
        for name in (self.first.subject, self.second.subject, "difference"):
            table.add_column(str(name), justify="right")
        for name, apart in self.differences().items():
            if CATALOGUE[name].of is None and name not in _ALSO:
                continue
            values = self.first.measures[name], self.second.measures[name]
            cells = [f"{value:.4g}" for value in values]
            rounding = 1e-6 * max(1.0, *(abs(value) for value in values))
            table.add_row(CATALOGUE[name].label, *cells, f"{apart * (abs(apart) > rounding):+.3g}")
        console.print(table)
        for line in self.sentences():
            console.print(Padding(Text(line), (0, 2)))

    def sentences(self) -> list[str]:
        """Return what the same rows say, in sentences."""
        if self.versus is None:
            return [f"Rows are not compared: {self.why_not}."]
        result = self.versus
        lines = [
            f"Of the ten nearest of a row {100 * result.overlap:.1f} % are the same in both "
            f"({result.n:,} rows)."
        ]
        if result.accuracy:
            p = result.p_value if result.p_value is not None else 1.0
            better = result.accuracy[1] > result.accuracy[0]
            name = (self.second if better else self.first).subject
            lines.append(
                f"Accuracy of 20 neighbours {result.accuracy[0]:.4f} and {result.accuracy[1]:.4f}, "
                f"p = {p:.2g}: "
                + (f"`{name}` is better." if p < 0.05 else "no difference that these rows show.")
            )
        for name, one in self.lists.items():
            ids = one.rows if one.ids is None else one.ids
            first = ", ".join(str(x) for x in ids[:8].tolist())
            lines.append(f"{name} ({len(one):,}): rows that {one.says}: {first}")
        return lines

    def __str__(self) -> str:
        out = io.StringIO()
        self.page(out, 100)
        return out.getvalue()


_ALSO = ("linear_accuracy", "recall_int8", "recall_binary", "recall_index", "dimensions_enough")


def _numbers(result: Versus) -> dict[str, Any]:
    lists = ("first_better", "second_better", "changed")
    return {name: value for name, value in plain(result).items() if name not in lists}


def compare(
    diagnoses: tuple[Diagnosis, Diagnosis], embeddings: tuple[Embeddings, Embeddings], metric: str
) -> Comparison:
    """Compare two diagnosed embeddings, row by row if their rows are the same.

    Args:
        diagnoses: of the first and the second.
        embeddings: of both, with ids where they have any; rows are joined by them.
        metric: of neighbours.
    """
    first, second = embeddings
    rows, why_not = _same_rows(first, second)
    if rows is None:
        return Comparison(*diagnoses, None, why_not)
    a, b = _vectors(first)[rows[0]], _vectors(second)[rows[1]]
    labels = next(
        (
            np.asarray(one.labels)[at]
            for one, at in zip(embeddings, rows, strict=True)
            if one.labels is not None
        ),
        None,
    )
    result = versus(a, b, labels, metric)
    lists = {}
    for name in ("first_better", "second_better", "changed"):
        one = getattr(result, name).of(rows[0])
        if len(one):
            ids = first.ids
            lists[name] = one if ids is None else one.named(lambda at, ids=ids: ids[at])
    return Comparison(*diagnoses, result, "", lists)


def _vectors(embeddings: Embeddings) -> np.ndarray:
    there = [a for name in ("h", "z", "h1", "z1") if (a := getattr(embeddings, name)) is not None]
    return there[0]


def _same_rows(
    first: Embeddings, second: Embeddings
) -> tuple[tuple[np.ndarray, np.ndarray] | None, str]:
    """Which rows of both are the same sample: by ids, else by place."""
    if first.ids is not None and second.ids is not None:
        _, a, b = np.intersect1d(first.ids.astype(str), second.ids.astype(str), return_indices=True)
        order = np.argsort(a)
        if len(a) >= 12:
            return (a[order], b[order]), ""
        return None, f"{len(a)} ids are in both, and at least 12 are needed"
    if first.n != second.n:
        return None, f"there are {first.n:,} and {second.n:,}, and not both have `ids`"
    return (np.arange(first.n), np.arange(first.n)), ""
