"""Shuffled pairs and intervals: where they must land, and how often they must cover."""

import numpy as np
import pytest
import torch

from chiaroscuro.diagnostics import alignment, effective_rank, interval, shuffled, uniformity
from chiaroscuro.errors import InputError


def test_shuffled_pairs_have_no_partner():
    n = 200
    h = torch.randn(n, 16, generator=torch.Generator().manual_seed(0))
    found = shuffled(alignment, h, h)
    assert found.value == 0
    assert found.mean == pytest.approx(2, abs=0.05)
    assert found.beyond < -20
    kept = []
    shuffled(lambda a, b: kept.append((a == b).sum()) or 0.0, np.arange(n), np.arange(n))
    assert [int(x) for x in kept] == [0] * 20 + [n]


def test_unrelated_pairs_are_as_the_control():
    rng = np.random.default_rng(0)
    found = shuffled(alignment, rng.normal(size=(300, 8)), rng.normal(size=(300, 8)), repeats=50)
    assert abs(found.beyond) < 3.5
    assert found.least < found.mean < found.most
    again = shuffled(alignment, np.eye(5), np.eye(5), seed=3)
    assert again.json() == shuffled(alignment, np.eye(5), np.eye(5), seed=3).json()
    assert shuffled(lambda a, b: 1.0, np.eye(3), np.eye(3)).beyond == 0


@pytest.mark.parametrize("replace", [False, True])
def test_intervals_of_a_mean_cover_as_often_as_they_say(replace):
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(100):
        found = interval(
            lambda h: float(h.mean()), rng.normal(size=50), repeats=60, replace=replace, seed=seed
        )
        hits += found.low <= 0 <= found.high
    assert 86 <= hits <= 99


def test_the_error_of_a_measure_of_pairs_is_that_of_fresh_samples():
    draw = lambda seed: np.random.default_rng(seed).normal(size=(100, 3)) + np.eye(3)[0]
    truth = np.std([uniformity(draw(seed)) for seed in range(100)])
    errors = [interval(uniformity, draw(seed), repeats=50).error for seed in range(5)]
    assert np.mean(errors) == pytest.approx(truth, rel=0.35)
    biased = interval(uniformity, draw(0), replace=True)  # twins at distance 0
    assert biased.value == interval(uniformity, draw(0)).value


def test_intervals_take_several_arrays_and_say_what_is_wrong():
    h = np.random.default_rng(0).normal(size=(60, 4))
    found = interval(alignment, h, h + 0.1)
    assert found.low < found.value < found.high
    assert found.n == 60
    assert interval(effective_rank, np.ones((8, 2))).error == 0
    with pytest.raises(InputError, match=r"as many rows; received \[3, 4\]"):
        interval(alignment, np.eye(3), np.eye(4))
    with pytest.raises(InputError, match="at least 4 rows; received 2"):
        interval(effective_rank, np.eye(2))
    with pytest.raises(InputError, match=r"received 1 and 0\.95"):
        interval(effective_rank, np.eye(4), repeats=1)
    with pytest.raises(InputError, match=r"as many rows; received \[3\]"):
        shuffled(effective_rank, np.eye(3))
