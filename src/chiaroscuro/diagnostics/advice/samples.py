"""Rows: twins, zeros, far ones, hubs, lengths and encoders that are mixed."""

from __future__ import annotations

from chiaroscuro.diagnostics.advice.finding import COSTLY, Cost, Facts, Finding, graded

__all__ = [
    "duplicated_samples",
    "hubs",
    "imbalanced_classes",
    "mixed_encoders",
    "mixed_normalisation",
    "mixed_scales",
    "outlier_rows",
    "shrunk_rows",
    "zero_rows",
]

TWINS, NEAR = 0.1, 0.3
"""Share of rows with an exact twin, and with a near one, that is a warning where nothing says what
they flatter."""
SEEN = 0.005
"""Share of rows with a near twin that is worth a word; by chance a thousandth."""
GRID = 8
"""Values of a dimension up to which rows may coincide without being copies."""
HUB = 0.1
"""Share of all rows that have one and the same row among their ten nearest."""
MOST = 0.6
"""The same, where it says enough without labels: most rows have one and the same neighbour."""
SKEW = 4.0
"""Skewness of the counts; sentence embeddings in 384 dimensions have 1.7."""
EVEN = 0.8
"""Entropy of the classes over that of even ones."""
VALLEY = 0.06
"""Share of the rows with a length in the middle third between two groups of lengths."""
ALONE = 0.45
"""How much more apart two groups of rows are than twice what their classes tell of them."""
NEVER = 0.95
"""How much apart two groups are that are hardly ever neighbours."""
TOGETHER, BETWEEN = 0.5, 0.1
"""How much apart two groups are without their means, where they differ in these alone; and the
share of the rows in the middle third between the two means, where it is one group."""
ALL_APART = ("dominating_direction", "at_chance", "common_offset", "hubs", "uneven_dimensions")
"""What two groups that are never neighbours bring about."""
MANY = 0.01
"""Share of far rows, twice that is a warning without labels."""


def duplicated_samples(facts: Facts) -> Finding | None:
    """Rows far nearer to another one than neighbours are, for data of this dimension.

    Symbols are meant to occur more than once, each with the same row.
    """
    share = facts.get("near_twins")
    if share is None or facts.get("symbols") or facts.kind in ("map", "codes", "counts", "shares"):
        return None
    exact, n = facts.main("exact_duplicates", 0), facts.main("n", 1)
    whole = facts.has("all_exact_duplicates") and facts["all_exact_duplicates"] >= exact
    if whole:  # of a pass over all rows of the file
        exact, n = facts["all_exact_duplicates"], facts.get("all_rows", n)
    bound = facts.get("near_twins_bound", 0.0)
    if share < SEEN and not exact:
        return None
    single = facts.cost("single")
    flattered = 0.0 if single is None else -single.gain
    sure = flattered >= COSTLY and single is not None and -single.high >= 0
    grid = facts.get("levels", 99) <= GRID  # on a grid rows meet by chance
    many = single is None and (exact / n >= TWINS or (share >= NEAR and not grid))
    severity = "warning" if sure or many else "note"
    near = (
        f"{100 * share:.1f} % of the rows have a twin, less than {bound:.2g} times as far away as "
        "their tenth neighbour"
        if share >= SEEN
        else ""
    )
    same = "equal another, bit for bit" if whole else "point exactly where another does"
    equal = f"{exact:,} of {n:,} rows ({100 * exact / n:.3g} %) {same}"
    votes = (
        f"neighbours predict {single.before:.1%} of the labels with twins and {single.after:.1%} "
        "without"
        if single is not None
        else ""
    )
    return Finding(
        name="duplicated_samples",
        severity=severity,
        evidence="; ".join(filter(None, (near, equal, votes))),
        cause=f"samples {'occur' if exact else 'may occur'} more than once, perhaps encoded or "
        "cropped anew: they are their own negatives and their own test neighbours",
        advice="keep one of each group, and no group on both sides of a split; rows and their "
        f"twins are listed as `{'near_twins' if share >= SEEN else 'duplicates'}`",
        line=(
            "u = h / np.linalg.norm(h, axis=1, keepdims=True); "
            "h = h[np.unique(np.round(u, 6), axis=0, return_index=True)[1]]"
        )
        if exact
        else "",
        settings={"data.distinct": True},
        expect=f"fewer than {100 * (TWINS if max(share, exact / n) > TWINS else SEEN):g} % twins",
        paper="wu2018instance",
        strength=share / TWINS,
        explains=("hubs", "leaked_label"),
        symptom=severity == "note",  # a few twins are in most files, and stand behind the rest
    )


def zero_rows(facts: Facts) -> Finding | None:
    """Rows of zeros, which have no direction."""
    zero, n = facts.get("zero_rows", facts.get("z_zero_rows", 0)), facts.main("n", 1)
    if not zero:
        return None
    share = zero / n
    cost = facts.cost("nonzero")
    severity = "critical" if share >= 0.5 else graded(cost)
    if (cost is None or not cost.right) and COSTLY <= share < 0.5 and facts.kind != "counts":
        severity = "warning"  # as many labels as there are zero rows are lost, if there are any
    return Finding(
        name="zero_rows",
        severity=severity,
        evidence=f"{zero} of {n} rows ({100 * share:.3g} %) are zero: they have no direction, and "
        "their cosine with every row is 0",
        cause="samples that could not be read, empty texts, dead units, or an array that was "
        "never filled",
        advice="leave these rows out and look at their samples; they are listed as `zero`",
        line="keep = np.any(h != 0, axis=1); h = h[keep]",
        expect="no zero rows",
        paper="wu2018instance",
        strength=1 + 100 * share,
        explains=(
            *("hubs", "duplicated_samples", "outlier_rows", "point_collapse", "common_offset"),
            *("mixed_normalisation", "mixed_scales", "mixed_encoders", "shrunk_rows"),
        ),
        cost=cost,
    )


def outlier_rows(facts: Facts) -> Finding | None:
    """Rows of four median lengths and more."""
    far, n = facts.get("far_rows", 0), facts.main("n", 1)
    if not far or facts.kind in ("map", "counts"):
        return None
    share = far / n
    if share > 0.4:
        return None  # two scales, not outliers
    cost = facts.cost("trim")
    severity = graded(cost)
    group = far > 10 * facts.get("far_tail", 0)  # of a heavy tail rows are on the way there
    if severity == "note" and group and share >= 2 * MANY and (cost is None or not cost.right):
        severity = "warning"
    if facts.kind == "table":
        severity = "note"
    return Finding(
        name="outlier_rows",
        severity=severity,
        evidence=(
            f"{far} of {n} rows ({100 * share:.3g} %) are longer than four medians; "
            f"half of these are {facts['far_factor']:.1f} times as long as a typical row or longer"
        ),
        cause="samples unlike the others, a batch that overflowed, or rows that were never "
        "normalised",
        advice="look at these rows, listed as `far_rows`, and leave them out of means and spectra; "
        "cosines do not see lengths, distances and linear probes do",
        line="r = np.linalg.norm(h, axis=1); keep = r < 4 * np.median(r); h = h[keep]",
        expect="no row longer than four medians",
        paper="ioffe2015batchnorm",
        strength=1 + 50 * share,
        explains=(
            *("dimensional_collapse", "hubs", "dominating_direction", "mixed_scales"),
            *("uneven_dimensions", "common_offset", "mixed_encoders", "duplicated_samples"),
        ),
        cost=cost,
    )


def mixed_normalisation(facts: Facts) -> Finding | None:
    """Some rows have one and the same length, the others do not."""
    share, spread = facts.get("same_length"), facts.get("other_length_spread", 0.0)
    if share is None or facts.kind in ("map", "counts", "codes", "shares"):
        return None
    by_chance = 5 * 1e-3 / (2.5 * max(spread, 1e-3)) + 0.01
    if not by_chance < share < 0.99 or spread <= 0.02:
        return None
    cost = facts.cost("normalised")
    centred = bool(facts.get("normalised_centred", False)) and graded(cost) != "note"
    return Finding(
        name="mixed_normalisation",
        severity=graded(cost),
        evidence=(
            f"{100 * share:.1f} % of the rows have length {facts['same_length_is']:.4g}, the "
            f"others vary by {100 * spread:.0f} %"
        ),
        cause="some rows were normalised and some were not: two versions of a pipeline",
        advice="embed all rows by one pipeline: those of one length are centred as well, and to "
        "normalise the others is not enough"
        if centred
        else "normalise all rows, or none; cosines do not see it, distances do",
        line="" if centred else "h = h / np.linalg.norm(h, axis=1, keepdims=True)",
        expect="one length for all rows, or none",
        paper="wu2018instance",
        strength=1 + share,
        explains=("mixed_scales", "outlier_rows", "euclidean_neighbours", "mixed_encoders"),
        cost=cost,
    )


def mixed_scales(facts: Facts) -> Finding | None:
    """Lengths of rows form two groups."""
    gap, share = facts.get("length_gap", 0.0), facts.get("length_share", 0.5)
    if facts.kind in ("map", "counts", "codes"):
        return None
    cost = facts.cost("lengths")
    if facts.has("length_change_ratio"):
        return _changed_scale(facts) if graded(cost) != "note" else None
    if gap < 3 or not 0.04 <= share <= 0.96:
        return None
    if facts.get("length_valley", 0.0) > VALLEY:
        return None  # one group of lengths, however wide
    ratio = facts.get("length_ratio", 1.0)
    if ratio < 1.3:
        return None
    return Finding(
        name="mixed_scales",
        severity=graded(cost),
        evidence=(
            f"{100 * share:.0f} % of the rows are {ratio:.1f} times as short as the others, with "
            f"{gap:.1f} deviations between the two groups"
        ),
        cause="two encoders, or two scalings of one, in one file",
        advice="bring both to one scale: normalise the rows, or divide each group by its length",
        line="h = h / np.linalg.norm(h, axis=1, keepdims=True)",
        expect="lengths of one group",
        paper="wu2018instance",
        strength=gap / 4,
        explains=("euclidean_neighbours", "outlier_rows", "mixed_normalisation"),
        cost=cost,
    )


def _changed_scale(facts: Facts) -> Finding:
    """Rows are longer, or shorter, from some row on."""
    cost = facts.cost("lengths")
    at, ratio = facts["length_change_at"], facts["length_change_ratio"]
    return Finding(
        name="mixed_scales",
        severity=graded(cost),
        evidence=(
            f"from about row {at} on rows are {ratio:.3g} times as long as before "
            f"({facts['length_change']:.0f} standard errors)"
        ),
        cause="two files in one, of two encoders or two scalings of one",
        advice="bring both to one scale: normalise the rows, or divide each part by its length",
        line="h = h / np.linalg.norm(h, axis=1, keepdims=True)",
        expect="one length from the first row to the last",
        paper="wu2018instance",
        strength=facts["length_change"] / 8,
        explains=("euclidean_neighbours", "outlier_rows", "mixed_normalisation"),
        cost=cost,
    )


def mixed_encoders(facts: Facts) -> Finding | None:
    """Two groups of rows with the same classes that are hardly ever neighbours."""
    if not facts.has("groups_apart", "groups_told_by_labels", "groups_share"):
        return None
    apart, told = facts["groups_apart"], facts["groups_told_by_labels"]
    share = facts["groups_share"]
    if apart < 0.7 or apart - 2 * told < ALONE or share < 0.03 or not facts.contrastive:
        return None
    # rows along one wide direction part in two as well, but lie on the way between the two
    if (
        facts.get("groups_apart_centred", 1.0) < TOGETHER
        and facts.get("groups_valley", 0) > BETWEEN
    ):
        return None
    cost, first = facts.cost("groups"), facts.cost("first")
    severity = graded(cost) if apart >= NEVER else "note"
    gained = 0.0 if cost is None else cost.gain
    # one wild dimension parts rows in two as well; then leaving it out regains as much
    alone = apart >= NEVER and (first is None or first.gain < gained - 0.02)
    return Finding(
        name="mixed_encoders",
        severity=severity,
        evidence=(
            f"{100 * share:.0f} % of the rows are neighbours of each other and hardly of the rest "
            f"({100 * (1 - apart):.1f} % of what mixing would give), though their classes are the "
            f"same (Cramer's V {told:.2f})"
        ),
        cause="two encoders, versions or preprocessings in one file: their rows cannot be compared",
        advice="embed all rows with one encoder; the smaller group is listed as `group`",
        expect="neighbours across both groups",
        paper="lopezpaz2017twosample",
        strength=apart / 0.7,
        explains=ALL_APART if alone else (),
        cost=cost,
    )


def shrunk_rows(facts: Facts) -> Finding | None:
    """Rows that lie at the common mean, far nearer to it than the others: their content is gone."""
    count, n = facts.get("shrunk_rows", 0), facts.main("n", 1)
    cost = facts.cost("shrunk")
    severity = graded(cost)
    if not count or not facts.contrastive or severity == "note":
        return None  # as many as a few blanks change nothing
    return Finding(
        name="shrunk_rows",
        severity=severity,
        evidence=(
            f"{count:,} of {n:,} rows ({100 * count / n:.3g} %) are less than a quarter as far "
            f"from the mean of all as a typical row, half of these {facts['shrunk_factor']:.2g} "
            "times as far or less"
        ),
        cause="samples that the encoder hardly sees (blanks, empty texts, a missing modality), or "
        "rows that were averaged or scaled down after the mean was added",
        advice="look at these rows, listed as `shrunk_rows`, and leave them out; subtracting the "
        "mean restores their directions, if any are left",
        line="r = np.linalg.norm(h - h.mean(axis=0), axis=1); h = h[r > np.median(r) / 4]",
        expect="no row a quarter as far from the mean as the others",
        paper="radovanovic2010hubs",
        strength=1 + 100 * count / n,
        explains=("hubs", "duplicated_samples", "mixed_scales", "mixed_normalisation"),
        cost=cost,
    )


def hubs(facts: Facts) -> Finding | None:
    """A few rows are everyone's neighbours."""
    share, skewness = facts.main("hub_share"), facts.main("hub_skewness")
    if share is None or skewness is None or not facts.contrastive:
        return None
    cost: Cost | None = facts.cost("hubs")
    few = share < HUB or skewness < SKEW
    if few and (graded(cost) == "note" or skewness < SKEW / 2):
        return None  # several hubs share the rows between them: only what they cost tells
    most = share >= MOST and not facts.built  # counts and histograms share a mean by construction
    severity = "note" if few else graded(cost, "warning" if most else "note")
    return Finding(
        name="hubs",
        severity=severity,
        evidence=(
            f"one row is among the ten nearest of {100 * share:.1f} % of the rows; skewness of the "
            f"counts {skewness:.1f} (even coverage has about 1), "
            f"{100 * facts.main('orphans', 0.0):.1f} % are nobody's neighbour"
        ),
        cause="rows near the common mean are close to all others, which few directions or a "
        "mean far from 0 make worse",
        advice="subtract the mean before comparing, and leave the rows listed as `hub_rows` out",
        line="h = h - h.mean(axis=0)",
        expect=f"no row a neighbour of more than {100 * HUB:.0f} %",
        paper="radovanovic2010hubs",
        strength=share / HUB,
        explains=("class_collapse",),
        cost=cost,
        symptom=True,
    )


def imbalanced_classes(facts: Facts) -> Finding | None:
    """Classes of very different sizes: what accuracy means, not what is wrong."""
    if not facts.has("class_evenness", "largest_class", "n_classes"):
        return None
    evenness = facts["class_evenness"]
    if evenness >= EVEN:
        return None
    return Finding(
        name="imbalanced_classes",
        severity="note",
        evidence=(
            f"the largest of {facts['n_classes']} classes holds {100 * facts['largest_class']:.1f} "
            f"% of the rows, the entropy of classes is {100 * evenness:.0f} % of even ones'"
        ),
        cause="frequent classes fill the sphere and the negatives, rare ones crowd together",
        advice="judge by the balanced accuracy, and sample classes evenly if rare ones matter",
        expect=f"entropy of the classes above {100 * EVEN:.0f} % of even ones'",
        paper="khosla2020supcon",
        strength=EVEN / max(evenness, 0.01),
    )
