"""Instances of every exported kernel, negatives and objective: the laws run over all of them.

They are made from the signatures of the exported classes, so that a new class needs no line here;
what is listed by hand comes on top.

Dimension 4 throughout, so that a concatenation can hold a concatenation.
"""

import collections.abc
import copy
import inspect
import typing

import torch

import chiaroscuro as cs

__all__ = [
    "ANCHORS",
    "BATCH_NEGATIVES",
    "KERNELS",
    "NEGATIVES",
    "OBJECTIVES",
    "D",
    "call",
    "double",
    "exported",
    "extras",
    "instances",
    "labels",
    "pair",
]

D = 4
"""The dimension that every instance accepts."""

PER_DIMENSION = [1.0, 0.7, 0.4, 1.5]
ANCHORS = ("both", "first")


def instances(cls):
    """Objects of an exported class, made from the types of its parameters alone.

    One for each value of each parameter, the others at their first: so a class that is exported is
    under all laws at once. A parameter of a type that is not here needs a default.
    """
    signature, hints = inspect.signature(cls), typing.get_type_hints(cls.__init__)
    choices = {p.name: values(cls, p, hints.get(p.name)) for p in signature.parameters.values()}
    first = {name: some[0] for name, some in choices.items()}
    varied = [{**first, name: value} for name, some in choices.items() for value in some[1:]]
    return [made(cls, signature, arguments) for arguments in (first, *varied)]


def values(cls, parameter, hint):
    """What a parameter may be, its default first."""
    default = [] if parameter.default is parameter.empty else [parameter.default]
    kinds = {hint, *typing.get_args(hint)}
    if parameter.kind is parameter.VAR_POSITIONAL:
        many = {"kernels": (cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5))}
        many["members"] = ((0.8, cs.InfoNCE(cs.Laplace(tau=0.5))), (0.2, cs.VICReg()))
        return [many[parameter.name]]
    if parameter.name == "tau":
        learnt = [cs.Learnable(0.3, least=0.05), cs.Learnable(PER_DIMENSION)]
        return [0.5, PER_DIMENSION, *learnt] if issubclass(cls, cs.Kernel) else [0.5]
    if not default and hint is float:
        return [0.5, 1.5, 2.0, 3.0]
    if cs.Kernel in kinds:
        return [*default, cs.Laplace(tau=0.5), cs.Dot(tau=cs.Learnable(0.8))][-2:]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, cs.Kernel):
            return [kind(tau=0.5), kind(tau=cs.Learnable(0.8))]
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    if not default and hint == collections.abc.Sequence[int]:
        return [(1, 3), (2, D)]
    if cs.Objective in kinds:
        return [*default, cs.InfoNCE(cs.Laplace(tau=0.5))]
    if not default and hint is int:
        return [{"start": 1, "stop": 3}.get(parameter.name, 2)]
    if hint is float and isinstance(parameter.default, float):
        return [parameter.default, accepted(cls, parameter)]
    if hint is bool:
        return [parameter.default, not parameter.default]
    assert default, f"`{cls.__name__}({parameter.name}: {hint})` needs a default, or a line here"
    return default


def accepted(cls, parameter):
    """A number unlike the default: a larger one, or half of it where that is refused."""
    larger = 2 * parameter.default + 1
    try:
        cls(**{parameter.name: larger})
    except cs.InputError:
        return parameter.default / 2
    return larger


def made(cls, signature, arguments):
    """The object of these arguments."""
    many = [p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]
    named = {name: value for name, value in arguments.items() if name not in many}
    return cls(*(item for name in many for item in arguments[name]), **named)


def exported(base):
    """Every finished class of a kind that the package exports."""
    return [cls for cls in cs.NAMES.values() if issubclass(cls, base)]


_FURTHER = [  # small temperatures, and powers of their own
    cs.Cosine(tau=0.07),
    cs.Exponential(gamma=1.5, tau=PER_DIMENSION),
    cs.Lp(p=1, tau=PER_DIMENSION),
    cs.Lp(p=1.5, tau=cs.Learnable(0.9)),
    cs.Lp(p=3, tau=cs.Learnable(PER_DIMENSION)),
    cs.StudentT(nu=3.0, tau=PER_DIMENSION),
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
_MIXED = [
    cs.Sum(cs.Cauchy(tau=0.5), cs.Gaussian(tau=0.5), cs.Laplace(tau=cs.Learnable(0.5))),
    cs.Concat(cs.StudentT(nu=2.0, tau=cs.Learnable(0.5)), cs.Cauchy(tau=[0.5, 1.0])),
]
_GENERATED = [kernel for cls in exported(cs.Kernel) for kernel in instances(cls)]
KERNELS = {repr(kernel): kernel for kernel in _GENERATED + _FURTHER + _MIXTURES + _MIXED}

NEGATIVES = {cls.__name__: cls() for cls in exported(cs.pairwise.Negatives)}
BATCH_NEGATIVES = {name: x for name, x in NEGATIVES.items() if x.own_view or x.other_view}
"""Those that take a negative from the batch, and need no queue."""

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
    cs.SigLIP(cs.Cosine(tau=0.3), bias=-1.0),
    cs.SigLIP(cs.Gaussian(tau=cs.Learnable(0.5)), bias=0.5),
    cs.Debiased(cs.Cosine(tau=cs.Learnable(0.4)), prior=0.2, beta=1.5),
    cs.Debiased(prior=0.9, anchors="first"),
    cs.Debiased(prior=0.0),
    cs.Grouped(cs.InfoNCE(cs.Gaussian(tau=0.5), cs.AllButPair(), anchors="first")),
    cs.Grouped(cs.InfoNCE(cs.Cosine(tau=cs.Learnable(0.5)), cs.OtherView())),
    cs.Grouped(cs.SigLIP(cs.Cosine(tau=0.3), bias=-1.0)),
    cs.Matryoshka(cs.InfoNCE(cs.Cosine(tau=cs.Learnable(0.5))), (1, 3, 4), weights=(0.5, 1.0, 2.0)),
    cs.Matryoshka(cs.BYOL(), (2, 4)),
    cs.DINO(tau=0.3, target_tau=0.2, centring="sinkhorn", iterations=5),
    cs.DINO(tau=0.3, target_tau=0.2),
    cs.SwAV(tau=0.4, epsilon=0.3, iterations=2),
    cs.NNCLR(cs.Gaussian(tau=cs.Learnable(0.5))),
]
_OBJECTIVES += [objective for cls in exported(cs.Objective) for objective in instances(cls)]
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


def extras(objective, z1, y=None):
    """The labels and the queue that an objective needs, by name; a queue no format rounds."""
    more = {}
    if "labels" in objective.takes:
        more["labels"] = labels(len(z1)) if y is None else y
    if "queue" in objective.needs:
        rows = torch.arange(3 * z1.shape[1]).reshape(3, -1) * 7 % 5 - 1.75
        more["queue"] = rows.to(z1.dtype)
    return more


def call(objective, z1, z2, y=None, **more):
    """The loss, with labels and a queue where the objective needs them."""
    return objective(z1, z2, **extras(objective, z1, y), **more)


def double(module):
    """A copy with its temperatures in float64, so that they round no more than the embeddings."""
    return copy.deepcopy(module).double()
