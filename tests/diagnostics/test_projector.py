"""Projectors: spans and kernels against least squares, planted augmentations, regions counted."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from chiaroscuro import models
from chiaroscuro.diagnostics import (
    affine_maps,
    augmentations,
    discarded,
    displacements,
    local_unexplained,
    regions,
    subspace_angles,
    unexplained,
)
from chiaroscuro.errors import InputError

rng = np.random.default_rng


def test_unexplained_is_least_squares():
    W, v = rng(0).normal(size=(3, 8)), rng(1).normal(size=(20, 8))
    left = [np.linalg.lstsq(W.T, x, rcond=None)[1][0] for x in v]
    assert unexplained(W, v) == pytest.approx(sum(left) / (v**2).sum())
    assert unexplained(7 * W, -2 * v) == pytest.approx(unexplained(W, v))


def test_unexplained_at_its_extremes():
    W = rng(0).normal(size=(3, 8))
    assert unexplained(W, rng(1).normal(size=(9, 3)) @ W) == pytest.approx(0, abs=1e-12)
    kernel = np.linalg.svd(W)[2][3:]
    assert unexplained(W, kernel) == pytest.approx(1)
    assert unexplained(np.zeros((3, 8)), W) == 1
    assert unexplained(W, np.zeros((2, 8))) == 0
    nearly = np.diag([1.0, 1e-4])
    assert unexplained(nearly, [[0.0, 1.0]]) == 0
    assert unexplained(nearly, [[0.0, 1.0]], threshold=1e-3) == 1
    chance = np.mean([unexplained(rng(s).normal(size=(2, 8)), np.eye(8)) for s in range(3)])
    assert chance == pytest.approx(1 - 2 / 8)
    with pytest.raises(InputError, match=r"received \(3, 8\) and \(2, 5\)"):
        unexplained(W, np.zeros((2, 5)))


def test_angles_are_scipys():
    linalg = pytest.importorskip("scipy.linalg")
    A, B = rng(0).normal(size=(3, 9)), rng(1).normal(size=(5, 9))
    expected = np.sort(linalg.subspace_angles(A.T, B.T))
    np.testing.assert_allclose(subspace_angles(A, B), expected, atol=1e-12)
    np.testing.assert_allclose(subspace_angles(B, A), expected, atol=1e-12)
    tiny = subspace_angles([[1.0, 0.0]], [[1.0, 1e-9]])
    assert tiny[0] == pytest.approx(1e-9, rel=1e-5)
    assert subspace_angles(np.eye(4)[:2], np.eye(4)[2:]).tolist() == [math.pi / 2] * 2
    assert len(subspace_angles(np.zeros((2, 4)), np.eye(4))) == 0


def test_displacements_are_the_naive_loop(monkeypatch):
    h1, h2, z1, z2 = (rng(s).normal(size=(12, 5 if s < 2 else 3)) for s in range(4))
    found = displacements(h1, h2, z1, z2)
    unit = lambda x: x / np.linalg.norm(x)
    for i in range(12):
        others = [(v, j) for v in (0, 1) for j in range(12) if j != i]
        v, j = max(others, key=lambda vj: unit(z1[i]) @ unit((z1, z2)[vj[0]][vj[1]]))
        assert found.hardest[i] == j
        np.testing.assert_allclose(found.delta[i], h2[i] - (h1, h2)[v][j])
    some = displacements(h1, h2, z1, z2, rows=5)
    assert len(some.delta) == len(some.rows) == 5
    assert set(some.hardest) <= set(some.rows)
    with pytest.raises(InputError, match="received 12 and 11"):
        displacements(h1, h2, z1[1:], z2[1:])


def test_planted_augmentations_fall_into_the_kernel():
    """Directions in the kernel of W, then directions it reads, then random ones."""
    W = np.eye(10)[:4]
    h = rng(0).normal(size=(200, 10))
    hidden, seen = np.zeros((200, 10)), np.zeros((200, 10))
    hidden[:, 6:8] = rng(1).normal(size=(200, 2))
    seen[:, :2] = rng(2).normal(size=(200, 2))
    in_kernel = augmentations(W, h, h + hidden)
    assert in_kernel.annihilated == pytest.approx(1)
    assert in_kernel.gain == pytest.approx(0)
    assert in_kernel.cosine == pytest.approx(1)
    assert (in_kernel.rank, in_kernel.span) == (4, 2)
    assert in_kernel.chance == pytest.approx(0.6)
    assert in_kernel.data == pytest.approx(0.6, abs=0.05)
    in_span = augmentations(W, h, h + seen)
    assert in_span.annihilated == pytest.approx(0, abs=1e-12)
    assert in_span.gain > 2
    assert in_span.angles[0] == pytest.approx(0, abs=1e-6)
    assert in_span.cosine < 0.9
    still = augmentations(W, h, h)
    assert (still.annihilated, still.span, still.gain) == (0, 0, 0)


def test_invariance_without_the_kernel():
    """W h2 = c W h1 with c > 0 is invariant, though v is not annihilated."""
    h = rng(0).normal(size=(30, 4))
    found = augmentations(np.eye(4)[:2], h, 2 * h)
    assert found.cosine == pytest.approx(1)
    assert found.annihilated < 0.9


def test_what_the_projector_discards():
    h = rng(0).normal(size=(600, 5))
    labels = (h[:, 4] > 0).astype(int)
    found = discarded(h, h[:, :3], {"kept": h[:, 0], "gone": h[:, 3], "labels": labels})
    assert abs(found["kept"]["lost"]) < 1e-3
    assert found["gone"]["lost"] > 0.9
    assert found["labels"]["before"] > 0.8
    assert found["labels"]["after"] < 0.2
    turned = discarded(h, h @ rng(1).normal(size=(5, 5)), {"kept": h[:, 0]})
    assert abs(turned["kept"]["lost"]) < 1e-3


# ---- regions ----


def net(*sizes, leaky=False, norm=False):
    torch.manual_seed(0)
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b)]
        layers += [nn.BatchNorm1d(b)] if norm else []
        layers += [nn.LeakyReLU(0.1) if leaky else nn.ReLU()]
    g = nn.Sequential(*layers[:-1])
    if norm:
        for _ in range(5):
            g(2 * torch.randn(64, sizes[0]) + 1)
    return g


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_maps_are_the_projector_where_they_hold(leaky, norm):
    g = net(4, 7, 6, 3, leaky=leaky, norm=norm)
    h = torch.randn(20, 4, dtype=torch.float64)
    maps = affine_maps(g, h)
    expected = copy_of(g)(h).detach().numpy()
    np.testing.assert_allclose(
        np.einsum("nij,nj->ni", maps.W, h.numpy()) + maps.b, expected, atol=1e-12
    )
    jacobian = torch.autograd.functional.jacobian(copy_of(g), h[:1])[0, :, 0]
    np.testing.assert_allclose(maps.W[0], jacobian, atol=1e-12)
    found = regions(g, h)
    assert found.units == 13
    for i in range(20):
        for j in range(i):
            if found.region[i] == found.region[j]:
                np.testing.assert_allclose(maps.W[i], maps.W[j], atol=1e-12)
    assert g.training
    assert next(g.parameters()).dtype == torch.float32


def copy_of(g):
    import copy

    return copy.deepcopy(g).double().eval()


def test_regions_are_counted():
    """Three lines through the plane in general position make seven regions."""
    g = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        g[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        g[0].bias.copy_(torch.tensor([0.0, 0.0, -1.0]))
    axis = np.linspace(-3, 3, 61) + 0.013
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    found = regions(g, grid)
    assert found.visited == 7
    patterns = {(x > 0, y > 0, x + y > 1) for x, y in grid}
    assert len(patterns) == 7
    assert found.largest == pytest.approx(max(np.bincount(found.region)) / len(grid))
    assert (found.off, found.on) == (0, 0)


def test_regions_at_their_extremes():
    h = torch.randn(50, 4)
    assert regions(net(4, 3), h).visited == 1
    assert regions(net(4, 64, 64, 3), torch.ones(50, 4)).visited == 1
    wide = regions(net(4, 256, 256, 3), h)
    assert wide.visited == 50
    assert wide.alone == 1
    widths = [regions(net(4, w, 3), torch.randn(400, 4)).visited for w in (1, 2, 4, 8, 32)]
    assert widths == sorted(widths)


def test_positives_share_regions_more_than_strangers():
    h = torch.randn(300, 4, generator=torch.Generator().manual_seed(1))
    found = regions(net(4, 6, 3), h, h + 0.01)
    assert found.together > 0.8 > 0.4 > found.by_chance
    a, b = regions(net(4, 6, 3), h).region, regions(net(4, 6, 3), h).region
    strangers = np.mean([a[i] == b[j] for i in range(300) for j in range(300) if i != j])
    same = regions(net(4, 6, 3), h, h)
    assert same.together == 1
    assert same.by_chance == pytest.approx(strangers)
    assert regions(net(4, 6, 3), h, rows=20).rows == 20


def test_local_fit_is_the_fit_of_each_map():
    g = net(5, 9, 2)
    h, v = rng(0).normal(size=(30, 5)), rng(1).normal(size=(30, 5))
    maps = affine_maps(g, h)
    left = sum(unexplained(W, x[None]) * (x**2).sum() for W, x in zip(maps.W, v, strict=True))
    assert local_unexplained(g, h, v) == pytest.approx(left / (v**2).sum())
    linear = net(5, 2)
    weight = linear[0].weight
    assert local_unexplained(linear, h, v) == pytest.approx(unexplained(weight, v), abs=1e-6)


class Hidden(nn.Module):
    """A ReLU that is no module, so that nobody can see its pattern."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 9), nn.Linear(9, 3)])

    def forward(self, x):
        return self.layers[1](torch.relu(self.layers[0](x)))


def test_our_own_projector_and_what_is_refused():
    torch.manual_seed(0)
    g = models.Projector(d_in=6, d=3, last="none")
    assert regions(g, torch.randn(40, 6)).units == 6
    assert affine_maps(g, torch.randn(4, 6)).W.shape == (4, 3, 6)
    with pytest.raises(InputError, match="affine near each row; a small step differs"):
        affine_maps(models.Projector(d_in=6, d=3, last="unit"), torch.randn(9, 6))
    with pytest.raises(InputError, match="make activations modules"):
        affine_maps(Hidden(), torch.randn(200, 6))
    with pytest.raises(InputError, match=r"received \['Tanh'\]"):
        regions(nn.Sequential(nn.Linear(6, 3), nn.Tanh()), torch.randn(9, 6))
    with pytest.raises(InputError, match="received int"):
        regions(3, torch.randn(9, 6))
