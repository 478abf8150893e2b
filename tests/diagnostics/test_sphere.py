"""The uniform law in closed form, norms, hubs and near-duplicates."""

import math

import numpy as np
import pytest
import torch

from chiaroscuro.diagnostics import (
    closest,
    hubness,
    near_duplicates,
    norms,
    uniform_law,
    uniformity,
)
from chiaroscuro.errors import InputError


def sphere(n, d, seed=0):
    h = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return h / h.norm(dim=1, keepdim=True)


# ---- the uniform law ----


@pytest.mark.parametrize("d", [1, 2, 3, 7, 128])
@pytest.mark.parametrize("t", [0.5, 2.0, 30.0])
def test_the_uniform_law_is_the_integral(d, t):
    """Against E exp(-2t (1 - c)) under the density of c = u.v, by quadrature in the angle."""
    if d == 1:
        expected = math.log((1 + math.exp(-4 * t)) / 2)
    else:
        angle = np.linspace(0, math.pi, 200_001)
        weight = np.sin(angle) ** (d - 2)
        value = np.exp(-2 * t * (1 - np.cos(angle)))
        expected = math.log(np.trapezoid(weight * value, angle) / np.trapezoid(weight, angle))
    assert uniform_law(d, t) == pytest.approx(expected, abs=1e-7)


def test_the_uniform_law_is_bessels_and_what_even_points_have():
    special = pytest.importorskip("scipy.special")
    for d, t in ((2, 2.0), (3, 2.0), (10, 5.0), (50, 1.0)):
        bessel = math.lgamma(d / 2) + math.log(special.iv(d / 2 - 1, 2 * t))
        bessel -= (d / 2 - 1) * math.log(t) + 2 * t
        assert uniform_law(d, t) == pytest.approx(bessel, abs=1e-10)
    assert uniformity(sphere(3000, 8)) == pytest.approx(uniform_law(8), abs=0.01)
    assert uniformity(sphere(3000, 8), t=0.5) == pytest.approx(uniform_law(8, 0.5), abs=0.01)
    assert uniformity(torch.ones(20, 8)) > uniform_law(8) + 1


def test_uniformity_of_a_sample_is_seeded_and_near():
    h = sphere(3000, 8) + 0.2
    some = uniformity(h, rows=500)
    assert some == uniformity(h, rows=500)
    assert some != uniformity(h, rows=500, seed=1)
    assert some == pytest.approx(uniformity(h, rows=None), abs=0.08)
    with pytest.raises(InputError, match="at least 2 rows, or None for all of them; received 1"):
        uniformity(h, rows=1)


@pytest.mark.parametrize("cone", [0.0, 1.0, 100.0])
def test_uniformity_of_many_rows_is_the_float64_formula(cone):
    """Above 2,048 rows products are in float32, also of rows that all point nearly one way."""
    h = np.random.default_rng(0).normal(size=(2500, 12)) + cone
    u = h / np.linalg.norm(h, axis=1, keepdims=True)
    squares = sum((u[:, None, k] - u[None, :, k]) ** 2 for k in range(12))
    want = np.log(np.exp(-2 * squares)[~np.eye(2500, dtype=bool)].mean())
    assert uniformity(h, rows=None) == pytest.approx(want, abs=1e-7)
    assert uniformity(np.ones((2500, 3)), rows=None) == 0


# ---- norms ----


def test_norms_are_their_formulas():
    h = np.random.default_rng(0).normal(size=(200, 5))
    h[7] *= 500
    h[9] = 0
    size = np.linalg.norm(h, axis=1)
    found = norms(h)
    assert (found.zero, found.far.tolist()) == (1, [7])
    assert found.stretch == pytest.approx(size.max() / np.median(size))
    assert found.variation == pytest.approx(size.std() / size.mean())
    np.testing.assert_allclose(found.quantiles[[0, 3, 6]], [0, np.median(size), size.max()])


def test_norms_at_their_extremes():
    ball = norms(sphere(50, 4))
    assert (ball.variation, ball.stretch) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    assert norms(torch.zeros(3, 2)).zero == 3
    assert norms(torch.zeros(3, 2)).stretch == 1
    assert norms(torch.tensor([[0.0], [0.0], [1.0]])).json()["stretch"] is None
    assert norms([[2.0, 0.0]]).n == 1


# ---- hubs ----


def naive_counts(h, k):
    u = h / h.norm(dim=1, keepdim=True)
    counts = [0] * len(u)
    for i in range(len(u)):
        others = sorted((j for j in range(len(u)) if j != i), key=lambda j: -float(u[i] @ u[j]))
        for j in others[:k]:
            counts[j] += 1
    return np.array(counts)


def test_hubness_is_the_naive_loop():
    h = torch.randn(60, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.3
    counts = naive_counts(h, 5)
    found = hubness(h, n_neighbours=5)
    assert found.counts.tolist() == counts.tolist()
    stats = pytest.importorskip("scipy.stats")
    assert found.skewness == pytest.approx(stats.skew(counts))
    assert found.orphans == np.mean(counts == 0)
    assert found.hubs == np.mean(counts > counts.mean() + 2 * counts.std())
    assert hubness(closest(h, 5)).skewness == found.skewness


def test_hubness_at_its_extremes():
    """A hub in the middle of a star is everyone's neighbour."""
    rays = torch.cat([torch.zeros(1, 40), torch.eye(40)]) + 0.01
    rays[0] = 1
    star = hubness(rays, n_neighbours=1)
    assert star.ids[0] == 0
    assert star.largest == 40
    assert star.skewness > 5
    assert star.orphans > 0.9
    assert 0 < hubness(sphere(500, 50), 10).skewness < 5
    some = hubness(sphere(500, 50), 10, rows=100)
    assert len(some.rows) == len(some.counts) == 100
    assert some.counts.sum() == 1000
    with pytest.raises(InputError, match="1 to 499 neighbours, of 500 rows; received 500"):
        hubness(sphere(500, 3), 500)


# ---- near-duplicates ----


def naive_twins(h, r):
    u = h / h.norm(dim=1, keepdim=True)
    t = torch.cdist(u, u, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(9)
    return (t <= r).any(dim=1).nonzero().flatten().tolist()


@pytest.mark.parametrize("d", [2, 3, 40])
@pytest.mark.parametrize("r", [0.003, 0.02, 0.3])
def test_near_duplicates_are_the_naive_loop(d, r):
    h = sphere(400, d, seed=d)
    h[10:20] = 3 * h[30:40] + r / 4 * sphere(10, d, seed=9)
    h[50] = h[60]
    found = near_duplicates(h, r, budget=10**9)
    assert found.ids.tolist() == naive_twins(h, r)
    assert {10, 19, 30, 39, 50, 60} <= set(found.ids.tolist())
    assert found.exact >= 2
    u = h / h.norm(dim=1, keepdim=True)
    assert ((u[found.ids] - u[found.twins]).norm(dim=1) <= r * (1 + 1e-9)).all()
    assert (found.ids != found.twins).all()


def test_signs_that_differ_are_no_copies():
    """Rows of -1 and 1 differ in the highest bits of their numbers alone."""
    signs = 1 - 2 * ((np.arange(512)[:, None] >> np.arange(9)) & 1)
    assert near_duplicates(signs.astype(np.float64)).exact == 0
    again = np.concatenate([signs, signs[:5]]).astype(np.float64)
    assert near_duplicates(again).exact == 10


def test_near_duplicates_at_their_extremes():
    same = near_duplicates(torch.full((100, 20), 0.3))
    assert (same.count, same.share, same.exact, same.complete) == (100, 1.0, 100, True)
    assert near_duplicates(torch.zeros(4, 3)).count == 4
    apart = near_duplicates(torch.eye(30))
    assert (apart.count, apart.share, apart.exact) == (0, 0.0, 0)
    assert near_duplicates([[1.0], [-1.0], [2.0]]).ids.tolist() == [0, 2]


def test_a_search_that_is_cut_short_says_so():
    heap = torch.ones(300, 40) + 0.05 * torch.randn(300, 40, generator=torch.manual_seed(0))
    whole = near_duplicates(heap, 0.04, budget=10**6)
    assert whole.complete
    cut = near_duplicates(heap, 0.04, budget=1000)
    assert not cut.complete
    assert cut.count <= whole.count == len(naive_twins(heap.double(), 0.04))
