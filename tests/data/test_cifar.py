"""CIFAR in its four official layouts, made small; python layouts as Python 2 wrote them."""

import pickle
import struct

import numpy as np
import pytest

from chiaroscuro.data import read_cifar
from chiaroscuro.data.cifar import CIFAR10_CLASSES
from chiaroscuro.errors import InputError


def pixels(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), np.uint8)


def string(text: bytes) -> bytes:
    """Python 2's `str`, which Python 3 never writes."""
    return (
        b"U" + bytes([len(text)]) + text
        if len(text) < 256
        else b"T" + struct.pack("<i", len(text)) + text
    )


def numbers(values) -> bytes:
    return b"](" + b"".join(b"K" + bytes([int(v)]) for v in values) + b"e"


def python2_array(array: np.ndarray) -> bytes:
    n, d = array.shape
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01" + b"M" + struct.pack("<H", n) + b"M" + struct.pack("<H", d) + b"\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + string(array.tobytes()) + b"tb"
    )


def python2(**items: bytes) -> bytes:
    body = b"".join(string(key.encode()) + value for key, value in items.items())
    return b"\x80\x02}q\x01(" + body + b"u."


BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def ten(root, layout: str):
    root.mkdir()
    for i, name in enumerate(BATCHES):
        x, y = pixels(4, i), np.arange(4) + i
        if layout == "bin":
            (root / f"{name}.bin").write_bytes(
                np.hstack([y[:, None].astype(np.uint8), x]).tobytes()
            )
        elif layout == "py2":
            (root / name).write_bytes(
                python2(batch_label=string(b"b"), labels=numbers(y), data=python2_array(x))
            )
        else:
            (root / name).write_bytes(pickle.dumps({b"labels": y.tolist(), b"data": x}, protocol=4))
    if layout == "bin":
        (root / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n\n")
    elif layout == "py2":
        names = b"](" + b"".join(string(n.encode()) for n in CIFAR10_CLASSES) + b"e"
        (root / "batches.meta").write_bytes(python2(label_names=names))


@pytest.mark.parametrize("layout", ["bin", "py2", "py3"])
def test_cifar10(tmp_path, layout):
    ten(tmp_path / "c", layout)
    data = read_cifar(tmp_path / "c")
    assert len(data) == 24
    assert data.name == "cifar10"
    assert data.class_names == CIFAR10_CLASSES
    assert data.split.tolist() == [0] * 20 + [1] * 4
    assert data.labels[:8].tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
    planes = pixels(4, 1)[2].reshape(3, 32, 32)  # red, then green, then blue
    assert (data[[6]]["images"][0] == np.moveaxis(planes, 0, -1)).all()


@pytest.mark.parametrize("layout", ["bin", "py2"])
def test_cifar100_has_fine_and_coarse_labels(tmp_path, layout):
    for name, seed in (("train", 0), ("test", 1)):
        x, coarse, fine = pixels(3, seed), np.array([19, 0, 4]), np.array([99, 5, 6])
        if layout == "bin":
            record = np.hstack([coarse[:, None], fine[:, None], x]).astype(np.uint8)
            (tmp_path / f"{name}.bin").write_bytes(record.tobytes())
        else:
            (tmp_path / name).write_bytes(
                python2(
                    fine_labels=numbers(fine), coarse_labels=numbers(coarse), data=python2_array(x)
                )
            )
    data = read_cifar(tmp_path)
    assert data.labels.tolist() == [99, 5, 6] * 2
    assert data.coarse_labels.tolist() == [19, 0, 4] * 2
    assert len(data.class_names) == 100
    assert len(data.coarse_class_names) == 20


def test_a_record_cut_short(tmp_path):
    ten(tmp_path / "c", "bin")
    file = tmp_path / "c" / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        InputError, match=r"records of 3073 bytes; it has 12291 bytes, 3072 more than 3"
    ):
        read_cifar(tmp_path / "c")


def test_labels_out_of_range(tmp_path):
    ten(tmp_path / "c", "bin")
    file = tmp_path / "c" / "data_batch_3.bin"
    file.write_bytes(b"\x0a" + file.read_bytes()[1:])
    with pytest.raises(InputError, match="labels below 10; it has 10"):
        read_cifar(tmp_path / "c")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"data": pixels(3, 0), "labels": [1, 2]}, "each of 3 images; it has 2"),
        ({"data": pixels(3, 0)}, "needs a dictionary with data, labels"),
        ({"data": pixels(3, 0)[:, :9], "labels": [1, 2, 3]}, r"shape \(3, 9\)"),
        ({"data": [1], "labels": [1]}, "received list"),
        ({"data": pixels(1, 0), "labels": ["x"]}, "list of whole numbers"),
        ({"data": pixels(1, 0), "labels": [-1]}, "-1 to -1"),
        ([1, 2], "needs a dictionary"),
    ],
)
def test_contents_that_do_not_fit(tmp_path, content, sentence):
    ten(tmp_path / "c", "py3")
    (tmp_path / "c" / "data_batch_2").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(InputError, match=sentence):
        read_cifar(tmp_path / "c")


def test_another_folder(tmp_path):
    with pytest.raises(InputError, match="is no CIFAR folder"):
        read_cifar(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_cifar(tmp_path / "none")
