"""CIFAR-10 and CIFAR-100 in the official binary and python layouts; no pickle is ever run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.data.dataset import Dataset
from chiaroscuro.data.unpickle import read_pickle
from chiaroscuro.errors import InputError, need

__all__ = ["CIFAR10_CLASSES", "CIFAR_FOLDERS", "is_cifar", "read_cifar"]

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)
CIFAR_FOLDERS = {
    "cifar10": ("cifar-10-batches-bin", "cifar-10-batches-py"),
    "cifar100": ("cifar-100-binary", "cifar-100-python"),
}
_PIXELS = 3 * 32 * 32
_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]


def read_cifar(path: str | Path) -> Dataset:
    """CIFAR-10 or CIFAR-100 from an unpacked official archive; which one is seen from the files.

    Train rows first, in the official order, then test; `labels` are the fine ones, and CIFAR-100
    has `coarse_labels` too. The python layout is a set of pickles: they are read by `read_pickle`,
    which builds plain data and runs nothing.

    Args:
        path: the folder with `data_batch_1.bin`, `data_batch_1`, `train.bin` or `train` in it.
    """
    root = Path(path)
    for reads, needs in _LAYOUTS:
        if all((root / name).is_file() for name in needs):
            return reads(root)
    have = sorted(file.name for file in root.iterdir())[:8] if root.is_dir() else "no such folder"
    raise InputError(
        f"`{root}` is no CIFAR folder: it needs `data_batch_1.bin` to `data_batch_5.bin` and "
        f"`test_batch.bin`, or the same without `.bin`, or `train` and `test`; it has {have}."
    )


def is_cifar(path: Path) -> bool:
    """Return whether a folder holds one of the four layouts."""
    return any(all((path / name).is_file() for name in needs) for _, needs in _LAYOUTS)


# ---- binary: labels and pixels in records of fixed length ----


def _ten_binary(root: Path) -> Dataset:
    parts = [_records(root / f"{name}.bin", 1, 10) for name in (*_BATCHES, "test_batch")]
    names = _names(root / "batches.meta.txt", CIFAR10_CLASSES)
    sizes = [len(pixels) for _, pixels in parts]
    labels = np.concatenate([labels[:, 0] for labels, _ in parts])
    return _assemble("cifar10", [pixels for _, pixels in parts], labels, sizes, names)


def _hundred_binary(root: Path) -> Dataset:
    parts = [_records(root / f"{name}.bin", 2, 100) for name in ("train", "test")]
    sizes = [len(pixels) for _, pixels in parts]
    both = np.concatenate([labels for labels, _ in parts])
    return _assemble(
        "cifar100",
        [pixels for _, pixels in parts],
        both[:, 1],
        sizes,
        _names(root / "fine_label_names.txt", tuple(map(str, range(100)))),
        both[:, 0],
        _names(root / "coarse_label_names.txt", tuple(map(str, range(20)))),
    )


def _records(path: Path, n_labels: int, n_classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    length = n_labels + _PIXELS
    raw = np.frombuffer(read_regular(path), np.uint8)
    need(
        len(raw) > 0 and len(raw) % length == 0,
        lambda: (
            f"`{path}` needs records of {length} bytes; it has {len(raw)} bytes, "
            f"{len(raw) % length} more than {len(raw) // length} records. Is it cut short?"
        ),
    )
    records = raw.reshape(-1, length)
    labels = records[:, :n_labels]
    need(
        int(labels[:, -1].max()) < n_classes,
        lambda: f"`{path}` needs labels below {n_classes}; it has {labels[:, -1].max()}.",
    )
    return labels, records[:, n_labels:]


# ---- python: a dictionary of an array and lists, pickled ----


def _ten_python(root: Path) -> Dataset:
    parts = [_unpickled(root / name, "labels") for name in (*_BATCHES, "test_batch")]
    names = _meta(root / "batches.meta", "label_names", CIFAR10_CLASSES)
    labels = np.concatenate([labels for _, labels, _ in parts])
    pixels = [pixels for pixels, _, _ in parts]
    return _assemble("cifar10", pixels, labels, [len(p) for p in pixels], names)


def _hundred_python(root: Path) -> Dataset:
    parts = [_unpickled(root / name, "fine_labels", "coarse_labels") for name in ("train", "test")]
    pixels = [pixels for pixels, _, _ in parts]
    return _assemble(
        "cifar100",
        pixels,
        np.concatenate([fine for _, fine, _ in parts]),
        [len(p) for p in pixels],
        _meta(root / "meta", "fine_label_names", tuple(map(str, range(100)))),
        np.concatenate([coarse for _, _, coarse in parts]),
        _meta(root / "meta", "coarse_label_names", tuple(map(str, range(20)))),
    )


def _unpickled(path: Path, fine: str, coarse: str | None = None) -> tuple[NDArray[Any], ...]:
    content = read_pickle(path)
    wanted = ["data", fine, *([coarse] if coarse else [])]
    if not isinstance(content, dict) or any(key not in content for key in wanted):
        raise InputError(f"`{path}` needs a dictionary with {', '.join(wanted)}.")
    pixels = content["data"]
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (_PIXELS,)
    ):
        raise InputError(
            f"`{path}` needs `data` of shape (n, {_PIXELS}) and type uint8; received "
            f"{getattr(pixels, 'dtype', type(pixels).__name__)} of shape {np.shape(pixels)}."
        )
    labels = [_whole(path, key, content[key], len(pixels)) for key in wanted[1:]]
    return pixels, labels[0], labels[-1]


def _whole(path: Path, key: str, values: Any, n: int) -> NDArray[np.int64]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise InputError(f"`{path}` needs `{key}` as a list of whole numbers.")
    need(
        len(values) == n,
        lambda: f"`{path}` needs one of `{key}` for each of {n} images; it has {len(values)}.",
    )
    need(
        all(0 <= value < 1000 for value in values),
        lambda: f"`{path}` needs `{key}` from 0 up; it has {min(values)} to {max(values)}.",
    )
    return np.array(values, np.int64)


def _meta(path: Path, key: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    if not path.is_file():
        return otherwise
    content = read_pickle(path)
    names = content.get(key) if isinstance(content, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise InputError(f"`{path}` needs `{key}` as a list of names.")
    return tuple(n.decode("latin-1") if isinstance(n, bytes) else n for n in names)


# ---- both ----


def _names(path: Path, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    if not path.is_file():
        return otherwise
    try:
        return tuple(read_regular(path).decode().split())
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` needs UTF-8: {error}.") from None


def _assemble(
    name: str,
    pixels: list[NDArray[Any]],
    labels: NDArray[Any],
    sizes: list[int],
    class_names: tuple[str, ...],
    coarse: NDArray[Any] | None = None,
    coarse_names: tuple[str, ...] = (),
) -> Dataset:
    batches = sizes[:-1]  # the official training batches have one size; a shorter one was cut
    need(
        len(set(batches)) <= 1,
        lambda: f"The training batches of `{name}` need one size; they have {batches} images.",
    )
    flat = np.concatenate(pixels).reshape(-1, 3, 32, 32)
    columns: dict[str, NDArray[Any]] = {
        "images": np.ascontiguousarray(flat.transpose(0, 2, 3, 1)),
        "labels": labels.astype(np.int64),
        "split": np.repeat(np.array([0] * (len(sizes) - 1) + [1], np.uint8), sizes),
    }
    if coarse is not None:
        columns["coarse_labels"] = coarse.astype(np.int64)
    return Dataset(columns, name, class_names, coarse_names)


_LAYOUTS = (
    (_ten_binary, [f"{name}.bin" for name in (*_BATCHES, "test_batch")]),
    (_ten_python, [*_BATCHES, "test_batch"]),
    (_hundred_binary, ["train.bin", "test.bin"]),
    (_hundred_python, ["train", "test"]),
)
