"""Chiaroscuro: contrastive representation learning, one small algebra of kernels and negatives.

The public door. Names arrive when they are first used, so `import chiaroscuro` costs nothing and
works where torch is not needed.

Example:
    >>> import chiaroscuro as cs
    >>> cs.InfoNCE(cs.Gaussian(tau=0.1), cs.AllButPair())
    InfoNCE(kernel=Gaussian(tau=0.1), negatives=AllButPair(), anchors='both')
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chiaroscuro import (
        artifacts,
        data,
        diagnostics,
        dynamics,
        engine,
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
    from chiaroscuro.objectives import (
        BYOL,
        AlignUniform,
        BarlowTwins,
        Generalised,
        InfoNCE,
        Objective,
        OnDims,
        SpectralContrastive,
        SupCon,
        VICReg,
        Weighted,
    )
    from chiaroscuro.pairwise import AllButPair, AllButSelf, OnlyPositive, OtherView, SameView
    from chiaroscuro.report import report
    from chiaroscuro.tuning import tune

    NAMES: dict[str, type]

__version__ = "0.1.0"

__all__ = [
    "BYOL",
    "NAMES",
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
    "Dot",
    "Embeddings",
    "Exponential",
    "Gaussian",
    "Generalised",
    "InfoNCE",
    "InputError",
    "Kernel",
    "Laplace",
    "Learnable",
    "Lp",
    "Objective",
    "OnDims",
    "OnlyPositive",
    "OtherView",
    "Run",
    "SameView",
    "SpectralContrastive",
    "StudentT",
    "Sum",
    "SupCon",
    "VICReg",
    "Weighted",
    "artifacts",
    "data",
    "diagnostics",
    "dynamics",
    "embed",
    "engine",
    "graphs",
    "kernels",
    "labs",
    "models",
    "objectives",
    "pairwise",
    "parse",
    "report",
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
        "Objective InfoNCE SupCon OnDims Weighted Generalised "
        "VICReg BYOL BarlowTwins SpectralContrastive AlignUniform"
    ),
    "artifacts": "Run Embeddings",
    "engine": "train embed",
    "engine.estimator": "ContrastiveEmbedding",
    "tuning": "tune",
}
_ALGEBRA = ("kernels", "pairwise", "objectives")
_ROOMS = {
    *("errors", "numerics", "spec", "measures", "artifacts", "data", "views", "models"),
    *("kernels", "pairwise", "objectives", "graphs", "dynamics", "diagnostics", "engine", "labs"),
    "tuning",
    "report",  # a room that can be called
}
_WHERE = {name: room for room, names in _HOME.items() for name in names.split()}


def parse(text: str) -> Any:
    """The object that `text` denotes, from the names of this door.

    Args:
        text: for example `"InfoNCE(Sum(Gaussian(tau=0.5), Laplace(tau=0.5)))"`.

    Example:
        >>> parse("Gaussian(tau=0.1)")
        Gaussian(tau=0.1)
    """
    from chiaroscuro import spec

    return spec.parse(text, __getattr__("NAMES"))


def diagnose(
    subject: Any,
    objective: Any = None,
    batch: int | None = None,
    rows: int = 50_000,
    seed: int = 0,
    task: Any = None,
) -> Any:
    """What is wrong with embeddings, if anything, and what to change: a `Diagnosis`.

    Of a run it looks at 2,048 rows of its data and two views of each, and knows its settings and
    history; the diagnosis is also left in the run folder as `diagnosis.json`.

    Args:
        subject: a `Run` or its folder, `Embeddings`, a matrix, a dictionary of arrays, or an `.npz`
            or `.npy` file.
        objective: that made the embeddings, or its text; a run knows its own.
        batch: pairs of a step; a run knows its own.
        rows: look at so many at most, drawn by the seed.
        seed: of everything that is drawn.
        task: what the embeddings are meant for, as arrays `symbols`, `contexts` and `labels` (or an
            `.npz` of them), with `pair_symbols` and `pair_contexts` of the contrastive data if they
            differ: will these data help?

    Example:
        >>> import numpy as np
        >>> diagnose(np.ones((100, 8))).findings[0].name
        'full_collapse'
    """
    import os

    from chiaroscuro import diagnostics
    from chiaroscuro.artifacts import Run

    path = isinstance(subject, str | os.PathLike)
    run = Run.open(subject) if path and os.path.isdir(subject) else subject
    aim = diagnostics.read_task(task)
    if isinstance(run, Run):
        return _diagnose_run(run, min(rows, 2048), seed, aim)
    loss = parse(objective) if isinstance(objective, str) else objective
    return diagnostics.diagnose(subject, diagnostics.About(loss, batch, task=aim), rows, seed)


def _diagnose_run(run: Any, rows: int, seed: int, task: Any) -> Any:
    import dataclasses

    from chiaroscuro import diagnostics, engine

    settings = engine.Settings.of(run.settings())
    networks = engine.load_networks(run)
    projector = networks.projectors[0]
    bends = getattr(projector, "last", "none") == "unit"  # dividing by a norm is not affine
    first, second = engine.view_parameters(settings, rows) or (None, None)
    about = diagnostics.About(
        loss=engine.contrast_of(settings),
        batch=settings.batch,
        queue=settings.network.queue,
        settings=settings.table(),
        history=run.history().records,
        projector=None if bends else projector,
        parameters=second,
        first_parameters=first,
        model=networks.encoders[0],
        inputs=engine.inputs_of(settings, rows),
        task=task,
    )
    found = diagnostics.diagnose(engine.examine(run, rows), about, rows, seed)
    found = dataclasses.replace(found, subject=run.folder.name or str(run.folder))
    run.write_diagnosis(found.json())
    return found


def _names() -> dict[str, type]:
    """Every finished class of the algebra at this door: no other derives from it."""
    rooms = [importlib.import_module(f"chiaroscuro.{room}") for room in _ALGEBRA]
    exported = {name: getattr(room, name) for room in rooms for name in room.__all__}
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
