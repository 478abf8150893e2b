"""The loss taken apart, against a naive loop, `InfoNCE` and the closed forms."""

import math
from importlib import import_module

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.diagnostics import Contrast, anatomy
from chiaroscuro.errors import InputError

KERNELS = [
    cs.Cosine(tau=0.1),
    cs.Cosine(tau=[0.5, 0.1, 1.0, 2.0]),
    cs.Dot(tau=1.0),
    cs.Gaussian(tau=0.5),
    cs.Laplace(tau=0.5),
    cs.Exponential(gamma=0.5, tau=1.0),
    cs.Lp(p=3.0, tau=1.0),
    cs.Sum(cs.Gaussian(0.5), cs.Laplace(0.5)),
    cs.Concat(cs.Gaussian(0.5), cs.Laplace(0.5)),
]
NEGATIVES = [cs.AllButSelf(), cs.AllButPair(), cs.OtherView(), cs.SameView()]


def views(n=14, d=4, noise=0.4, seed=0):
    draw = torch.Generator().manual_seed(seed)
    z1 = torch.randn(n, d, generator=draw, dtype=torch.float64)
    return z1, z1 + noise * torch.randn(n, d, generator=draw, dtype=torch.float64)


def naive(z1, z2, loss, labels):
    """Every anchor and every candidate, one by one."""
    n = len(z1)
    z = torch.cat([z1, z2])
    log_k = loss.kernel.log(z, z)
    rows = []
    for i in range(2 * n if loss.anchors == "both" else n):
        partner = (i + n) % (2 * n)
        negatives = [
            j
            for j in range(2 * n)
            if j % n != i % n
            and (loss.negatives.own_view if (i < n) == (j < n) else loss.negatives.other_view)
        ]
        candidates = negatives + ([partner] if loss.negatives.positive else [])
        k = {j: math.exp(log_k[i, j]) for j in candidates}
        p = {j: k[j] / sum(k.values()) for j in candidates}
        q = {j: k[j] / sum(k[j] for j in negatives) for j in negatives}
        worst = sorted(negatives, key=lambda j: -float(log_k[i, j]))
        own = lambda j, i=i: labels[j % n] == labels[i % n]
        rows.append(
            {
                "attraction": float(log_k[i, partner]),
                "repulsion": sum(p[j] * float(log_k[i, j]) for j in candidates),
                "entropy": -sum(x * math.log(x) for x in p.values()),
                "effective_negatives": math.exp(-sum(x * math.log(x) for x in q.values())),
                "bound": max(float(log_k[i, j]) for j in candidates)
                + math.log(len(candidates))
                - float(log_k[i, partner]),
                "margin": float(log_k[i, partner] - log_k[i, worst[0]]),
                "false_hardest": own(worst[0]),
                "false_hardest_k": np.mean([own(j) for j in worst[:3]]),
                "false_mass": sum(q[j] for j in negatives if own(j)),
                "false_all": np.mean([own(j) for j in negatives]),
            }
        )
    return {key: np.mean([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("negatives", NEGATIVES, ids=repr)
@pytest.mark.parametrize("anchors", ["both", "first"])
def test_anatomy_is_the_naive_loop_and_the_loss(kernel, negatives, anchors, monkeypatch):
    module = import_module("chiaroscuro.diagnostics.geometry.anatomy")
    monkeypatch.setattr(module, "TILE", 5)
    monkeypatch.setattr(module, "DIFFERENCES", 100)
    z1, z2 = views()
    labels = np.arange(14) % 3
    loss = cs.InfoNCE(kernel, negatives, anchors)
    found = anatomy(z1, z2, loss, labels, n_hardest=3)
    for key, value in naive(z1, z2, loss, labels).items():
        assert getattr(found, key) == pytest.approx(value, abs=1e-9), key
    assert found.loss == pytest.approx(float(loss(z1, z2)))
    assert found.loss == pytest.approx(found.repulsion + found.entropy - found.attraction)
    terms = loss.terms(z1, z2)
    assert found.attraction == pytest.approx(float(terms["attract"]))
    assert found.repulsion + found.entropy == pytest.approx(float(terms["repel"]))
    assert -1e-12 <= found.bound - found.loss <= math.log(negatives.count(14)) + 1e-12
    assert found.gap == pytest.approx(found.bound - found.loss)


def test_a_collapsed_batch():
    z = torch.ones(6, 3)
    for negatives, m in ((cs.AllButPair(), 10), (cs.AllButSelf(), 11)):
        found = anatomy(z, z, Contrast(cs.Cosine(0.2), negatives))
        assert found.loss == pytest.approx(math.log(m))
        assert found.entropy == pytest.approx(math.log(m))
        assert found.gap == pytest.approx(0)
        assert found.effective_negatives == pytest.approx(10)
        assert found.won == 0


def test_a_cold_batch_sees_one_negative():
    z1, z2 = views(30)
    widths = [
        anatomy(z1, z2, Contrast(cs.Cosine(tau))).effective_negatives
        for tau in (10.0, 1.0, 0.1, 0.01, 1e-4)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 57
    assert widths[-1] == pytest.approx(1, abs=0.05)
    cold = anatomy(z1, z2, Contrast(cs.Cosine(1e-4), cs.AllButPair()))
    assert cold.gap == pytest.approx(math.log(58), abs=0.05)


def test_the_printed_bound_fails_where_the_positive_is_a_candidate():
    """With the hardest negative alone and log 2(n-1) it is one for `AllButPair` only."""
    z1, z2 = torch.eye(4), torch.eye(4)
    n, tau = 4, 0.05
    printed = -1 / tau + 0.0 + math.log(2 * (n - 1))
    assert anatomy(z1, z2, Contrast(cs.Cosine(tau), cs.AllButPair())).loss <= printed + 1e-9
    nt_xent = anatomy(z1, z2, Contrast(cs.Cosine(tau), cs.AllButSelf()))
    assert nt_xent.loss > printed + 1
    assert nt_xent.loss <= nt_xent.bound


def test_hardest_negatives_are_named_by_their_rows():
    z1, z2 = views(40, noise=0.01)
    z1[7], z2[7] = z1[3] + 0.001, z2[3] + 0.001
    found = anatomy(z1, z2, Contrast(cs.Gaussian(0.1)), n_hardest=2)
    assert set(found.hardest[3]) == {7}
    some = anatomy(z1, z2, rows=10)
    assert some.n == 10
    assert set(some.hardest.ravel()) <= set(some.rows) <= set(range(40))
    assert some.false_hardest is None


def test_sentences():
    z1, z2 = views()
    with pytest.raises(InputError, match="label for each of 14 rows; received"):
        anatomy(z1, z2, labels=np.zeros(3, int))
    with pytest.raises(InputError, match=r"paired rows; received \(14, 4\) and \(13, 4\)"):
        anatomy(z1, z2[1:])
    with pytest.raises(InputError, match="at least 2 rows"):
        anatomy(z1[:1], z2[:1])
    constant = anatomy(z1, z2, labels=np.zeros(14, int))
    assert constant.false_all == constant.false_hardest == pytest.approx(1)
