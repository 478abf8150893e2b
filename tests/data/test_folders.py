"""Folders of pictures: classes, splits, order, and the list of what was skipped."""

import os

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.data import read_folder
from chiaroscuro.errors import InputError


def plant(root, names, side=6):
    for i, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((side, side, 3), i, np.uint8)).save(path)


def test_classes_in_sorted_order(tmp_path):
    plant(tmp_path, ["dog/2.png", "cat/b.png", "cat/a.PNG", "dog/10.png"])
    (tmp_path / "cat" / "notes.txt").write_text("not a picture")
    (tmp_path / "cat" / ".hidden.png").write_text("hidden")
    data = read_folder(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert data.ids.tolist() == ["cat/a.PNG", "cat/b.png", "dog/10.png", "dog/2.png"]
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.column("images")[:, 0, 0, 0].tolist() == [2, 1, 3, 0]
    assert data.skipped == ()


def test_a_flat_folder_has_no_labels(tmp_path):
    plant(tmp_path, ["1.png", "2.png"])
    data = read_folder(tmp_path)
    assert data.labels is None
    assert data.class_names == ()


@pytest.mark.parametrize("test", ["test", "val"])
def test_train_and_test_folders_are_a_split(tmp_path, test):
    plant(tmp_path, ["train/a/1.png", "train/b/1.png", f"{test}/a/2.png"])
    data = read_folder(tmp_path)
    assert data.class_names == ("a", "b")
    assert data.part("test").ids.tolist() == [f"{test}/a/2.png"]


def test_nothing_may_lie_beside_the_sides(tmp_path):
    """One picture beside them must not make the sides classes, and the test side training data."""
    plant(tmp_path, ["train/a/1.png", "val/a/1.png", "cover.png", "more/b.png"])
    with pytest.raises(
        InputError, match=r"`train`, `val` .* 2 of 4 lie outside, the first is `cover.png`"
    ):
        read_folder(tmp_path)


def test_a_side_alone_is_no_class(tmp_path):
    plant(tmp_path, ["one/train/a/1.png", "one/train/b/1.png", "two/test/a/1.png"])
    data = read_folder(tmp_path / "one")
    assert data.class_names == ("a", "b")
    assert data.labels.tolist() == [0, 1]
    assert data.split is None
    assert len(read_folder(tmp_path / "two").part("train")) == 0


def test_two_test_sides_are_ambiguous(tmp_path):
    plant(tmp_path, ["train/1.png", "test/1.png", "val/1.png"])
    with pytest.raises(InputError, match="it has 2: test, val"):
        read_folder(tmp_path)


@pytest.mark.parametrize("cache", [False, True])
def test_corrupt_pictures_are_skipped_and_listed(tmp_path, cache):
    plant(tmp_path, ["a/1.png", "a/2.png", "b/1.png", "b/2.png", "b/3.jpg"])
    (tmp_path / "a" / "2.png").write_bytes(b"no picture")
    whole = (tmp_path / "b" / "1.png").read_bytes()
    (tmp_path / "b" / "1.png").write_bytes(whole[:-30])
    (tmp_path / "b" / "3.jpg").write_bytes(b"")
    data = read_folder(tmp_path, cache=cache)
    assert data.ids.tolist() == ["a/1.png", "b/2.png"]
    assert data.labels.tolist() == [0, 1]
    assert [one.path for one in data.skipped] == ["a/2.png", "b/1.png", "b/3.jpg"]
    assert all(len(one.reason) > 10 for one in data.skipped)
    assert "3 files skipped" in repr(data)
    assert data.column("images")[:, 0, 0, 0].tolist() == [0, 3]


def test_nothing_readable_is_an_error(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no")
    with pytest.raises(InputError, match="None of the 1 images"):
        read_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        read_folder(tmp_path / "empty")
    with pytest.raises(InputError, match="not a folder"):
        read_folder(tmp_path / "missing")


def test_sizes_that_differ_need_size(tmp_path):
    plant(tmp_path, ["1.png"], side=6)
    plant(tmp_path, ["2.png"], side=9)
    with pytest.raises(InputError, match="2 sizes, from 6 x 6 to 9 x 9"):
        read_folder(tmp_path)
    assert read_folder(tmp_path, size=5)[[0, 1]]["images"].shape == (2, 5, 5, 3)


def test_a_picture_that_breaks_later_stops_its_batch(tmp_path):
    plant(tmp_path, ["1.png", "2.png"])
    data = read_folder(tmp_path)
    (tmp_path / "2.png").write_bytes(b"gone bad")
    assert len(data[[0]]["images"]) == 1
    with pytest.raises(Exception, match=r"2\.png.* cannot be decoded"):
        data[[1]]


def test_cached_pictures_need_no_files(tmp_path):
    plant(tmp_path, ["1.png", "2.png"])
    data = read_folder(tmp_path, cache=True)
    (tmp_path / "2.png").unlink()
    assert data[[1]]["images"][0, 0, 0, 0] == 1


def test_checks_have_names(tmp_path):
    plant(tmp_path, ["1.png"])
    for check in ("header", "none"):
        assert len(read_folder(tmp_path, check=check)) == 1
    with pytest.raises(InputError, match="received `never`"):
        read_folder(tmp_path, check="never")


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path)
    return path


def test_links_that_lead_out_are_listed_unless_allowed(tmp_path):
    root = tmp_path / "data"
    image(root / "a.png")
    secret = image(tmp_path / "secret.png")
    (root / "b.png").symlink_to(secret)
    (root / "c.png").symlink_to(root / "a.png")
    (root / "d.png").symlink_to("/dev/zero")
    data = read_folder(root)
    assert data.ids.tolist() == ["a.png", "c.png"]
    assert [one.path for one in data.skipped] == ["b.png", "d.png"]
    assert "outside=True" in data.skipped[0].reason
    assert read_folder(root, outside=True).ids.tolist() == ["a.png", "b.png", "c.png"]


def test_folders_that_are_not_entered_are_listed(tmp_path, monkeypatch):
    image(tmp_path / "cat" / "a.png")
    image(tmp_path / "closed" / "b.png")
    (tmp_path / "dog").symlink_to(tmp_path / "cat")
    inner = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return inner(path)

    monkeypatch.setattr(os, "scandir", scandir)
    data = read_folder(tmp_path)
    assert data.ids.tolist() == ["cat/a.png"]
    assert {one.path: one.reason for one in data.skipped} == {
        "closed": "Permission denied",
        "dog": "a link to a folder, which is not followed",
    }


def test_a_pipe_called_an_image_does_not_wait(tmp_path):
    image(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    data = read_folder(tmp_path)
    assert [one.path for one in data.skipped] == ["b.png"]
    assert "no regular file" in data.skipped[0].reason


def test_the_index_is_kept_until_a_file_is_added(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("chiaroscuro.data.index.CACHED_FROM", 2)
    root = tmp_path / "data"
    for name in ("train/a/1.png", "train/b/1.png", "test/a/2.png"):
        image(root / name)
    (root / "train" / "b" / "2.png").write_bytes(b"broken")
    first = read_folder(root)
    with monkeypatch.context() as context:
        context.setattr("chiaroscuro.data.folders._index", None)  # must not be asked again
        again = read_folder(root)
    assert again.ids.tolist() == first.ids.tolist()
    assert again.class_names == ("a", "b")
    assert again.skipped == first.skipped
    assert again.split.tolist() == first.split.tolist() == [1, 0, 0]
    image(root / "train" / "b" / "9.png")
    assert len(read_folder(root)) == 4
    for path in (tmp_path / "cache").rglob("names.npy"):
        path.write_bytes(b"damaged")
    assert len(read_folder(root)) == 4
