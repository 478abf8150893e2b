"""Parquet files and Hugging Face `datasets`, where those libraries are installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.dataset import SPLITS, Column, Dataset, Skipped, batch_of_objects
from chiaroscuro.data.extras import bring
from chiaroscuro.data.pictures import Pictures, load_pictures
from chiaroscuro.errors import InputError, need

__all__ = ["from_hugging_face", "read_hugging_face", "read_parquet"]

ROLES = {
    "image": "images",
    "img": "images",
    "label": "labels",
    "fine_label": "labels",
    "coarse_label": "coarse_labels",
    "text": "texts",
    "sentence": "texts",
    "caption": "captions",
    "id": "ids",
}
PARQUET = "'chiaroscuro[parquet]'"
DATASETS = "'chiaroscuro[datasets]'"


def read_parquet(path: str | Path, size: int | None = None, cache: bool = False) -> Dataset:
    """A data set from a parquet file.

    Columns keep their names, but for `image`/`img` (encoded bytes, or Hugging Face's struct of
    bytes and path) which become `images`, `label` which becomes `labels`, `text` which becomes
    `texts`, `caption` (a string or a list of them) which becomes `texts` and `captions`. Lists of
    equal length become rows of an array. Where there is neither picture nor text nor list, the
    columns of numbers together are `x`. Missing values are an error with their count.

    Args:
        path: the file.
        size, cache: as for a folder of pictures.
    """
    path = Path(path)
    need(path.is_file(), lambda: f"`{path}` is not there.")
    parquet = bring("pyarrow.parquet", "Reading parquet", PARQUET)
    arrow = bring("pyarrow", "Reading parquet", PARQUET)
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"`{path}` cannot be read as parquet: {error}") from error
    return _from_table(table, path.name.split(".")[0], size, cache)


def read_hugging_face(path: str | Path, size: int | None = None, cache: bool = False) -> Dataset:
    """A data set that `datasets` saved with `save_to_disk`; nothing is fetched from the network."""
    datasets = bring("datasets", "Reading a Hugging Face data set", DATASETS)
    need(Path(path).is_dir(), lambda: f"`{path}` is not a folder that is there.")
    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"`{path}` cannot be read as a saved data set: {error}") from error
    return from_hugging_face(loaded, Path(path).name, size, cache)


def from_hugging_face(
    loaded: Any, name: str = "data", size: int | None = None, cache: bool = False
) -> Dataset:
    """A `datasets.Dataset`, or a `DatasetDict` with `train` and `test` (or `validation`)."""
    if not isinstance(loaded, Mapping):
        return _from_table(loaded.with_format("arrow")[:], name, size, cache)
    sides = [next((s for s in names if s in loaded), "") for names in _SIDES]
    need(
        all(sides),
        lambda: f"`{name}` needs a `train` and a `test` part; it has {sorted(loaded)}.",
    )
    arrow = bring("pyarrow", "Reading a Hugging Face data set", DATASETS)
    tables = [loaded[side].with_format("arrow")[:] for side in sides]
    split = np.repeat(np.arange(2, dtype=np.uint8), [len(table) for table in tables])
    return _from_table(arrow.concat_tables(tables), name, size, cache, split)


_SIDES = (SPLITS[:1], ("test", "validation", "valid"))


def _from_table(
    table: Any,
    name: str,
    size: int | None,
    cache: bool,
    split: NDArray[np.uint8] | None = None,
) -> Dataset:
    need(len(table) > 0, lambda: f"`{name}` has no rows.")
    columns: dict[str, Column] = {}
    rows = np.arange(len(table))
    skipped: tuple[Skipped, ...] = ()
    for original in table.column_names:
        column = table.column(original)
        need(
            column.null_count == 0,
            lambda original=original, column=column: (
                f"`{original}` of `{name}` needs a value in each of {len(table)} rows; "
                f"{column.null_count} are missing."
            ),
        )
        role = ROLES.get(original, original)
        if _is_picture(column):
            names = [f"row {row}" for row in range(len(table))]
            pictures = Pictures(_Cells(column), size)
            columns["images"], rows, skipped = load_pictures(pictures, names, cache=cache)
            need(
                len(rows) > 0, lambda: f"None of the {len(table)} pictures of `{name}` can be read."
            )
        elif (array := _array(column)) is not None:
            if role == "captions":
                several = [(one,) if isinstance(one, str) else tuple(one) for one in array]
                columns["captions"] = batch_of_objects(several)
                columns["texts"] = batch_of_objects(texts[0] if texts else "" for texts in several)
            else:
                columns[role] = array
    if split is not None:
        columns["split"] = split
    if len(rows) < len(table):
        columns = {k: v if k == "images" else v[rows] for k, v in columns.items()}
    names_of = _class_names(table)
    columns = _stacked(columns)
    return Dataset(
        columns,
        name,
        names_of.get("labels", ()),
        names_of.get("coarse_labels", ()),
        skipped=skipped,
    )


def _stacked(columns: dict[str, Column]) -> dict[str, Column]:
    """Columns of numbers side by side as `x`, where nothing else is an input."""
    rich = [k for k, v in columns.items() if not isinstance(v, np.ndarray) or v.ndim > 1]
    rich += [k for k in ("images", "texts", "captions", "x") if k in columns]
    described = {"labels", "coarse_labels", "ids", "split", "groups"}
    plain = [k for k, v in columns.items() if k not in described and isinstance(v, np.ndarray)]
    plain = [k for k in plain if columns[k][np.arange(1)].dtype.kind in "biuf"]
    if rich or not plain:
        return columns
    x = np.stack([np.asarray(columns[k], np.float32) for k in plain], axis=1)
    return {"x": x, **{k: v for k, v in columns.items() if k not in plain}}


class _Cells:
    """Encoded pictures in a table's column, by row."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: int, /) -> bytes | str:
        cell = self.column[row].as_py()
        if isinstance(cell, dict):
            cell = cell.get("bytes") or cell.get("path") or b""
        return cell


def _is_picture(column: Any) -> bool:
    kind = str(column.type)
    return kind in ("binary", "large_binary") or (kind.startswith("struct") and "bytes:" in kind)


def _array(column: Any) -> NDArray[Any] | None:
    """The column as an array; None for kinds that no model could use."""
    kind = str(column.type)
    if kind in ("string", "large_string"):
        return batch_of_objects(column.to_pylist())
    if "list" in kind:
        values = column.to_pylist()
        if any(isinstance(one, str) for value in values for one in value[:1]):
            return batch_of_objects(tuple(value) for value in values)
        try:
            stacked = np.array(values)
        except ValueError:  # rows of unequal length
            return None
        return stacked if stacked.dtype.kind in "biuf" else None
    array = column.to_numpy()
    return array if array.dtype.kind in "biufM" else None


def _class_names(table: Any) -> dict[str, tuple[str, ...]]:
    """Names of labels, which Hugging Face keeps in the schema."""
    noted = (table.schema.metadata or {}).get(b"huggingface")
    if noted is None:
        return {}
    try:
        features = json.loads(noted)["info"]["features"]
        return {
            ROLES.get(name, name): tuple(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"The table's notes on its labels are damaged: {error}") from error
