"""Chiaroscuro: contrastive representation learning, one small algebra of kernels and negatives.

Names arrive when they are first used, so `import chiaroscuro` costs nothing and works where torch
is not needed.

Example:
    >>> import chiaroscuro as cs
    >>> cs.InfoNCE(cs.Gaussian(tau=0.1), cs.AllButPair())
    InfoNCE(kernel=Gaussian(tau=0.1), negatives=AllButPair(), anchors='both')
"""

import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chiaroscuro import (
        artifacts,
        data,
        diagnostics,
        dynamics,
        engine,
        exporting,
        finetuning,
        graphs,
        kernels,
        labs,
        models,
        objectives,
        pairwise,
        spec,
        tuning,
        views,
    )
    from chiaroscuro.artifacts import Embeddings, Run
    from chiaroscuro.engine import embed, train
    from chiaroscuro.engine.estimator import ContrastiveEmbedding
    from chiaroscuro.errors import ChiaroError, InputError
    from chiaroscuro.exporting import export, load_pretrained, save_pretrained
    from chiaroscuro.finetuning import finetune
    from chiaroscuro.kernels import (
        Adaptive,
        Balanced,
        Cauchy,
        Concat,
        Cosine,
        Dot,
        Exponential,
        Gaussian,
        Kernel,
        Laplace,
        Learnable,
        Lp,
        StudentT,
        Sum,
    )
    from chiaroscuro.mining import mine
    from chiaroscuro.objectives import (
        BYOL,
        DINO,
        NNCLR,
        AlignUniform,
        BarlowTwins,
        Debiased,
        Generalised,
        Grouped,
        InfoNCE,
        Matryoshka,
        Objective,
        OnDims,
        SigLIP,
        SimSiam,
        SpectralContrastive,
        SupCon,
        SwAV,
        VICReg,
        Weighted,
    )
    from chiaroscuro.pairwise import AllButPair, AllButSelf, OnlyPositive, OtherView, SameView
    from chiaroscuro.tuning import tune
    from chiaroscuro.verbs import compare, diagnose, evaluate, report

    NAMES: dict[str, type]

__version__ = "0.1.0"

__all__ = [
    "BYOL",
    "DINO",
    "NAMES",
    "NNCLR",
    "Adaptive",
    "AlignUniform",
    "AllButPair",
    "AllButSelf",
    "Balanced",
    "BarlowTwins",
    "Cauchy",
    "ChiaroError",
    "Concat",
    "ContrastiveEmbedding",
    "Cosine",
    "Debiased",
    "Dot",
    "Embeddings",
    "Exponential",
    "Gaussian",
    "Generalised",
    "Grouped",
    "InfoNCE",
    "InputError",
    "Kernel",
    "Laplace",
    "Learnable",
    "Lp",
    "Matryoshka",
    "Objective",
    "OnDims",
    "OnlyPositive",
    "OtherView",
    "Run",
    "SameView",
    "SigLIP",
    "SimSiam",
    "SpectralContrastive",
    "StudentT",
    "Sum",
    "SupCon",
    "SwAV",
    "VICReg",
    "Weighted",
    "artifacts",
    "compare",
    "data",
    "diagnose",
    "diagnostics",
    "dynamics",
    "embed",
    "engine",
    "evaluate",
    "export",
    "exporting",
    "finetune",
    "finetuning",
    "graphs",
    "kernels",
    "labs",
    "load_pretrained",
    "mine",
    "models",
    "objectives",
    "pairwise",
    "parse",
    "report",
    "save_pretrained",
    "spec",
    "train",
    "tune",
    "tuning",
    "views",
]

_HOME = {
    "errors": "ChiaroError InputError",
    "kernels": (
        "Kernel Learnable Adaptive Balanced Cosine Dot Gaussian Laplace Exponential Lp Cauchy "
        "StudentT Sum Concat"
    ),
    "pairwise": "AllButSelf AllButPair OtherView SameView OnlyPositive",
    "objectives": (
        "Objective InfoNCE SupCon OnDims Weighted Matryoshka Grouped Generalised Debiased SigLIP "
        "VICReg BYOL SimSiam DINO SwAV NNCLR BarlowTwins SpectralContrastive AlignUniform"
    ),
    "artifacts": "Run Embeddings",
    "engine": "train embed",
    "engine.estimator": "ContrastiveEmbedding",
    "tuning": "tune",
    "verbs": "compare diagnose evaluate report",
    "exporting": "export load_pretrained save_pretrained",
    "finetuning": "finetune",
    "mining": "mine",
}
_ALGEBRA = ("kernels", "pairwise", "objectives")
_ROOMS = {
    *("errors", "numerics", "spec", "measures", "artifacts", "data", "views", "models"),
    *("kernels", "pairwise", "objectives", "graphs", "dynamics", "diagnostics", "engine", "labs"),
    "exporting",
    "finetuning",
    "tuning",
}
_WHERE = {name: package for package, names in _HOME.items() for name in names.split()}


def parse(text: str) -> Any:
    """Return the object that a text denotes: a kernel, an objective, a view, a model, or data.

    Every name that settings know is known here.

    Args:
        text: for example `"InfoNCE(Sum(Gaussian(tau=0.5), Laplace(tau=0.5)))"`,
            `"SimCLR(size=32)"`, `"ResNet(depth=18)"` or `"digits(shift=0.2)"`.

    Example:
        >>> parse("Gaussian(tau=0.1)")
        Gaussian(tau=0.1)
        >>> parse("MLP(d_in=3, d=2)").d
        2
    """
    from chiaroscuro import spec
    from chiaroscuro.data import is_data, open_data

    return open_data(text) if is_data(text) else spec.parse(text, _every_name())


def _every_name() -> dict[str, Any]:
    """Return the classes of the algebra, views and models, and adapters to models of others."""
    from chiaroscuro import models, views

    names: dict[str, Any] = dict(__getattr__("NAMES"))
    for package, base in ((views, views.View), (models, models.Model)):
        for name in package.__all__:
            value = getattr(package, name)
            finished = isinstance(value, type) and issubclass(value, base) and value is not base
            if finished or (package is models and name.startswith("from_")):
                names[name] = value
    return names


def _names() -> dict[str, type]:
    """Return every finished class of the algebra exported here: no other derives from it."""
    packages = [importlib.import_module(f"chiaroscuro.{package}") for package in _ALGEBRA]
    exported = {name: getattr(package, name) for package in packages for name in package.__all__}
    classes = {name: value for name, value in exported.items() if isinstance(value, type)}
    bases = {base for value in classes.values() for base in value.__mro__[1:]}
    return {n: value for n, value in classes.items() if n in _WHERE and value not in bases}


def __getattr__(name: str) -> Any:
    if name in globals():
        return globals()[name]
    if name == "NAMES":
        value: Any = _names()
    elif name in _WHERE:
        value = getattr(importlib.import_module(f"chiaroscuro.{_WHERE[name]}"), name)
    elif name in _ROOMS and importlib.util.find_spec(f"chiaroscuro.{name}") is not None:
        value = importlib.import_module(f"chiaroscuro.{name}")
    else:
        raise AttributeError(f"module 'chiaroscuro' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})


class _Package(types.ModuleType):
    """A package whose `report` is the function, also after its subpackage was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "report" and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
