"""Which factors of the data survive: what a linear readout of each layer recovers of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.diagnostics.rows import rows_of, some_of
from chiaroscuro.errors import need
from chiaroscuro.measures.record import Record

__all__ = ["KINDS", "Readout", "Survival", "readout", "survival"]

KINDS = ("number", "angle", "class")
PENALTIES = np.logspace(-8, 4, 37)
"""Penalties that are tried, in units of the mean eigenvalue of X'X."""
BEYOND = 0.5
"""How far a reading may leave the range of the fitted factor, in units of that range."""
ROWS = 20_000


@dataclass(frozen=True, eq=False)
class Readout(Record):
    """How well one factor is predicted by a linear readout.

    `score` is held-out: R^2 of numbers and angles, accuracy of classes. `above_chance` puts all
    kinds on one scale, 0 for nothing and 1 for all. `adjusted` is the same on the training side,
    corrected for the readout's own freedom `dof`.
    """

    kind: str
    score: float
    above_chance: float
    adjusted: float
    penalty: float
    dof: float
    n_train: int
    n_test: int


def readout(
    h: Any, factor: Any, kind: str | None = None, split: Any = None, seed: int = 0
) -> Readout:
    """Return how well a ridge regression on h predicts a factor, on held-out rows.

        W = (X'X + penalty I)^-1 X'Y;   R^2 = 1 - |Y - XW|^2 / |Y - mean|^2  on held-out rows

    X is standardised by the training side. Y is the number, the cosine and sine of an angle, or one
    column per class (the class is then the largest column). The penalty minimises

        GCV = n |Y - XW|^2 / (n - dof)^2,   dof = 1 + sum_k s_k^2 / (s_k^2 + penalty)

    on the training side, in closed form from one decomposition [golub1979gcv]. adjusted is
    1 - (1 - R^2) (n - 1) / (n - dof) there (not below 0 dof left: then it is NaN).

    score: at most 1, where the factor is linear in h; about 0, or a little below, where h knows
    nothing of it; the share of the most frequent class, about, for classes. above_chance is R^2
    itself, or (accuracy - chance) / (1 - chance), where chance always names the most frequent class
    of the training side. A linear readout has R^2 = 1 of any invertible linear map, however flat:
    look at the spectrum as well.

    A reading that leaves the range of the fitted factor by more than half of that range is put back
    to there: one row far from all that were fitted would decide R^2 else.

    Relations: at the same penalty it is `sklearn.linear_model.Ridge` on standardised features. An
    angle may be given with any zero and in any number of turns.

    Args:
        h: (n, d). n < d works: the penalty decides.
        factor: (n,), numbers, angles in radians, or whole numbers as classes.
        kind: "number", "angle" or "class"; by itself whole numbers are classes, others numbers.
        split: (n,) 0 for training and 1 for the test; by itself a fifth is drawn for the test.
        seed: seed of that draw.

    Numerics: float64; a dimension that is constant on the training side counts for nothing.

    References:
        golub1979gcv, rusak2022

    Example:
        >>> h = np.random.default_rng(0).normal(size=(200, 3))
        >>> round(readout(h, h @ [1.0, 2.0, 0.0]).score, 6)
        1.0
    """
    x = rows_of("readout(h, factor)", h)
    train, test = _sides("readout", len(x), split, seed)
    return _Ridge(x, train, test).read("readout", factor, kind)


@dataclass(frozen=True, eq=False)
class Survival(Record):
    """Readouts by layer and factor.

    `above_chance` (layers, factors) and `score` as `Readout` has them; `content` and `style`
    (layers,) the means of above_chance over the factors of each sort, NaN without any.
    """

    layers: tuple[str, ...]
    factors: tuple[str, ...]
    kinds: tuple[str, ...]
    score: np.ndarray
    above_chance: np.ndarray
    content: np.ndarray
    style: np.ndarray
    n: int
    rows: int

    def __str__(self) -> str:
        """A line for each layer, a column for each factor: `above_chance`."""
        wide = max(9, *map(len, (*self.factors, *self.layers)))
        head = ("above chance", *self.factors)
        lines = [head, *zip(self.layers, *self.above_chance.T.round(2), strict=True)]
        return "\n".join(" ".join(f"{cell!s:>{wide + 3}}" for cell in line) for line in lines)


def survival(
    layers: Mapping[str, Any],
    factors: Mapping[str, Any],
    kinds: Mapping[str, str] | None = None,
    style: Sequence[str] = (),
    rows: int | None = ROWS,
    seed: int = 0,
) -> Survival:
    """Measure how well each factor can be read out of each layer, content against style.

    Content is what both views of a sample share, style what an augmentation changes [rusak2022]: a
    contrastive loss keeps the first and may drop the second, mostly in the last layers.

    Relations: each entry is `readout` of that layer and factor, with a fifth held out.

    Args:
        layers: (n, d_l) by name, in order, such as {"h": h, "z": z}.
        factors: (n,) by name: numbers, angles or classes, as for `readout`.
        kinds: of factors, where `readout` would not guess them: {"orientation": "angle"}.
        style: names of the factors that are style; the others are content.
        rows: so many at most, drawn by the seed.

    References:
        rusak2022

    Example:
        >>> draw = np.random.default_rng(0)
        >>> h, y = draw.normal(size=(300, 2)), draw.integers(0, 2, 300)
        >>> layers = {"h": np.c_[h, y], "z": h}
        >>> curves = survival(layers, {"size": h[:, 0], "class": y})
        >>> curves.above_chance.round(1).tolist()
        [[1.0, 1.0], [1.0, 0.0]]
    """
    call = "survival(layers, factors)"
    need(
        len(layers) > 0 and len(factors) > 0,
        lambda: f"`{call}` needs at least one of each; received {len(layers)} and {len(factors)}.",
    )
    unknown = sorted({*style, *(kinds or {})} - set(factors))
    need(
        not unknown,
        lambda: f"`{call}` needs names of factors, {', '.join(factors)}; received {unknown}.",
    )
    sizes = {name: len(h) for name, h in {**layers, **factors}.items()}
    n = next(iter(sizes.values()))
    need(
        set(sizes.values()) == {n},
        lambda: f"`{call}` needs as many rows everywhere; received {sizes}.",
    )
    kept = some_of("survival", n, rows, seed)
    train, test = _sides("survival", len(kept), None, seed)
    readouts: list[list[Readout]] = []
    for name, h in layers.items():
        ridge = _Ridge(rows_of(f"survival: layer {name}", h)[kept], train, test)
        readouts.append(
            [
                ridge.read(f"survival: {name}", _array(y)[kept.numpy()], (kinds or {}).get(name))
                for name, y in factors.items()
            ]
        )
    above = np.array([[each.above_chance for each in row] for row in readouts])
    is_style = np.array([name in style for name in factors])
    mean = lambda mask: (
        above[:, mask].mean(axis=1) if mask.any() else np.full(len(readouts), np.nan)
    )
    return Survival(
        layers=tuple(layers),
        factors=tuple(factors),
        kinds=tuple(each.kind for each in readouts[0]),
        score=np.array([[each.score for each in row] for row in readouts]),
        above_chance=above,
        content=mean(~is_style),
        style=mean(is_style),
        n=n,
        rows=len(kept),
    )


class _Ridge:
    """One decomposition of the training rows, for the readouts of all factors."""

    def __init__(self, x: Tensor, train: Tensor, test: Tensor):
        X = x[train]
        mean, deviation = X.mean(dim=0), X.std(dim=0, correction=0)
        deviation = torch.where(deviation > 1e-12 * (1 + mean.abs()), deviation, torch.inf)
        self.X, self.X_test = (X - mean) / deviation, (x[test] - mean) / deviation
        self.train, self.test = train.numpy(), test.numpy()
        n, d = self.X.shape
        if n >= d:
            values, V = torch.linalg.eigh(self.X.T @ self.X)
        else:
            values, U = torch.linalg.eigh(self.X @ self.X.T)
            V = self.X.T @ U / values.clamp(min=1e-300).sqrt()
        kept = values > 1e-12 * max(1.0, float(values[-1]))
        self.values, self.V = values[kept], V[:, kept]

    def read(self, call: str, factor: Any, kind: str | None) -> Readout:
        y, kind = _factor(call, _array(factor), len(self.train) + len(self.test), kind)
        Y, Y_test = (_columns(y, kind)[side] for side in (self.train, self.test))
        for side, name in ((Y, "training"), (Y_test, "test")):
            need(
                kind == "class" or bool(np.ptp(side, axis=0).max() > 0),
                lambda name=name: f"`{call}` needs a factor that varies in the {name} rows.",
            )
        need(
            kind != "class" or len(np.unique(y[self.train])) > 1,
            lambda: f"`{call}` needs at least 2 classes in the training rows; received 1.",
        )
        n = len(Y)
        level = Y.mean(axis=0)
        target = torch.from_numpy(Y - level)
        pulled = self.V.T @ (self.X.T @ target)
        total = float(target.square().sum())
        penalty, dof, left = self._choose(pulled, total, n)
        W = self.V @ (pulled / (self.values + penalty)[:, None])
        beyond = BEYOND * np.ptp(Y, axis=0)
        guess = (self.X_test @ W).numpy() + level
        guess = guess.clip(Y.min(axis=0) - beyond, Y.max(axis=0) + beyond)
        freedom = n - dof
        if kind == "class":
            truth, counts = y[self.test], np.bincount(y[self.train])
            most = counts.max() / n
            score = float((guess.argmax(axis=1) == truth).mean())
            chance = float((truth == counts.argmax()).mean())
            above = (score - chance) / (1 - chance) if chance < 1 else math.nan
            fitted = float((((self.X @ W).numpy() + level).argmax(axis=1) == y[self.train]).mean())
            adjusted = (fitted - most) / (1 - most)
        else:
            error, spread = ((Y_test - x) ** 2 for x in (guess, Y_test.mean(axis=0)))
            score = above = 1 - float(error.sum() / spread.sum())
            adjusted = 1 - left / total * (n - 1) / freedom if freedom > 0.5 else math.nan
        return Readout(kind, score, above, adjusted, penalty, dof, n, len(Y_test))

    def _choose(self, pulled: Tensor, total: float, n: int) -> tuple[float, float, float]:
        """The penalty of least GCV, with its degrees of freedom and what it leaves unexplained."""
        if not len(self.values):
            return 1.0, 1.0, total
        power = (pulled.square().sum(dim=1) / self.values).numpy()
        values = self.values.numpy()
        best = (math.inf, 1.0, 1.0, total)
        for penalty in PENALTIES * values.mean():
            share = values / (values + penalty)
            dof = 1 + float(share.sum())
            left = max(total - float(((2 - share) * share * power).sum()), 0.0)
            if n - dof > 1e-6 * n:
                best = min(best, (n * left / (n - dof) ** 2, float(penalty), dof, left))
        return best[1:]


def _sides(call: str, n: int, split: Any, seed: int) -> tuple[Tensor, Tensor]:
    if split is None:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        cut = n - max(1, n // 5)
        sides = order[:cut].sort().values, order[cut:].sort().values
    else:
        side = torch.from_numpy(_array(split).astype(np.int64))
        need(
            side.shape == (n,),
            lambda: f"`{call}` needs a split of {n} rows; received {tuple(side.shape)}.",
        )
        sides = (side == 0).nonzero().flatten(), (side == 1).nonzero().flatten()
    need(
        len(sides[0]) >= 3 and len(sides[1]) >= 1,
        lambda: (
            f"`{call}` needs at least 3 rows to fit and 1 to test; received {len(sides[0])} and "
            f"{len(sides[1])}."
        ),
    )
    return sides


def _array(y: Any) -> np.ndarray:
    return np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)


def _factor(call: str, y: np.ndarray, n: int, kind: str | None) -> tuple[np.ndarray, str]:
    """The factor checked, and its kind."""
    kind = kind or ("class" if y.dtype.kind in "iub" else "number")
    need(
        kind in KINDS,
        lambda: f"`{call}` needs a kind of {', '.join(KINDS)}; received `{kind}`.",
    )
    need(
        y.shape == (n,) and y.dtype.kind in "iubf",
        lambda: f"`{call}` needs a factor of {n} numbers; received {y.dtype} of shape {y.shape}.",
    )
    bad = np.flatnonzero(~np.isfinite(y))
    need(
        len(bad) == 0,
        lambda: (
            f"`{call}` needs finite numbers; {len(bad)} of {n} are not, the first is row {bad[0]}."
        ),
    )
    if kind == "class":
        need(
            bool((y == np.floor(y)).all() and y.min() >= 0),
            lambda: f"`{call}` needs classes as whole numbers from 0; the least is {y.min()}.",
        )
        return np.unique(y, return_inverse=True)[1], kind
    return y.astype(np.float64), kind


def _columns(y: np.ndarray, kind: str) -> np.ndarray:
    if kind == "class":
        return np.eye(int(y.max()) + 1)[y]
    return np.c_[np.cos(y), np.sin(y)] if kind == "angle" else y[:, None]
