"""All rules, and their findings in the order of what to look at first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from chiaroscuro.diagnostics.advice import (
    collapse,
    directions,
    labels,
    negatives,
    pairs,
    samples,
    temperature,
    training,
)
from chiaroscuro.diagnostics.advice.finding import COSTLY, SEVERITIES, Facts, Finding

__all__ = ["NEEDS", "RULES", "checks", "findings"]

Rule = Callable[[Facts], Finding | None]

RULES: dict[str, Rule] = {
    name: getattr(room, name)
    for room in (
        *(labels, training, pairs, temperature, negatives),
        *(samples, directions, collapse),
    )
    for name in room.__all__
}
"""Every rule of this folder by name, which is also the name of its finding."""


NEEDS: dict[str, str] = {
    **dict.fromkeys(labels.__all__, "knn_accuracy"),
    "below_raw_input": "cure_input_gain",
    "below_untrained": "cure_untrained_gain",
    "split_shift": "split_excess",
    **dict.fromkeys(pairs.__all__, "pair_nearer"),
    **dict.fromkeys(temperature.__all__, "negative_deviation"),
    "few_negatives": "candidates",
    "false_negatives": "false_all",
    **dict.fromkeys((*samples.__all__, *directions.__all__, *collapse.__all__), "n"),
    **dict.fromkeys(("imbalanced_classes", "mixed_encoders", "class_collapse"), "n_classes"),
    "batch_statistics": "n",
    "class_blind": "pair_nearer",
    "hardly_trained": "steps",
    "kept_start": "start_overlap",
    "projector_for_encoder": "z_linear_accuracy",
    "stuck_at_the_start": "last_loss",
    "suppressed_style": "lost_factor",
    "untrained_model": "untrained_agreement",
}
"""The measure without which a rule says nothing; "n" stands for rows alone."""


def checks(facts: Facts) -> list[str]:
    """The names of the rules that have what they need.

    Example:
        >>> "at_chance" in checks(Facts({"n": 500})), "zero_rows" in checks(Facts({"n": 500}))
        (False, True)
    """
    wide = {"mispaired_views"} if facts.has("paired_score") else set()  # sides of two widths
    wide |= {"kept_start"} if facts.has("projector_overlap") else set()
    wide |= {"untrained_model"} if facts.has("encoder_turned") else set()
    return [name for name in RULES if name in wide or facts.main(NEEDS[name]) is not None]


def findings(facts: Facts, rules: Iterable[Rule] | None = None) -> list[Finding]:
    """Return the findings of all rules, the most important first.

    By severity; then causes before symptoms; then by what the cure regains, and by strength: how
    far beyond the threshold. One that follows from another (a collapse under shuffled pairs)
    becomes a note that says so, and the other is as grave as what it explains. Settings are those
    of a run and are left out where they are so already.

    Args:
        facts: measures and settings.
        rules: all of them by default.

    Example:
        >>> [one.name for one in findings(Facts({"zero_rows": 9, "n": 9}))]
        ['zero_rows']
    """
    made = [rule(facts) for rule in (RULES.values() if rules is None else rules)]
    settled = [_settled(one, facts) for one in made if one is not None]
    above: dict[str, Finding] = {}
    for one in sorted(settled, key=_rank, reverse=True):
        if one.severity == "note":
            continue
        for name in one.explains:
            if name not in above and not _explains(above.get(one.name), name):
                above[name] = one
    kept: list[Finding] = []
    for one in settled:
        cause = above.get(one.name)
        if cause is not None and _regains(one) > _regains(cause) + COSTLY > COSTLY:
            cause = None  # what regains more is no consequence of what regains less
        if cause is not None and one.severity != "note" and one.name not in _causes(cause, above):
            words = f"follows from {cause.name.replace('_', ' ')}; {one.cause}"
            one = dataclasses.replace(one, severity="note", cause=words)
        elif one.severity != "note":
            follow = [other for other in settled if other.name in one.explains]
            worst = max([one, *follow], key=lambda other: SEVERITIES.index(other.severity))
            one = dataclasses.replace(one, severity=worst.severity)
        kept.append(one)
    return sorted(kept, key=_rank, reverse=True)


def _explains(one: Finding | None, name: str) -> bool:
    return one is not None and one.name == name


def _causes(one: Finding, above: dict[str, Finding]) -> set[str]:
    """What stands above a finding, and above that: two that explain each other demote neither."""
    seen: set[str] = set()
    at: Finding | None = above.get(one.name)
    while at is not None and at.name not in seen:
        seen.add(at.name)
        at = above.get(at.name)
    return seen


def _settled(one: Finding, facts: Facts) -> Finding:
    """Settings only where there are such to set, and only those that are not so already."""
    news = {
        key: value
        for key, value in one.settings.items()
        if key in facts.settings and str(facts.setting(key)) != str(value)
    }
    return one if news == dict(one.settings) else dataclasses.replace(one, settings=news)


def _regains(one: Finding) -> float:
    """The share of labels or partners that the cure regains; 0 where none was tried."""
    return abs(one.cost.gain) if one.cost is not None and one.cost.right else 0.0


def _rank(one: Finding) -> tuple[int, bool, bool, float, float]:
    gain = _regains(one)
    severity = SEVERITIES.index(one.severity)
    costly = severity == 0 and gain >= COSTLY  # among notes, what would regain something
    return severity, costly, not one.symptom, round(gain, 2), one.strength
