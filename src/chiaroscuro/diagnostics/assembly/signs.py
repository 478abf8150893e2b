"""Signs of ills in rows, each with what its cure would gain on the arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.advice.collapse import MOST_POINTS
from chiaroscuro.diagnostics.advice.finding import Cost
from chiaroscuro.diagnostics.advice.samples import VALLEY
from chiaroscuro.diagnostics.assembly.cures import Rows, different, note, paired
from chiaroscuro.diagnostics.assembly.label_signs import label_signs, split_signs
from chiaroscuro.measures import METRICS, Listed, nearest, unit, voted
from chiaroscuro.measures.rows import pieces
from chiaroscuro.measures.spectrum import spectrum
from chiaroscuro.measures.sphere import lengths

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = ["kind_of", "row_signs"]

FEW = 1_000
"""Rows for signs that compare all of them in other ways than by neighbours."""
LEAST = 64
BLOCKS = (16, 25, 32, 50, 64, 100, 128, 200, 250, 256, 300, 400, 500, 512, 1000, 1024)
FAR = math.log(4.0)
"""A row is far from the others where its norm is four medians, and four deviations, at least."""
NOTHING = 1e-9
"""Length of a row over a typical one, below which it is zero but for rounding."""
TIED = 0.01
"""Share of a dimension beyond the fall of the spectrum, from which on others determine it."""
SHARES = (0.9, 0.5)
"""Of the rows, that lie at a few points."""
COVERED = 64
"""Points onto which rows may be said to have collapsed."""
WIDE = 16
"""Dimensions from which on the numbers of a row can be counted."""
CHANGED = 8.0
"""Standard errors between the lengths of earlier and of later rows, where the order tells them."""
SILENT = 0.95
"""Share of the rows that have one and the same number in a dimension which hardly ever fires."""


def row_signs(out: Measured, embeddings: Embeddings, seed: int, metric: str = METRICS[0]) -> None:
    """Add what one space, and its labels and split, show of ills and of what curing them gains.

    Args:
        out: is added to; the measures of spaces must be there.
        embeddings: h, or else z, is looked at.
        seed: seed of all random choices.
        metric: by which rows are neighbours, "cosine" or "euclidean".
    """
    every = embeddings.h if embeddings.h is not None else embeddings.z
    if every is None or len(every) < LEAST:
        return
    prefix = "" if embeddings.h is not None else "z_"
    numbers = out.numbers
    rows = Rows(every, embeddings.labels, embeddings.split, seed, metric)
    kind = kind_of(rows.x)
    numbers |= {"kind": kind, "nonnegative": bool(rows.x.min() >= 0)}
    numbers |= _levels(rows)
    sizes = lengths(np.asarray(every))
    far = _norms(out, rows, sizes)
    _shrunk(out, rows, np.asarray(every), far)
    _directions(out, rows, prefix, far)
    _columns(out, rows)
    _points(out, rows, far)
    _twins(out, rows)
    _hubs(out, rows)
    numbers |= _batches(np.asarray(every), seed)
    if rows.y is not None:
        label_signs(out, rows, embeddings, seed)
    if rows.split is not None:
        split_signs(out, rows)


def kind_of(x: np.ndarray) -> str:
    """What rows look like: "embedding", or something that is not to be judged as one.

    "map": two or three dimensions. "codes": two values in all. "counts": whole numbers from 0.
    "shares": rows from 0 that sum to 1. "table": columns in units of their own.

    Example:
        >>> kind_of(np.random.default_rng(0).normal(size=(100, 2)))
        'map'
        >>> kind_of(np.random.default_rng(0).poisson(3.0, size=(100, 8)).astype(float))
        'counts'
    """
    if x.shape[1] <= 3:
        return "map"
    some = x[:: max(1, len(x) // 500)]
    values = np.unique(some)
    if len(values) == 2:
        return "codes"
    if some.min() >= 0:
        if (some == np.round(some)).all() and len(values) > 2:
            return "counts"
        if np.allclose(some.sum(axis=1), 1, atol=1e-4):
            return "shares"
    spread = x.std(axis=0)
    spread = np.sort(np.log(spread[spread > 0]))
    signed = float(((x.min(axis=0) < 0) & (x.max(axis=0) > 0)).mean())
    if 4 <= len(spread) <= 40 and signed <= 0.5:  # most measurements have one sign
        steps, width = np.diff(spread), spread[-1] - spread[0]
        middle = np.quantile(spread, 0.75) - np.quantile(spread, 0.25)
        if len(spread) <= 8 and width > math.log(30):
            return "table"  # a few measurements, of which one is in other units
        if width > math.log(50) and middle > math.log(3) and steps.max() < 0.5 * width:
            return "table"
    return "embedding"


def _levels(rows: Rows) -> dict[str, Any]:
    """How many different numbers a dimension has, or a row, and what half as many would cost."""
    own = _levels_of_rows(rows.x)
    x = rows.x[:, np.ptp(rows.x, axis=0) > 0]
    x = x[:, :: max(1, x.shape[1] // 64)]
    if not x.shape[1]:
        return own
    moving = np.array([len(np.unique(x[:, k])) for k in range(x.shape[1])])
    levels = int(np.quantile(moving, 0.9))
    numbers: dict[str, Any] = {"levels": levels, **own}
    if levels <= 32:
        numbers |= {"level_entropy": _entropy(x, levels), "even_levels": _even(x)}
    if levels <= min(32, len(x) // 8):
        low, high = rows.x.min(), rows.x.max()
        step = 2 * (high - low) / max(levels - 1, 1)
        coarser = low + step * np.round((rows.x - low) / step)
        lost = rows.gain(coarser)
        numbers |= lost.numbers("coarser")
    return numbers


def _levels_of_rows(x: np.ndarray) -> dict[str, Any]:
    """Steps of the even grid on which the numbers of a row stand, where most rows have such a one.

    Rows from 0 are left out: counts over their sum stand on one as well.
    """
    x = x[:: max(1, len(x) // 200)]
    x = x[np.ptp(x, axis=1) > 0]
    if x.shape[1] < WIDE or not len(x) or x.min() >= 0:
        return {}
    ordered = np.sort(x, axis=1)
    steps = np.diff(ordered, axis=1) / (ordered[:, -1:] - ordered[:, :1])
    least = np.where(steps > 1e-6, steps, np.inf).min(axis=1, keepdims=True)
    times = steps / least
    even = (np.abs(times - np.round(times)) < 0.01).all(axis=1)
    if even.mean() < 0.9:
        return {}
    return {"row_levels": 1 + round(float(np.median(1 / least[even])))}


def _even(x: np.ndarray) -> float:
    """The share of dimensions with three values or more in which these stand on one even grid."""
    on_grid = []
    for column in x.T:
        steps = np.diff(np.unique(column))
        if len(steps) >= 2:
            times = steps / steps.min()
            on_grid.append(bool(np.abs(times - np.round(times)).max() < 1e-3))
    return float(np.mean(on_grid)) if on_grid else 1.0


def _entropy(x: np.ndarray, levels: int) -> float:
    """Entropy of the values of a dimension over that of equally frequent ones, in the middle."""
    entropies = []
    for column in x.T:
        p = np.unique(column, return_counts=True)[1] / len(column)
        entropies.append(float(-(p * np.log(p)).sum()) / math.log(max(levels, 2)))
    return float(np.median(entropies))


# ---- lengths of rows ----


def _norms(out: Measured, rows: Rows, sizes: np.ndarray) -> np.ndarray:
    """Zero rows, far rows, rows of length one among others, two scales; mask of the far."""
    numbers = out.numbers
    typical = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0
    zero = sizes <= NOTHING * typical
    numbers["zero_rows"] = int(zero.sum())
    if (sizes[zero] > 0).any():
        out.lists["zero"] = Listed("are zero, or so to rounding", np.flatnonzero(zero))
    if zero.any() and not zero[rows.ids].all():
        note(out, "nonzero", rows.gain(rows.x, keep=~zero[rows.ids]))
    live = ~zero
    if live.sum() < LEAST:
        return np.zeros(len(rows.x), dtype=bool)
    logs = np.log(np.where(live, sizes, 1.0))
    middle = float(np.median(logs[live]))
    # of the shorter half, which the far rows themselves do not widen
    deviation = 1.4826 * float(np.median(middle - logs[live & (logs <= middle)]))
    limit = middle + max(FAR, 4 * deviation)
    ordered = np.sort(logs[live])
    groups = _two_groups(ordered)
    if groups.share >= 0.6 and groups.high - groups.low >= FAR and groups.valley <= VALLEY:
        limit = min(limit, (groups.low + groups.high) / 2)  # however widely the others vary
    far = live & (logs > limit)
    tail = live & ~far & (logs > (middle + limit) / 2)
    numbers |= {"far_rows": int(far.sum()), "norm_middle": math.exp(middle)}
    numbers["far_tail"] = int(tail.sum())
    numbers["far_factor"] = float(np.median(np.exp(logs[far] - middle))) if far.any() else 1.0
    mine = far[rows.ids]
    if far.any():
        order = np.flatnonzero(far)[np.argsort(-sizes[far], kind="stable")]
        medians = {"medians": sizes[order] / math.exp(middle)}
        out.lists["far_rows"] = Listed("are longer than 4 medians", order, medians)
        if mine.any():
            note(out, "trim", rows.gain(rows.x, keep=~mine))
    numbers |= _lengths(out, rows)
    return mine


def _shrunk(out: Measured, rows: Rows, every: np.ndarray, far: np.ndarray) -> None:
    """Rows far nearer to the mean of all than the others, which are no zero rows."""
    live = ~far & rows.x.any(axis=1)
    if live.sum() < LEAST:
        return
    middle = rows.x[live].mean(axis=0)
    apart = np.empty(len(every))
    for at, some in pieces(every):
        apart[at] = np.where(some.any(axis=1), lengths(some - middle), np.inf)
    logs = np.log(np.maximum(apart[rows.ids][live], 1e-300))
    typical = float(np.median(logs))
    deviation = 1.4826 * float(np.median(np.abs(logs - typical)))
    limit = math.exp(typical - max(FAR, 4 * deviation))
    shrunk = np.flatnonzero(apart < limit)
    out.numbers["shrunk_rows"] = len(shrunk)
    mine = apart[rows.ids] < limit
    if not len(shrunk) or not mine.any():
        return
    share = apart[shrunk] / math.exp(typical)
    out.numbers["shrunk_factor"] = float(np.median(share))
    order = np.argsort(share, kind="stable")
    out.lists["shrunk_rows"] = Listed(
        "are less than a quarter as far from the mean as a typical row",
        shrunk[order],
        {"of_typical": share[order]},
    )
    note(out, "shrunk", rows.gain(rows.x, keep=~mine))


def _lengths(out: Measured, rows: Rows) -> dict[str, Any]:
    """A length that many rows share, and two groups of lengths; rows that equal others aside."""
    sizes = np.linalg.norm(rows.x, axis=1)
    distinct = np.zeros(len(sizes), dtype=bool)
    distinct[different(np.round(unit(rows.x), 9))[0]] = True
    kept = np.flatnonzero((sizes > 0) & distinct)
    if len(kept) < LEAST:
        return {}
    logs = np.log(sizes[kept])
    ordered = np.sort(logs)
    n = len(ordered)
    # the most frequent length, to a thousandth
    ends = np.searchsorted(ordered, ordered + 1e-3, side="right")
    counts = ends - np.arange(n)
    at = int(counts.argmax())
    share = float(counts[at] / n)
    rest = np.abs(ordered - ordered[at]) > 2e-3
    numbers: dict[str, Any] = {
        "same_length": share,
        "same_length_is": math.exp(float(ordered[at])),
        "other_length_spread": float(ordered[rest].std()) if rest.sum() > 1 else 0.0,
    }
    groups = _two_groups(ordered)
    numbers |= {"length_gap": groups.gap, "length_share": groups.share}
    numbers["length_valley"] = groups.valley
    every = np.log(np.where(sizes > 0, sizes, 1.0))
    if 0.01 <= share <= 0.99 and numbers["other_length_spread"] > 0.02:
        alike = (np.abs(every - ordered[at]) <= 2e-3) & (sizes > 0)
        costs = [_levelled(rows, sizes, alike)]
        if 2 <= alike.sum() <= len(alike) - 2:  # layer norms centre as well
            costs.append(_as_the_others(rows, alike))
        best = note(out, "normalised", max(costs, key=lambda one: one.gain))
        numbers["normalised_centred"] = best is not costs[0]
    change = _change(logs if rows.y is None else _within(logs, rows.y[kept]))
    numbers |= {"length_change": change.score, "length_change_at": int(rows.ids[kept[change.at]])}
    later = np.arange(len(sizes)) >= kept[change.at]
    changed = change.score >= CHANGED
    if groups.gap >= 3 and (groups.valley <= VALLEY or not changed):
        note(out, "lengths", _levelled(rows, sizes, every < groups.cut))
        numbers["length_ratio"] = math.exp(groups.high - groups.low)
    elif changed:
        note(out, "lengths", _levelled(rows, sizes, later))
        numbers["length_change_ratio"] = change.ratio
    return numbers


class _Change(NamedTuple):
    """The place from which on numbers have another mean.

    Args:
        at: the first of the later numbers.
        score: the difference of the means in its standard errors.
        ratio: e to that difference.
    """

    at: int
    score: float
    ratio: float


def _within(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Numbers less the mean of their class: files may be in the order of the classes."""
    at = np.unique(y, return_inverse=True)[1]
    return values - (np.bincount(at, values) / np.bincount(at))[at]


def _change(logs: np.ndarray) -> _Change:
    """The cut of numbers in their order that parts their means most surely."""
    n = len(logs)
    cuts = np.arange(max(2, n // 20), n - max(2, n // 20))
    total = np.cumsum(logs)
    before, after = total[cuts - 1] / cuts, (total[-1] - total[cuts - 1]) / (n - cuts)
    score = np.abs(after - before) / np.sqrt(1 / cuts + 1 / (n - cuts))
    k = int(score.argmax())
    own = np.where(np.arange(n) < cuts[k], before[k], after[k])
    spread = max(float((logs - own).std()), 1e-3)
    return _Change(int(cuts[k]), float(score[k]) / spread, math.exp(float(after[k] - before[k])))


def _levelled(rows: Rows, sizes: np.ndarray, group: np.ndarray) -> Cost:
    """What bringing a group to the length of the others gains."""
    return rows.gain(_level(rows.x, sizes, group), metric="euclidean")


def _as_the_others(rows: Rows, group: np.ndarray) -> Cost:
    """What bringing a group to the mean and the spread of the others gains."""
    x, own, rest = rows.x.copy(), rows.x[group], rows.x[~group]
    scale = math.sqrt(float(rest.var(axis=0).sum() / max(own.var(axis=0).sum(), 1e-300)))
    x[group] = rest.mean(axis=0) + scale * (own - own.mean(axis=0))
    return rows.gain(x, metric="euclidean")


def _level(x: np.ndarray, sizes: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Rows of which a group was brought to the median length of the others."""
    live = sizes > 0
    if not (group & live).any() or not (~group & live).any():
        return x
    out = x.copy()
    out[group] *= np.median(sizes[~group & live]) / np.median(sizes[group & live])
    return out


class _Groups(NamedTuple):
    """Two groups of numbers.

    Args:
        share: of the lower group.
        gap: the distance of their means over the deviation inside them.
        cut: the least number of the upper group.
        low, high: their means.
        valley: the share of the numbers in the middle third between the means.
    """

    share: float = 0.5
    gap: float = 0.0
    cut: float = 0.0
    low: float = 0.0
    high: float = 0.0
    valley: float = 1.0


def _two_groups(ordered: np.ndarray) -> _Groups:
    """The two groups with the least variance inside.

    Args:
        ordered: (n,), rising.
    """
    n = len(ordered)
    cuts = np.unique((np.linspace(0.02, 0.98, 97) * n).astype(int))
    cuts = cuts[(cuts > 1) & (cuts < n - 1)]
    if not len(cuts):
        return _Groups()
    total, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    m1, m2 = total[cuts - 1] / cuts, (total[-1] - total[cuts - 1]) / (n - cuts)
    within = squares[-1] - cuts * m1**2 - (n - cuts) * m2**2
    best = int(within.argmin())
    deviation = math.sqrt(max(float(within[best]) / n, 1e-12))
    at, low, high = int(cuts[best]), float(m1[best]), float(m2[best])
    middle = (ordered > low + (high - low) / 3) & (ordered < high - (high - low) / 3)
    gap, valley = (high - low) / max(deviation, 1e-3), float(middle.mean())
    return _Groups(at / n, gap, float(ordered[at]), low, high, valley)


# ---- directions and columns ----


def _directions(out: Measured, rows: Rows, prefix: str, far: np.ndarray) -> None:
    """The common offset, the first direction, the spectrum as a whole; ranks without far rows."""
    numbers = out.numbers
    x = rows.x[~far] if far.any() and (~far).sum() >= LEAST else rows.x
    values = spectrum(x)
    s = values.values
    power = s**2
    total = float(power.sum())
    if total <= 0:
        return
    top = float(power[0] / total)
    rank = float(np.exp(-(power[power > 0] / total * np.log(power[power > 0] / total)).sum()))
    numbers |= {"top_share": top, "power_rank": rank}
    length = float(np.linalg.norm(x.mean(axis=0)))
    if length > 0:
        numbers["relative_spread"] = math.sqrt(total / len(x)) / length
    numbers |= _fall(x, s)
    numbers["top_over_second"] = float(s[0] / max(s[1], 1e-300)) if len(s) > 1 else 1.0
    if far.any():
        numbers["effective_rank_without_far"] = float(values.effective_rank)
        numbers["mean_cosine_without_far"] = _mean_cosine(x)
    room = int(numbers.get(f"{prefix}room", min(x.shape)))
    middle = x.mean(axis=0)
    cosine = numbers.get("mean_cosine_without_far", numbers.get(f"{prefix}mean_cosine", 0.0))
    if cosine is not None and cosine >= 0.25:
        note(out, "centre", rows.gain(lambda a: a - middle))
    centred = None if rows.y is None else rows.hits(rows.x - middle)
    _, w, V = np.linalg.svd(x - middle, full_matrices=False)
    numbers["first_dimension"] = int(np.abs(V[0]).argmax())
    beyond = 1 - (V[: numbers["fall_at"]] ** 2).sum(axis=0)
    moving = x.std(axis=0) > 0
    numbers["tied_dimensions"] = float((beyond[moving] > TIED).mean())
    numbers["top_three_share"] = float(power[:3].sum() / total)
    if numbers["top_three_share"] >= 0.25 and len(V) > 3:
        tried = (1, 2, 3) if rows.y is not None else (1,)
        costs = [_over(rows, _without(middle, V[:k]), centred) for k in tried]
        best = int(np.argmax([one.gain for one in costs]))
        numbers["first_removed"] = tried[best]
        note(out, "first", costs[best])
    if rank < 0.5 * room or top >= 0.25:
        gains = [_over(rows, _evened(middle, w, V, floor), centred) for floor in (0.3, 0.03)]
        note(out, "even", max(gains, key=lambda one: one.gain))
    if centred is not None and numbers.get(f"{prefix}effective_rank") is not None:
        keep = max(1, int((w > 1e-2 * w[0]).sum()) // 2)
        half = rows.gain(lambda a: (a - middle) @ V[:keep].T)
        numbers["half_rank"] = keep
        numbers["half_rank_costs"] = float(np.nanmean(centred)) - half.after


def _fall(x: np.ndarray, s: np.ndarray) -> dict[str, Any]:
    """The largest fall between neighbouring singular values, after which, and of how many."""
    spread = x.std(axis=0)
    live = int((spread > 1e-9 * max(float(spread.max()), 1e-300)).sum())
    room = max(1, min(len(x) - 1, live))
    numbers = {"fall": 1.0, "fall_at": room, "fall_room": room}
    w = np.maximum(s / s[0], 1e-12)[: room + 1]
    if len(w) >= 4:
        ratios = w[1:-1] / w[2:]  # a first direction far above the others is no collapse
        at = int(ratios.argmax())
        numbers |= {"fall": float(ratios[at]), "fall_at": at + 2}
    return numbers


def _over(rows: Rows, cure: Any, centred: np.ndarray | None) -> Cost:
    """What a cure gains over subtracting the mean alone, which is another finding's.

    Args:
        centred: the hits of rows without their mean; None without labels.
    """
    if rows.y is None or centred is None:
        return rows.gain(cure)
    before, after = centred, rows.hits(cure(rows.x))
    start = rows.base
    asked = ~np.isnan(start)
    best = before if before[asked].mean() > start[asked].mean() else start
    return paired(rows.of, best[asked], after[asked])


def _without(middle: np.ndarray, first: np.ndarray) -> Any:
    return lambda a: (a - middle) - (a - middle) @ first.T @ first


def _evened(middle: np.ndarray, w: np.ndarray, V: np.ndarray, floor: float) -> Any:
    live = w > 1e-6 * w[0]
    scale = 1 / np.sqrt(w[live] ** 2 + (floor * w[0]) ** 2)
    return lambda a: ((a - middle) @ V[live].T) * scale


def _mean_cosine(x: np.ndarray) -> float:
    u = unit(x)
    n = len(u)
    return float(((u.sum(axis=0) ** 2).sum() - (u**2).sum()) / (n * (n - 1)))


def _columns(out: Measured, rows: Rows) -> None:
    """Dimensions that hardly move beside others, and those that repeat others."""
    numbers = out.numbers
    x = rows.x
    spread = x.std(axis=0)
    live = (spread > 1e-9 * float(np.abs(x).max(initial=0.0))) & (spread > 0)
    numbers["constant_dimensions"] = int((~live).sum())
    numbers["zero_dimensions"] = int((~x.any(axis=0)).sum())
    if live.sum() < 2:
        numbers["faint_dimensions"] = 0
        return
    typical = float(np.quantile(spread[live], 0.9))
    faint = live & (spread < 0.1 * typical)
    numbers["faint_dimensions"] = int(faint.sum())
    usual = np.abs(x - np.median(x, axis=0)) <= 1e-9 * np.ptp(x, axis=0)
    numbers["silent_dimensions"] = int((live & ~faint & (usual.mean(axis=0) >= SILENT)).sum())
    low = x.min(axis=0)[live]
    numbers["rectified"] = bool(x.min() >= 0 and (low <= spread[live]).mean() >= 0.9)
    numbers["principal"] = _principal(x[:, live], spread[live])
    numbers["curves"] = _curves(x[:, live], spread[live])
    numbers["spread_ratio"] = float(spread[live].max() / np.median(spread[live]))
    if faint.any() or (spread[live].max() > 5 * np.median(spread[live])):
        middle, scale = x.mean(axis=0), np.where(live, spread, 1.0)
        centred = None if rows.y is None else rows.hits(x - middle)
        note(out, "columns", _over(rows, lambda a: (a - middle) / scale * live, centred))
    some = x[:FEW]
    z = (some - some.mean(axis=0))[:, live]
    z = z / np.maximum(np.linalg.norm(z, axis=0), 1e-300)
    if z.shape[1] > 2048:
        return
    alike = np.abs(z.T @ z) > 0.98
    np.fill_diagonal(alike, False)
    first = np.triu(alike, 1).any(axis=0)  # another before it is the same
    numbers["repeated_dimensions"] = int(first.sum())
    rank = int((np.linalg.svd(z, compute_uv=False) > 1e-6).sum()) if len(z) > z.shape[1] else None
    if rank is not None:
        numbers["dependent_dimensions"] = int(z.shape[1] - rank)
    if first.any():
        own = np.flatnonzero(live)[~first]
        numbers["distinct_dimensions"] = len(own)
        note(out, "distinct", rows.gain(lambda a: a[:, own]))
    elif rank is not None and numbers["dependent_dimensions"] and "cure_even_gain" not in numbers:
        middle = x.mean(axis=0)
        _, w, V = np.linalg.svd(x - middle, full_matrices=False)
        centred = None if rows.y is None else rows.hits(x - middle)
        note(out, "even", _over(rows, _evened(middle, w, V, 0.3), centred))


def _curves(x: np.ndarray, spread: np.ndarray) -> bool:
    """Whether dimensions are places along a curve: neighbours alike, others less."""
    n, d = x.shape
    if d < WIDE:
        return False
    z = (x - x.mean(axis=0)) / spread / math.sqrt(n)
    beside, apart = (
        float(np.median(np.abs((z[:, k:] * z[:, :-k]).sum(axis=0)))) for k in (1, d // 4)
    )
    return beside >= 0.9 and apart <= beside - 0.15


def _principal(x: np.ndarray, spread: np.ndarray) -> bool:
    """Whether dimensions are uncorrelated and their spread falls: directions of an analysis."""
    n, d = x.shape
    if d < 4 or n < 2 * d:
        return False
    falls = float(np.corrcoef(np.arange(d), np.argsort(np.argsort(spread)))[0, 1]) < -0.9
    z = (x - x.mean(axis=0)) / spread / math.sqrt(n)
    C = np.abs(z.T @ z)[~np.eye(d, dtype=bool)]
    return bool(falls and np.sqrt((C**2).mean()) < 2 / math.sqrt(n))


# ---- crowds of rows ----


def _points(out: Measured, rows: Rows, far: np.ndarray) -> None:
    """Onto how few points the rows have fallen, and what these say of the classes.

    Rows that are far longer than the others would make the spread of which all else is a point.
    """
    ids = np.flatnonzero(~far) if (~far).sum() >= LEAST else np.arange(len(far))
    ids = ids[: 4 * FEW : max(1, len(ids) // FEW)]
    given = rows.x[ids]
    middle = given.mean(axis=0)
    seen = unit if rows.metric == METRICS[0] else np.asarray  # all short rows are one by distance
    owner = _covering(seen(given))
    if owner is None:
        return
    counts = {share: _points_of(owner, share) for share in SHARES}
    share = next((a for a in SHARES if 0 < counts[a] <= MOST_POINTS), SHARES[0])
    points = counts[share] if counts[share] <= MOST_POINTS else 0
    out.numbers |= {"points": points, "points_share": share}
    if points:  # in one or two directions a few points cover any rows: those of a normal law too
        s, V = np.linalg.svd(given - middle, full_matrices=False)[1:]
        draw = np.random.default_rng(0).normal(size=(len(given), len(s)))
        normal = _covering(seen(middle + draw * s @ V / math.sqrt(len(given))))
        out.numbers["points_if_normal"] = 0 if normal is None else _points_of(normal, share)
    if points and rows.y is not None:
        y = rows.y[ids]
        largest = np.argsort(-np.bincount(owner[owner >= 0]), kind="stable")[:points]
        kept = np.isin(owner, largest) & (y >= 0)
        table = np.zeros((int(owner.max()) + 1, int(y.max()) + 1))
        np.add.at(table, (owner[kept], y[kept]), 1)
        out.numbers["points_purity"] = float(table.max(axis=1).sum() / max(1, kept.sum()))


def _covering(x: np.ndarray) -> np.ndarray | None:
    """Which ball of a fifth of the spread around the mean a row lies in; -1 beyond 64.

    None where all rows are one.
    """
    x = x - x.mean(axis=0)
    if not x.any():
        return None
    apart = (x**2).sum(axis=1)
    radius = 0.04 * float(np.minimum(apart, 9 * np.median(apart)).mean())  # less a heavy tail
    owner = np.full(len(x), -1)
    leaders = 0
    while leaders < COVERED and (owner < 0).any():
        at = int(np.flatnonzero(owner < 0)[0])
        near = ((x - x[at]) ** 2).sum(axis=1) < radius
        owner[near & (owner < 0)] = leaders
        leaders += 1
    return owner


def _points_of(owner: np.ndarray, share: float) -> int:
    """How many balls hold so large a share of the rows; 0 for many."""
    large = np.sort(np.bincount(owner[owner >= 0], minlength=1))[::-1]
    covered = np.cumsum(large) / len(owner)
    return int(np.searchsorted(covered, share)) + 1 if covered[-1] >= share else 0


def _twins(out: Measured, rows: Rows) -> None:
    """Rows far nearer to one or a few others than to the rest, by the dimension of the data."""
    numbers = out.numbers
    live = np.flatnonzero(rows.x.any(axis=1))
    if len(live) <= 40:
        return
    x = unit(rows.x[live])
    known = len(live) == len(rows.x) and rows.split is None and rows.metric == METRICS[0]
    near = rows.near[0] if known else nearest(x, 20)
    d1, d10 = near.distances[:, 0], near.distances[:, 9]
    ok = d10 > 0
    ratio = np.where(ok, d1 / np.where(ok, d10, 1.0), 0.0)
    # P(d1 / d10 < r) is about 10 r^m in m dimensions: m from the upper half, where twins are not
    upper = float(np.quantile(ratio, 0.75))
    m = math.log(1 - 0.25 ** (1 / 9)) / math.log(min(max(upper, 1e-6), 0.999))
    if ok.any():  # where most rows have a twin: by how neighbours 10 to 20 recede instead
        places = np.arange(10, near.distances.shape[1])
        last = near.distances[ok, -1:]
        recede = float(np.log(np.maximum(near.distances[ok, 9:-1], 1e-300) / last).mean())
        beyond = float(np.log(places / near.distances.shape[1]).mean()) / min(recede, -1e-6)
        m = beyond if m < max(1.5, beyond / 2) else m
    m = min(max(m, 1.0), 60.0)
    bound = min(0.5, (1e-4) ** (1 / m))
    typical = float(np.median(d10))
    crowd = near.distances[:, 9] < 0.5 * np.median(near.distances[:, -1])
    twin = (ratio < bound) | ((d1 < bound * typical) & ~crowd)
    # groups of copies: near to several, far from the others
    group = (d1 < bound * near.distances[:, -1]) & ok
    # and nearer than nearly all rows are to their nearest, or to their fifth where nearly all have
    # a twin: a small class is no group of copies
    usual = max(float(np.quantile(d1, 0.9)), float(np.median(near.distances[:, 4])))
    twin = (twin | group) & (d1 < 0.6 * usual)
    share = float(twin.mean())
    numbers |= {"near_twins": share, "near_twins_bound": bound, "intrinsic_dimension": m}
    if share >= 0.005:  # of which a fifth is expected by chance
        mates = live[near.ids[:, 0]]
        order = np.flatnonzero(twin)[np.argsort(ratio[twin], kind="stable")]
        out.lists["near_twins"] = Listed(
            f"are less than {bound:.2g} times as far from another row as from the tenth nearest",
            rows.ids[live[order]],
            {"twin": rows.ids[mates[order]], "distance": d1[order]},
            pointers=("twin",),
        )
    if rows.y is None or share < 0.002 or rows.split is not None:
        return
    # the same vote without the twins: what they flatter
    y = rows.y[live]
    closer = near.distances < (bound * np.maximum(d10, typical))[:, None]
    masked = near._replace(distances=near.distances)
    votes = np.where(closer, -1, y[near.ids])
    named = _voted(votes, masked.distances, int(rows.y.max()) + 1)
    known = (y >= 0) & (votes >= 0).any(axis=1)
    before = voted(near, y)[known] == y[known]
    note(out, "single", paired("knn_accuracy", before, named[known] == y[known]))


def _voted(votes: np.ndarray, distances: np.ndarray, c: int) -> np.ndarray:
    n, k = votes.shape
    scale = np.where(distances[:, -1:] > 0, distances[:, -1:], 1.0)
    weight = 1 + (1 - (distances / scale) ** 2 / 2) / (4 * k + 4)
    known = votes >= 0
    at = np.arange(n)[:, None] * c + votes
    return np.bincount(at[known], weight[known], n * c).reshape(n, c).argmax(axis=1)


def _hubs(out: Measured, rows: Rows) -> None:
    """What leaving the largest hubs out of the neighbours gains."""
    if out.numbers.get("hub_share") is None or out.numbers["hub_share"] < 0.05:
        return
    near = rows.near[0]
    counts = np.bincount(near.ids[:, :10].ravel(), minlength=len(rows.x))
    hub = counts > 0.03 * len(near.ids)
    if hub.any() and hub.mean() < 0.2:
        out.numbers["hub_rows"] = int(hub.sum())
        order = np.flatnonzero(hub)[np.argsort(-counts[hub], kind="stable")]
        out.lists["hub_rows"] = Listed(
            "are among the ten nearest of more than 3 % of the rows",
            rows.ids[order],
            {"neighbour_of": counts[order]},
        )
        note(out, "hubs", rows.gain(rows.x, keep=~hub))


def _batches(every: np.ndarray, seed: int) -> dict[str, Any]:
    """Whether means of consecutive rows vary less than chance: batches normalised on their own.

    B times the variance of the means of blocks of B rows, over the variance of the rows: 1 by
    chance, 0 where every block was centred, above 1 where rows are sorted.
    """
    n = min(len(every), 20_000)
    x = np.asarray(every[:n], dtype=np.float64)
    x = x - x.mean(axis=0)
    largest = float(np.abs(x).max(initial=0.0))
    if largest <= 0:
        return {}
    x = x / largest  # a factor changes nothing, but the fourth powers below could overflow
    total = float((x**2).sum() / n)
    if x.shape[1] > 128:
        x = x @ np.random.default_rng(seed).normal(size=(x.shape[1], 128)) / math.sqrt(128)
        x = x - x.mean(axis=0)
        total = float((x**2).sum() / n)
    w = np.linalg.eigvalsh(x.T @ x / n)
    rank = float(w.sum() ** 2 / (w**2).sum())
    sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    best = (1.0, 0, 0.0)
    for size in BLOCKS:
        count = n // size
        if count < 5:
            break
        means = (sums[size : count * size + 1 : size] - sums[: count * size : size]) / size
        ratio = size * float((means**2).sum() / count) / total
        sd = math.sqrt(2 / (count * rank))
        score = (ratio - 1) / sd
        if score < best[2]:
            best = (ratio, size, score)
    return {"block_ratio": best[0], "block_size": best[1], "block_score": best[2]}
