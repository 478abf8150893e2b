"""Rows that deserve a look: planted ones are found, and little else."""

import numpy as np
import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.measures import (
    drift,
    economy,
    label_errors,
    near_duplicates,
    nearest,
    outliers,
    split_duplicates,
    two_sample,
    versus,
)


def clusters(n=600, d=8, k=4, apart=6.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    return apart * np.eye(k, d)[y] + rng.normal(size=(n, d)), y


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1])
def test_flipped_labels_are_listed(share):
    x, y = clusters()
    rng = np.random.default_rng(1)
    flipped = rng.choice(600, round(600 * share), replace=False)
    wrong = y.copy()
    wrong[flipped] = (y[flipped] + rng.integers(1, 4, len(flipped))) % 4
    found = label_errors(nearest(x, 20), wrong)
    listed = set(found.rows.tolist())
    assert len(listed & set(flipped.tolist())) >= 0.95 * len(flipped)
    assert len(listed - set(flipped.tolist())) <= 6
    right = found.columns["suggested"] == y[found.rows]
    assert right.sum() >= 0.95 * len(flipped)


def test_rows_without_a_label_neither_vote_nor_are_listed():
    x, y = clusters()
    y[:300] = -1
    found = label_errors(nearest(x, 20), y)
    assert (found.rows >= 300).all()
    with pytest.raises(InputError, match="neighbours of 600 rows; received 9"):
        label_errors(nearest(x[:9], 3), y)


def test_pure_noise_lists_few_label_errors_as_sure():
    x, _ = clusters(apart=0.0)
    y = np.random.default_rng(3).integers(0, 4, 600)
    assert len(label_errors(nearest(x, 20), y)) < 60


def test_outliers_of_clusters_of_two_densities():
    rng = np.random.default_rng(0)
    x = np.vstack([rng.normal(size=(300, 5)), 100 + 20 * rng.normal(size=(300, 5))])
    assert len(outliers(nearest(x, 10, "euclidean"))) <= 8
    x[11] = 40.0
    found = outliers(nearest(x, 10, "euclidean"))
    assert found.rows[0] == 11
    assert found.columns["nearest"][0] != 11


def test_rows_that_are_all_the_same_have_no_outliers():
    assert len(outliers(nearest(np.ones((50, 3)), 10))) == 0


def test_twins_across_the_split():
    x, _ = clusters()
    split = (np.arange(600) >= 400).astype(int)
    x[450], x[500] = x[3], 2 * x[7]  # a twin in direction
    x[401] = x[402]  # on one side only
    found = split_duplicates(x, near_duplicates(x), split)
    assert found.table()["row"] == [450, 500]
    assert found.table()["twin"] == [3, 7]
    x[[450, 500]] += 1
    assert split_duplicates(x, near_duplicates(x), split) is None


# ---- two sets ----


def test_the_test_has_its_level():
    rng = np.random.default_rng(0)
    p = [two_sample(*rng.normal(size=(2, 60, 3)), seed=k).p_value for k in range(40)]
    assert np.mean(np.array(p) < 0.1) < 0.25


def test_power_grows_with_the_shift_and_the_least_that_is_seen_is_seen():
    x, _ = clusters()
    found = two_sample(x[:300], x[300:])
    power = list(found.power.values())
    assert power[0] <= 0.3
    assert power[-1] == 1
    spread = np.sqrt(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean())
    way = np.ones(8) / np.sqrt(8)
    moved = x[300:] + 2 * found.detectable * spread * way
    assert two_sample(moved, x[:300]).p_value < 0.05


def test_which_encoder_and_which_rows_moved():
    x, _ = clusters()
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(8, 8)))[0]
    cases = {"same": x + 0.01, "turned": x @ turn, "other": np.tanh(x @ turn * 3) * 4}
    for name, now in cases.items():
        now = now.copy()
        now[13] = -4 * now[13]
        found = drift(now, x, paired=True)
        assert found.encoder == name, found.reason
        if name != "other":
            assert found.moved.rows.tolist()[:1] == [13]
    assert drift(x[:, :5], x, paired=True).encoder == "other"
    assert drift(x[:, :5], x, paired=True).agreement > 0.5


def test_rows_that_moved_are_listed_where_all_others_stayed():
    x, _ = clusters()
    now = x.copy()
    now[40:70] += np.random.default_rng(1).normal(size=(30, 8))
    found = drift(now, x, paired=True)
    assert found.encoder == "same"
    assert sorted(found.moved.rows.tolist()) == list(range(40, 70))
    assert len(drift(x, x, paired=True).moved) == 0
    rounded = x.astype(np.float32).astype(float)
    assert len(drift(rounded, x, paired=True).moved) == 0


def test_uncorrelated_dimensions_do_not_tell_encoders_apart():
    """Halves of a whitened matrix have off-diagonals that are chance, and opposite."""
    draw = np.random.default_rng(0)
    x = np.linalg.qr(draw.normal(size=(600, 20)))[0] * np.sqrt(600)
    halves = drift(x[::2], x[1::2], paired=False)
    assert (halves.encoder, halves.same_axes) == ("unknown", None)
    assert "hardly more correlated than those of 300 and 300 rows" in halves.reason
    # few rows of many correlated dimensions: chance is taken off, so that the same is the same
    mix = np.linalg.qr(draw.normal(size=(60, 60)))[0] * np.arange(1, 61.0) ** -0.7
    a, b = (draw.normal(size=(100, 60)) @ mix.T for _ in range(2))
    few = drift(a, b, paired=False)
    assert few.encoder == "same"
    assert few.same_axes > 0.8
    turn = np.linalg.qr(draw.normal(size=(60, 60)))[0]
    assert drift(a @ turn, b, paired=False).encoder == "other"


def test_without_pairs_the_axes_tell_and_new_rows_are_listed():
    x, _ = clusters()
    now, _ = clusters(seed=7)
    now[21] = 40.0
    found = drift(now, x, paired=False)
    assert found.encoder == "same"
    assert found.moved.rows.tolist()[0] == 21
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(8, 8)))[0]
    assert drift(now @ turn, x, paired=False).encoder != "same"
    with pytest.raises(InputError, match="as many rows in both; received 9 and 600"):
        drift(now[:9], x, paired=True)


# ---- two embeddings ----


def test_which_embedding_is_better_for_which_rows():
    x, y = clusters()
    worse = x.copy()
    worse[:60] = clusters(seed=9)[0][:60]
    found = versus(x, worse, y)
    assert found.accuracy[0] > found.accuracy[1]
    assert found.p_value < 0.01
    assert np.mean(found.first_better.rows < 60) > 0.9
    assert found.by_class.shape == (4, 2)
    assert versus(x, x, y).p_value == 1
    assert versus(x, 3 * x).overlap == 1
    plain = versus(x, worse)
    assert plain.accuracy == ()
    assert np.mean(plain.changed.rows[:30] < 60) > 0.8


# ---- economy ----


def test_dimensions_that_carry_nothing_may_go():
    x, y = clusters(d=8)
    wide = np.hstack([x, 1e-3 * np.random.default_rng(0).normal(size=(600, 24))])
    found = economy(wide, y)
    assert found.enough["first"] <= 8
    assert set(found.order[:8].tolist()) == set(range(8))
    assert found.recall["first"][-1] == 1
    late = economy(wide[:, ::-1], y)
    assert late.enough["first"] == 32
    assert late.enough["variance"] <= 8


def test_coarse_numbers_lose_little_or_much():
    x, _ = clusters(d=32, apart=0.0)
    found = economy(x)
    assert found.int8 > 0.95
    assert found.binary < found.rescored < found.int8
    assert 0 < found.index <= 1
    scaled = economy(x * np.exp(3 * np.random.default_rng(0).normal(size=32)), metric="euclidean")
    assert scaled.binary < found.binary


def test_the_index_of_cells_finds_clusters():
    x, _ = clusters(k=8, apart=40.0)
    assert economy(x).index > 0.95
