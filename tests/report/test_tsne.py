"""t-SNE: the textbook in plain loops, scikit-learn's divergence, and maps without memory."""

import math

import numpy as np
import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.report import tsne as module
from chiaroscuro.report.axes import unit_rows
from chiaroscuro.report.tsne import joint_probabilities, tsne

rng = np.random.default_rng(0)


def groups(n, k, d=10, spread=0.2):
    """k groups of unit rows around k directions."""
    labels = np.arange(n) % k
    return unit_rows(np.eye(k, d)[labels] + spread * rng.normal(size=(n, d))), labels


def divergence(u, y, perplexity=30.0):
    """KL(p | q) in float64, with loops over rows."""
    p = joint_probabilities(u, min(perplexity, (len(u) - 1) / 3))
    total, weights = 0.0, np.zeros_like(p)
    for i in range(len(y)):
        for j in range(len(y)):
            if i != j:
                weights[i, j] = 1 / (1 + ((y[i] - y[j]) ** 2).sum())
    q = weights / weights.sum()
    for i, j in zip(*np.nonzero(p), strict=True):
        total += p[i, j] * math.log(p[i, j] / q[i, j])
    return total


def neighbours_share_labels(y, labels, k=5):
    far = ((y[:, None] - y[None]) ** 2).sum(axis=2)
    np.fill_diagonal(far, np.inf)
    return (labels[np.argsort(far, axis=1)[:, :k]] == labels[:, None]).mean()


def test_affinities_have_their_perplexity():
    u, _ = groups(60, 3)
    p = joint_probabilities(u, 12.0)
    assert p.sum() == pytest.approx(1, abs=1e-12, rel=0)
    np.testing.assert_allclose(p, p.T, atol=1e-18)
    # the conditional ones, by bisection of each row alone
    for i in (0, 17, 59):
        far = ((u[i].astype(np.float64) - u) ** 2).sum(axis=1)
        others = np.delete(far, i)
        low, high = 0.0, 1e6
        for _ in range(200):
            beta = (low + high) / 2
            w = np.exp(-beta * (others - others.min()))
            w /= w.sum()
            entropy = -(w[w > 0] * np.log(w[w > 0])).sum()
            low, high = (beta, high) if entropy > math.log(12.0) else (low, beta)
        assert math.exp(entropy) == pytest.approx(12.0, rel=1e-6)
        mine = np.delete(p[i], i) * 2 * len(u)
        assert (mine >= w - 1e-6).all()  # p_ij adds p_i|j, which is not negative


def test_the_gradient_is_that_of_the_divergence():
    u, _ = groups(20, 2)
    p, y = joint_probabilities(u, 5.0), rng.normal(size=(20, 2))
    naive = np.zeros_like(y)
    weights = 1 / (1 + ((y[:, None] - y[None]) ** 2).sum(axis=2))
    np.fill_diagonal(weights, 0)
    q = weights / weights.sum()
    for i in range(20):
        for j in range(20):
            naive[i] += 4 * (p[i, j] - q[i, j]) * weights[i, j] * (y[i] - y[j])
    np.testing.assert_allclose(module._gradient(p, y), naive, rtol=1e-10, atol=1e-15)
    step = 1e-5
    moved = y.copy()
    moved[3, 1] += step
    difference = divergence(u, moved, 5.0) - divergence(u, y, 5.0)
    assert difference / step == pytest.approx(naive[3, 1], rel=1e-3, abs=1e-7)


def test_it_is_as_good_as_scikit_learn():
    from sklearn.manifold import TSNE

    u, _ = groups(150, 5, spread=0.35)
    (ours,) = tsne([u])
    theirs = TSNE(2, perplexity=30, init="pca", random_state=0).fit_transform(u)
    assert divergence(u, ours) <= 1.05 * divergence(u, theirs)


def test_points_move_smoothly_and_an_epoch_knows_nothing_of_later_ones():
    """From noise to groups: the map of the noise must not show the groups to come."""
    end, labels = groups(150, 3, d=12)
    start = unit_rows(rng.normal(size=(150, 12)))
    shares = np.linspace(0, 1, 6)
    frames = [unit_rows((1 - s) * start + s * end) for s in shares]
    maps = tsne(frames)
    assert neighbours_share_labels(maps[-1], labels) > 0.95
    alone = neighbours_share_labels(tsne(frames[:1])[0], labels)
    assert neighbours_share_labels(maps[0], labels) < alone + 0.1
    apart = tsne(frames[-2:-1])[0]
    moved = np.linalg.norm(maps[-1] - maps[-2], axis=1).mean()
    jumped = np.linalg.norm(maps[-1] - apart, axis=1).mean()
    assert moved < 0.7 * jumped  # a map of its own would put the groups elsewhere


def test_rows_beyond_the_landmarks_follow_them(monkeypatch):
    monkeypatch.setattr(module, "EXACT", 100)
    monkeypatch.setattr(module, "LANDMARKS", 90)
    monkeypatch.setattr(module, "has_open_tsne", lambda: False)
    u, labels = groups(200, 4)
    (y,) = tsne([u])
    assert y.shape == (200, 2)
    assert neighbours_share_labels(y, labels) > 0.95


@pytest.mark.extra("maps")
def test_many_rows_go_to_open_tsne(monkeypatch):
    monkeypatch.setattr(module, "EXACT", 100)
    u, labels = groups(240, 4)
    first, second = tsne([u, u])
    assert neighbours_share_labels(second, labels) > 0.95
    assert neighbours_share_labels(first, labels) > 0.95
    np.testing.assert_array_equal(tsne([u, u])[0], first)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_few_rows_and_equal_rows(n):
    (y,) = tsne([np.ones((n, 3)) / math.sqrt(3)])
    assert np.isfinite(y).all()
    (y,) = tsne([np.eye(n)])
    assert np.isfinite(y).all()


def test_sentences():
    with pytest.raises(InputError, match="at least 3 rows; received 2"):
        tsne([np.eye(2)])
    with pytest.raises(InputError, match="at least 1 frame; received none"):
        tsne([])
