"""One or more instances of every kernel, negatives and objective: the laws run over all of them.

Dimension 4 throughout, so that a concatenation can hold a concatenation.
"""

import copy

import torch

import chiaroscuro as cs

__all__ = ["ANCHORS", "KERNELS", "NEGATIVES", "OBJECTIVES", "D", "call", "double", "labels", "pair"]

D = 4
"""The dimension that every instance accepts."""

PER_DIMENSION = [1.0, 0.7, 0.4, 1.5]
ANCHORS = ("both", "first")
NEGATIVES = {
    type(x).__name__: x
    for x in (cs.AllButSelf(), cs.AllButPair(), cs.OtherView(), cs.SameView(), cs.OnlyPositive())
}

_LEAVES = [
    cs.Cosine(tau=0.5),
    cs.Cosine(tau=0.07),
    cs.Cosine(tau=PER_DIMENSION),
    cs.Cosine(tau=cs.Learnable(0.2)),
    cs.Cosine(tau=cs.Learnable(PER_DIMENSION, least=0.01)),
    cs.Dot(tau=1.0),
    cs.Dot(tau=PER_DIMENSION),
    cs.Dot(tau=cs.Learnable(0.8)),
    cs.Gaussian(tau=0.5),
    cs.Gaussian(tau=PER_DIMENSION),
    cs.Gaussian(tau=cs.Learnable(0.3, least=0.05)),
    cs.Gaussian(tau=cs.Learnable(PER_DIMENSION)),
    cs.Laplace(tau=0.5),
    cs.Laplace(tau=PER_DIMENSION),
    cs.Laplace(tau=cs.Learnable(0.6)),
    cs.Exponential(gamma=0.5, tau=0.5),
    cs.Exponential(gamma=1.5, tau=PER_DIMENSION),
    cs.Exponential(gamma=2, tau=1.0),
    cs.Exponential(gamma=3, tau=2.0),
    cs.Exponential(gamma=0.5, tau=cs.Learnable(PER_DIMENSION)),
    cs.Lp(p=0.5, tau=1.0),
    cs.Lp(p=1, tau=PER_DIMENSION),
    cs.Lp(p=2, tau=0.7),
    cs.Lp(p=3, tau=2.0),
    cs.Lp(p=1.5, tau=cs.Learnable(0.9)),
    cs.Lp(p=3, tau=cs.Learnable(PER_DIMENSION)),
]
_MIXTURES = [
    cs.Sum(cs.Laplace(tau=0.5)),
    cs.Sum(cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5)),
    cs.Sum(cs.Gaussian(tau=0.5), cs.Gaussian(tau=2.0), weights=(1.0, 3.0)),
    cs.Sum(cs.Cosine(tau=0.5), cs.Cosine(tau=0.1), cs.Dot(tau=1.0), weights=(2.0, 0.5, 1.0)),
    cs.Sum(cs.Gaussian(tau=cs.Learnable(0.5)), cs.Laplace(tau=cs.Learnable(0.5))),
    cs.Sum(cs.Cosine(tau=cs.Learnable(0.3)), cs.Gaussian(tau=PER_DIMENSION), cs.Lp(p=3, tau=2.0)),
    cs.Sum(cs.Exponential(0.5, tau=1.0), cs.Exponential(2, tau=1.0), cs.Exponential(1.5, tau=1.0)),
    cs.Sum(
        cs.Sum(cs.Gaussian(tau=0.5), cs.Lp(p=1, tau=1.0), weights=(1.0, 2.0)),
        cs.Concat(cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5)),
        weights=(0.5, 3.0),
    ),
    cs.Concat(cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5)),
    cs.Concat(cs.Cosine(tau=0.5), cs.Gaussian(tau=[0.5, 1.0])),
    cs.Concat(cs.Gaussian(tau=cs.Learnable(0.5)), cs.Lp(p=1.5, tau=cs.Learnable([0.5, 2.0]))),
    cs.Concat(
        cs.Sum(cs.Gaussian(tau=0.5), cs.Exponential(0.5, tau=1.0)),
        cs.Concat(cs.Laplace(tau=1.0), cs.Dot(tau=2.0)),
    ),
]
KERNELS = {repr(kernel): kernel for kernel in _LEAVES + _MIXTURES}

_OBJECTIVES = [
    cs.InfoNCE(),
    cs.InfoNCE(cs.Gaussian(tau=0.3), cs.AllButPair()),
    cs.InfoNCE(cs.Cosine(tau=0.07), cs.OtherView()),
    cs.InfoNCE(cs.Dot(tau=1.0), cs.OtherView(), anchors="first"),
    cs.InfoNCE(cs.Lp(p=3, tau=PER_DIMENSION), cs.SameView()),
    cs.InfoNCE(cs.Sum(cs.Gaussian(tau=0.5), cs.Laplace(tau=cs.Learnable(0.5)))),
    cs.SupCon(),
    cs.SupCon(cs.Dot(tau=cs.Learnable(1.5))),
    cs.SupCon(cs.Gaussian(tau=0.5)),
    cs.SupCon(cs.Concat(cs.Laplace(tau=0.5), cs.Cosine(tau=0.5))),
    cs.Generalised(),
    cs.Generalised("log", cs.Laplace(tau=0.5)),
    cs.Generalised("identity", cs.Gaussian(tau=1.0), anchors="first"),
    cs.Generalised("sqrt", cs.Sum(cs.Gaussian(tau=1.0), cs.Laplace(tau=2.0))),
    cs.VICReg(),
    cs.VICReg(invariance=1.0, variance=2.0, covariance=3.0, eps=1e-3),
    cs.BYOL(),
    cs.BYOL(normalise=False),
    cs.BarlowTwins(),
    cs.BarlowTwins(redundancy=0.5),
    cs.SpectralContrastive(),
    cs.AlignUniform(),
    cs.AlignUniform(align=2.0, uniform=0.5, alpha=1.0, t=3.0),
    cs.OnDims(cs.InfoNCE(cs.Laplace(tau=0.5)), 1, 3),
    cs.Weighted((0.8, cs.InfoNCE(cs.Laplace(tau=0.5))), (0.2, cs.InfoNCE(cs.Gaussian(tau=0.5)))),
    cs.Weighted((1.0, cs.VICReg()), (0.5, cs.OnDims(cs.BarlowTwins(), 0, 2))),
]
OBJECTIVES = {repr(objective): objective for objective in _OBJECTIVES}


def pair(n: int = 5, d: int = D, dtype=torch.float64, seed: int = 0, queue: int = 0):
    """Two views that are related but not equal, with rows of different lengths; perhaps a queue."""
    g = torch.Generator().manual_seed(seed)
    z1 = torch.randn(n, d, generator=g, dtype=torch.float64)
    z2 = 0.7 * z1 + 0.5 * torch.randn(n, d, generator=g, dtype=torch.float64)
    views = [z1, z2]
    if queue:
        views.append(torch.randn(queue, d, generator=g, dtype=torch.float64))
    return [z.to(dtype).requires_grad_() for z in views]


def labels(n: int):
    """Labels with classes of one, two and more samples."""
    return torch.tensor([(i * i) % 3 + 4 for i in range(n)])


def call(objective, z1, z2, y=None):
    """The loss, with labels where the objective takes them."""
    if "labels" not in objective.takes:
        return objective(z1, z2)
    return objective(z1, z2, labels(len(z1)) if y is None else y)


def double(module):
    """A copy with its temperatures in float64, so that they round no more than the embeddings."""
    return copy.deepcopy(module).double()
