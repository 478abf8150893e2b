"""Movement by recorded parameters, and generators that were planted."""

import numpy as np
import pytest
import torch

from chiaroscuro import views
from chiaroscuro.diagnostics import alignment, generator, movement, unexplained
from chiaroscuro.errors import InputError

rng = np.random.default_rng


def omega(n, **columns):
    kinds = [(name, x.dtype, x.shape[1:]) for name, x in columns.items()]
    rows = np.zeros(n, dtype=kinds)
    for name, x in columns.items():
        rows[name] = x
    return rows


def turned(h, angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.c_[c * h[:, 0] - s * h[:, 1], s * h[:, 0] + c * h[:, 1], h[:, 2:]]


# ---- movement ----


def test_the_parameter_that_moves_is_found():
    n = 1000
    h = rng(0).normal(size=(n, 2))
    angle, flip = rng(1).uniform(-1, 1, n), rng(2).integers(0, 2, n).astype(bool)
    order = rng(3).integers(0, 4, (n, 4)).astype(np.uint8)
    found = movement(h, turned(h, angle), omega(n, flip=flip, angle=np.abs(angle), order=order))
    assert next(iter(found.effects)) == "angle"
    assert found.effects["angle"].share > 0.9
    assert set(found.effects) == {"angle", "flip", *(f"order[{k}]" for k in range(4))}
    for name in ("flip", "order[2]"):
        assert abs(found.effects[name].share) < 0.03
    effect = found.effects["angle"]
    assert (np.diff(effect.moved) > 0).all()
    assert effect.counts.tolist() == [200] * 5
    low = np.abs(angle) <= np.quantile(np.abs(angle), 0.2)
    assert effect.moved[0] == pytest.approx((2 - 2 * np.cos(angle[low])).mean())
    assert found.mean == pytest.approx(alignment(h, turned(h, angle)))
    assert found.explained == pytest.approx(effect.share, abs=0.02)


def test_share_is_the_adjusted_r2_of_group_means():
    n = 60
    h, group = rng(0).normal(size=(n, 3)), rng(1).integers(0, 3, n)
    w = h + 0.2 * group[:, None] * rng(2).normal(size=(n, 3))
    found = movement(h, w, omega(n, group=group)).effects["group"]
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
    m = ((unit(h) - unit(w)) ** 2).sum(1)
    within = sum(((m[group == g] - m[group == g].mean()) ** 2).sum() for g in range(3))
    r2 = 1 - within / ((m - m.mean()) ** 2).sum()
    assert found.share == pytest.approx(1 - (1 - r2) * (n - 1) / (n - 3))
    assert found.levels.tolist() == [0, 1, 2]


def test_movement_at_its_extremes():
    h = rng(0).normal(size=(300, 8))
    parameters = omega(300, scale=rng(1).uniform(size=300))
    invariant = movement(h, 3 * h, parameters)
    assert invariant.mean == pytest.approx(0, abs=1e-12)
    assert invariant.effects["scale"].share == 0
    unrelated = movement(h, rng(2).normal(size=(300, 8)), parameters)
    assert unrelated.ratio == pytest.approx(1, abs=0.1)
    collapsed = movement(np.ones((9, 2)), np.ones((9, 2)), parameters[:9])
    assert collapsed.ratio == 0
    cross = [
        ((h[i] / np.linalg.norm(h[i]) - h[j] / np.linalg.norm(h[j])) ** 2).sum()
        for i in range(40)
        for j in range(40)
        if i != j
    ]
    assert movement(h[:40], h[:40], parameters[:40]).strangers == pytest.approx(np.mean(cross))


def test_two_views_differ_by_their_parameters():
    n = 500
    h, a, b = rng(0).normal(size=(n, 2)), *rng(1).uniform(0, 1, (2, n))
    both = turned(h, a), turned(h, b)
    one = movement(*both, omega(n, angle=b)).effects["angle"].share
    two = movement(*both, omega(n, angle=b), omega(n, angle=a)).effects["angle"].share
    assert two > 0.8 > 0.3 > one


def test_parameters_of_the_views_themselves():
    x = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    flat = lambda pictures: pictures.flatten(1)
    view = views.SimCLR.large(16)
    x1, parameters = view(x, ids=range(64), seed=0, epoch=0, view=0)
    found = movement(flat(x), flat(x1), parameters)
    assert {"top", "width", "brightness", "flip", "order[3]"} <= set(found.effects)
    assert found.json()["effects"]["hue"]["counts"]
    with pytest.raises(InputError, match=r"structured array of 64 rows, as views return them"):
        movement(flat(x), flat(x1), np.zeros(64))
    with pytest.raises(InputError, match="same parameters of both views"):
        movement(flat(x), flat(x1), parameters, omega(64, angle=np.zeros(64)))


# ---- generators ----


def planted(n, d, k, scale, seed=0, law="uniform"):
    G = rng(seed).normal(size=(k, d, d)) / np.sqrt(d)
    h = torch.tensor(rng(seed + 1).normal(size=(n, d)))
    w, parameters = views.LieAction(G, scale, law)(h, ids=range(n))
    return G, h, w, parameters["eps"]


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0])
def test_a_planted_generator_is_recovered(k, scale):
    G, h, w, eps = planted(400, 5, k, scale)
    found = generator(h, w, eps, rounds=200)
    assert found.determined
    assert np.abs(found.G - G).max() < 1e-5
    assert found.error < 1e-10
    assert found.error <= found.first_order


def test_one_strength_is_the_matrix_logarithm():
    linalg = pytest.importorskip("scipy.linalg")
    A = linalg.expm(0.4 * rng(0).normal(size=(4, 4)))
    h = rng(1).normal(size=(100, 4))
    found = generator(h, h @ A.T, np.ones(100), rounds=200)
    np.testing.assert_allclose(found.G[0], linalg.logm(A), atol=1e-6)


def test_rotations_are_antisymmetric_and_noise_is_not_a_generator():
    h = rng(0).normal(size=(500, 3))
    angle = rng(1).uniform(-1, 1, 500)
    rotation = generator(h, turned(h, angle), angle)
    assert rotation.antisymmetry == pytest.approx(1)
    noise = generator(h, h + rng(2).normal(size=(500, 3)), angle)
    assert noise.error > 0.9
    both = generator(h, turned(h, angle) + 0.01 * rng(2).normal(size=(500, 3)), angle)
    assert 0 < both.error < 0.01
    assert np.abs(both.G - rotation.G).max() < 0.01


def test_what_a_projector_reads_of_a_generator():
    """W G = 0 where the outcome of G lies in the kernel of W."""
    G = np.zeros((4, 4))
    G[3] = rng(0).normal(size=4)
    h = torch.tensor(rng(1).normal(size=(200, 4)))
    w, parameters = views.LieAction(G, 0.3)(h, ids=range(200))
    found = generator(h, w, parameters["eps"], rounds=200)
    assert unexplained(np.eye(4)[:3], found.G[0].T) == pytest.approx(1, abs=1e-6)
    assert unexplained(np.eye(4)[3:], found.G[0].T) == pytest.approx(0, abs=1e-6)


def test_few_rows_leave_it_undetermined():
    _, h, w, eps = planted(12, 20, 1, 0.1)
    found = generator(h, w, eps)
    assert not found.determined
    assert found.G.shape == (1, 20, 20)
    with pytest.raises(InputError, match="strengths for 12 pairs; received 3"):
        generator(h, w, eps[:3])
    with pytest.raises(InputError, match="not all 0"):
        generator(h, w, np.zeros(12))
    assert generator(h, h, eps).error == 0
