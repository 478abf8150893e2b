"""The order of samples: permutations, parts over ranks, resuming; over many sizes."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chiaroscuro.data import Order
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
