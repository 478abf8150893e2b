"""IDX files, gzipped or not, whole and damaged."""

import gzip
import struct

import numpy as np
import pytest

from chiaroscuro.data import read_mnist
from chiaroscuro.data.mnist import DEBIAN_FASHION, MNIST_FILES, read_idx
from chiaroscuro.errors import InputError


def idx(array: np.ndarray, code: int = 8) -> bytes:
    sides = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sides + array.tobytes()


def plant(root, zipped: bool, n_train: int = 5, n_labels: int = 5):
    rng = np.random.default_rng(0)
    arrays = {
        "train_images": rng.integers(0, 256, (n_train, 28, 28), np.uint8),
        "train_labels": np.arange(n_labels, dtype=np.uint8),
        "test_images": rng.integers(0, 256, (2, 28, 28), np.uint8),
        "test_labels": np.array([9, 0], np.uint8),
    }
    for key, name in MNIST_FILES.items():
        content = idx(arrays[key])
        if zipped:
            (root / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (root / name).write_bytes(content)
    return arrays


@pytest.mark.parametrize("zipped", [False, True])
def test_the_four_files(tmp_path, zipped):
    arrays = plant(tmp_path, zipped)
    data = read_mnist(tmp_path)
    batch = data.part("test")[[1]]
    assert batch["images"].shape == (1, 28, 28, 3)
    assert (batch["images"][0] == arrays["test_images"][1][..., None]).all()
    assert data.labels.tolist() == [0, 1, 2, 3, 4, 9, 0]
    assert read_mnist(tmp_path, fashion=True).class_names[9] == "Ankle boot"


@pytest.mark.parametrize(
    ("code", "kind"), [(9, ">i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
def test_other_types(tmp_path, code, kind):
    array = np.array([[1, -2], [3, 4]], kind)
    (tmp_path / "a").write_bytes(idx(array, code))
    back = read_idx(tmp_path / "a")
    assert back.dtype.isnative
    assert (back == array).all()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (idx(np.zeros((3, 4), np.uint8))[:-5], r"needs 12 bytes for shape \(3, 4\); it has only 7"),
        (idx(np.zeros((3, 4), np.uint8)) + b"x", "it has more"),
        (idx(np.zeros((3, 4), np.uint8))[:9], "cut short in its header"),
        (b"\x00\x00\x08", "no IDX file"),
        (b"PNG!....", "no IDX file: it begins with b'PNG!'"),
        (b"", "no IDX file"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "takes 79,228,162,458,924,105,385,300,197,375 bytes"),
        (gzip.compress(idx(np.zeros((30, 40), np.uint8)), mtime=0)[:-12], "damaged gzip"),
        (b"\x1f\x8b" + b"junk" * 9, "damaged gzip"),
    ],
)
def test_damage_is_a_sentence(tmp_path, content, sentence):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_idx(tmp_path / "a")


def test_wrong_label_count(tmp_path):
    plant(tmp_path, zipped=False, n_labels=4)
    with pytest.raises(InputError, match=r"one label for each train .*\(5, 28, 28\) and .* \(4,\)"):
        read_mnist(tmp_path)


def test_a_file_missing(tmp_path):
    plant(tmp_path, zipped=False)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\.gz`; neither"):
        read_mnist(tmp_path)


@pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="dataset-fashion-mnist is not installed")
def test_where_debian_puts_it():
    data = read_mnist(DEBIAN_FASHION, fashion=True)
    assert np.bincount(data.part("train").labels).tolist() == [6000] * 10
