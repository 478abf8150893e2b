"""The pickle reader builds plain data and refuses, without running anything, all else."""

import contextlib
import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chiaroscuro.data.unpickle import read_pickle
from chiaroscuro.errors import InputError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), PLAIN), st.sampled_from([2, 3, 4]))
@settings(deadline=None, max_examples=60)
def test_plain_data_comes_back(tmp_path_factory, value, protocol):
    path = tmp_path_factory.mktemp("p") / "p"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    assert read_pickle(path) == value


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["u1", "<i8", ">f4", "?"])
def test_arrays_come_back(tmp_path, protocol, order, kind):
    array = np.asarray(np.arange(12).reshape(3, 4) % 5, dtype=kind, order=order)
    (tmp_path / "p").write_bytes(pickle.dumps({"a": array}, protocol=protocol))
    back = read_pickle(tmp_path / "p")["a"]
    assert back.dtype == array.dtype
    assert (back == array).all()


class Calls:
    def __init__(self, function, *arguments):
        self.how = function, arguments

    def __reduce__(self):
        return self.how


class Plain:
    pass


def bombs(flag: str) -> dict[str, bytes]:
    """Pickles that would make a folder, or worse, if any of their code ran."""
    text = flag.encode()
    make = b"(S'%s'\ntR." % text
    return {
        "mkdir": pickle.dumps(Calls(os.mkdir, flag)),
        "mkdir, old": pickle.dumps(Calls(os.mkdir, flag), protocol=0),
        "system": pickle.dumps({"data": Calls(os.system, f"mkdir {flag}")}),
        "eval": pickle.dumps([Calls(eval, f"__import__('os').mkdir({flag!r})")]),
        "global": b"cposix\nmkdir\n" + make,
        "inst": b"(S'%s'\niposix\nmkdir\n." % text,
        "obj": b"(cposix\nmkdir\nS'%s'\no." % text,
        "through numpy": b"cnumpy\nload\n(S'%s'\ntR." % text,
        "dotted": b"\x80\x04\x8c\x05numpy\x8c\x0aos.mkdir..\x93" + make,
        "instance": pickle.dumps(Plain()),
        "persistent": b"Pid\n.",
        "extension": b"\x82\x01.",
        "ndarray called": b"cnumpy\nndarray\n(I1\ntR.",
        "dtype of objects": b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
        "object array": pickle.dumps(np.array([None, {}], dtype=object), protocol=2),
        "build on a name": b"cnumpy\nndarray\n(dS'x'\nI1\nsb.",
        "codec": b"c_codecs\nencode\n(S'x'\nS'zip'\ntR.",
    }


@pytest.mark.parametrize("name", list(bombs("x")))
def test_bombs_do_not_go_off(tmp_path, name):
    flag = tmp_path / "exploded"
    (tmp_path / "p").write_bytes(bombs(str(flag))[name])
    with pytest.raises(InputError, match=r"refused at byte|damaged at byte") as caught:
        read_pickle(tmp_path / "p")
    assert not flag.exists()
    assert str(tmp_path / "p") in str(caught.value)


def test_an_array_must_have_its_bytes(tmp_path):
    whole = pickle.dumps(np.zeros((2, 3), np.uint8), protocol=2)
    assert whole.count(b"K\x02K\x03\x86") == 1
    (tmp_path / "p").write_bytes(whole.replace(b"K\x02K\x03\x86", b"K\x02K\x09\x86"))
    with pytest.raises(InputError, match=r"shape \(2, 9\) 6 bytes instead of 18"):
        read_pickle(tmp_path / "p")


def test_a_far_place_in_the_memo_takes_no_memory(tmp_path):
    """Where `pickle.Unpickler` itself would make a list of 2^31 places."""
    (tmp_path / "p").write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    tracemalloc.start()
    try:
        assert read_pickle(tmp_path / "p") == []
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=40), st.integers(0, 200))
@settings(deadline=None, max_examples=200)
def test_damage_is_one_sentence(tmp_path_factory, junk, at):
    whole = bytearray(pickle.dumps({"labels": [1, 2], "data": np.arange(5)}, protocol=2))
    whole[at : at + len(junk)] = junk
    path = tmp_path_factory.mktemp("p") / "p"
    path.write_bytes(bytes(whole))
    with contextlib.suppress(InputError):  # anything else that is raised fails
        read_pickle(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"(",
        b"]q",
        b"e.",
        b"0.",
        b"h\x05.",
        b"T" + struct.pack("<i", -5),
        b"\x80\x02}K\x01s.",
    ],
)
def test_ill_formed_pickles_are_sentences(tmp_path, content):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(InputError, match=r"refused|damaged|cut short"):
        read_pickle(tmp_path / "p")
