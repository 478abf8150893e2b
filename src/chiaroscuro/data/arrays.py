"""Arrays: from memory (numpy, torch), from `.npy` and `.npz`. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.dataset import DESCRIPTIVE, SPLITS, Dataset
from chiaroscuro.data.pictures import as_images
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["from_arrays", "load_arrays", "read_arrays"]

NAMES_OF = {
    "class_names": "labels",
    "coarse_class_names": "coarse_labels",
    "factor_names": "factors",
}
ALIASES = {"X": "x", "y": "labels", "targets": "labels", "base_id": "groups"}
MAIN = ("images", "x", "texts", "h", "z", "h1", "z1", "embeddings", "thumbnails")
PICTURES = ("images", "thumbnails")
MAX_CLASSES = 65_536  # labels beyond are ids: they get no names


def from_arrays(
    arrays: Mapping[str, Any] | None = None, /, *, name: str = "arrays", **more: Any
) -> Dataset:
    """A data set of arrays by name: numpy, torch, or anything `np.asarray` takes.

    Every array whose length is that of the main input (the first there is of `images`, `x`,
    `texts`, `h`, `z`, ...) is a column. `class_names`, `coarse_class_names` and `factor_names` are
    names. Labels may be words: they are numbered in sorted order. `train_images` and `test_images`
    (and so for every name) are put together, and the split remembers which was which.

    Args:
        arrays: by name; `X` and `y` are read as `x` and `labels`.
        name: of the data set.
        more: further arrays.

    Example:
        >>> from_arrays(x=np.eye(4), labels=["cat", "dog", "dog", "cat"]).class_names
        ('cat', 'dog')
        >>> from_arrays(x=np.eye(4), labels=[1, 2, 3])
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: Each of the 4 rows of `arrays` needs one value of `labels`;
        received 3.
    """
    given = {ALIASES.get(k, k): _array(k, v) for k, v in {**(arrays or {}), **more}.items()}
    given = _join_splits(given, name)
    main = next((k for k in MAIN if k in given), None) or _only(given, name)
    if given[main].dtype == np.uint8 and main == "x" and given[main].ndim == 4:
        given["images"] = given.pop("x")
        main = "images"
    n = len(given[main])
    named: dict[str, tuple[str, ...]] = {}
    columns: dict[str, NDArray[Any]] = {main: given[main]}
    for key, array in given.items():
        if key in NAMES_OF:
            named[key] = tuple(str(one) for one in array.tolist())
        elif key in MAIN or key in DESCRIPTIVE:
            need(
                array.ndim > 0 and len(array) == n,
                lambda key=key, array=array: (
                    f"Each of the {n} rows of `{name}` needs one value of `{key}`; received "
                    f"{len(array) if array.ndim else 'a single number'}."
                ),
            )
            truth = key == "split" and array.dtype == bool  # whether a row is of the test side
            columns[key] = array.astype(np.uint8) if truth else array
        elif array.ndim and len(array) == n:
            columns[key] = array
    for key in PICTURES:
        if key in columns:
            columns[key] = as_images(columns[key], key)
    for key, labels in NAMES_OF.items():
        if labels in columns and labels != "factors":
            columns[labels], named[key] = _numbered(labels, columns[labels], named.get(key, ()))
    return Dataset(columns, name=name, **named)  # type: ignore[arg-type]


def read_arrays(path: str | Path) -> Dataset:
    """A data set from an `.npz` (see `from_arrays` for the names) or a bare `.npy`.

    A bare `.npy` is `images` if it holds uint8 pictures and `x` otherwise; it is mapped, not read,
    so that a file larger than memory is no obstacle. Object arrays are refused: reading one would
    run whatever code its author wrote.

    Args:
        path: the file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "small.npz"
        >>> np.savez(path, x=np.eye(3), labels=[0, 1, 1])
        >>> read_arrays(path)
        Dataset('small', 3 rows: x (3, 3) float64; 2 classes)
    """
    path = Path(path)
    arrays = load_arrays(path)
    if path.suffix == ".npy":
        (array,) = arrays.values()
        grey = array.ndim == 3 or (array.ndim == 4 and {array.shape[-1], array.shape[1]} & {1, 3})
        arrays = {"images" if array.dtype == np.uint8 and grey else "x": array}
    return from_arrays(arrays, name=path.stem)


def load_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays in an `.npz` by name, or the one in an `.npy` under its stem; never unpickled."""
    path = Path(path)
    try:
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            need(array.ndim > 0, lambda: f"`{path}` holds a single number; data needs rows.")
            return {path.stem: array}
        with path.open("rb") as opened, _loaded(opened) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"`{path}` is not there.") from None
    except ChiaroError:
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error) or "pickled" in str(error):
            raise InputError(
                f"`{path}` holds Python objects or is no array file; reading objects would run "
                "their author's code, so they are refused. Save plain arrays: numbers, or strings "
                "of a fixed width (`np.array(names, dtype=str)`)."
            ) from None
        raise InputError(f"`{path}` cannot be read as arrays: {error}") from error


def _loaded(file: IO[bytes]) -> Any:
    loaded = np.load(file, allow_pickle=False)
    need(
        not isinstance(loaded, np.ndarray),
        lambda: f"`{file.name}` holds one array without a name: call it `.npy`.",
    )
    return loaded


def _array(name: str, value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"`{name}` needs rows of one shape: {error}") from None
    if array.dtype == object and all(isinstance(one, str) for one in array.ravel()):
        return array
    need(
        array.dtype.kind in "biufUM",
        lambda: (
            f"`{name}` needs numbers or strings; received {array.dtype} of shape {array.shape}. "
            "Rows of unequal length need padding first."
        ),
    )
    return array


def _join_splits(given: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    stems = [key.removeprefix("train_") for key in given if key.startswith("train_")]
    stems = [stem for stem in stems if f"test_{stem}" in given]
    if not any(stem in MAIN for stem in stems):
        return given
    joined: dict[str, NDArray[Any]] = {}
    for stem in stems:
        parts = [given[f"{side}_{stem}"] for side in SPLITS]
        shapes = [part.shape[1:] for part in parts]
        need(
            shapes[0] == shapes[1],
            lambda stem=stem, shapes=shapes: (
                f"`train_{stem}` and `test_{stem}` of `{name}` need rows of one shape; received "
                f"{shapes[0]} and {shapes[1]}."
            ),
        )
        joined[ALIASES.get(stem, stem)] = np.concatenate(parts)
    main = next(stem for stem in MAIN if stem in stems)
    sizes = [len(given[f"{side}_{main}"]) for side in SPLITS]
    for stem in stems:  # each side on its own: sums that agree may still be shifted
        for side, size in zip(SPLITS, sizes, strict=True):
            length = len(given[f"{side}_{stem}"])
            need(
                length == size,
                lambda stem=stem, side=side, size=size, length=length: (
                    f"Each of the {size} rows of `{side}_{main}` needs one value of "
                    f"`{side}_{stem}`; received {length}."
                ),
            )
    joined["split"] = np.repeat(np.arange(2, dtype=np.uint8), sizes)
    rest = {
        k: v
        for k, v in given.items()
        if k.removeprefix("train_").removeprefix("test_") not in stems
    }
    return rest | joined


def _only(given: dict[str, NDArray[Any]], name: str) -> str:
    """The one array that can be the input where none has a name that says so."""
    many = [
        k for k, v in given.items() if v.ndim >= 2 and k not in DESCRIPTIVE and k not in NAMES_OF
    ]
    need(
        len(many) == 1,
        lambda: (
            f"`{name}` needs an array called {', '.join(f'`{k}`' for k in MAIN[:4])} or the like; "
            f"it has {', '.join(f'`{k}` {v.shape}' for k, v in given.items()) or 'none'}."
        ),
    )
    return many[0]


def _numbered(
    key: str, labels: NDArray[Any], names: tuple[str, ...]
) -> tuple[NDArray[Any], tuple[str, ...]]:
    if labels.dtype.kind in "UO":
        words = labels.astype(str)
        known = names or tuple(sorted(set(words.tolist())))
        place = {word: i for i, word in enumerate(known)}
        unknown = sorted(set(words.tolist()) - set(known))
        need(
            not unknown,
            lambda: (
                f"`{key}` has {len(unknown)} words that are no class names, such as {unknown[:1]}."
            ),
        )
        return np.array([place[word] for word in words.tolist()], np.int64), known
    whole = labels.dtype.kind in "biu" or (
        labels.dtype.kind == "f" and bool(np.all(labels == np.floor(labels)))
    )
    need(
        whole and labels.ndim == 1,
        lambda: (
            f"`{key}` needs one whole number or one word a row; received {labels.dtype} of shape "
            f"{labels.shape}. Continuous targets go under `factors`."
        ),
    )
    labels = labels.astype(np.int64)
    if not names and labels.size and labels.max() < MAX_CLASSES:
        names = tuple(str(i) for i in range(int(labels.max()) + 1))
    return labels, names
