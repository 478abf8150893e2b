"""Samples: twins, hubs, explosions, uneven classes, labels that leak."""

from __future__ import annotations

from chiaroscuro.diagnostics.advice.collapse import SPACES
from chiaroscuro.diagnostics.advice.finding import Finding, Known

__all__ = [
    "duplicated_samples",
    "exploding_norms",
    "hubs",
    "imbalanced_classes",
    "leaked_label",
]

TWINS = 0.02
STRETCH = 20.0
"""Longest row over the median one."""
HALF = 65_504.0
"""The largest number in float16."""
HUB = 0.1
"""Share of all rows that have one and the same row among their ten nearest."""
SKEW = 4.0
"""Skewness of the counts; sentence embeddings in 384 dimensions have 1.7."""
EVEN = 0.8
"""Entropy of the classes over that of even ones."""
LEAK = 0.97
"""Share of one dimension's variance that the labels explain."""
SURE, BLIND = 0.995, 0.15
"""Linear accuracy that is too good, and by how much neighbours then fall short of it."""


def duplicated_samples(known: Known) -> Finding | None:
    """Rows that another row repeats."""
    if not known.has("near_duplicates", "n"):
        return None
    share = known["near_duplicates"]
    if share < TWINS:
        return None
    return Finding(
        name="duplicated_samples",
        severity="warning",
        evidence=(
            f"{100 * share:.1f} % of the {known['n']} rows have a twin at a distance below 0.01 on "
            f"the sphere, {known.get('exact_duplicates', 0)} of them exactly"
        ),
        cause="samples occur more than once, so that they are their own negatives and their own "
        "test neighbours",
        advice="remove the twins (the ids are in the diagnosis), or keep one of each group",
        settings={"data.distinct": True} if known.settings else {},
        expect=f"fewer than {100 * TWINS:.0f} % twins",
        paper="wu2018instance",
        strength=share / TWINS,
        explains=("hubs",),
    )


def exploding_norms(known: Known) -> Finding | None:
    """Rows twenty medians long, or too long for half precision."""
    for prefix, space in SPACES:
        if not known.has(f"{prefix}norm_stretch", f"{prefix}norm_largest"):
            continue
        stretch, largest = known[f"{prefix}norm_stretch"], known[f"{prefix}norm_largest"]
        if stretch < STRETCH and largest < HALF:
            continue
        return Finding(
            name="exploding_norms",
            severity="warning",
            evidence=(
                f"the longest row of {space} is {stretch:.3g} medians long, norm {largest:.3g};"
                f" {known.get(f'{prefix}norm_far', 0)} rows exceed 10 medians"
            ),
            cause="a loss of cosines does not see norms, and nothing else holds them back",
            advice="clip the gradient and decay the weights; or standardise the projector's output",
            settings={"optimiser.clip": 1.0, "optimiser.weight_decay": 1e-4},
            expect=f"no row longer than {STRETCH:.0f} medians",
            paper="cosentino2022",
            strength=max(stretch / STRETCH, largest / HALF),
            explains=("dimensional_collapse",),
        )
    return None


def hubs(known: Known) -> Finding | None:
    """A few rows are everyone's neighbours."""
    if not known.has("hub_share", "hub_skewness"):
        return None
    share, skewness = known["hub_share"], known["hub_skewness"]
    if share < HUB or skewness < SKEW:
        return None
    return Finding(
        name="hubs",
        severity="warning",
        evidence=(
            f"one row is among the ten nearest of {100 * share:.1f} % of the rows; skewness of the "
            f"counts {skewness:.1f} (even coverage has about 1), "
            f"{100 * known.get('orphans', 0.0):.1f} % are nobody's neighbour"
        ),
        cause="rows near the common mean are close to all others, which few directions or a "
        "mean far from 0 make worse",
        advice="subtract the mean before comparing; look at the samples named as hubs",
        expect=f"no row a neighbour of more than {100 * HUB:.0f} %",
        paper="radovanovic2010hubs",
        strength=share / HUB,
    )


def imbalanced_classes(known: Known) -> Finding | None:
    """Classes of very different sizes."""
    if not known.has("class_evenness", "largest_class", "n_classes"):
        return None
    evenness = known["class_evenness"]
    if evenness >= EVEN:
        return None
    return Finding(
        name="imbalanced_classes",
        severity="warning",
        evidence=(
            f"the largest of {known['n_classes']} classes holds {100 * known['largest_class']:.1f} "
            f"% of the rows, the entropy of classes is {100 * evenness:.0f} % of even ones'"
        ),
        cause="frequent classes fill the sphere and the negatives, rare ones crowd together",
        advice="sample classes evenly, and judge by the balanced accuracy",
        expect=f"entropy of the classes above {100 * EVEN:.0f} % of even ones'",
        paper="khosla2020supcon",
        strength=EVEN / max(evenness, 0.01),
        explains=("false_negatives",),
    )


def leaked_label(known: Known) -> Finding | None:
    """One dimension alone is the label, or a direction that neighbours hardly notice."""
    if not known.has("label_in_one_dimension", "label_in_typical_dimension", "label_dimension"):
        return None
    most, typical = known["label_in_one_dimension"], known["label_in_typical_dimension"]
    linear, knn = known.get("linear_accuracy", 0.0), known.get("knn_accuracy", 1.0)
    hidden = linear >= SURE and knn <= linear - BLIND  # in a direction that is no axis
    if (most < LEAK or typical > 0.9) and not hidden:
        return None
    return Finding(
        name="leaked_label",
        severity="warning",
        evidence=(
            f"labels explain {100 * most:.1f} % of the variance of dimension "
            f"{known['label_dimension']}, and {100 * typical:.1f} % of a typical one"
            + (f"; linear accuracy {linear:.3f}, of neighbours {knn:.3f}" if hidden else "")
        ),
        cause="the label reached the input of the encoder, or was appended to its output",
        advice="look for the label in the input; leave that dimension out before you evaluate",
        expect=f"no dimension of which labels explain more than {100 * LEAK:.0f} %",
        paper="semantic2025",
        strength=(1 - LEAK) / max(1 - most, 1e-4),
        explains=("dimensional_collapse", "exploding_norms"),
    )
