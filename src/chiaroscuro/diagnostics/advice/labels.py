"""What labels say: chance, controls, wrong labels, leaks, another law on the test side."""

from __future__ import annotations

import math

from chiaroscuro.diagnostics.advice.finding import GRAVE, Cost, Facts, Finding, drowned, graded

__all__ = [
    "at_chance",
    "below_raw_input",
    "below_untrained",
    "euclidean_neighbours",
    "label_noise",
    "leaked_label",
    "split_shift",
]

SURELY_ABOVE = 2.33
"""Standard errors above chance that chance reaches once in a hundred times."""
USABLE = 0.2
"""Share of what chance leaves, from which on labels that neighbours name are of use."""
BEHIND = 0.01
"""Share of labels by which a control must surely be better for a warning."""
WRONG = 0.03
"""Share of wrong labels, at least, where neighbours agree."""
AGREED = 0.5
"""Share of votes between the first and the second class where neighbours agree."""
STRANGE, SOME = 0.28, 0.25
"""Share of the classes that lie nearer than the one a wrong label gives; and votes between the
first and the second class, where neighbours agree somewhat."""
CLEAN = 0.9
"""Share of the labels, of those that are right, which neighbours name where classes are apart."""
OVERLAP = 3.2
"""How many times as often labels may differ where neighbours disagree, if wrong at random."""
LEAK = 0.97
"""Share of one dimension's variance that the labels explain."""
LINE, AHEAD, STEPS = 0.8, 4.0, 0.97
"""Explained share of the best direction, how much less of it is left than of the second's, and
how evenly the classes lie along it."""
MEASURED = 12
"""Dimensions of a table of measurements, any of which may follow an outcome in ordered parts."""
MANY, SHARP = 6, 0.985
"""Classes below which any order is likely, and the explained share that no measurement has."""
FOREIGN, FALL, TELLS = 0.1, 15.0, (0.5, 0.95)
"""Share of what varies inside classes in a few dimensions that the others predict, below which
they come from elsewhere; by what factor less these leave unexplained than the next; and labels that
they name on their own, where they are so much sharper and where they need not be."""
BETTER = 0.05
"""Share of the labels by which these name more than all others do."""
RARE = 1e-4
"""Probability by chance that classes lie so evenly along a line in the order of their numbers."""
MOST = 0.56
"""Share of wrong labels beyond which nothing tells them from classes that rows do not tell."""
AGREE = (0.8, 0.88)
"""Margin of the votes plus the share of wrong labels, where the other labels are right: 1 and more
for clean classes under wrong labels, less where classes overlap. The second for counts and shares,
of which many rows are alike, and where more than half are wrong."""
BEYOND = 4.0
"""Standard errors by which the two sides must differ, in neighbours and labels together."""
STRUCTURE = 0.08
"""How much nearer neighbours are than with columns shuffled, where rows have structure."""


def _tail(z: float) -> float:
    """The upper tail of the normal law."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def at_chance(facts: Facts) -> Finding | None:
    """Neighbours name no more labels than shuffled labels would let them."""
    if not facts.has("knn_accuracy", "knn_chance"):
        return None
    knn, chance = facts["knn_accuracy"], facts["knn_chance"]
    n = facts.get("labelled_rows", facts.main("n", 100))
    error = math.sqrt(max(chance * (1 - chance), 1 / n) / n)
    above = knn - chance
    if above > SURELY_ABOVE * error:
        return None
    best = max(facts.get("linear_accuracy", 0.0), facts.get("knn_accuracy_euclidean", 0.0))
    told = best - chance > max(0.05, 3 * error)
    blind = told and best - knn >= 0.05
    # so few rows, or so large a class, that good embeddings might show no more
    unseen = above + 1.96 * error > USABLE * (1 - chance)
    structured = facts.get("structure", 0.0) >= STRUCTURE
    if told:
        cause = (
            f"the labels are there (a linear probe or Euclidean neighbours predict {best:.1%}), "
            "but cosines do not see them: other directions dominate"
        )
    elif structured:
        cause = (
            "the rows have structure that has nothing to do with these labels: labels are out of "
            "order, belong to another file, or are not what the encoder learned"
        )
    else:
        cause = "the rows look like noise: nothing was learned, or the array was never filled"
    return Finding(
        name="at_chance",
        severity="warning" if blind else "note" if told or unseen else "critical",
        evidence=(
            f"neighbours predict {knn:.1%} of the labels and {chance:.1%} with shuffled labels "
            f"(95 % interval of the difference {100 * (above - 1.96 * error):+.1f} to "
            f"{100 * (above + 1.96 * error):+.1f} points)"
        ),
        cause=f"{cause}; or there are too few rows to see it" if unseen and not told else cause,
        advice=(
            "check that row i of the labels is row i of the embeddings; then which checkpoint was "
            "embedded, and whether the loss fell"
        ),
        expect="accuracy well above that of shuffled labels",
        paper="wu2018instance",
        strength=300.0,
        explains=(
            *("label_noise", "below_raw_input", "below_untrained", "false_negatives"),
            *("mixed_encoders", "class_collapse"),
        ),
        p=_tail(above / error),
    )


def _below(facts: Facts, cure: str, name: str, what: str, cause: str) -> Finding | None:
    cost = facts.cost(cure)
    if cost is None or cost.high >= 0:
        return None
    lost = -cost.gain
    return Finding(
        name=name,
        severity="warning" if -cost.high > BEHIND else "note",
        evidence=(
            f"neighbours predict {cost.after:.1%} of the labels from h and {cost.before:.1%} from "
            f"{what} ({100 * cost.gain:+.1f} points, 95 % interval {100 * cost.low:+.1f} to "
            f"{100 * cost.high:+.1f})"
        ),
        cause=cause,
        advice="find the cause among the other findings; if there is none, train longer, weaken "
        "the views, and use an earlier layer meanwhile",
        expect=f"more labels from h than from {what}",
        paper="chen2020simclr",
        strength=1 + 20 * lost,
        target={"steps": 1_000},
        symptom=True,
        p=_tail(lost / max((cost.high - cost.low) / 3.92, 1e-9)),
    )


def below_untrained(facts: Facts) -> Finding | None:
    """Neighbours of h name surely fewer labels than those of the untrained network."""
    return _below(
        facts,
        "untrained",
        "below_untrained",
        "the untrained network",
        "training removed what distinguishes the classes",
    )


def below_raw_input(facts: Facts) -> Finding | None:
    """Neighbours of h name surely fewer labels than those of the raw input."""
    return _below(
        facts,
        "input",
        "below_raw_input",
        "the raw input",
        "the encoder loses what the input says about these labels",
    )


def label_noise(facts: Facts) -> Finding | None:
    """Labels that differ where neighbours agree: wrong ones, or a note where classes overlap."""
    if not facts.has("suspect_labels", "suspect_low", "suspect_margin"):
        return None
    share, low, high = (facts[f"suspect_{x}"] for x in ("labels", "low", "high"))
    if low < WRONG:
        return None
    if any(one is not None and one.high < 0 for one in map(facts.cost, ("input", "untrained"))):
        return None  # the labels fit the input: the embeddings are at fault
    if drowned(facts, share / 2):
        return None  # the labels fit what other directions drown
    strange, sure = facts.get("suspect_strange"), _at_random(facts)
    count = facts["suspect_count"]
    return Finding(
        name="label_noise",
        severity="note" if not sure else "critical" if low >= 0.3 else "warning",
        evidence=(
            f"where neighbours agree most, {share:.1%} of the labels differ (95 % interval "
            f"{max(low, 0):.1%} to {high:.1%})"
            + (
                f"; {strange:.0%} of the other classes lie nearer than the one that the label "
                "gives (50 % by chance, few where classes overlap)"
                if strange is not None
                else ""
            )
        ),
        cause="labels are wrong at random: where classes merely overlap, neighbours that agree "
        "are right"
        if sure
        else "classes overlap, or labels are wrong in a pattern: nothing here tells which",
        advice=f"look at the {count} rows listed as `suspects`"
        + (
            f"; about {share:.0%} of all labels are wrong, and no accuracy can exceed the rest"
            if sure
            else ""
        ),
        expect=f"fewer than {WRONG:.0%} where neighbours agree",
        paper="northcutt2021confident",
        strength=share / WRONG,
        explains=("mixed_encoders",),
        symptom=not sure,
    )


def _at_random(facts: Facts) -> bool:
    """Whether labels that differ where neighbours agree are so at random, and not by overlap.

    Of a few classes only those that are told apart but for these labels say so. On a map nothing
    does: it lays classes side by side that have nothing in common.
    """
    if facts.kind == "map":
        return False
    share, margin = facts["suspect_labels"], facts["suspect_margin"]
    strange, error = facts.get("suspect_strange"), facts.get("suspect_strange_error", 0.0)
    if strange is None:
        if margin < AGREED or facts.get("suspect_rest", share) > OVERLAP * share:
            return False  # wrong at the borders of classes, and hardly elsewhere
        if facts.get("knn_accuracy", 1.0) < CLEAN * (1 - share):
            return False
    elif strange - 2 * error < STRANGE or margin < SOME:
        return False  # confused with classes that lie near
    # where labels are wrong at random, the votes that remain agree with each other
    agree = AGREE[not facts.contrastive or share > 0.5]
    return bool(share <= MOST and margin + share >= agree)


def leaked_label(facts: Facts) -> Finding | None:
    """One dimension or direction is the number of the class, or a few are another code of it."""
    most, typical = (
        facts.get("label_in_one_dimension", 0.0),
        facts.get("label_in_typical_dimension", 1.0),
    )
    line, following = facts.get("label_direction", 0.0), facts.get("label_direction_next", 1.0)
    steps = facts.get("label_steps", 0.0)
    ahead = 1 - facts.get("label_in_next_dimension", 1.0) >= AHEAD * (1 - most)
    one = most >= LINE and facts.get("label_dimension_steps", 0.0) >= STEPS and ahead
    at, d = facts.get("label_line", facts.get("label_dimension", 0)), facts.main("d", 0)
    ordered = facts.get("label_line_steps", 0.0) >= STEPS and facts.get("label_line_p", 1.0) <= RARE
    one |= ordered and at < d
    rotated = line >= LINE and steps >= STEPS and (1 - following) >= AHEAD * (1 - line)
    if d <= MEASURED and most < SHARP and facts.get("label_in_next_dimension", 0.0) >= LINE:
        return None  # several of a few measurements follow an ordered outcome
    classes = facts.get("n_classes", MANY)
    if classes < MANY:  # few classes lie in order by chance: only a sharp code is one
        one, rotated = one and most >= SHARP, rotated and line >= SHARP
    sharp = line >= SHARP and (1 - following) >= AHEAD * (1 - line) and classes >= MANY
    alone = facts.get("label_direction_alone", 0.0)
    sharp &= alone >= max(TELLS[0], facts.get("label_direction_others", 1.0) + BETTER)
    code = _code(facts)
    if not (one or rotated or ordered or code or sharp) or facts.kind == "map":
        return None
    rotated |= sharp
    without: Cost | None = facts.cost("leak") if rotated else None
    where = f"dimension {at}" if at < d else f"principal direction {at - d + 1}"
    at = at if ordered and at < d else facts.get("label_dimension", 0)
    at = facts["code_first"] if code and not one else at
    return Finding(
        name="leaked_label",
        severity="warning",
        evidence=(
            f"labels explain {100 * most:.1f} % of the variance of dimension "
            f"{facts.get('label_dimension', 0)} ({100 * typical:.1f} % of a typical one)"
            + (
                f"; along {where} the classes lie in the order of their numbers (correlation "
                f"{facts['label_line_steps']:.3f}), and explain "
                f"{100 * facts['label_line_explains']:.1f} % of it"
                if ordered
                else ""
            )
            + (
                f"; of the best direction {100 * line:.1f} %, and of the second "
                f"{100 * following:.1f} %; classes lie along it "
                + ("in order" if steps >= STEPS else f"so that it names {alone:.1%} by itself")
                if rotated
                else ""
            )
            + (
                f"; {facts['code_dimensions']} of {d} dimensions predict {facts['code_alone']:.1%} "
                f"of the labels by themselves, the others {facts['code_others']:.1%}, and they "
                "share nothing else"
                if code
                else ""
            )
            + (
                f"; without it neighbours predict {without.after:.1%} instead of "
                f"{without.before:.1%}"
                if without is not None
                else ""
            )
        ),
        cause="the label leaked into the input of the encoder, or was appended to its output",
        advice="look for the label in the input; leave "
        + ("these dimensions" if code and not one else "that direction")
        + " out before you evaluate",
        line=f"h = np.delete(h, {at}, axis=1)" if one or facts.get("code_dimensions") == 1 else "",
        expect=f"no direction of which labels explain more than {100 * LEAK:.0f} %",
        paper="semantic2025",
        strength=(1 - LEAK) / max(1 - max(most, line), 1e-4),
        explains=(
            *("dimensional_collapse", "outlier_rows", "dominating_direction", "point_collapse"),
            *("uneven_dimensions", "dead_dimensions", "hubs", "euclidean_neighbours"),
            "common_offset",
        ),
        cost=without,
        p=facts["label_line_p"] if ordered else None,
    )


def _code(facts: Facts) -> bool:
    """Whether a few dimensions tell the classes and come from elsewhere than the others."""
    if not facts.has("code_shared", "code_alone", "code_others"):
        return False
    if facts["code_shared"] >= FOREIGN or facts.kind not in ("embedding", "table"):
        return False
    alone, better = facts["code_alone"], facts["code_alone"] - facts["code_others"]
    if facts["code_fall"] >= FALL:
        return bool(alone >= TELLS[0])
    return bool(alone >= TELLS[1] and better >= BETTER and facts.main("d", 0) > MEASURED)


def split_shift(facts: Facts) -> Finding | None:
    """The test side has other neighbours than the training side: drawn from another law."""
    if not facts.has("split_excess", "split_score"):
        return None
    excess, score = facts["split_excess"], facts["split_score"]
    apart = excess >= 0.05 and score >= 5
    gap = facts.get("split_train_accuracy", 0.0) - facts.get("knn_accuracy", 1.0)
    # neighbours and labels say the same: two scores of which neither need be sure by itself
    both = (score + facts.get("split_gap_score", 0.0)) / math.sqrt(2)
    behind = gap >= 0.05 and both >= BEYOND
    if not (apart or behind):
        return None
    cost = facts.cost("sides")
    severity = graded(cost)
    if severity == "note" and gap >= 0.05:
        severity = "critical" if gap >= GRAVE else "warning"
    return Finding(
        name="split_shift",
        severity=severity,
        evidence=(
            f"a test row has {100 * excess:.1f} points more test rows among its neighbours than a "
            f"training row has ({score:.0f} standard errors)"
            + (
                f"; accuracy is {100 * gap:.1f} points lower than within the training side"
                if gap > 0
                else ""
            )
        ),
        cause="the two sides differ in source, preprocessing or time, or the encoder was trained "
        "on one of them",
        advice="compare the preprocessing of both sides; split at random, or report it as a shift",
        line=("h[split == 1] += h[split == 0].mean(axis=0) - h[split == 1].mean(axis=0)")
        if graded(cost) != "note"
        else "",
        expect="as many neighbours of either side for both",
        paper="lopezpaz2017twosample",
        strength=excess / 0.05,
        explains=(
            *("common_offset", "mixed_scales", "mixed_encoders", "dominating_direction", "hubs"),
            *(("label_noise", "uneven_dimensions") if apart else ()),  # labels move no neighbours
            *(("at_chance",) if gap >= GRAVE else ()),  # one side tells the labels by itself
        ),
        cost=cost,
        p=_tail(max(score, both)),
    )


def euclidean_neighbours(facts: Facts) -> Finding | None:
    """Euclidean neighbours name more labels than cosine ones: lengths carry something."""
    cost = facts.cost("euclidean")
    if cost is None or cost.gain < 0.03 or cost.low < 0.01:
        return None
    chance = at_chance(facts)
    blind = chance is not None and chance.severity != "note"
    return Finding(
        name="euclidean_neighbours",
        severity="warning" if blind else "note",
        evidence=(
            f"cosine neighbours predict {cost.before:.1%} of the labels, Euclidean ones "
            f"{cost.after:.1%}"
        ),
        cause="lengths or the mean carry what distinguishes the classes; every accuracy here is of "
        "cosines unless it says otherwise",
        advice="compare these rows by Euclidean distance, or standardise them first",
        expect="both alike",
        paper="wu2018instance",
        strength=1 + 10 * cost.gain,
        explains=("at_chance", "class_collapse", "mixed_encoders") if blind else (),
        cost=cost,
        symptom=not blind,
    )
