"""The table: batches, subsets, splits, and the sentences over what does not fit."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chiaroscuro.data import Dataset
from chiaroscuro.errors import InputError


def table(n: int = 12, **columns) -> Dataset:
    given = {"x": np.arange(n) * 10, "labels": np.arange(n) % 3, **columns}
    return Dataset(given, class_names=("a", "b", "c"))


@given(st.data())
@settings(deadline=None)
def test_a_subset_of_a_subset(data):
    n = data.draw(st.integers(1, 30))
    a = data.draw(st.lists(st.integers(0, n - 1), min_size=1))
    b = data.draw(st.lists(st.integers(0, len(a) - 1)))
    whole = table(n)
    left, right = whole.take(a)[b], whole[np.array(a)[b]]
    assert left.keys() == right.keys() == {"x", "labels", "row"}
    for name in left:
        assert (left[name] == right[name]).all()


def test_rows_keep_their_numbers_in_subsets():
    part = table().take([5, 3]).take([1])
    assert part[[0]]["row"].tolist() == [3]
    assert part.ids.tolist() == [3]


def test_masks_and_negative_indices():
    data = table()
    assert len(data.take(data.labels == 1)) == 4
    assert data[[-1]]["x"].tolist() == [110]


def test_a_subset_shares_its_columns():
    data = table()
    assert data.take([1]).columns is data.columns


@pytest.mark.parametrize(
    ("indices", "sentence"),
    [
        ([12], "below 12; received 12"),
        ([-13], "below 12; received -13"),
        ([0.5], "float64"),
        ([[0]], r"shape \(1, 1\)"),
        ([True] * 5, r"each of 12 rows; it has shape \(5,\)"),
    ],
)
def test_wrong_indices_are_sentences(indices, sentence):
    with pytest.raises(InputError, match=sentence):
        table()[indices]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"labels": np.arange(11) % 3},
            "Each of the 12 rows .* needs one value of `labels`; .* 11",
        ),
        ({"labels": np.arange(12)}, "from -1 to 2, .* received 0 to 11"),
        ({"labels": np.ones(12)}, "whole number a row; received float64"),
        ({"split": np.full(12, 2)}, "`split` .* from 0 to 1, .* received 2 to 2"),
        ({"split": np.full(12, -1)}, "received -1 to -1"),
    ],
)
def test_columns_that_do_not_fit(columns, sentence):
    with pytest.raises(InputError, match=sentence):
        table(**columns)


def test_factors_need_their_names():
    with pytest.raises(InputError, match=r"needs 2 columns, .* shape \(3, 5\)"):
        Dataset({"x": np.eye(3), "factors": np.ones((3, 5))}, factor_names=("u", "v"))


def test_labels_alone_are_no_data():
    with pytest.raises(InputError, match="at least one input"):
        Dataset({"labels": np.arange(3)})


def test_a_split_is_stratified_and_seeded():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    data = Dataset({"x": np.arange(100), "labels": labels})
    split = data.with_split(0.2, seed=3)
    assert np.bincount(split.part("test").labels).tolist() == [10, 6, 4]
    assert np.bincount(split.part("train").labels).tolist() == [40, 24, 16]
    assert (split.split == data.with_split(0.2, seed=3).split).all()
    assert (split.split != data.with_split(0.2, seed=4).split).any()


def test_a_split_keeps_groups_whole():
    groups = np.arange(60) // 4
    data = Dataset({"x": np.arange(60), "groups": groups}).with_split(0.3)
    sides = [set(data.part(side).groups.tolist()) for side in ("train", "test")]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == round(0.3 * 15)


def test_a_split_of_a_subset_touches_only_it():
    data = table().take([0, 2, 4, 6]).with_split(0.5, seed=1)
    assert len(data.part("train")) + len(data.part("test")) == 4


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5])
def test_a_share_is_a_share(share):
    with pytest.raises(InputError, match=f"received `{share}`"):
        table().with_split(share)


def test_one_group_cannot_be_split():
    with pytest.raises(InputError, match="1 in 4 rows"):
        Dataset({"x": np.arange(4), "groups": np.zeros(4, int)}).with_split()


def test_parts_need_a_split_and_a_name():
    with pytest.raises(InputError, match="has no split"):
        table().part("train")
    with pytest.raises(InputError, match="received `dev`"):
        table().part("dev")


def test_one_per_group_is_the_first_of_each():
    data = Dataset({"x": np.arange(6), "groups": np.array([2, 2, 0, 0, 1, 2])})
    assert data.one_per_group().column("x").tolist() == [0, 2, 4]


def test_what_is_not_there_is_named():
    with pytest.raises(InputError, match="no column `z`; it has `x`, `labels`"):
        table().column("z")
    with pytest.raises(InputError, match="cannot draw"):
        table().draw([0], seed=0, epoch=0, view=0)


def test_it_travels_to_workers():
    data = pickle.loads(pickle.dumps(table().take([3, 1])))
    assert data[[0, 1]]["x"].tolist() == [30, 10]
