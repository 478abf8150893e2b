"""The rows that a diagnosis lists, by the name of the list, and which finding speaks of which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.measures import (
    LISTED,
    Duplicates,
    Listed,
    Scan,
    Space,
    economy,
    label_errors,
    outliers,
    unit,
)

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = [
    "duplicates",
    "list_of",
    "list_suspects",
    "long_rows",
    "scanned",
    "zero_rows",
]

AT_ONCE = 1 << 12
"""Pairs of rows that are compared at a time."""
SPEAKS_OF = {
    "duplicated_samples": ("near_twins", "duplicates"),
    "outlier_rows": ("far_rows", "far", "z_far"),
    "zero_rows": ("zero", "z_zero"),
    "hubs": ("hub_rows", "hubs"),
    "label_noise": ("label_errors", "suspects"),
    "mispaired_views": ("mispaired",),
    "mixed_encoders": ("group",),
}
"""The lists of a finding, the first that is there; others have the finding's own name."""


def list_of(finding: str, lists: Mapping[str, Listed]) -> str | None:
    """Return the name of the list of rows that a finding speaks of; None where there is none.

    Example:
        >>> list_of("duplicated_samples", {"duplicates": Listed("have a twin", np.arange(2))})
        'duplicates'
    """
    names = (*SPEAKS_OF.get(finding, ()), finding)
    return next((name for name in names if name in lists), None)


def duplicates(pairs: Duplicates, x: np.ndarray) -> Listed:
    """List the rows that have a twin, the nearest twins first."""
    apart = np.empty(len(pairs.ids))
    for start in range(0, len(apart), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        twins = unit(x[pairs.ids[some]]) - unit(x[pairs.twins[some]])
        apart[some] = np.sqrt((twins**2).sum(axis=1))
    order = np.argsort(apart, kind="stable")
    return Listed(
        f"point where another row points, within {pairs.distance:.2g} on the sphere",
        pairs.ids[order],
        {"twin": pairs.twins[order], "distance": apart[order]},
        pointers=("twin",),
    )


def long_rows(space: str, far: np.ndarray, norms: np.ndarray) -> Listed:
    """List rows of more than ten medians, the longest first."""
    order = far[np.argsort(-norms[far], kind="stable")]
    middle = float(np.median(norms))
    share = norms[order] / middle if middle > 0 else np.full(len(order), np.inf)
    says = f"are longer than 10 medians in {space}"
    return Listed(says, order, {"norm": norms[order], "medians": share})


def zero_rows(space: str, norms: np.ndarray) -> Listed:
    """List rows of length 0, which point nowhere."""
    return Listed(f"are all zeros in {space}", np.flatnonzero(norms == 0))


def list_suspects(out: Measured, of: Space) -> dict[str, Any]:
    """List outliers and likely label errors, and measure how small the embeddings may be."""
    some = of.some
    if len(some) <= 20:
        return {}
    numbers: dict[str, Any] = {}
    far = outliers(of.near).of(some)
    numbers["outlier_rows"] = len(far)
    if len(far):
        out.lists["outliers"] = far
    y = None if of.labels is None else of.labels[some]
    if y is not None and (y >= 0).sum() > 20:
        wrong = label_errors(of.near, y).of(some)
        numbers["label_error_rows"] = len(wrong)
        numbers["label_error_share"] = len(wrong) / int((y >= 0).sum())
        if len(wrong):
            out.lists["label_errors"] = wrong
    curves = economy(of.few, y, of.metric)
    out.curves["economy"] = curves
    least = min(curves.enough, key=lambda name: curves.enough[name])
    numbers |= {
        "recall_int8": curves.int8,
        "recall_binary": curves.binary,
        "recall_rescored": curves.rescored,
        "recall_index": curves.index,
        "dimensions_enough": curves.enough[least],
        "dimensions_enough_first": curves.enough["first"],
    }
    return numbers


def scanned(seen: Scan, split: Any) -> tuple[dict[str, Any], dict[str, Listed]]:
    """Return numbers and lists of a pass over all rows, of which a diagnosis draws some.

    Args:
        seen: of all rows.
        split: (n,), 0 train and 1 test, or None.
    """
    numbers: dict[str, Any] = {
        "all_rows": seen.n,
        "all_exact_duplicates": seen.exact,
        "all_zero_rows": seen.n_zero,
        "all_norm_mean": seen.norm_mean,
        "all_norm_median": seen.norm_median,
        "all_norm_largest": seen.norm_largest,
        "all_norm_far": seen.n_far,
        "all_effective_rank": seen.effective_rank,
    }
    lists: dict[str, Listed] = {}
    if seen.n_zero:
        lists["zero"] = Listed("are all zeros in h", seen.zero, total=seen.n_zero)
    if len(seen.far):
        columns = {"norm": seen.far_norms, "medians": seen.far_norms / (seen.norm_median or 1.0)}
        lists["far"] = Listed(
            "are longer than 10 medians in h", seen.far, columns, total=seen.n_far
        )
    if len(seen.twins):
        nonzero = np.isin(seen.twins, seen.zero, invert=True)
        rows, groups = seen.twins[nonzero], seen.groups[nonzero]
        if len(rows):
            following = np.roll(rows, -1)
            last = np.r_[groups[1:] != groups[:-1], True]
            first = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
            following[last] = rows[first]
            lists["duplicates"] = Listed(
                "equal another row, bit for bit",
                rows,
                {"twin": following, "group": groups},
                pointers=("twin",),
                total=round(len(rows) / seen.share_hashed),
            ).first()
            if split is not None:
                lists |= _across(rows, groups, np.asarray(split[rows]))
    return numbers, lists


def _across(rows: np.ndarray, groups: np.ndarray, side: np.ndarray) -> dict[str, Listed]:
    """Held-out rows that equal a row of the training side."""
    train = np.flatnonzero(side == 0)
    known, first = np.unique(groups[train], return_index=True)
    held = np.flatnonzero(side == 1)
    at = np.searchsorted(known, groups[held])
    at = np.minimum(at, len(known) - 1)
    held = held[known[at] == groups[held]] if len(known) else held[:0]
    if not len(held):
        return {}
    twin = rows[train[first[np.searchsorted(known, groups[held])]]]
    says = "are held out, and equal a row of the training side"
    listed = Listed(says, rows[held], {"twin": twin}, pointers=("twin",))
    return {"split_duplicates": listed.first(LISTED)}
