"""More than two views of a batch."""

from __future__ import annotations

from typing import Any

__all__ = ["Crops", "Triples", "views_of"]


class Crops(tuple):
    """The second view of a batch and all further ones, in the place of the second alone.

    Example:
        >>> views_of("a", Crops(["b", "c"])), views_of("a", "b")
        (['a', 'b', 'c'], ['a', 'b'])
    """

    __slots__ = ()


class Triples(tuple):
    """The second view of a batch and its hard negatives, in the place of the second alone.

    The negatives are k rows for each sample, those of the first sample first. They are candidates
    of every anchor.

    Example:
        >>> views_of("a", Triples(["b", "n"]))
        ['a', 'b', 'n']
    """

    __slots__ = ()


def views_of(x1: Any, x2: Any) -> list[Any]:
    """Return all views of a batch, first to last.

    Args:
        x1: the first.
        x2: the second, or `Crops` or `Triples`: the second and all further ones.
    """
    return [x1, *x2] if isinstance(x2, Crops | Triples) else [x1, x2]
