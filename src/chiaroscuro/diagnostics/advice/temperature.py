"""The temperature, as the negatives feel it."""

from __future__ import annotations

from typing import Any

from chiaroscuro.diagnostics.advice.collapse import SYMPTOMS
from chiaroscuro.diagnostics.advice.finding import Facts, Finding
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
ITSELF = 190.0
"""Strength of a temperature that is wrong by itself, above that of too few steps."""
COLD, HOT = 0.03, 2.0
"""Temperatures of cosines that are wrong by themselves, whatever else is seen."""
USUAL = 0.2
"""A temperature of cosines that suits many data [wang2021temperature, Sec. 4]."""


def high_temperature(facts: Facts) -> Finding | None:
    """All negatives weigh alike, so that the near ones are not pushed away more than the far.

    Critical where a training at that temperature has not even told pairs from strangers.
    """
    if not facts.has("negative_deviation", "effective_negatives", "n_negatives"):
        return None
    spread = facts["negative_deviation"]
    cosines = spread * facts.get("tau", 1.0)
    flat = spread < FLAT or (spread < WIDE and cosines >= SATURATED)
    if not flat or (cosines < SPREAD and facts.get("cosines", True)):
        return None
    share = facts["effective_negatives"] / facts["n_negatives"]
    nothing = facts.has("steps", "pair_nearer") and facts["pair_nearer"] < TOLD
    itself = nothing and bool(facts.get("cosines")) and facts.get("tau", USUAL) >= HOT
    return Finding(
        name="high_temperature",
        severity="critical" if nothing else "warning",
        evidence=(
            f"log k varies by {spread:.3f} over negatives, which weigh like {100 * share:.1f} % of "
            f"them equally{_tau(facts)}"
        ),
        cause="the temperature is so high that hard and easy negatives repel alike",
        advice=f"lower the temperature to about {_aim(facts, spread):g}",
        settings=_settings(facts, _aim(facts, spread)),
        target={"tau": _aim(facts, spread)},
        expect=f"a deviation of log k near {AIM}, and lower uniformity",
        paper="wang2021temperature",
        strength=max(FLAT / max(spread, 1e-9), 60.0 * nothing, ITSELF * itself),
        explains=(
            *("few_negatives", "stuck_at_the_start", "label_noise", "hardly_trained"),
            *("class_blind", *SYMPTOMS),
            *(("mispaired_views", "strong_views") if nothing else ()),
        ),
    )


def low_temperature(facts: Facts) -> Finding | None:
    """One negative has all the weight: the loss sees nearest neighbours only, often false ones.

    Silent where the network itself chooses how long rows are: there tau is a unit of length.
    """
    if not facts.has("negative_deviation", "effective_negatives", "n_negatives"):
        return None
    spread = facts["negative_deviation"]
    tau = facts.get("tau", 1.0)
    cone = bool(facts.get("cosines")) and spread >= INSIDE and spread * tau < SPREAD
    if (spread <= SHARP and not cone) or facts.get("free_length"):
        return None
    nothing = facts.has("steps", "pair_nearer") and facts["pair_nearer"] < TOLD
    itself = nothing and bool(facts.get("cosines")) and tau <= COLD
    return Finding(
        name="low_temperature",
        severity="critical" if itself else "warning",
        evidence=(
            f"log k varies by {spread:.1f} over negatives, of which "
            f"{facts['effective_negatives']:.2f} of {facts['n_negatives']} carry the "
            f"repulsion{_tau(facts)}"
            + (f"; cosines vary by {spread * tau:.3f}, inside a cone" if cone else "")
        ),
        cause="the temperature is so low that only the nearest sample repels, alike or not",
        advice=f"raise the temperature to about {_aim(facts, spread):g}",
        settings=_settings(facts, _aim(facts, spread)),
        target={"tau": _aim(facts, spread)},
        expect=f"a deviation of log k near {AIM}, and tens of effective negatives",
        paper="wang2021temperature",
        strength=max(spread / SHARP, 1.0 + cone, ITSELF * itself),
        explains=(
            *("false_negatives", "few_negatives", "label_noise", "hardly_trained", "class_blind"),
            *("stuck_at_the_start", "strong_views", "untrained_model", *SYMPTOMS),
        ),
    )


def _tau(facts: Facts) -> str:
    tau = facts.get("tau")
    return "" if tau is None else f", at tau = {tau:g}"


def _aim(facts: Facts, spread: float) -> float:
    tau = facts.get("tau", 0.2)
    if facts.get("cosines", True):
        return USUAL
    return float(f"{min(max(tau * spread / AIM, tau / 100), tau * 100):.1g}") if spread else USUAL


def _settings(facts: Facts, aim: float) -> dict[str, Any]:
    objective = with_temperature(facts.setting("objective", "") or "", aim)
    return {} if objective is None else {"objective": objective}
