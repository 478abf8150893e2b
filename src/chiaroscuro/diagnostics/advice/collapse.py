"""Embeddings that use less room than they have."""

from __future__ import annotations

from chiaroscuro.diagnostics.advice.finding import Finding, Known, replaced

__all__ = ["dead_dimensions", "dimensional_collapse", "full_collapse"]

CONE = 0.98
"""Mean cosine from which on everything points one way. Supervised features reach 0.6, features
after a relu that were never centred 0.9."""
CLIFF = 10.0
"""Factor between two neighbouring singular values that no smooth spectrum has: healthy ones stay
below 2, the edge between the classes and the rest included."""
NARROW = 0.08
"""Share of the dimensions, as effective rank, that is too little even without a cliff."""
DEAD = 0.1
"""Share of dimensions that do not move, from which on it is more than a few unlucky units."""
SPACES = (("", "h"), ("z_", "z"))

_FOLLOW = (
    *("dimensional_collapse", "dead_dimensions", "duplicated_samples", "hubs", "weak_views"),
    *("high_temperature", "low_temperature", "exploding_norms", "mispaired_views", "strong_views"),
    *("untrained_model", "suppressed_style", "projector_for_encoder", "leaked_label"),
)


def full_collapse(known: Known) -> Finding | None:
    """All rows are, or point, one way: mean cosine above 0.98 in h or z, or no spread at all."""
    for prefix, space in SPACES:
        if not known.has(f"{prefix}mean_cosine", f"{prefix}effective_rank"):
            continue
        cosine, rank = known[f"{prefix}mean_cosine"], known[f"{prefix}effective_rank"]
        if cosine < CONE and rank > 0:
            continue
        projector = known.setting("network.projector", "Projector(d=128)")
        standard = replaced(projector, "last", "'standardise'")
        standard = standard or projector.replace("Projector(", "Projector(last='standardise', ", 1)
        return Finding(
            name="full_collapse",
            severity="critical",
            evidence=(
                f"the mean cosine of distinct rows of {space} is {cosine:.4f} (1 is collapsed) and "
                f"its uniformity {known.get(f'{prefix}uniformity', 0.0):.3f} (0 is collapsed)"
            ),
            cause=(
                "all samples are mapped to one point or one narrow cone, where cosines have hardly "
                "a gradient"
            ),
            advice="standardise the projector's output, and look at the learning rate",
            settings={"network.projector": standard},
            expect=f"mean cosine of {space} below 0.6, uniformity below -1",
            paper="jing2022directclr",
            strength=100.0 + cosine,
            explains=_FOLLOW,
        )
    return None


def dimensional_collapse(known: Known) -> Finding | None:
    """Few directions carry everything: the spectrum ends at a cliff, or its effective rank is tiny.

    h of relu units may be thin and healthy; so the threshold is low where there is no cliff.
    """
    worst: Finding | None = None
    for prefix, space in SPACES:
        names = ("effective_rank", "room", "cliff", "cliff_at", "live_room", "d")
        if not known.has(*(prefix + name for name in names)):
            continue
        rank, room = known[f"{prefix}effective_rank"], known[f"{prefix}room"]
        cliff, at = known[f"{prefix}cliff"], known[f"{prefix}cliff_at"]
        live, d = known[f"{prefix}live_room"], known[f"{prefix}d"]
        falls = cliff >= CLIFF and at <= 0.8 * live
        thin = rank < NARROW * room
        if not (falls or thin):
            continue
        finding = Finding(
            name="dimensional_collapse",
            severity="critical" if min(at if falls else rank, rank) < 0.05 * room else "warning",
            evidence=(
                f"the effective rank of {space} is {rank:.1f} of {room}"
                + (
                    f"; its spectrum falls by a factor {min(cliff, 1e9):.3g} after direction {at}"
                    if falls
                    else ""
                )
            ),
            cause=(
                "the loss is solved in a subspace: strong views or a linear projector align the "
                "weights so that the other directions shrink to nothing"
            ),
            advice="give the projector a hidden layer and standardised outputs",
            settings={"network.projector": f"Projector(d={min(128, d)}, depth=2)"},
            expect=f"effective rank of {space} above {max(2, round(0.25 * room))}, no cliff",
            paper="jing2022directclr",
            strength=max(live / at if falls else 0.0, NARROW * room / max(rank, 0.1)),
            explains=("hubs",),
        )
        if worst is None or finding.strength > worst.strength:
            worst = finding
    return worst


def dead_dimensions(known: Known) -> Finding | None:
    """Coordinates that do not move: a tenth of them or more."""
    for prefix, space in SPACES:
        if not known.has(f"{prefix}dead_dimensions", f"{prefix}d"):
            continue
        dead, d = known[f"{prefix}dead_dimensions"], known[f"{prefix}d"]
        if dead < max(2, DEAD * d):
            continue
        return Finding(
            name="dead_dimensions",
            severity="warning",
            evidence=f"{dead} of {d} dimensions of {space} vary less than a thousandth of the rest",
            cause="units that are zero for every sample get no gradient and stay so",
            advice=(
                "lower the learning rate or warm it up longer, and let a batch norm precede the "
                "last relu"
            ),
            settings={"optimiser.lr": _less(known.setting("optimiser.lr")), "schedule.warmup": 10},
            expect=f"fewer than {max(2, round(DEAD * d))} dead dimensions of {space}",
            paper="ioffe2015batchnorm",
            strength=dead / (DEAD * d),
        )
    return None


def _less(lr: float | None) -> float:
    return 1e-3 if lr is None else float(f"{lr / 3:.1g}")
