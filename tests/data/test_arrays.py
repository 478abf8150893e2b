"""Arrays in memory and on disk; nothing pickled is ever read."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from chiaroscuro.data import from_arrays, read_arrays
from chiaroscuro.data.pictures import as_images
from chiaroscuro.errors import InputError


def pictures(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 8, 8, 3), np.uint8)


def test_names_of_the_contract(tmp_path):
    given = {
        "h": np.random.default_rng(0).normal(size=(6, 4)),
        "z": np.ones((6, 2)),
        "labels": np.arange(6) % 2,
        "class_names": np.array(["cat", "dog"]),
        "coarse_labels": np.zeros(6, int),
        "factors": np.ones((6, 2)),
        "factor_names": np.array(["x", "y"]),
        "split": np.array([0, 0, 0, 0, 1, 1]),
        "ids": np.array(list("abcdef")),
        "thumbnails": pictures(6),
    }
    np.savez(tmp_path / "e.npz", **given)
    data = read_arrays(tmp_path / "e.npz")
    assert data.inputs == ("h", "z", "thumbnails")
    assert data.class_names == ("cat", "dog")
    assert data.factor_names == ("x", "y")
    assert data.part("test").ids.tolist() == ["e", "f"]
    assert (data.column("h") == given["h"]).all()


def test_train_and_test_arrays_become_a_split(tmp_path):
    np.savez(
        tmp_path / "c.npz",
        train_images=pictures(5),
        train_labels=np.arange(5, dtype=np.uint8),
        test_images=pictures(2, 1),
        test_labels=np.array([4, 0], np.uint8),
        train_coarse_labels=np.zeros(5, int),
        test_coarse_labels=np.ones(2, int),
        class_names=np.array(list("vwxyz")),
        coarse_class_names=np.array(["lo", "hi"]),
    )
    data = read_arrays(tmp_path / "c.npz")
    assert (data.part("test").column("images") == pictures(2, 1)).all()
    assert data.part("test").labels.tolist() == [4, 0]
    assert data.part("test").coarse_labels.tolist() == [1, 1]
    assert data.coarse_class_names == ("lo", "hi")


def test_single_values_are_notes_and_base_ids_are_groups():
    data = from_arrays(images=pictures(3), base_id=[0, 0, 1], drawer=[5, 6, 7])
    assert data.inputs == ("images",)
    assert data.groups.tolist() == [0, 0, 1]
    assert data[[1]]["drawer"].tolist() == [6]


def test_labels_shifted_between_the_sides_are_caught():
    with pytest.raises(InputError, match=r"Each of the 4 rows of `train_x` .* received 3"):
        from_arrays(
            train_x=np.eye(4), test_x=np.eye(4)[:2], train_labels=[0, 1, 0], test_labels=[0, 1, 1]
        )


def test_tensors_and_channels_first():
    grid = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5)
    data = from_arrays(images=grid, labels=torch.tensor([1, 0]))
    assert data[[1]]["images"].shape == (1, 4, 5, 3)
    assert (data[[0]]["images"][0, :, :, 1] == grid[0, 1].numpy()).all()


def test_grey_is_repeated_without_a_copy():
    grey = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    seen = as_images(grey)
    assert np.shares_memory(seen, grey)
    batch = from_arrays(images=grey)[[1]]["images"]
    assert batch.shape == (1, 4, 4, 3)
    assert (batch == grey[1][None, :, :, None]).all()


def test_words_are_numbered():
    data = from_arrays(x=np.eye(3), labels=["dog", "cat", "dog"])
    assert data.labels.tolist() == [1, 0, 1]
    data = from_arrays(x=np.eye(3), labels=["dog", "cat", "dog"], class_names=["dog", "cat"])
    assert data.labels.tolist() == [0, 1, 0]


def test_a_bare_npy_is_mapped(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(4, 3))
    data = read_arrays(tmp_path / "a.npy")
    assert data.inputs == ("x",)
    assert isinstance(data.columns["x"].base, np.memmap)
    np.save(tmp_path / "b.npy", pictures(3))
    assert read_arrays(tmp_path / "b.npy").inputs == ("images",)


class Bomb:
    def __reduce__(self):
        return os.mkdir, (os.environ["BOMB"],)


@pytest.mark.parametrize("name", ["bomb.npy", "bomb.npz"])
def test_object_arrays_are_refused_and_not_run(tmp_path, monkeypatch, name):
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    bomb = np.array([Bomb(), None], dtype=object)
    if name.endswith("z"):
        np.savez(tmp_path / name, x=bomb)
    else:
        np.save(tmp_path / name, bomb, allow_pickle=True)
    with pytest.raises(InputError, match="Python objects"):
        read_arrays(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_called_npy_is_refused(tmp_path, monkeypatch):
    import pickle

    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    (tmp_path / "p.npy").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError):
        read_arrays(tmp_path / "p.npy")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_cut_files_are_sentences(tmp_path, keep):
    for name, save in (("a.npz", np.savez), ("a.npy", lambda p, x: np.save(p, x))):
        save(tmp_path / name, x=np.random.default_rng(0).normal(size=(50, 4)))
        path = Path(tmp_path / name)
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(InputError, match=name):
            read_arrays(path)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.eye(4), "labels": [0, 1, 2]}, "Each of the 4 rows .* received 3"),
        ({"x": np.eye(4), "labels": [0.5, 1, 2, 3]}, "whole number or one word"),
        ({"images": np.ones((2, 8, 8, 3), np.int32)}, "uint8, uint16 .* int32 from 1 to 1"),
        ({"images": np.ones((2, 8), np.uint8)}, r"received \(2, 8\)"),
        ({"a": np.eye(2), "b": np.eye(2)}, r"`a` \(2, 2\), `b` \(2, 2\)"),
        ({"x": [[1], [1, 2]]}, "`x`"),
        ({"x": np.eye(2), "labels": ["a", "b"], "class_names": ["a", "c"]}, "1 words"),
        ({"x": np.eye(2), "factors": np.ones((3, 1))}, "Each of the 2 rows .* received 3"),
    ],
)
def test_what_does_not_fit_is_a_sentence(arrays, sentence):
    with pytest.raises((InputError, ValueError), match=sentence) as caught:
        from_arrays(arrays)
    assert isinstance(caught.value, InputError)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_arrays(tmp_path / "no.npz")


def test_a_split_may_be_true_and_false():
    data = from_arrays(x=np.eye(4), split=np.array([False, True, False, False]))
    assert data.split.tolist() == [0, 1, 0, 0]
    assert len(data.part("test")) == 1


def test_the_names_of_keras(tmp_path):
    grey = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8)
    np.savez(tmp_path / "m.npz", x_train=grey[:2], y_train=[1, 0], x_test=grey[2:], y_test=[1])
    data = read_arrays(tmp_path / "m.npz")
    assert data.inputs == ("images",)
    assert data[[0]]["images"].shape == (1, 8, 8, 3)
    assert data.labels.tolist() == [1, 0, 1]
    assert data.split.tolist() == [0, 0, 1]
    assert from_arrays(X_train=np.eye(3), y_train=["b", "a", "b"]).labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize("channels", [2, 4, 13])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_images_of_other_channels_and_depths(channels, dtype):
    top = {"u1": 255, "u2": 65535}.get(np.dtype(dtype).str[1:], 1)
    given = (np.random.default_rng(0).random((3, 16, 16, channels)) * top).astype(dtype)
    batch = from_arrays(images=given)[[2, 0]]["images"]
    assert batch.shape == (2, 16, 16, channels)
    if dtype == np.uint8:
        assert (batch == given[[2, 0]]).all()
    else:
        assert batch.dtype == np.float32
        assert np.allclose(batch, given[[2, 0]] / top, atol=1e-6)
    first = from_arrays(images=np.moveaxis(given, -1, 1))[[2, 0]]["images"]
    assert (first == batch).all()


def test_floats_outside_the_unit_interval_are_no_images():
    with pytest.raises(InputError, match=r"floats in \[0, 1\]; received -1 to 2 in row 1"):
        from_arrays(
            images=np.stack([np.zeros((8, 8, 1)), np.linspace(-1, 2, 64).reshape(8, 8, 1)])
        )[[0, 1]]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"labels": np.array([2**64 - 1, 0], np.uint64), "class_names": ["a", "b"]}, "below 2"),
        ({"labels": np.array([np.inf, 0])}, "1 NaN or infinite"),
        ({"labels": np.array([np.nan, 0])}, "1 NaN or infinite"),
        ({"labels": np.array([2.0**70, 0])}, "whole number"),
        ({"x": np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")}, "holds dates"),
        ({"x": np.ma.masked_array([[1.0], [2.0]], [[0], [1]])}, "1 masked"),
        ({"x": np.ones((2, 1), np.longdouble)}, "needs numbers or strings"),
        ({"x": np.ones((2, 1), complex)}, "needs numbers or strings"),
    ],
)
def test_nothing_is_coerced_in_silence(arrays, sentence):
    with pytest.raises(InputError, match=sentence):
        from_arrays({"x": np.eye(2), **arrays})


def test_labels_that_are_ids_are_numbered():
    data = from_arrays(x=np.eye(4), labels=np.array([10**9, 5, -1, 10**9]))
    assert data.labels.tolist() == [1, 0, -1, 1]
    assert data.class_names == ("5", "1000000000")
    data = from_arrays(x=np.eye(2), labels=np.array([2**64 - 1, 0], np.uint64))
    assert data.labels.tolist() == [1, 0]
    assert data.class_names[1] == str(2**64 - 1)


def test_labels_in_bytes_are_words():
    data = from_arrays(x=np.eye(2), labels=np.array([b"dog", b"cat"]))
    assert data.class_names == ("cat", "dog")
