"""Tasks: every instance once, and right."""

import numpy as np
import pytest

from chiaroscuro.data import modular_addition, open_data
from chiaroscuro.errors import InputError


def test_every_sum_is_there_once():
    x = modular_addition(n=7, k=3).column("x")
    assert sorted(map(tuple, x[:, :2])) == [(a, b) for a in range(7) for b in range(7)]
    assert all((a + b - c) % 3 == 0 and 0 <= c < 3 for a, b, c in x)


def test_the_split_is_a_function_of_the_seed():
    first, same, other = (modular_addition(seed=seed).split for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()
    assert open_data("modular_addition(n=16, k=8)").split.sum() == 51


def test_a_modulus_beyond_the_symbols_is_refused():
    with pytest.raises(InputError, match="received n = 4 and k = 5"):
        modular_addition(n=4, k=5)
