"""A pass over all rows: against what the whole says, in any pieces and any order of merging."""

import sys

import numpy as np
import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.measures import Pass, effective_rank, norms, scan

RNG = np.random.default_rng(0)


def in_blocks(x, size=17):
    return [(at, x[at : at + size]) for at in range(0, len(x), size)]


def rows(n=400, d=6, dtype=np.float64):
    return (RNG.normal(size=(n, d)) * np.exp(RNG.normal(size=(n, 1)))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8])
def test_it_is_what_the_whole_says(dtype):
    x = (10 * rows()).astype(dtype)
    x[[3, 90]] = 0
    x[7] = x[200] = x[399]
    found = scan(in_blocks(x), len(x))
    whole = x.astype(np.float64)
    want = norms(whole)
    assert found.n == 400
    assert found.n_zero == want.zero
    assert found.norm_mean == pytest.approx(want.mean, rel=1e-6)
    assert found.norm_sd == pytest.approx(want.sd, rel=1e-5)
    assert found.norm_median == pytest.approx(want.quantiles[3], rel=0.03)
    assert found.norm_largest == pytest.approx(want.largest, rel=1e-6)
    np.testing.assert_allclose(found.mean, whole.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.covariance, np.cov(whole.T, bias=True), rtol=1e-4, atol=1e-4)
    assert found.effective_rank == pytest.approx(effective_rank(whole), rel=1e-3)
    counts = np.unique(whole, axis=0, return_counts=True)[1]
    assert found.exact == counts[counts > 1].sum()
    assert {7, 200, 399} <= set(found.twins.tolist())
    group = found.groups[found.twins == 7][0]
    assert sorted(found.twins[found.groups == group].tolist()) == [7, 200, 399]


def test_parts_merge_in_any_order():
    x = rows()
    x[5] = x[395]
    whole = scan(in_blocks(x), len(x))
    parts = []
    for at, block in in_blocks(x, 100):
        one = Pass(len(x))
        one.add(at, block)
        parts.append(one)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        found = parts[order[0]]
        for k in order[1:]:
            found = found.merge(parts[k])
        found = found.result()
        np.testing.assert_allclose(found.covariance, whole.covariance, rtol=1e-10, atol=1e-12)
        assert sorted(found.twins.tolist()) == [5, 395]
        assert found.norm_median == whole.norm_median
        assert found.far.tolist() == whole.far.tolist()


def test_minus_zero_is_zero_and_close_is_not_equal():
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [1e-300, 1.0], [0.0, 1.0000001]])
    assert scan([(0, x)], 4).twins.tolist() == [0, 1]


def test_rows_that_are_not_finite_are_counted_apart():
    x = rows()
    x[8, 2], x[300, 0] = np.nan, np.inf
    found = scan(in_blocks(x), len(x))
    assert found.bad.tolist() == [8, 300]
    assert np.isfinite(found.covariance).all()


def test_long_rows_are_found_wherever_they_are():
    x = np.ones((1000, 3)) + 0.01 * RNG.normal(size=(1000, 3))
    x[[17, 990]] *= np.array([[30.0], [50.0]])
    found = scan(in_blocks(x), 1000)
    assert found.far.tolist() == [990, 17]
    assert found.n_far == 2


def test_of_very_many_rows_some_hashes_are_kept_with_all_their_twins(monkeypatch):
    monkeypatch.setattr(sys.modules["chiaroscuro.measures.scan"], "HASHED", 500)
    x = np.repeat(RNG.normal(size=(2000, 4)), 2, axis=0)
    found = scan(in_blocks(x, 100), 4000)
    assert found.share_hashed == 1 / 8
    assert found.exact == pytest.approx(4000, rel=0.15)
    assert (np.bincount(found.groups) == 2).all()


def test_rows_of_another_width_are_refused():
    with pytest.raises(InputError, match=r"rows of 3 numbers; received shape \(2, 4\)"):
        scan([(0, np.ones((2, 3))), (2, np.ones((2, 4)))], 4)
