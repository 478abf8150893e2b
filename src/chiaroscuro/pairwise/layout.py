"""Where candidates lie in the matrix of all pairs, and the tiles that visit them once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

__all__ = ["Layout", "Tile"]


@dataclass(frozen=True)
class Tile:
    """A rectangle of the matrix of all pairs: whose sums it feeds, and what it leaves out."""

    i: slice
    j: slice
    drop: tuple[int, ...]
    """Diagonals of the tile, by offset, that hold a point with itself or with its partner."""
    columns: bool
    """Its column sums count for the rows j, besides its row sums for the rows i."""
    mirror: bool
    """It lies on the diagonal of a symmetric block: rows and columns are the same points."""
    frozen: bool = False
    """Its columns are constants, such as a queue: they receive no gradient."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        return self.i.stop - self.i.start, self.j.stop - self.j.start

    @property
    def pulls_back(self) -> bool:
        """Whether the gradient of its columns is not that of its rows already."""
        return not self.mirror and not self.frozen


@dataclass(frozen=True)
class Layout:
    """Layout of the rows [view one (n), view two (n if `views` is 2), queue] and of their pairs.

    The tiles leave out self and partner; partners are compared row by row.
    """

    n: int
    views: int
    queue: int
    own_view: bool
    other_view: bool
    positive: bool
    """The partner is a candidate as well."""
    both: bool
    """Rows of the second view are anchors as well."""
    window: tuple[int, int]
    """Only samples of this range are anchors: (0, n) on one machine, a rank's share on several."""
    frozen_queue: bool = False
    """Nothing wants the gradient of the queue."""

    @classmethod
    def within(cls, n: int) -> Layout:
        """One view of n rows, everyone compared with all the others."""
        return cls(
            n=n,
            views=1,
            queue=0,
            own_view=True,
            other_view=False,
            positive=False,
            both=False,
            window=(0, n),
        )

    @property
    def is_everyone(self) -> bool:
        """Two views, all anchors, each with all the others as candidates, and no queue."""
        return (
            self.views == 2
            and self.own_view
            and self.other_view
            and self.both
            and not self.queue
            and self.window == (0, self.n)
        )

    @property
    def anchors(self) -> int:
        """How many views have anchors."""
        return self.views if self.both else 1

    @property
    def rows(self) -> int:
        """How many rows are stacked."""
        return self.n * self.views + self.queue

    def tiles(self, size: int) -> Iterator[Tile]:
        """Every pair of anchor and candidate exactly once, symmetric blocks by their upper half."""
        n, (start, stop) = self.n, self.window
        whole = start == 0 and stop == n
        anchors = range(self.anchors)
        if self.own_view and self.other_view and whole and len(anchors) == self.views == 2:
            yield from _symmetric(0, 2 * n, (0, n, -n), size)
        else:
            for view in anchors:
                first = view * n
                if self.own_view and whole:
                    yield from _symmetric(first, first + n, (0,), size)
                elif self.own_view:
                    yield from _rectangle(
                        (first + start, first + stop), (first, first + n), 0, False, size
                    )
            if self.other_view and self.views == 2:
                if whole:
                    yield from _rectangle((0, n), (n, 2 * n), n, self.both, size)
                else:
                    yield from _rectangle((start, stop), (n, 2 * n), n, False, size)
                    if self.both:
                        yield from _rectangle((n + start, n + stop), (0, n), -n, False, size)
        if self.queue:
            for view in anchors:
                rows = (view * n + start, view * n + stop)
                for tile in _rectangle(rows, (n * self.views, self.rows), None, False, size):
                    yield replace(tile, frozen=self.frozen_queue)


def _symmetric(start: int, stop: int, gaps: tuple[int, ...], size: int) -> Iterator[Tile]:
    for i in range(start, stop, size):
        for j in range(i, stop, size):
            rows, columns = slice(i, min(i + size, stop)), slice(j, min(j + size, stop))
            yield Tile(rows, columns, _offsets(rows, columns, gaps), i != j, i == j)


def _rectangle(
    rows: tuple[int, int], columns: tuple[int, int], gap: int | None, count: bool, size: int
) -> Iterator[Tile]:
    gaps = () if gap is None else (gap,)
    for i in range(*rows, size):
        for j in range(*columns, size):
            r, c = slice(i, min(i + size, rows[1])), slice(j, min(j + size, columns[1]))
            yield Tile(r, c, _offsets(r, c, gaps), count, False)


def _offsets(i: slice, j: slice, gaps: tuple[int, ...]) -> tuple[int, ...]:
    """Diagonals (column minus row) of the tile on which column index minus row index is a gap."""
    height, width = i.stop - i.start, j.stop - j.start
    offsets = (gap - (j.start - i.start) for gap in gaps)
    return tuple(o for o in offsets if -height < o < width)
