"""Embeddings that use less room than they have: symptoms, mostly of something else."""

from __future__ import annotations

from chiaroscuro.diagnostics.advice.finding import COSTLY, Cost, Facts, Finding, drowned, graded
from chiaroscuro.diagnostics.advice.notation import projector_that

__all__ = [
    "class_collapse",
    "dead_dimensions",
    "dimensional_collapse",
    "full_collapse",
    "point_collapse",
]

CONE = 0.98
"""Mean cosine from which on everything points one way."""
ROUNDING = 1e-4
"""Spread around the mean, as a share of its length, that rounding and batches can make."""
THIN, STRUCTURE = 0.05, 0.05
"""Spread of a cone as a share of its length, and how much nearer neighbours inside it are than with
coordinates shuffled, where it holds little but noise."""
TELLING = 0.25
"""Share of the labels above chance that neighbours in noise do not name."""
MOST_POINTS = 20
"""Points onto which rows may be said to have collapsed."""
CLIFF = 10.0
"""Factor between two neighbouring singular values that no smooth spectrum has: healthy ones stay
below 2, the edge between the classes and the rest included."""
NARROW = 0.08
"""Share of the dimensions, as effective rank, that is worth a word even without a cliff."""
DEAD = 0.1
"""Share of dimensions that do not move, from which on it is more than a few unlucky units."""
SOME, SPARSE = 0.25, 0.95
"""Share of dimensions that hardly ever fire, where it is worth a word, and where all do by design.
"""
ALL_DEAD = 0.9
"""Share of dead dimensions that is itself the cause of a collapse."""
STEEP = 0.1
"""Share of the dimensions, as rank of the variances, below which the spectrum is steep."""
SUNK = 3.0
"""Rank of the variances, in any dimension, below which all but a few directions are drowned."""
FEW, TIED = 0.15, 0.9
"""Share of the directions before a cliff, from which on it is a warning whatever half of them lose;
and share of the dimensions that others determine, where it is a cause and no symptom."""
EVENED = 0.04
"""Share of labels that scaling the directions alike regains, from which on it is worth a word."""
HALF = 0.03
"""Share of labels that half of the directions lose, where the missing ones are likely missed."""
POINT, TOGETHER = 0.3, 1.3
"""Spread of classes that lie at one point over that of the widest class; and how many times as far
as each of them they spread together."""
SHORT = 0.5
"""Spread of directions of classes over that of the widest, where rows are short and no point."""
TAKEN = 0.03
"""Share of the rows of other classes that a class which is a point names, above a typical class."""
SPACES = (("", "h"), ("z_", "z"))
SYMPTOMS = (
    *("full_collapse", "point_collapse", "dimensional_collapse", "dead_dimensions", "hubs"),
    *("common_offset", "dominating_direction", "uneven_dimensions", "duplicated_samples"),
    *("outlier_rows", "mixed_scales", "at_chance", "below_untrained", "below_raw_input"),
    *("class_collapse", "repeated_dimensions", "coarse_quantisation", "zero_rows"),
    "mixed_encoders",
)
"""What a training that went wrong leaves behind."""


def full_collapse(facts: Facts) -> Finding | None:
    """All rows are one point up to rounding, or a cone in which labels are no longer told."""
    for prefix, space in SPACES:
        if not facts.has(f"{prefix}mean_cosine", f"{prefix}effective_rank"):
            continue
        cosine, rank = facts[f"{prefix}mean_cosine"], facts[f"{prefix}effective_rank"]
        main = prefix == "" or not facts.has("mean_cosine")
        if facts.get("zero_rows", 0) >= facts.main("n", 1) and main:
            continue  # zeros are no point of the sphere: `zero_rows` says so
        spread = facts.get("relative_spread", 1.0) if main else 1.0
        centred = facts.cost("centre") if main else None
        chance = facts.get("knn_chance")
        lost = (
            main
            and cosine >= 0.9
            and centred is not None
            and centred.right
            and chance is not None
            and centred.after <= chance + 0.03
        )
        structure = facts.get("structure", 1.0)
        noise = main and cosine >= CONE and spread < THIN and structure < STRUCTURE
        noise = noise and (centred is None or centred.gain < COSTLY)  # else the mean is at fault
        # nor is it noise what names labels
        noise = noise and facts.get("knn_accuracy", 0.0) < facts.get("knn_chance", 0.0) + TELLING
        stuck = not main and cosine >= CONE and facts.training
        point = rank <= 0 or (main and cosine >= CONE and spread < ROUNDING)
        if not (point or lost or noise or stuck):
            continue
        projector = projector_that(facts.setting("network.projector", ""), last="standardise")
        return Finding(
            name="full_collapse",
            severity="critical" if point or lost or stuck or structure < 0 else "warning",
            evidence=(
                f"the mean cosine of distinct rows of {space} is {cosine:.4f} (1 is collapsed), "
                f"their spread around the mean {spread:.2g} of its length"
                + (
                    f", and centred neighbours predict {centred.after:.1%}"
                    if lost and centred
                    else ""
                )
                + (
                    f"; inside the cone neighbours are {structure:.1%} nearer than in noise of the "
                    "same spectrum"
                    if noise
                    else ""
                )
            ),
            cause="all samples are mapped to one point, or to a cone without any structure",
            advice=(
                "look for the cause (pairs, views, temperature, learning rate), and "
                "standardise the projector's output"
                if facts.training
                else "embed again: these rows cannot be repaired"
            ),
            settings={} if projector is None else {"network.projector": projector},
            expect=f"mean cosine of {space} below 0.6",
            paper="jing2022directclr",
            strength=100.0 + cosine,
            explains=(
                *("dimensional_collapse", "dead_dimensions", "duplicated_samples", "hubs"),
                *("common_offset", "point_collapse", "dominating_direction", "weak_views"),
                *("coarse_quantisation", "repeated_dimensions", "uneven_dimensions"),
            ),
            target={"lr": "usual"},
            symptom=True,
        )
    return None


def point_collapse(facts: Facts) -> Finding | None:
    """Nine of ten rows lie at a few points, with nothing in between, or half of the rows do."""
    points, share = facts.get("points", 0), facts.get("points_share", 0.9)
    if not points or not facts.contrastive or facts.main("d", 9) < 4:
        return None
    if points > min(MOST_POINTS, facts.main("n", 400) // 20):
        return None
    if 0 < facts.get("points_if_normal", 0) < 2 * points:
        return None  # few directions, and no points in them
    purity, classes = facts.get("points_purity"), facts.get("n_classes")
    # neighbours may tell inside a point what the points do not: then it is not lost
    lost = None if purity is None else 1 - max(purity, facts.get("knn_accuracy", 0.0))
    severity = "note" if purity is not None else "warning"
    if lost is not None and classes is not None and lost >= 0.05 and not drowned(facts):
        # more points than classes are clusters, unless all rows lie there and merge classes
        if points < classes:
            severity = "critical" if lost >= 0.3 else "warning"
        elif share >= 0.9:
            severity = "warning"
    return Finding(
        name="point_collapse",
        severity=severity,
        evidence=(
            f"{100 * share:.0f} % of the rows lie within a fifth of the spread of {points} points"
            + ("" if lost is None else f"; these points can tell {purity:.1%} of the labels")
        ),
        cause=(
            "samples of different content are mapped to the same few points; a classifier's "
            "features on its own training rows look so too, with the classes as points"
        ),
        advice="compare the points with the classes; if they merge classes, embed with an earlier "
        "checkpoint or an earlier layer",
        expect="rows spread around each point",
        paper="jing2022directclr",
        strength=10.0 if lost is None else 1 + 10 * lost,
        explains=(
            *("duplicated_samples", "hubs", "dominating_direction"),
            *(("dimensional_collapse",) if _span(facts) or not bottleneck(facts) else ()),
        ),
        symptom=True,
    )


def class_collapse(facts: Facts) -> Finding | None:
    """One class is a point while the others are spread."""
    if not facts.has("class_spread", "class_tightest"):
        return None
    spread = facts["class_spread"]
    own, all_of = facts.get("class_tightest_accuracy"), facts.get("knn_accuracy", 0.0)
    harmed = own is not None and own < all_of - 0.2
    several, rest = (facts.get(f"{x}_classes_accuracy", 0.0) for x in ("tight", "other"))
    merged = several < rest - 0.2  # tight classes are told better, unless they lie at one point
    takes, typical = facts.get("class_tightest_takes", 0.0), facts.get("class_typical_takes", 0.0)
    cost = facts.cost("tight_class")
    taking = takes >= typical + TAKEN and graded(cost) != "note"  # a class less helps a little
    large = graded(cost, built=True) != "note"
    if not facts.contrastive:
        return None
    if _classes_at_one_point(facts):
        return _merged_classes(facts)
    if spread >= 0.25 and not (taking and large):
        return None
    return Finding(
        name="class_collapse",
        severity="warning" if harmed or taking or merged else "note",
        evidence=(
            f"the rows of class {facts['class_tightest']} spread {100 * spread:.1f} % as far as "
            "those of a typical class"
            + (
                ""
                if own is None
                else f", and neighbours predict {own:.1%} of them ({all_of:.1%} of all)"
            )
            + (
                f"; {takes:.1%} of the rows of other classes are assigned to it ({typical:.1%} "
                "to a typical class)"
                if taking
                else ""
            )
            + (
                f"; of the {facts['tight_classes']} classes that spread less than half as far as a "
                f"typical one neighbours predict {several:.1%}, of the others {rest:.1%}"
                if merged
                else ""
            )
        ),
        cause="these samples are (nearly) the same to the encoder: one source, blanks, or one "
        "repeated sample",
        advice="look at samples of that class",
        expect="classes of like spread",
        paper="jing2022directclr",
        strength=0.25 / max(spread, 1e-3),
        explains=(
            *("duplicated_samples", "hubs"),
            *(("common_offset", "label_noise") if taking else ()),
            *(("mixed_scales", "mixed_normalisation") if taking or merged else ()),
        ),
        cost=cost if taking else None,
    )


def _classes_at_one_point(facts: Facts) -> bool:
    """Whether several classes have become one point beside others that are spread."""
    if not facts.has("point_classes_spread", "point_classes_together"):
        return False
    spread, together = facts["point_classes_spread"], facts["point_classes_together"]
    # where most are so, it is the others that are wide
    few = facts["point_classes"] <= max(2, facts.get("n_classes", 0) / 2)
    told = facts["point_classes_accuracy"] >= facts.get("knn_accuracy", 0.0) - 0.2
    if told and facts.get("point_classes_directions", 0.0) >= SHORT:
        return False
    return bool(few and spread < POINT and together < TOGETHER * max(spread, 1e-6))


def _merged_classes(facts: Facts) -> Finding:
    spread, together = facts["point_classes_spread"], facts["point_classes_together"]
    return Finding(
        name="class_collapse",
        severity="warning",
        evidence=(
            f"{facts['point_classes']} classes lie at one point"
            + (f" ({facts['point_classes_named']})" if facts.has("point_classes_named") else "")
            + ": their rows spread "
            f"{100 * spread:.1f} % as far as those of the widest class, and all of them together "
            f"{100 * together:.1f} %; neighbours predict {facts['point_classes_accuracy']:.1%} of "
            f"their labels ({facts.get('knn_accuracy', 0.0):.1%} of all)"
        ),
        cause="samples of these classes are (nearly) the same to the encoder: it does not know "
        "them, or they were read as blanks",
        advice="look at samples of these classes",
        expect="classes of like spread",
        paper="jing2022directclr",
        strength=POINT / max(spread, 1e-3),
        explains=(
            *("duplicated_samples", "hubs", "common_offset", "mixed_scales"),
            *("mixed_normalisation", "shrunk_rows", "dominating_direction"),
        ),
    )


def dimensional_collapse(facts: Facts) -> Finding | None:
    """Few directions carry everything: the spectrum ends at a cliff, or its effective rank is tiny.

    Features of a classifier have as many directions as classes and are well: a note, unless evening
    the directions out regains labels, or half of those left already lose some.
    """
    if not facts.has("fall", "fall_at", "fall_room") or not facts.contrastive:
        return None
    rank = facts.get("effective_rank_without_far", facts.main("effective_rank", 0.0))
    room, fall, at = facts["fall_room"], facts["fall"], facts["fall_at"]
    falls = _falls(facts)
    thin = rank < NARROW * room
    even = facts.cost("even")
    power = facts.get("power_rank", rank)
    gains = even is not None and even.right and even.gain >= EVENED and even.low >= EVENED / 4
    steep = gains and power < 0.5 * room
    sunk = power < SUNK and room >= 5 * SUNK
    grave = power < STEEP * room or sunk
    if not (falls or thin or steep):
        return None
    halves = facts.get("half_rank_costs")
    # a spectrum that falls is no fault by itself: many good features gain a little by evening it
    severity = graded(even, built=not sunk) if steep and grave else "note"
    tight = bottleneck(facts)
    few = tight and at <= FEW * room
    if falls and severity == "note":
        if halves is None:
            severity = "warning" if at <= 0.5 * room else "note"
        elif (halves >= HALF and at <= 0.5 * room) or few:
            severity = "warning"  # a few sums of other columns are no lost directions
    return Finding(
        name="dimensional_collapse",
        severity=severity,
        evidence=(
            f"the effective rank is {rank:.1f} of {room}"
            + (
                f"; the spectrum falls by a factor of {min(fall, 1e9):,.0f} after direction {at}"
                if falls
                else ""
            )
            + (
                f"; half of the directions lose {100 * halves:.1f} points of accuracy"
                if halves is not None and falls
                else ""
            )
        ),
        cause=(
            "the other directions are lost or dominated: strong views, a linear projector, a "
            "bottleneck, or features of few classes"
        ),
        advice=_room(facts, steep, at if falls else None),
        line=_svd("U * (s / np.sqrt(s**2 + (0.3 * s[0])**2))")
        if steep
        else (_svd(f"U[:, :{at}] * s[:{at}]") if falls and not facts.training else ""),
        settings=_deeper(facts),
        expect=f"effective rank above {max(2, round(0.25 * room))}, no cliff",
        paper="jing2022directclr",
        strength=max(room / at if falls else 0.0, NARROW * room / max(rank, 0.1)),
        explains=(
            *("hubs", "repeated_dimensions"),
            *(
                (
                    *("common_offset", "mixed_encoders", "dominating_direction", "label_noise"),
                    *("duplicated_samples", "mixed_scales"),
                    *(("point_collapse",) if not _span(facts) else ()),
                )
                if tight
                else ("label_noise",)
                if sunk
                else ()
            ),
        ),
        cost=even if steep else None,
        symptom=not tight,
    )


def _falls(facts: Facts) -> bool:
    """Whether the spectrum has a cliff.

    One direction less than dimensions is no loss: logits and layer norms leave one out.
    """
    room = facts.get("fall_room", 0)
    return facts.get("fall", 1.0) >= CLIFF and facts["fall_at"] <= min(0.95 * room, room - 2)


def bottleneck(facts: Facts) -> bool:
    """Whether all dimensions lie in half as many directions, and do not merely repeat each other.

    Of dimensions that were appended to others only these are determined by the rest.
    """
    if not _falls(facts) or facts["fall_at"] > 0.5 * facts["fall_room"]:
        return False
    distinct = facts.get("distinct_dimensions", facts.main("d", 0))
    return bool(facts.get("tied_dimensions", 0.0) >= TIED and distinct > 2 * facts["fall_at"])


def _span(facts: Facts) -> bool:
    """Whether rows at a few points are the cause of a cliff: all at k points span k - 1 ways."""
    all_rows = facts.get("points_share", 0.9) >= 0.9
    return bool(all_rows and facts.get("points", 0) <= facts["fall_at"] + 1)


def _room(facts: Facts, steep: bool, at: int | None) -> str:
    """What to do: of a training, of rows that can be evened out, of rows that cannot."""
    if facts.training:
        return "give the projector a hidden layer and standardised outputs, or use an earlier layer"
    if steep:
        return "scale the principal directions alike"
    held = "" if at is None else f"; {at} principal directions hold all that these rows tell"
    return f"use an earlier layer of the encoder, if it has more directions{held}"


def _svd(then: str) -> str:
    return f"h = h - h.mean(axis=0); U, s, V = np.linalg.svd(h, full_matrices=False); h = {then}"


def _deeper(facts: Facts) -> dict[str, str]:
    projector = projector_that(facts.setting("network.projector", ""), last="standardise")
    return {} if projector is None else {"network.projector": projector}


def dead_dimensions(facts: Facts) -> Finding | None:
    """Coordinates that do not move, or hardly beside the others: a tenth of them or more.

    A note unless scaling them up regains labels, or so many are dead that nothing is left.
    """
    if not facts.has("faint_dimensions", "constant_dimensions"):
        return None
    d = facts.main("d", 1)
    faint, constant = facts["faint_dimensions"], facts["constant_dimensions"]
    silent = facts.get("silent_dimensions", 0)
    # a few units always fire rarely, and a sparse code is meant to
    silent = silent if SOME * d <= silent < SPARSE * d else 0
    gone = faint + constant + silent
    if gone < max(2, DEAD * d) or facts.kind in ("map", "table", "counts", "shares", "codes"):
        return None
    cost = facts.cost("columns")
    nothing = facts.get("zero_dimensions", 0) >= ALL_DEAD * d and facts.training
    lost = _lost(facts)
    severity = "critical" if nothing else graded(cost, built=facts.built)
    if severity == "note" and constant >= 0.5 * d and facts.training and lost > 0.05:
        severity = "warning"
    return Finding(
        name="dead_dimensions",
        severity=severity,
        evidence=(
            f"{constant} of {d} dimensions are constant"
            + (f" and {faint} vary less than a tenth of the widest" if faint else "")
            + (f"; {silent} have one and the same value in most rows" if silent else "")
        ),
        cause="units that are zero for every sample get no gradient and stay zero; relu features "
        "always have some",
        advice=(
            "let a batch norm precede the last relu, start its bias at 0, and lower the learning "
            "rate or warm it up longer"
            if facts.training and constant >= 0.5 * d
            else "standardise the dimensions"
            if graded(cost) != "note"
            else "nothing: neighbours are the same without these dimensions"
            if cost is None or cost.right
            else "nothing, unless these dimensions were meant to carry information"
        ),
        line="h = (h - h.mean(axis=0)) / np.where(h.std(axis=0) > 0, h.std(axis=0), 1)"
        if graded(cost) != "note"
        else "",
        settings=_slower(facts) if nothing else {},
        expect=f"fewer than {max(2, round(DEAD * d))} dead dimensions",
        paper="ioffe2015batchnorm",
        strength=gone / (DEAD * d) + 250 * nothing,
        explains=(
            *("hardly_trained", "stuck_at_the_start", "strong_views", "mispaired_views"),
            *("untrained_model", "class_blind", "low_temperature", "high_temperature", *SYMPTOMS),
        )
        if nothing
        else ("dimensional_collapse",),
        cost=cost,
        target={"units": "revived"} if constant >= 0.5 * d else {},
        symptom=not nothing and gone < 0.5 * d,
    )


def _lost(facts: Facts) -> float:
    """By how much neighbours are worse than before training."""
    cost: Cost | None = facts.cost("untrained")
    return 0.0 if cost is None else max(0.0, -cost.gain)


def _slower(facts: Facts) -> dict[str, float]:
    lr = facts.setting("optimiser.lr")
    return {} if lr is None else {"optimiser.lr": float(f"{lr / 3:.1g}")}
