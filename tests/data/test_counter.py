"""Random numbers by counter against SplitMix64 in plain integers; independent of order."""

import numpy as np
import pytest

from chiaroscuro.data.counter import uniforms, words
from chiaroscuro.errors import InputError

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def oracle(count: int, *key: int) -> list[int]:
    h = 0
    for part in key:
        h = mix((h + GOLDEN * (part + 1)) & MASK)
    return [mix((h + GOLDEN * i) & MASK) for i in range(1, count + 1)]


@pytest.mark.parametrize("key", [(), (0,), (7, 3, 12345, 1), (MASK, 0, 1)])
def test_words_are_splitmix64(key):
    assert words(5, *key)[0].tolist() == oracle(5, *key)


def test_published_values_of_splitmix64():
    # the reference implementation, seeded with 0
    assert words(2)[0].tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_a_row_does_not_depend_on_its_batch():
    rows = np.array([9, 4, 4, 100])
    together = words(6, 1, 2, rows, 0)
    for place, row in enumerate(rows):
        assert (words(6, 1, 2, int(row), 0)[0] == together[place]).all()


def test_parts_of_a_key_are_not_interchangeable():
    seen = {words(1, *key).item() for key in [(1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (3,), (1,)]}
    assert len(seen) == 6


def test_uniforms_fill_the_interval():
    u = uniforms(4, 0, 0, np.arange(20_000), 0)
    assert abs(u.mean() - 0.5) < 0.005
    assert abs(u.var() - 1 / 12) < 0.002
    assert abs(np.corrcoef(u.T) - np.eye(4)).max() < 0.03


def test_fractions_are_no_key():
    with pytest.raises(InputError, match=r"float64 of shape \(2,\)"):
        words(1, [0.5, 1.0])
