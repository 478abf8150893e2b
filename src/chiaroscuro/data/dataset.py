"""`Dataset`: columns of equal length, read in batches; a subset is a list of rows, never a copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chiaroscuro import figures
from chiaroscuro.data.counter import words
from chiaroscuro.data.order import Blocks
from chiaroscuro.data.scaling import Scaling, Standardised
from chiaroscuro.data.tokenizers import Tokenizer
from chiaroscuro.display import html_table
from chiaroscuro.errors import InputError, need

__all__ = [
    "NEGATIVES",
    "SECOND",
    "SPLITS",
    "Column",
    "Dataset",
    "Samples",
    "Skipped",
    "Source",
    "batch_of_objects",
]

SPLITS = ("train", "test")
"""`split` holds 0 for the first, 1 for the second, as in an embeddings file."""

DESCRIPTIVE = ("labels", "coarse_labels", "factors", "ids", "split", "groups")
"""Columns that say something about a row and are never an input."""

SECOND = "second_view"
"""The column of the other side of pairs that came ready."""

NEGATIVES = "negatives"
"""The column of hard negatives, (n, k, ...): k of each row, of the kind of the other side."""

ONE_DIMENSIONAL = ("x", "texts", "captions", SECOND)
"""Inputs that may have one value a row; any other column with one value a row is a note."""

_CHECKED_AT_ONCE = 1 << 20

Samples = dict[str, NDArray[Any]]
"""Arrays of some rows by the name of their column."""


@runtime_checkable
class Column(Protocol):
    """Column of a dataset: anything with a length that returns the values at given rows."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]: ...


class Source(Protocol):
    """Generator behind a dataset, which can render fresh views of the same rows."""

    def draw(self, rows: NDArray[np.int64], *, seed: int, epoch: int, view: int) -> Samples:
        """New views of these rows, a pure function of (seed, epoch, row, view)."""
        ...


@dataclasses.dataclass(frozen=True)
class Skipped:
    """File that was skipped, and the reason."""

    path: str
    reason: str


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Immutable table of samples. `data[indices]` is a batch: a dictionary of arrays by column.

    Inputs are the columns a model may look at: `images` (n, h, w, 3) uint8, `x` numbers of any
    shape, `texts` one string a row, `captions` a tuple of strings a row. Descriptions are `labels`,
    `coarse_labels`, `factors` (n, k), `ids`, `split` (0 train, 1 test) and `groups` (rows that
    belong on one side of any split). A batch also holds `row`, the number of each sample in the
    dataset as it was opened: it survives `take`, so that what is drawn for a sample does not
    depend on the subset it is in.

    Relations:
        `data.take(a)[b]` is `data[a[b]]`.

    Args:
        columns: by name; arrays, or lazy columns such as image files.
        name: for people.
        class_names, coarse_class_names: of the labels 0, 1, ...; empty if unnamed.
        factor_names: of the columns of `factors`.
        skipped: what was left out when the data were opened.
        source: what can draw fresh views of the rows, if anything can.
        rows: the subset, as rows of the columns; None for all.
        blocks: how the rows lie in storage, where jumping between them is slow: an epoch then goes
            block by block.
        tokenizer: how texts become tokens; None reads them as bytes.

    Example:
        >>> data = Dataset({"x": np.eye(3), "labels": np.array([0, 1, 1])}, class_names=("a", "b"))
        >>> data.take([2, 0])[[0]]["labels"], data.take([2, 0])[[0]]["row"]
        (array([1]), array([2]))
        >>> data
        Dataset('data', 3 rows: x (3, 3) float64; 2 classes)
    """

    columns: Mapping[str, Column]
    name: str = "data"
    class_names: tuple[str, ...] = ()
    coarse_class_names: tuple[str, ...] = ()
    factor_names: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    source: Source | None = None
    rows: NDArray[np.int64] | None = None
    blocks: Blocks | None = None
    tokenizer: Tokenizer | None = None

    def __post_init__(self) -> None:
        need(bool(self.inputs), f"The dataset `{self.name}` needs at least one input column.")
        if self.rows is None:  # a subset was checked with its whole
            _check(self)

    # ---- in a notebook ----

    def plot(self, ax: Any = None) -> Any:
        """Draw the first 25 images, or else two columns of `x` or the count of each class.

        Needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        ax, labels = figures.axes(ax), self.labels
        if "images" in self.inputs:
            ax.imshow(_sheet(list(self[np.arange(min(25, len(self)))]["images"])))
            ax.set_axis_off()
        elif "x" in self.inputs and self[[0]]["x"].size > 1:
            x = self.column("x").reshape(len(self), -1)
            ax.scatter(x[:, 0], x[:, 1], s=6, c=labels, linewidths=0)
            ax.set_xlabel("x, first column")
            ax.set_ylabel("x, second column")
        else:
            kinds, counts = np.unique(
                np.zeros(len(self), int) if labels is None else labels, return_counts=True
            )
            ax.bar([str(kind) for kind in kinds], counts, color=figures.COLOURS[0])
            ax.set_ylabel("rows")
        ax.set_title(self.name)
        return ax

    def _repr_html_(self) -> str:
        one = self[[0]] if len(self) else {}
        rows: list[tuple[str, object]] = [
            (n, "" if n not in one else f"{one[n].shape[1:]} {one[n].dtype}") for n in self.columns
        ]
        if self.class_names:
            rows.append(("classes", len(self.class_names)))
        if self.skipped:
            rows.append(("skipped", len(self.skipped)))
        return html_table(f"{self.name}: {len(self):,} rows", rows, ("column", "of one row"))

    # ---- reading ----

    def __len__(self) -> int:
        return _length(self.columns) if self.rows is None else len(self.rows)

    def __getitem__(self, indices: ArrayLike) -> Samples:
        rows = self._rows(indices)
        return {name: column[rows] for name, column in self.columns.items()} | {"row": rows}

    def column(self, name: str) -> NDArray[Any]:
        """Return all values of one column; for images this reads every one of them."""
        need(
            name in self.columns,
            lambda: (
                f"The dataset `{self.name}` has no column `{name}`; it has "
                f"{', '.join(f'`{known}`' for known in self.columns)}."
            ),
        )
        return self.columns[name][self._rows(np.arange(len(self)))]

    def draw(self, indices: ArrayLike, *, seed: int, epoch: int, view: int) -> Samples:
        """Fresh views of these samples, where the data can make them (wandering digits do)."""
        if self.source is None:
            raise InputError(f"The dataset `{self.name}` is a record: it cannot draw fresh views.")
        rows = self._rows(indices)
        return self.source.draw(rows, seed=seed, epoch=epoch, view=view) | {"row": rows}

    def row_numbers(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Return where these samples are in the dataset as it was opened."""
        return self._rows(indices)

    def _rows(self, indices: ArrayLike) -> NDArray[np.int64]:
        n = len(self)
        chosen = np.asarray(indices)
        if chosen.dtype == bool:
            need(
                chosen.shape == (n,),
                lambda: (
                    f"A mask needs one value for each of {n} rows; it has shape {chosen.shape}."
                ),
            )
            chosen = np.flatnonzero(chosen)
        need(
            chosen.ndim == 1 and (chosen.dtype.kind in "iu" or chosen.size == 0),
            lambda: (
                "`data[indices]` needs one row of whole numbers; received "
                f"{chosen.dtype} of shape {chosen.shape}."
            ),
        )
        chosen = chosen.astype(np.int64)
        outside = (chosen < -n) | (chosen >= n)
        need(
            not outside.any(),
            lambda: f"`data[indices]` needs indices below {n}; received {chosen[outside][0]}.",
        )
        chosen = np.where(chosen < 0, chosen + n, chosen)
        return chosen if self.rows is None else self.rows[chosen]

    # ---- what is known of the rows ----

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns a model may look at: not the descriptions, and no single value a row."""
        return tuple(
            name
            for name, column in self.columns.items()
            if name not in (*DESCRIPTIVE, NEGATIVES)
            and (name in ONE_DIMENSIONAL or getattr(column, "ndim", 2) > 1)
        )

    @property
    def labels(self) -> NDArray[Any] | None:
        return self._maybe("labels")

    @property
    def coarse_labels(self) -> NDArray[Any] | None:
        return self._maybe("coarse_labels")

    @property
    def factors(self) -> NDArray[Any] | None:
        return self._maybe("factors")

    @property
    def split(self) -> NDArray[Any] | None:
        return self._maybe("split")

    @property
    def groups(self) -> NDArray[Any] | None:
        return self._maybe("groups")

    @property
    def ids(self) -> NDArray[Any]:
        """What the data call their rows; the row numbers if they call them nothing."""
        given = self._maybe("ids")
        return self._rows(np.arange(len(self))) if given is None else given

    def _maybe(self, name: str) -> NDArray[Any] | None:
        return self.column(name) if name in self.columns else None

    @property
    def scaling(self) -> Scaling | None:
        """The mean and standard deviation of standardised features; None where there are none."""
        scaled = (c for c in self.columns.values() if isinstance(c, Standardised))
        return next((column.scaling for column in scaled), None)

    def scaled_by(self, scaling: Scaling) -> Dataset:
        """Return the same rows with their features in another scaling: that of a training run."""
        columns = {
            name: column.under(scaling) if isinstance(column, Standardised) else column
            for name, column in self.columns.items()
        }
        need(
            self.scaling is not None,
            lambda: f"`{self.name}` is no table of features: it has no scaling.",
        )
        return dataclasses.replace(self, columns=columns)

    def blocks_now(self) -> Blocks | None:
        """Return the blocks of the rows of this subset; None where rows are cheap to jump to."""
        if self.blocks is None or self.rows is None:
            return self.blocks
        return self.blocks.of_rows(self.rows)

    # ---- subsets ----

    def take(self, indices: ArrayLike) -> Dataset:
        """Return the dataset of these rows (numbers or a mask), in this order;
        nothing is copied.
        """
        return dataclasses.replace(self, rows=self._rows(indices))

    def part(self, name: str) -> Dataset:
        """Return the rows of one side of the split: `"train"` or `"test"`.

        Example:
            >>> data = Dataset({"x": np.eye(3), "split": np.array([0, 1, 0])})
            >>> len(data.part("train")), len(data.part("test"))
            (2, 1)
        """
        need(name in SPLITS, f"`part(name)` needs `train` or `test`; received `{name}`.")
        split = self.split
        if split is None:
            raise InputError(f"`{self.name}` has no split; `with_split(test=0.2)` makes one.")
        return self.take(split == SPLITS.index(name))

    def one_per_group(self) -> Dataset:
        """Return the first row of every group, or the whole where there are no groups.

        For training on drawn views: two rows of one group in a batch would be negatives of each
        other although they show the same thing.
        """
        if self.groups is None:
            return self
        return self.take(np.sort(np.unique(self.groups, return_index=True)[1]))

    def with_split(self, test: float = 0.2, seed: int = 0) -> Dataset:
        """Return the same rows with a fresh split: stratified by label, groups kept whole.

        Each class gives `round(test * n_class)` of its groups to the test side (rows are their own
        groups where none are given; a group counts for the class of its first row). Which ones is a
        function of the seed and of the groups' order alone.

        Args:
            test: share of the test side, in (0, 1).
            seed: seed of the choice.

        Example:
            >>> data = Dataset({"x": np.eye(10), "labels": np.repeat([0, 1], 5)}).with_split(0.4)
            >>> np.bincount(data.part("test").labels)
            array([2, 2])
        """
        need(0 < test < 1, f"`with_split(test)` needs a share between 0 and 1; received `{test}`.")
        groups = np.arange(len(self)) if self.groups is None else self.groups
        _, first, of = np.unique(groups, return_index=True, return_inverse=True)
        n_groups = len(first)
        need(
            n_groups >= 2,
            lambda: (
                f"A split needs at least 2 groups of rows; `{self.name}` has {n_groups} in "
                f"{len(self)} rows."
            ),
        )
        classes = np.zeros(n_groups, int) if self.labels is None else self.labels[first]
        luck = words(1, seed, np.arange(n_groups))[:, 0]
        side = np.zeros(n_groups, np.uint8)
        for label in np.unique(classes):
            members = np.flatnonzero(classes == label)
            members = members[np.argsort(luck[members], kind="stable")]
            side[members[: round(test * len(members))]] = 1
        split = np.zeros(_length(self.columns), np.uint8)
        split[self._rows(np.arange(len(self)))] = side[of]
        train = self._rows(np.flatnonzero(side[of] == 0))  # the test side sets no scale
        columns = {
            name: column.fitted(train) if isinstance(column, Standardised) else column
            for name, column in self.columns.items()
        }
        return dataclasses.replace(self, columns={**columns, "split": split})

    # ---- for people ----

    def skipped_summary(self) -> str:
        """Return what was left out when the data were opened, as a sentence; "" if nothing was.

        Example:
            >>> data = Dataset({"x": np.eye(3)}, skipped=(Skipped("a/1.png", "cut short"),))
            >>> data.skipped_summary()
            '1 file of `data` cannot be read and is left out: a/1.png.'
        """
        if not self.skipped:
            return ""
        n = len(self.skipped)
        named = ", ".join(one.path for one in self.skipped[:3])
        files, are = ("1 file", "is") if n == 1 else (f"{n} files", "are")
        more = f" and {n - 3} more" if n > 3 else ""
        return f"{files} of `{self.name}` cannot be read and {are} left out: {named}{more}."

    def __repr__(self) -> str:
        first = self[np.arange(min(1, len(self)))]
        shown = [
            f"{name} ({', '.join(map(str, (len(self), *first[name].shape[1:])))}) "
            f"{first[name].dtype}"
            for name in self.inputs
        ]
        known = [f"{len(self.class_names)} classes"] if self.class_names else []
        known += [f"{len(self.factor_names)} factors"] if self.factor_names else []
        if self.split is not None:
            counts = np.bincount(self.split, minlength=2)
            known += [f"{counts[0]} train and {counts[1]} test"]
        known += [f"{len(self.skipped)} files skipped"] if self.skipped else []
        described = "; ".join([f"{len(self)} rows: {', '.join(shown)}", *known])
        return f"Dataset({self.name!r}, {described})"


def batch_of_objects(values: Sequence[Any] | Iterable[Any]) -> NDArray[Any]:
    """Return strings or tuples as an array of one dimension: numpy would make tuples a second.

    Example:
        >>> batch_of_objects([("a", "b"), ("c", "d")]).shape
        (2,)
    """
    listed = list(values)
    out = np.empty(len(listed), dtype=object)
    for place, value in enumerate(listed):
        out[place] = value
    return out


def relative(path: Path, root: Path) -> str:
    """Return the path under its root with forward slashes: the same name on every machine."""
    return path.relative_to(root).as_posix()


def _length(columns: Mapping[str, Column]) -> int:
    return len(next(iter(columns.values())))


def _check(data: Dataset) -> None:
    lengths = {name: len(column) for name, column in data.columns.items()}
    n = lengths[data.inputs[0]]
    for name, length in lengths.items():
        need(
            length == n,
            lambda name=name, length=length: (
                f"Each of the {n} rows of `{data.name}` needs one value of `{name}`; received "
                f"{length} for `{data.inputs[0]}` of length {n}."
            ),
        )
    for name, names in (
        ("labels", data.class_names),
        ("coarse_labels", data.coarse_class_names),
        ("split", SPLITS),
    ):
        if name in data.columns and names:
            _check_range(data, name, len(names))
    if "factors" in data.columns and data.factor_names:
        shape = data.columns["factors"][np.arange(min(1, n))].shape
        need(
            len(shape) == 2 and shape[1] == len(data.factor_names),
            lambda: (
                f"`factors` needs {len(data.factor_names)} columns, one for each of its names; it "
                f"has shape {(n, *shape[1:])}."
            ),
        )


def _check_range(data: Dataset, name: str, count: int) -> None:
    least = 0 if name == "split" else -1
    for start in range(0, n := len(data.columns[name]), _CHECKED_AT_ONCE):
        values = data.columns[name][np.arange(start, min(n, start + _CHECKED_AT_ONCE))]
        need(
            values.ndim == 1 and values.dtype.kind in "iu",
            lambda values=values: (
                f"`{name}` of `{data.name}` needs one whole number a row; received {values.dtype} "
                f"of shape {(n, *values.shape[1:])}."
            ),
        )
        need(
            values.size == 0 or (int(values.min()) >= least and int(values.max()) < count),
            lambda values=values: (
                f"`{name}` of `{data.name}` needs numbers from {least} to {count - 1}, one for "
                f"each name{' and -1 for unknown' * (least < 0)}; received {values.min()} to "
                f"{values.max()}."
            ),
        )


def _sheet(images: list[NDArray[Any]]) -> NDArray[np.uint8]:
    """Return images side by side in a square, each cut or padded with white to the size of the
    first.
    """
    across = int(np.ceil(np.sqrt(len(images))))
    height, width = images[0].shape[:2]
    sheet = np.full((across * height, across * width, 3), 255, dtype=np.uint8)
    for i, image in enumerate(images):
        part = image[:height, :width]
        if part.dtype != np.uint8:  # other numbers: from their least to their largest
            low, high = float(part.min()), float(part.max())
            part = ((part - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
        colours = part[..., :3] if part.shape[-1] >= 3 else np.repeat(part[..., :1], 3, axis=-1)
        top, left = i // across * height, i % across * width
        sheet[top : top + part.shape[0], left : left + part.shape[1]] = colours
    return sheet
