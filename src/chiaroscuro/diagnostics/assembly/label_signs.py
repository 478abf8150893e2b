"""Signs of ills in labels and splits, each with what its cure would gain on the arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.assembly.cures import Rows, note, paired
from chiaroscuro.measures import Listed, nearest, unit, voted

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = ["label_signs", "split_signs"]

FEW = 1_000
"""Rows for signs that compare all of them in other ways than by neighbours."""
LEAST = 64
TIGHT = 0.5
"""Spread of a class over that of a typical one, below which it is seen what it takes of others."""
SHOWN = 10
"""Classes that are named, of those at one point."""
PRINCIPAL = 5
"""Principal directions in which a label may lie."""
CODE = 0.6
"""Share of the variance of a dimension that labels must explain for it to be a code of them."""


def label_signs(out: Measured, rows: Rows, embeddings: Embeddings, seed: int) -> None:
    """Add what labels show: controls, wrong labels, leaks, tight classes, mixed encoders.

    Args:
        out: is added to.
        rows: with labels.
        embeddings: for layers of controls.
        seed: seed of all random choices.
    """
    numbers = out.numbers
    asked = ~np.isnan(rows.base)
    here = rows.base[asked]
    far = paired("knn_accuracy_of_metrics", here, rows.euclidean[asked])
    note(out, "euclidean", far)
    numbers["knn_accuracy_euclidean"] = far.after
    for name in ("untrained", "input"):
        other = embeddings.layers.get(name)
        if other is None or embeddings.h is None:
            continue
        raw = np.asarray(other[rows.ids], dtype=np.float64).reshape(len(rows.ids), -1)
        raw = raw - raw.mean(axis=0) if name == "input" else raw
        if raw.any() and np.isfinite(raw).all():
            note(out, name, paired(rows.of, rows.hits(raw)[asked], here))
    _start(out, rows, embeddings)
    numbers |= _noise(out, rows)
    numbers |= _leak(rows, seed)
    numbers |= _dimension_steps(rows)
    numbers |= _codes(rows, seed)
    numbers |= _class_spread(out, rows)
    numbers |= _structure(rows, seed)
    _groups(out, rows)


def _start(out: Measured, rows: Rows, embeddings: Embeddings) -> None:
    """What taking the start out of rows regains: h less its projection on centred h before it."""
    first = embeddings.layers.get("untrained")
    if embeddings.h is None or first is None or first.shape != embeddings.h.shape:
        return
    h0 = np.asarray(first[rows.ids], dtype=np.float64)
    h0 -= h0.mean(axis=0)
    size = float((h0 * h0).sum())
    if size > 0 and np.isfinite(size):
        note(out, "start", rows.gain(rows.x - (rows.x * h0).sum() / size * h0))


def _noise(out: Measured, rows: Rows) -> dict[str, Any]:
    """Labels against neighbours that agree among themselves.

    Where classes merely overlap, rows with unanimous neighbours are named rightly; labels that are
    wrong at random are wrong there as often as anywhere.
    """
    near, asked = rows.near
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
            "have neighbours that agree on another label",
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
        **_strangeness(rows, asked[~wrong], suspects, votes.argmax(axis=1)[wrong & sure]),
    }


def _strangeness(
    rows: Rows, right: np.ndarray, suspects: np.ndarray, named: np.ndarray
) -> dict[str, Any]:
    """Where the class that a label gives stands among the others, by the distance of its mean.

    0.5 in the mean for labels that are wrong at random; near 0 where classes that lie together
    overlap, however often. Means are of the rows that neighbours name rightly.
    """
    y = rows.y
    names = np.unique(y[right])
    kept = np.isin(y[suspects], names) & np.isin(named, names)
    suspects, named = suspects[kept], named[kept]
    if len(names) < 4 or len(suspects) < 5:
        return {}
    x = unit(rows.x - rows.x.mean(axis=0))
    means = unit(np.stack([x[right[y[right] == k]].mean(axis=0) for k in names]))
    scores = x[suspects] @ means.T
    at = np.arange(len(suspects))
    own = scores[at, np.searchsorted(names, y[suspects])].copy()
    scores[at, np.searchsorted(names, named)] = -np.inf
    ranks = (scores > own[:, None]).sum(axis=1) / (len(names) - 2)
    error = 0.29 / math.sqrt(len(ranks))
    return {"suspect_strange": float(ranks.mean()), "suspect_strange_error": error}


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
    discriminants = _discriminants(x[half], y[half], c)
    if discriminants is None:
        return {}
    W = discriminants[:, : min(4, c - 1)]
    held = (x[~half] - x[half].mean(axis=0)) @ W
    explained = [_explained(held[:, k], y[~half]) for k in range(held.shape[1])]
    order = sorted(explained, reverse=True)
    result: dict[str, Any] = {"label_direction": order[0], "label_direction_next": order[1]}
    # the best direction by itself, against all others that separate classes
    every = (x[~half] - x[half].mean(axis=0)) @ discriminants
    first = int(np.argmax(explained))
    result |= {
        "label_direction_alone": _named(every[:, [first]], y[~half], "euclidean"),
        "label_direction_others": _named(np.delete(every, first, 1), y[~half], "euclidean"),
    }
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
    """Dimensions and principal directions with the classes in the order of their numbers.

    `label_dimension_steps` is of the dimension that labels explain best; `label_line` is the
    dimension, or after them the principal direction, with the classes in order most surely.
    """
    y = rows.y
    x, y = rows.x[y >= 0], np.unique(y[y >= 0], return_inverse=True)[1]
    c = int(y.max()) + 1
    d = x.shape[1]
    if c < 3 or d < 2:
        return {}
    centred = x - x.mean(axis=0)
    V = np.linalg.svd(centred[:FEW], full_matrices=False)[2][:PRINCIPAL]
    lines = np.concatenate([centred, centred @ V.T], axis=1)
    total = (lines**2).sum(axis=0)
    live = total > 1e-18 * max(float(total.max()), 1e-300)
    counts = np.bincount(y, minlength=c).astype(np.float64)
    means = np.stack([np.bincount(y, column, c) for column in lines.T], axis=1) / counts[:, None]
    explained = np.where(
        live, (counts[:, None] * means**2).sum(axis=0) / np.maximum(total, 1e-300), 0
    )
    apart = means - means.mean(axis=0)
    steps = np.arange(c) - (c - 1) / 2
    size = np.linalg.norm(apart, axis=0) * np.linalg.norm(steps)
    r = np.where(live & (size > 0), np.abs(steps @ apart) / np.maximum(size, 1e-300), 0)
    order = np.argsort(-explained[:d])
    if not live[order[0]]:
        return {}
    likely = np.where(explained >= 0.2, r, 0)
    at = int(likely.argmax())
    return {
        "label_dimension_steps": float(r[order[0]]),
        "label_in_next_dimension": float(explained[order[1]]),
        "label_line": at,
        "label_line_steps": float(likely[at]),
        "label_line_explains": float(explained[at]),
        "label_line_p": _by_chance(float(likely[at]), c, lines.shape[1]),
    }


def _codes(rows: Rows, seed: int) -> dict[str, Any]:
    """A few dimensions that tell the classes sharply and have nothing else in common with the rest.

    Those before the largest fall of what labels leave unexplained, at most as many as classes.
    `code_alone` and `code_others` are the labels that neighbours name in these dimensions and in
    all others; `code_shared` is the share of what varies inside classes in these dimensions that
    the others predict, on rows held out: a unit of the encoder shares much with other units, a
    label that was written beside them nothing.
    """
    y = rows.y
    x, y = rows.x[y >= 0], np.unique(y[y >= 0], return_inverse=True)[1]
    c = int(y.max()) + 1
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0))[:, spread > 1e-9 * max(float(spread.max()), 1e-300)]
    n, d = x.shape
    if c < 3 or d < 4 or n < LEAST:
        return {}
    z = x / x.std(axis=0)
    means = np.stack([np.bincount(y, column, c) for column in z.T], axis=1)
    inside = z - (means / np.bincount(y)[:, None])[y]
    left = (inside**2).mean(axis=0)
    order = np.argsort(left)
    most = int(min(c, d // 2, (left < 1 - CODE).sum()))
    if not most:
        return {}
    falls = left[order[1 : most + 1]] / np.maximum(left[order[:most]], 1e-12)
    k = int(falls.argmax()) + 1
    own, others = order[:k], order[k:]
    some = others[np.random.default_rng(seed).permutation(len(others))[: n // 4]]
    half = np.random.default_rng(seed).random(n) < 0.5
    A, B = inside[half][:, some], inside[half][:, own]
    G = A.T @ A
    ridge = 0.1 * np.trace(G) / len(G) + 1e-12  # of classes that are points G is 0
    W = np.linalg.solve(G + ridge * np.eye(len(G)), A.T @ B)
    kept = inside[~half][:, own]
    wrong = kept - inside[~half][:, some] @ W
    return {
        "code_dimensions": k,
        "code_first": int(np.flatnonzero(spread > 1e-9 * spread.max())[own[0]]),
        "code_fall": float(falls[k - 1]),
        "code_shared": 1 - float((wrong**2).sum() / max(float((kept**2).sum()), 1e-300)),
        "code_alone": _named(z[:, own], y, "euclidean"),
        "code_others": _named(x[:, others], y, rows.metric),
    }


def _named(x: np.ndarray, y: np.ndarray, metric: str) -> float:
    """The share of the labels that neighbours name."""
    return float((voted(nearest(x, min(20, len(x) - 1), metric), y) == y).mean())


def _by_chance(r: float, c: int, tried: int) -> float:
    """The probability that means of c classes lie so evenly in the order of their numbers."""
    from scipy.stats import t

    if c < 3:
        return 1.0
    score = r * math.sqrt((c - 2) / max(1 - r * r, 1e-12))
    return min(1.0, 2 * tried * float(t.sf(score, c - 2)))


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


def _class_spread(out: Measured, rows: Rows) -> dict[str, Any]:
    """How much less the tightest class is spread than a typical one, and what it takes of others.

    A class that has become a point is its own neighbour, and that of rows of others which it has
    come near to: those are named by it. Its cure is to leave it out of the neighbours of others.
    """
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
    tight = [k for k, spread in zip(names, spreads, strict=True) if spread < TIGHT * typical]
    inside = np.isin(y[rows_asked], tight)
    numbers: dict[str, Any] = {}
    if spreads[least] < TIGHT * typical:
        numbers = _taken(out, rows, names[least])
    numbers |= _at_one_point(rows, names, np.array(spreads))
    if len(tight) > 1 and inside.any() and not inside.all():
        hits = rows.base[rows_asked]
        numbers["tight_classes"] = len(tight)
        numbers["tight_classes_accuracy"] = float(hits[inside].mean())
        numbers["other_classes_accuracy"] = float(hits[~inside].mean())
    return {
        **numbers,
        "class_spread": spreads[least] / typical if typical > 0 else 1.0,
        "class_tightest": names[least],
        "class_tightest_accuracy": float(rows.base[rows_asked][own].mean()) if own.any() else None,
    }


def _at_one_point(rows: Rows, names: list[int], spreads: np.ndarray) -> dict[str, Any]:
    """Classes that lie at one point: together they spread no more than one of them.

    Against the widest class, since they may be most of all.
    """
    tight = spreads < TIGHT * spreads.max()
    inside = np.isin(rows.y, np.array(names)[tight])
    asked = inside & ~np.isnan(rows.base)
    if tight.sum() < 2 or not asked.any() or tight.all():
        return {}
    u = unit(rows.x)
    angles = np.array([math.sqrt(float(u[rows.y == k].var(axis=0).sum())) for k in names])
    named = [str(name) for name, one in zip(names, tight, strict=True) if one]
    return {
        "point_classes": int(tight.sum()),
        "point_classes_named": ", ".join(named[:SHOWN]) + ", ..." * (len(named) > SHOWN),
        "point_classes_spread": float(np.median(spreads[tight]) / spreads.max()),
        "point_classes_together": math.sqrt(float(rows.x[inside].var(axis=0).sum()))
        / float(spreads.max()),
        "point_classes_directions": float(np.median(angles[tight]) / max(angles.max(), 1e-300)),
        "point_classes_accuracy": float(rows.base[asked].mean()),
    }


def _taken(out: Measured, rows: Rows, tight: int) -> dict[str, Any]:
    """The share of the rows of other classes that neighbours name by this one, and by typical ones.

    Args:
        tight: the class.
    """
    y = rows.y
    near, asked = rows.near
    named = voted(near, y)
    takes = {}
    for k in np.unique(y[y >= 0]).tolist():
        others = (y[asked] >= 0) & (y[asked] != k)
        takes[k] = float((named[others] == k).mean()) if others.any() else 0.0
    rest = y != tight
    others = rows.only(rest)
    if others.y is None or (rest[asked] & (y[asked] >= 0)).sum() < LEAST:
        return {}
    after = np.full(len(y), np.nan)
    after[rest] = others.base
    both = ~np.isnan(rows.base) & ~np.isnan(after)
    note(out, "tight_class", paired(rows.of, rows.base[both], after[both]))
    typical = float(np.median([takes[k] for k in takes if k != tight]))
    return {"class_tightest_takes": takes[tight], "class_typical_takes": typical}


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
    every = lambda: nearest(rows.x, min(20, len(rows.x) - 1), rows.metric)
    near = rows.near[0] if rows.split is None else every()
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
            score = apart - 2 * _told(cut, y)
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
    if best[1] > 0.7 and best[0] > 0.4:
        smaller = np.flatnonzero(cut if cut.mean() <= 0.5 else ~cut)
        out.lists["group"] = Listed("are neighbours of each other only", rows.ids[smaller])
        x = rows.x.copy()
        for side in (cut, ~cut):
            x[side] = x[side] - x[side].mean(axis=0)
        note(out, "groups", rows.gain(x))
        ids = nearest(x, ids.shape[1], rows.metric).ids
        share = float(cut.mean())
        crossing = float((cut[ids] != cut[:, None]).mean())
        out.numbers["groups_apart_centred"] = 1 - crossing / (2 * share * (1 - share))
        u = rows.x[cut].mean(axis=0) - rows.x[~cut].mean(axis=0)
        along = (rows.x - rows.x[~cut].mean(axis=0)) @ u / max(float(u @ u), 1e-300)
        out.numbers["groups_valley"] = float(((along > 1 / 3) & (along < 2 / 3)).mean())


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


def split_signs(out: Measured, rows: Rows) -> None:
    """Add whether the two sides of a split come from one law, and what aligning them gains."""
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
        note(out, "sides", rows.gain(x))
    if rows.y is None:
        return
    bank = rows.only(side == 0)
    bank.split = None
    if bank.y is not None:  # as many labels of either side would be named, were it one law
        own, test = (hits[~np.isnan(hits)] for hits in (bank.base, rows.base))
        error = math.sqrt(sum((a.var() + 1 / len(a)) / len(a) for a in (own, test)))
        out.numbers["split_train_accuracy"] = float(own.mean())
        out.numbers["split_gap_score"] = float(own.mean() - test.mean()) / error
