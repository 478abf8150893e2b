"""Emoji: no base on both sides, one picture a base on the held-out side, and a split that stays."""

import gzip
import json
import os

import numpy as np
import pytest

from chiaroscuro.data import available, open_data, read_emoji
from chiaroscuro.errors import InputError

REAL = os.environ.get("CHIARO_DATA")


@pytest.fixture
def folder(tmp_path):
    """Twenty bases of two categories, every third with two variants after it."""
    base = [b for b in range(20) for _ in range(3 if b % 3 == 0 else 1)]
    n = len(base)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (n, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "emoji.npz", images=images, images_twitter=255 - images, base_id=base)
    lines = [
        {"id": i, "captions": [f"number {i}", f"of {b}"], "category": "ab"[b % 2]}
        for i, b in enumerate(base)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    (tmp_path / "emoji_captions.jsonl.gz").write_bytes(gzip.compress(content))
    return tmp_path


def test_the_sides_share_no_base_and_the_held_out_side_has_each_once(folder):
    data = read_emoji(folder)
    assert data.class_names == ("a", "b")
    train, test = data.part("train"), data.part("test")
    assert not set(train.groups) & set(test.groups)
    assert len(set(train.groups) | set(test.groups)) == 20
    assert len(test) == len(set(test.groups)) == 4
    assert np.bincount(test.labels).tolist() == [2, 2]
    assert len(train) > len(set(train.groups)) == 16
    texts, captions = data.column("texts"), data.column("captions")
    assert all(text == every[0] for text, every in zip(texts, captions, strict=True))
    # a base stands before its variants: base 0 is row 0, base 1 row 3
    kept = {int(text.split()[1]): every[1] for text, every in zip(texts, captions, strict=True)}
    assert kept[0] == "of 0"
    assert kept[3] == "of 1"


def test_without_variants_every_base_is_there_once(folder):
    data = read_emoji(folder, variants=False)
    assert len(data) == len(set(data.groups)) == 20
    whole = read_emoji(folder)
    assert data.part("test").column("texts").tolist() == whole.part("test").column("texts").tolist()


def test_validation_never_sees_the_test_side(folder):
    test = set(read_emoji(folder).part("test").column("texts"))
    data = read_emoji(folder, held_out="validation")
    assert not test & set(data.column("texts"))
    assert not set(data.part("train").groups) & set(data.part("test").groups)
    assert len(data.part("test")) == len(set(data.part("test").groups)) > 0


def test_pictures_are_averaged_over_areas(folder):
    whole, small = (read_emoji(folder, size=size).column("images") for size in (None, 4))
    assert whole.shape[1:] == (8, 8, 3)
    assert small.shape[1:] == (4, 4, 3)
    for i, j in ((0, 0), (1, 3)):
        square = whole[5, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].astype(float)
        np.testing.assert_array_equal(small[5, i, j], np.rint(square.mean(axis=(0, 1))))
    other = read_emoji(folder, vendor="twitter").column("images")
    np.testing.assert_array_equal(other, 255 - whole)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 5}, "needs a divisor of 8; received 5"),
        ({"vendor": "apple"}, "noto or twitter; received `apple`"),
        ({"held_out": "train"}, "`test` or `validation`; received `train`"),
    ],
)
def test_wrong_settings_are_sentences(folder, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        read_emoji(folder, **settings)


def test_by_name(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("CHIARO_DATA", str(folder))
    assert len(open_data("emoji(variants=False)")) == 20
    listed = {one.name: one.where for one in available()}
    assert listed["emoji"] == str(folder / "emoji.npz")
    with pytest.raises(InputError, match=r"no parameter `sise`.*did you mean `size`"):
        open_data("emoji(sise=4)")
    (folder / "emoji.npz").unlink()
    with pytest.raises(InputError, match=r"needs emoji\.npz and emoji_captions.*`CHIARO_DATA`"):
        open_data("emoji")
    with pytest.raises(InputError, match=r"needs emoji\.npz to hold emoji"):
        read_emoji(folder)


@pytest.mark.skipif(
    not REAL or not os.path.isfile(os.path.join(REAL, "emoji.npz")), reason="no emoji here"
)
def test_the_recorded_split():
    """A split that moves is another test set: numbers of before no longer compare."""
    data = open_data("emoji(size=32)")
    train, test = data.part("train"), data.part("test")
    assert (len(train), len(test), len(data.class_names)) == RECORDED[:3]
    assert int(test.column("ids").sum()) == RECORDED[3]
    assert not any("skin tone" in text for text in test.column("texts") if ":" in text)


RECORDED = (3018, 383, 10, 945298)
