"""Embeddings of other tools, opened without reading them: tables, tensors, indices, shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chiaroscuro.artifacts.bounded import fits
from chiaroscuro.artifacts.embeddings import (
    EMBEDDINGS_FORMAT,
    FIELDS,
    LAYER,
    Embeddings,
    arguments_of,
)
from chiaroscuro.artifacts.file_kinds import (
    KINDS,
    NO_ROWS,
    ROWS_AT_ONCE,
    arrow_columns,
    from_index,
    kind_of,
    read_file,
    read_folder,
)
from chiaroscuro.artifacts.files import newer
from chiaroscuro.artifacts.numpy_files import read_npy
from chiaroscuro.artifacts.pieces import Beside, taken
from chiaroscuro.errors import InputError, need

__all__ = [
    "KINDS",
    "Source",
    "from_arrays",
    "from_frame",
    "is_frame",
    "open_source",
    "parse_names",
    "read_labels",
]

_VECTORS = ("h", "z", "h1", "h2", "z1", "z2")
_USUAL = {
    "h": (
        *("embedding", "embeddings", "emb", "embeds", "vector", "vectors", "features", "feature"),
        *("x", "x_train", "representation", "representations", "hidden", "latent", "latents"),
        *("sentence_embedding", "sentence_embeddings", "feats", "arr_0", "values"),
    ),
    "labels": ("label", "y", "y_train", "target", "targets", "class", "category", "class_id"),
    "ids": ("id", "key", "keys", "index", "_id", "sample_id", "filename", "file", "path", "uid"),
    "texts": ("text", "caption", "captions", "sentence", "sentences", "document", "content"),
    "split": ("subset", "part", "fold"),
    "class_names": ("target_names", "label_names", "classes", "names"),
    "coarse_labels": ("coarse_label",),
}
"""What other tools call what is ours, in lower case."""
_SIDES = (
    *(("image_embeds", "text_embeds"), ("image_embeddings", "text_embeddings")),
    *(("image_features", "text_features"), ("image_embedding", "text_embedding")),
    *(("img_embeds", "txt_embeds"), ("image", "text"), ("images", "texts")),
    *(("query_embeddings", "document_embeddings"), ("queries", "documents"), ("query", "passage")),
    *(("anchor", "positive"), ("anchors", "positives"), ("x1", "x2"), ("z_i", "z_j")),
    *(("view1", "view2"), ("view_1", "view_2"), ("emb1", "emb2"), ("left", "right")),
)
"""Two sides of pairs, as other tools call them: what their objective compares."""
_TRAIN = ("train", "training", "0")


@dataclass(frozen=True, eq=False)
class Source:
    """Embeddings that are open and not read: arrays by our names, each with a shape and a type.

    Args:
        name: name of the file or folder.
        arrays: of numpy (mapped where they are large), or `Pieces`.
        renamed: what arrays were called in the file, by our names.
        left: names in the file that nothing is made of.
    """

    name: str
    arrays: Mapping[str, Any]
    renamed: Mapping[str, str]
    left: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows."""
        return next((len(a) for name, a in self.arrays.items() if name not in NO_ROWS), 0)

    def take(self, rows: Any, without: Sequence[str] = ()) -> Embeddings:
        """Return the samples that `rows` selects, read into memory; all of them for None."""
        made: dict[str, Any] = {}
        for name, array in self.arrays.items():
            if name in without:
                continue
            whole = rows is None or name in NO_ROWS
            if whole and not isinstance(array, np.ndarray):
                fits(f"`{name}` of `{self.name}`", array.dtype.itemsize * int(np.prod(array.shape)))
            made[name] = np.asarray(array) if whole else taken(array, rows)
        if "split" in made:
            made["split"] = _split(made["split"])
        for name in ("ids", "texts"):
            if name in made and made[name].dtype == object:
                cells = ("" if one is None else str(one) for one in made[name].tolist())
                made[name] = np.array(list(cells), dtype=str)
        made |= _labels(made.get("labels"), made.get("class_names"))
        try:
            return Embeddings(**arguments_of(made))
        except InputError as error:
            raise InputError(f"`{self.name}`: {error}") from None


def parse_names(text: str | None) -> dict[str, str]:
    """Read `--map`: their names and ours, `X=h,y=labels`.

    Example:
        >>> parse_names("X=h,y=labels")
        {'X': 'h', 'y': 'labels'}
    """
    if not text:
        return {}
    parts = [part.partition("=") for part in text.split(",")]
    need(
        all(theirs.strip() and ours.strip() for theirs, _, ours in parts),
        lambda: f"`--map` needs THEIRS=OURS, several with commas; received `{text}`.",
    )
    return {theirs.strip(): ours.strip() for theirs, _, ours in parts}


def open_source(path: Any, names: Mapping[str, str] | None = None) -> Source:
    """Open a file or a folder of shards; nothing proportional to its rows is read or allocated.

    Of a file that is not ours the usual names are understood (`X` and `y`, `embedding`, `label`,
    `image_embeds` and `text_embeds`); a table without a column of vectors is taken as a matrix of
    its columns of numbers.

    Args:
        path: ends in one of `KINDS`, or a folder of such files, joined in the order of their names.
        names: what arrays of the file are here, such as `{"X": "h"}`, where that is not clear.
    """
    path = Path(path)
    need(path.exists(), lambda: f"`{path}` does not exist.")
    kind = kind_of(path)
    arrays = read_folder(path) if kind == "folder" else read_file(kind, path)
    stated = arrays.pop("format", None)
    if stated is not None and kind == ".npz":
        newer(
            f"`{path.name}`", stated.tolist() if np.size(stated) == 1 else stated, EMBEDDINGS_FORMAT
        )
    return _named(path.name, arrays, names or {}, strict=kind == ".npz")


# ---- names ----


def _named(name: str, arrays: Mapping[str, Any], names: Mapping[str, str], strict: bool) -> Source:
    """Return arrays by our names: what was asked for, our own, then the usual ones."""
    ours: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    left = dict(arrays)
    for theirs, our in names.items():
        need(
            theirs in left and our not in left,
            lambda theirs=theirs, our=our: (
                f"`{name}` cannot have `{theirs}` as `{our}`: it holds "
                f"{', '.join(f'`{one}`' for one in arrays)}."
            ),
        )
        need(
            our in FIELDS or our.startswith(LAYER),
            lambda our=our: (
                f"`{our}` is not a name of an embeddings file. It holds any of: "
                f"{', '.join(FIELDS)}, {LAYER}<name>."
            ),
        )
        ours[our], renamed[our] = left.pop(theirs), theirs
    own = [key for key in left if key in FIELDS or key.startswith(LAYER)]
    # "text" and "image" may be words and images: a name is ours if the array can be that
    ours |= {key: left.pop(key) for key in own if key not in ("texts",) or left[key].ndim == 1}
    foreign = not set(ours) & set(_VECTORS)
    if foreign:
        _sides(ours, left, renamed)
    for our, usual in _USUAL.items():
        wanted = 2 if our == "h" else 1
        if our in ours or (our == "h" and set(ours) & {"h1", "z1", f"{LAYER}paired"}):
            continue
        there = [k for k in left if k.lower() in usual and left[k].ndim == wanted]
        there.sort(key=lambda k, usual=usual: usual.index(k.lower()))
        if there and (not strict or foreign):
            ours[our], renamed[our] = left.pop(there[0]), there[0]
    _factors(ours, left)
    if not set(ours) & set(_VECTORS):
        _only_matrix(name, ours, left, renamed)
    if strict and not foreign and not names:
        ours |= left  # ours, with a name that is not: `Embeddings` says so
        left = {}
    return Source(name, ours, renamed, tuple(left))


def _sides(ours: dict[str, Any], left: dict[str, Any], renamed: dict[str, str]) -> None:
    lower = {key.lower(): key for key in left}
    for one, two in _SIDES:
        if one in lower and two in lower:
            a, b = lower[one], lower[two]
            if left[a].ndim != 2 or left[b].ndim != 2:
                continue
            same = left[a].shape[1] == left[b].shape[1]
            for our, theirs in zip(
                ("z1", "z2") if same else ("h", f"{LAYER}paired"), (a, b), strict=True
            ):
                ours[our], renamed[our] = left.pop(theirs), theirs
            return


def _factors(ours: dict[str, Any], left: dict[str, Any]) -> None:
    """Columns `factor_<name>`, as `Embeddings.to_parquet` writes them."""
    names = [key for key in left if key.startswith("factor_") and left[key].ndim == 1]
    if names and "factors" not in ours:
        ours["factors"] = Beside([left.pop(key) for key in names])
        ours["factor_names"] = np.array([key.removeprefix("factor_") for key in names])
    if "label_name" in left and left["label_name"].dtype.kind in "UO":
        spelled = left.pop("label_name")
        if "labels" not in ours:
            ours["labels"] = spelled
        elif len(spelled) <= 10 * ROWS_AT_ONCE:
            codes, words = np.asarray(ours["labels"]), np.asarray(spelled).astype(str)
            known, first = np.unique(codes[codes >= 0], return_index=True)
            if len(known) and known[-1] == len(known) - 1:
                ours["class_names"] = words[codes >= 0][first]


def _only_matrix(
    name: str, ours: dict[str, Any], left: dict[str, Any], renamed: dict[str, str]
) -> None:
    """The one matrix of a file, or the columns of numbers of a table beside each other."""
    numbers = {key: a for key, a in left.items() if a.dtype.kind in "fiu"}
    matrices = [key for key, a in numbers.items() if a.ndim == 2]
    if len(matrices) == 1:
        ours["h"], renamed["h"] = left.pop(matrices[0]), matrices[0]
        return
    columns = [key for key, a in numbers.items() if a.ndim == 1]
    if not matrices and len(columns) >= 2 and len({len(left[key]) for key in columns}) == 1:
        ours["h"], renamed["h"] = Beside([left.pop(key) for key in columns]), "columns"
        return
    if ours and not matrices:
        return  # what is known of rows that are elsewhere
    shapes = ", ".join(f"`{k}` {tuple(a.shape)} {a.dtype}" for k, a in (ours | left).items())
    raise InputError(
        f"`{name}` needs embeddings: one matrix, or a name such as `h` or `embedding`; it holds "
        f"{shapes or 'nothing'}. Say which is which: `--map NAME=h`."
    )


def _labels(labels: Any, class_names: Any) -> dict[str, Any]:
    """Labels that are words, some missing (None or empty): numbers, -1 where there is none."""
    if labels is None or labels.dtype.kind not in "OU" or class_names is not None:
        return {}
    words = np.array(["" if one is None else str(one) for one in labels.tolist()])
    known = np.unique(words[words != ""])
    at = np.searchsorted(known, words) if len(known) else np.zeros(len(words), dtype=np.int64)
    return {"labels": np.where(words == "", -1, at), "class_names": known}


def _split(split: np.ndarray) -> np.ndarray:
    """Words of a split as 0 (train) and 1 (anything that is held out)."""
    if split.dtype.kind not in "OUS":
        return split
    return np.array([int(str(one).lower() not in _TRAIN) for one in split.tolist()])


# ---- objects of other libraries ----


def is_frame(value: Any) -> bool:
    """Return whether it is a table of pandas, polars, pyarrow or `datasets`,
    or an index of faiss.
    """
    return _library(value) in ("pandas", "polars", "pyarrow", "datasets", "faiss")


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def from_arrays(arrays: Mapping[str, Any], names: Mapping[str, str] | None = None) -> Source:
    """Open arrays by any names, such as `X` and `y`.

    Args:
        arrays: by name.
        names: as for `open_source`.

    Example:
        >>> sorted(from_arrays({"X": np.eye(3), "y": np.arange(3)}).arrays)
        ['h', 'labels']
    """
    converted = {str(key): np.asarray(value) for key, value in arrays.items()}
    return _named("embeddings", converted, names or {}, strict=False)


def from_frame(frame: Any, names: Mapping[str, str] | None = None) -> Source:
    """Open a table of pandas, polars, pyarrow or `datasets`, or an index of faiss.

    Args:
        frame: with a column of vectors, or of numbers alone.
        names: as for `open_source`.
    """
    library = _library(frame)
    if library == "faiss":
        return _named("index", from_index(frame), names or {}, strict=False)
    if library == "datasets":
        frame = frame.with_format("arrow")[:]
    elif library == "polars":
        frame = frame.to_arrow()
    if library != "pandas":
        table = frame.combine_chunks()
        column = lambda name: lambda k: table[name]
        columns = arrow_columns("table", table.schema, [table.num_rows], column)
        return _named("table", columns, names or {}, strict=False)
    columns = {str(name): _cells_of_pandas(str(name), frame[name]) for name in frame.columns}
    return _named("table", columns, names or {}, strict=False)


def _cells_of_pandas(name: str, column: Any) -> np.ndarray:
    cells = column.to_numpy()
    if cells.dtype != object or not len(cells):
        return cells
    if isinstance(cells[0], str) or cells[0] is None or np.ndim(cells[0]) == 0:
        return cells
    sizes = {len(cell) for cell in cells}
    need(
        len(sizes) == 1,
        lambda: f"`{name}` needs vectors of one length; received {sorted(sizes)[:5]}.",
    )
    return np.stack([np.asarray(cell) for cell in cells])


# ---- labels of their own ----


def read_labels(path: Any, ids: Callable[[], np.ndarray] | None, n: int) -> dict[str, Any]:
    """Read labels from a file of their own: one for each row, in order or by id.

    Args:
        path: path of a table with a column `label` (or one column), or an `.npy` of labels.
        ids: ids of the rows, where they have any: a table with a column `id` is joined by it. Where
            they have none, ids from 0 to n - 1 are the numbers of the rows.
        n: rows.

    Returns:
        `labels`, and `class_names` where they are words; a row without a label has -1.
    """
    path = Path(path)
    need(path.exists(), lambda: f"`{path}` does not exist.")
    kind = kind_of(path)
    need(kind != "folder", lambda: f"Labels need one file; `{path}` is a folder.")
    arrays = {"labels": read_npy(path)} if kind == ".npy" else read_file(kind, path)
    columns = {key: np.asarray(a[:]) for key, a in arrays.items() if a.ndim == 1}
    named = lambda our: next(
        (k for k in columns if k.lower() in (our, *_USUAL[our]) and len(columns) > 1), None
    )
    key, label = named("ids"), named("labels")
    if label is None and len(columns) == 2 and key is not None:
        label = next(k for k in columns if k != key)
    if label is None and len(columns) == 1:
        label = next(iter(columns))
    need(
        label is not None,
        lambda: (
            f"`{path.name}` needs a column `label`; it holds "
            f"{', '.join(f'`{k}`' for k in columns) or 'no columns'}."
        ),
    )
    y = columns[str(label)]
    if key is not None and ids is None and _row_numbers(columns[key], n):
        ids = lambda: np.arange(n)
    if key is not None and ids is not None:
        return _joined(path.name, columns[key], y, ids())
    need(
        len(y) == n,
        lambda: (
            f"`{path.name}` needs a label for each of {n} rows; it has {len(y)}. Add a column `id` "
            "to both files to join them by it."
        ),
    )
    return _labels(y, None) if y.dtype.kind in "OU" else {"labels": y}


def _row_numbers(keys: np.ndarray, n: int) -> bool:
    """Whether ids are the numbers of the rows, in any order."""
    return keys.dtype.kind in "iu" and np.array_equal(np.sort(keys), np.arange(n))


def _joined(name: str, keys: np.ndarray, y: np.ndarray, ids: np.ndarray) -> dict[str, Any]:
    at = {str(one): k for k, one in enumerate(keys.tolist())}
    need(
        len(at) == len(keys),
        lambda: f"`{name}` needs each id once; {len(keys) - len(at)} of {len(keys)} are repeated.",
    )
    where = np.array([at.get(str(one), -1) for one in ids.tolist()], dtype=np.int64)
    need(
        bool((where >= 0).any()),
        lambda: (
            f"`{name}` needs ids of the rows; none of its {len(keys)} is, `{keys[0]}` for one, "
            f"where the rows have `{ids[0]}`."
        ),
    )
    if y.dtype.kind in "OU":
        return _labels(np.array(["" if k < 0 else y[k] for k in where], dtype=object), None)
    return {"labels": np.where(where < 0, -1, y[where])}
