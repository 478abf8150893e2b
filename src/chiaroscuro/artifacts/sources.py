"""Embeddings of other tools, opened without reading them: tables, tensors, indices, shards."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from safetensors import SafetensorError

from chiaroscuro.artifacts.bounded import fits, open_regular, read_regular
from chiaroscuro.artifacts.embeddings import (
    EMBEDDINGS_FORMAT,
    FIELDS,
    LAYER,
    Embeddings,
    arguments_of,
)
from chiaroscuro.artifacts.files import newer
from chiaroscuro.artifacts.numpy_files import read_npy, read_npz
from chiaroscuro.artifacts.pieces import Beside, Pieces, taken
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.extras import bring

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
_NO_ROWS = ("class_names", "factor_names", "prompts", "prompt_z", "untrained_prompt_z", "about")
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
_DAMAGE = (
    *(UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError),
    *(AttributeError, OSError, ImportError, RecursionError),
)
"""What `torch.load` raises over a file that is no plain one."""
_BROKEN = (*_DAMAGE, MemoryError, OverflowError, NotImplementedError, csv.Error, SafetensorError)
"""What the readers of tables, tensors and indices raise over damaged files."""
_TRAIN = ("train", "training", "0")
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Source:
    """Embeddings that are open and not read: arrays by our names, each with a shape and a type.

    Args:
        name: of the file or folder.
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
        return next((len(a) for name, a in self.arrays.items() if name not in _NO_ROWS), 0)

    def take(self, rows: Any, without: Sequence[str] = ()) -> Embeddings:
        """Return the samples that `rows` selects, read into memory; all of them for None."""
        made: dict[str, Any] = {}
        for name, array in self.arrays.items():
            if name in without:
                continue
            whole = rows is None or name in _NO_ROWS
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
    kind = _kind(path)
    arrays = _folder(path) if kind == "folder" else _read(kind, path)
    stated = arrays.pop("format", None)
    if stated is not None and kind == ".npz":
        newer(
            f"`{path.name}`", stated.tolist() if np.size(stated) == 1 else stated, EMBEDDINGS_FORMAT
        )
    return _named(path.name, arrays, names or {}, strict=kind == ".npz")


def _kind(path: Path) -> str:
    if path.is_dir():
        lance = path.suffix == ".lance" or (path / "_versions").is_dir()
        return ".lance" if lance else "folder"
    need(
        path.suffix.lower() in KINDS,
        lambda: (
            f"An embeddings file ends in {', '.join(f'`{k}`' for k in KINDS)}; received "
            f"`{path.name}`."
        ),
    )
    return path.suffix.lower()


def _read(kind: str, path: Path) -> dict[str, Any]:
    """The arrays of a file by its kind; a pipe, a device and damage are sentences."""
    if kind != ".lance":
        open_regular(path).close()
    with _damage(path.name):
        return KINDS[kind](path)


@contextlib.contextmanager
def _damage(name: str) -> Iterator[None]:
    """Turn what another library raises over a damaged file into a sentence."""
    try:
        yield
    except ChiaroError:
        raise
    except Exception as error:
        if not isinstance(error, _BROKEN) and not type(error).__module__.startswith("pyarrow"):
            raise
        reason = " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split())
        raise InputError(f"`{name}` cannot be read, or is damaged: {reason[:200]}.") from None


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
        elif len(spelled) <= 10 * _ROWS_AT_ONCE:
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


# ---- kinds of files ----


def _npy(path: Path) -> dict[str, Any]:
    return {"h": read_npy(path)}


def _csv(path: Path) -> dict[str, Any]:
    """Return a table as text: a header if its first line has a word, columns of numbers and of
    words.
    """
    block = read_regular(path)
    try:
        text = block.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = block.count(b"\n", 0, error.start) + 1
        raise InputError(f"`{path.name}` needs UTF-8; line {line} has another code.") from None
    first = text[: text.find("\n")] if "\n" in text else text
    comma = max("\t,; ", key=first.count)
    cells = csv.reader(io.StringIO(text, newline=""), delimiter=comma, strict=True)
    before = csv.field_size_limit(max(1, len(text)))
    try:
        lines = [row for row in cells if row]
    finally:
        csv.field_size_limit(before)
    need(bool(lines), lambda: f"`{path.name}` needs rows; it is empty.")
    header = any(_number(cell) is None and not cell.startswith("[") for cell in lines[0])
    names = [c.strip() for c in lines[0]] if header else [str(k) for k in range(len(lines[0]))]
    rows = lines[1:] if header else lines
    uneven = next((k for k, row in enumerate(rows) if len(row) != len(names)), None)
    need(
        uneven is None,
        lambda: (
            f"`{path.name}` needs {len(names)} cells in each line; row {uneven} has "
            f"{len(rows[uneven or 0])}."
        ),
    )
    need(bool(rows), lambda: f"`{path.name}` needs rows below its header; it has none.")
    need(
        len(set(names)) == len(names),
        lambda: (
            f"`{path.name}` needs each column once; it has {len(names) - len(set(names))} more."
        ),
    )
    columns = zip(*rows, strict=True)
    return {name: _column(list(column)) for name, column in zip(names, columns, strict=True)}


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _column(cells: list[str]) -> np.ndarray:
    """Return whole numbers, numbers, vectors written as lists, or words."""
    if cells[0].lstrip().startswith("["):
        try:
            return np.array([json.loads(cell) for cell in cells], dtype=np.float64)
        except (ValueError, TypeError, RecursionError, OverflowError):
            return np.array(cells)
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except OverflowError:
        return np.array(cells)  # ids of more than 64 bits, which a float would round
    except ValueError:
        numbers = [_number(cell) for cell in cells]
        return np.array(cells if any(x is None for x in numbers) else numbers)


def _torch(path: Path) -> dict[str, Any]:
    """Return a tensor, or a dictionary of tensors and lists, saved by torch;
    nothing is unpickled.
    """
    torch = bring("torch", f"Reading `{path.name}`", "torch")
    try:
        with warnings.catch_warnings(action="ignore"):  # about protocols of what it then refuses
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=_zipped(path))
    except _DAMAGE as error:
        raise InputError(
            f"`{path.name}` is not a file of tensors alone, or is damaged, and is not read; no "
            f"object is unpickled ({type(error).__name__}). Save it with "
            "`torch.save({'h': tensor}, path)`, or as `.npz`."
        ) from None
    items = dict(loaded) if isinstance(loaded, Mapping) else {"h": loaded}
    arrays = {str(key): a for key, value in items.items() if (a := _tensor(value)) is not None}
    size = path.stat().st_size
    for name, array in arrays.items():  # strides of 0 make much of little
        need(
            array.nbytes <= 2 * size or not hasattr(items.get(name), "detach"),
            lambda name=name, array=array: (
                f"`{name}` of `{path.name}` claims {array.shape} of {array.dtype}, "
                f"{array.nbytes:,} bytes; the file has {size:,}."
            ),
        )
    return arrays


def _zipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _tensor(value: Any) -> np.ndarray | None:
    if hasattr(value, "detach"):
        value = value.detach()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value.numpy())
    if isinstance(value, list | tuple) and value and isinstance(value[0], str | int | float):
        return np.array(value)
    return None


def _safetensors(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    fits(f"`{path}`", path.stat().st_size)
    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _parquet(path: Path) -> dict[str, Any]:
    parquet = bring("pyarrow.parquet", f"Reading `{path.name}`", "'chiaroscuro[parquet]'")
    arrow = bring("pyarrow", f"Reading `{path.name}`", "'chiaroscuro[parquet]'")
    try:
        file = parquet.ParquetFile(path, memory_map=True)
    except arrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"`{path.name}` is not a parquet file, or is damaged: {reason}.") from None
    known = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
    lengths = [group.num_rows for group in known]
    declared = file.metadata.num_rows
    need(
        sum(lengths) == declared and all(length >= 0 for length in lengths),
        lambda: f"`{path.name}` declares {declared:,} rows; its groups have {sum(lengths):,}.",
    )

    def column(name: str) -> Callable[[int], Any]:
        def read(k: int) -> Any:
            parts = [known[k].column(c) for c in range(known[k].num_columns)]
            mine = [one for one in parts if one.path_in_schema.split(".")[0] == name]
            fits(f"`{name}` of `{path.name}`", sum(one.total_uncompressed_size for one in mine))
            return file.read_row_group(k, columns=[name])[name]

        return read

    return _arrow_columns(path.name, file.schema_arrow, lengths, column)


def _arrow(path: Path) -> dict[str, Any]:
    """Batches of an IPC file or stream, mapped: feather, and what Hugging Face `datasets` keeps."""
    ipc = bring("pyarrow.ipc", f"Reading `{path.name}`", "'chiaroscuro[parquet]'")
    arrow = bring("pyarrow", f"Reading `{path.name}`", "'chiaroscuro[parquet]'")
    try:
        try:
            opened = ipc.open_file(arrow.memory_map(str(path)))
            schema, count = opened.schema, opened.num_record_batches
            lengths = [opened.get_batch(k).num_rows for k in range(count)]
            batch = opened.get_batch
        except arrow.ArrowInvalid:
            stream = ipc.open_stream(arrow.memory_map(str(path)))
            batches, schema = list(stream), stream.schema
            lengths, batch = [one.num_rows for one in batches], batches.__getitem__
    except (arrow.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"`{path.name}` is not an Arrow file, or is damaged: {reason}.") from None
    column = lambda name: lambda k: batch(k).column(schema.get_field_index(name))
    return _arrow_columns(path.name, schema, lengths, column)


def _lance(path: Path) -> dict[str, Any]:
    lance = bring("lance", f"Reading `{path.name}`", "pylance")
    data = lance.dataset(str(path))
    n = data.count_rows()
    starts = range(0, n, _ROWS_AT_ONCE)
    lengths = [min(_ROWS_AT_ONCE, n - start) for start in starts]

    def column(name: str) -> Callable[[int], Any]:
        return lambda k: data.to_table(
            columns=[name], offset=k * _ROWS_AT_ONCE, limit=_ROWS_AT_ONCE
        )[name]

    return _arrow_columns(path.name, data.schema, lengths, column)


def _arrow_columns(
    file: str, schema: Any, lengths: list[int], column: Callable[[str], Callable[[int], Any]]
) -> dict[str, Any]:
    """Columns of numbers, of words and of vectors, each read when it is asked for."""
    types = bring("pyarrow.types", f"Reading `{file}`", "'chiaroscuro[parquet]'")
    need(sum(lengths) > 0, lambda: f"`{file}` needs rows; it has none.")
    first = next(k for k, length in enumerate(lengths) if length)
    columns: dict[str, Any] = {}
    for field in schema:
        kind, name = field.type, field.name
        lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        kind = kind.value_type if lists else kind
        decimal = types.is_decimal(kind)
        plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        plain = plain or (decimal and not lists)
        words = types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind)
        if not plain and not (words and not lists):
            continue
        read = column(name)
        width = None
        if lists:
            head = read(first)
            head.validate(full=True)
            head = head.slice(0, 1)
            width = len(head[0].as_py() or ())
            dtype = np.dtype(kind.to_pandas_dtype())
        else:
            dtype = np.dtype(object) if words else np.dtype(kind.to_pandas_dtype())
        dtype = np.dtype(np.float64) if decimal else dtype

        def cells(
            k: int,
            read: Callable[[int], Any] = read,
            name: str = name,
            width: int | None = width,
            of_a_row: int = dtype.itemsize * (width or 1),
        ) -> np.ndarray:
            fits(f"`{name}` of `{file}`", lengths[k] * of_a_row)
            with _damage(file):
                rows = read(k)
                rows.validate(full=True)  # arrow ends the process over offsets that lead out
                need(
                    len(rows) == lengths[k],
                    lambda: (
                        f"`{file}` declares {lengths[k]:,} rows of `{name}` and has {len(rows):,}."
                    ),
                )
                return _cells(file, name, rows, width)

        shape = () if width is None else (width,)
        columns[name] = Pieces(lengths, cells, shape, dtype)
    return columns


def _cells(file: str, name: str, column: Any, width: int | None) -> np.ndarray:
    """Return a column of arrow as an array; a vector of another length is refused."""
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if hasattr(column, "num_chunks"):  # too long for one
        return np.concatenate([_cells(file, name, one, width) for one in column.chunks])
    if width is None and str(column.type).startswith("decimal"):
        column = column.cast("float64")
    if width is None:
        if column.null_count and not str(column.type).startswith(("string", "large", "dictionary")):
            column = column.fill_null(-1)  # unlabelled
        made = column.to_numpy(zero_copy_only=False)
        return made if made.dtype.kind in "fiub" else made.astype(object)
    flat = column.flatten()
    even = column.null_count == 0 and len(flat) == width * len(column)
    if even and hasattr(column, "offsets"):
        even = bool((np.diff(column.offsets.to_numpy()) == width).all())
    need(
        even and flat.null_count == 0,
        lambda: (
            f"`{name}` of `{file}` needs vectors of one length, the {width} numbers of its first "
            "row; some are longer, shorter or missing."
        ),
    )
    return flat.to_numpy(zero_copy_only=False).reshape(len(column), width)


def _faiss(path: Path) -> dict[str, Any]:
    """Return the vectors of an index, as it holds them: codes are decoded."""
    faiss = bring("faiss", f"Reading `{path.name}`", "'chiaroscuro[faiss]'")
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise InputError(f"`{path.name}` is not an index of faiss: {str(error)[-120:]}") from None
    return from_index(index)


def from_index(index: Any) -> dict[str, Any]:
    """Return the vectors of a faiss index, and its ids where it has its own."""
    faiss = bring("faiss", "Reading an index", "'chiaroscuro[faiss]'")
    arrays: dict[str, Any] = {}
    owner = index  # what is inside it is freed with it
    index = faiss.downcast_index(index)
    if hasattr(index, "id_map"):
        arrays["ids"] = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_index(index.index)
    if hasattr(index, "make_direct_map"):
        index.make_direct_map()
    n, d = index.ntotal, index.d
    lengths = [min(_ROWS_AT_ONCE, n - start) for start in range(0, n, _ROWS_AT_ONCE)]
    need(n > 0, "An index of faiss needs vectors; this one holds 0.")

    def read(k: int, owner: Any = owner) -> np.ndarray:
        return index.reconstruct_n(k * _ROWS_AT_ONCE, lengths[k])

    try:
        index.reconstruct_n(0, 1)
    except RuntimeError as error:
        raise ChiaroError(
            f"The vectors of an index of {type(index).__name__} cannot be read back from it: "
            f"{str(error)[-80:]}. Give the vectors themselves."
        ) from None
    arrays["h"] = Pieces(lengths, read, (d,), np.dtype(np.float32))
    return arrays


def _folder(path: Path) -> dict[str, Any]:
    """Shards of one kind, joined in the order of their names."""
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in KINDS and p.is_file())
    counts = {kind: sum(p.suffix.lower() == kind for p in files) for kind in KINDS}
    kinds = [kind for kind, count in counts.items() if count]
    need(
        len(kinds) == 1,
        lambda: (
            f"A folder of shards needs files of one kind of {', '.join(KINDS)}; `{path}` holds "
            f"{', '.join(f'{counts[k]} {k}' for k in kinds) or 'none'}."
        ),
    )
    opened = [_read(kinds[0], file) for file in files]
    for file, one in zip(files, opened, strict=True):
        shapes = {key: a.shape[1:] for key, a in one.items()}
        wanted = {key: a.shape[1:] for key, a in opened[0].items()}
        need(
            shapes == wanted,
            lambda file=file, shapes=shapes, wanted=wanted: (
                f"Shards need the same columns and widths: `{file.name}` has {shapes}, "
                f"`{files[0].name}` has {wanted}."
            ),
        )
    return {
        key: a
        if key in _NO_ROWS or a.ndim == 0
        else Pieces(
            [len(one[key]) for one in opened],
            lambda k, key=key: np.asarray(opened[k][key][:]),
            a.shape[1:],
            a.dtype,
        )
        for key, a in opened[0].items()
    }


KINDS: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".npz": read_npz,
    ".npy": _npy,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".lance": _lance,
    ".pt": _torch,
    ".pth": _torch,
    ".safetensors": _safetensors,
    ".csv": _csv,
    ".tsv": _csv,
    ".faiss": _faiss,
    ".index": _faiss,
}
"""Endings of files that hold embeddings, and what reads them."""


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
        columns = _arrow_columns("table", table.schema, [table.num_rows], column)
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
        path: of a table with a column `label` (or one column), or an `.npy` of labels.
        ids: of the rows, where they have any: a table with a column `id` is joined by it.
        n: rows.

    Returns:
        `labels`, and `class_names` where they are words; a row without a label has -1.
    """
    path = Path(path)
    need(path.exists(), lambda: f"`{path}` does not exist.")
    kind = _kind(path)
    need(kind != "folder", lambda: f"Labels need one file; `{path}` is a folder.")
    arrays = {"labels": read_npy(path)} if kind == ".npy" else _read(kind, path)
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
