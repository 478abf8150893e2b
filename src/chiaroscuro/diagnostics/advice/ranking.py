"""All rules, and their findings in the order of what to look at first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from chiaroscuro.diagnostics.advice import (
    collapse,
    negatives,
    pairs,
    samples,
    temperature,
    training,
)
from chiaroscuro.diagnostics.advice.finding import SEVERITIES, Finding, Known

__all__ = ["RULES", "findings"]

Rule = Callable[[Known], Finding | None]

RULES: dict[str, Rule] = {
    name: getattr(room, name)
    for room in (collapse, negatives, pairs, samples, temperature, training)
    for name in room.__all__
}
"""Every rule of this folder by name, which is also the name of its finding."""


def findings(known: Known, rules: Iterable[Rule] | None = None) -> list[Finding]:
    """What the rules find, the gravest first.

    Findings of one severity are in the order of their strength: how far beyond the threshold. One
    that follows from another (dead dimensions of a collapsed embedding) becomes a note that says
    so.

    Args:
        known: measures and settings.
        rules: all of them by default.

    Example:
        >>> [one.name for one in findings(Known({"mean_cosine": 0.999, "effective_rank": 1.3}))]
        ['full_collapse']
    """
    made = [rule(known) for rule in (RULES.values() if rules is None else rules)]
    found = sorted((one for one in made if one is not None), key=_rank, reverse=True)
    kept: list[Finding] = []
    for one in found:
        above = next((other.name for other in kept if one.name in other.explains), None)
        if above is not None and one.severity != "note":
            cause = f"follows from {above.replace('_', ' ')}; {one.cause}"
            one = dataclasses.replace(one, severity="note", cause=cause)
        kept.append(one)
    return sorted(kept, key=_rank, reverse=True)


def _rank(one: Finding) -> tuple[int, float]:
    return SEVERITIES.index(one.severity), one.strength
