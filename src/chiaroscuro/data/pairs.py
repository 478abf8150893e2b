"""Images with one or several texts each: one JSON object a line, images beside or in an npz."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.arrays import load_arrays, numbered
from chiaroscuro.data.dataset import Column, Dataset, Skipped, batch_of_objects
from chiaroscuro.data.pictures import Pictures, as_images, load_pictures
from chiaroscuro.data.places import inside
from chiaroscuro.data.text import read_lines
from chiaroscuro.errors import InputError, need

__all__ = ["read_pairs"]

TEXT_KEYS = ("captions", "texts", "caption", "text", "label")
IMAGE_KEYS = ("image", "image_path", "path", "file", "file_name", "filename")
INDEX_KEYS = ("index", "image_index", "id")
GROUP_KEYS = ("base_id", "group", "base")
CLASS_KEYS = ("category", "class")
PAIR_KEYS = (
    *(("anchor", "positive"), ("query", "positive"), ("question", "answer")),
    *(("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b")),
)


def read_pairs(
    path: str | Path,
    images: str | Path | None = None,
    key: str = "images",
    size: int | None = None,
    cache: bool = False,
    test: float | None = None,
    pictures: bool = True,
    outside: bool = False,
) -> Dataset:
    """Read images and their texts from a JSONL file.

    A line gives its texts under `captions`, `texts`, `caption` or `text`: a string or a list of
    them, the first being the original; or a pair of texts under `anchor` and `positive`,
    `sentence1` and `sentence2` and the like; or it is a JSON list of texts. Its image is a path
    under `image` (or `path`, `file`), relative to the JSONL file, or a row of an npz, by `index` or
    `id`. In the dataset `texts` is the first text and `captions` the tuple of all. Rows that belong
    together (`base_id` in the npz or in a line, or `group`) become `groups`: a split keeps them on
    one side. A `category` or `class`, if every line has one, becomes `labels`.

    A line whose image is missing or broken is skipped and listed; a line that is no JSON object
    or has no text stops the reading, with its number.

    Args:
        path: `.jsonl` or `.jsonl.gz`.
        images: the npz that holds the images; found by itself if it lies beside the file under
            the beginning of its name (`emoji.npz` for `emoji_captions.jsonl.gz`).
        key: which array of the npz.
        size: bring images from files to `size` x `size`.
        cache: keep images from files in memory.
        test: share of the held-out side of a split, as `with_split` makes it; None makes none.
        pictures: False takes the texts alone: sentences, each with its rewrites.
        outside: allow lines to name images outside the folder of the file.

    Example:
        >>> import tempfile
        >>> root = Path(tempfile.mkdtemp())
        >>> np.savez(root / "dots.npz", images=np.zeros((2, 4, 4, 3), np.uint8))
        >>> _ = (root / "dots_captions.jsonl").write_text(
        ...     '{"id": 1, "captions": ["a dot", "dot"]}\\n{"id": 0, "captions": ["none"]}\\n'
        ... )
        >>> batch = read_pairs(root / "dots_captions.jsonl")[[0]]
        >>> batch["texts"].tolist(), batch["captions"].tolist(), batch["images"].shape
        (['a dot'], [('a dot', 'dot')], (1, 4, 4, 3))
    """
    path = Path(path)
    records = list(_records(path))
    need(bool(records), lambda: f"`{path}` has no line with a pair on it.")
    captions = [_captions(path, number, record) for number, record in records]
    columns: dict[str, Column] = {}
    rows = np.arange(len(records))
    skipped: tuple[Skipped, ...] = ()
    groups = _shared([record for _, record in records], GROUP_KEYS)
    image_key = next((k for k in IMAGE_KEYS if k in records[0][1]), None)
    if not pictures:
        need(images is None, "`pairs(pictures=False)` takes no images; `images` names some.")
    elif images is None and image_key is not None:
        files = _Named(path.parent, [_file(path, n, r, image_key) for n, r in records], outside)
        names = [f"line {n}: {file}" for (n, _), file in zip(records, files.names, strict=True)]
        columns["images"], rows, skipped = load_pictures(Pictures(files, size), names, cache=cache)
        need(
            len(rows) > 0,
            lambda: f"None of the {len(names)} images of `{path}` can be read: {skipped[0].reason}",
        )
    else:
        arrays = load_arrays(npz := _archive(path, images))
        need(
            key in arrays,
            lambda: f"`{npz}` has no `{key}`; it has {', '.join(f'`{k}`' for k in arrays)}.",
        )
        places = _places(path, records, len(arrays[key]))
        columns["images"] = _Rows(as_images(arrays[key], key), places)
        if "base_id" in arrays:
            groups = arrays["base_id"][places]
    columns["texts"] = batch_of_objects(captions[row][0] for row in rows)
    columns["captions"] = batch_of_objects(captions[row] for row in rows)
    columns["ids"] = np.array([records[row][0] for row in rows], np.int64)
    if groups is not None:
        columns["groups"] = np.unique(groups, return_inverse=True)[1][rows]
    class_names: tuple[str, ...] = ()
    classes = _shared([record for _, record in records], CLASS_KEYS)
    if classes is not None:
        columns["labels"], class_names = numbered("labels", classes[rows])
    name = path.name.split(".")[0]
    data = Dataset(columns, name=name, class_names=class_names, skipped=skipped)
    return data if test is None else data.with_split(test)


class _Named:
    """Paths that data name, by row; one that leads out of their folder is refused when read."""

    def __init__(self, root: Path, names: list[str], outside: bool) -> None:
        self.root, self.names, self.outside = root, names, outside

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int, /) -> Path:
        return inside(self.root / self.names[row], self.root, self.outside)


class _Rows:
    """The rows of an array that the lines name, without copying the images."""

    def __init__(self, array: Column, places: NDArray[np.int64]) -> None:
        self.array = array
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        return np.ascontiguousarray(self.array[self.places[rows]])


def _records(path: Path) -> Any:
    for number, line in read_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"`{path}` line {number} is no JSON: {str(error)[:200]}") from None
        if isinstance(record, list) and all(isinstance(one, str) for one in record):
            record = {"captions": record}
        if not isinstance(record, dict):
            raise InputError(
                f"`{path}` line {number} needs a JSON object; it has a {type(record).__name__}."
            )
        yield number, record


def _captions(path: Path, number: int, record: dict[str, Any]) -> tuple[str, ...]:
    value = next((record[key] for key in TEXT_KEYS if key in record), None)
    pair = next((keys for keys in PAIR_KEYS if all(key in record for key in keys)), None)
    if value is None and pair is not None:
        value = [record[key] for key in pair]
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not texts or not all(_is_text(text) for text in texts):
        raise InputError(
            f"`{path}` line {number} needs a text, or a list of texts, under "
            f"{', '.join(f'`{key}`' for key in TEXT_KEYS[:4])}, or a pair such as `anchor` and "
            f"`positive`; it has {sorted(record)[:8]}."
        )
    return texts


def _is_text(text: Any) -> bool:
    """Return whether a text has anything on it and no half of a surrogate pair."""
    if not isinstance(text, str) or not text.strip():
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _file(path: Path, number: int, record: dict[str, Any], key: str) -> str:
    name = record.get(key)
    if not isinstance(name, str):
        raise InputError(f"`{path}` line {number} needs a path under `{key}`, as line 1 has.")
    return name


def _archive(path: Path, images: str | Path | None) -> Path:
    if images is not None:
        given = Path(images)
        beside = path.parent / given
        return given if given.is_file() or not beside.is_file() else beside
    stem = path.name.split(".")[0]
    words = stem.split("_")
    tried = [path.parent / f"{'_'.join(words[:k])}.npz" for k in range(len(words), 0, -1)]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    raise InputError(
        f"`{path}` names no images: its lines have none of "
        f"{', '.join(f'`{key}`' for key in IMAGE_KEYS[:3])}, and beside it there is no "
        f"{' or '.join(f'`{one.name}`' for one in tried)}. Pass `images`, or "
        "`pictures=False` for the texts alone."
    )


def _places(path: Path, records: list[tuple[int, dict[str, Any]]], n: int) -> NDArray[np.int64]:
    key = next((k for k in INDEX_KEYS if k in records[0][1]), None)
    if key is None:
        need(
            len(records) == n,
            lambda: (
                f"`{path}` needs one line for each of {n} images, or an `index` in each line; it "
                f"has {len(records)} lines."
            ),
        )
        return np.arange(n)
    places = []
    for number, record in records:
        place = record.get(key)
        if type(place) is not int or not 0 <= place < n:
            raise InputError(
                f"`{path}` line {number} needs `{key}` from 0 to {n - 1}, a row of the images; "
                f"it has {place!r}."
            )
        places.append(place)
    return np.array(places, np.int64)


def _shared(records: list[dict[str, Any]], keys: tuple[str, ...]) -> NDArray[Any] | None:
    """Return the values under the first of the keys that every line has."""
    key = next((k for k in keys if all(k in record for record in records)), None)
    return None if key is None else np.array([str(record[key]) for record in records])
