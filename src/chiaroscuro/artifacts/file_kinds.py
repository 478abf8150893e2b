"""A reader for each kind of file that holds embeddings: arrays by their names in the file."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from safetensors import SafetensorError

from chiaroscuro.artifacts.bounded import decode_table, fits, open_regular, read_regular
from chiaroscuro.artifacts.files import read_json
from chiaroscuro.artifacts.footers import column_sizes
from chiaroscuro.artifacts.numpy_files import read_npy, read_npz
from chiaroscuro.artifacts.pieces import Pieces
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.extras import bring

__all__ = [
    "KINDS",
    "NO_ROWS",
    "ROWS_AT_ONCE",
    "SHARDS",
    "arrow_columns",
    "damage",
    "from_index",
    "kind_of",
    "read_file",
    "read_folder",
]

SHARDS = "shards.json"
"""What a folder of shards is of, as `embed` writes it."""
NO_ROWS = ("class_names", "factor_names", "prompts", "prompt_z", "untrained_prompt_z", "about")
NESTED = 8
"""Dictionaries inside dictionaries, at most."""
_DAMAGE = (
    *(UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError),
    *(AttributeError, OSError, ImportError, RecursionError),
)
"""What `torch.load` raises over a file that is no plain one."""
_BROKEN = (*_DAMAGE, MemoryError, OverflowError, NotImplementedError, csv.Error, SafetensorError)
"""What the readers of tables, tensors and indices raise over damaged files."""
ROWS_AT_ONCE = 1 << 16


def kind_of(path: Path) -> str:
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


def read_file(kind: str, path: Path) -> dict[str, Any]:
    """The arrays of a file by its kind; a pipe, a device and damage are sentences."""
    if kind != ".lance":
        open_regular(path).close()
    with damage(path.name):
        return KINDS[kind](path)


@contextlib.contextmanager
def damage(name: str) -> Iterator[None]:
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


def read_folder(path: Path) -> dict[str, Any]:
    """Shards of one kind, joined in the order of their names."""
    shown = (p for p in path.iterdir() if not p.name.startswith("."))
    files = sorted(p for p in shown if p.suffix.lower() in KINDS and p.is_file())
    counts = {kind: sum(p.suffix.lower() == kind for p in files) for kind in KINDS}
    kinds = [kind for kind, count in counts.items() if count]
    need(
        len(kinds) == 1,
        lambda: (
            f"A folder of shards needs files of one kind of {', '.join(KINDS)}; `{path}` holds "
            f"{', '.join(f'{counts[k]} {k}' for k in kinds) or 'none'}."
        ),
    )
    if (path / SHARDS).is_file():
        _require_all(path, len(files))
    opened = [read_file(kinds[0], file) for file in files]
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
        if key in NO_ROWS or a.ndim == 0
        else Pieces(
            [len(one[key]) for one in opened],
            lambda k, key=key: np.asarray(opened[k][key][:]),
            a.shape[1:],
            a.dtype,
        )
        for key, a in opened[0].items()
    }


def _require_all(path: Path, found: int) -> None:
    """Refuse a folder that `embed` has not filled yet: other rows would be taken for all."""
    about = read_json(path / SHARDS)
    n, rows = (about.get(key) if isinstance(about, dict) else None for key in ("n", "rows"))
    if type(n) is not int or type(rows) is not int or rows < 1:
        raise InputError(f"`{SHARDS}` is damaged: it needs the numbers `n` and `rows`.")
    count = -(-n // rows)
    need(
        found == count,
        lambda: (
            f"`{path}` holds {found} of the {count} shards of {n} rows. The call of `embed` that "
            "began it goes on with those that are missing."
        ),
    )


def _npy(path: Path) -> dict[str, Any]:
    return {"h": read_npy(path)}


def _csv(path: Path) -> dict[str, Any]:
    """Return a table as text: a header if its first line has a word, columns of numbers and of
    words.
    """
    text = decode_table(read_regular(path), path.name)
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
    nothing is unpickled. Entries of dictionaries inside have dotted names.
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
    items = _flat(loaded) if isinstance(loaded, Mapping) else {"h": loaded}
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


def _flat(loaded: Mapping[Any, Any], under: str = "", depth: int = 0) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for key, value in loaded.items():
        inside = isinstance(value, Mapping) and depth < NESTED
        name = f"{under}{key}"
        items |= _flat(value, f"{name}.", depth + 1) if inside else {name: value}
    return items


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
    with open_regular(path) as opened:
        sizes = column_sizes(opened, f"`{path.name}`")
    try:
        file = parquet.ParquetFile(path, memory_map=True)
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"`{path.name}` is not a parquet file, or is damaged: {reason}.") from None
    known = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
    lengths = [group.num_rows for group in known]
    declared = file.metadata.num_rows
    need(
        sum(lengths) == declared
        and len(sizes) == len(known)
        and all(length >= 0 for length in lengths),
        lambda: f"`{path.name}` declares {declared:,} rows; its groups have {sum(lengths):,}.",
    )

    def column(name: str) -> Callable[[int], Any]:
        def read(k: int) -> Any:
            fits(f"`{name}` of `{path.name}`", sizes[k].get(name, 0))
            return file.read_row_group(k, columns=[name])[name]

        return read

    return arrow_columns(path.name, file.schema_arrow, lengths, column)


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
    return arrow_columns(path.name, schema, lengths, column)


def _lance(path: Path) -> dict[str, Any]:
    lance = bring("lance", f"Reading `{path.name}`", "pylance")
    data = lance.dataset(str(path))
    n = data.count_rows()
    starts = range(0, n, ROWS_AT_ONCE)
    lengths = [min(ROWS_AT_ONCE, n - start) for start in starts]

    def column(name: str) -> Callable[[int], Any]:
        return lambda k: data.to_table(columns=[name], offset=k * ROWS_AT_ONCE, limit=ROWS_AT_ONCE)[
            name
        ]

    return arrow_columns(path.name, data.schema, lengths, column)


def arrow_columns(
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
            with damage(file):
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
    lengths = [min(ROWS_AT_ONCE, n - start) for start in range(0, n, ROWS_AT_ONCE)]
    need(n > 0, "An index of faiss needs vectors; this one holds 0.")

    def read(k: int, owner: Any = owner) -> np.ndarray:
        return index.reconstruct_n(k * ROWS_AT_ONCE, lengths[k])

    try:
        index.reconstruct_n(0, 1)
    except RuntimeError as error:
        raise ChiaroError(
            f"The vectors of an index of {type(index).__name__} cannot be read back from it: "
            f"{str(error)[-80:]}. Give the vectors themselves."
        ) from None
    arrays["h"] = Pieces(lengths, read, (d,), np.dtype(np.float32))
    return arrays


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
