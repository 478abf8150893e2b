"""TinyImageNet's layout, made small."""

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.data import read_tiny_imagenet
from chiaroscuro.errors import InputError


def picture(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


@pytest.fixture
def root(tmp_path):
    for wnid, value in (("n02", 10), ("n01", 200)):
        for i in range(2):
            picture(tmp_path / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", value)
    for i, value in enumerate((200, 10)):
        picture(tmp_path / "val" / "images" / f"val_{i}.JPEG", value)
    (tmp_path / "wnids.txt").write_text("n02\nn01\n")
    (tmp_path / "words.txt").write_text("n01\tgoldfish, Carassius\nn02\tbullfrog\nn03\tother\n")
    (tmp_path / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn01\t0\t0\t1\t1\nval_1.JPEG\tn02\t0\t0\t1\t1\n"
    )
    return tmp_path


def test_layout(root):
    data = read_tiny_imagenet(root)
    assert data.class_names == ("goldfish", "bullfrog")
    assert data.labels.tolist() == [0, 0, 1, 1, 0, 1]
    assert data.split.tolist() == [0, 0, 0, 0, 1, 1]
    means = data.column("images").mean(axis=(1, 2, 3))
    assert (abs(means - np.where(data.labels == 0, 200, 10)) < 2).all()


def test_broken_pictures_are_listed(root):
    (root / "train" / "n01" / "images" / "n01_1.JPEG").write_bytes(b"x")
    (root / "val" / "images" / "val_0.JPEG").unlink()
    data = read_tiny_imagenet(root)
    assert len(data) == 4
    assert [one.path for one in data.skipped] == [
        "train/n01/images/n01_1.JPEG",
        "val/images/val_0.JPEG",
    ]


@pytest.mark.parametrize("line", ["../../x.JPEG\tn01", "val_0.JPEG\tn99", "nonsense"])
def test_annotations_that_do_not_fit(root, line):
    (root / "val" / "val_annotations.txt").write_text(line + "\n")
    with pytest.raises(InputError, match="line 1 needs a file and a known class"):
        read_tiny_imagenet(root)


def test_nothing_outside_the_folder_is_read(root, tmp_path_factory):
    secret = tmp_path_factory.mktemp("other") / "images" / "secret.JPEG"
    picture(secret, 7)
    place = root / "train" / "n01" / "images" / "n01_1.JPEG"
    place.unlink()
    place.symlink_to(secret)
    data = read_tiny_imagenet(root)
    assert [one.path for one in data.skipped] == ["train/n01/images/n01_1.JPEG"]
    assert "lies outside" in data.skipped[0].reason
    (root / "wnids.txt").write_text(f"n01\n../../{secret.parents[1].name}\n")
    with pytest.raises(InputError, match="letters and digits only"):
        read_tiny_imagenet(root)


def test_images_without_a_line_are_not_lost(root):
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\n")
    with pytest.raises(InputError, match="1 in `val/images` have none"):
        read_tiny_imagenet(root)


def test_another_folder(tmp_path):
    with pytest.raises(InputError, match="lacks one"):
        read_tiny_imagenet(tmp_path)
