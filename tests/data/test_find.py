"""`open_data`: names, paths and calls; nearest names, and the places looked in."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from chiaroscuro.data import Dataset, available, find, open_data
from chiaroscuro.data.mnist import MNIST_FILES
from chiaroscuro.errors import InputError, SpecError

REAL = os.environ.get("CHIARO_DATA")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of local data, and nothing else to be found."""
    monkeypatch.setenv("CHIARO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(find, "DEBIAN_FASHION", tmp_path / "debian")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def arrays(path):
    np.savez(path, x=np.eye(3), labels=[0, 1, 1])
    return path


def test_the_embedded_set_and_its_settings():
    assert open_data("digits").name == "digits"
    assert len(open_data("digits(renderings=(1, 1), shift=0.0)")) == 1797


def test_local_names_and_paths(place, tmp_path):
    arrays(place / "small.npz")
    (place / "lines.txt.gz").write_bytes(b"one\ntwo\n")
    for spec in ("small", "small.npz", str(place / "small.npz"), place / "small.npz"):
        assert len(open_data(spec)) == 3
    assert len(open_data("lines")) == 2
    arrays(tmp_path / "here.npz")
    assert len(open_data("here.npz")) == 3
    assert len(open_data("./here.npz")) == 3


def test_folders_are_told_apart(place):
    (place / "photos" / "a").mkdir(parents=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(place / "photos" / "a" / "1.png")
    assert open_data("photos").class_names == ("a",)
    assert open_data("folder('photos', size=2)")[[0]]["images"].shape == (1, 2, 2, 3)
    for name in ("fashion_mnist", "mnist"):
        (place / name).mkdir()
        for key, file in MNIST_FILES.items():
            n = b"\0\0\0\1"
            side = b"\0\0\0\2"
            images = b"\0\0\x08\x03" + n + side + side + bytes(4)
            (place / name / file).write_bytes(
                images if "images" in key else b"\0\0\x08\x01" + n + b"\7"
            )
    assert open_data("mnist").class_names[7] == "7"
    assert open_data("fashion_mnist").class_names[7] == "Sneaker"
    assert open_data(place / "fashion_mnist").class_names[7] == "Sneaker"


def test_where_debian_puts_fashion(tmp_path):
    (tmp_path / "debian").mkdir()
    for key, file in MNIST_FILES.items():
        head = b"\0\0\x08\x03" + b"\0\0\0\1" * 3 + b"\5"
        (tmp_path / "debian" / file).write_bytes(
            head if "images" in key else b"\0\0\x08\x01\0\0\0\1\1"
        )
    assert open_data("fashion_mnist").labels.tolist() == [1, 1]


def test_arrays_and_data_sets_pass_through():
    data = Dataset({"x": np.eye(2)})
    assert open_data(data) is data
    assert len(open_data(torch.eye(3))) == 3
    assert open_data({"x": np.eye(2), "labels": [0, 1]}).labels.tolist() == [0, 1]


def test_what_there_is(place):
    arrays(place / "small.npz")
    listed = {one.name: one for one in available()}
    assert list(listed) == [
        "digits",
        "cifar10",
        "cifar100",
        "tiny_imagenet",
        "mnist",
        "fashion_mnist",
        "small",
    ]
    assert listed["small"].where == str(place / "small.npz")
    assert listed["cifar10"].where is None
    assert "chiaro data get cifar10" in listed["cifar10"].note


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("digit", "did you mean `digits`"),
        ("cifar_10", "did you mean `cifar10`"),
        ("smal", "did you mean `small`"),
        ("qqqqqq", r"not a dataset known here\. Known are digits, "),
        ("cifar10", "`chiaro data get cifar10`"),
        ("fashion_mnist", "debian.*dataset-fashion-mnist"),
        ("", "needs a name"),
        ("no/such.npz", r"does not exist; looked for `no/such\.npz`, `.*data/no/such\.npz`"),
        ("such.txt", "does not exist"),
        ("strange.xyz", "not a dataset known"),
        ("digits(shfit=1)", "no parameter `shfit`.*did you mean `shift`"),
        ("digit(shift=1)", "did you mean `digits`"),
        ("folder('nowhere')", "not a folder"),
        ("digits(shift=__import__('os'))", "is not known here"),
    ],
)
def test_wrong_specs_are_sentences(place, spec, sentence):
    arrays(place / "small.npz")
    with pytest.raises(InputError, match=sentence):
        open_data(spec)


def test_a_file_of_no_known_kind(tmp_path):
    (tmp_path / "a.xyz").write_text("?")
    with pytest.raises(InputError, match=r"ends in nothing that can be read; these can: \.npz"):
        open_data(str(tmp_path / "a.xyz"))


def test_calls_run_nothing_else(tmp_path):
    with pytest.raises(SpecError):
        open_data(f"open('{tmp_path}/x', 'w')")
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(not REAL, reason="CHIARO_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("cifar10_12k", 12_000),
        ("cifar100_12k", 12_000),
        ("emoji_captions", 3786),
        ("books_30mb", 275_876),
    ],
)
def test_the_data_beside_the_project(monkeypatch, name, rows):
    monkeypatch.setenv("CHIARO_DATA", str(REAL))
    if not any(one.name == name for one in available()):
        pytest.skip(f"{name} is not in {Path(str(REAL))}")
    assert len(open_data(name)) == rows


# ---- holding out ----


def test_own_data_hold_a_share_out(place):
    labels = np.repeat([0, 1], [40, 8])
    np.savez(place / "mine.npz", x=np.arange(96).reshape(48, 2), labels=labels)
    data = open_data("arrays('mine.npz', test=0.25)")
    assert np.bincount(data.part("test").labels).tolist() == [10, 2]
    again = open_data("arrays('mine.npz', test=0.25)")
    np.testing.assert_array_equal(data.split, again.split)
    assert open_data("mine").split is None
    groups = np.arange(48) // 4
    np.savez(place / "grouped.npz", x=np.eye(48), groups=groups)
    data = open_data("arrays('grouped.npz', test=0.5)")
    assert not set(data.part("train").groups) & set(data.part("test").groups)
    assert len(data.part("test")) == 24
    (place / "lines.txt").write_text("".join(f"line {i}\n" for i in range(10)))
    assert len(open_data("text('lines.txt', test=0.3)").part("test")) == 3
    for name in ("cat", "dog"):
        (place / "photos" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (4, 4), (i, 0, 0)).save(place / "photos" / name / f"{i}.png")
    held = open_data("folder('photos', test=0.5)").part("test")
    assert np.bincount(held.labels).tolist() == [2, 2]


def test_a_split_that_is_there_stays(place):
    np.savez(place / "mine.npz", x=np.eye(4), split=[0, 0, 0, 1])
    with pytest.raises(InputError, match=r"`mine` has one, with 1 of 4 rows held out"):
        open_data("arrays('mine.npz', test=0.5)")
    with pytest.raises(InputError, match=r"between 0 and 1; received `1\.5`"):
        open_data("arrays('" + str(arrays(place / "small.npz")) + "', test=1.5)")
    with pytest.raises(SpecError, match=r"`arrays` has no parameter `tset`.*did you mean `test`"):
        open_data("arrays('mine.npz', tset=0.5)")
