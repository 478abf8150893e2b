"""Positive pairs: mispaired, too alike, too different, and sides that do not fit each other."""

from __future__ import annotations

from typing import Any

from chiaroscuro.diagnostics.advice.collapse import SYMPTOMS
from chiaroscuro.diagnostics.advice.finding import Facts, Finding, graded
from chiaroscuro.diagnostics.advice.notation import scaled_views
from chiaroscuro.diagnostics.advice.samples import GRID
from chiaroscuro.diagnostics.advice.training import BEGUN

__all__ = [
    "mispaired_views",
    "modality_gap",
    "permuted_columns",
    "side_scales",
    "strong_views",
    "weak_views",
]

SURE = 3.5
"""Standard errors by which positives must be nearer than chance to be pairs at all."""
HARDLY = 0.80
"""Share of other samples that a positive should be nearer than; 0.5 is chance."""
TIGHT = 0.01
"""Squared distance of positives as a share of that of strangers: below it views change nothing."""
STRANGERS = 0.03
"""Share of the pairs that are strangers, from which on they are mispaired."""
FLAT = 0.4
"""Of the pairs farther apart than half of all strangers, the share beyond three quarters: one half
for mispaired rows; less where views merely hide the content."""
FOUND = 0.25
"""Of the pairs that are no strangers, the share that may stand between the first twentieth and half
of all: where pairs are right or wrong the right ones are near; where views hide much, none is."""
FOREIGN = 0.08
"""Difference of the shares of other rows that a row's first and second view are nearer than, where
the second is not its own."""
CLEAR = 0.05
"""Share of the right pairs that stand between, where right and wrong are clearly two."""
CROSSED = 0.3
"""Of rows that are nearest to another's partner, the share that stands in twos, each nearest to
the partner of the other: at most 0.16 where pairs are right, and 0.4 to 0.9 where some were
exchanged."""
BORROWED = 0.25
"""Of the rows that share a partner, the share that is far from it where it is another's: one half
and more where missing partners were filled from other rows."""
ELSEWHERE, NEARLY, SCORE = 0.6, 0.75, 4.0
"""Share of the lost rows that have a row of the other side nearer than any of their own, one half
where there is no partner; the same where few rows say so; and standard errors above one half."""


def mispaired_views(facts: Facts) -> Finding | None:
    """Row i of one side is not row i of the other: for all rows, for some, or from some row on."""
    if facts.has("paired_neighbours", "paired_score") and not facts.has("pair_nearer"):
        return _unlike_sides(facts)
    if not facts.has("pair_nearer", "pair_error"):
        return None
    nearer = facts["pair_nearer"]
    lost = facts.get("pairs_lost", 0.0)
    elsewhere, score = facts.get("elsewhere", 0.5), facts.get("elsewhere_score", 0.0)
    strangers = facts.get("pairs_uniform", 0.0)
    nothing = nearer < 0.5 + SURE * facts["pair_error"]
    swapped = lost >= 0.005 and elsewhere >= ELSEWHERE and score >= SCORE
    swapped |= lost >= STRANGERS and elsewhere >= NEARLY and score >= SURE - 0.5
    # of pairs that share little some are far as well: as many as a tail that falls by half leaves
    tail = max(0.0, facts.get("pairs_middle", 1.0) - 0.45 * strangers) / max(1 - strangers, 1e-9)
    exchanged, astray = facts.get("exchanged", 0.0), facts.get("astray", 1.0)
    crossed = exchanged >= max(STRANGERS, CROSSED * astray)
    two = facts.get("pairs_middle", 1.0) <= 0.45 * strangers + FOUND * (1 - strangers)
    some = strangers >= max(STRANGERS, tail / 2) and facts.get("pairs_upper", 0.0) >= FLAT and two
    first, second = facts.get("view1_nearer"), facts.get("view2_nearer")
    foreign = first is not None and second is not None and abs(first - second) >= FOREIGN
    # where even lost rows are nearest to their own side, the sides differ and pairs may be right
    some = some and strangers < 0.85 and (score > -1 or (score > -SURE and tail < CLEAR))
    borrowed, far = facts.get("borrowed", 0.0), facts.get("shared_lost", 0.0)
    filled = borrowed >= STRANGERS and far >= max(BORROWED, 2 * facts.get("single_lost", 0.0))
    filled = filled and (two or facts.has("single_lost"))  # all may share captions
    filled = filled and facts.get("levels", 99) > GRID  # on a grid rows are equal by chance
    filled = filled and facts.get("steps", BEGUN) >= BEGUN  # before, all partners are far
    wrong = swapped or some or foreign or crossed or filled
    if not (nothing or wrong):
        return None
    if nothing and not wrong and facts.training and first is not None:
        return None  # both views are near their row: it is the views that share nothing
    if not wrong and facts.get("steps", BEGUN) < BEGUN:
        return None  # pairs are at chance before training has begun, whatever they are
    shift, share = facts.get("pair_shift", 0), facts.get("pair_shift_share", 0.0)
    shifted = share >= 0.5 and shift != 0
    costs = [one for one in (facts.cost("pairs"), facts.cost("exchanged")) if one is not None]
    cost = max(costs, key=lambda one: one.gain) if costs else None
    severity = "critical" if nothing or strangers >= 0.2 else graded(cost)
    if severity == "note" and (strangers >= STRANGERS or lost >= STRANGERS):
        severity = "warning"
    return Finding(
        name="mispaired_views",
        severity=severity,
        evidence=(
            f"a positive is nearer than {100 * nearer:.1f} % of the other samples (50 % is chance);"
            f" about {strangers:.0%} of the pairs do not belong together; of the {lost:.1%} "
            f"of rows that lost their partner, {elsewhere:.0%} have a row of the other side nearer "
            "than any of their own (50 % where there is no partner)"
            + (
                f"; a row is nearer to its first view than {100 * first:.0f} % of the others are, "
                f"to its second {100 * second:.0f} %"
                if foreign and first is not None and second is not None
                else ""
            )
            + (
                f"; of the {astray:.1%} of rows that are nearest to another's partner, "
                f"{exchanged / astray:.0%} stand in twos, each nearest to the partner of the other"
                if crossed
                else ""
            )
            + (
                f"; {borrowed:.1%} of the rows are far from their partner, which other rows have "
                "as well, bit for bit"
                if filled
                else ""
            )
            + (
                f", {shift:+d} rows away from row {facts['pair_shift_from']} to row "
                f"{facts['pair_shift_to']}"
                if shifted
                else ""
            )
        ),
        cause=(
            f"the second side is shifted by {shift:+d} rows"
            if shifted
            else "missing rows of one side were filled, with other rows or one for all"
            if filled
            else "rows of the two sides do not belong together"
            if wrong
            else "the rows of the two sides do not belong together, or the views share nothing"
        ),
        advice="check that both sides come from one sample in one order, without reshuffling, "
        "dropped or repeated rows; the lost rows are listed as `mispaired`",
        line=f"h2 = np.roll(h2, {-shift}, axis=0)" if shifted and lost > 0.5 else "",
        expect="a positive nearer than 95 % of the others",
        paper="wang2020alignuniform",
        strength=50.0 if nothing or swapped or foreign or crossed or filled else 10.0,
        explains=(
            *("strong_views", "false_negatives", "low_temperature", "high_temperature"),
            *("weak_views", "class_blind", "stuck_at_the_start", "hardly_trained"),
            *("modality_gap", *SYMPTOMS),
        ),
        cost=cost if cost is not None and cost.gain > 0 else None,
        target={"pairs": "restored"},
    )


def _unlike_sides(facts: Facts) -> Finding | None:
    """Sides of different width whose rows share no more neighbours than shuffled rows do."""
    shared, chance = facts["paired_neighbours"], facts["paired_by_chance"]
    if facts["paired_score"] >= SURE:
        return None
    return Finding(
        name="mispaired_views",
        severity="critical",
        evidence=(
            f"of the ten nearest of a row {shared:.2%} are those of its partner, and {chance:.2%} "
            f"with shuffled pairs ({facts['paired_score']:+.1f} standard errors); the linear "
            f"agreement of the two sides is {facts.get('paired_agreement', 0.0):.2f}"
        ),
        cause="rows of the two sides do not belong together, or the two encoders share nothing",
        advice="check that both sides come from one sample in one order, without reshuffling, "
        "dropped or repeated rows; give both files `ids` to join them",
        expect="more shared neighbours than with shuffled pairs",
        paper="wang2020alignuniform",
        strength=50.0,
        target={"pairs": "restored"},
    )


def strong_views(facts: Facts) -> Finding | None:
    """A positive is nearer than most strangers, but not by much: the views destroy the content."""
    if not facts.has("pair_nearer", "pair_error"):
        return None
    nearer = facts["pair_nearer"]
    limit = facts.get("strong_below", HARDLY)
    chance = nearer < 0.5 + SURE * facts["pair_error"]
    if nearer >= limit or (chance and not facts.training):
        return None
    if facts.get("side_recall", 0.0) >= 0.3:
        return None
    if facts.training and facts.setting("views.first", None) == "":
        return None  # nothing is augmented, so that nothing can be weakened
    before = facts.get("untrained_pair_nearer")
    weaker = 0.1 if chance else 0.25  # at chance nothing says how much too strong they are
    return Finding(
        name="strong_views",
        severity="critical" if chance else "warning" if facts.training else "note",
        evidence=(
            f"a positive is nearer than only {100 * nearer:.1f} % of the other samples; alignment "
            f"{facts.get('pair_alignment', 0.0):.3f}, with shuffled pairs "
            f"{facts.get('pair_alignment_shuffled', 0.0):.3f}; no other row is nearer to be the "
            "partner" + ("" if before is None else f"; untrained {100 * before:.1f} %")
        ),
        cause="the views remove most of what distinguishes samples",
        advice=f"weaken the augmentations, to {weaker:g} of their strength at first"
        if facts.training
        else "compare what the two sides share; pairs of other views say more",
        settings=_views(facts, weaker),
        expect=f"a positive nearer than {100 * HARDLY:.0f} % of the others",
        paper="chen2020simclr",
        strength=20 * (1 - nearer) / (1 - HARDLY),
        explains=(
            *("mispaired_views", "high_temperature", "low_temperature", "stuck_at_the_start"),
            *("class_blind", "untrained_model", "hardly_trained", "modality_gap", *SYMPTOMS),
        ),
        target={"views": weaker},
    )


def weak_views(facts: Facts) -> Finding | None:
    """Positives all but coincide where strangers do not: the task is solved by any encoder."""
    if not facts.has("pair_alignment", "pair_alignment_shuffled"):
        return None
    positive, stranger = facts["pair_alignment"], facts["pair_alignment_shuffled"]
    if stranger < 1e-3 or positive >= TIGHT * stranger:
        return None
    factor = min(30.0, max(2.0, (0.1 / max(positive / stranger, 1e-9)) ** 0.5))
    gain = facts.cost("untrained")
    idle = gain is not None and gain.gain < 0.02 and facts.training
    return Finding(
        name="weak_views",
        severity="warning" if idle else "note",
        evidence=(
            f"alignment is {positive:.2g}, {100 * positive / stranger:.2f} % of what shuffled "
            f"pairs have ({stranger:.3f})"
        ),
        cause="the two views are nearly the same, so there is nothing to learn to be invariant to",
        advice=f"strengthen the augmentations, about {factor:.0f} times"
        if facts.training
        else "nothing, unless these were meant to be different views of a sample",
        settings=_views(facts, factor),
        expect=f"alignment above {100 * TIGHT:.0f} % of that of shuffled pairs",
        paper="chen2020simclr",
        strength=TIGHT * stranger / max(positive, 1e-12),
        target={"views": factor},
    )


def modality_gap(facts: Facts) -> Finding | None:
    """The two sides lie apart, so that partners are farther than strangers of the own side."""
    cost = facts.cost("gap")
    if cost is None or not facts.has("side_gap"):
        return None
    gap = facts["side_gap"]
    severity = graded(cost)
    if severity == "note" and gap < 1:
        return None
    return Finding(
        name="modality_gap",
        severity=severity,
        evidence=f"the means of the two sides are {gap:.2f} times as far apart as rows of one side "
        "are spread, on the sphere",
        cause="each side stays in the cone where it started: two encoders, two modalities",
        advice="subtract its own mean from each side",
        line="h1 = h1 - h1.mean(axis=0); h2 = h2 - h2.mean(axis=0)",
        expect="means of both sides together",
        paper="liang2022gap",
        strength=gap,
        explains=("side_scales", "strong_views", "common_offset", "mispaired_views"),
        cost=cost,
    )


def side_scales(facts: Facts) -> Finding | None:
    """One side is longer than the other: cosines do not see it, distances do."""
    cost = facts.cost("scales")
    if cost is None:
        return None
    scale = facts["side_scale"]
    return Finding(
        name="side_scales",
        severity=graded(cost, built=True),  # two encoders have scales of their own
        evidence=f"the second side spreads {scale:.3g} times as far as the first",
        cause="the sides come from two encoders, or one was scaled",
        advice="normalise both sides, or divide each by its spread, before taking distances",
        line=("h1, h2 = ((h - h.mean(axis=0)) / np.sqrt(h.var(axis=0).sum()) for h in (h1, h2))"),
        expect="sides of one spread",
        paper="liang2022gap",
        strength=max(scale, 1 / max(scale, 1e-9)),
        cost=cost,
    )


def permuted_columns(facts: Facts) -> Finding | None:
    """Columns of the second side that are those of the first, in another order."""
    moved = facts.get("columns_moved", 0)
    cost = facts.cost("columns_back")
    d = facts.main("d", 1)
    if moved < max(2, 0.02 * d) or cost is None:
        return None
    severity = graded(cost)
    if facts.get("columns_correlation", 0.0) < 0.2 and severity == "note":
        return None
    return Finding(
        name="permuted_columns",
        severity=severity,
        evidence=(
            f"{moved} of {d} columns of the second side belong to other columns of the first "
            f"(median correlation {facts['columns_correlation']:.2f} there)"
        ),
        cause="one side was written with its columns in another order",
        advice="put the columns of the second side in the order of the first",
        line=(
            "C = np.abs(np.corrcoef(h1.T, h2.T)[:h1.shape[1], h1.shape[1]:]); "
            "h2 = h2[:, scipy.optimize.linear_sum_assignment(-C)[1]]"
        ),
        expect="each column correlated with its own",
        paper="liang2022gap",
        strength=60 * moved / d,
        explains=("mispaired_views", "strong_views", "modality_gap", "side_scales"),
        cost=cost,
    )


def _views(facts: Facts, factor: float) -> dict[str, Any]:
    """The first view so many times as strong, in its own notation."""
    scaled = scaled_views(facts.setting("views.first", "") or "", factor)
    return {} if scaled is None else {"views.first": scaled}
