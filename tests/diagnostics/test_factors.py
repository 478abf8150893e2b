"""Readouts against scikit-learn's ridge, planted factors of all kinds, and nothing at all."""

import math

import numpy as np
import pytest
import torch

from chiaroscuro.diagnostics import readout, survival
from chiaroscuro.errors import InputError

rng = np.random.default_rng


def rows(n=300, d=6, seed=0):
    return rng(seed).normal(size=(n, d)) * np.arange(1, d + 1) + 2


@pytest.mark.parametrize("n", [300, 30])
@pytest.mark.parametrize("d", [6, 50])
def test_it_is_scikit_learns_ridge_at_the_penalty_of_least_gcv(n, d):
    linear_model = pytest.importorskip("sklearn.linear_model")
    h = rows(n, d)
    y = h[:, 0] - h[:, 3] + 3 * rng(1).normal(size=n)
    split = (np.arange(n) % 4 == 0).astype(int)
    found = readout(h, y, split=split)
    train, test = split == 0, split == 1
    X = (h - h[train].mean(0)) / h[train].std(0)
    theirs = linear_model.Ridge(alpha=found.penalty).fit(X[train], y[train])
    assert found.score == pytest.approx(theirs.score(X[test], y[test]), abs=1e-8)
    A = X[train]

    def gcv(penalty):
        hat = A @ np.linalg.solve(A.T @ A + penalty * np.eye(d), A.T) + 1 / len(A)
        left = ((y[train] - hat @ y[train]) ** 2).sum()
        return len(A) * left / (len(A) - np.trace(hat)) ** 2, np.trace(hat)

    assert found.dof == pytest.approx(gcv(found.penalty)[1])
    for other in (0.5, 2.0):
        assert gcv(found.penalty)[0] <= gcv(found.penalty * other)[0] * (1 + 1e-9)
    assert (found.n_train, found.n_test) == (int(train.sum()), int(test.sum()))


def test_numbers_angles_and_classes_are_recovered():
    h = rows()
    number = readout(h, h @ np.ones(6))
    assert (number.kind, number.score) == ("number", pytest.approx(1, abs=1e-6))
    assert number.adjusted == pytest.approx(1, abs=1e-6)
    angle = rng(1).uniform(-9, 9, size=300)
    circle = np.c_[np.cos(angle), np.sin(angle)] @ rng(2).normal(size=(2, 6))
    found = readout(circle, angle, "angle")
    assert found.score == pytest.approx(1, abs=1e-6)
    assert readout(circle, angle + 2 * math.pi, "angle").score == pytest.approx(found.score)
    assert readout(circle, np.mod(angle, 2 * math.pi)).score < 0.8  # as a number it is cut open
    labels = rng(3).integers(0, 3, 300)
    classes = readout(np.eye(3)[labels] + 0.01 * rows(d=3), labels)
    assert (classes.kind, classes.score, classes.above_chance) == ("class", 1, 1)


def test_nothing_is_recovered_of_nothing():
    scores = [(readout(rows(seed=s), rng(s + 99).normal(size=300))).above_chance for s in range(10)]
    assert abs(np.mean(scores)) < 0.05
    wide = readout(rng(0).normal(size=(60, 200)), rng(1).normal(size=60))  # n < d
    assert wide.above_chance < 0.3
    labels = np.repeat([0, 1], [240, 60])
    chance = readout(rows(), rng(5).permutation(labels))
    assert chance.score == pytest.approx(0.8, abs=0.1)
    assert abs(chance.above_chance) < 0.25
    assert readout(np.ones((50, 4)), np.arange(50.0)).score == pytest.approx(0, abs=0.2)


def test_the_adjusted_fit_does_not_reward_freedom():
    """R^2 on the training side grows with d; adjusted for its freedom it stays about 0."""
    found = [readout(rng(s).normal(size=(100, 40)), rng(s + 50).normal(size=100)) for s in range(8)]
    assert abs(np.mean([each.adjusted for each in found])) < 0.15


def test_survival_is_a_table_of_readouts():
    h = rows(400)
    size, turn = h[:, 0], rng(1).uniform(0, 6, 400)
    layers = {
        "input": np.c_[h, np.cos(turn), np.sin(turn)],
        "h": np.c_[h, 2 * np.cos(turn), np.sin(turn) + rng(2).normal(size=400)],
        "z": torch.tensor(h),
    }
    factors = {"size": size, "turn": turn, "sign": (h[:, 1] > 2).astype(int)}
    found = survival(layers, factors, {"turn": "angle"}, style=["turn"])
    assert found.kinds == ("number", "angle", "class")
    assert found.above_chance[:, 0] == pytest.approx(1, abs=1e-4)
    assert found.style == pytest.approx(found.above_chance[:, 1])
    assert found.style[0] == pytest.approx(1, abs=1e-4)
    assert 0.4 < found.style[1] < 0.95
    assert abs(found.style[2]) < 0.1
    assert found.score[1, 0] == pytest.approx(readout(layers["h"], size).score)
    assert survival({"h": h}, {"size": size}).style.tolist() != found.style.tolist()
    assert survival({"h": h}, {"size": size}, rows=100).rows == 100


def test_sentences():
    h = rows(20)
    with pytest.raises(InputError, match=r"a factor of 20 numbers; received float64 of shape \(3"):
        readout(h, np.zeros(3))
    with pytest.raises(InputError, match="1 of 20 are not, the first is row 4"):
        readout(h, np.where(np.arange(20) == 4, np.nan, 1.0))
    with pytest.raises(InputError, match="a factor that varies in the training rows"):
        readout(h, np.ones(20))
    with pytest.raises(InputError, match="at least 2 classes"):
        readout(h, np.zeros(20, int))
    with pytest.raises(InputError, match="received `colour`"):
        readout(h, np.arange(20.0), "colour")
    with pytest.raises(InputError, match="to fit and 1 to test; received 20 and 0"):
        readout(h, np.arange(20.0), split=np.zeros(20))
    with pytest.raises(InputError, match=r"as many rows everywhere; received .*'h': 20"):
        survival({"h": h}, {"size": np.zeros(5)})
    with pytest.raises(InputError, match=r"names of factors, size; received \['turn'\]"):
        survival({"h": h}, {"size": h[:, 0]}, style=["turn"])
    with pytest.raises(InputError, match="least is -1"):
        readout(h, np.full(20, -1))


def test_one_held_out_row_far_from_all_others_does_not_decide():
    draw = np.random.default_rng(0)
    h = draw.normal(size=(2000, 4))
    y = h @ [1.0, -1.0, 0.5, 2.0] + 0.1 * draw.normal(size=2000)
    silent = 1e-5 * draw.normal(size=2000)  # a unit that is all but off, and on in one row
    silent[1999] = 1.0
    split = (np.arange(2000) >= 1600).astype(int)
    assert readout(h, y, split=split).score > 0.99
    assert readout(np.c_[h, silent], y, split=split).score > 0.8
