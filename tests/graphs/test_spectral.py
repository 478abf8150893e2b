"""Spectra with closed forms, multiplicities, disconnected graphs, signs, and clustering."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.metrics import adjusted_rand_score

from chiaroscuro import graphs
from chiaroscuro.errors import InputError
from chiaroscuro.graphs import LAPLACIANS, Graph
from graphs import slow


def path(n):
    side = sparse.diags_array(np.ones(n - 1), offsets=1, shape=(n, n))
    return Graph((side + side.T).tocsr())


def cycle(n):
    step = sparse.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    return Graph(step + step.T)


def disjoint(*parts):
    return Graph(sparse.block_diag([g.weights for g in parts]).tocsr())


def check(graph, spectrum, kind):
    """Eigenpairs by their definition, unit columns, the rule of signs."""
    L = graphs.laplacian(graph, kind).toarray()
    V = spectrum.vectors
    assert np.abs(L @ V - V * spectrum.values).max() < 1e-6
    assert np.allclose(np.linalg.norm(L @ V - V * spectrum.values, axis=0), spectrum.residuals)
    assert np.allclose(np.linalg.norm(V, axis=0), 1)
    if kind != "random walk":
        assert np.abs(V.T @ V - np.eye(V.shape[1])).max() < 1e-6
    assert (np.abs(V).max(axis=0) <= V.max(axis=0) * (1 + 2e-6)).all()
    assert (np.diff(spectrum.values) >= -1e-9).all()


# ---- Laplacians ----


def test_laplacians_are_those_of_the_loops():
    rng = np.random.default_rng(0)
    W = rng.random((7, 7)) * (rng.random((7, 7)) < 0.6)
    np.fill_diagonal(W, 0)
    W[3] = 0
    graph = Graph(W)
    assert np.allclose(graphs.laplacian(graph, "unnormalised").toarray(), slow.unnormalised(W))
    assert np.allclose(graphs.laplacian(graph, "generalised").toarray(), slow.generalised(W))
    P = graph.row_normalised().weights.toarray()
    assert np.allclose(graphs.laplacian(graph, "random walk").toarray(), slow.unnormalised(P))
    S = W + W.T
    S[3] = S[:, 3] = 0
    expected = csgraph.laplacian(S, normed=True)
    assert np.allclose(graphs.laplacian(Graph(S), "symmetric").toarray(), expected)
    with pytest.raises(InputError, match=r"those of [1-9][0-9]* pairs of [0-9]+ nodes differ"):
        graphs.laplacian(graph, "symmetric")
    with pytest.raises(InputError, match="`signless`"):
        graphs.laplacian(graph, "signless")


@pytest.mark.parametrize("kind", LAPLACIANS)
def test_for_a_regular_graph_all_are_one_up_to_the_degree(kind):
    scale = 1 if kind == "unnormalised" else 2
    got = graphs.laplacian(cycle(7), kind).toarray() * scale
    assert np.allclose(got, slow.unnormalised(cycle(7).weights.toarray()))


# ---- closed forms ----


@pytest.mark.parametrize("n", [9, 700])
def test_the_complete_graph(n):
    spectrum = graphs.spectral_embedding(graphs.from_labels(np.zeros(n, int)), 4, "unnormalised")
    assert np.allclose(spectrum.values, [0, n, n, n], rtol=1e-7)
    normed = graphs.spectral_embedding(graphs.from_labels(np.zeros(n, int)), 3)
    assert np.allclose(normed.values, [0, n / (n - 1), n / (n - 1)], rtol=1e-7)


@pytest.mark.parametrize("n", [20, 900])
def test_the_path(n):
    spectrum = graphs.spectral_embedding(path(n), 6, "unnormalised", tolerance=1e-12)
    assert np.allclose(spectrum.values, 2 - 2 * np.cos(np.pi * np.arange(6) / n), atol=1e-9)
    first = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    first *= np.sqrt(2 / n)  # its largest entry is the first, hence positive
    assert np.allclose(spectrum.vectors[:, 1], first, atol=1e-4)
    check(path(n), spectrum, "unnormalised")


@pytest.mark.parametrize("n", [31, 800])
def test_the_cycle_has_double_eigenvalues_and_none_is_missed(n):
    spectrum = graphs.spectral_embedding(cycle(n), 8)
    m = np.array([0, 1, 1, 2, 2, 3, 3, 4])
    assert np.allclose(spectrum.values, 1 - np.cos(2 * np.pi * m / n), atol=1e-7)
    check(cycle(n), spectrum, "symmetric")


def test_a_torus_has_fourfold_eigenvalues_and_none_is_missed():
    ring, eye = cycle(26).weights, sparse.eye_array(26)
    graph = Graph(sparse.kron(ring, eye) + sparse.kron(eye, ring))
    one = 1 - np.cos(2 * np.pi * np.arange(26) / 26)
    expected = np.sort((one[:, None] + one).ravel())[:13] / 2
    spectrum = graphs.spectral_embedding(graph, 13)
    assert np.allclose(spectrum.values, expected, atol=1e-7)
    check(graph, spectrum, "symmetric")


def test_a_complete_bipartite_graph_reaches_two():
    graph = graphs.from_pairs(np.repeat([0, 1, 2], 4), np.tile([0, 1, 2, 3], 3))
    values = graphs.spectral_embedding(graph, 7).values
    assert np.allclose(values, [0, 1, 1, 1, 1, 1, 2])


@pytest.mark.parametrize("kind", LAPLACIANS)
@pytest.mark.parametrize("n", [30, 600])
def test_against_the_dense_solution(kind, n):
    graph = graphs.block_model([n // 2, n - n // 2], p=20 / n, q=4 / n, seed=n)
    spectrum = graphs.spectral_embedding(graph, 5, kind)
    L = graphs.laplacian(graph, kind).toarray()
    assert np.allclose(np.sort(np.linalg.eigvals(L).real)[:5], spectrum.values, atol=1e-6)
    check(graph, spectrum, kind)


# ---- disconnected ----


def test_zero_has_the_multiplicity_of_the_components():
    graph = graphs.from_labels([0] * 5 + [1] * 3 + [2] * 2 + [3])
    for kind in LAPLACIANS:
        spectrum = graphs.spectral_embedding(graph, 6, kind)
        assert spectrum.n_components == 4
        assert (spectrum.values[:4] == 0).all()
        assert spectrum.values[4] > 0.5
        check(graph, spectrum, kind)


def test_equal_components_beyond_the_zeros():
    graph = disjoint(path(700), path(700), path(40))
    spectrum = graphs.spectral_embedding(graph, 7, "unnormalised")
    one = lambda n, m: 2 - 2 * np.cos(np.pi * m / n)
    expected = [0, 0, 0, one(700, 1), one(700, 1), one(700, 2), one(700, 2)]
    assert np.allclose(spectrum.values, expected, atol=1e-8)
    check(graph, spectrum, "unnormalised")
    support = [np.flatnonzero(np.abs(v) > 1e-12) for v in spectrum.vectors.T]
    assert all(s.max() - s.min() < 700 for s in support)


def test_more_components_than_vectors_gives_the_largest():
    graph = graphs.from_labels([0] * 2 + [1] * 4 + [2] * 3 + [3] * 3)
    spectrum = graphs.spectral_embedding(graph, 3)
    assert (spectrum.values == 0).all()
    sizes = (spectrum.vectors > 0).sum(axis=0)
    assert sizes.tolist() == [4, 3, 3]
    assert np.flatnonzero(spectrum.vectors[:, 1]).tolist() == [6, 7, 8]


# ---- determinism ----


def test_the_same_bits_again_and_the_order_of_nodes_does_not_matter():
    graph = graphs.block_model([300, 300], p=0.05, q=0.01, seed=1)
    one, two = (graphs.spectral_embedding(graph, 4) for _ in range(2))
    assert (one.vectors == two.vectors).all()
    order = np.random.default_rng(0).permutation(600)
    other = graphs.spectral_embedding(Graph(graph.weights[order][:, order]), 4)
    assert np.allclose(other.vectors, one.vectors[order], atol=1e-5)


# ---- gaps and clusters ----


def test_gaps_and_the_number_of_clusters():
    graph = graphs.block_model([60] * 5, p=0.5, q=0.02, seed=3)
    assert graphs.n_clusters(graph) == 5
    values = np.sort(np.linalg.eigvalsh(graphs.laplacian(graph).toarray()))
    for k in (1, 5, 8):
        assert graphs.spectral_gap(graph, k) == pytest.approx(values[k] - values[k - 1], abs=1e-8)
    assert graphs.n_clusters(graphs.from_labels([0, 0, 1, 1, 2, 2, 2])) == 3
    with pytest.raises(InputError, match="1 to 299 clusters; received 300"):
        graphs.spectral_gap(graph, 300)


@pytest.mark.parametrize("kind", LAPLACIANS)
def test_planted_clusters_are_found(kind):
    truth = np.repeat(np.arange(6), 100)
    graph = graphs.block_model([100] * 6, p=0.75, q=0.2, seed=0)
    order = np.random.default_rng(1).permutation(600)
    mixed = Graph(graph.weights[order][:, order])
    assert adjusted_rand_score(truth[order], graphs.spectral_clustering(mixed, 6, kind)) > 0.99


def test_components_are_clusters_numbered_by_first_node():
    got = graphs.spectral_clustering(graphs.from_labels([7, 3, 7, 3, 5, 5]), 3)
    assert got.tolist() == [0, 1, 0, 1, 2, 2]


def test_generalised_clustering_of_a_pair_graph():
    rng = np.random.default_rng(2)
    group = np.repeat([0, 1, 2], 40)  # pictures; each has three texts, mostly of its own group
    texts = np.where(rng.random((120, 3)) < 0.9, group[:, None], rng.integers(3, size=(120, 3)))
    texts = texts * 15 + rng.integers(15, size=(120, 3))
    graph = graphs.from_pairs(np.repeat(np.arange(120), 3), texts.ravel(), n_b=45)
    graph = Graph(graph.weights, split=120).row_normalised()
    assert not graph.symmetric
    used = np.setdiff1d(np.arange(165), graph.isolated)
    labels = graphs.spectral_clustering(graph, 3, "generalised")
    truth = np.concatenate([group, np.repeat([0, 1, 2], 15)])
    assert adjusted_rand_score(truth[used], labels[used]) > 0.9
    with pytest.raises(InputError, match='kind="generalised"'):
        graphs.spectral_clustering(graph, 3)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_kmeans_reaches_the_least_inertia_in_one_dimension(k):
    x = np.random.default_rng(k).standard_normal(14)
    got = graphs.kmeans(x[:, None], k, n_starts=30)
    assert got.inertia == pytest.approx(slow.kmeans_inertia(x, k), rel=1e-9)
    for c in range(k):
        assert got.centres[c, 0] == pytest.approx(x[got.labels == c].mean())


def test_kmeans_is_a_function_of_its_seed_and_survives_equal_rows():
    x = np.random.default_rng(0).standard_normal((50, 2))
    assert (graphs.kmeans(x, 4, 3).labels == graphs.kmeans(x, 4, 3).labels).all()
    same = graphs.kmeans(np.ones((6, 2)), 3)
    assert same.inertia == 0
    assert same.labels.tolist() == [0] * 6
    assert sorted(set(graphs.kmeans(np.array([[0.0], [0.0], [1.0]]), 2).labels)) == [0, 1]
    with pytest.raises(InputError, match="1 to 6 clusters"):
        graphs.kmeans(np.ones((6, 2)), 7)


def test_wrong_calls_are_refused_with_numbers():
    directed = Graph(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    with pytest.raises(InputError, match="those of 2 pairs of 3 nodes differ"):
        graphs.spectral_embedding(directed, 2)
    with pytest.raises(InputError, match=r"1 to 3 eigenvectors; received 2\.5"):
        graphs.spectral_embedding(directed, 2.5, "generalised")
    with pytest.raises(InputError, match="1 to 3 eigenvectors; received 4"):
        graphs.spectral_embedding(path(3), 4)
    with pytest.raises(InputError, match="`signless`"):
        graphs.spectral_embedding(path(3), 1, "signless")
    with pytest.raises(InputError, match="received 0"):
        graphs.spectral_embedding(path(3), 1, tolerance=0.0)
