"""Embeddings files: a round trip, equal bytes for equal content, and a sentence for the rest."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings, numpy_files
from chiaroscuro.errors import ChiaroError, InputError

n = 6
rng = np.random.default_rng(0)
FULL = {
    "h": rng.normal(size=(n, 4)).astype(np.float32),
    "z": rng.normal(size=(n, 2)),
    "h1": rng.normal(size=(n, 4)).astype(np.float16),
    "h2": rng.normal(size=(n, 4)).astype(np.float16),
    "z1": rng.normal(size=(n, 2)),
    "z2": rng.normal(size=(n, 2)),
    "layers": {"layer1.0": rng.normal(size=(n, 3, 2)), "stem": np.ones((n, 5))},
    "labels": np.array([0, 1, 2, 0, 1, -1]),
    "class_names": ["ant", "bée", "猫"],
    "coarse_labels": np.array([0, 0, 1, 0, 0, 1], dtype=np.uint8),
    "factors": rng.normal(size=(n, 2)),
    "factor_names": ["angle", "hue"],
    "split": [0, 0, 0, 0, 1, 1],
    "ids": [f"img{i}" for i in range(n)],
    "texts": ["a", "", "long text " * 20, "ä", "\n", "f"],
    "thumbnails": rng.integers(0, 255, (n, 3, 3, 3), dtype=np.uint8),
    "about": {"trained_on.part": "train", "trained_on.rows": "4"},
}


def equal(a: Embeddings, b: Embeddings) -> bool:
    a, b = a.arrays(), b.arrays()
    return a.keys() == b.keys() and all(
        np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") and a[k].dtype == b[k].dtype
        for k in a
    )


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


# ---- round trips ----


def test_everything_survives(tmp_path):
    full = Embeddings(**FULL)
    back = Embeddings.load(full.save(tmp_path / "new" / "e.npz"))
    assert equal(full, back)
    assert back.n == n
    assert back.facts() == back.take([0, 3]).facts() == FULL["about"]
    assert set(back.layers) == {"layer1.0", "stem"}


def test_anyone_can_open_it_without_our_code(tmp_path):
    path = Embeddings(**FULL).save(tmp_path / "e.npz")
    with np.load(path, allow_pickle=False) as plain:
        assert int(plain["format"]) == 1
        assert np.array_equal(plain["layer_stem"], FULL["layers"]["stem"])
        assert plain["texts"].tolist() == FULL["texts"]


def test_anyone_can_write_it_without_our_code(tmp_path):
    path = npz(tmp_path / "e.npz", h=FULL["h"], layer_a=FULL["z"], labels=FULL["labels"])
    assert repr(Embeddings.load(path)) == (
        "Embeddings(h=(6, 4) float32, labels=(6,) int64, layer_a=(6, 2) float64)"
    )
    np.savez_compressed(path, h=FULL["h"], layer_a=FULL["z"], labels=FULL["labels"])
    assert np.array_equal(Embeddings.load(path).h, FULL["h"])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_bare_array_is_h_and_is_mapped(tmp_path, order):
    h = np.asarray(FULL["h"], order=order)
    np.save(tmp_path / "h.npy", h)
    found = Embeddings.load(tmp_path / "h.npy")
    assert np.array_equal(found.h, h)
    base = found.h
    while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_large_members_are_mapped_and_small_ones_checked(tmp_path, monkeypatch):
    path = Embeddings(**FULL).save(tmp_path / "e.npz")
    monkeypatch.setattr(numpy_files, "MAPPED_BYTES", 1)
    for source in (path, npz(tmp_path / "np.npz", h=np.asfortranarray(FULL["h"]))):
        mapped = Embeddings.load(source)
        assert not mapped.h.flags.writeable
        assert np.array_equal(mapped.h, FULL["h"])
    assert equal(Embeddings.load(path), Embeddings(**FULL))


def test_equal_content_gives_equal_bytes(tmp_path):
    a = Embeddings(**FULL).save(tmp_path / "a.npz")
    other = {**FULL, "h": np.asfortranarray(FULL["h"]), "z": FULL["z"].astype(">f8")}
    b = Embeddings(**dict(reversed(other.items()))).save(tmp_path / "b.npz")
    again = Embeddings.load(a).save(tmp_path / "c.npz")
    assert a.read_bytes() == b.read_bytes() == again.read_bytes()


def test_a_file_can_be_replaced_while_it_is_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(numpy_files, "MAPPED_BYTES", 1)
    path = Embeddings(h=np.ones((3, 2))).save(tmp_path / "e.npz")
    old = Embeddings.load(path)
    Embeddings(h=np.zeros((3, 2))).save(path)
    assert old.h.sum() == 6
    assert Embeddings.load(path).h.sum() == 0


def test_no_rows_and_one_row(tmp_path):
    for rows in (0, 1):
        one = Embeddings(h=np.zeros((rows, 3)), labels=np.zeros(rows, int))
        assert Embeddings.load(one.save(tmp_path / "e.npz")).h.shape == (rows, 3)
        np.save(tmp_path / "h.npy", np.zeros((rows, 3)))
        assert Embeddings.load(tmp_path / "h.npy").n == rows
        assert one.bad_rows() == {}


def test_taking_rows():
    some = Embeddings(**FULL).take(np.array([4, 0]))
    assert some.n == 2
    assert some.ids.tolist() == ["img4", "img0"]
    assert some.class_names.tolist() == FULL["class_names"]
    assert np.array_equal(some.layers["stem"], np.ones((2, 5)))


# ---- meanings ----


def test_labels_as_strings_and_as_floats():
    named = Embeddings(h=np.eye(3), labels=["b", "a", "b"])
    assert (named.labels.tolist(), named.class_names.tolist()) == ([1, 0, 1], ["a", "b"])
    assert Embeddings(labels=np.array([0.0, 2.0])).labels.dtype == np.int64


def test_bad_rows_are_named():
    h = np.ones((150_000, 2), dtype=np.float32)
    h[[3, 149_999], 1] = np.nan, np.inf
    z = np.ones((150_000, 1))
    bad = Embeddings(h=h, z=z).bad_rows()
    assert {name: rows.tolist() for name, rows in bad.items()} == {"h": [3, 149_999]}


WRONG = {
    "lengths": ({"h": np.eye(3), "labels": [0, 1]}, "received 3 in `h` and 2 in `labels`"),
    "a vector": ({"h": np.ones(5)}, r"`h` needs 2 dimensions.*\(5,\)"),
    "complex": ({"h": np.ones((2, 2), complex)}, "`h` needs numbers; received complex128"),
    "strings": ({"h": np.array([["a"]])}, "`h` needs numbers; received <U1"),
    "one view": ({"h1": np.eye(2)}, "`h1` and `h2` are needed together"),
    "two shapes": ({"z1": np.ones((2, 3)), "z2": np.ones((2, 4))}, r"\(2, 3\).*\(2, 4\)"),
    "objects": ({"h": np.array([[1, None]])}, "Python objects"),
    "ragged": ({"h": [[1.0], [1.0, 2.0]]}, "`h` needs an array"),
    "a fraction": ({"labels": np.array([0.5, 1])}, "fraction"),
    "no number": ({"labels": np.array([np.nan, 1])}, "NaN"),
    "a label too large": ({"labels": [0, 7], "class_names": ["a", "b"]}, "below 2.*received 7"),
    "a label too small": ({"labels": [0, -2]}, "received -2"),
    "a third split": ({"split": [0, 1, 2]}, r"received \[2\]"),
    "factor names": ({"factors": np.ones((2, 3)), "factor_names": ["a"]}, "1 names for 3 factors"),
    "names of nothing": ({"factor_names": ["a"]}, "1 names for 0 factors"),
    "thumbnails": ({"thumbnails": np.ones((2, 4, 5, 3), np.uint8)}, r"\(2, 4, 5, 3\)"),
    "grey thumbnails": ({"thumbnails": np.ones((2, 4, 4, 3))}, "float64"),
    "a flat layer": ({"layers": {"a": np.ones(4)}}, "`layer_a` needs at least 2"),
    "texts": ({"texts": [1, 2]}, "`texts` needs strings; received int64"),
}


@pytest.mark.parametrize(("arrays", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_array_is_a_sentence(arrays, words):
    with pytest.raises(InputError, match=words):
        Embeddings(**arrays)


# ---- bad files ----


class Bomb:
    def __reduce__(self):
        return (os._exit, (3,))


def test_object_arrays_are_refused_without_unpickling(tmp_path):
    bomb = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "a.npy", bomb)
    npz(tmp_path / "b.npz", h=bomb)
    np.savez_compressed(tmp_path / "c.npz", h=FULL["h"], texts=bomb)
    (tmp_path / "d.npy").write_bytes(pickle.dumps(Bomb()))
    for name, words in (
        ("a.npy", "Python objects"),
        ("b.npz", "b.npz:h.npy` is an array of Python objects"),
        ("c.npz", "c.npz:texts.npy` is an array of Python objects"),
        ("d.npy", "is not an array of numpy"),
    ):
        with pytest.raises(InputError, match=words):
            Embeddings.load(tmp_path / name)


def test_files_that_are_something_else(tmp_path):
    (tmp_path / "text.npz").write_text("h, labels\n1, 2\n")
    (tmp_path / "text.npy").write_text("h, labels\n1, 2\n")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "empty.npy").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        buffer = io.BytesIO()
        np.save(buffer, np.eye(2))
        archive.writestr("h.npy", buffer.getvalue())
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("h.npy", buffer.getvalue())
    npz(tmp_path / "records.npz", h=np.zeros(2, dtype=[("a", "f4"), ("b", "f4")]))
    (tmp_path / "table.doc").write_text("1,2")
    (tmp_path / "folder.npz").mkdir()
    for name, words in {
        "text.npz": r"15 bytes\) is not an `.npz`.*h, labels",
        "text.npy": r"15 bytes\) is not an array",
        "empty.npz": "0 bytes",
        "empty.npy": "0 bytes",
        "zip.npz": "holds `readme.txt`, not an array",
        "twice.npz": "`h.npy` twice",
        "records.npz": "plain types are read",
        "table.doc": "ends in `.npz`, `.npy`, .*; received `table.doc`",
        "folder.npz": "A folder of shards needs files of one kind .* holds none",
        "missing.npz": "does not exist",
    }.items():
        with pytest.raises(InputError, match=words):
            Embeddings.load(tmp_path / name)


def test_an_unknown_name_and_its_nearest(tmp_path):
    with pytest.raises(InputError, match=r"`lables` \(2,\) is not a name.*mean `labels`"):
        Embeddings.load(npz(tmp_path / "e.npz", h=np.eye(2), lables=np.arange(2)))


def test_a_foreign_file_under_other_names(tmp_path):
    path = npz(tmp_path / "e.npz", embeddings=np.eye(2), y=np.arange(2))
    for names in (None, {"embeddings": "h", "y": "labels"}):  # these are usual names
        found = Embeddings.load(path, names=names)
        assert repr(found) == "Embeddings(h=(2, 2) float64, labels=(2,) int64)"
    mistyped = npz(tmp_path / "f.npz", h=np.eye(2), lables=np.arange(2))
    with pytest.raises(InputError, match=r"`lables` .* is not a name.*mean `labels`"):
        Embeddings.load(mistyped)
    for names in ({"x": "h"}, {"embeddings": "y"}):
        with pytest.raises(InputError, match="it holds `embeddings`, `y`"):
            Embeddings.load(path, names=names)


def test_the_file_is_named_in_a_sentence_about_its_arrays(tmp_path):
    with pytest.raises(InputError, match=r"`e.npz`: .*received 2 in `h` and 3 in `labels`"):
        Embeddings.load(npz(tmp_path / "e.npz", h=np.eye(2), labels=np.arange(3)))


@pytest.mark.parametrize("stated", [2, 0, 1.0, [1, 1]])
def test_another_format_is_refused(tmp_path, stated):
    with pytest.raises(InputError, match=r"format .*; this version reads 1 to 1"):
        Embeddings.load(npz(tmp_path / "e.npz", h=np.eye(2), format=np.array(stated)))


def test_damage_is_noticed(tmp_path):
    path = Embeddings(h=FULL["h"], labels=FULL["labels"]).save(tmp_path / "e.npz")
    whole = path.read_bytes()
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            Embeddings.load(path)
    at = whole.index(FULL["h"].tobytes()) + 5
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    with pytest.raises(InputError, match="CRC"):
        Embeddings.load(path)
    np.save(tmp_path / "h.npy", FULL["h"])
    data = (tmp_path / "h.npy").read_bytes()
    for damaged in (data[:-1], data + b"x", data[:100], data[:7]):
        (tmp_path / "h.npy").write_bytes(damaged)
        with pytest.raises(InputError, match=r"cut short|not an array"):
            Embeddings.load(tmp_path / "h.npy")


def test_any_flipped_byte_gives_a_sentence_or_the_content(tmp_path):
    full = Embeddings(h=FULL["h"], texts=FULL["texts"])
    path = full.save(tmp_path / "e.npz")
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        try:
            found = Embeddings.load(path)
        except ChiaroError:
            continue
        assert equal(found, full), at


# ---- saving ----


def test_saving_fails_in_one_sentence_and_keeps_the_old(tmp_path, monkeypatch):
    path = Embeddings(h=np.eye(2)).save(tmp_path / "e.npz")

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(os, "fsync", full)
        with pytest.raises(ChiaroError, match=r"No space left.*errno 28.*previous file is intact"):
            Embeddings(h=np.eye(3)).save(path)
    assert os.listdir(tmp_path) == ["e.npz"]
    assert Embeddings.load(path).n == 2
    with pytest.raises(ChiaroError, match="cannot be made"):
        Embeddings(h=np.eye(2)).save(path / "below" / "e.npz")
    with pytest.raises(InputError, match=r"ends in `.npz`; received `e.npy`"):
        Embeddings(h=np.eye(2)).save(tmp_path / "e.npy")
    with pytest.raises(InputError, match="at least one array"):
        Embeddings().save(path)


def test_prompts_belong_to_the_classes(tmp_path):
    given = {"h": np.eye(4), "labels": [0, 1, 0, 1], "class_names": ["a", "b"]}
    prompts = {"prompts": ["an a", "a b"], "prompt_z": np.eye(2, 3)}
    embeddings = Embeddings(**given, **prompts, untrained_prompt_z=np.ones((2, 3)))
    assert embeddings.n == 4
    taken = embeddings.take([0, 2, 3])
    assert taken.h.shape == (3, 4)
    assert taken.prompt_z.shape == taken.untrained_prompt_z.shape == (2, 3)
    back = Embeddings.load(embeddings.save(tmp_path / "e.npz"))
    assert back.prompts.tolist() == ["an a", "a b"]
    np.testing.assert_array_equal(back.prompt_z, np.eye(2, 3))
    with pytest.raises(InputError, match="each of the `class_names`; received 3 for 2"):
        Embeddings(**given, prompt_z=np.eye(3))
    with pytest.raises(InputError, match="received 1 for 0"):
        Embeddings(h=np.eye(4), prompts=["a"])
