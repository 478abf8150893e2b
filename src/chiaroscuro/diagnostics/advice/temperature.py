"""The temperature, as the negatives feel it."""

from __future__ import annotations

from typing import Any

from chiaroscuro.diagnostics.advice.finding import Finding, Known, replaced

__all__ = ["high_temperature", "low_temperature"]

FLAT = 0.12
"""Deviation of log k over negatives below which all negatives weigh the same."""
SHARP = 12.0
"""Deviation of log k over negatives above which one of them has all the weight."""
TOLD = 0.8
"""Share of other samples that a positive is nearer than, where something was learnt."""
AIM = 1.5
"""What cosines of a deviation of 0.3 have at tau = 0.2 [wang2021temperature, Sec. 4]."""


def high_temperature(known: Known) -> Finding | None:
    """All negatives weigh alike, so that the near ones are not pushed away more than the far.

    Critical where a training at that temperature has not even told pairs from strangers.
    """
    if not known.has("negative_deviation", "effective_negatives", "n_negatives"):
        return None
    spread = known["negative_deviation"]
    if spread >= FLAT:
        return None
    share = known["effective_negatives"] / known["n_negatives"]
    nothing = known.has("steps", "pair_nearer") and known["pair_nearer"] < TOLD
    return Finding(
        name="high_temperature",
        severity="critical" if nothing else "warning",
        evidence=(
            f"log k varies by {spread:.3f} over negatives, which weigh like {100 * share:.1f} % of "
            f"them equally{_tau(known)}"
        ),
        cause="the temperature is so high that hard and easy negatives repel alike",
        advice="lower the temperature",
        settings=_cooler(known, spread),
        expect=f"a deviation of log k near {AIM}, and lower uniformity",
        paper="wang2021temperature",
        strength=max(FLAT / max(spread, 1e-9), 60.0 * nothing),
        explains=("few_negatives", "mispaired_views", "strong_views")[: 3 if nothing else 1],
    )


def low_temperature(known: Known) -> Finding | None:
    """One negative has all the weight: the loss sees nearest neighbours only, often false ones.

    Silent where the network itself chooses how long rows are: there tau is a unit of length.
    """
    if not known.has("negative_deviation", "effective_negatives", "n_negatives"):
        return None
    spread = known["negative_deviation"]
    if spread <= SHARP or known.get("free_length"):
        return None
    return Finding(
        name="low_temperature",
        severity="warning",
        evidence=(
            f"log k varies by {spread:.1f} over negatives, of which "
            f"{known['effective_negatives']:.2f} of {known['n_negatives']} carry the "
            f"repulsion{_tau(known)}"
        ),
        cause="the temperature is so low that only the nearest sample repels, alike or not",
        advice="raise the temperature",
        settings=_cooler(known, spread),
        expect=f"a deviation of log k near {AIM}, and tens of effective negatives",
        paper="wang2021temperature",
        strength=spread / SHARP,
        explains=("false_negatives", "few_negatives"),
    )


def _tau(known: Known) -> str:
    tau = known.get("tau")
    return "" if tau is None else f", at tau = {tau:g}"


def _cooler(known: Known, spread: float) -> dict[str, Any]:
    tau = known.get("tau", 0.2)
    aim = float(f"{min(max(tau * spread / AIM, tau / 100), tau * 100):.1g}") if spread else 0.2
    text = known.setting("objective", "InfoNCE(kernel=Cosine(tau=0.5))")
    return {"objective": replaced(text, "tau", aim) or f"InfoNCE(kernel=Cosine(tau={aim}))"}
