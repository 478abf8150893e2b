"""What a graph refuses, and what each source makes of its input."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from chiaroscuro import graphs
from chiaroscuro.errors import InputError
from chiaroscuro.graphs import Graph
from chiaroscuro.kernels import Gaussian
from graphs import slow

RING = np.roll(np.eye(5), 1, axis=1)


def dense(graph):
    return graph.weights.toarray()


# ---- the record ----


def test_weights_are_canonical_and_the_input_is_left_alone():
    given = sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    graph = Graph(given)
    assert dense(graph).tolist() == [[0, 3], [0, 0]]
    assert graph.weights.nnz == 1
    assert given.nnz == 3


@pytest.mark.parametrize(
    ("weights", "options", "words"),
    [
        (np.ones((2, 3)), {}, r"square matrix of real numbers; received float64 of shape \(2, 3\)"),
        (np.ones(3), {}, r"shape \(3,\)"),
        (None, {}, "received object"),
        (np.array([[0, 1j], [1, 0]]), {}, "received complex128"),
        (1e308 * (np.ones((3, 3)) - np.eye(3)), {}, r"2 weights up to 1e\+308 in a row"),
        (RING, {"split": 2.0}, r"received 2\.0"),
        (np.array([[0, -1.5], [0, 0]]), {}, "from -1.5 to -1.5"),
        (np.array([[0, np.nan], [0, 0]]), {}, "finite weights"),
        (np.eye(3), {}, "received 3 self-loops"),
        (RING, {"split": 6}, "0 to 5"),
        (RING, {"split": 2}, "weights inside a side"),
        (2 * RING, {"normalised": True}, "off by 1"),
    ],
)
def test_what_is_no_graph_is_refused_with_numbers(weights, options, words):
    with pytest.raises(InputError, match=words):
        Graph(weights, **options)


def test_row_normalising():
    W = np.array([[0, 1.0, 3.0, 0], [1, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]])
    graph = Graph(W)
    P = graph.row_normalised()
    assert dense(P).tolist() == [[0, 0.25, 0.75, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert P.normalised
    assert P.row_normalised() is P
    assert graph.symmetric
    assert not P.symmetric
    assert P.symmetrised().symmetric
    assert np.allclose(dense(P.symmetrised()), (dense(P) + dense(P).T) / 2)
    assert graph.isolated.tolist() == [3]


def test_components_follow_edges_both_ways_in_order_of_first_node():
    W = np.zeros((5, 5))
    W[4, 0] = W[3, 1] = 1
    assert Graph(W).components().tolist() == [0, 1, 2, 1, 0]


# ---- from labels and views ----


def test_labels_join_classes_and_nothing_else():
    labels = np.array([2, 0, 2, 1, 0, 2])
    expected = (labels[:, None] == labels) & ~np.eye(6, dtype=bool)
    assert (dense(graphs.from_labels(labels)) == expected).all()
    assert (dense(graphs.from_labels(torch.from_numpy(labels))) == expected).all()
    with pytest.raises(InputError, match="float64"):
        graphs.from_labels([0.5, 1.0])
    with pytest.raises(InputError, match="the least -1"):
        graphs.from_labels([-1, 1])


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (([0], [5], [1.0]), "below n = 2; received up to 5"),
        (([0], [-1], [1.0]), "the least -1"),
        (([0, 1], [1], [1.0]), "received 2, 1"),
        (([0], [1], [1.0, 2.0]), r"received 1, 1 and \(2,\)"),
    ],
)
def test_edges_that_are_none_are_refused_with_numbers(edges, words):
    with pytest.raises(InputError, match=words):
        graphs.from_edges(2, *edges, "edges")


def test_too_many_edges_are_refused_before_they_are_made():
    with pytest.raises(InputError, match="20000 nodes would have about 399980000"):
        graphs.from_labels(np.zeros(20_000, dtype=int))
    with pytest.raises(InputError, match="at most 268435456 weights"):
        graphs.block_model([10**6, 10**6], p=0.5, q=0)


def test_views_are_stacked_view_by_view():
    W = dense(graphs.from_views(3, n_views=3))
    for a in range(9):
        for b in range(9):
            assert W[a, b] == (a % 3 == b % 3 and a != b)


# ---- planted blocks ----


def test_blocks_of_certain_edges_are_the_labels():
    truth = np.repeat([0, 1, 2], [4, 1, 3])
    got = graphs.block_model([4, 1, 3], p=1, q=0)
    assert (dense(got) == dense(graphs.from_labels(truth))).all()
    assert dense(graphs.block_model([3, 2], p=1, q=1)).sum() == 20


def test_blocks_have_the_stated_probabilities_each_pair_alike():
    seeds, sizes = 200, [4, 3]
    total = sum(dense(graphs.block_model(sizes, 0.7, 0.2, seed=s)) for s in range(seeds))
    inside = np.repeat([0, 1], sizes)[:, None] == np.repeat([0, 1], sizes)
    p = np.where(inside, 0.7, 0.2)
    z = (total / seeds - p) / np.sqrt(p * (1 - p) / seeds)
    off = ~np.eye(7, dtype=bool)
    assert (total == total.T).all()
    assert np.abs(z[off]).max() < 4.0
    assert 0.5 < np.square(z[off]).mean() < 1.6  # the spread of independent coins


def test_a_seed_is_a_graph():
    one, same, other = (graphs.block_model([50, 50], 0.3, 0.1, seed=s) for s in (1, 1, 2))
    assert (one.weights != same.weights).nnz == 0
    assert (one.weights != other.weights).nnz > 0
    with pytest.raises(InputError, match=r"from 0 to 1; received 1\.5"):
        graphs.block_model([3], 1.5, 0)


# ---- pairs and captions ----


def test_the_pair_graph_of_ten_dogs_and_one_text():
    P = dense(graphs.from_pairs(range(10), [0] * 10).row_normalised())
    assert (P[:10, 10] == 1).all()
    assert np.allclose(P[10, :10], 0.1)


def test_pairs_count_and_sides_can_be_larger_than_seen():
    graph = graphs.from_pairs([0, 0, 1], [1, 1, 0], n_a=3, n_b=2)
    assert (graph.n, graph.split, graph.isolated.tolist()) == (5, 3, [2])
    assert dense(graph)[0].tolist() == [0, 0, 0, 0, 2]
    with pytest.raises(InputError, match="n_a = 1 and n_b = 2; received up to 1 and 1"):
        graphs.from_pairs([0, 1], [0, 1], n_a=1)
    with pytest.raises(InputError, match="received 1, 2"):
        graphs.from_pairs([0], [0, 1])


def test_captions_that_are_equal_are_one_node():
    graph = graphs.from_captions([["a", "b"], ["c"], ["b", "a"]])
    assert graph.split == 3
    assert dense(graph)[:3, 3:].tolist() == [[1, 1, 0], [0, 0, 1], [1, 1, 0]]
    one = graphs.from_captions([["x"], ["y"]])
    assert (dense(one) == dense(graphs.from_pairs([0, 1], [0, 1]))).all()
    with pytest.raises(InputError, match="image 1"):
        graphs.from_captions([["a"], []])


# ---- nearest neighbours ----


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_neighbours_are_those_of_the_loop(metric):
    x = np.random.default_rng(0).standard_normal((60, 5))
    at, r = graphs.nearest(x, 7, metric)
    u = x / np.linalg.norm(x, axis=1, keepdims=True) if metric == "cosine" else x
    assert (at == slow.nearest(u, 7)).all()
    assert np.allclose(r, np.linalg.norm(u[:, None] - u[at], axis=2), atol=1e-14)


def test_ties_go_to_the_lower_index_also_far_from_the_origin():
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(6)), axis=-1).reshape(-1, 2) + 1e5
    x = np.concatenate([grid, grid[:5]]).astype(float)  # duplicates too
    assert (graphs.nearest(x, 6, "euclidean")[0] == slow.nearest(x, 6)).all()
    same = np.ones((10, 3))
    expected = [[j for j in range(10) if j != i][:4] for i in range(10)]
    assert graphs.nearest(same, 4)[0].tolist() == expected


def test_tiles_and_near_points_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    x = np.repeat(rng.standard_normal((40, 3)), 3, axis=0) + 1e-9 * rng.standard_normal((120, 3))
    whole = graphs.nearest(x, 5, "euclidean")[0]
    assert (whole == slow.nearest(x, 5)).all()
    from chiaroscuro.measures import neighbours

    monkeypatch.setattr(neighbours, "_AT_ONCE", 900)
    monkeypatch.setattr(neighbours, "_GATHERED", 10)
    assert (graphs.nearest(x, 5, "euclidean")[0] == whole).all()


def test_joins():
    x = np.array([[0.0], [1.0], [3.0], [7.0]])  # nearest: 0->1, 1->0, 2->1, 3->2
    W = {
        join: dense(graphs.from_embeddings(x, 1, "euclidean", join))
        for join in ("directed", "union", "mutual")
    }
    assert np.argwhere(W["directed"]).tolist() == [[0, 1], [1, 0], [2, 1], [3, 2]]
    assert (W["union"] == np.maximum(W["directed"], W["directed"].T)).all()
    assert (W["mutual"] == np.minimum(W["directed"], W["directed"].T)).all()
    complete = dense(graphs.from_embeddings(x, 3))
    assert (complete == 1 - np.eye(4)).all()


def test_a_kernel_weighs_the_edges():
    x = np.random.default_rng(2).standard_normal((20, 3))
    graph = graphs.from_embeddings(x, 4, "euclidean", kernel=Gaussian(tau=0.5))
    i, j = graph.weights.tocoo().coords
    expected = np.exp(-np.square(x[i] - x[j]).sum(axis=1))
    assert np.allclose(graph.weights.tocoo().data, expected, rtol=1e-12)
    assert graph.symmetric


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: graphs.from_embeddings(np.ones((3, 2)), 3), "1 to 2 neighbours of 3 rows"),
        (lambda: graphs.from_embeddings(np.ones((3, 2)), 1, "manhattan"), "`manhattan`"),
        (lambda: graphs.from_embeddings(np.ones((3, 2)), 1, join="either"), "`either`"),
        (lambda: graphs.from_embeddings(np.ones(3), 1), r"\(3,\)"),
        (lambda: graphs.from_embeddings(np.full((3, 2), np.inf), 1), "3 of 3 rows"),
        (lambda: graphs.from_embeddings(np.ones((3, 2)), 1.5), r"received 1\.5"),
        (lambda: graphs.from_embeddings(np.array([["a"], ["b"]]), 1), "received <U1"),
        (
            lambda: graphs.from_embeddings(1e200 * np.arange(4.0)[:, None], 1, "euclidean"),
            r"squares are finite; received entries up to 3e\+200",
        ),
    ],
)
def test_bad_embeddings_are_refused_with_numbers(call, words):
    with pytest.raises(InputError, match=words):
        call()


# ---- augmentations ----


def test_expected_similarity_of_noisy_views_has_its_closed_form():
    n, d, noise, tau, draws = 12, 2, 0.6, 0.8, 200
    x = np.random.default_rng(3).standard_normal((n, d))

    def view(t):
        return x + noise * np.random.default_rng([7, t]).standard_normal((n, d))

    graph = graphs.from_augmentations(view, Gaussian(tau), draws, n_neighbours=n - 1)
    wide = tau + 2 * noise**2
    t = np.square(x[:, None] - x).sum(axis=2)
    expected = (tau / wide) ** (d / 2) * np.exp(-t / (2 * wide))
    # a kernel value lies in [0, 1]: a mean of 2 x 200 of them is known to 0.5 / sqrt(200)
    assert np.abs(dense(graph) - expected)[~np.eye(n, dtype=bool)].max() < 4 * 0.5 / math.sqrt(
        draws
    )
    assert graph.symmetric


def test_views_that_change_nothing_give_the_kernel_and_rows_keep_their_largest():
    x = np.random.default_rng(4).standard_normal((9, 3))
    full = dense(graphs.from_augmentations(lambda t: x, Gaussian(1.0), 2, 8))
    expected = np.exp(-np.square(x[:, None] - x).sum(axis=2) / 2) * (1 - np.eye(9))
    assert np.allclose(full, expected, atol=1e-12)
    some = dense(graphs.from_augmentations(lambda t: x, Gaussian(1.0), 1, 2))
    kept = np.zeros((9, 9), dtype=bool)
    for i in range(9):
        kept[i, np.argsort(-expected[i], kind="stable")[:2]] = True
    assert np.allclose(some, np.where(kept | kept.T, expected, 0), atol=1e-12)
    with pytest.raises(InputError, match="one shape"):
        graphs.from_augmentations(lambda t: x[: 9 - t], Gaussian(1.0), 1, 2)
