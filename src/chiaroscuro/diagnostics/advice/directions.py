"""Offsets, directions and dimensions that drown the rest: cured by a line of numpy."""

from __future__ import annotations

from chiaroscuro.diagnostics.advice.collapse import bottleneck
from chiaroscuro.diagnostics.advice.finding import COSTLY, Facts, Finding, graded
from chiaroscuro.diagnostics.advice.samples import HUB

__all__ = [
    "coarse_quantisation",
    "common_offset",
    "dominating_direction",
    "repeated_dimensions",
    "uneven_dimensions",
]

CONE = 0.9
"""Mean cosine that is worth a word; supervised features reach 0.6, relu features 0.9."""
NARROW = 0.95
"""Mean cosine from which on, without labels, an offset that moves neighbours is a warning."""
MOVED = 0.3
"""Share of neighbours that the cure changes, where there are no labels to be right about."""
HALFWAY, DROWNS = 0.6, 0.5
"""Mean cosine, and share of neighbours that the cure changes, where there are hubs as well."""
FIRST, AHEAD = 0.25, 2.5
"""Share of the variance in one direction, and its length over that of the second."""
DROWNED = 0.06
"""Share of labels that projecting a few directions out regains, where none is far ahead."""
LEVELS = 16
"""Values of a dimension that can be counted on fingers."""
EMPTY = 0.4
"""Entropy of the values, over that of equally frequent ones, where most rows have the same one."""


def common_offset(facts: Facts) -> Finding | None:
    """All rows share a large mean, in whose cone cosines are nearly alike."""
    cost = facts.cost("centre")
    cosine = facts.get("mean_cosine_without_far", facts.main("mean_cosine"))
    if cost is None or cosine is None:
        return None
    severity = graded(cost, built=facts.built)
    # a mean that makes one row everyone's neighbour drowns the others, in a wider cone as well
    hub = facts.main("hub_share", 0.0) >= 3 * HUB and cosine >= HALFWAY and cost.gain >= DROWNS
    hub = hub and not facts.built
    curves = facts.get("curves", False)  # of series the mean is a curve, and their own
    if not cost.right and not curves and ((cosine >= NARROW and cost.gain >= MOVED) or hub):
        severity = "warning"
    if cosine < 0.6 and cost.gain < 0.05:
        severity = "note"
    if severity == "note" and cosine < CONE:
        return None
    if not facts.contrastive:
        severity = "note"
    return Finding(
        name="common_offset",
        severity=severity,
        evidence=(
            f"the mean cosine of distinct rows is {cosine:.4f}; without their mean it is near 0"
        ),
        cause="all rows share one large offset, so that cosines compare it and not the samples",
        advice="subtract the mean of all rows before taking cosines, or use Euclidean distances",
        line="h = h - h.mean(axis=0)",
        expect="mean cosine near 0",
        paper="mu2018allbutthetop",
        strength=cosine / CONE,
        explains=("hubs", "euclidean_neighbours", "dominating_direction"),
        cost=cost,
    )


def dominating_direction(facts: Facts) -> Finding | None:
    """One direction holds much of the variance and tells little."""
    cost = facts.cost("first")
    if cost is None or not facts.has("top_share", "top_over_second"):
        return None
    top, ahead = facts["top_share"], facts["top_over_second"]
    alone = top >= FIRST and ahead >= AHEAD
    columns = facts.cost("columns")
    drowns = cost.right and cost.gain >= DROWNED and cost.low >= DROWNED / 2
    drowns = drowns and (columns is None or columns.gain < cost.gain - COSTLY)
    if not (alone or drowns) or not facts.contrastive:
        return None
    severity = graded(cost, built=facts.built or not alone)  # of three ways the best one
    k = facts.get("first_removed", 1)
    if not cost.right and top >= 0.7 and cost.gain >= MOVED and not facts.built:
        severity = "warning"
    return Finding(
        name="dominating_direction",
        severity=severity,
        evidence=(
            f"one direction (most of it dimension {facts['first_dimension']}) holds "
            f"{100 * top:.1f} % of the variance and is {ahead:.1f} times as long as the second"
            + ("" if k == 1 else f"; without the first {k} neighbours are best")
        ),
        cause="a nuisance such as length, brightness or frequency, or one unit of large outputs",
        advice="project that direction out before comparing rows"
        if k == 1
        else f"project the first {k} directions out before comparing rows",
        line=(
            f"h = h - h.mean(axis=0); V = np.linalg.svd(h, full_matrices=False)[2][:{k}]; "
            "h = h - h @ V.T @ V"
        ),
        expect=f"no direction with more than {100 * FIRST:.0f} % of the variance",
        paper="mu2018allbutthetop",
        strength=top / FIRST,
        explains=(
            *("dimensional_collapse", "uneven_dimensions", "hubs", "repeated_dimensions"),
            "mixed_encoders",
        ),
        cost=cost,
    )


def uneven_dimensions(facts: Facts) -> Finding | None:
    """Dimensions in units of their own, or a few that outweigh the others."""
    cost = facts.cost("columns")
    if cost is None or facts.kind == "map":
        return None
    dead = facts.get("faint_dimensions", 0) + facts.get("constant_dimensions", 0)
    if facts.contrastive and dead >= max(2, 0.1 * facts.main("d", 1)):
        return None  # `dead_dimensions` speaks of it
    severity = graded(cost, built=facts.built)
    if severity == "note" and facts.kind != "table":
        return None
    if not facts.contrastive:
        severity = "note"
    return Finding(
        name="uneven_dimensions",
        severity=severity,
        evidence=(
            f"the widest dimension spreads {facts.get('spread_ratio', 1.0):.1f} times as far as a "
            "typical one"
        ),
        cause="columns with different units, or units of a network with very large outputs",
        advice="standardise the columns before comparing rows",
        line="h = (h - h.mean(axis=0)) / np.where(h.std(axis=0) > 0, h.std(axis=0), 1)",
        expect="columns of like spread",
        paper="mu2018allbutthetop",
        strength=1 + 10 * max(cost.gain, 0.0),
        explains=("dimensional_collapse", "hubs", "euclidean_neighbours"),
        cost=cost,
    )


def repeated_dimensions(facts: Facts) -> Finding | None:
    """Dimensions that are another, or a sum of others."""
    again, dependent = facts.get("repeated_dimensions", 0), facts.get("dependent_dimensions", 0)
    if not again and not dependent:
        return None
    if facts.kind not in ("embedding", "table") or facts.get("points", 0) or bottleneck(facts):
        return None
    cost = facts.cost("distinct") if again else facts.cost("even")
    d = facts.main("d", 0)
    several = again or dependent >= max(2, 0.05 * d)  # logits leave one out by design
    return Finding(
        name="repeated_dimensions",
        severity=graded(cost) if several else "note",
        evidence=(
            f"{again} of {d} dimensions repeat another one (correlation above 0.98)"
            if again
            else f"{dependent} of {d} dimensions are sums of the others"
        ),
        cause="outputs were concatenated twice, or units learned the same: what they encode counts "
        "as often as they occur",
        advice="keep one of each" if again else "give the principal directions equal scale",
        line=(
            "C = np.abs(np.corrcoef(h.T)) > 0.98; h = h[:, ~np.triu(C, 1).any(axis=0)]"
            if again
            else "h = h - h.mean(axis=0); U, s, V = np.linalg.svd(h, full_matrices=False); "
            "h = U * (s / np.sqrt(s**2 + (0.3 * s[0])**2))"
        ),
        expect="as many directions as dimensions",
        paper="jing2022directclr",
        strength=max(again, dependent) / max(d, 1) * 10,
        explains=("dominating_direction", "dimensional_collapse", "uneven_dimensions"),
        cost=cost,
    )


def coarse_quantisation(facts: Facts) -> Finding | None:
    """Dimensions with so few values that neighbours may suffer.

    What was lost cannot be measured without the original; what half as many values would lose is
    measured instead. Counts and binary codes are meant to be so: a note.
    """
    levels, own = facts.get("levels"), facts.get("row_levels", 99)
    in_rows = levels is not None and levels > LEVELS >= own
    levels = own if in_rows else levels
    if levels is None or levels > LEVELS or facts.kind in ("map", "counts", "shares"):
        return None
    if facts.main("effective_rank", 1.0) <= 0:
        return None
    coarser = facts.cost("coarser")
    lost = 0.0 if coarser is None or not coarser.right else -coarser.gain
    sure = coarser is not None and coarser.right and -coarser.high >= 0.005
    # bags of words are not on one, and absent or there
    grid = facts.get("even_levels", 1.0) >= 0.5 and (levels > 2 or not facts["nonnegative"])
    empty = (
        not in_rows and facts.get("level_entropy", 1.0) < EMPTY and levels <= LEVELS / 2 and grid
    )
    return Finding(
        name="coarse_quantisation",
        severity="warning"
        if (lost >= 0.03 and sure and facts.kind != "codes" and grid) or empty
        else "note",
        evidence=(
            f"a {'row' if in_rows else 'dimension'} takes {levels} different values"
            + (
                f", with {facts['level_entropy']:.0%} of the entropy that so many can have"
                if empty
                else ""
            )
            + (f"; half as many would cost {100 * lost:.1f} points" if coarser is not None else "")
        ),
        cause="rows were stored in few bits, or rounded",
        advice="compare neighbours with those of the rows before rounding, and store int8 with a "
        "scale for each dimension, or float16",
        expect=f"more than {LEVELS} values",
        paper="jegou2011quantization",
        strength=LEVELS / max(levels, 1),
        explains=(
            *("duplicated_samples", "repeated_dimensions", "label_noise", "common_offset"),
            *("mixed_normalisation", "mixed_scales", "dead_dimensions", "hubs", "zero_rows"),
            *("uneven_dimensions", "mixed_encoders", "at_chance"),
        ),
    )
