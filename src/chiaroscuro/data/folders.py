"""A folder of images: class subfolders or flat, in sorted order; what is broken is listed."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.dataset import SPLITS, Column, Dataset, Skipped, relative
from chiaroscuro.data.index import Index, indexed
from chiaroscuro.data.pictures import EXTENSIONS, Pictures, load_pictures
from chiaroscuro.data.places import inside
from chiaroscuro.data.text import Strings
from chiaroscuro.errors import InputError, need

__all__ = ["read_folder"]

SIDES = {"train": 0, "training": 0, "test": 1, "val": 1, "valid": 1, "validation": 1}


def read_folder(
    path: str | Path,
    size: int | None = None,
    cache: bool = False,
    check: str = "decode",
    outside: bool = False,
) -> Dataset:
    """Read the images under a folder.

    `folder/cat/1.png` has the class `cat`, its topmost subfolder; `folder/1.png` has no class.
    `folder/train/cat/1.png` and `folder/test/cat/1.png` also define a split (`val` is used if there
    is no `test`); no other files or folders may then lie beside `train` and `test`. Images are
    sorted by path, so the order is the same on every machine. Hidden files and files without an
    image ending are ignored; an image that cannot be read is skipped, counted and listed in
    `data.skipped`. For 10,000 images or more, the index is kept in the user's cache until a file is
    added or removed.

    Args:
        path: folder.
        size: resize every image to `size` x `size`; required if sizes differ.
        cache: keep decoded images in memory, instead of decoding them for each batch.
        check: "decode" (default) reads every image once when opening, "header" only its header,
            "none" nothing; a broken image then raises an error when its batch is read.
        outside: follow links to files outside the folder.

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
    index = indexed(
        ["folder", os.path.abspath(root), size, check, outside],
        "name_ends",
        lambda: _index(root, size, check, outside),
        lambda then: [_stamp(folder) for folder, _ in then],
    )
    arrays = index.arrays
    names = Strings(arrays["names"], arrays["name_ends"])
    images: Column = Pictures(_Files(root, names), size)
    if cache:
        images = images[np.arange(len(images))]
    columns: dict[str, Column] = {"images": images, "ids": names}
    columns |= {name: arrays[name] for name in ("labels", "split") if name in arrays}
    return Dataset(
        columns,
        name=root.name,
        class_names=tuple(index.notes["class_names"]),
        skipped=tuple(Skipped(*one) for one in index.notes["skipped"]),
    )


class _Files:
    """The paths of files under a folder, by row."""

    def __init__(self, root: Path, names: Strings) -> None:
        self.root, self.names = root, names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int, /) -> Path:
        return self.root / self.names[np.array([row])][0]


def _stamp(folder: str) -> list[Any]:
    """Return a folder and when a name in it last changed."""
    try:
        return [folder, os.stat(folder).st_mtime_ns]
    except OSError:
        return [folder, None]


def _instead(root: Path) -> str:
    """Return what a folder without images holds, and how to train on that."""
    names = [path for path in itertools.islice(root.rglob("*"), 10_000) if path.is_file()]
    if not names:
        return ""
    (ending, count), *_ = Counter(path.suffix.lower() for path in names).most_common(1)
    said = f" It has {count} file{'s' * (count != 1)} that end in `{ending}`"
    if ending in (".wav", ".flac", ".mp3", ".ogg"):
        return f"{said}: save their samples as `x` (n, channels, length) in an `.npz`."
    if count == 1:
        return f"{said}: give the file, `{next(p for p in names if p.suffix.lower() == ending)}`."
    return f"{said}." if ending else ""


def _index(root: Path, size: int | None, check: str, outside: bool) -> Index:
    """Walk the folder and check its images."""
    files, folders, unseen = _files(root)
    names = [relative(file, root) for file in files]
    if not files:
        first = f" `{unseen[0].path}`: {unseen[0].reason}." if unseen else _instead(root)
        raise InputError(
            f"`{root}` holds no images: no file ends in {', '.join(EXTENSIONS)}.{first}"
        )
    regular, links = _regular(files, names, root, outside)
    images = Pictures([files[row] for row in regular], size)
    _, good, broken = load_pictures(images, [names[row] for row in regular], check=check)
    skipped = [*unseen, *links, *broken]
    rows = np.array(regular, np.int64)[good]
    need(
        len(rows) > 0,
        lambda: (
            f"None of the {len(files)} images in `{root}` can be read; the first, "
            f"`{skipped[0].path}`: {skipped[0].reason}"
        ),
    )
    parts = [name.split("/") for name in names]
    sides = {one[0] for one in parts if len(one) > 1 and one[0].lower() in SIDES}
    split = any(SIDES[side.lower()] for side in sides)  # a training side alone is the whole
    if sides:
        _nothing_beside(root, sides, names)
    if split:
        _one_test_side(root, sides)
    classes = [(one[1:-1] if sides else one[:-1])[:1] for one in parts]
    block, ends = Strings.packed(names[row] for row in rows)
    arrays: dict[str, NDArray[Any]] = {"names": block, "name_ends": ends}
    class_names = tuple(sorted({one[0] for one in classes if one}))
    if class_names:
        place = {name: label for label, name in enumerate(class_names)}
        labels = [place[one[0]] if one else -1 for one in classes]
        arrays["labels"] = np.array(labels, np.int64)[rows]
    if split:
        arrays["split"] = np.array([SIDES[one[0].lower()] for one in parts], np.uint8)[rows]
    notes = {"class_names": class_names, "skipped": [(one.path, one.reason) for one in skipped]}
    return Index(arrays, notes, [_stamp(folder) for folder in folders])


def _files(root: Path) -> tuple[list[Path], list[str], list[Skipped]]:
    """Return every image below the root by its path, every folder, and the folders not entered:
    links, which may lead in circles, and what may not be read.
    """
    images, folders, unseen = [], [], []

    def denied(error: OSError) -> None:
        unseen.append(_skipped(Path(error.filename or root), root, error.strerror or str(error)))

    for folder, inner, names in os.walk(root, onerror=denied):
        inner[:] = [name for name in inner if not name.startswith(".")]
        links = (path for name in inner if (path := Path(folder) / name).is_symlink())
        unseen += [
            _skipped(link, root, "a link to a folder, which is not followed") for link in links
        ]
        folders.append(os.path.abspath(folder))
        images += [
            Path(folder) / name
            for name in names
            if not name.startswith(".") and name.lower().endswith(EXTENSIONS)
        ]
    return sorted(images, key=lambda file: relative(file, root)), folders, unseen


def _skipped(path: Path, root: Path, reason: str) -> Skipped:
    """A file or folder that is left out, under a name that UTF-8 has."""
    return Skipped(relative(path, root).encode("utf-8", "replace").decode(), reason)


def _regular(
    files: list[Path], names: list[str], root: Path, outside: bool
) -> tuple[list[int], list[Skipped]]:
    """Return the rows of regular files in the folder, and the others with a reason."""
    rows, others = [], []
    for row, file in enumerate(files):
        try:
            if file.is_symlink() or not file.is_file():
                inside(file, root, outside)
            names[row].encode()
            rows.append(row)
        except InputError as error:
            others.append(Skipped(names[row], str(error)))
        except UnicodeEncodeError:
            others.append(_skipped(file, root, "its name is not UTF-8"))
    return rows, others


def _nothing_beside(root: Path, sides: set[str], names: list[str]) -> None:
    beside = [name for name in names if name.split("/")[0] not in sides]
    listed = ", ".join(f"`{side}`" for side in sorted(sides))
    need(
        not beside,
        lambda: (
            f"`{root}` is split into {listed} and needs every image in there; {len(beside)} of "
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
