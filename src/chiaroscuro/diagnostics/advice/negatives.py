"""Negatives: too few of them, or too many that are no negatives."""

from __future__ import annotations

from chiaroscuro.diagnostics.advice.collapse import SYMPTOMS
from chiaroscuro.diagnostics.advice.finding import Facts, Finding

__all__ = ["false_negatives", "few_negatives"]

FALSE = 0.25
"""Share of a sample's negatives that are of its own class."""
HARDER = 0.1
"""By how much more of the hardest negatives are: else labels and embeddings are strangers."""
FEW = 32
"""Candidates of an anchor, below which the loss says little."""
BATCH = 256
ENOUGH = 1_000
"""Steps that a larger batch need not exceed."""


def false_negatives(facts: Facts) -> Finding | None:
    """A quarter of the negatives or more are of the anchor's own class, and more of the hardest."""
    if not facts.has("false_all", "false_mass", "false_hardest"):
        return None
    share, mass, hardest = (facts[f"false_{which}"] for which in ("all", "mass", "hardest"))
    if share < FALSE or hardest < share + HARDER:
        return None
    return Finding(
        name="false_negatives",
        severity="note",
        evidence=(
            f"{100 * share:.1f} % of the negatives are of the anchor's own class; they take "
            f"{100 * mass:.1f} % of the repulsion and {100 * hardest:.1f} % of the "
            "hardest places"
        ),
        cause="samples that should be similar are pushed apart",
        advice=(
            "take positives by label, if labels may be used (SupCon), or one sample of each source "
            "in a batch"
        ),
        expect="higher accuracy of neighbours; samples of one class nearer",
        paper="khosla2020supcon",
        strength=share / FALSE,
    )


def few_negatives(facts: Facts) -> Finding | None:
    """An anchor has fewer than 32 candidates: the loss cannot exceed log m, nor what it teaches."""
    if not facts.has("candidates"):
        return None
    m = facts["candidates"]
    if m >= FEW:
        return None
    won = facts.get("won_in_batch")
    return Finding(
        name="few_negatives",
        severity="warning",
        evidence=(
            f"{m} candidates for each anchor, of a batch of {facts['batch']}"
            + ("" if won is None else f"; {100 * won:.1f} % of positives beat all of them already")
        ),
        cause="with so few candidates the task is easy and its gradient noisy; the loss bounds "
        "mutual information by log m",
        advice="enlarge the batch to 256 (micro_batch keeps the memory) and keep the number of "
        "steps, or add a queue",
        settings={"batch": BATCH, **_epochs(facts)},
        target={"batch": BATCH, **({"steps": _steps(facts)} if facts.has("steps") else {})},
        expect="at least 255 candidates",
        paper="oord2018cpc",
        strength=40 * FEW / max(m, 1),
        explains=("hardly_trained", "strong_views", "stuck_at_the_start", *SYMPTOMS),
    )


def _steps(facts: Facts) -> int:
    return min(int(facts["steps"]) + 1, ENOUGH)


def _epochs(facts: Facts) -> dict[str, int]:
    """As many steps of the larger batch, where epochs and steps are known."""
    epochs, batch = facts.setting("epochs"), facts.get("batch")
    if epochs is None or batch is None or not facts.has("steps"):
        return {}
    share = _steps(facts) / max(int(facts["steps"]) + 1, 1)
    return {"epochs": max(int(epochs), round(int(epochs) * share * BATCH / max(int(batch), 1)))}
