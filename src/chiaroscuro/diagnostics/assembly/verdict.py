"""The verdict of a diagnosis: one of three states, never against the numbers beside it."""

from __future__ import annotations

from collections.abc import Sequence

from chiaroscuro.diagnostics.advice import Facts, Finding

__all__ = ["STATES", "state_of", "verdict"]

STATES = ("something is wrong", "nothing found", "cannot judge")
LEAST = 64
"""Rows without which nothing is judged."""
_KINDS = {
    "map": "a map of two or three dimensions",
    "counts": "counts",
    "codes": "binary codes",
    "shares": "shares that sum to 1",
    "table": "columns in units of their own",
}


def state_of(findings: Sequence[Finding], facts: Facts, n: int) -> str:
    """Return the state: what was found, or whether there was anything to be right about.

    Without labels and without pairs nothing says whether rows tell anything apart, however well
    they are spread: then it cannot be judged.

    Example:
        >>> state_of([], Facts({"mean_cosine": 0.1}), 500)
        'cannot judge'
    """
    if n < LEAST:
        return "cannot judge"
    if any(one.severity != "note" for one in findings):
        return "something is wrong"
    right = facts.has("knn_accuracy") or facts.has("pair_nearer")
    return "nothing found" if right else "cannot judge"


def verdict(findings: Sequence[Finding], facts: Facts, n: int, checks: Sequence[str]) -> str:
    """Say the state in a sentence or two, with the numbers that decide.

    Args:
        findings: findings in their order.
        facts: what the rules were told.
        n: rows.
        checks: names of the rules that had what they need.
    """
    state = state_of(findings, facts, n)
    if n < LEAST:
        return (
            f"Too few rows to judge: {n} of at least {LEAST}. The measures are those of "
            "these rows and say little of others."
        )
    if state == "something is wrong":
        grave = [one for one in findings if one.severity != "note"]
        first = grave[0]
        others = f" And {len(grave) - 1} more." if len(grave) > 1 else ""
        evidence = first.evidence[0].upper() + first.evidence[1:]
        name = first.name.replace("_", " ").capitalize()
        return f"{name} ({first.severity}). {evidence}.{others}"
    said = _kind(facts)
    numbers = ", ".join(_numbers(facts))
    notes = len(findings)
    tail = f" {notes} note{'s' * (notes != 1)}." if notes else ""
    if state == "nothing found":
        return f"No problem found by {len(checks)} checks: {numbers}.{said}{tail}"
    return (
        "Cannot judge without labels or two views whether these rows tell anything apart; "
        f"{len(checks)} checks of the rows alone found nothing: {numbers}.{said}{tail}"
    )


def _kind(facts: Facts) -> str:
    if facts.contrastive:
        return ""
    return f" These look like {_KINDS[facts.kind]} and are not judged as contrastive embeddings."


def _numbers(facts: Facts) -> list[str]:
    said = []
    if facts.has("knn_accuracy"):
        chance = facts.get("knn_chance")
        shuffled = "" if chance is None else f" ({chance:.1%} with shuffled labels)"
        by = " by Euclidean distance" if facts.get("metric") == "euclidean" else ""
        said.append(
            f"nearest neighbours{by} predict {facts['knn_accuracy']:.1%} of the labels{shuffled}"
        )
    for cure, what in (("input", "raw input"), ("untrained", "the untrained network")):
        cost = facts.cost(cure)
        if cost is not None:
            said.append(f"{cost.before:.1%} from {what}")
    if facts.has("pair_nearer"):
        said.append(f"a positive is nearer than {facts['pair_nearer']:.1%} of the other samples")
    rank, room = facts.main("effective_rank"), facts.main("room")
    if rank is not None and room is not None:
        said.append(f"effective rank {rank:.1f} of {room}")
    if facts.main("mean_cosine") is not None:
        said.append(f"mean cosine {facts.main('mean_cosine'):.2f}")
    return said
