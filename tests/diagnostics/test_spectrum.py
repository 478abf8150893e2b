"""Spectra against numpy's, their laws, and both extremes; single dimensions."""

import json
import math

import numpy as np
import pytest
import torch

from chiaroscuro.diagnostics import (
    absolute_rank,
    decay,
    dimensions,
    effective_rank,
    numerical_rank,
    participation_ratio,
    singular_values,
    spectrum,
)
from chiaroscuro.errors import InputError
from chiaroscuro.measures.moments import moments


def power_law(n, d, a, seed=0):
    """A centred matrix whose singular values are exactly k^-a."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, d))
    u = np.linalg.qr(u - u.mean(0))[0]
    v = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return u * np.arange(1, d + 1.0) ** -a @ v


@pytest.mark.parametrize("shape", [(5, 12), (12, 12), (20, 12), (300, 12)])
@pytest.mark.parametrize("centred", [True, False])
def test_singular_values_are_numpys_whatever_the_shape(shape, centred):
    h = np.random.default_rng(0).normal(size=shape) + 5
    x = h - h.mean(0) if centred else h
    s = np.linalg.svd(x, compute_uv=False)
    found = singular_values(h, centred)
    assert found.shape == s.shape
    np.testing.assert_allclose(found, s, atol=1e-12 * s[0])
    assert np.count_nonzero(found) == (min(shape[0] - 1, shape[1]) if centred else min(shape))


def test_small_values_survive_a_tall_matrix():
    """A Gram matrix would lose all below 1e-8 of the largest."""
    h = power_law(2000, 6, 10.0)  # down to 1.7e-8
    assert singular_values(h) == pytest.approx(np.arange(1, 7.0) ** -10, rel=1e-6)


@pytest.mark.parametrize("last", [1e-2, 1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_values_of_a_tall_matrix_are_exact_to_rounding_however_they_fall(last, offset):
    """Against numpy's decomposition of the whole matrix, from the even to the steepest."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(3000, 40))
    u = np.linalg.qr(u - u.mean(0))[0]
    h = u * np.geomspace(1, last, 40) @ np.linalg.qr(rng.normal(size=(40, 40)))[0] + offset
    for centred in (True, False):
        s = np.linalg.svd(h - h.mean(0) if centred else h, compute_uv=False)
        rounding = 4 * 2.2e-16 * np.linalg.norm(h)
        found = singular_values(h, centred)
        np.testing.assert_allclose(
            found[s > 2 * rounding], s[s > 2 * rounding], rtol=1e-8, atol=rounding
        )
    known = moments(h)
    np.testing.assert_array_equal(spectrum(h, known).values, spectrum(h).values)


def test_dependent_and_constant_dimensions_have_no_value():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(5000, 20)) @ rng.normal(size=(20, 60)) + 3
    h = np.hstack([h, np.full((5000, 4), 7.0)])
    found = spectrum(h)
    assert np.count_nonzero(found.values) == found.numerical_rank == 20
    want = np.linalg.svd(h - h.mean(0), compute_uv=False)[:20]
    np.testing.assert_allclose(found.values[:20], want, rtol=1e-9)


def test_float32_rows_have_the_values_of_their_float64_copy():
    h = np.random.default_rng(0).normal(size=(900, 7)).astype(np.float32) * 1e-3 + 50
    np.testing.assert_allclose(singular_values(h), singular_values(h.astype(float)), rtol=1e-12)
    want = np.abs(h.astype(float)).max(0)
    seen = moments(h)
    np.testing.assert_array_equal(seen.largest, want)
    x = h.astype(float) - h.astype(float).mean(0)
    np.testing.assert_allclose(seen.scatter, x.T @ x, rtol=1e-9, atol=1e-12)
    assert seen.squares == pytest.approx((h.astype(float) ** 2).sum(), rel=1e-12)


def test_the_record_is_its_functions():
    h = np.random.default_rng(1).normal(size=(80, 9)) * np.arange(1, 10) + 2
    found = spectrum(h)
    assert found.effective_rank == effective_rank(h)
    assert found.participation_ratio == participation_ratio(h)
    assert found.numerical_rank == numerical_rank(h)
    assert found.decay == decay(h) or found.decay.json() == decay(h).json()
    assert found.mean_share == pytest.approx(80 * (h.mean(0) ** 2).sum() / (h**2).sum())
    np.testing.assert_allclose(found.raw, np.linalg.svd(h, compute_uv=False))
    assert json.loads(json.dumps(found.json()))["n"] == 80


def test_collapse_and_fewer_rows_than_dimensions():
    found = spectrum(torch.full((50, 8), 0.3))
    assert (found.effective_rank, found.participation_ratio, found.numerical_rank) == (0, 0, 0)
    assert found.mean_share == pytest.approx(1)
    assert math.isnan(found.decay.exponent)
    assert found.json()["decay"]["exponent"] is None
    few = spectrum(torch.randn(5, 64, generator=torch.Generator().manual_seed(0)))
    assert few.most == few.numerical_rank == 4
    assert few.effective_rank <= 4
    assert spectrum(torch.zeros(4, 2)).mean_share == 0


@pytest.mark.parametrize("a", [0.25, 0.5, 1.0])
def test_decay_is_the_planted_exponent(a):
    found = decay(power_law(200, 60, a))
    assert found.exponent == pytest.approx(2 * a, rel=1e-6)
    assert found.r2 == pytest.approx(1)
    assert (found.first, found.last) == (6, 30)
    assert decay(7 * power_law(200, 60, a)).exponent == pytest.approx(2 * a, rel=1e-6)
    assert decay(power_law(200, 60, a), first=2, last=10).last == 10


def test_decay_of_a_flat_spectrum_is_none():
    h = torch.cat([torch.eye(30), -torch.eye(30)])
    found = decay(h)
    assert (found.exponent, found.r2) == (pytest.approx(0, abs=1e-9), 0)
    with pytest.raises(InputError, match="first <= last; received 5 and 3"):
        decay(h, 5, 3)


def test_absolute_rank_counts_values_and_sees_the_scale():
    W = np.diag([3.0, 1.0, 0.1])
    assert [absolute_rank(W, t) for t in (0.05, 0.5, 1.0, 2.0, 5.0)] == [3, 2, 2, 1, 0]
    assert absolute_rank(0.1 * W, 0.05) == 2
    assert numerical_rank(W) == numerical_rank(0.1 * W)
    assert absolute_rank(np.ones((5, 2)), 1.0) == 1
    assert absolute_rank(np.ones((5, 2)), 1.0, centred=True) == 0
    with pytest.raises(InputError, match="above 0"):
        absolute_rank(W, 0.0)


def test_dead_and_duplicate_dimensions_are_found():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(500, 6))
    h[:, 2] = 4.0
    h[:, 4] = -3 * h[:, 1] + 9
    h[:, 5] *= 1e-5
    found = dimensions(h)
    assert found.dead.tolist() == [2, 5]
    assert found.duplicates.tolist() == [[1, 4]]
    assert found.duplicate.tolist() == [4]
    live = [0, 1, 3, 4]
    np.testing.assert_allclose(found.spread[live], h.std(0)[live])
    assert found.unevenness == pytest.approx(found.spread.std() / found.spread.mean())
    assert dimensions(1e6 * h).dead.tolist() == [2, 5]
    assert len(dimensions(h, dead=1e-7).dead) == 1


def test_dimensions_at_their_extremes():
    constant = dimensions(torch.full((9, 4), 0.1))
    assert constant.dead.tolist() == [0, 1, 2, 3]
    assert len(constant.duplicates) == 0
    cross = dimensions(torch.cat([torch.eye(5), -torch.eye(5)]))
    assert len(cross.dead) == len(cross.duplicates) == 0
    assert cross.unevenness == pytest.approx(0)
    assert dimensions([[1.0], [2.0]]).d == 1
    with pytest.raises(InputError, match="1 of 2 rows have NaN or infinity, the first is row 1"):
        dimensions([[1.0], [math.nan]])
