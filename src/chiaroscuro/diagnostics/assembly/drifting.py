"""Embeddings against earlier ones: added to a diagnosis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from chiaroscuro.diagnostics.assembly.diagnosis import Diagnosis
from chiaroscuro.diagnostics.assembly.inputs import Inputs, Reading, read
from chiaroscuro.measures import Drift, drift
from chiaroscuro.measures.drift import LEVEL

__all__ = ["with_drift"]

COMPARED = 20_000
"""Rows of each set that are compared, if there are more."""


def with_drift(
    made: Diagnosis, now: Any, before: Any, seed: int = 0, inputs: Inputs | None = None
) -> Diagnosis:
    """Return the diagnosis with what differs from earlier embeddings, and the rows that moved.

    Rows are the same samples where their ids are, or where both have as many rows and no ids.

    Args:
        made: of the embeddings `now`.
        now, before: whatever `read` takes.
        seed: seed of all random choices.
        inputs: names of what is in `now`.
    """
    one, other = read(now, COMPARED, seed, inputs), read(before, COMPARED, seed)
    rows = _paired(one, other)
    x, y = _vectors(one), _vectors(other)
    if rows is None:
        result, numbers = drift(x, y, paired=False, seed=seed), one.rows
    else:
        result, numbers = drift(x[rows[0]], y[rows[1]], paired=True, seed=seed), one.rows[rows[0]]
    moved = result.moved.of(numbers)
    if "ids" in one.source.arrays:
        moved = moved.named(one.ids)
    result = replace(result, moved=moved)
    lists = {**made.lists, "moved": moved} if len(moved) else made.lists
    said = f"{made.verdict} {_said(result)}"
    return replace(made, verdict=said, drift=result, lists=lists)


def _said(result: Drift) -> str:
    """What the comparison adds to the verdict."""
    law = ""
    if result.test is not None:
        p = result.test.p_value
        law = f", another law (p = {p:.2g})" if p < LEVEL else f", no other law seen (p = {p:.2g})"
    n = len(result.moved)
    what = "moved more than the others" if result.paired else "unlike all earlier ones"
    moved = f", {n:,} row{'s' * (n != 1)} {what}" if n else ""
    encoder = f"{result.encoder} encoder" if result.encoder != "unknown" else "encoder unknown"
    return f"Against the earlier embeddings: {encoder}{law}{moved}."


def _paired(one: Reading, other: Reading) -> tuple[np.ndarray, np.ndarray] | None:
    """Places of the rows that are one sample; None where there are none such."""
    both = "ids" in one.source.arrays, "ids" in other.source.arrays
    if all(both):
        mine, theirs = (reading.ids(reading.rows).astype(str) for reading in (one, other))
        _, a, b = np.intersect1d(mine, theirs, return_indices=True)
        order = np.argsort(a)
        return (a[order], b[order]) if len(a) >= 8 else None
    if any(both) or one.n != other.n:
        return None
    return np.arange(len(one.rows)), np.arange(len(one.rows))


def _vectors(reading: Reading) -> np.ndarray:
    embeddings = reading.embeddings
    there = embeddings.h if embeddings.h is not None else embeddings.z
    return np.asarray(there, dtype=np.float64)
