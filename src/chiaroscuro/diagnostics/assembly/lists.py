"""The rows that a diagnosis lists, by the name of the list, and which finding speaks of which."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chiaroscuro.measures import Duplicates, Listed

__all__ = ["duplicates", "list_of", "long_rows", "zero_rows"]

SPEAKS_OF = {
    "duplicated_samples": ("duplicates",),
    "exploding_norms": ("far", "z_far"),
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


def duplicates(found: Duplicates, u: np.ndarray) -> Listed:
    """List the rows that have a twin, the nearest twins first."""
    apart = np.sqrt(((u[found.ids] - u[found.twins]) ** 2).sum(axis=1))
    order = np.argsort(apart, kind="stable")
    return Listed(
        f"point where another row points, within {found.distance:.2g} on the sphere",
        found.ids[order],
        {"twin": found.twins[order], "distance": apart[order]},
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
