"""Pictures with texts: from files, from an npz, and what is wrong with a line."""

import gzip
import json

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.data import read_pairs
from chiaroscuro.errors import InputError


def lines(path, records):
    content = "\n".join(json.dumps(r) if not isinstance(r, str) else r for r in records).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def pictures(n):
    return np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)


def test_pictures_from_files(tmp_path):
    (tmp_path / "img").mkdir()
    for i in range(3):
        Image.fromarray(pictures(3)[i]).save(tmp_path / "img" / f"{i}.png")
    (tmp_path / "img" / "1.png").write_bytes(b"broken")
    path = lines(
        tmp_path / "a.jsonl",
        [
            {"image": "img/0.png", "caption": "zero"},
            {"image": "img/1.png", "caption": "one"},
            {"image": "img/2.png", "captions": ["two", "deux"]},
            {"image": "img/9.png", "text": "nine"},
        ],
    )
    data = read_pairs(path)
    assert data.column("texts").tolist() == ["zero", "two"]
    assert data.column("captions").tolist() == [("zero",), ("two", "deux")]
    assert data.column("images")[:, 0, 0, 0].tolist() == [0, 2]
    assert data.ids.tolist() == [1, 3]
    assert len(data.skipped) == 2
    assert data.skipped[0].path.startswith("line 2: ")
    assert "does not exist" in data.skipped[1].reason


@pytest.mark.parametrize("name", ["emo_captions.jsonl", "emo_captions.jsonl.gz"])
def test_pictures_from_the_npz_beside(tmp_path, name):
    np.savez(
        tmp_path / "emo.npz",
        images=pictures(6),
        images_other=255 - pictures(6),
        base_id=np.array([0, 0, 0, 1, 1, 2]),
    )
    path = lines(
        tmp_path / name, [{"id": i, "captions": [f"c{i}", "x"]} for i in (5, 4, 3, 2, 1, 0)]
    )
    data = read_pairs(path)
    assert data.column("images")[:, 0, 0, 0].tolist() == [5, 4, 3, 2, 1, 0]
    assert data.groups.tolist() == [2, 1, 1, 0, 0, 0]
    assert data.take([1, 0])[[0]]["texts"].tolist() == ["c4"]
    sides = data.with_split(0.4)
    assert not set(sides.part("train").groups) & set(sides.part("test").groups)
    other = read_pairs(path, images="emo.npz", key="images_other")
    assert other.column("images")[0, 0, 0, 0] == 250
    with pytest.raises(
        InputError, match="no `nothing`; it has `images`, `images_other`, `base_id`"
    ):
        read_pairs(path, key="nothing")


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ("{not json", "line 2 is no JSON"),
        ("[1]", "line 2 needs a JSON object; it has a list"),
        ({"id": 0}, "line 2 needs a text"),
        ({"id": 0, "captions": []}, "line 2 needs a text"),
        ({"id": 0, "captions": [3]}, "line 2 needs a text"),
        ({"id": 0, "text": " "}, "line 2 needs a text"),
        ({"id": 7, "text": "a"}, "line 2 needs `id` from 0 to 1, .* it has 7"),
        ({"id": "0", "text": "a"}, "it has '0'"),
        ({"text": "a"}, "it has None"),
        ("[" * 100_000, "line 2 is no JSON"),
    ],
)
def test_wrong_lines_are_named(tmp_path, record, sentence):
    np.savez(tmp_path / "a.npz", images=pictures(2))
    path = lines(tmp_path / "a.jsonl", [{"id": 0, "text": "fine"}, record])
    with pytest.raises(InputError, match=sentence):
        read_pairs(path)


def test_no_pictures_at_all(tmp_path):
    path = lines(tmp_path / "big_set_captions.jsonl", [{"id": 0, "text": "fine"}])
    with pytest.raises(
        InputError, match=r"`big_set_captions\.npz` or `big_set\.npz` or `big\.npz`"
    ):
        read_pairs(path)


def test_lines_without_an_index_go_in_order(tmp_path):
    np.savez(tmp_path / "a.npz", images=pictures(2))
    assert len(read_pairs(lines(tmp_path / "a.jsonl", [{"text": "x"}, {"text": "y"}]))) == 2
    with pytest.raises(InputError, match=r"each of 2 images, .* it has 1 lines"):
        read_pairs(lines(tmp_path / "a.jsonl", [{"text": "x"}]))


def test_classes_and_a_split_from_the_lines(tmp_path):
    np.savez(tmp_path / "a.npz", images=pictures(10), base_id=np.arange(10) // 2)
    records = [{"id": i, "text": f"t{i}", "category": "dc"[i // 6]} for i in range(10)]
    data = read_pairs(lines(tmp_path / "a.jsonl", records), test=0.4)
    assert data.class_names == ("c", "d")
    assert data.labels.tolist() == [1] * 6 + [0] * 4
    train, test = data.part("train"), data.part("test")
    assert not set(train.groups) & set(test.groups)
    assert len(test) == 4
    del records[3]["category"]
    assert read_pairs(lines(tmp_path / "a.jsonl", records)).labels is None


def test_texts_alone_need_no_pictures(tmp_path):
    path = tmp_path / "sentences.jsonl"
    path.write_text(
        '{"captions": ["a cat", "one cat"], "category": "animal"}\n'
        '{"captions": ["a car"], "category": "thing"}\n'
    )
    data = read_pairs(path, pictures=False)
    assert set(data.inputs) == {"texts", "captions"}
    assert data[[0]]["captions"].tolist() == [("a cat", "one cat")]
    assert data.class_names == ("animal", "thing")
    with pytest.raises(InputError, match="takes no images"):
        read_pairs(path, "pictures.npz", pictures=False)


def test_images_outside_the_folder_are_listed_unless_allowed(tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(pictures(1)[0]).save(tmp_path / "secret.png")
    Image.fromarray(pictures(1)[0]).save(tmp_path / "in" / "own.png")
    path = lines(
        tmp_path / "in" / "a.jsonl",
        [
            {"image": "own.png", "text": "own"},
            {"image": "../secret.png", "text": "up"},
            {"image": str(tmp_path / "secret.png"), "text": "absolute"},
            {"image": "/dev/zero", "text": "device"},
            {"image": "x" * 5000, "text": "long"},
            {"image": "a\0b.png", "text": "zero"},
        ],
    )
    data = read_pairs(path)
    assert data.column("texts").tolist() == ["own"]
    assert len(data.skipped) == 5
    assert "outside=True" in data.skipped[0].reason
    assert read_pairs(path, outside=True).column("texts").tolist() == ["own", "up", "absolute"]


@pytest.mark.parametrize(
    "record",
    [
        {"anchor": "a dog", "positive": "one dog"},
        {"sentence1": "a dog", "sentence2": "one dog"},
        {"question": "a dog", "answer": "one dog", "id": 3},
        ["a dog", "one dog"],
    ],
)
def test_pairs_of_texts_in_the_words_of_other_libraries(tmp_path, record):
    path = lines(tmp_path / "a.jsonl", [record, record])
    data = read_pairs(path, pictures=False)
    assert data[[0]]["captions"].tolist() == [("a dog", "one dog")]
