"""Subgraphs of out-degree one: their law by enumeration and by chi-square, and the batches."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import sparse, stats

from chiaroscuro import graphs
from chiaroscuro.errors import InputError
from chiaroscuro.graphs import Graph, Pairs
from chiaroscuro.graphs.sampling import row_sums

W = np.array([[0, 1.0, 3.0], [0.5, 0, 0.5], [2.0, 1.0, 0]])


def chi_square(counts, expected):
    """The probability of a deviation at least as large, were the law as expected."""
    return stats.chisquare(counts, expected).pvalue


def copies(graph, count):
    """One graph of many unconnected copies: one subgraph of it is as many of the one."""
    return Graph(sparse.block_diag([graph.weights] * count).tocsr())


def draw(graph, count, seed):
    """(count, n) partners: independent subgraphs of one graph."""
    many = graphs.sample_subgraph(copies(graph, count), seed).reshape(count, graph.n)
    return many - graph.n * np.arange(count)[:, None]


def test_marginals_are_the_normalised_rows_by_chi_square():
    rng = np.random.default_rng(0)
    weights = rng.random((30, 30)) * (rng.random((30, 30)) < 0.3)
    np.fill_diagonal(weights, 0)
    weights[np.arange(30), (np.arange(30) + 1) % 30] = 0.3
    graph, draws = Graph(weights), 4000
    got = draw(graph, draws, seed=3)
    P = graph.row_normalised().weights.toarray()
    values = [
        chi_square(np.bincount(got[:, i], minlength=30)[P[i] > 0], draws * P[i][P[i] > 0])
        for i in range(30)
        if (P[i] > 0).sum() > 1
    ]
    assert min(values) > 1e-4 / len(values)
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_the_joint_law_is_that_of_the_definition_by_enumeration():
    graph, draws = Graph(W), 8000
    law = {tuple(s.partners): s.probability for s in graphs.subgraphs(graph)}
    assert len(law) == 8
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    for partners, probability in law.items():  # Lemma 2.3: the product of rows
        rows = [W[i, j] / W[i].sum() for i, j in enumerate(partners)]
        assert probability == pytest.approx(np.prod(rows), abs=1e-12)
    seen = Counter(map(tuple, draw(graph, draws, seed=1).tolist()))
    keys = list(law)
    assert set(seen) <= set(keys)
    assert chi_square([seen[k] for k in keys], [draws * law[k] for k in keys]) > 1e-4


def test_running_sums_do_not_lose_digits_with_the_number_of_rows():
    rng = np.random.default_rng(5)
    graph = graphs.from_embeddings(rng.standard_normal((300, 4)), 20, join="directed")
    scaled = Graph(graph.weights.multiply(rng.random((300, 1)) ** 20).tocsr())
    sums = row_sums(scaled)
    P = scaled.row_normalised().weights
    for i in range(300):
        part = slice(P.indptr[i], P.indptr[i + 1])
        exact = list(itertools.accumulate(map(np.longdouble, P.data[part])))
        assert np.abs(sums[part] - np.array(exact, dtype=float)).max() < 1e-15
        assert sums[part][-1] == 1


def test_an_edge_that_weighs_next_to_nothing_is_not_drawn_at_the_end_of_its_row():
    graph = Graph(np.array([[0, 1, 1e-300, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]))
    assert set(draw(graph, 500, seed=0)[:, 0].tolist()) == {1}


def test_isolated_nodes_are_refused_by_number():
    with pytest.raises(InputError, match="1 have none, the first is node 2"):
        graphs.sample_subgraph(Graph(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])))
    with pytest.raises(InputError, match="1 to 1048576 subgraphs"):
        next(graphs.subgraphs(graphs.from_labels([0] * 30)))


def test_seeds_and_steps_below_zero_are_refused_by_number():
    graph = Graph(np.array([[0, 1], [1, 0]]))
    for call in (
        lambda: graphs.sample_subgraph(graph, -3),
        lambda: graphs.Pairs(graph, 1).at(-3),
        lambda: graphs.Pairs(graph, 1, seed=-3).at(0),
        lambda: graphs.kmeans(np.eye(3), 2, seed=-3),
        lambda: graphs.block_model([2, 2], 0.5, 0.5, seed=-3),
    ):
        with pytest.raises(InputError, match=r"whole numbers from 0; received .*-3"):
            call()


def test_a_step_is_a_function_of_seed_and_step():
    graph = graphs.block_model([30, 30], 0.5, 0.1)
    for by in ("nodes", "edges"):
        pairs = Pairs(graph, batch=8, seed=4, by=by)
        later = [pair for pair, _ in zip(pairs.steps(start=5), range(3), strict=False)]
        for step, pair in zip((5, 6, 7), later, strict=True):
            again = Pairs(graph, batch=8, seed=4, by=by).at(step)
            assert (pair.anchors == again.anchors).all()
            assert (pair.partners == again.partners).all()
        assert (pairs.at(0).anchors != pairs.at(1).anchors).any()
        assert (pairs.at(0).anchors != Pairs(graph, 8, 5, by).at(0).anchors).any()


def test_pairs_by_nodes_have_the_law_of_subgraphs():
    pairs, steps = Pairs(copies(Graph(W), 400), batch=600, seed=1), 10
    counts = np.zeros((3, 3))
    for step in range(steps):
        pair = pairs.at(step)
        assert len(set(pair.anchors.tolist())) == 600
        np.add.at(counts, (pair.anchors % 3, pair.partners % 3), 1)
    expected = 600 * steps / 3 * W / W.sum(axis=1, keepdims=True)
    seen = expected > 0
    assert chi_square(counts[seen], expected[seen]) > 1e-4
    assert counts[~seen].sum() == 0


def test_pairs_by_edges_follow_the_weights():
    pairs, draws = Pairs(Graph(W), batch=1, by="edges"), 3000
    counts = np.zeros((3, 3))
    for step in range(draws):
        pair = pairs.at(step)
        counts[pair.anchors, pair.partners] += 1
    seen = W > 0
    assert chi_square(counts[seen], (draws * W / W.sum())[seen]) > 1e-4


def test_nodes_and_edges_differ_on_a_pair_graph_as_the_degrees_say():
    star = graphs.from_pairs([0, 0, 0, 1], [0, 1, 2, 3])  # one picture of three texts, one of one
    draws, share = 2000, {}
    for by in ("nodes", "edges"):
        pairs = Pairs(star, batch=1, seed=2, by=by)
        hub = [pairs.at(step) for step in range(draws)]
        assert all((p.anchors < 2).all() and (p.partners >= 2).all() for p in hub)
        share[by] = np.mean([p.anchors[0] == 0 for p in hub])
    assert share["nodes"] == pytest.approx(4 / 6, abs=0.045)  # the hub or one of its three texts
    assert share["edges"] == pytest.approx(3 / 4, abs=0.045)


def test_isolated_nodes_are_never_drawn_and_batches_fit():
    graph = Graph(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    assert sorted(Pairs(graph, batch=2).at(0).anchors.tolist()) == [0, 1]
    with pytest.raises(InputError, match="1 to 2 of the nodes that can be drawn; received 3"):
        Pairs(graph, batch=3)
    with pytest.raises(InputError, match='"nodes" or "edges"'):
        Pairs(graph, batch=1, by="pairs")
