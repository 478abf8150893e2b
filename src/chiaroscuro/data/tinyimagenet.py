"""TinyImageNet: 200 classes, 64 x 64, in the layout of its official archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.data.dataset import Column, Dataset, batch_of_objects, relative
from chiaroscuro.data.pictures import Pictures, load_pictures
from chiaroscuro.data.places import inside
from chiaroscuro.errors import InputError, need

__all__ = ["TINY_FOLDER", "is_tiny_imagenet", "read_tiny_imagenet"]

TINY_FOLDER = "tiny-imagenet-200"


def read_tiny_imagenet(
    path: str | Path, size: int | None = None, cache: bool = False, check: str = "header"
) -> Dataset:
    """TinyImageNet from its unpacked archive; the official `val` is the test side.

    The official `test` images have no published labels and are left alone. Classes are numbered
    as in `wnids.txt` sorted, and named by the first word of `words.txt`.

    Args:
        path: the folder with `wnids.txt`, `train` and `val` in it.
        size, cache, check: as for a folder of images; the archive has a checksum, so by default
            only headers are looked at.
    """
    root = Path(path)
    need(
        is_tiny_imagenet(root),
        lambda: (
            f"`{root}` needs `wnids.txt`, `train` and `val/val_annotations.txt`, and lacks one."
        ),
    )
    wnids = sorted(_text(root / "wnids.txt").split())
    strange = [wnid for wnid in wnids if not wnid.isalnum()]
    need(
        not strange,
        lambda: (
            f"`{root / 'wnids.txt'}` needs letters and digits only; it has {strange[0][:60]!r}."
        ),
    )
    place = {wnid: label for label, wnid in enumerate(wnids)}
    files: list[Path] = []
    labels: list[int] = []
    for wnid in wnids:
        paths = sorted((root / "train" / wnid / "images").glob("*.JPEG"))
        need(bool(paths), lambda wnid=wnid: f"`{root}` has no training images of `{wnid}`.")
        _complete(root / "train" / wnid, wnid, len(paths))
        files += paths
        labels += [place[wnid]] * len(paths)
    n_train = len(files)
    notes = root / "val" / "val_annotations.txt"
    for number, line in enumerate(_text(notes).splitlines(), start=1):
        name, wnid, *_ = [*line.split("\t"), "", ""]
        if wnid not in place or "/" in name or "\\" in name or name in ("", ".", ".."):
            raise InputError(
                f"`{notes}` line {number} needs a file and a known class: {line[:60]!r}."
            )
        files.append(root / "val" / "images" / name)
        labels.append(place[wnid])
    listed = {file.name for file in files[n_train:]}
    others = [f for f in (root / "val" / "images").glob("*.JPEG") if f.name not in listed]
    need(
        not others,
        lambda: f"`{notes}` needs a line for every image; {len(others)} in `val/images` have none.",
    )
    names = [relative(file, root) for file in files]
    within = _Inside(files, root)
    images, rows, skipped = load_pictures(Pictures(within, size), names, cache=cache, check=check)
    need(len(rows) > 0, lambda: f"None of the {len(files)} images in `{root}` can be read.")
    columns: dict[str, Column] = {
        "images": images,
        "labels": np.array(labels, np.int64)[rows],
        "split": (rows >= n_train).astype(np.uint8),
        "ids": batch_of_objects(names[row] for row in rows),
    }
    return Dataset(columns, "tiny_imagenet", _words(root, wnids), skipped=skipped)


class _Inside:
    """Files by row; a link that leads out of the folder is refused when it is read."""

    def __init__(self, files: list[Path], root: Path) -> None:
        self.files, self.root = files, root

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int, /) -> Path:
        return inside(self.files[row], self.root)


def _complete(folder: Path, wnid: str, n: int) -> None:
    """Compare the images of a class with the list of boxes that the archive has beside them."""
    boxes = folder / f"{wnid}_boxes.txt"
    if boxes.is_file():
        declared = len(read_regular(boxes).split(b"\n")) - 1
        need(
            n == declared,
            lambda: f"`{folder}` needs {declared} images, as `{boxes.name}` lists; it has {n}.",
        )


def is_tiny_imagenet(path: Path) -> bool:
    """Return whether a folder has the official layout."""
    return (path / "wnids.txt").is_file() and (path / "val" / "val_annotations.txt").is_file()


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` needs UTF-8: {error}.") from None


def _words(root: Path, wnids: list[str]) -> tuple[str, ...]:
    file = root / "words.txt"
    if not file.is_file():
        return tuple(wnids)
    pairs = (line.split("\t", 1) for line in _text(file).splitlines() if "\t" in line)
    named = {wnid: words.split(",")[0].strip() for wnid, words in pairs}
    return tuple(named.get(wnid, wnid) for wnid in wnids)
