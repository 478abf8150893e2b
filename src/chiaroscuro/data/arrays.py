"""Arrays: from memory (numpy, torch), from `.npy` and `.npz`. Nothing is ever unpickled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.numpy_files import read_npy, read_npz
from chiaroscuro.data.dataset import DESCRIPTIVE, SPLITS, Column, Dataset
from chiaroscuro.data.pictures import as_images
from chiaroscuro.errors import InputError, need

__all__ = ["from_arrays", "load_arrays", "numbered", "read_arrays"]

NAMES_OF = {
    "class_names": "labels",
    "coarse_class_names": "coarse_labels",
    "factor_names": "factors",
}
ALIASES = {"X": "x", "y": "labels", "targets": "labels", "base_id": "groups"}
MAIN = ("images", "x", "texts", "h", "z", "h1", "z1", "embeddings", "thumbnails")
PICTURES = ("images", "thumbnails")
MAX_CLASSES = 65_536  # labels beyond are ids: they are numbered anew
_SIDE = re.compile(r"(?:(train|test)_(\w+)|(\w+)_(train|test))", re.IGNORECASE)


def from_arrays(
    arrays: Mapping[str, Any] | None = None, /, *, name: str = "arrays", **more: Any
) -> Dataset:
    """Make a dataset of arrays by name: numpy, torch, or anything `np.asarray` takes.

    Every array whose length is that of the main input (the first there is of `images`, `x`,
    `texts`, `h`, `z`, ...) is a column. `class_names`, `coarse_class_names` and `factor_names` are
    names. Labels may be words: they are numbered in sorted order. `train_images` and `test_images`
    (and so for every name, also as `x_train`, `y_train`, `x_test`, `y_test`) are put together, and
    the split remembers which was which. uint8 of shape (n, h, w) or (n, h, w, c) under `x` are
    images.

    Args:
        arrays: by name; `X` and `y` are read as `x` and `labels`.
        name: name of the dataset.
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
    given = _join_splits(_named({**(arrays or {}), **more}, name), name)
    main = next((k for k in MAIN if k in given), None) or _only(given, name)
    if given[main].dtype == np.uint8 and main == "x" and given[main].ndim in (3, 4):
        given["images"] = given.pop("x")
        main = "images"
    need(
        given[main].dtype.kind != "M",
        lambda: (
            f"`{main}` of `{name}` holds dates, which are no numbers to learn from; turn them into "
            f"some first, for example days: `{main}.astype('datetime64[D]').astype(float)`."
        ),
    )
    n = len(given[main])
    named: dict[str, tuple[str, ...]] = {}
    columns: dict[str, Column] = {main: given[main]}
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
            columns[key] = as_images(given[key], key)
    for key, labels in NAMES_OF.items():
        if labels in columns and labels != "factors":
            columns[labels], named[key] = numbered(labels, given[labels], named.get(key, ()))
    return Dataset(columns, name=name, **named)  # type: ignore[arg-type]


def read_arrays(path: str | Path) -> Dataset:
    """Read a dataset from an `.npz` (see `from_arrays` for the names) or a single `.npy`.

    A bare `.npy` is `images` if it holds uint8 images and `x` otherwise; it is mapped, not read,
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
    """Return the arrays of an `.npz` by name, or the one of an `.npy` under its stem."""
    path = Path(path)
    if path.suffix == ".npy":
        array = read_npy(path)
        need(array.ndim > 0, lambda: f"`{path}` holds a single number; data needs rows.")
        return {path.stem: array}
    return read_npz(path)


def _named(arrays: Mapping[str, Any], name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays under the names we use: `y` is `labels`, `x_train` is `train_x`."""
    given: dict[str, NDArray[Any]] = {}
    for original, value in arrays.items():
        key = str(original)
        if side := _SIDE.fullmatch(key):
            before, stem, ended, after = side.groups()
            stem = (stem or ended).lower()
            key = f"{(before or after).lower()}_{ALIASES.get(stem, stem)}"
        key = ALIASES.get(key, key)
        need(key not in given, lambda key=key: f"`{name}` has two arrays for `{key}`.")
        given[key] = _array(str(original), value)
    return given


def _array(name: str, value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    need(
        not isinstance(value, np.ma.MaskedArray) or not np.ma.is_masked(value),
        lambda: f"`{name}` has {np.ma.count_masked(value)} masked values; fill or remove them.",
    )
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InputError(f"`{name}` needs rows of one shape: {error}") from None
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"`{name}` needs UTF-8: {error}") from None
    if array.dtype == object and all(isinstance(one, str) for one in array.ravel()):
        return array
    need(
        (array.dtype.kind in "biufUM" and array.dtype.itemsize <= 8) or array.dtype.kind == "U",
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
        alone = all(not key.startswith("test_") for key in given)  # a training side is the whole
        return {k.removeprefix("train_") if alone else k: v for k, v in given.items()}
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
        joined[stem] = np.concatenate(parts)
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
    """Return the one array that can be the input where none has a name that says so."""
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


def numbered(
    key: str, labels: NDArray[Any], names: tuple[str, ...] = ()
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as numbers from 0 (-1 is unknown) and what each number is called.

    Words are numbered in sorted order, or by `names`. Whole numbers stay as they are below 65,536;
    larger ones are ids, which are numbered anew in their order.

    Args:
        key: what the labels are called, for the sentences.
        labels: one word or one whole number a row.
        names: names of the labels 0, 1, ...; empty where they are not known.

    Example:
        >>> numbered("labels", np.array(["dog", "cat", "dog"]))
        (array([1, 0, 1]), ('cat', 'dog'))
        >>> numbered("labels", np.array([10**9, 7, 10**9]))
        (array([1, 0, 1]), ('7', '1000000000'))
    """
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
    exact = labels.dtype.kind == "f" and bool(np.all(np.abs(labels) <= 2.0**53))  # no NaN either
    whole = labels.dtype.kind in "biu" or (exact and bool(np.all(labels == np.floor(labels))))
    need(
        whole and labels.ndim == 1,
        lambda: (
            f"`{key}` needs one whole number or one word a row; received {labels.dtype} of shape "
            f"{labels.shape}{_range(labels)}. Continuous targets go under `factors`."
        ),
    )
    if not names and labels.size and int(labels.max()) >= MAX_CLASSES:
        ids, places = np.unique(labels, return_inverse=True)
        unlabelled = int(ids[0] == -1) if labels.dtype.kind != "u" else 0
        some = tuple(str(int(one)) for one in ids[unlabelled:][: MAX_CLASSES + 1].tolist())
        return places.astype(np.int64) - unlabelled, some if len(some) <= MAX_CLASSES else ()
    need(
        labels.dtype != np.uint64 or not labels.size or int(labels.max()) < 2**63,
        lambda: f"`{key}` needs numbers below {len(names)}, its names; received {labels.max()}.",
    )
    labels = labels.astype(np.int64)
    if not names and labels.size:
        names = tuple(str(i) for i in range(int(labels.max()) + 1))
    return labels, names


def _range(labels: NDArray[Any]) -> str:
    if labels.dtype.kind != "f" or not labels.size:
        return ""
    bad = int((~np.isfinite(labels)).sum())
    return f" with {bad} NaN or infinite" if bad else f" from {labels.min():g} to {labels.max():g}"
