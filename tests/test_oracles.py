"""The oracles against each other: a wrong oracle would bless a wrong objective."""

import pytest
import torch

import chiaroscuro as cs
from oracles import closed, naive
from tolerances import close
from zoo import KERNELS, NEGATIVES, pair


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_the_list_of_candidates_has_the_length_of_the_contract(negatives):
    n = 5
    count = {"AllButSelf": 2 * n - 1, "AllButPair": 2 * n - 2, "OtherView": n, "SameView": n}
    count["OnlyPositive"] = 1
    for i in range(2 * n):
        found = naive.candidates(negatives, i, n)
        assert len(found) == len(set(found)) == count[negatives]
        assert i not in found
        assert ((i + n) % (2 * n) in found) == (negatives != "AllButPair")


@pytest.mark.parametrize("at", range(len(KERNELS)), ids=list(KERNELS))
def test_blocks_equal_loops(at):
    """Negatives in turn: the two are independent of each other in both oracles."""
    kernel, negatives = list(KERNELS.values())[at], list(NEGATIVES)[at % len(NEGATIVES)]
    z1, z2 = pair(n=3)
    value = naive.infonce(kernel, negatives, "both", z1, z2)
    expected = [value, *naive.gradients(value, z1, z2)]
    found = naive.infonce_blocks(kernel, negatives, z1.detach(), z2.detach(), rows_at_once=4)
    for a, b in zip(found, expected, strict=True):
        close(torch.as_tensor(a, dtype=torch.float64), b)


@pytest.mark.parametrize("tau", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("negatives", NEGATIVES)
def test_loops_equal_pencil_and_paper(negatives, tau):
    n = 4
    eye = torch.eye(n, dtype=torch.float64)
    point = torch.ones(n, 3, dtype=torch.float64)
    loss = lambda z1, z2: naive.infonce(cs.Cosine(tau=tau), negatives, "both", z1, z2)
    close(loss(eye, eye), closed.orthonormal(negatives, n, tau))
    close(loss(point, point), closed.collapsed(negatives, n))
    close(loss(point, -point), closed.antipodal(negatives, n, tau))
    corners = eye - 1 / n
    close(loss(corners, corners), closed.simplex(negatives, n, tau, between=-1 / (n - 1)))
