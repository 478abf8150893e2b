"""One sentence a line."""

import gzip

import numpy as np
import pytest

from chiaroscuro.data import read_text
from chiaroscuro.errors import InputError

SENTENCES = ["Licht und Schatten.", "  Größe ", "", "日本語", "last"]


@pytest.mark.parametrize("zipped", [False, True])
def test_sentences(tmp_path, zipped):
    content = "\r\n".join(SENTENCES).encode()
    path = tmp_path / ("a.txt.gz" if zipped else "a.txt")
    path.write_bytes(gzip.compress(content) if zipped else content)
    data = read_text(path)
    assert data.column("texts").tolist() == ["Licht und Schatten.", "Größe", "日本語", "last"]
    assert data.ids.tolist() == [1, 2, 4, 5]
    assert data[np.array([2])]["texts"].tolist() == ["日本語"]
    assert data.name == "a"


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\ntwo")
    assert read_text(tmp_path / "a.txt").column("texts").tolist() == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"one\ntwo\nthr\xe9e\n", "line 3 has the byte 0xe9"),
        (b"\n \n", "no line with anything"),
        (gzip.compress(b"one\ntwo\n" * 99, mtime=0)[:-9], "damaged gzip"),
    ],
)
def test_damage_is_a_sentence(tmp_path, content, sentence):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_text(tmp_path / "a.txt")


def test_missing(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_text(tmp_path / "a.txt")
