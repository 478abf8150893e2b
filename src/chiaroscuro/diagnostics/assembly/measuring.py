"""Every number of a diagnosis, from whatever arrays there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.assembly.classes import class_measures
from chiaroscuro.diagnostics.assembly.further import further_measures
from chiaroscuro.diagnostics.assembly.lists import (
    duplicates,
    list_suspects,
    long_rows,
    zero_rows,
)
from chiaroscuro.diagnostics.assembly.pair_signs import pair_signs
from chiaroscuro.diagnostics.assembly.signs import row_signs
from chiaroscuro.diagnostics.assembly.starts import of_symbols, start_measures
from chiaroscuro.diagnostics.geometry.anatomy import Loss, anatomy
from chiaroscuro.diagnostics.semantics.factors import survival
from chiaroscuro.measures import (
    CATALOGUE,
    METRICS,
    Closest,
    Control,
    Interval,
    Listed,
    Space,
    Spectrum,
    alignment,
    dimensions,
    hubness,
    interval,
    lidar,
    linear_agreement,
    near_duplicates,
    nearest,
    norms,
    pair_rank,
    shuffled,
    split_duplicates,
    uniform_law,
    unit,
)

__all__ = ["Context", "Measured", "linear_agreement", "measure"]

PAIRWISE = 10_000
"""Rows of which all pairs are compared, if there are more."""
PAIRS = 2048
FEW = 512
"""Rows for measures that are taken many times."""
LEAST = 64
"""Rows without which nothing is judged."""


@dataclass(frozen=True, eq=False)
class Context:
    """What is known of a training run besides its embeddings; every part is optional.

    Args:
        loss: `InfoNCE` or a `Contrast`: what is compared with what.
        batch: pairs of a step.
        queue: further candidates.
        settings: settings of the run, nested.
        history: records of the run; those with a `loss` or a `step` are used.
        projector: a module from h to z; it is taken apart if it is of linear layers and relus.
        first_projector: the same module before training.
        decay: learning rate times decay, summed over the steps; None where decay is not so simple.
        model, inputs: a module, and the samples it takes in the order of the rows.
        first_model: the module before training.
        given: which of "encoder" and "projector" were given their weights before training, loaded
            perhaps, and did not draw them.
        step: step of the weights; None takes the last of the history.
        parameters: structured array of what the second view did to each row.
        first_parameters: the same of the first view, if it was augmented too.
        task: `symbols`, `contexts` and `labels` of a downstream task, whole numbers of any length;
            with `pair_symbols` and `pair_contexts` those of the contrastive data, if others.
        metric: by which rows are neighbours, "cosine" or "euclidean".
    """

    loss: Loss | None = None
    batch: int | None = None
    queue: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    projector: nn.Module | None = None
    first_projector: nn.Module | None = None
    decay: float | None = None
    model: nn.Module | None = None
    inputs: Any = None
    first_model: nn.Module | None = None
    given: Collection[str] = ()
    step: int | None = None
    parameters: Any = None
    first_parameters: Any = None
    task: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "cosine"


@dataclass(eq=False)
class Measured:
    """Numbers by name, under shuffled pairs, with an interval; spectra, lists, curves."""

    numbers: dict[str, Any] = field(default_factory=dict)
    controls: dict[str, Control] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)
    spectra: dict[str, np.ndarray] = field(default_factory=dict)
    lists: dict[str, Listed] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)


def measure(
    embeddings: Embeddings,
    context: Context,
    seed: int = 0,
    done: Callable[[float], None] = lambda share: None,
) -> Measured:
    """All that the arrays allow.

    Args:
        embeddings: checked, as `read` gives them.
        context: what is known beside.
        seed: seed of all random choices.
        done: called with the share of the work that is done, from 0 to 1, as it goes.
    """
    out = Measured()
    draw = np.random.default_rng(seed)
    some = _some(embeddings.n, PAIRWISE, draw)
    names = [space for space in ("h", "z") if getattr(embeddings, space) is not None]
    spaces = {}
    for at, space in enumerate(names):
        part = lambda share, at=at: done(0.55 * (at + share) / len(names))
        spaces[space] = _space(out, space, embeddings, some, context.metric, part)
    if embeddings.labels is not None:
        class_measures(out, embeddings, spaces, seed)
    del spaces
    done(0.6)
    for space in ("z", "h"):
        if getattr(embeddings, f"{space}1") is not None:
            _pairs(out, space, embeddings, context, _some(embeddings.n, PAIRS, draw), seed)
    if embeddings.factors is not None:
        _factors(out, embeddings, _some(embeddings.n, PAIRS, draw), seed)
    out.numbers |= start_measures(embeddings, context, _some(embeddings.n, PAIRS, draw))
    if "paired" in embeddings.layers and embeddings.h is not None:
        _two_widths(out, embeddings, _some(embeddings.n, PAIRS, draw), seed)
    done(0.65)
    row_signs(out, embeddings, seed, context.metric)
    done(0.85)
    for space in ("z", "h"):
        if getattr(embeddings, f"{space}1") is not None:
            out.numbers |= _views_of_rows(embeddings, space)
            break
    for space in ("h", "z"):
        if getattr(embeddings, f"{space}1") is not None:
            sides = (getattr(embeddings, f"{space}{side}") for side in (1, 2))
            some = np.arange(min(embeddings.n, PAIRS))
            x1, x2 = (np.asarray(side[: len(some)], dtype=np.float64) for side in sides)
            pair_signs(out, x1, x2, some)
            break
    further_measures(out, embeddings, context, _some(embeddings.n, PAIRS, draw), seed)
    _training(out, context)
    out.numbers["metric"] = context.metric
    return out


def _some(n: int, most: int, draw: np.random.Generator) -> np.ndarray:
    return np.arange(n) if n <= most else np.sort(draw.choice(n, most, replace=False))


# ---- one space ----


def _space(
    out: Measured,
    space: str,
    embeddings: Embeddings,
    some: np.ndarray,
    metric: str,
    done: Callable[[float], None],
) -> Space:
    prefix, rows = "" if space == "h" else f"{space}_", getattr(embeddings, space)
    of = Space(rows, labels=embeddings.labels, some=some, metric=metric)
    values, sizes, each = of.spectrum, norms(rows), dimensions(rows, known=of.moments)
    idle = len(each.dead) + len(each.duplicate)
    live = max(1, min(values.n - 1, values.d - idle))
    cliff, at = _cliff(values, live)
    out.spectra[space] = values.values
    done(0.1)
    of_rows = [one for one in CATALOGUE.values() if one.of is not None and one.needs == "rows"]
    numbers: dict[str, Any] = {one.name: one(of) for one in of_rows}
    numbers |= {
        "n": of.n,
        "d": of.d,
        "room": of.room,
        "live_room": live,
        "decay": values.decay.exponent,
        "cliff": cliff,
        "cliff_at": at,
        "mean_share": values.mean_share,
        "uniformity_if_even": uniform_law(values.d),
        "norm_stretch": sizes.stretch,
        "norm_largest": sizes.largest,
        "norm_far": len(sizes.far),
        "zero_rows": sizes.zero,
        "dead_dimensions": len(each.dead),
        "duplicate_dimensions": len(each.duplicate),
    }
    done(0.7)
    if len(sizes.far):
        out.lists[f"{prefix}far"] = long_rows(space, sizes.far, of.norms)
    if sizes.zero:
        out.lists[f"{prefix}zero"] = zero_rows(space, of.norms)
    if space == "h" or not out.numbers:
        numbers |= _neighbours(out, of, embeddings.split)
        done(0.85)
        numbers |= list_suspects(out, of)
    out.numbers |= {prefix + name: value for name, value in numbers.items()}
    return of


def _cliff(values: Spectrum, live: int) -> tuple[float, int]:
    """The largest fall between neighbouring singular values, and after which of them."""
    s = values.values
    if len(s) < 3 or s[0] == 0:
        return 1.0, live
    s = np.maximum(s / s[0], 1e-12)[: min(len(s), live + 1)]
    ratios = s[1:-1] / s[2:]  # a first direction far above the others is no collapse
    if len(ratios) == 0:
        return 1.0, live
    at = int(ratios.argmax())
    return float(ratios[at]), at + 2


def _neighbours(out: Measured, of: Space, split: np.ndarray | None) -> dict[str, Any]:
    some = of.some
    if len(some) <= 20:
        return {}
    near = of.near
    hub = hubness(Closest(near.ids[:, :10], near.cosines[:, :10], np.arange(len(some)), len(some)))
    # twins are nearer than neighbours are: in few dimensions everything is near
    u = unit(of.few)
    first = u[near.ids[:, 0]] - u
    apart = float(np.quantile(np.sqrt(np.einsum("ij,ij->i", first, first)), 0.9))
    twin = near_duplicates(of.x, max(1e-6, min(0.01, 0.05 * apart)))
    out.lists["hubs"] = Listed(
        "are among the ten nearest of unusually many rows",
        some[hub.ids],
        {"among_the_ten_nearest_of": hub.counts[hub.ids]},
    )
    if twin.count:
        out.lists["duplicates"] = duplicates(twin, of.x)
    if split is not None and (held := split_duplicates(of.x, twin, split)) is not None:
        out.lists["split_duplicates"] = held
    cosine = {"nearest_cosine": float(np.median(near.cosines[:, 0]))}
    return {
        "hub_share": hub.largest / len(some),
        "orphans": hub.orphans,
        "near_duplicates": twin.share,
        "twin_distance": twin.distance,
        "exact_duplicates": twin.exact,
        **(cosine if of.metric == METRICS[0] else {}),
    }


# ---- pairs ----


def _pairs(
    out: Measured, space: str, embeddings: Embeddings, context: Context, some: np.ndarray, seed: int
) -> None:
    x1, x2 = (getattr(embeddings, f"{space}{side}")[some] for side in (1, 2))
    prefix = "" if space == "h" else f"{space}_"
    apart = ((unit(x1) - unit(x2)) ** 2).sum(axis=1)
    out.controls[f"{prefix}alignment"] = aligned = shuffled(alignment, x1, x2, seed=seed)
    out.intervals[f"{prefix}alignment"] = interval(np.mean, apart, replace=True, seed=seed)
    ranked = shuffled(pair_rank, x1, x2, repeats=2, seed=seed)
    out.controls[f"{prefix}pair_rank"] = ranked
    out.numbers[f"{prefix}alignment"] = aligned.value
    out.numbers[f"{prefix}pair_rank"] = ranked.value
    out.numbers[f"{prefix}lidar"] = lidar(x1, x2)
    if "pair_alignment" in out.numbers:  # z comes first: it is what the objective sees
        return
    out.numbers |= {"pair_alignment": aligned.value, "pair_alignment_shuffled": aligned.mean}
    out.numbers |= {"pair_nearer": ranked.value, "pair_error": 0.29 / math.sqrt(len(x1))}
    labels = None if embeddings.labels is None else embeddings.labels[some]
    if labels is not None and (labels < 0).any():
        labels = None
    loss = context.loss
    parts = anatomy(x1, x2, loss, labels, rows=None)
    for name in ("false_all", "false_mass", "false_hardest", "won", "margin"):
        out.numbers[name] = getattr(parts, name)
    if loss is None:
        return
    for name in ("loss", "attraction", "repulsion", "bound", "gap"):
        out.numbers[name] = getattr(parts, name)
    out.numbers["effective_negatives"] = parts.effective_negatives
    out.numbers["n_negatives"] = parts.n_negatives
    first, second = _tensor(x1[:FEW]), _tensor(x2[:FEW])
    out.numbers["negative_deviation"] = _deviation(loss, first, second)
    out.numbers["free_length"] = _free_length(loss, first, second)
    whole = lambda a, b: anatomy(a, b, loss, rows=None).loss
    out.controls["loss"] = shuffled(whole, x1[:FEW], x2[:FEW], repeats=3, seed=seed)
    out.numbers["cosines"] = type(loss.kernel).__name__ == "Cosine"
    if context.batch is not None and 2 <= context.batch <= len(x1):
        out.numbers["won_in_batch"] = anatomy(x1, x2, loss, rows=context.batch, seed=seed).won


def _two_widths(out: Measured, embeddings: Embeddings, some: np.ndarray, seed: int) -> None:
    """Two sides of different width: whether near in one is near in the other, row by row."""
    sides = embeddings.h[some], embeddings.layers["paired"][some]  # type: ignore[index]
    a, b = (np.asarray(side, dtype=np.float64).reshape(len(some), -1) for side in sides)
    k = min(10, len(some) - 1)
    near = [nearest(side, k).ids for side in (a, b)]
    place = np.arange(len(some))

    def shared(_: np.ndarray, order: np.ndarray) -> float:
        """The share of the nearest of i that are the nearest of its partner."""
        partner = np.empty_like(order)
        partner[order] = place  # row i is paired with row order[i] of the other side
        theirs = partner[near[1][order]]
        return float((near[0][:, :, None] == theirs[:, None, :]).any(axis=2).mean())

    control = shuffled(shared, place, place, seed=seed)
    out.controls["paired_neighbours"] = control
    # of 20 permutations the deviation is rough: at least that of as many independent draws
    error = max(control.sd, math.sqrt(max(control.mean, 1 / len(some)) / (k * len(some))))
    out.numbers |= {
        "paired_neighbours": control.value,
        "paired_by_chance": control.mean,
        "paired_score": (control.value - control.mean) / error,
        "paired_agreement": linear_agreement(a, b),
    }


def _views_of_rows(embeddings: Embeddings, space: str) -> dict[str, float]:
    """How near each side's view is to the row without a view, as a rank among the others."""
    rows = getattr(embeddings, space)
    numbers: dict[str, float] = {}
    some = np.arange(min(embeddings.n, FEW))
    for side in (1, 2):
        view = getattr(embeddings, f"{space}{side}")
        if rows is None or view is None or view.shape != rows.shape:
            continue
        a, b = np.asarray(rows[some], np.float64), np.asarray(view[some], np.float64)
        if not np.array_equal(a, b):
            numbers[f"view{side}_nearer"] = float(pair_rank(a, b))
    return numbers


def _free_length(loss: Loss, z1: Tensor, z2: Tensor) -> bool:
    """Whether rows differ in length and the kernel feels it, so that a network can choose it."""
    norms = z1.norm(dim=1)
    if norms.max() < 1.001 * norms.min():
        return False
    once, twice = _deviation(loss, z1, z2), _deviation(loss, 2 * z1, 2 * z2)
    return not math.isclose(once, twice, rel_tol=1e-3)


def _deviation(loss: Loss, z1: Tensor, z2: Tensor) -> float:
    """The deviation of log k over the negatives of an anchor, mean over anchors."""
    with torch.no_grad():
        log_k = loss.kernel.log(z1, z2).double()
    n = len(log_k)
    rest = log_k[~torch.eye(n, dtype=torch.bool)].reshape(n, n - 1)
    return float(rest.std(dim=1, correction=0).mean())


def _tensor(rows: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(rows, dtype=np.float64))


# ---- factors, layers, training ----


def _factors(out: Measured, embeddings: Embeddings, some: np.ndarray, seed: int) -> None:
    """What h and z tell of the factors, and which of them a layer before still told."""
    table = np.asarray(embeddings.factors, dtype=np.float64)[some]
    given = embeddings.factor_names
    names = [f"factor {k}" for k in range(table.shape[1])] if given is None else given.tolist()
    factors = {str(name): table[:, k] for k, name in enumerate(names) if np.ptp(table[:, k]) > 0}
    before = {
        name: np.asarray(embeddings.layers[name], dtype=np.float64)[some].reshape(len(some), -1)
        for name in ("untrained",)
        if name in embeddings.layers
    }
    after = {
        space: getattr(embeddings, space)[some]
        for space in ("h", "z")
        if getattr(embeddings, space) is not None
    }
    if not factors or len(some) < LEAST:
        return
    kinds = dict.fromkeys(factors, "number")
    readable = survival({**before, **after}, factors, kinds, rows=None, seed=seed)
    of = dict(zip(readable.layers, readable.above_chance, strict=True))
    for layer, row in of.items():
        prefix = "" if layer == "h" else f"{layer}_"
        out.numbers |= {
            f"{prefix}r2_{name}": float(r2) for name, r2 in zip(readable.factors, row, strict=True)
        }
    if "h" in of and before:
        was = np.max([of[name] for name in before], axis=0)
        lost = np.clip(was, 0, 1) - np.clip(of["h"], 0, 1)
        worst = int(lost.argmax())
        out.numbers |= {
            "lost_factor": readable.factors[worst],
            "lost_r2": float(max(of["h"][worst], 0.0)),
            "lost_before": float(was[worst]),
            "lost_from": "the untrained network",
            "lost_space": "h",
            "lost_count": int((lost >= lost[worst] / 2).sum()),
        }


def _training(out: Measured, context: Context) -> None:
    losses = [float(one["loss"]) for one in context.history if _finite(one.get("loss"))]
    if losses:
        out.numbers["first_loss"] = losses[0]
        out.numbers["last_loss"] = float(np.mean(losses[-max(1, min(10, len(losses) // 5)) :]))
    steps = [int(one["step"]) for one in context.history if _finite(one.get("step"))]
    step = max(steps, default=None) if context.step is None else context.step
    out.numbers |= {} if step is None else {"steps": step}
    out.numbers |= {} if context.decay is None else {"decay_exponent": context.decay}
    out.numbers |= {"start_given": True} if "encoder" in context.given else {}
    out.numbers |= {"projector_given": True} if "projector" in context.given else {}
    out.numbers |= {"symbols": True} if of_symbols(context.inputs) else {}
    if context.loss is None:
        return
    tau = getattr(context.loss.kernel, "tau", None)
    if tau is not None:
        value = tau.detach().cpu().numpy() if isinstance(tau, Tensor) else tau
        if isinstance(value, int | float | list | tuple | np.ndarray):
            out.numbers["tau"] = float(np.mean(value))
    if context.batch is not None:
        m = context.loss.negatives.count(context.batch) + context.queue
        out.numbers |= {"batch": context.batch, "candidates": m}
        if m > 1:
            out.numbers["collapsed_loss"] = math.log(m)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
