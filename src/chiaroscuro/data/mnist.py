"""MNIST and Fashion-MNIST: the IDX format, gzipped or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import fits, open_regular
from chiaroscuro.data.dataset import Column, Dataset
from chiaroscuro.data.pictures import as_images
from chiaroscuro.errors import InputError, need

__all__ = ["DEBIAN_FASHION", "FASHION_CLASSES", "MNIST_FILES", "is_mnist", "read_idx", "read_mnist"]

MNIST_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package `dataset-fashion-mnist` puts the four files."""

_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_mnist(path: str | Path, fashion: bool = False) -> Dataset:
    """Read the four IDX files of a folder: 28 x 28 grey images, repeated to three channels.

    Args:
        path: the folder.
        fashion: the classes are clothes instead of digits; nothing else differs.
    """
    root = Path(path)
    arrays = {key: read_idx(_file(root, name)) for key, name in MNIST_FILES.items()}
    for side in ("train", "test"):
        images, labels = arrays[f"{side}_images"], arrays[f"{side}_labels"]
        need(
            images.ndim == 3 and images.dtype == np.uint8 and labels.shape == images.shape[:1],
            lambda side=side, images=images, labels=labels: (
                f"`{root}` needs one label for each {side} image; it has images of shape "
                f"{images.shape} and labels of shape {labels.shape}."
            ),
        )
    sizes = [len(arrays["train_labels"]), len(arrays["test_labels"])]
    columns: dict[str, Column] = {
        "images": as_images(np.concatenate([arrays["train_images"], arrays["test_images"]])),
        "labels": np.concatenate([arrays["train_labels"], arrays["test_labels"]]).astype(np.int64),
        "split": np.repeat(np.arange(2, dtype=np.uint8), sizes),
    }
    names = FASHION_CLASSES if fashion else tuple(map(str, range(10)))
    return Dataset(columns, "fashion_mnist" if fashion else "mnist", names)


def is_mnist(path: Path) -> bool:
    """Return whether a folder holds the four files, gzipped or not."""
    return all(_find(path, name) is not None for name in MNIST_FILES.values())


def read_idx(path: str | Path) -> NDArray[Any]:
    """Return the array in an IDX file: a type, the sides, the values, all big-endian.

    Args:
        path: the file; gzipped if it begins as gzip does, whatever it is called.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "labels"
        >>> _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]))
        >>> read_idx(path)
        array([5, 0, 4], dtype=uint8)
    """
    path = Path(path)
    try:
        with open_regular(path) as opened, _unzipped(opened) as file:
            head = file.read(4)
            need(
                len(head) == 4 and head[:2] == b"\0\0" and head[2] in _TYPES and 1 <= head[3] <= 8,
                lambda: f"`{path}` is no IDX file: it begins with {head!r}.",
            )
            sides = file.read(4 * head[3])
            need(len(sides) == 4 * head[3], lambda: f"`{path}` is cut short in its header.")
            shape = tuple(int(side) for side in np.frombuffer(sides, ">u4"))
            dtype = np.dtype(_TYPES[head[2]])
            expected = math.prod(shape) * dtype.itemsize
            fits(f"`{path}`", expected)
            content = file.read(expected + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"`{path}` is a damaged gzip file: {error}") from error
    need(
        len(content) == expected,
        lambda: (
            f"`{path}` needs {expected} bytes for shape {shape}; it has "
            f"{f'only {len(content)}' if len(content) < expected else 'more'}."
        ),
    )
    array = np.frombuffer(content, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def _unzipped(file: IO[bytes]) -> IO[bytes]:
    zipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.open(file) if zipped else file  # type: ignore[return-value]


def _find(root: Path, name: str) -> Path | None:
    # some archives write `train-images.idx3-ubyte`
    for spelled in (name, name.replace("-idx", ".idx")):
        for ending in ("", ".gz"):
            if (file := root / (spelled + ending)).is_file():
                return file
    return None


def _file(root: Path, name: str) -> Path:
    path = _find(root, name)
    if path is None:
        raise InputError(f"`{root}` needs `{name}` or `{name}.gz`; neither is there.")
    return path
