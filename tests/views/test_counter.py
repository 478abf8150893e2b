"""Random numbers by name: the published cipher, and nothing but the name decides."""

import numpy as np
import pytest
import torch

from chiaroscuro.errors import InputError
from chiaroscuro.views import Draws, compiled
from chiaroscuro.views.counter import philox

ONES32, ONES64 = 2**32 - 1, 2**64 - 1
# the known answers of Random123 for philox4x32, 10 rounds: counter, key, result
KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((ONES32,) * 4, (ONES32,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def makers():
    native = compiled.library()
    return [philox, native.words] if native else [philox]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_the_published_answers(counter, key, answer):
    ids = np.array([counter[0] + (counter[1] << 32)], dtype=np.uint64)
    view, block = counter[3] >> 16, counter[3] & 0xFFFF
    for make in makers():
        words = make(ids, counter[2], view, block + 1, key[0] + (key[1] << 32))[0, -4:]
        assert " ".join(f"{word:08x}" for word in words) == answer


def test_compiled_and_numpy_give_the_same_bits():
    ids = np.random.default_rng(0).integers(0, 2**63, 50).astype(np.uint64)
    first, *others = (make(ids, 7, 3, 9, 0x123456789ABCDEF0) for make in makers())
    for other in others:
        assert (first == other).all()


def test_a_number_depends_on_its_name_alone():
    ids = np.array([5, 900, 17, 2**40, -3])
    whole = Draws(ids, seed=3, epoch=2, view=1, stream="a").words(30)
    for i, each in enumerate(ids):
        alone = Draws([each], seed=3, epoch=2, view=1, stream="a").words(11)
        assert (alone[0] == whole[i, :11]).all()
    backwards = Draws(torch.from_numpy(ids[::-1].copy()), seed=3, epoch=2, view=1, stream="a")
    assert (backwards.words(30) == whole[::-1]).all()


def test_each_part_of_the_name_matters():
    base = {"seed": 3, "epoch": 2, "view": 1, "stream": "a"}
    words = {tuple(Draws([1], **base).words(4)[0])}
    for change in ({"seed": 4}, {"epoch": 3}, {"view": 2}, {"stream": "b"}, {"seed": 3 + 2**40}):
        words.add(tuple(Draws([1], **{**base, **change}).words(4)[0]))
    words.add(tuple(Draws([2], **base).words(4)[0]))
    words.add(tuple(Draws([1 + 2**32], **base).words(4)[0]))
    assert len(words) == 8


def test_laws_of_the_numbers():
    n = 40_000
    draws = Draws(np.arange(n), seed=1)
    u, e = draws.uniform(3), draws.normal(3)
    assert u.min() > 0
    assert u.max() < 1
    tolerance = 5 / np.sqrt(n)
    assert np.abs(u.mean(axis=0) - 0.5).max() < tolerance * np.sqrt(1 / 12)
    assert np.abs(e.mean(axis=0)).max() < tolerance
    assert np.abs((e**2).mean(axis=0) - 1).max() < tolerance * np.sqrt(2)
    assert np.abs((e**4).mean(axis=0) - 3).max() < tolerance * np.sqrt(96)
    assert np.abs(np.corrcoef(e.T) - np.eye(3)).max() < tolerance
    neighbours = np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]
    assert abs(neighbours) < tolerance
    assert (draws.normal(5)[:, :3] == e).all()


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda: Draws([0], seed=-1), "-1"),
        (lambda: Draws([0], epoch=2**32), "4294967296"),
        (lambda: Draws([0], view=70000), "70000"),
        (lambda: Draws([0], seed=0.5), "0.5"),
        (lambda: Draws([0.5]), "float64"),
        (lambda: Draws([[1, 2]]), r"\(1, 2\)"),
        (lambda: Draws([0]).words(2**18 + 1), "262145"),
    ],
)
def test_sentences(call, number):
    with pytest.raises(InputError, match=number):
        call()
