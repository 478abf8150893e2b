"""The temperature, as the negatives feel it."""

from __future__ import annotations

from typing import Any

from chiaroscuro.diagnostics.advice.collapse import SYMPTOMS
from chiaroscuro.diagnostics.advice.finding import Finding, Known
from chiaroscuro.diagnostics.advice.notation import with_temperature

__all__ = ["high_temperature", "low_temperature"]

FLAT = 0.45
"""Deviation of log k over negatives below which all negatives weigh the same. Trained networks:
tau 0.5 has 0.67 to 0.93 and loses nothing, 1 has 0.43 and 0.60 (3 and 13 points), 5 has 0.13."""
WIDE = 0.65
"""The same where cosines are as spread as they can be, which is what a high temperature makes."""
SATURATED = 0.5
"""Deviation of cosines, tau times that of log k, of a network whose cosines are nearly -1 and 1."""
SPREAD = 0.1
"""Deviation of cosines below which z is in a cone. Trained networks: tau 0.05 to 0.5 has 0.17 to
0.47; 0.005 to 0.02 has 0.01 to 0.09 where it costs accuracy."""
SHARP = 12.0
"""Deviation of log k over negatives above which one of them has all the weight."""
TOLD = 0.8
"""Share of other samples that a positive is nearer than, where something was learnt."""
AIM = 1.5
"""What cosines of a deviation of 0.3 have at tau = 0.2 [wang2021temperature, Sec. 4]."""
INSIDE = 1.0
"""Deviation of log k inside a cone that a low temperature, and not a collapse, has made."""
USUAL = 0.2
"""A temperature of cosines that suits many data [wang2021temperature, Sec. 4]."""


def high_temperature(known: Known) -> Finding | None:
    """All negatives weigh alike, so that the near ones are not pushed away more than the far.

    Critical where a training at that temperature has not even told pairs from strangers.
    """
    if not known.has("negative_deviation", "effective_negatives", "n_negatives"):
        return None
    spread = known["negative_deviation"]
    cosines = spread * known.get("tau", 1.0)
    flat = spread < FLAT or (spread < WIDE and cosines >= SATURATED)
    if not flat or (cosines < SPREAD and known.get("cosines", True)):
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
        advice=f"lower the temperature to about {_aim(known, spread):g}",
        settings=_settings(known, _aim(known, spread)),
        target={"tau": _aim(known, spread)},
        expect=f"a deviation of log k near {AIM}, and lower uniformity",
        paper="wang2021temperature",
        strength=max(FLAT / max(spread, 1e-9), 60.0 * nothing),
        explains=(
            *("few_negatives", "stuck_at_the_start", "label_noise", "hardly_trained", *SYMPTOMS),
            *(("mispaired_views", "strong_views") if nothing else ()),
        ),
    )


def low_temperature(known: Known) -> Finding | None:
    """One negative has all the weight: the loss sees nearest neighbours only, often false ones.

    Silent where the network itself chooses how long rows are: there tau is a unit of length.
    """
    if not known.has("negative_deviation", "effective_negatives", "n_negatives"):
        return None
    spread = known["negative_deviation"]
    tau = known.get("tau", 1.0)
    cone = bool(known.get("cosines")) and spread >= INSIDE and spread * tau < SPREAD
    if (spread <= SHARP and not cone) or known.get("free_length"):
        return None
    return Finding(
        name="low_temperature",
        severity="warning",
        evidence=(
            f"log k varies by {spread:.1f} over negatives, of which "
            f"{known['effective_negatives']:.2f} of {known['n_negatives']} carry the "
            f"repulsion{_tau(known)}"
            + (f"; cosines vary by {spread * tau:.3f}, inside a cone" if cone else "")
        ),
        cause="the temperature is so low that only the nearest sample repels, alike or not",
        advice=f"raise the temperature to about {_aim(known, spread):g}",
        settings=_settings(known, _aim(known, spread)),
        target={"tau": _aim(known, spread)},
        expect=f"a deviation of log k near {AIM}, and tens of effective negatives",
        paper="wang2021temperature",
        strength=max(spread / SHARP, 1.0 + cone),
        explains=(
            *("false_negatives", "few_negatives", "label_noise", "hardly_trained", "class_blind"),
            *("stuck_at_the_start", "strong_views", "untrained_model", *SYMPTOMS),
        ),
    )


def _tau(known: Known) -> str:
    tau = known.get("tau")
    return "" if tau is None else f", at tau = {tau:g}"


def _aim(known: Known, spread: float) -> float:
    tau = known.get("tau", 0.2)
    if known.get("cosines", True):
        return USUAL
    return float(f"{min(max(tau * spread / AIM, tau / 100), tau * 100):.1g}") if spread else USUAL


def _settings(known: Known, aim: float) -> dict[str, Any]:
    found = with_temperature(known.setting("objective", "") or "", aim)
    return {} if found is None else {"objective": found}
