"""The order of samples: permutations, parts over ranks, resuming; over many sizes."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chiaroscuro.data import BlockOrder, Blocks, Dataset, Order, order_of
from chiaroscuro.data.order import permuted
from chiaroscuro.errors import InputError

SIZES = st.integers(2, 200)


@given(n=SIZES, seed=st.integers(0, 2**63), epoch=st.integers(0, 10**6))
@settings(deadline=None)
def test_an_epoch_is_a_permutation(n, seed, epoch):
    order = Order(n, batch=2, seed=seed)
    assert sorted(order.permutation(epoch)) == list(range(n))
    again = Order(n, batch=2, seed=seed).permutation(epoch)
    assert (again == order.permutation(epoch)).all()


@given(
    n=SIZES,
    share=st.integers(2, 8),
    world=st.integers(1, 6),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 9),
)
@settings(deadline=None)
def test_ranks_together_are_the_batch_of_one(n, share, world, seed, epoch):
    assume(share * world <= n)
    order = Order(n, batch=share * world, seed=seed)
    for b in range(len(order)):
        parts = [order.indices(epoch, b, r, world) for r in range(world)]
        assert {len(part) for part in parts} == {share}
        assert (np.concatenate(parts) == order.indices(epoch, b)).all()


@given(n=SIZES, batch=st.integers(1, 50), epoch=st.integers(0, 9))
@settings(deadline=None)
def test_no_sample_comes_twice_in_an_epoch(n, batch, epoch):
    assume(batch <= n)
    order = Order(n, batch, at_least=1)
    seen = np.concatenate([order.indices(epoch, b) for b in range(len(order))])
    assert len(set(seen.tolist())) == len(seen) == n // batch * batch


def test_orders_are_uniform():
    # all 24 orders of 4 samples, 4800 epochs: chi-squared with 23 degrees of freedom
    order = Order(4, batch=2, seed=11)
    counts: dict[tuple, int] = {}
    for epoch in range(4800):
        key = tuple(order.permutation(epoch).tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 24
    assert sum((c - 200) ** 2 / 200 for c in counts.values()) < 49.7  # p = 0.001


def test_epochs_and_seeds_differ():
    order = Order(100, batch=10)
    assert (order.permutation(0) != order.permutation(1)).any()
    assert (order.permutation(0) != Order(100, batch=10, seed=1).permutation(0)).any()


def test_an_order_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        Order(10, batch=2).permutation(0)[0] = 3


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Order(100, batch=128),
            "batch of 128 needs at least as many samples; the data have 100",
        ),
        (
            lambda: Order(100, batch=1),
            "at least 2 samples, .* negatives; received a batch of 1.$",
        ),
        (lambda: Order(0, batch=4), "at least 1 sample; received `0`"),
        (lambda: Order(9, batch=0), "received `0`"),
        (lambda: Order(9, batch=4).indices(0, 2), "batches 0 to 1; received `2`"),
        (
            lambda: Order(9, batch=4).indices(0, 0, 0, 3),
            "batch of 4 needs to be divisible by 3 ranks",
        ),
        (lambda: Order(9, batch=4).indices(0, 0, 0, 4), "batch of 4 on 4 ranks leaves 1"),
        (lambda: Order(9, batch=4).indices(0, 0, 2, 2), "from 0 to 1; received `2`"),
    ],
)
def test_what_cannot_be_is_a_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


@pytest.mark.parametrize("n", [2, 3, 10, 100, 1023, 1024, 1025, 5000])
def test_the_cipher_is_a_permutation(n):
    whole = permuted(np.arange(n), n, 3, 1)
    assert sorted(whole.tolist()) == list(range(n))
    some = np.array([n - 1, 0, n // 2])
    assert (permuted(some, n, 3, 1) == whole[some]).all()


def test_the_cipher_mixes():
    """Each place is equally likely for each position, and neighbours do not stay together."""
    n, draws = 24, 4000
    counts = np.zeros((n, n))
    for seed in range(draws):
        counts[np.arange(n), permuted(np.arange(n), n, seed)] += 1
    chi2 = ((counts - draws / n) ** 2 / (draws / n)).sum()
    freedom = (n - 1) ** 2
    assert abs(chi2 - freedom) < 5 * (2 * freedom) ** 0.5
    long = permuted(np.arange(100_000), 100_000, 0)
    assert abs(np.corrcoef(long[:-1], long[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(np.arange(100_000), long)[0, 1]) < 0.02


def test_many_samples_have_an_order_without_a_list_of_them():
    order = Order(n=10**9, batch=64, seed=2)
    seen = np.concatenate([order.indices(5, b) for b in (0, 1, len(order) - 1)])
    assert len(set(seen.tolist())) == 192
    assert seen.min() >= 0
    assert seen.max() < 10**9
    halves = [order.indices(5, 1, rank=r, world=2) for r in (0, 1)]
    assert (np.concatenate(halves) == order.indices(5, 1)).all()


SIZES = np.array([7, 3, 12, 5, 9])


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("buffer", [1, 4, 100])
def test_blocks_are_seen_once_by_one_rank_each(world, buffer):
    order = BlockOrder(Blocks(SIZES, buffer), batch=6, lanes=world)
    assert len(order) == 6
    for epoch in (0, 1):
        parts = [
            [order.indices(epoch, b, rank, world) for b in range(len(order))]
            for rank in range(world)
        ]
        seen = np.concatenate([np.concatenate(part) for part in parts])
        assert len(set(seen.tolist())) == len(seen) == 36
        assert all(len(batch) == 6 // world for part in parts for batch in part)
        block = np.repeat(np.arange(len(SIZES)), SIZES)
        owners = [set(block[np.concatenate(part)].tolist()) for part in parts]
        shared = sum(map(len, owners)) - len(set().union(*owners))
        assert shared <= world - 1  # a block at each border


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_lanes_decide_the_order_and_ranks_do_not(lanes):
    order = BlockOrder(Blocks(SIZES, 4), batch=6, lanes=lanes)
    for b in range(len(order)):
        for world in (2, 3):
            parts = [order.indices(1, b, rank, world) for rank in range(world)]
            assert np.concatenate(parts).tolist() == order.indices(1, b).tolist()
    with pytest.raises(InputError, match=r"`BlockOrder\(lanes=4\)` needs a divisor .* of 6"):
        BlockOrder(Blocks(SIZES, 4), batch=6, lanes=4)


def test_a_small_buffer_reads_block_by_block_and_epochs_differ():
    order = BlockOrder(Blocks(SIZES, buffer=1), batch=6)
    block = np.repeat(np.arange(len(SIZES)), SIZES)
    visits = block[order.permutation(0)]
    assert (np.diff(visits) != 0).sum() <= len(SIZES) - 1
    assert order.permutation(0).tolist() != order.permutation(1).tolist()
    mixed = BlockOrder(Blocks(SIZES, buffer=36), batch=6).permutation(0)
    assert (np.diff(block[mixed]) != 0).sum() > len(SIZES)


def test_a_subset_keeps_its_blocks():
    data = Dataset({"x": np.zeros((36, 1))}, blocks=Blocks(SIZES, 4))
    kept = data.take(np.arange(36) % 3 == 0).blocks_now()
    assert kept.sizes.tolist() == [3, 1, 4, 1, 3]
    assert data.take([5, 1]).blocks_now() is None
    assert isinstance(order_of(data, 6), BlockOrder)
    assert isinstance(order_of(data.take([5, 1, 2]), 2), Order)
