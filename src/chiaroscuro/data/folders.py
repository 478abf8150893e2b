"""A folder of pictures: class subfolders or flat, in sorted order; what is broken is listed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from chiaroscuro.data.dataset import SPLITS, Column, Dataset, batch_of_objects, relative
from chiaroscuro.data.pictures import EXTENSIONS, Pictures, load_pictures
from chiaroscuro.errors import InputError, need

__all__ = ["read_folder"]

SIDES = {"train": 0, "training": 0, "test": 1, "val": 1, "valid": 1, "validation": 1}


def read_folder(
    path: str | Path, size: int | None = None, cache: bool = False, check: str = "decode"
) -> Dataset:
    """The pictures under a folder.

    `folder/cat/1.png` has the class `cat`, its topmost folder; `folder/1.png` has none.
    `folder/train/cat/1.png` and `folder/test/cat/1.png` are also split, with `val` as the test side
    where there is no `test`; then nothing may lie beside the sides, and a side alone is no class
    either. The order is that of the sorted paths, the same on every machine.
    Hidden files and files that are not called pictures are no part of the data; a file that is
    called one and cannot be read is skipped, counted and listed in `data.skipped`.

    Args:
        path: the folder.
        size: bring every picture to `size` x `size`; needed where sizes differ.
        cache: keep decoded pictures in memory, instead of decoding when a batch is read.
        check: "decode" (default) reads every picture once when opening, "header" only its header,
            "none" nothing: then a broken picture stops the batch that meets it, with its name.

    Example:
        >>> import tempfile
        >>> root = Path(tempfile.mkdtemp())
        >>> for name in ("a", "b"):
        ...     (root / name).mkdir()
        ...     _ = (root / name / "1.ppm").write_bytes(b"P6 2 2 255 " + bytes(12))
        >>> data = read_folder(root)
        >>> data.class_names, data.ids.tolist()
        (('a', 'b'), ['a/1.ppm', 'b/1.ppm'])
    """
    root = Path(path)
    need(root.is_dir(), lambda: f"`{root}` is not a folder that is there.")
    files = _files(root)
    names = [relative(file, root) for file in files]
    if not files:
        raise InputError(f"`{root}` holds no pictures: no file ends in {', '.join(EXTENSIONS)}.")
    images, rows, skipped = load_pictures(Pictures(files, size), names, cache=cache, check=check)
    need(
        len(rows) > 0,
        lambda: (
            f"None of the {len(files)} pictures in `{root}` can be read; the first, "
            f"`{skipped[0].path}`: {skipped[0].reason}"
        ),
    )
    inside = [name.split("/") for name in names]
    sides = {parts[0] for parts in inside if len(parts) > 1 and parts[0].lower() in SIDES}
    split = any(SIDES[side.lower()] for side in sides)  # a training side alone is the whole
    if sides:
        _nothing_beside(root, sides, names)
    if split:
        _one_test_side(root, sides)
    folders = [(parts[1:-1] if sides else parts[:-1])[:1] for parts in inside]
    columns: dict[str, Column] = {"images": images, "ids": batch_of_objects(names[r] for r in rows)}
    classes = tuple(sorted({folder[0] for folder in folders if folder}))
    if classes:
        place = {name: label for label, name in enumerate(classes)}
        labels = [place[folder[0]] if folder else -1 for folder in folders]
        columns["labels"] = np.array(labels, np.int64)[rows]
    if split:
        side = [SIDES[parts[0].lower()] for parts in inside]
        columns["split"] = np.array(side, np.uint8)[rows]
    return Dataset(columns, name=root.name, class_names=classes, skipped=skipped)


def _files(root: Path) -> list[Path]:
    """Every picture below the root by its path; links to folders are not followed: no circles."""
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith(".")]
        found += [
            Path(folder) / name
            for name in names
            if not name.startswith(".") and name.lower().endswith(EXTENSIONS)
        ]
    return sorted(found, key=lambda file: relative(file, root))


def _nothing_beside(root: Path, sides: set[str], names: list[str]) -> None:
    beside = [name for name in names if name.split("/")[0] not in sides]
    listed = ", ".join(f"`{side}`" for side in sorted(sides))
    need(
        not beside,
        lambda: (
            f"`{root}` is split into {listed} and needs every picture in there; {len(beside)} of "
            f"{len(names)} lie outside, the first is `{beside[0]}`. Move them away; a class of "
            "such a name needs another."
        ),
    )


def _one_test_side(root: Path, sides: set[str]) -> None:
    tests = sorted(side for side in sides if SIDES[side.lower()] == SPLITS.index("test"))
    need(
        len(tests) == 1,
        lambda: (
            f"`{root}` needs one folder for the test side; it has {len(tests)}: "
            f"{', '.join(tests)}. Move one away, or open them one by one."
        ),
    )
