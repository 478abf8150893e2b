"""Data in memory: of numpy, torch, pandas, polars, Hugging Face and Pillow, as a `Dataset`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.arrays import from_arrays
from chiaroscuro.data.dataset import SECOND, Column, Dataset, batch_of_objects
from chiaroscuro.data.pictures import EXTENSIONS, Pictures, load_pictures, stacked
from chiaroscuro.data.tables import from_frame, from_hugging_face
from chiaroscuro.errors import InputError, need

__all__ = ["SECOND", "from_object", "holds_files"]

ROLES = {
    **dict.fromkeys(("label", "y", "target", "fine_label"), "labels"),
    "coarse_label": "coarse_labels",
    "id": "ids",
    "group": "groups",
}
"""Names by which items in the form of mappings describe a sample."""

MOST_ITEMS = 1_000_000
"""Of an iterable dataset, which is read into memory."""


def from_object(data: Any, name: str = "data") -> Dataset:
    """Return a dataset from data in memory, of any of these kinds.

        Dataset                  as it is; what has a method `dataset()` by that
        mapping of arrays        columns by name, as for `from_arrays`
        numpy array, tensor      (n, h, w, 3) or (n, 3, h, w) in uint8: images; else numbers `x`
        pandas, polars, arrow    columns by name: label(s), text(s), image paths; the numbers
                                 together are `x`
        Hugging Face dataset     columns by name, as for `from_hugging_face`
        torch dataset            by its first item: a sample, or (sample,); (sample, whole number):
                                 a sample and its label; (sample, sample): a ready pair, with a
                                 label if there is a third; two of different shapes need an
                                 encoder each; (image, string): an image and its text; a mapping:
                                 by name. Items are read when a batch needs them
        iterable dataset         the same, of torch or Hugging Face; it is read once, into memory
        list of paths            image files; strings are paths where all end like image files
        list of PIL images       images
        list of strings          texts
        list of (image, string)  images and their texts; an image is a path, a PIL image, an array

    Args:
        data: one of these.
        name: name of the dataset.

    Example:
        >>> from_object(np.eye(3))
        Dataset('data', 3 rows: x (3, 3) float64)
        >>> from_object(["a cat", "a dog"])
        Dataset('data', 2 rows: texts (2) object)
        >>> from_object([("a.png", 0.5)])
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: An item of `data` is (str, float), which is ambiguous: a
        sample with its label needs a whole number as the second, ...
        >>> from_object((np.eye(3), np.arange(3)))
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `data` is a tuple of arrays of shapes (3, 3), (3,), which is
        ambiguous: give samples and labels by name, `{"x": x, "labels": y}`, or a list of samples.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Mapping) and not _is_hugging_face(data):
        return from_arrays(data, name=name)
    if _is_hugging_face(data, "IterableDataset"):
        table = sys.modules["datasets"].Dataset.from_list(_read_once(data, name), data.features)
        return from_hugging_face(table, name)
    if _is_torch(data, "IterableDataset"):
        return _from_items(_read_once(data, name), name)
    if _is_hugging_face(data):
        return from_hugging_face(data, name)
    if callable(getattr(data, "dataset", None)) and not hasattr(data, "__getitem__"):
        made = data.dataset()
        need(
            isinstance(made, Dataset),
            lambda: f"`{type(data).__name__}.dataset()` needs to give a `Dataset`.",
        )
        return made
    if _is_array(data):
        return from_arrays(x=data, name=name)
    if _is_frame(data):
        return from_frame(data, name=name)
    if isinstance(data, list | tuple):
        if data and _is_numbers(data[0]):
            return from_arrays(x=data, name=name)
        need(
            not (isinstance(data, tuple) and all(map(_is_array, data)) and data),
            lambda: (
                f"`{name}` is a tuple of arrays of shapes "
                f"{', '.join(str(np.shape(one)) for one in data)}, which is ambiguous: give "
                'samples and labels by name, `{"x": x, "labels": y}`, or a list of samples.'
            ),
        )
        return _from_items(list(data), name)
    other = _INSTEAD.get(type(data).__name__)
    if other is None and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return _from_items(data, name)
    raise InputError(
        f"Data of type `{type(data).__name__}` are not known here; give "
        + (
            other
            or "an array, a frame, a list of images, paths or strings, or a dataset with "
            "`__len__` and `__getitem__`"
        )
        + "."
    )


_INSTEAD = {
    "generator": "what can be read more than once: `list(data)`",
    "DataLoader": "its `dataset`, or train on its batches of pairs: `engine.fit(..., loader)`",
    "LazyFrame": "the frame itself: `data.collect()`",
    "Series": "a frame: `data.to_frame()`",
    "IterableDatasetDict": 'one of its parts: `data["train"]`',
}
"""What to give in the place of objects that come near, by the name of their type."""


def holds_files(data: Dataset) -> bool:
    """Return whether the images of a dataset came as files or PIL images, not as arrays."""
    column = data.columns.get("images")
    return isinstance(column, Pictures) or (isinstance(column, _Items) and column.pillow)


# ---- kinds ----


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or (hasattr(data, "detach") and hasattr(data, "numpy"))


def _is_hugging_face(data: Any, name: str = "") -> bool:
    """Return whether it is of Hugging Face's `datasets`, and of that class if one is named."""
    kind = type(data)
    return kind.__module__.split(".")[0] == "datasets" and name in ("", kind.__name__)


def _is_frame(data: Any) -> bool:
    package = type(data).__module__.split(".")[0]
    return package in ("pandas", "polars", "pyarrow") and type(data).__name__ in (
        "DataFrame",
        "Table",
    )


def _is_torch(data: Any, name: str) -> bool:
    """Return whether it derives from a class of torch, without importing torch."""
    return any(
        base.__name__ == name and base.__module__.startswith("torch.")
        for base in type(data).__mro__
    )


def _is_image(value: Any) -> bool:
    return any(base.__module__ == "PIL.Image" for base in type(value).__mro__)


def _is_numbers(value: Any) -> bool:
    """Return whether it is a number, or nested lists of them: a row of an array."""
    if isinstance(value, list | tuple) and value:
        return all(map(_is_numbers, value))
    return isinstance(value, int | float | np.number)


def _is_path(value: Any) -> bool:
    return isinstance(value, Path) or (
        isinstance(value, str) and value.lower().endswith(EXTENSIONS)
    )


def _is_label(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole or not _is_array(value):
        return whole
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iu"


# ---- items: lists, and datasets of torch ----


class _Items:
    """A column of which each value is read from its item, when a batch needs it."""

    def __init__(
        self, items: Any, value: Callable[[Any], Any], pillow: bool = False, mixed: bool = False
    ):
        self.items, self.value, self.pillow, self.mixed = items, value, pillow, mixed
        first = np.asarray(value(items[0]))
        self.ndim = first.ndim + 1

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        values = [np.asarray(self.value(self.items[int(row)])) for row in rows]
        if self.mixed and values:
            return stacked(values)
        shapes = sorted({value.shape for value in values})
        need(
            len(shapes) <= 1,
            lambda: (
                f"Samples need one shape; received {len(shapes)}, from {shapes[0]} to "
                f"{shapes[-1]}. Resize or pad them in the dataset."
            ),
        )
        return np.stack(values) if values else np.asarray(self.value(self.items[0]))[None][:0]


def _from_items(items: Any, name: str) -> Dataset:
    need(len(items) > 0, lambda: f"`{name}` has no samples.")
    first = items[0]
    if isinstance(first, Mapping):
        return _from_mappings(items, first, name)
    if not isinstance(first, tuple | list):
        return Dataset(_inputs(items, first, lambda item: item, name), name=name)
    parts = list(first)
    if len(parts) == 1:  # as a `TensorDataset` of one tensor has them
        return Dataset(_inputs(items, parts[0], lambda item: item[0], name), name=name)
    kinds = ", ".join(type(part).__name__ for part in parts)
    pick = lambda place: lambda item: item[place]
    columns: dict[str, Column] = {}
    if len(parts) == 2 and _is_label(parts[1]):
        columns = _inputs(items, parts[0], pick(0), name)
        columns["labels"] = _labels(items, pick(1))
    elif len(parts) == 2 and isinstance(parts[1], str) and _is_picture(parts[0]):
        columns = _inputs(items, parts[0], pick(0), name)
        columns["texts"] = batch_of_objects(str(item[1]) for item in _all(items))
    elif (
        len(parts) in (2, 3)
        and _alike(parts[0], parts[1])
        and (len(parts) == 2 or _is_label(parts[2]))
    ):
        columns = _inputs(items, parts[0], pick(0), name)
        other = _inputs(items, parts[1], pick(1), name)
        columns[SECOND] = next(iter(other.values()))
        if len(parts) == 3:
            columns["labels"] = _labels(items, pick(2))
    else:
        raise InputError(
            f"An item of `{name}` is ({kinds}), which is ambiguous: a sample with its label needs "
            "a whole number as the second, a ready pair two samples (and a whole number as a "
            "third), an image with its text a string. Return one of these, or a mapping with "
            "names."
        )
    return Dataset(columns, name=name, class_names=_class_names(items, columns))


def _read_once(data: Any, name: str) -> list[Any]:
    items = list(itertools.islice(data, MOST_ITEMS + 1))
    need(
        len(items) <= MOST_ITEMS,
        lambda: (
            f"An iterable dataset is read into memory, and `{name}` has more than {MOST_ITEMS:,} "
            "items. Train on a stream by a loader of pairs: `engine.fit(..., DataLoader(...))`."
        ),
    )
    return items


def _inputs(items: Any, first: Any, value: Callable[[Any], Any], name: str) -> dict[str, Column]:
    """Return the column of the samples, by what the first one is."""
    if _is_path(first):
        return _files([value(item) for item in _all(items)], name)
    if isinstance(first, str):
        return {"texts": batch_of_objects(str(value(item)) for item in _all(items))}
    if _is_image(first):
        image = lambda item: np.array(value(item).convert("RGB"))
        return {"images": _Items(items, image, pillow=True, mixed=True)}
    need(
        _is_array(first) or isinstance(first, int | float | np.number),
        lambda: (
            f"A sample of `{name}` needs to be an array, a tensor, an image, a path or a string; "
            f"received `{type(first).__name__}`."
        ),
    )
    array = np.asarray(first)
    if array.dtype == np.uint8 and array.ndim == 3 and {array.shape[0], array.shape[-1]} & {1, 3}:
        image = lambda item: _channels_last(np.asarray(value(item)))
        return {"images": _Items(items, image, mixed=True)}
    if isinstance(items, list):
        return {"x": _Items(items, value)[np.arange(len(items))]}
    return {"x": _Items(items, value)}


def _files(paths: Sequence[Any], name: str) -> dict[str, Column]:
    missing = [path for path in paths if not (_is_path(path) and Path(path).is_file())]
    need(
        not missing,
        lambda: (
            f"{len(missing)} of the {len(paths)} paths of `{name}` are no image files that are "
            f"there, the first is `{missing[0]}`. Strings that all end in {', '.join(EXTENSIONS)} "
            "are taken for paths, others for texts."
        ),
    )
    names = [str(path) for path in paths]
    images, _, skipped = load_pictures(Pictures([Path(path) for path in paths], mixed=True), names)
    need(
        not skipped,
        lambda: (
            f"{len(skipped)} of the {len(paths)} images of `{name}` cannot be read, the first is "
            f"`{skipped[0].path}`: {skipped[0].reason}"
        ),
    )
    return {"images": images, "ids": batch_of_objects(names)}


def _from_mappings(items: Any, first: Mapping[str, Any], name: str) -> Dataset:
    columns: dict[str, Column] = {}
    for key, value in first.items():
        role = ROLES.get(key, key)
        pick = lambda item, key=key: item[key]
        if role in ("labels", "coarse_labels", "groups", "split"):
            columns[role] = _labels(items, pick)
        elif role == "ids":
            columns[role] = batch_of_objects(str(item[key]) for item in _all(items))
        else:
            made = _inputs(items, value, pick, name)
            clash = columns.keys() & made.keys() - {"ids"}
            need(
                not clash,
                lambda key=key, clash=clash: (
                    f"Items of `{name}` need one input of a kind; `{key}` is a second one of "
                    f"`{', '.join(clash)}`. Leave one out."
                ),
            )
            columns |= made
    return Dataset(columns, name=name)


def _all(items: Any) -> Any:
    """Return every item, of what may only know its length and its items."""
    return items if isinstance(items, list) else (items[row] for row in range(len(items)))


def _labels(items: Any, pick: Callable[[Any], Any]) -> NDArray[np.int64]:
    """Return all labels: those of `targets` where some items agree with it, else one by one."""
    targets = getattr(items, "targets", None)
    if targets is not None and len(targets) == len(items):
        some = {0, len(items) // 2, len(items) - 1} if len(items) else set()
        if all(_agree(pick(items[at]), targets[at]) for at in some):
            return np.asarray(targets, dtype=np.int64)
    tensors = getattr(items, "tensors", None)  # a TensorDataset: no need to touch the samples
    if isinstance(tensors, tuple) and np.ndim(tensors[-1]) == 1:
        return np.asarray(tensors[-1], dtype=np.int64)
    labels = [pick(item) for item in _all(items)]
    wrong = [label for label in labels if not _is_label(label)]
    need(
        not wrong,
        lambda: (
            f"Labels need whole numbers; {len(wrong)} of {len(labels)} are not, the first is "
            f"`{wrong[0]!r}`."
        ),
    )
    return np.array([int(label) for label in labels], dtype=np.int64)


def _agree(one: Any, other: Any) -> bool:
    return _is_label(one) and _is_label(other) and int(one) == int(other)


def _class_names(items: Any, columns: Mapping[str, Column]) -> tuple[str, ...]:
    names = getattr(items, "classes", None)
    if "labels" not in columns or not isinstance(names, list | tuple):
        return ()
    labels = np.asarray(columns["labels"])
    fits = len(names) > int(labels.max()) and int(labels.min()) >= -1
    return tuple(map(str, names)) if fits else ()


def _is_picture(value: Any) -> bool:
    return _is_image(value) or _is_path(value) or (_is_array(value) and np.ndim(value) >= 2)


def _alike(one: Any, two: Any) -> bool:
    """Return whether two values can be the two sides of a pair."""
    if isinstance(one, str) or isinstance(two, str):
        return isinstance(one, str) and isinstance(two, str) and _is_path(one) == _is_path(two)
    if _is_image(one) or _is_image(two):
        return _is_image(one) and _is_image(two)
    return _is_array(one) and _is_array(two) and np.ndim(one) > 0 and np.ndim(two) > 0


def _channels_last(image: NDArray[Any]) -> NDArray[Any]:
    if image.shape[-1] not in (1, 3):
        image = np.moveaxis(image, 0, -1)
    return image if image.shape[-1] == 3 else np.repeat(image, 3, axis=-1)
