"""Tables: CSV, TSV, parquet, feather, data frames and Hugging Face `datasets`.

A table becomes columns of arrays, whatever it comes from; then each column gets its role: image,
text, label, or one of the features that together are `x`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import decode_table, fits, memory_limit, read_unzipped
from chiaroscuro.artifacts.files import read_json
from chiaroscuro.data.cells import (
    MISSING,
    PARQUET,
    EncodedCells,
    RowGroups,
    Values,
    cell_values,
    column_bytes,
    is_encoded,
    know_sizes,
    listed,
)
from chiaroscuro.data.dataset import SPLITS, Dataset, batch_of_objects
from chiaroscuro.data.extras import bring
from chiaroscuro.data.order import Blocks
from chiaroscuro.data.pictures import Pictures
from chiaroscuro.data.places import cache_folder
from chiaroscuro.data.roles import IMAGES, Roles, assemble, check_roles, roles_of
from chiaroscuro.data.shards import Shard, ask_together, shards
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = [
    "from_frame",
    "from_hugging_face",
    "read_csv",
    "read_feather",
    "read_hugging_face",
    "read_parquet",
]

MAX_CELL = 1 << 24
DATASETS = "'chiaroscuro[datasets]'"


def read_csv(
    path: str | Path,
    labels: str | None = None,
    drop: Sequence[str] = (),
    text: str | None = None,
    image: str | None = None,
    standardise: bool = True,
    header: bool = True,
    size: int | None = None,
    outside: bool = False,
) -> Dataset:
    """Read a table of comma-, semicolon- or tab-separated values.

    Numeric columns are the features `x`, standardised with the mean and deviation of the training
    rows. Text columns with few distinct values are one-hot encoded (`colour=red`). A column called
    `label` or `labels` is the class; for other names of a target (`target`, `y`, `class`, ...),
    `labels` or `drop` must say what it is. An unnamed column of row numbers, as pandas writes it,
    is dropped.

    Args:
        path: `.csv` or `.tsv` in UTF-8, gzipped or not.
        labels: column that holds the class.
        drop: columns to drop.
        text: column that holds texts, to be used as input.
        image: column that holds image paths relative to the table, to be used as input.
        standardise: whether to standardise the features.
        header: whether the first line holds the names; otherwise they are c0, c1, ...
        size: resize images to `size` x `size`.
        outside: allow image paths outside the folder of the table.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "t.csv"
        >>> _ = path.write_text("a,colour,kind\\n1,red,u\\n3,blue,v\\n5,red,u\\n7,red,v\\n")
        >>> data = read_csv(path, labels="kind")
        >>> data.scaling.names, data.class_names
        (('a', 'colour=blue', 'colour=red'), ('u', 'v'))
        >>> data.column("x")[:, 0].round(2)
        array([-1.34, -0.45,  0.45,  1.34], dtype=float32)
    """
    path = Path(path)
    roles = roles_of(labels, drop, text, image, standardise)
    columns, numbers = _csv_columns(path, header)
    return assemble(columns, _stem(path), roles, path.parent, size, outside, lines=numbers)


def read_feather(
    path: str | Path,
    labels: str | None = None,
    drop: Sequence[str] = (),
    text: str | None = None,
    image: str | None = None,
    standardise: bool = True,
    size: int | None = None,
    outside: bool = False,
) -> Dataset:
    """Read a table from a feather or arrow file; see `read_csv` for the roles of columns."""
    path = Path(path)
    need(path.is_file(), lambda: f"`{path}` does not exist.")
    arrow = bring("pyarrow", "Reading feather", PARQUET)
    feather = bring("pyarrow.feather", "Reading feather", PARQUET)
    try:
        table = feather.read_table(path, memory_map=True)
        table.validate(full=True)  # arrow ends the process over offsets that lead out
        fits(f"`{path}`", table.nbytes)
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, ChiaroError):
            raise
        raise InputError(f"`{path}` cannot be read as feather: {_first_line(error)}") from error
    roles = roles_of(labels, drop, text, image, standardise)
    return _from_arrow(table, _stem(path), roles, path.parent, size, outside)


def read_parquet(
    path: str | Path,
    size: int | None = None,
    cache: bool = False,
    labels: str | None = None,
    drop: Sequence[str] = (),
    text: str | None = None,
    image: str | None = None,
    standardise: bool = True,
    buffer: int | None = None,
    outside: bool = False,
) -> Dataset:
    """Read a table from parquet files.

    `image`/`img` (encoded bytes, or Hugging Face's struct of bytes and path) are the images,
    `label` the classes, `text` the texts, `caption` (a string or a list of them) texts and
    captions. Lists of equal length become rows of an array. Where there is neither image nor text
    nor list, the columns are features: see `read_csv`. Missing values are an error with their
    count; a column of another kind is refused until it is dropped.

    Args:
        path: a file; or several, as for `shards`, which are put one after the other.
        size, cache: as for a folder of images.
        labels, drop, text, image, standardise, outside: as for `read_csv`.
        buffer: read images from the files by groups of rows instead of keeping them in memory;
            an epoch then goes group by group, shuffling among this many samples (`BlockOrder`).
            None does so where the images take more than a quarter of the memory limit, and where
            the files are elsewhere: those are copied into the user's cache when they are needed.
    """
    parquet = bring("pyarrow.parquet", "Reading parquet", PARQUET)
    arrow = bring("pyarrow", "Reading parquet", PARQUET)
    parts = shards(path, ".parquet")
    for part in parts:
        need(
            part.is_remote or Path(part.where).is_file(),
            lambda part=part: f"`{part.where}` does not exist.",
        )
    ask_together(parts)
    roles = roles_of(labels, drop, text, image, standardise)
    here = not parts[0].is_remote
    name = _stem(Path(str(path)))
    root = Path(parts[0].where).parent if here else cache_folder("shards")
    try:
        footers = [_footer(parquet, part) for part in parts]
        lazy = _lazy_images(parts, footers, roles, buffer)
        keep = [n for n in footers[0].schema.to_arrow_schema().names if n != lazy]
        table = _read_groups(arrow, parquet, parts, footers, keep)
        split_images = None
        if lazy is not None:
            counts = [
                [footer.row_group(g).num_rows for g in range(footer.num_row_groups)]
                for footer in footers
            ]
            split_images = RowGroups(parts, lazy, counts, root, outside)
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, ChiaroError):
            raise
        raise InputError(f"`{path}` cannot be read as parquet: {_first_line(error)}") from error
    data = _from_arrow(table, name, roles, root, size, outside, cache=cache, images=split_images)
    if split_images is None:
        return data
    blocks: Blocks | None = Blocks(split_images.sizes[split_images.sizes > 0], buffer or 4096)
    images = data.columns.get("images")
    if blocks is not None and isinstance(images, Pictures) and images.rows is not None:
        blocks = blocks.of_rows(images.rows)
    return dataclasses.replace(data, blocks=blocks)


def _footer(parquet: Any, part: Shard) -> Any:
    """Return what a parquet file says of itself; of one elsewhere, no more is fetched."""
    with part.stream() as opened:
        know_sizes(part, opened)
        with parquet.ParquetFile(opened) as file:
            return file.metadata


def read_hugging_face(
    path: str | Path,
    size: int | None = None,
    cache: bool = False,
    labels: str | None = None,
    drop: Sequence[str] = (),
    text: str | None = None,
    image: str | None = None,
    standardise: bool = True,
) -> Dataset:
    """Read a dataset that `datasets` saved with `save_to_disk`; the network is not used."""
    datasets = bring("datasets", "Reading a Hugging Face dataset", DATASETS)
    need(Path(path).is_dir(), lambda: f"`{path}` is not a folder that is there.")
    try:
        loaded = datasets.load_from_disk(str(path))
        _complete(Path(path), loaded)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ChiaroError):
            raise
        raise InputError(f"`{path}` cannot be read as a saved dataset: {error}") from error
    return from_hugging_face(
        loaded, Path(path).name, size, cache, labels, drop, text, image, standardise
    )


def from_hugging_face(
    loaded: Any,
    name: str = "data",
    size: int | None = None,
    cache: bool = False,
    labels: str | None = None,
    drop: Sequence[str] = (),
    text: str | None = None,
    image: str | None = None,
    standardise: bool = True,
) -> Dataset:
    """Convert a `datasets.Dataset`, or a `DatasetDict` with `train` and `test` (or `validation`).

    Args:
        loaded: the dataset.
        name: what to call it.
        size, cache: as for a folder of images.
        labels, drop, text, image, standardise: as for `read_csv`.
    """
    roles = roles_of(labels, drop, text, image, standardise)
    if not isinstance(loaded, Mapping):
        table = loaded.with_format("arrow")[:]
        return _from_arrow(table, name, roles, None, size, True, cache=cache)
    sides = [next((s for s in names if s in loaded), "") for names in _SIDES]
    need(
        all(sides),
        lambda: f"`{name}` needs a `train` and a `test` part; it has {sorted(loaded)}.",
    )
    arrow = bring("pyarrow", "Reading a Hugging Face dataset", DATASETS)
    tables = [loaded[side].with_format("arrow")[:] for side in sides]
    split = np.repeat(np.arange(2, dtype=np.uint8), [len(table) for table in tables])
    table = arrow.concat_tables(tables)
    return _from_arrow(table, name, roles, None, size, True, cache=cache, split=split)


_SIDES = (SPLITS[:1], ("test", "validation", "valid"))


def from_frame(
    frame: Any,
    labels: str | None = None,
    drop: Sequence[str] = (),
    text: str | None = None,
    image: str | None = None,
    standardise: bool = True,
    name: str = "table",
    size: int | None = None,
) -> Dataset:
    """Convert a pandas or polars DataFrame, or an arrow table; the pandas index is dropped.

    Args:
        frame: the table.
        labels, drop, text, image, standardise: as for `read_csv`.
        name: what to call the dataset.
        size: bring images to `size` x `size`.
    """
    roles = roles_of(labels, drop, text, image, standardise)
    if hasattr(frame, "column_names") and hasattr(frame, "schema"):
        return _from_arrow(frame, name, roles, None, size, True)
    need(
        hasattr(frame, "columns") and hasattr(frame, "__getitem__"),
        lambda: f"`from_frame` needs a data frame; received `{type(frame).__name__}`.",
    )
    names = [str(one) for one in frame.columns]
    repeated = sorted({one for one in names if names.count(one) > 1})
    need(not repeated, lambda: f"`{name}` has two columns called {repeated[:5]}.")
    columns = {
        str(one): cell_values(str(one), name, frame[one].to_numpy())
        for one in frame.columns
        if str(one) not in roles.drop
    }
    check_roles(roles, names, name)
    return assemble(columns, name, roles, None, size, True)


# ---- columns of arrays ----


def _csv_columns(path: Path, header: bool) -> tuple[dict[str, Values], list[int]]:
    content = decode_table(read_unzipped(path), str(path))
    first = content.partition("\n")[0]
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
    marks = {mark: first.count(mark) for mark in ("\t", ";", ",")}
    separator = "\t" if tabs else max(marks, key=lambda mark: marks[mark])
    before = csv.field_size_limit(MAX_CELL)
    try:
        reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
        rows, numbers = [], []
        for row in reader:
            if row:
                rows.append(row)
                numbers.append(reader.line_num)
    except csv.Error as error:
        raise InputError(f"`{path}` is damaged at line {reader.line_num}: {error}.") from None
    finally:
        csv.field_size_limit(before)
    need(len(rows) > int(header), lambda: f"`{path}` has no rows.")
    names = [cell.strip() for cell in rows[0]] if header else [f"c{i}" for i in range(len(rows[0]))]
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != len(names):
            raise InputError(
                f"`{path}` needs {len(names)} cells in each line; line {number} has {len(row)}."
            )
    if header:
        need(
            not all(_is_number(name) for name in names),
            lambda: (
                f"The first line of `{path}` needs the names of the columns; it has numbers. Pass "
                "`header=False` if there are none."
            ),
        )
        rows, numbers = rows[1:], numbers[1:]
    columns: dict[str, Values] = {}
    for at, name in enumerate(names):
        cells = [row[at].strip() for row in rows]
        if name in ("", "Unnamed: 0") and cells == [str(i) for i in range(len(cells))]:
            continue  # the index that pandas writes
        need(bool(name), lambda at=at: f"Column {at + 1} of `{path}` needs a name.")
        need(name not in columns, lambda name=name: f"`{path}` has two columns called `{name}`.")
        columns[name] = _typed(cells)
    return columns, numbers


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _typed(cells: list[str]) -> NDArray[Any]:
    """Return numbers where every cell that is not missing is one (a missing one is NaN), else
    strings.
    """
    known = [cell for cell in cells if cell.lower() not in MISSING]
    try:
        np.array(known, dtype=np.float64)
    except ValueError:
        return batch_of_objects(cells)
    filled = ["nan" if cell.lower() in MISSING else cell for cell in cells]
    if not known:
        return batch_of_objects(cells)
    try:
        return np.array([int(cell) for cell in cells], np.int64)
    except (ValueError, OverflowError):
        return np.array(filled, dtype=np.float64)


# ---- arrow ----


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0][:300] or type(error).__name__


def _stem(path: Path) -> str:
    return path.name.split(".")[0].split("{")[0] or "table"


def _read_groups(
    arrow: Any, parquet: Any, parts: list[Shard], footers: list[Any], keep: list[str]
) -> Any:
    """Return all rows of some columns, group by group, within the memory limit."""
    tables, taken = [], 0
    for part, footer in zip(parts, footers, strict=True) if keep else ():
        rows = 0
        with part.stream() as opened, parquet.ParquetFile(opened) as file:
            for group in range(footer.num_row_groups):
                fits(f"`{part.where}`", taken + column_bytes(part, group, keep))
                for batch in file.iter_batches(256, row_groups=[group], columns=keep):
                    rows += len(batch)
                    taken += batch.nbytes
                    fits(f"`{part.where}`", taken)
                    tables.append(arrow.Table.from_batches([batch]))
        need(
            rows == footer.num_rows,
            lambda part=part, rows=rows, footer=footer: (
                f"`{part.where}` declares {footer.num_rows} rows and has {rows}. It is damaged."
            ),
        )
    if not tables:
        return footers[0].schema.to_arrow_schema().empty_table().select(keep)
    return arrow.concat_tables(tables)


def _lazy_images(
    parts: list[Shard], footers: list[Any], roles: Roles, buffer: int | None
) -> str | None:
    """Return the column of images if it is to stay in the files:
    if asked for, if it is large, or if they are elsewhere.
    """
    schema = footers[0].schema.to_arrow_schema()
    named = [roles.image] if roles.image else [n for n in schema.names if n in IMAGES]
    column = next((n for n in named if n in schema.names), None)
    if column is None or not is_encoded(schema.field(column).type):
        return None
    if buffer is not None or parts[0].is_remote:
        return column
    size = sum(
        column_bytes(part, group, {column})
        for part, footer in zip(parts, footers, strict=True)
        for group in range(footer.num_row_groups)
    )
    return column if 4 * size > memory_limit() else None


def _from_arrow(
    table: Any,
    name: str,
    roles: Roles,
    root: Path | None,
    size: int | None,
    outside: bool,
    cache: bool = False,
    split: NDArray[np.uint8] | None = None,
    images: RowGroups | None = None,
) -> Dataset:
    names = list(table.column_names)
    check_roles(roles, [*names, *([images.column] if images else [])], name)
    index = _pandas_index(table)
    columns: dict[str, Values] = {}
    for one in names:
        if one in roles.drop or one in index:
            continue
        column = table.column(one)
        need(
            column.null_count == 0,
            lambda one=one, column=column: (
                f"`{one}` of `{name}` needs a value in each of {len(table)} rows; "
                f"{column.null_count} are missing."
            ),
        )
        columns[one] = _from_column(one, name, column, root, outside)
    if images is not None:
        columns[images.column] = images
    return assemble(columns, name, roles, root, size, outside, cache, split, _class_names(table))


def _pandas_index(table: Any) -> set[str]:
    """Return the columns that hold the index of a pandas frame."""
    noted = (table.schema.metadata or {}).get(b"pandas")
    try:
        index = json.loads(noted)["index_columns"] if noted else []
        return {one for one in index if isinstance(one, str)}
    except (ValueError, LookupError, TypeError, RecursionError):
        return {n for n in table.column_names if re.fullmatch(r"__index_level_\d+__", n)}


def _from_column(column: str, name: str, cells: Any, root: Path | None, outside: bool) -> Values:
    arrow = bring("pyarrow", "Reading parquet", PARQUET)
    try:
        if str(cells.type).startswith("dictionary"):
            cells = cells.cast(cells.type.value_type)
        kind = str(cells.type)
        if kind.startswith("decimal"):
            cells = cells.cast(arrow.float64())
        if is_encoded(cells.type):
            return EncodedCells(cells, root, outside)
        if "string" in kind and "list" not in kind and "struct" not in kind:
            return batch_of_objects(cells.to_pylist())
        if "list" in kind:
            return listed(column, name, cells.to_pylist())
        return cells.to_numpy()
    except (arrow.ArrowException, ValueError, UnicodeError, OverflowError) as error:
        if isinstance(error, ChiaroError):
            raise
        raise InputError(f"`{column}` of `{name}` cannot be read: {_first_line(error)}") from error


def _class_names(table: Any) -> dict[str, tuple[str, ...]]:
    """Return names of labels, which Hugging Face keeps in the schema, by column."""
    noted = (table.schema.metadata or {}).get(b"huggingface")
    if noted is None:
        return {}
    try:
        features = json.loads(noted)["info"]["features"]
        return {
            name: tuple(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"The table's notes on its labels are damaged: {error}") from error


def _complete(path: Path, loaded: Any) -> None:
    """Compare the rows of a saved dataset with the number that its description declares."""
    for side, part in loaded.items() if isinstance(loaded, Mapping) else (("", loaded),):
        info = path / side / "dataset_info.json"
        if not info.is_file():
            continue
        about = read_json(info)
        splits = about.get("splits") if isinstance(about, dict) else None
        splits = splits if isinstance(splits, dict) else {}
        for one in splits.values():
            declared = one.get("num_examples") if isinstance(one, dict) else None
            single = len(splits) == 1 and type(declared) is int and not part._indices
            need(
                not single or declared == len(part),
                lambda declared=declared, part=part: (
                    f"`{path}` declares {declared} rows and has {len(part)}. It is damaged."
                ),
            )
