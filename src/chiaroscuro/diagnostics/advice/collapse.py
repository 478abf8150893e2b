"""Embeddings that use less room than they have: symptoms, mostly of something else."""

from __future__ import annotations

from chiaroscuro.diagnostics.advice.finding import Cost, Finding, Known, graded
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
CLIFF = 10.0
"""Factor between two neighbouring singular values that no smooth spectrum has: healthy ones stay
below 2, the edge between the classes and the rest included."""
NARROW = 0.08
"""Share of the dimensions, as effective rank, that is worth a word even without a cliff."""
DEAD = 0.1
"""Share of dimensions that do not move, from which on it is more than a few unlucky units."""
ALL_DEAD = 0.9
"""Share of dead dimensions that is itself the cause of a collapse."""
STEEP = 0.1
"""Share of the dimensions, as rank of the variances, below which the spectrum is steep."""
HALF = 0.03
"""Share of labels that half of the directions lose, where the missing ones are likely missed."""
SPACES = (("", "h"), ("z_", "z"))
SYMPTOMS = (
    *("full_collapse", "point_collapse", "dimensional_collapse", "dead_dimensions", "hubs"),
    *("common_offset", "dominating_direction", "uneven_dimensions", "duplicated_samples"),
    *("outlier_rows", "mixed_scales", "at_chance", "below_untrained", "below_raw_input"),
    *("class_collapse", "repeated_dimensions", "coarse_quantisation", "zero_rows"),
)
"""What a training that went wrong leaves behind."""


def full_collapse(known: Known) -> Finding | None:
    """All rows are one point up to rounding, or a cone in which labels are no longer told."""
    for prefix, space in SPACES:
        if not known.has(f"{prefix}mean_cosine", f"{prefix}effective_rank"):
            continue
        cosine, rank = known[f"{prefix}mean_cosine"], known[f"{prefix}effective_rank"]
        main = prefix == "" or not known.has("mean_cosine")
        if known.get("zero_rows", 0) >= known.main("n", 1) and main:
            continue  # zeros are no point of the sphere: `zero_rows` says so
        spread = known.get("relative_spread", 1.0) if main else 1.0
        centred = known.cost("centre") if main else None
        chance = known.get("knn_chance")
        lost = (
            main
            and cosine >= 0.9
            and centred is not None
            and centred.right
            and chance is not None
            and centred.after <= chance + 0.03
        )
        stuck = not main and cosine >= CONE and known.training
        if not (rank <= 0 or (main and cosine >= CONE and spread < ROUNDING) or lost or stuck):
            continue
        projector = projector_that(known.setting("network.projector", ""), last="standardise")
        return Finding(
            name="full_collapse",
            severity="critical",
            evidence=(
                f"the mean cosine of distinct rows of {space} is {cosine:.4f} (1 is collapsed), "
                f"their spread around the mean {spread:.2g} of its length"
                + (f", and centred neighbours name {centred.after:.1%}" if lost and centred else "")
            ),
            cause="all samples are mapped to one point, or to a cone with nothing left inside it",
            advice=(
                "look for what drove them there (pairs, views, temperature, learning rate), and "
                "standardise the projector's output"
                if known.training
                else "embed again: nothing can be regained from these rows"
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


def point_collapse(known: Known) -> Finding | None:
    """Nine of ten rows lie at a few points, with nothing in between."""
    points = known.get("points", 0)
    if not points or not known.contrastive or known.main("d", 9) < 4:
        return None
    if points > min(20, known.main("n", 400) // 20):
        return None
    purity, classes = known.get("points_purity"), known.get("n_classes")
    lost = None if purity is None else 1 - purity
    severity = "note" if purity is not None else "warning"
    if lost is not None and classes is not None and lost >= 0.05:
        severity = "critical" if lost >= 0.3 and points < classes else "warning"
    return Finding(
        name="point_collapse",
        severity=severity,
        evidence=(
            f"90 % of the rows lie within a fifth of the spread of {points} points"
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
        explains=("dimensional_collapse", "duplicated_samples", "hubs", "dominating_direction"),
        symptom=True,
    )


def class_collapse(known: Known) -> Finding | None:
    """One class is a point while the others are spread."""
    if not known.has("class_spread", "class_tightest"):
        return None
    spread = known["class_spread"]
    if spread >= 0.25 or not known.contrastive:
        return None
    own, all_of = known.get("class_tightest_accuracy"), known.get("knn_accuracy", 0.0)
    harmed = own is not None and own < all_of - 0.2
    return Finding(
        name="class_collapse",
        severity="warning" if harmed else "note",
        evidence=(
            f"the rows of class {known['class_tightest']} spread {100 * spread:.1f} % as far as "
            "those of a typical class"
            + (
                ""
                if own is None
                else f", and neighbours name {own:.1%} of them ({all_of:.1%} of all)"
            )
        ),
        cause="these samples are (nearly) the same to the encoder: one source, blanks, or one "
        "repeated sample",
        advice="look at samples of that class",
        expect="classes of like spread",
        paper="jing2022directclr",
        strength=0.25 / max(spread, 1e-3),
        explains=("duplicated_samples", "hubs"),
    )


def dimensional_collapse(known: Known) -> Finding | None:
    """Few directions carry everything: the spectrum ends at a cliff, or its effective rank is tiny.

    Features of a classifier have as many directions as classes and are well: a note, unless evening
    the directions out regains labels, or half of those left already lose some.
    """
    if not known.has("fall", "fall_at", "fall_room") or not known.contrastive:
        return None
    rank = known.get("effective_rank_without_far", known.main("effective_rank", 0.0))
    room, fall, at = known["fall_room"], known["fall"], known["fall_at"]
    falls = fall >= CLIFF and at <= 0.8 * room
    thin = rank < NARROW * room
    even = known.cost("even")
    power = known.get("power_rank", rank)
    steep = even is not None and even.right and graded(even) != "note" and power < STEEP * room
    if not (falls or thin or steep):
        return None
    halves = known.get("half_rank_costs")
    severity = graded(even) if steep else "note"
    if falls and severity == "note":
        if halves is None:
            severity = "warning" if at <= 0.5 * room else "note"
        elif halves >= HALF:
            severity = "warning"
    return Finding(
        name="dimensional_collapse",
        severity=severity,
        evidence=(
            f"the effective rank is {rank:.1f} of {room}"
            + (
                f"; the spectrum falls by a factor {min(fall, 1e9):.3g} after direction {at}"
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
            "the directions beyond are lost or drowned: strong views or a linear projector, a "
            "bottleneck, or features of few classes"
        ),
        advice=(
            "give the projector a hidden layer and standardised outputs, or use an earlier layer; "
            "of given rows, scale their principal directions alike"
        ),
        line=(
            "h = h - h.mean(axis=0); U, s, V = np.linalg.svd(h, full_matrices=False); "
            "h = U * (s / np.sqrt(s**2 + (0.3 * s[0])**2))"
        )
        if steep
        else "",
        settings=_deeper(known),
        expect=f"effective rank above {max(2, round(0.25 * room))}, no cliff",
        paper="jing2022directclr",
        strength=max(room / at if falls else 0.0, NARROW * room / max(rank, 0.1)),
        explains=("hubs",),
        cost=even if steep else None,
        symptom=True,
    )


def _deeper(known: Known) -> dict[str, str]:
    found = projector_that(known.setting("network.projector", ""), last="standardise")
    return {} if found is None else {"network.projector": found}


def dead_dimensions(known: Known) -> Finding | None:
    """Coordinates that do not move, or hardly beside the others: a tenth of them or more.

    A note unless scaling them up regains labels, or so many are dead that nothing is left.
    """
    if not known.has("faint_dimensions", "constant_dimensions"):
        return None
    d = known.main("d", 1)
    faint, constant = known["faint_dimensions"], known["constant_dimensions"]
    gone = faint + constant
    if gone < max(2, DEAD * d) or known.kind in ("map", "table", "counts", "shares", "codes"):
        return None
    cost = known.cost("columns")
    nothing = known.get("zero_dimensions", 0) >= ALL_DEAD * d and known.training
    lost = _lost(known)
    severity = "critical" if nothing else graded(cost)
    if severity == "note" and constant >= 0.5 * d and known.training and lost > 0.05:
        severity = "warning"
    return Finding(
        name="dead_dimensions",
        severity=severity,
        evidence=(
            f"{constant} of {d} dimensions are constant"
            + (f" and {faint} vary less than a tenth of the widest" if faint else "")
        ),
        cause="units that are zero for every sample get no gradient and stay so; relu features "
        "always have some",
        advice=(
            "let a batch norm precede the last relu, start its bias at 0, and lower the learning "
            "rate or warm it up longer"
            if known.training and constant >= 0.5 * d
            else "nothing, unless a gain is stated; then standardise the dimensions"
        ),
        line="h = (h - h.mean(axis=0)) / np.where(h.std(axis=0) > 0, h.std(axis=0), 1)"
        if graded(cost) != "note"
        else "",
        settings=_slower(known) if nothing else {},
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
        symptom=not nothing,
    )


def _lost(known: Known) -> float:
    """By how much neighbours are worse than before training."""
    cost: Cost | None = known.cost("untrained")
    return 0.0 if cost is None else max(0.0, -cost.gain)


def _slower(known: Known) -> dict[str, float]:
    lr = known.setting("optimiser.lr")
    return {} if lr is None else {"optimiser.lr": float(f"{lr / 3:.1g}")}
