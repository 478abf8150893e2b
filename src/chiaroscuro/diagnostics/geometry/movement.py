"""Invariance: how far each augmentation moves the embedding, by its recorded parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.diagnostics.rows import pairs_of
from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record
from chiaroscuro.numerics import unit

__all__ = ["Effect", "Movement", "movement", "parameter_columns"]

BINS = 5


@dataclass(frozen=True, eq=False)
class Effect(Record):
    """Effect of one parameter: the `share` of the movement's variance that it explains alone.

    `levels` are the middles of the groups of equal or neighbouring values, `moved` the mean
    movement in each, `counts` how many samples they hold.
    """

    share: float
    levels: np.ndarray
    moved: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class Movement(Record):
    """Distance between views: `mean`, that of `strangers` (other samples), and their `ratio`.

    `effects` by parameter, the strongest first; `explained` the share of the variance that all of
    them explain together, as a sum of their groups' effects.
    """

    mean: float
    strangers: float
    ratio: float
    effects: dict[str, Effect]
    explained: float
    n: int


def movement(h1: Any, h2: Any, parameters: Any, parameters2: Any = None) -> Movement:
    """Measure how far an augmentation moves the embedding, and which parameters cause it.

        m_i = |u2_i - u1_i|^2,   u = h / |h|;   share_p = 1 - var(m within groups of p) / var(m)

    Groups are the values of a parameter where it has at most five, else fifths of its range by
    rank. share is corrected for what groups explain by chance (as adjusted R^2 is), so 0, or a
    little below, means that the parameter moves nothing that shows; 1 that it alone decides how far
    a sample moves. ratio is 0 for an invariant embedding and 1 for one in which two views are as
    far apart as two samples.

    Relations: mean is `alignment(h1, h2)`; strangers is 2 - 2 times the mean cosine of different
    samples of the two views.

    Args:
        h1, h2: embeddings of two views, (n, d), n >= 4; h1 may be those of the samples themselves.
        parameters: structured array of n rows, as views return them, of the second view; a field
            of several numbers counts as several parameters, `order[0]` and so on.
        parameters2: those of the first view, if it was augmented too: then the differences of
            numbers count, and whether flags differ.

    Example:
        >>> angle = np.linspace(0, 1, 200)
        >>> omega = np.zeros(200, dtype=[("angle", float), ("flip", bool)])
        >>> omega["angle"], omega["flip"] = angle, np.arange(200) % 2
        >>> h1 = np.tile([1.0, 0.0], (200, 1))
        >>> moved = movement(h1, np.c_[np.cos(angle), np.sin(angle)], omega)
        >>> list(moved.effects), round(moved.effects["angle"].share, 1)
        (['angle', 'flip'], 1.0)
    """
    call = "movement(h1, h2, parameters)"
    x1, x2 = pairs_of(call, h1, h2, 4)
    u1, u2 = unit(x1), unit(x2)
    n = len(u1)
    columns = parameter_columns(call, parameters, n)
    if parameters2 is not None:
        others = parameter_columns(call, parameters2, n)
        need(
            list(others) == list(columns),
            lambda: f"`{call}` needs the same parameters of both views; received {list(others)}.",
        )
        columns = {name: np.abs(values - others[name]) for name, values in columns.items()}
    m = (u1 - u2).square().sum(dim=1).numpy()
    cross = float(u1.sum(dim=0) @ u2.sum(dim=0) - (u1 * u2).sum()) / (n * (n - 1))
    sizes = [float(u.square().sum(dim=1).mean()) for u in (u1, u2)]
    strangers = sum(sizes) - 2 * cross
    groups = {name: _groups(values) for name, values in columns.items()}
    effects = {name: _effect(columns[name], group, m) for name, group in groups.items()}
    order = sorted(effects, key=lambda name: -effects[name].share)
    return Movement(
        mean=float(m.mean()),
        strangers=strangers,
        ratio=float(m.mean()) / strangers if strangers > 1e-12 else 0.0,
        effects={name: effects[name] for name in order},
        explained=_share(m, _dummies(groups)),
        n=n,
    )


def parameter_columns(call: str, parameters: Any, n: int) -> dict[str, np.ndarray]:
    """Each number of the structured rows as a column of floats."""
    omega = np.asarray(parameters)
    need(
        omega.dtype.names is not None and omega.shape == (n,),
        lambda: (
            f"`{call}` needs parameters as a structured array of {n} rows, as views return them; "
            f"received {omega.dtype} of shape {omega.shape}."
        ),
    )
    columns: dict[str, np.ndarray] = {}
    for name in omega.dtype.names or ():
        if omega[name].dtype.names is not None:  # the record of a member of a `Chain`
            inside = parameter_columns(call, omega[name], n)
            columns |= {f"{name}.{key}": values for key, values in inside.items()}
            continue
        values = omega[name].reshape(n, -1)
        need(
            values.dtype.kind in "biuf" and bool(np.isfinite(values).all()),
            lambda name=name: f"`{call}` needs finite numbers; the parameter `{name}` has others.",
        )
        several = omega[name].ndim > 1
        for k in range(values.shape[1]):
            columns[f"{name}[{k}]" if several else name] = values[:, k].astype(np.float64)
    return columns


def _groups(values: np.ndarray) -> np.ndarray:
    """The number of each sample's group: of equal values, or of neighbouring ones by rank."""
    distinct, which = np.unique(values, return_inverse=True)
    if len(distinct) <= BINS:
        return which
    cuts = np.unique(np.quantile(values, np.arange(1, BINS) / BINS))
    return np.unique(np.searchsorted(cuts, values, side="left"), return_inverse=True)[1]


def _dummies(groups: dict[str, np.ndarray]) -> np.ndarray:
    """A column for each group but the first of each parameter."""
    columns = [
        group[:, None] == np.arange(1, group.max() + 1) for group in groups.values() if group.max()
    ]
    n = len(next(iter(groups.values()))) if groups else 0
    return np.concatenate(columns, axis=1).astype(np.float64) if columns else np.zeros((n, 0))


def _share(m: np.ndarray, X: np.ndarray) -> float:
    """Adjusted R^2 of the movement on the columns."""
    n, y = len(m), m - m.mean()
    total = float(y @ y)
    if total < 1e-24 * max(1.0, float(m @ m)) or not X.shape[1]:
        return 0.0
    X = X - X.mean(axis=0)
    fit, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
    left = float(((y - X @ fit) ** 2).sum())
    freedom = n - 1 - int(rank)
    return 1 - left / total * (n - 1) / freedom if freedom > 0 else 0.0


def _effect(values: np.ndarray, group: np.ndarray, m: np.ndarray) -> Effect:
    counts = np.bincount(group)
    return Effect(
        share=_share(m, _dummies({"": group})),
        levels=np.bincount(group, weights=values) / counts,
        moved=np.bincount(group, weights=m) / counts,
        counts=counts,
    )
