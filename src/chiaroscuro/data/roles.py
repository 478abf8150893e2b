"""Roles of the columns of a table: image, text, label, or one of the features of `x`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.arrays import numbered
from chiaroscuro.data.cells import MISSING, EncodedCells, RowGroups, Values
from chiaroscuro.data.dataset import SPLITS, Column, Dataset, Skipped, batch_of_objects
from chiaroscuro.data.index import shared
from chiaroscuro.data.pictures import Pictures, load_pictures, one_size
from chiaroscuro.data.scaling import Scaling, Standardised
from chiaroscuro.errors import need

__all__ = ["Roles", "assemble", "check_roles", "roles_of"]

LABELS = ("label", "labels", "fine_label")
COARSE = ("coarse_label", "coarse_labels")
TEXTS = ("text", "texts", "sentence", "caption", "captions")
IMAGES = ("image", "images", "img")
IDS = ("id", "ids")
TARGETS = {
    *("target", "targets", "y", "class", "classes", "cls", "class_id", "class_name"),
    *("outcome", "response", "ground_truth", "truth"),
}
"""Names of columns that are probably what one would like to predict: never a feature in silence."""

MAX_CATEGORIES = 32


@dataclasses.dataclass(frozen=True)
class Roles:
    """What the columns of a table are.

    Args:
        labels: the column of classes, words or whole numbers.
        drop: columns that are left out.
        text, image: the column of texts; of images, encoded or as paths.
        standardise: whether features are standardised.
    """

    labels: str | None = None
    drop: tuple[str, ...] = ()
    text: str | None = None
    image: str | None = None
    standardise: bool = True


def roles_of(
    labels: str | None,
    drop: Sequence[str],
    text: str | None,
    image: str | None,
    standardise: bool,
) -> Roles:
    dropped = (drop,) if isinstance(drop, str) else tuple(drop)
    return Roles(labels, dropped, text, image, standardise)


def check_roles(roles: Roles, names: Sequence[str], name: str) -> None:
    """Refuse roles of columns that are not there."""
    asked = [*roles.drop, *(one for one in (roles.labels, roles.text, roles.image) if one)]
    absent = [one for one in asked if one not in names]
    need(
        not absent,
        lambda: (
            f"`{name}` has no column {', '.join(f'`{one}`' for one in absent[:5])}; it has "
            f"{', '.join(f'`{one}`' for one in names[:20])}."
        ),
    )


def assemble(
    columns: dict[str, Values],
    name: str,
    roles: Roles,
    root: Path | None,
    size: int | None,
    outside: bool,
    cache: bool = False,
    split: NDArray[np.uint8] | None = None,
    class_names: Mapping[str, tuple[str, ...]] | None = None,
    lines: list[int] | None = None,
) -> Dataset:
    """Give each column its role and make the dataset."""
    columns = {one: values for one, values in columns.items() if one not in roles.drop}
    check_roles(dataclasses.replace(roles, drop=()), list(columns), name)
    need(bool(columns), lambda: f"`{name}` has no columns.")
    n = len(next(iter(columns.values())))
    need(n > 0, lambda: f"`{name}` has no rows.")
    made: dict[str, Column] = {}
    rows, skipped = np.arange(n), tuple[Skipped, ...]()
    image = roles.image or next((c for c in columns if c in IMAGES and _holds(columns[c])), None)
    if image is not None:
        cells = columns.pop(image)
        encodings = (
            cells if isinstance(cells, RowGroups) else EncodedCells(_cells(cells), root, outside)
        )
        pictures = Pictures(encodings, size, mixed=outside)
        if isinstance(cells, RowGroups) and not cache:
            made["images"], rows, skipped = _look_through(cells, pictures)
        else:
            names_of = [f"row {row}" for row in range(n)]
            made["images"], rows, skipped = load_pictures(pictures, names_of, cache=cache)
        need(
            len(rows) > 0,
            lambda: (
                f"None of the {n} images of `{name}` can be read; the first: {skipped[0].reason}"
            ),
        )
    names: dict[str, tuple[str, ...]] = {"labels": (), "coarse_labels": ()}
    label = roles.labels or next((c for c in columns if c in LABELS), None)
    for key, column in (
        ("labels", label),
        ("coarse_labels", next((c for c in columns if c in COARSE), None)),
    ):
        if column is not None and column in columns:
            values = columns.pop(column)
            given = (class_names or {}).get(column, ())
            made[key], names[key] = numbered(column, _label_values(column, name, values), given)
    text = roles.text or next((c for c in columns if c in TEXTS and _is_words(columns[c])), None)
    if text is not None:
        made |= _texts(text, name, columns.pop(text))
    ids = next((c for c in columns if c in IDS), None)
    if ids is not None and not _is_numbers(columns[ids], rich=True):
        made["ids"] = columns.pop(ids)
    if split is not None:
        made["split"] = split
    elif "split" in columns and _is_split(columns["split"]):
        made["split"] = _split(columns.pop("split"))
    made |= _inputs(columns, made, name, roles, lines)
    if len(rows) < n:
        made = {k: v if k == "images" else _at(v, rows) for k, v in made.items()}
    return Dataset(made, name, names["labels"], names["coarse_labels"], skipped=skipped)


def _look_through(
    groups: RowGroups, pictures: Pictures
) -> tuple[Pictures, NDArray[np.int64], tuple[Skipped, ...]]:
    """Decode every image once, file by file, on several ranks each rank some files; return the
    images that can be read, their rows and the list of the others.
    """

    def look(part: int) -> dict[str, Any]:
        own = groups.rows_of(part)
        some = Pictures(groups, pictures.size, np.arange(own.start, own.stop))
        column, rows, broken = load_pictures(some, [f"row {row}" for row in own])
        shown = pictures.size is None and len(rows) > 0
        return {
            "rows": len(rows) == len(own) or [own.start + int(row) for row in rows],
            "skipped": [[one.path, one.reason] for one in broken],
            "shape": list(column[np.array([0])].shape[1:]) if shown else None,
        }

    count = len(groups.parts)
    key = ["rows", [part.stamp() for part in groups.parts], groups.column, pictures.size]
    seen = shared(key, [functools.partial(look, part) for part in range(count)])
    one_size({tuple(one["shape"]) for one in seen if one["shape"]})
    kept = [
        np.array(groups.rows_of(part) if one["rows"] is True else one["rows"], np.int64)
        for part, one in enumerate(seen)
    ]
    rows = np.concatenate(kept)
    skipped = tuple(Skipped(*entry) for one in seen for entry in one["skipped"])
    return Pictures(groups, pictures.size, rows if skipped else None), rows, skipped


def _at(column: Column, rows: NDArray[np.int64]) -> Column:
    if isinstance(column, Standardised):
        return Standardised(column.raw[rows], column.scaling).fitted(np.arange(len(rows)))
    return column[rows]


def _cells(values: Values) -> Any:
    return values.column if isinstance(values, EncodedCells) else values


def _holds(values: Values) -> bool:
    """Return whether a column holds encoded images;
    paths are taken for images only if one says so.
    """
    if isinstance(values, EncodedCells | RowGroups):
        return True
    return values.dtype == object and isinstance(values[0], bytes | dict)


def _is_words(values: Values) -> bool:
    return (
        isinstance(values, np.ndarray)
        and values.dtype == object
        and isinstance(values[0], str | tuple)
    )


def _is_numbers(values: Values, rich: bool = False) -> bool:
    return (
        isinstance(values, np.ndarray)
        and values.dtype.kind in "biuf"
        and (not rich or values.ndim > 1)
    )


def _is_split(values: Values) -> bool:
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return False
    if values.dtype == object:
        return set(values.tolist()) <= {*SPLITS, "validation", "valid", "val"}
    return values.dtype.kind in "biu" and set(np.unique(values).tolist()) <= {0, 1}


def _split(values: NDArray[Any]) -> NDArray[np.uint8]:
    if values.dtype == object:
        return np.array([value != "train" for value in values.tolist()], np.uint8)
    return values.astype(np.uint8)


def _label_values(column: str, name: str, values: Values) -> NDArray[Any]:
    words = isinstance(values, np.ndarray) and values.dtype == object
    words = words and all(isinstance(one, str) for one in values)
    need(
        words or _is_numbers(values),
        lambda: f"The labels `{column}` of `{name}` need one word or one whole number a row.",
    )
    if words:
        missing = sum(one.lower() in MISSING for one in values)
        need(
            missing == 0,
            lambda: f"The labels `{column}` of `{name}` are missing in {missing} rows.",
        )
    return values


def _texts(column: str, name: str, values: Values) -> dict[str, Column]:
    need(
        _is_words(values),
        lambda: f"The texts `{column}` of `{name}` need to be strings, or lists of strings.",
    )
    if isinstance(values[0], str):
        several = [(one,) for one in values.tolist()]
    else:
        several = [tuple(one) for one in values.tolist()]
    blank = sum(not (texts and str(texts[0]).strip()) for texts in several)
    need(
        blank == 0,
        lambda: f"The texts `{column}` of `{name}` are empty in {blank} of {len(several)} rows.",
    )
    made: dict[str, Column] = {"texts": batch_of_objects(texts[0] for texts in several)}
    if column.startswith("caption") or any(len(texts) > 1 for texts in several):
        made["captions"] = batch_of_objects(several)
    return made


def _inputs(
    columns: dict[str, Values],
    made: dict[str, Column],
    name: str,
    roles: Roles,
    lines: list[int] | None,
) -> dict[str, Column]:
    """Return the other columns: arrays and notes beside another input; else the features of `x`."""
    rich = {one: v for one, v in columns.items() if _is_numbers(v, rich=True)}
    if rich or {"images", "texts"} & set(made):
        for one, values in columns.items():
            need(
                isinstance(values, np.ndarray) and values.dtype.kind in "biufMO",
                lambda one=one: _odd(one, name),
            )
        return dict(columns)
    features: dict[str, NDArray[Any]] = {}
    for one, values in columns.items():
        need(
            one.lower() not in TARGETS,
            lambda one=one: (
                f"`{name}` has a column `{one}`, which looks like a label. Say so with "
                f"`labels='{one}'`, or leave it out with `drop=['{one}']`."
            ),
        )
        features |= _features(one, name, values, lines)
    need(
        bool(features),
        lambda: f"`{name}` needs a column of numbers, texts or images beside its labels.",
    )
    x = np.stack([values.astype(np.float64) for values in features.values()], axis=1)
    known = tuple(features)
    train = made.get("split")
    chosen = np.flatnonzero(np.asarray(train) == 0) if train is not None else slice(None)
    if roles.standardise:
        scaled = Standardised(x, Scaling.of(known, x[chosen]))
    else:
        scaled = Standardised(x, Scaling(known, (0.0,) * len(known), (1.0,) * len(known)))
    return {"x": scaled}


def _features(
    column: str, name: str, values: Values, lines: list[int] | None
) -> dict[str, NDArray[Any]]:
    """Return a column of numbers as it is, or one of strings as a column of 0 and 1 for each of
    them.
    """
    if _is_numbers(values):
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
        where = lambda: f"line {lines[bad[0]]}" if lines else f"row {bad[0]}"
        need(
            len(bad) == 0,
            lambda: (
                f"`{column}` of `{name}` needs a value in each of {len(values)} rows; {len(bad)} "
                f"are missing or infinite, the first in {where()}. Fill them, or leave the column "
                f"out with `drop=['{column}']`."
            ),
        )
        return {column: values}
    need(
        isinstance(values, np.ndarray)
        and values.dtype == object
        and all(isinstance(one, str) for one in values),
        lambda: _odd(column, name),
    )
    words = sorted(set(values.tolist()))
    few = len(words) <= MAX_CATEGORIES and 2 * len(words) <= max(4, len(values))
    missing = sum(one.lower() in MISSING for one in values)
    need(
        few and missing == 0,
        lambda: (
            f"`{column}` of `{name}` has {len(words)} different strings in {len(values)} rows"
            + (f", {missing} of them missing" if missing else "")
            + f"; up to {MAX_CATEGORIES} become categories. Say what it is: "
            f"`labels='{column}'`, `text='{column}'`, or `drop=['{column}']`."
        ),
    )
    return {f"{column}={word}": (values == word) for word in words}


def _odd(column: str, name: str) -> str:
    return (
        f"`{column}` of `{name}` holds neither numbers nor strings (dates, structures or bytes); "
        f"leave it out with `drop=['{column}']`, or convert it first."
    )
