"""Positive pairs: mispaired, too alike, too different."""

from __future__ import annotations

import re

from chiaroscuro.diagnostics.advice.finding import Finding, Known, replaced

__all__ = ["mispaired_views", "strong_views", "weak_views"]

SURE = 3.5
"""Standard errors by which positives must be nearer than chance to be pairs at all."""
HARDLY = 0.80
"""Share of other samples that a positive should be nearer than; 0.5 is chance."""
TIGHT = 0.01
"""Squared distance of positives as a share of that of strangers: below it views change nothing."""


def mispaired_views(known: Known) -> Finding | None:
    """A positive is no nearer than a stranger: row i of one view is not row i of the other."""
    if not known.has("pair_nearer", "pair_error"):
        return None
    nearer = known["pair_nearer"]
    if nearer >= 0.5 + SURE * known["pair_error"]:
        return None
    return Finding(
        name="mispaired_views",
        severity="critical",
        evidence=(
            f"a positive is nearer than {100 * nearer:.1f} % of the other samples (50 % is chance);"
            f" alignment {known['pair_alignment']:.3f}, with shuffled pairs "
            f"{known['pair_alignment_shuffled']:.3f}"
        ),
        cause="the rows of the two views do not belong together, or the views share nothing",
        advice="check that both views are drawn from one sample in one order, without reshuffling",
        expect="a positive nearer than 95 % of the others",
        paper="wang2020alignuniform",
        strength=50.0,
        explains=("strong_views", "false_negatives", "low_temperature"),
    )


def strong_views(known: Known) -> Finding | None:
    """A positive is nearer than most strangers, but not by much: the views destroy the content."""
    if not known.has("pair_nearer", "pair_error"):
        return None
    nearer = known["pair_nearer"]
    if not 0.5 + SURE * known["pair_error"] <= nearer < HARDLY:
        return None
    return Finding(
        name="strong_views",
        severity="warning",
        evidence=(
            f"a positive is nearer than only {100 * nearer:.1f} % of the other samples; alignment "
            f"{known['pair_alignment']:.3f}, with shuffled pairs "
            f"{known['pair_alignment_shuffled']:.3f}"
        ),
        cause="the views remove most of what tells samples apart, or training has hardly begun",
        advice="weaken the views; train longer",
        settings=_strength(known, 0.5),
        expect=f"a positive nearer than {100 * HARDLY:.0f} % of the others",
        paper="chen2020simclr",
        strength=(1 - nearer) / (1 - HARDLY),
    )


def weak_views(known: Known) -> Finding | None:
    """Positives all but coincide where strangers do not: the task is solved by any encoder."""
    if not known.has("pair_alignment", "pair_alignment_shuffled"):
        return None
    positive, stranger = known["pair_alignment"], known["pair_alignment_shuffled"]
    if stranger < 1e-3 or positive >= TIGHT * stranger:
        return None
    return Finding(
        name="weak_views",
        severity="warning",
        evidence=(
            f"alignment is {positive:.2g}, {100 * positive / stranger:.2f} % of what shuffled "
            f"pairs have ({stranger:.3f})"
        ),
        cause="the two views are nearly the same, so that there is nothing to be invariant to",
        advice="strengthen the views",
        settings=_strength(known, _factor(positive / stranger)),
        expect=f"alignment above {100 * TIGHT:.0f} % of that of shuffled pairs",
        paper="chen2020simclr",
        strength=TIGHT * stranger / max(positive, 1e-12),
    )


def _factor(share: float) -> float:
    """How much stronger views should be: squared distances grow with the square of the noise."""
    return min(30.0, max(2.0, (0.1 / max(share, 1e-9)) ** 0.5))


def _strength(known: Known, factor: float) -> dict[str, str]:
    """The first view with its strength times a factor; SimCLR's usual where there is no view."""
    text = known.setting("views.first", "")
    for name in ("strength", "sd", "noise", "scale"):
        found = re.search(rf"\b{name}=([0-9.eE+-]+)", text)
        if found:
            value = float(f"{float(found[1]) * factor:.2g}") if float(found[1]) else 0.5
            most = 1.0 if name == "strength" else value
            return {"views.first": replaced(text, name, min(value, most)) or text}
    return {} if text or factor < 1 else {"views.first": "SimCLR(size=32, strength=0.5)"}
