"""What a measure is, and the spaces that measures are taken of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.measures.moments import Moments, moments
from chiaroscuro.measures.neighbours import Neighbours, nearest
from chiaroscuro.measures.rows import as_array, matrix_of, some_of
from chiaroscuro.measures.spectrum import Spectrum, spectrum
from chiaroscuro.measures.sphere import lengths

__all__ = ["Measure", "Space"]

PAIRWISE = 10_000
"""Rows of which all pairs are compared, if there are more."""


@dataclass(frozen=True)
class Measure:
    """A number that describes embeddings: its name, its meaning, and how it is computed.

    Args:
        name: the key in `diagnosis.json`, `evaluation.json` and the page.
        label: a few words for people.
        unit: "" for a plain number; "%" is a share, stored from 0 to 1.
        low, high: the least and the largest possible value; None where there is no bound.
        better: "higher", "lower", or "" where neither is better by itself.
        protocol: rows, metric, neighbours: what another tool needs to get the same number.
        formula: one line.
        of: computes it from a `Space`; None where `diagnose` or `evaluate` has a procedure for it.
        needs: "rows", "views" or "labels".
        collapsed: its value where all rows are one point.
        ideal: its value on the rows e_k and -e_k, paired with themselves, labelled by k.
        cite: key of the bibliography.
    """

    name: str
    label: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    better: str = ""
    protocol: str = ""
    formula: str = ""
    of: Callable[[Space], float | None] | None = field(default=None, compare=False)
    needs: str = "rows"
    collapsed: float | None = None
    ideal: float | None = None
    cite: str = ""

    def __call__(self, space: Space) -> float | None:
        """Compute it; None where the space lacks what it needs."""
        lacks = {"views": space.views is None, "labels": space.labels is None}
        if self.of is None or lacks.get(self.needs, False):
            return None
        return self.of(space)

    def json(self) -> dict[str, Any]:
        """Return what a page needs to show it."""
        names = ("label", "unit", "low", "high", "better", "protocol", "formula", "cite")
        return {name: value for name in names if (value := getattr(self, name)) not in ("", None)}


class Space:
    """Embeddings of one kind, with intermediate results that measures share, computed lazily.

    Args:
        rows: (n, d).
        views: two views of the samples, (n, d) each, or None.
        labels: (n,), from 0; -1 is unlabelled; or None.
        some: numbers of the rows of which all pairs are compared; at most 10,000 unless given.
        metric: "cosine" or "euclidean", of neighbours.
    """

    def __init__(
        self,
        rows: Any,
        views: tuple[Any, Any] | None = None,
        labels: Any = None,
        some: np.ndarray | None = None,
        metric: str = "cosine",
    ):
        self.x = matrix_of("Space(rows)", rows)
        self.n, self.d = self.x.shape
        self.views = views
        self.labels = None if labels is None else as_array(labels).astype(np.int64)
        need(
            self.labels is None or self.labels.shape == (self.n,),
            lambda: f"`Space(labels)` needs one for each of {self.n} rows.",
        )
        self.some = some_of("Space", self.n, PAIRWISE, 0) if some is None else some
        self.metric = metric

    @property
    def room(self) -> int:
        """The largest rank that n rows of d dimensions allow."""
        return min(self.n - 1, self.d)

    @cached_property
    def few(self) -> np.ndarray:
        """The rows `some` in float64."""
        return self.x[self.some].astype(np.float64, copy=False)

    @cached_property
    def moments(self) -> Moments:
        """Mean and scatter of all rows."""
        return moments(self.x)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Singular values and ranks."""
        return spectrum(self.x, self.moments)

    @cached_property
    def norms(self) -> np.ndarray:
        """Lengths of all rows."""
        return lengths(self.x)

    @cached_property
    def near(self) -> Neighbours:
        """The 20 nearest others (fewer of fewer rows) of the rows `some`, by place among them."""
        return nearest(self.few, min(20, len(self.few) - 1), self.metric)
