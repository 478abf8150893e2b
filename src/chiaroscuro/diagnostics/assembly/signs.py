"""Signs of ills in rows and labels, each with what its cure would gain on the arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.assembly.cures import Gain, Rows, paired
from chiaroscuro.measures import Listed, nearest, unit, voted
from chiaroscuro.measures.spectrum import spectrum

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = ["kind_of", "row_signs"]

FEW = 1_000
"""Rows for signs that compare all of them in other ways than by neighbours."""
LEAST = 64
BLOCKS = (16, 25, 32, 50, 64, 100, 128, 200, 250, 256, 300, 400, 500, 512, 1000, 1024)
FAR = math.log(4.0)
"""A row is far from the others where its norm is four medians, and six deviations, at least."""
COVERED = 64
"""Points onto which rows may be said to have collapsed."""


def row_signs(out: Measured, embeddings: Embeddings, seed: int) -> None:
    """Add what one space, and its labels and split, show of ills and of what curing them gains.

    Args:
        out: is added to; the measures of spaces must be there.
        embeddings: h, or else z, is looked at.
        seed: of what is drawn.
    """
    every = embeddings.h if embeddings.h is not None else embeddings.z
    if every is None or len(every) < LEAST:
        return
    prefix = "" if embeddings.h is not None else "z_"
    numbers = out.numbers
    rows = Rows(every, embeddings.labels, embeddings.split, seed)
    kind = kind_of(rows.x)
    numbers |= {"kind": kind, "nonnegative": bool(rows.x.min() >= 0)}
    numbers |= _levels(rows)
    sizes = np.linalg.norm(np.asarray(every, dtype=np.float64), axis=1)
    far = _norms(out, rows, sizes)
    _directions(out, rows, prefix, far)
    _columns(out, rows)
    _points(out, rows)
    _twins(out, rows)
    _hubs(out, rows)
    numbers |= _batches(np.asarray(every), seed)
    if rows.y is not None:
        _labels(out, rows, embeddings, seed)
        _groups(out, rows)
    if rows.split is not None:
        _split(out, rows)


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
    if len(values) == 2 and np.ptp(some, axis=0).all():
        return "codes"
    if some.min() >= 0:
        if (some == np.round(some)).all() and len(values) > 2:
            return "counts"
        if np.allclose(some.sum(axis=1), 1, atol=1e-4):
            return "shares"
    spread = x.std(axis=0)
    spread = np.sort(np.log(spread[spread > 0]))
    if 4 <= len(spread) <= 40:
        steps, width = np.diff(spread), spread[-1] - spread[0]
        middle = np.quantile(spread, 0.75) - np.quantile(spread, 0.25)
        if width > math.log(50) and middle > math.log(3) and steps.max() < 0.5 * width:
            return "table"
    return "embedding"


def _note(out: Measured, name: str, gain: Gain) -> Gain:
    out.numbers |= gain.numbers(name)
    return gain


def _levels(rows: Rows) -> dict[str, Any]:
    """How many different numbers a dimension has, and what half as many would cost."""
    x = rows.x[:, :: max(1, rows.x.shape[1] // 64)]
    counts = np.array([len(np.unique(x[:, k])) for k in range(x.shape[1])])
    moving = counts[counts > 1]
    if not len(moving):
        return {}
    levels = int(np.quantile(moving, 0.9))
    found: dict[str, Any] = {"levels": levels}
    if levels <= min(32, len(x) // 8):
        low, high = rows.x.min(), rows.x.max()
        step = 2 * (high - low) / max(levels - 1, 1)
        coarser = low + step * np.round((rows.x - low) / step)
        lost = rows.gain(coarser)
        found |= lost.numbers("coarser")
    return found


# ---- lengths of rows ----


def _norms(out: Measured, rows: Rows, sizes: np.ndarray) -> np.ndarray:
    """Zero rows, far rows, rows of length one among others, two scales; mask of the far."""
    numbers = out.numbers
    zero = sizes == 0
    numbers["zero_rows"] = int(zero.sum())
    if zero.any() and not zero[rows.ids].all():
        _note(out, "nonzero", rows.gain(rows.x, keep=~zero[rows.ids]))
    live = ~zero
    if live.sum() < LEAST:
        return np.zeros(len(rows.x), dtype=bool)
    logs = np.log(np.where(live, sizes, 1.0))
    middle = float(np.median(logs[live]))
    deviation = 1.4826 * float(np.median(np.abs(logs[live] - middle)))
    far = live & (logs > middle + max(FAR, 6 * deviation))
    numbers |= {"far_rows": int(far.sum()), "norm_middle": math.exp(middle)}
    numbers["far_factor"] = float(np.median(np.exp(logs[far] - middle))) if far.any() else 1.0
    mine = far[rows.ids]
    if far.any():
        order = np.flatnonzero(far)[np.argsort(-sizes[far], kind="stable")]
        medians = {"medians": sizes[order] / math.exp(middle)}
        out.lists["far_rows"] = Listed("are longer than 4 medians", order, medians)
        if mine.any():
            _note(out, "trim", rows.gain(rows.x, keep=~mine))
    numbers |= _lengths(out, rows, logs[live], sizes)
    return mine


def _lengths(out: Measured, rows: Rows, logs: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
    ordered = np.sort(logs)
    n = len(ordered)
    # the most frequent length, to a thousandth
    ends = np.searchsorted(ordered, ordered + 1e-3, side="right")
    counts = ends - np.arange(n)
    at = int(counts.argmax())
    share = float(counts[at] / n)
    rest = np.abs(ordered - ordered[at]) > 2e-3
    found: dict[str, Any] = {
        "same_length": share,
        "same_length_is": math.exp(float(ordered[at])),
        "other_length_spread": float(ordered[rest].std()) if rest.sum() > 1 else 0.0,
    }
    split, gap = _two_means(ordered)
    found |= {"length_gap": gap, "length_share": split}
    unlike = 0.01 <= share <= 0.99 and found["other_length_spread"] > 0.02
    if unlike or gap >= 4:
        _note(out, "unit", rows.gain(unit, metric="euclidean"))
        found["length_ratio"] = float(
            np.exp(ordered[int(n * split) :].mean() - ordered[: max(1, int(n * split))].mean())
        )
    return found


def _two_means(ordered: np.ndarray) -> tuple[float, float]:
    """Share of the lower group, and the distance of two groups over the deviation inside them."""
    n = len(ordered)
    cuts = np.unique((np.linspace(0.02, 0.98, 97) * n).astype(int))
    cuts = cuts[(cuts > 1) & (cuts < n - 1)]
    if not len(cuts):
        return 0.5, 0.0
    total, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    m1, m2 = total[cuts - 1] / cuts, (total[-1] - total[cuts - 1]) / (n - cuts)
    within = squares[-1] - cuts * m1**2 - (n - cuts) * m2**2
    best = int(within.argmin())
    deviation = math.sqrt(max(float(within[best]) / n, 1e-12))
    return float(cuts[best] / n), float((m2[best] - m1[best]) / max(deviation, 1e-3))


# ---- directions and columns ----


def _directions(out: Measured, rows: Rows, prefix: str, far: np.ndarray) -> None:
    """The common offset, the first direction, the spectrum as a whole; ranks without far rows."""
    numbers = out.numbers
    x = rows.x[~far] if far.any() and (~far).sum() >= LEAST else rows.x
    found = spectrum(x)
    s = found.values
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
        numbers["effective_rank_without_far"] = float(found.effective_rank)
        numbers["mean_cosine_without_far"] = _mean_cosine(x)
    room = int(numbers.get(f"{prefix}room", min(x.shape)))
    middle = x.mean(axis=0)
    cosine = numbers.get("mean_cosine_without_far", numbers.get(f"{prefix}mean_cosine", 0.0))
    if cosine is not None and cosine >= 0.25:
        _note(out, "centre", rows.gain(lambda a: a - middle))
    _, w, V = np.linalg.svd(x - middle, full_matrices=False)
    numbers["first_dimension"] = int(np.abs(V[0]).argmax())
    if top >= 0.25:
        first = V[:1]
        without = lambda a: (a - middle) - (a - middle) @ first.T @ first
        _note(out, "first", _over(rows, without, middle))
    if rank < 0.5 * room or top >= 0.25:
        gains = [_over(rows, _evened(middle, w, V, floor), middle) for floor in (0.3, 0.03)]
        _note(out, "even", max(gains, key=lambda one: one.gain))
    if rows.y is not None and numbers.get(f"{prefix}effective_rank") is not None:
        keep = max(1, int((w > 1e-2 * w[0]).sum()) // 2)
        half = rows.gain(lambda a: (a - middle) @ V[:keep].T)
        full = rows.gain(lambda a: a - middle)
        numbers["half_rank"] = keep
        numbers["half_rank_costs"] = full.after - half.after


def _fall(x: np.ndarray, s: np.ndarray) -> dict[str, Any]:
    """The largest fall between neighbouring singular values, after which, and of how many."""
    spread = x.std(axis=0)
    live = int((spread > 1e-9 * max(float(spread.max()), 1e-300)).sum())
    room = max(1, min(len(x) - 1, live))
    found = {"fall": 1.0, "fall_at": room, "fall_room": room}
    w = np.maximum(s / s[0], 1e-12)[: room + 1]
    if len(w) >= 4:
        ratios = w[1:-1] / w[2:]  # a first direction far above the others is no collapse
        at = int(ratios.argmax())
        found |= {"fall": float(ratios[at]), "fall_at": at + 2}
    return found


def _over(rows: Rows, cure: Any, middle: np.ndarray) -> Gain:
    """What a cure gains over subtracting the mean alone, which is another finding's."""
    if rows.y is None:
        return rows.gain(cure)
    before, after = rows.hits(rows.x - middle), rows.hits(cure(rows.x))
    start = rows.base
    asked = ~np.isnan(start)
    best = before if before[asked].mean() > start[asked].mean() else start
    return paired("knn_accuracy", best[asked], after[asked])


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
    numbers["spread_ratio"] = float(spread[live].max() / np.median(spread[live]))
    if faint.any() or (spread[live].max() > 5 * np.median(spread[live])):
        middle, scale = x.mean(axis=0), np.where(live, spread, 1.0)
        _note(out, "columns", _over(rows, lambda a: (a - middle) / scale * live, middle))
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
        _note(out, "distinct", rows.gain(lambda a: a[:, own]))
    elif rank is not None and numbers["dependent_dimensions"] and "cure_even_gain" not in numbers:
        middle = x.mean(axis=0)
        _, w, V = np.linalg.svd(x - middle, full_matrices=False)
        _note(out, "even", _over(rows, _evened(middle, w, V, 0.3), middle))


# ---- crowds of rows ----


def _points(out: Measured, rows: Rows) -> None:
    """Onto how few points the rows have fallen, and what these say of the classes."""
    x = rows.x[: 4 * FEW : max(1, len(rows.x) // FEW)]
    ids = np.arange(len(rows.x))[: 4 * FEW : max(1, len(rows.x) // FEW)]
    x = x - x.mean(axis=0)
    size = math.sqrt(float((x**2).sum(axis=1).mean()))
    if size == 0:
        return
    radius = 0.2 * size
    owner = np.full(len(x), -1)
    leaders = 0
    while leaders < COVERED and (owner < 0).any():
        at = int(np.flatnonzero(owner < 0)[0])
        near = ((x - x[at]) ** 2).sum(axis=1) < radius**2
        owner[near & (owner < 0)] = leaders
        leaders += 1
    sizes = np.bincount(owner[owner >= 0], minlength=1)
    large = np.sort(sizes)[::-1]
    covered = np.cumsum(large) / len(x)
    points = int(np.searchsorted(covered, 0.9)) + 1 if covered[-1] >= 0.9 else 0
    out.numbers["points"] = points
    if points and rows.y is not None:
        y = rows.y[ids]
        kept = owner >= 0
        right = sum(
            np.bincount(y[(owner == k) & (y >= 0)], minlength=1).max() for k in set(owner[kept])
        )
        out.numbers["points_purity"] = float(right / max(1, (y[kept] >= 0).sum()))


def _twins(out: Measured, rows: Rows) -> None:
    """Rows far nearer to one or a few others than to the rest, by the dimension of the data."""
    numbers = out.numbers
    live = np.flatnonzero(rows.x.any(axis=1))
    if len(live) <= 40:
        return
    x = unit(rows.x[live])
    if len(live) < len(rows.x):
        near = nearest(x, 20)
    else:
        near = rows.cosine[0] if rows.split is None else nearest(x, 20)
    d1, d10 = near.distances[:, 0], near.distances[:, 9]
    ok = d10 > 0
    ratio = np.where(ok, d1 / np.where(ok, d10, 1.0), 0.0)
    # P(d1 / d10 < r) is about 10 r^m in m dimensions: m from the upper half, where twins are not
    upper = float(np.quantile(ratio, 0.75))
    m = math.log(1 - 0.25 ** (1 / 9)) / math.log(min(max(upper, 1e-6), 0.999))
    m = min(max(m, 1.0), 60.0)
    bound = min(0.5, (1e-4) ** (1 / m))
    typical = float(np.median(d10))
    crowd = near.distances[:, 9] < 0.5 * np.median(near.distances[:, -1])
    twin = (ratio < bound) | ((d1 < bound * typical) & ~crowd)
    # groups of copies: near to several, far from the others
    group = (d1 < bound * near.distances[:, -1]) & ok
    # and nearer than nearly all rows are to their nearest: a small class is no group of copies
    twin = (twin | group) & (d1 < 0.6 * float(np.quantile(d1, 0.9)))
    share = float(twin.mean())
    numbers |= {"near_twins": share, "near_twins_bound": bound, "intrinsic_dimension": m}
    if twin.any():
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
    _note(out, "single", paired("knn_accuracy", before, named[known] == y[known]))


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
    near = rows.cosine[0]
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
        _note(out, "hubs", rows.gain(rows.x, keep=~hub))


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


# ---- labels ----


def _labels(out: Measured, rows: Rows, embeddings: Embeddings, seed: int) -> None:
    numbers = out.numbers
    asked = ~np.isnan(rows.base)
    here = rows.base[asked]
    far = paired("knn_accuracy", here, rows.euclidean[asked])
    _note(out, "euclidean", far)
    numbers["knn_accuracy_euclidean"] = far.after
    for name in ("untrained", "input"):
        other = embeddings.layers.get(name)
        if other is None or embeddings.h is None:
            continue
        raw = np.asarray(other[rows.ids], dtype=np.float64).reshape(len(rows.ids), -1)
        raw = raw - raw.mean(axis=0) if name == "input" else raw
        if raw.any() and np.isfinite(raw).all():
            _note(out, name, paired("knn_accuracy", rows.hits(raw)[asked], here))
    numbers |= _noise(out, rows)
    numbers |= _leak(rows, seed)
    numbers |= _dimension_steps(rows)
    numbers |= _class_spread(rows)
    numbers |= _structure(rows, seed)


def _noise(out: Measured, rows: Rows) -> dict[str, Any]:
    """Labels against neighbours that agree among themselves.

    Where classes merely overlap, rows with unanimous neighbours are named rightly; labels that are
    wrong at random are wrong there as often as anywhere.
    """
    near, asked = rows.cosine
    y = rows.y
    known = y[asked] >= 0
    near, asked = near._replace(ids=near.ids[known], distances=near.distances[known]), asked[known]
    c = int(y.max()) + 1
    votes = np.zeros((len(asked), c))
    own = np.bincount(y[y >= 0])
    few = int(np.clip(np.median(own[own > 0]) // 2, 3, near.ids.shape[1]))
    names = y[near.ids[:, :few]]  # fewer than a class has
    valid = names >= 0
    at = np.broadcast_to(np.arange(len(asked))[:, None], names.shape)
    np.add.at(votes, (at[valid], names[valid]), 1)
    top = votes.max(axis=1) / np.maximum(votes.sum(axis=1), 1)
    second = np.sort(votes, axis=1)[:, -2] / np.maximum(votes.sum(axis=1), 1) if c > 1 else 0 * top
    margin = top - second
    sure = margin >= np.quantile(margin, 0.75)
    wrong = votes.argmax(axis=1) != y[asked]
    share, n = float(wrong[sure].mean()), int(sure.sum())
    error = math.sqrt(max(share * (1 - share), 1 / n) / n)
    present = len(np.unique(y[y >= 0]))
    scale = present / max(present - 1, 1)
    # among the sure, wrong labels are as frequent as everywhere; overlap is not
    rest = float(wrong[~sure].mean()) if (~sure).any() else share
    suspects = asked[wrong & sure]
    if len(suspects):
        named = votes.argmax(axis=1)[wrong & sure]
        out.lists["suspects"] = Listed(
            "have a label that neighbours which agree do not name",
            rows.ids[suspects],
            {"label": y[suspects], "named": named},
        )
    return {
        "suspect_labels": share,
        "suspect_low": share - 1.96 * error,
        "suspect_high": share + 1.96 * error,
        "suspect_rest": rest,
        "suspect_margin": float(np.median(margin[sure])),
        "suspect_count": len(suspects),
        "suspect_scale": scale,
    }


def _leak(rows: Rows, seed: int) -> dict[str, Any]:
    """The direction that labels explain best, beside the second best, on rows held out."""
    x, y = rows.x, rows.y
    kept = np.flatnonzero(y >= 0)
    x, y = x[kept], np.unique(y[kept], return_inverse=True)[1]
    n, d, c = len(x), x.shape[1], int(y.max()) + 1
    if d > 400 or n < 3 * d + 3 * c or c < 3:
        if n < 200 or c < 3:
            return {}
        V = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][: min(n // 4, 200, d)]
        x = (x - x.mean(axis=0)) @ V.T
        d = x.shape[1]
        if n < 3 * d + 3 * c:
            return {}
    if x.std(axis=0).max() <= 1e-9 * max(float(np.abs(x).max()), 1e-300):
        return {}
    half = np.random.default_rng(seed).random(n) < 0.5
    if min(half.sum(), (~half).sum()) < 2 * c:
        return {}
    found = _discriminants(x[half], y[half], c)
    if found is None:
        return {}
    W = found[:, : min(4, c - 1)]
    held = (x[~half] - x[half].mean(axis=0)) @ W
    explained = [_explained(held[:, k], y[~half]) for k in range(held.shape[1])]
    order = sorted(explained, reverse=True)
    result: dict[str, Any] = {"label_direction": order[0], "label_direction_next": order[1]}
    centred = x - x.mean(axis=0)
    line = centred @ W[:, int(np.argmax(explained))]
    if not line.any():
        return {}
    away = centred - np.outer(line, centred.T @ line / (line @ line))
    before = voted(nearest(x, min(20, n - 1)), y) == y
    after = voted(nearest(away, min(20, n - 1)), y) == y
    result |= paired("knn_accuracy", before, after).numbers("leak")
    # how the means of classes lie on the line: a number of the class is evenly spaced
    means = np.array([line[y == k].mean() for k in range(c)])
    if means.std() > 0:
        result["label_steps"] = float(np.abs(np.corrcoef(np.arange(c), means)[0, 1]))
    return result


def _dimension_steps(rows: Rows) -> dict[str, Any]:
    """How evenly classes lie along the dimension that they explain best, beside the next best."""
    y = rows.y
    x, y = rows.x[y >= 0], np.unique(y[y >= 0], return_inverse=True)[1]
    c = int(y.max()) + 1
    explained = np.array([_explained(x[:, k], y) for k in range(x.shape[1])])
    order = np.argsort(-explained)
    if c < 3 or len(order) < 2:
        return {}
    best = x[:, order[0]]
    means = np.array([best[y == k].mean() for k in range(c)])
    if means.std() == 0:
        return {}
    return {
        "label_dimension_steps": float(np.abs(np.corrcoef(np.arange(c), means)[0, 1])),
        "label_in_next_dimension": float(explained[order[1]]),
    }


def _discriminants(x: np.ndarray, y: np.ndarray, c: int) -> np.ndarray | None:
    """Directions that separate classes best, by falling ratio; None where there is only one."""
    middle = x.mean(axis=0)
    means = np.stack([x[y == k].mean(axis=0) if (y == k).any() else middle for k in range(c)])
    inside = x - means[y]
    within = inside.T @ inside / len(x)
    within += (1e-3 * np.trace(within) / len(within) + 1e-12) * np.eye(len(within))
    between = (means - middle)[y]
    L = np.linalg.cholesky(within)
    A = np.linalg.solve(L, between.T).T
    V = np.linalg.svd(A, full_matrices=False)[2][: c - 1]
    return np.linalg.solve(L.T, V.T) if len(V) >= 2 else None


def _explained(values: np.ndarray, y: np.ndarray) -> float:
    total = float(((values - values.mean()) ** 2).sum())
    inside = sum(float(((values[y == k] - values[y == k].mean()) ** 2).sum()) for k in np.unique(y))
    return 1 - inside / total if total > 0 else 0.0


def _class_spread(rows: Rows) -> dict[str, Any]:
    """How much less the tightest class is spread than a typical one, and what it is."""
    y = rows.y
    spreads, names = [], []
    for k in np.unique(y[y >= 0]):
        own = rows.x[y == k]
        if len(own) >= 8:
            spreads.append(math.sqrt(float(own.var(axis=0).sum())))
            names.append(int(k))
    if len(spreads) < 2:
        return {}
    least = int(np.argmin(spreads))
    own = y[rows_asked := ~np.isnan(rows.base)] == names[least]
    typical = float(np.median(spreads))
    return {
        "class_spread": spreads[least] / typical if typical > 0 else 1.0,
        "class_tightest": names[least],
        "class_tightest_accuracy": float(rows.base[rows_asked][own].mean()) if own.any() else None,
    }


def _structure(rows: Rows, seed: int) -> dict[str, Any]:
    """Neighbours against those of columns shuffled on their own: whether rows have structure."""
    x = unit(rows.x[:FEW] - rows.x[:FEW].mean(axis=0))
    if len(x) < LEAST or not x.any():
        return {}
    draw = np.random.default_rng(seed)
    V = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2]
    own = (x - x.mean(axis=0)) @ V.T
    mixed = np.stack([own[draw.permutation(len(own)), k] for k in range(own.shape[1])], axis=1)
    near, control = (nearest(a, 1, "euclidean").distances[:, 0] for a in (own, mixed))
    control = np.where(control > 0, control, 1e-300)
    return {"structure": 1 - float(np.median(near) / np.median(control))}


def _groups(out: Measured, rows: Rows) -> None:
    """Two groups of rows that are hardly neighbours of each other, and have the same classes."""
    y = rows.y
    near = rows.cosine[0] if rows.split is None else nearest(rows.x, min(20, len(rows.x) - 1))
    n = len(rows.x)
    ids = near.ids[:, :10]
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    at = np.repeat(np.arange(n), ids.shape[1])
    A = csr_matrix((np.ones(ids.size), (at, ids.ravel())), shape=(n, n))
    A = A.maximum(A.T)
    degree = np.asarray(A.sum(axis=1)).ravel()
    root = 1 / np.sqrt(np.maximum(degree, 1))
    L = A.multiply(root[:, None]).multiply(root[None, :]).tocsr()
    start = np.random.default_rng(0).normal(size=n)
    try:
        _, V = eigsh(L, k=min(6, n - 2), which="LA", v0=start, tol=1e-3, maxiter=400)
    except ArpackNoConvergence:  # which says nothing of the rows
        return
    best: tuple[float, float, np.ndarray] | None = None
    for k in range(V.shape[1]):
        side = V[:, k] * root > np.median(V[:, k] * root)
        for cut in (side, V[:, k] * root > 0):
            share = float(cut.mean())
            if not 0.03 <= share <= 0.97:
                continue
            crossing = float((cut[ids] != cut[:, None]).mean())
            expected = 2 * share * (1 - share)
            apart = 1 - crossing / expected
            told = _told(cut, y)
            score = apart - 2 * told
            if best is None or score > best[0]:
                best = (score, apart, cut)
    if best is None:
        return
    cut = best[2]
    out.numbers |= {
        "groups_apart": best[1],
        "groups_told_by_labels": _told(cut, y),
        "groups_share": float(min(cut.mean(), 1 - cut.mean())),
    }
    if best[1] > 0.7 and out.numbers["groups_told_by_labels"] < 0.12:
        smaller = np.flatnonzero(cut if cut.mean() <= 0.5 else ~cut)
        out.lists["group"] = Listed("are neighbours of each other only", rows.ids[smaller])
    if best[1] > 0.7 and out.numbers["groups_told_by_labels"] < 0.15:
        x = rows.x.copy()
        for side in (cut, ~cut):
            x[side] = x[side] - x[side].mean(axis=0)
        _note(out, "groups", rows.gain(x))


def _told(cut: np.ndarray, y: np.ndarray) -> float:
    """Cramer's V of a cut and the labels."""
    known = y >= 0
    names, at = np.unique(y[known], return_inverse=True)
    table = np.zeros((2, len(names)))
    np.add.at(table, (cut[known].astype(int), at), 1)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    chi = float(((table - expected) ** 2 / np.maximum(expected, 1e-9)).sum())
    # bias-corrected: by chance it is about the degrees of freedom
    n, free = table.sum(), len(names) - 1
    return math.sqrt(max(0.0, (chi - free) / max(n, 1)))


def _split(out: Measured, rows: Rows) -> None:
    """Whether the two sides of a split come from one law, and what aligning them gains."""
    side = rows.split
    near = nearest(rows.x, min(10, len(rows.x) - 1))
    share = float((side == 1).mean())
    same = (side[near.ids] == 1).mean(axis=1)
    test, train = same[side == 1], same[side == 0]
    excess = float(test.mean() - train.mean())
    error = math.sqrt(test.var() / len(test) + train.var() / len(train) + 1e-9)
    out.numbers |= {
        "split_excess": excess,
        "split_score": excess / error,
        "split_share": share,
    }
    if excess > 0.05 and rows.y is not None:
        x = rows.x.copy()
        size = [math.sqrt(float(x[side == s].var(axis=0).sum())) or 1.0 for s in (0, 1)]
        x[side == 1] = (x[side == 1] - x[side == 1].mean(axis=0)) * size[0] / size[1]
        x[side == 1] += x[side == 0].mean(axis=0)
        _note(out, "sides", rows.gain(x))
        bank = rows._only(rows.x, side == 0)
        bank.split = None
        if bank.y is not None:
            out.numbers["split_train_accuracy"] = float(np.nanmean(bank.base))
