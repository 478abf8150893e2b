"""Theorems 3.1 and 4.2 of tan2024 as identities, against loops over all subgraphs."""

import math

import numpy as np
import pytest
import torch

from chiaroscuro import graphs
from chiaroscuro.errors import InputError
from chiaroscuro.graphs import Graph
from chiaroscuro.kernels import Cosine, Gaussian, Laplace
from chiaroscuro.objectives import InfoNCE
from chiaroscuro.pairwise import AllButSelf, OtherView
from graphs import slow
from tolerances import close
from zoo import KERNELS


def random_graph(n, seed, split=None):
    rng = np.random.default_rng(seed)
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.7) + 0.05
    np.fill_diagonal(W, 0)
    if split is not None:
        W[:split, :split] = W[split:, split:] = 0
    return Graph(W, split=split)


def rows(n, d=3, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("split", [None, 2])
@pytest.mark.parametrize("seed", [0, 1])
def test_four_ways_to_the_same_number(split, seed):
    n, tau = 5, 0.7
    graph, z = random_graph(n, seed, split), rows(n, seed=seed)
    H = graphs.cross_entropy(graph, z, Gaussian(tau))
    naive = slow.cross_entropy(graph.weights.toarray(), z.tolist(), tau, split)
    close(H.total, naive, what="eq. (3) by rows")
    close(graphs.cross_entropy_by_enumeration(graph, z, Gaussian(tau)), naive, what="eq. (3)")
    L = torch.from_numpy(graphs.laplacian(graph, "generalised").toarray())
    close(torch.trace(z.T @ L @ z) / tau + H.log_R, naive, what="Theorem 3.1")
    close(graphs.trace_form(graph, z) / tau + H.log_R, naive, what="the trace over edges")


def test_the_operator_of_a_graph_of_zeros_and_ones_is_that_of_its_normalised_rows():
    graph, z, tau = graphs.block_model([3, 2], p=1, q=0.3, seed=2), rows(5), 0.5
    H = graphs.cross_entropy(graph, z, Gaussian(tau))
    printed = torch.from_numpy(slow.unnormalised(graph.weights.toarray()))
    corrected = torch.from_numpy(slow.generalised(graph.weights.toarray()))
    gap = lambda L: abs(float(torch.trace(z.T @ L @ z) / tau + H.log_R - H.total))
    assert gap(corrected) < 1e-12
    assert gap(printed) > 0.1


def test_on_the_sphere_alone_the_asymmetric_laplacian_has_the_same_trace():
    graph, z = random_graph(6, 3), rows(6)
    L = torch.from_numpy(graphs.laplacian(graph, "random walk").toarray())
    u = z / z.norm(dim=1, keepdim=True)
    close(torch.trace(u.T @ L @ u), graphs.trace_form(graph, u))
    assert abs(float(torch.trace(z.T @ L @ z) - graphs.trace_form(graph, z))) > 0.01


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=repr)
def test_views_give_nt_xent_and_pairs_give_clip(kernel):
    z1, z2 = rows(6, 4, 1), rows(6, 4, 2)
    z = torch.cat([z1, z2])
    simclr = graphs.cross_entropy(graphs.from_views(6), z, kernel)
    close(simclr.total, 12 * InfoNCE(kernel, AllButSelf())(z1, z2))
    clip = graphs.cross_entropy(graphs.from_pairs(range(6), range(6)), z, kernel)
    close(clip.total, 12 * InfoNCE(kernel, OtherView())(z1, z2))


def test_sides_of_unequal_size_and_several_captions():
    graph = graphs.from_captions([["a", "b"], ["b"], ["c", "a", "d"]])
    z, tau = rows(7), 0.4
    got = graphs.cross_entropy(graph, z, Laplace(tau))
    a, b = z[:3], z[3:]
    log_k = -torch.cdist(a, b) / tau
    P = torch.from_numpy(graph.row_normalised().weights.toarray())
    expected = torch.cat(
        [
            log_k.logsumexp(1) - (P[:3, 3:] * log_k).sum(1),
            log_k.logsumexp(0) - (P[3:, :3].T * log_k).sum(0),
        ]
    )
    close(got.per_node, expected)


def test_gradients_flow_and_are_right():
    graph, z = random_graph(5, 4), rows(5).requires_grad_()
    f = lambda z: graphs.cross_entropy(graph, z, Gaussian(0.5)).total
    assert torch.autograd.gradcheck(f, (z,))
    (fast,) = torch.autograd.grad(f(z), z)
    (exact,) = torch.autograd.grad(graphs.cross_entropy_by_enumeration(graph, z, Gaussian(0.5)), z)
    close(fast, exact)


def test_extremes():
    n = 6
    graph = graphs.from_labels([0, 0, 0, 1, 1, 1])
    collapsed = graphs.cross_entropy(graph, torch.zeros(n, 2), Cosine(0.5))
    close(collapsed.total, n * math.log(n - 1), 1e-6)
    far = torch.tensor([[0.0]] * 3 + [[50.0]] * 3, dtype=torch.float64)
    apart = graphs.cross_entropy(graph, far, Gaussian(1.0))
    close(apart.total, n * math.log(2))  # the entropy of the graph: none can do better
    assert float(graphs.trace_form(graph, far)) == 0


def test_no_embedding_beats_the_entropy_of_the_graph():
    graph = random_graph(6, 7)
    P = graph.row_normalised().weights.toarray()
    entropy = -(P[P > 0] * np.log(P[P > 0])).sum()
    for seed in range(20):
        H = graphs.cross_entropy(graph, 3 * rows(6, 5, seed), Gaussian(1.0)).total
        assert float(H) >= entropy


def test_wrong_calls_are_refused_with_numbers():
    graph = graphs.from_labels([0, 0, 1])
    with pytest.raises(InputError, match="1 of 3 have none"):
        graphs.cross_entropy(graph, torch.zeros(3, 1), Gaussian(1.0))
    with pytest.raises(
        InputError, match=r"3 nodes; received Tensor of torch.float32 and shape \(2, 1"
    ):
        graphs.cross_entropy(graph, torch.zeros(2, 1), Gaussian(1.0))
    big = graphs.from_labels([0] * 12)
    with pytest.raises(InputError, match="at most 1048576 subgraphs"):
        graphs.cross_entropy_by_enumeration(big, torch.zeros(12, 1), Gaussian(1.0))
