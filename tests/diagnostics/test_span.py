"""The span of augmentation directions: planted ones are counted, chance is not."""

import numpy as np
import pytest

from chiaroscuro.diagnostics import augmentation_span, predicted_rank, subspace_angles
from chiaroscuro.errors import InputError

rng = np.random.default_rng


def record(**columns):
    n = len(next(iter(columns.values())))
    omega = np.zeros(n, dtype=[(name, float, x.shape[1:]) for name, x in columns.items()])
    for name, x in columns.items():
        omega[name] = x
    return omega


@pytest.mark.parametrize("k", [0, 1, 3, 5])
def test_planted_directions_are_counted(k):
    h, eps = rng(0).normal(size=(400, 12)), rng(1).normal(size=(400, 5))
    V = rng(2).normal(size=(5, 12))
    V[k:] = 0
    noise = 0.1 * rng(3).normal(size=(400, 12))
    found = augmentation_span(h, h + eps @ V + noise, record(eps=eps))
    assert found.dimension == k
    if k:
        assert subspace_angles(found.directions, V[:k]).max() < 0.1
        naive = np.c_[eps, np.ones(400)]
        left = h + eps @ V + noise - h
        fit = naive @ np.linalg.lstsq(naive, left, rcond=None)[0]
        share = 1 - ((left - fit) ** 2).sum() / ((left - left.mean(0)) ** 2).sum()
        assert found.explained == pytest.approx(share, abs=0.02)
    else:
        assert abs(found.explained) < 0.05


def test_directions_that_depend_on_the_place_need_components():
    """A rotation of a plane moves no sample of mean 0 in any fixed direction."""
    h, angle = rng(0).normal(size=(600, 5)) * [3, 3, 1, 1, 1], 0.3 * rng(1).normal(size=600)
    turned = h.copy()
    c, s = np.cos(angle), np.sin(angle)
    turned[:, 0], turned[:, 1] = c * h[:, 0] - s * h[:, 1], s * h[:, 0] + c * h[:, 1]
    omega = record(angle=angle)
    assert augmentation_span(h, turned, omega, components=0).dimension == 0
    found = augmentation_span(h, turned, omega, components=2)
    assert found.dimension == 2
    assert subspace_angles(found.directions, np.eye(5)[:2]).max() < 0.05


def test_both_views_count_by_their_difference():
    h, e1, e2 = rng(0).normal(size=(300, 6)), rng(1).normal(size=300), rng(2).normal(size=300)
    v = np.eye(6)[:1]
    found = augmentation_span(
        h + e1[:, None] * v, h + e2[:, None] * v, record(e=e2), record(e=e1), components=0
    )
    assert found.dimension == 1
    assert found.explained == pytest.approx(1)
    alone = augmentation_span(h + e1[:, None] * v, h + e2[:, None] * v, record(e=e2), components=0)
    assert alone.explained == pytest.approx(0.5, abs=0.1)


def test_nothing_moves_or_nothing_is_recorded():
    h = rng(0).normal(size=(50, 4))
    still = augmentation_span(h, h, record(e=rng(1).normal(size=50)))
    assert (still.dimension, still.explained) == (0, 0)
    constant = augmentation_span(h, h + 1, record(e=np.ones(50)))
    assert (constant.dimension, constant.columns) == (0, 0)


def test_few_rows_and_wrong_records():
    h = rng(0).normal(size=(9, 4))
    with pytest.raises(InputError, match="more rows than the 8 columns fitted; received 9"):
        augmentation_span(h, h + 1, record(e=rng(1).normal(size=(9, 8))))
    with pytest.raises(InputError, match="-1"):
        augmentation_span(h, h, record(e=np.ones(9)), components=-1)
    with pytest.raises(InputError, match="same parameters"):
        augmentation_span(h, h, record(e=np.ones(9)), record(f=np.ones(9)))


def test_the_rank_that_a_span_foretells():
    assert predicted_rank(10, 16, 0) == 10
    assert predicted_rank(10, 16, 6) == 10
    assert predicted_rank(10, 16, 7) == 9
    assert predicted_rank(10, 16, 16) == 0
    with pytest.raises(InputError, match="17"):
        predicted_rank(10, 16, 17)
