"""Signs of ills in pairs of rows, each with what its cure would gain in recall."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.diagnostics.assembly.cures import Pairs, different, note
from chiaroscuro.measures import Listed, unit

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Measured

__all__ = ["pair_signs"]

LEAST = 64
MOST = 1_500


def pair_signs(out: Measured, x1: np.ndarray, x2: np.ndarray, ids: np.ndarray) -> None:
    """Add what two sides show: mispaired rows, a gap, scales, columns in another order.

    Args:
        out: is added to.
        x1, x2: (n, d), row i of both from sample i, in the order of the file.
        ids: (n,), numbers of the rows.
    """
    if len(x1) < LEAST or x1.shape != x2.shape:
        return
    pairs = Pairs(x1[:MOST], x2[:MOST])
    ids = ids[:MOST]
    out.numbers |= _sides(out, pairs)
    _columns(out, pairs)
    _mispaired(out, pairs, ids)


def _sides(out: Measured, pairs: Pairs) -> dict[str, Any]:
    x1, x2 = pairs.x1, pairs.x2
    m1, m2 = x1.mean(axis=0), x2.mean(axis=0)
    u1, u2 = unit(x1), unit(x2)
    spread = math.sqrt(float((u1.var(axis=0).sum() + u2.var(axis=0).sum()) / 2))
    gap = float(np.linalg.norm(u1.mean(axis=0) - u2.mean(axis=0)))
    sizes = [float(np.median(np.linalg.norm(x, axis=1))) for x in (x1, x2)]
    spreads = [math.sqrt(float(x.var(axis=0).sum())) for x in (x1, x2)]
    numbers: dict[str, Any] = {
        "side_gap": gap / spread if spread > 0 else 0.0,
        "side_scale": spreads[1] / spreads[0] if min(spreads) > 0 else 1.0,
        "side_norms": sizes[1] / sizes[0] if min(sizes) > 0 else 1.0,
        "side_recall": float(pairs.base.mean()),
    }
    if numbers["side_gap"] > 0.25:
        # over what subtracting one mean from both gains: an offset that sides share is no gap
        shared = Pairs(x1 - (m1 + m2) / 2, x2 - (m1 + m2) / 2)
        best = shared if shared.base.mean() > pairs.base.mean() else pairs
        note(out, "gap", best.gain(x1 - m1, x2 - m2))
    if abs(math.log(max(numbers["side_scale"], 1e-12))) > math.log(1.1) and min(spreads) > 0:
        # over what subtracting the means alone gains, which is another finding's
        centred = Pairs(x1 - m1, x2 - m2)
        both = centred.x1 / spreads[0], centred.x2 / spreads[1]
        plain = pairs.gain(x1 / spreads[0], x2 / spreads[1], metric="euclidean")
        found_in = centred.gain(*both, metric="euclidean")
        note(out, "scales", min(plain, found_in, key=lambda one: one.gain))
    return numbers


def _columns(out: Measured, pairs: Pairs) -> None:
    """Columns of the second side that belong elsewhere: matched by correlation over the pairs."""
    from scipy.optimize import linear_sum_assignment

    n, d = pairs.x1.shape
    if d > 1024:
        return
    half = np.arange(n) % 2 == 0
    z1, z2 = (x - x.mean(axis=0) for x in (pairs.x1, pairs.x2))
    c1, c2 = (z[half] / np.maximum(np.linalg.norm(z[half], axis=0), 1e-300) for z in (z1, z2))
    C = np.abs(c1.T @ c2)
    own = np.diag(C)
    # only a column that another matches far better than its own has moved
    if float((C.max(axis=1) > own + 5 / math.sqrt(half.sum())).mean()) < 0.02:
        return
    to = linear_sum_assignment(-C)[1]
    moved = to != np.arange(d)
    better = C[np.arange(d), to] > own + 4 / math.sqrt(half.sum())
    out.numbers |= {
        "columns_moved": int((moved & better).sum()),
        "columns_correlation": float(np.median(C[np.arange(d), to][moved & better]))
        if (moved & better).any()
        else 0.0,
    }
    if (moved & better).any():
        note(out, "columns_back", pairs.gain(pairs.x1, pairs.x2[:, to]))


def _exchanged(out: Measured, pairs: Pairs) -> dict[str, Any]:
    """Rows that stand in twos, each of which is nearest to the partner of the other.

    Of rows whose own partner is not the nearest few do so by chance, however little the sides
    share; nearly all do where partners of two samples that are alike were exchanged.
    """
    S = pairs.scores
    at = np.arange(len(S))
    to = S.argmax(axis=1)
    crossed = (to[to] == at) & (to != at)
    if crossed.any():
        note(out, "exchanged", pairs.gain(pairs.x1, pairs.x2[np.where(crossed, to, at)]))
    return {"exchanged": float(crossed.mean()), "astray": float((to != at).mean())}


def _borrowed(pairs: Pairs, lost: np.ndarray) -> dict[str, Any]:
    """Rows that lost their partner and share the one they have, bit for bit, with another row.

    Samples may well share a partner, as images do a caption, but are then as near to it as the
    others are to theirs. Where all rows share one, there are no others: `single_lost` is missing.

    Args:
        lost: mask of the rows that are far from their partner.
    """
    first, second = (different(x)[1] for x in (pairs.x1, pairs.x2))
    both = different(np.stack([first, second], axis=1))[1]
    alike = np.bincount(both)[both]
    shared = (np.bincount(first)[first] > alike) | (np.bincount(second)[second] > alike)
    if not shared.any():
        return {"borrowed": 0.0}
    return {
        "borrowed": float((lost & shared).mean()),
        "shared_lost": float(lost[shared].mean()),
        "single_lost": float(lost[~shared].mean()) if not shared.all() else None,
    }


def _mispaired(out: Measured, pairs: Pairs, ids: np.ndarray) -> None:
    """Partners that are elsewhere: by a common shift, or anywhere.

    `elsewhere`: of the rows that lost their partner, the share for which another row of the other
    side is nearer than every row of the own side. One half where there is no partner to be found,
    however much views destroy; nearly all where it stands in another row.
    """
    S = pairs.scores
    n = len(S)
    own = np.diag(S)
    ahead = ((own[:, None] < S).mean(axis=1), (own[None, :] < S).mean(axis=0))
    lost = (ahead[0] > 0.1) & (ahead[1] > 0.1)
    u1, u2 = unit(pairs.x1), unit(pairs.x2)
    others = S - np.where(np.eye(n, dtype=bool), np.inf, 0)
    best, back = others.argmax(axis=1), others.argmax(axis=0)
    across = others.max(axis=1), others.max(axis=0)
    inside = []
    for u in (u1, u2):
        own_side = u @ u.T
        np.fill_diagonal(own_side, -np.inf)
        inside.append(own_side.max(axis=1))
    numbers = out.numbers
    numbers["pairs_lost"] = float(lost.mean())
    # the rank of a stranger is uniform: its upper half holds half of them
    upper = np.concatenate(ahead)
    numbers["pairs_uniform"] = float(min(1.0, 2 * (upper > 0.5).mean()))
    numbers["pairs_upper"] = float((upper > 0.75).mean() / max(float((upper > 0.5).mean()), 1e-9))
    numbers["pairs_middle"] = float(((upper > 0.05) & (upper < 0.5)).mean())
    numbers |= _exchanged(out, pairs) | _borrowed(pairs, lost)
    if not lost.any():
        return
    nearer = [(across[k] > inside[k])[lost] for k in (0, 1)]
    share = float(np.mean(nearer))
    numbers["elsewhere"] = share
    numbers["elsewhere_score"] = (share - 0.5) / (0.5 / math.sqrt(int(lost.sum())))
    mispaired = lost & (back[best] == np.arange(n)) & (across[0] > inside[0])
    mispaired &= (across[1] > inside[1])[best]
    shift = (best - np.arange(n))[mispaired]
    if len(shift) >= 5:
        values, counts = np.unique(shift, return_counts=True)
        at = int(counts.argmax())
        moved = np.flatnonzero(mispaired & (best - np.arange(n) == values[at]))
        numbers |= {
            "pair_shift": int(values[at]),
            "pair_shift_share": float(counts[at] / len(shift)),
            "pair_shift_from": int(ids[moved[0]]),
            "pair_shift_to": int(ids[moved[-1]]),
        }
    order = np.flatnonzero(lost)[np.argsort(-ahead[0][lost], kind="stable")]
    out.lists["mispaired"] = Listed(
        "are farther from their partner than from a tenth of the other rows",
        ids[order],
        {"nearest": ids[best[order]], "strangers_nearer": ahead[0][order]},
        pointers=("nearest",),
    )
    to = np.arange(n)
    to[mispaired] = best[mispaired]
    note(out, "pairs", pairs.gain(pairs.x1, pairs.x2[to]))
