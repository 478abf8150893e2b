"""Partitions against scikit-learn, graphs with planted clusters, kernels with known blocks."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from chiaroscuro import dynamics, graphs
from chiaroscuro.diagnostics import (
    adjusted_rand,
    cluster_kernel,
    graph_clusters,
    kernel_alignment,
    mutual_information,
    sample_kernel,
)
from chiaroscuro.errors import InputError

rng = np.random.default_rng


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_scikit_learns(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    a, b = rng(seed).integers(0, 4, 50), rng(seed + 9).integers(0, 3 + seed, 50)
    for x, y in ((a, b), (a, a), (a, np.zeros(50, int)), (a, np.arange(50))):
        assert adjusted_rand(x, y) == pytest.approx(metrics.adjusted_rand_score(x, y), abs=1e-12)
        theirs = metrics.normalized_mutual_info_score(x, y)
        assert mutual_information(x, y) == pytest.approx(theirs, abs=1e-12)


def test_agreement_at_its_extremes():
    a = rng(0).integers(0, 5, 2000)
    for measure in (adjusted_rand, mutual_information):
        assert measure(a, (a + 2) % 5) == pytest.approx(1)
        assert measure(a, rng(1).permutation(a)) == pytest.approx(0, abs=0.02)
        assert measure([0, 0], [1, 1]) == 1
        with pytest.raises(InputError, match=r"received \(2,\) and \(3,\)"):
            measure([0, 1], [0, 1, 2])


def blobs(sizes, spread=0.1, d=6, seed=0):
    y = np.repeat(np.arange(len(sizes)), sizes)
    return np.eye(d)[y] + spread * rng(seed).normal(size=(len(y), d)), y


def test_clusters_of_graph_embedding_and_labels_agree_where_they_are_planted():
    h, y = blobs([40, 40, 40])
    graph = graphs.block_model([40, 40, 40], p=0.5, q=0.02)
    found = graph_clusters(h, graph, y)
    assert (found.suggested, found.n_clusters) == (3, 3)
    assert found.ari > 0.9
    assert found.ari_labels == 1
    assert found.nmi_graph_labels > 0.9
    assert found.gap == pytest.approx(found.eigenvalues[3] - found.eigenvalues[2])
    inside = y[:, None] == y
    W = graph.weights.toarray()
    assert found.homophily == pytest.approx(W[inside].sum() / W.sum())
    degrees = W.sum(1)
    assert found.by_chance == pytest.approx(
        (degrees[:, None] * degrees)[inside].sum() / W.sum() ** 2
    )
    crossed = graph_clusters(blobs([40, 40, 40])[0][rng(0).permutation(120)], graph)
    assert crossed.ari < 0.1


def test_graphs_from_neighbours_and_from_other_rows():
    h, y = blobs([50, 30, 40])
    assert graph_clusters(h).ari == 1
    assert graph_clusters(h).suggested == 3
    other = graph_clusters(rng(1).normal(size=(120, 4)), h, y)
    assert other.ari_graph_labels == 1
    assert other.ari < 0.1
    some = graph_clusters(h, rows=60)
    assert len(some.rows) == len(some.graph) == 60
    assert some.json()["ari"] == pytest.approx(1)
    directed = graphs.from_embeddings(h, 5, join="directed")
    assert graph_clusters(h, directed, n_clusters=3).n_clusters == 3


def test_a_collapsed_embedding_has_no_clusters():
    _, y = blobs([40, 40])
    graph = graphs.block_model([40, 40], p=0.5, q=0.02)
    found = graph_clusters(np.ones((80, 3)), graph, y)
    assert found.ari == found.ari_labels == 0
    with pytest.raises(InputError, match="all 80 are the same"):
        graph_clusters(np.ones((80, 3)))
    with pytest.raises(InputError, match="on the 50 rows of h; received one of 80"):
        graph_clusters(np.ones((50, 3)), graph)
    with pytest.raises(InputError, match="1 to 80 clusters; received 99"):
        graph_clusters(blobs([40, 40])[0], n_clusters=99)


# ---- kernels ----


def net(d=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, d)).double()


def test_the_sample_kernel_is_the_trace_of_the_neural_kernel():
    x = torch.randn(7, 4, dtype=torch.float64)
    K = dynamics.neural_kernel(net(), x)
    expected = torch.einsum("ijkk->ij", K)
    torch.testing.assert_close(sample_kernel(net(), x), expected)
    assert sample_kernel(net(), x).trace() == pytest.approx(dynamics.kernel_trace(net(), x))


def test_probes_are_unbiased():
    x = torch.randn(5, 4, dtype=torch.float64)
    exact = sample_kernel(net(40), x, n_probes=40)
    some = [sample_kernel(net(40), x, n_probes=8, seed=s) for s in range(60)]
    error = (torch.stack(some).mean(dim=0) - exact).norm() / exact.norm()
    single = np.mean([(k - exact).norm() / exact.norm() for k in some])
    assert error < 0.05
    assert error < single / 2
    torch.testing.assert_close(sample_kernel(net(40), x, 8, 3), some[3])


def test_alignment_is_its_formula_and_its_extremes():
    x, y = rng(0).normal(size=(20, 3)), rng(1).integers(0, 3, 20)
    K, H = x @ x.T, np.eye(20) - 1 / 20
    Y = (y[:, None] == y).astype(float)
    a, b = H @ K @ H, H @ Y @ H
    expected = (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)
    assert kernel_alignment(K, y) == pytest.approx(expected)
    assert kernel_alignment(5 * K + 2, y) == pytest.approx(expected)
    assert kernel_alignment(Y, y) == pytest.approx(1)
    assert kernel_alignment(np.ones((20, 20)), y) == 0
    with pytest.raises(InputError, match="at least 2 clusters; received 1"):
        kernel_alignment(K, np.zeros(20, int))
    with pytest.raises(InputError, match=r"square kernel; received \(20, 3\)"):
        kernel_alignment(x, y)


def test_small_clusters_are_driven_less():
    sizes = [40, 20, 10, 5]
    h, y = blobs(sizes, spread=0.02)
    found = cluster_kernel(h @ h.T, y)
    assert found.exponent == pytest.approx(1, abs=0.1)
    assert found.within > 0.95
    assert abs(found.between) < 0.1
    assert found.sizes.tolist() == sizes
    alone = cluster_kernel(np.eye(75), y)  # samples that do not see each other
    assert alone.exponent == pytest.approx(0)
    k = h @ h.T
    drive = np.mean([k[i, y == 0].sum() for i in range(40)]) / 75
    assert found.drives[0] == pytest.approx(drive)
    assert math.isnan(cluster_kernel(np.eye(6), [0, 0, 0, 1, 1, 1]).exponent)
    flat = cluster_kernel(np.ones((6, 6)), [0, 0, 1, 1, 1, 1])
    assert (flat.within, flat.between, flat.alignment) == (1, 1, 0)
