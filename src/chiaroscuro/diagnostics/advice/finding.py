"""What a rule says, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chiaroscuro.measures.record import Record

__all__ = ["SEVERITIES", "Cost", "Facts", "Finding", "drowned", "graded"]

SEVERITIES = ("note", "warning", "critical")
"""In rising order: good to know; costs quality; nothing below it can be trusted."""
COSTLY, SURELY = 0.03, 0.005
"""Share of labels or partners that a cure regains, and surely regains, from which on it is more
than a note."""
GRAVE = 0.2
"""Share that makes it critical."""
REGAINS = 0.06
"""Share of labels that a cure of the rows regains, where these and not the labels are at fault."""
BUILT, BUILT_SURELY = 0.15, 0.08
"""The same as COSTLY and SURELY where rows are so by construction: features that start at 0 share a
mean, and principal directions spread unevenly, without anything being wrong."""

_PARTS = ("of", "before", "after", "gain", "low", "high", "n")
_NAMES = {
    "knn_accuracy": "cosine neighbours predict {after:.1%} of the labels instead of {before:.1%}",
    "knn_accuracy_euclidean": (
        "Euclidean neighbours predict {after:.1%} of the labels instead of {before:.1%}"
    ),
    "knn_accuracy_of_metrics": (
        "Euclidean neighbours predict {after:.1%} of the labels, instead of {before:.1%} by cosine"
    ),
    "recall_1": "the partner is nearest by cosine for {after:.1%} of the rows instead of "
    "{before:.1%}",
    "recall_1_euclidean": (
        "the partner is nearest by Euclidean distance for {after:.1%} of the rows instead of "
        "{before:.1%}"
    ),
    "neighbours": "{gain:.1%} of the ten nearest neighbours are others",
}


@dataclass(frozen=True)
class Cost(Record):
    """What was measured with a cure and without it, on the arrays themselves.

    Args:
        of: "knn_accuracy" or "recall_1" (of cosines; `_euclidean` of distances, `_of_metrics` from
            one to the other), or "neighbours": the share of the ten nearest that change, where
            there is nothing to be right about.
        before, after: without the cure and with it.
        gain, low, high: the difference and its 95 % interval.
        n: rows.
    """

    of: str
    before: float
    after: float
    gain: float
    low: float
    high: float
    n: int

    @property
    def right(self) -> bool:
        """Whether there was something to be right about."""
        return self.of != "neighbours"

    def numbers(self, cure: str) -> dict[str, float | int | str]:
        """The same as measures of a diagnosis, which `Facts.cost` reads again."""
        return {f"cure_{cure}_{name}": getattr(self, name) for name in _PARTS}

    @property
    def words(self) -> str:
        """The cost in a sentence without its end.

        Example:
            >>> Cost("neighbours", 1.0, 0.7, 0.3, 0.28, 0.32, 500).words
            '30.0% of the ten nearest neighbours are others (28.0% to 32.0%, 500 rows)'
        """
        said = _NAMES[self.of].format(after=self.after, before=self.before, gain=self.gain)
        if not self.right:
            return f"{said} ({max(self.low, 0):.1%} to {self.high:.1%}, {self.n:,} rows)"
        return (
            f"{said} ({100 * self.gain:+.1f} points, 95 % interval {100 * self.low:+.1f} to "
            f"{100 * self.high:+.1f}, {self.n:,} rows)"
        )


def graded(cost: Cost | None, without: str = "note", built: bool = False) -> str:
    """The severity of what a cure regains; `without` where nothing could be right or wrong.

    Args:
        built: whether rows are so by construction, which only a large gain makes a fault.

    Example:
        >>> graded(Cost("knn_accuracy", 0.5, 0.6, 0.1, 0.08, 0.12, 900))
        'warning'
    """
    if cost is None or not cost.right:
        return without
    if cost.gain >= GRAVE and cost.low >= GRAVE / 2:
        return "critical"
    least, surely = (BUILT, BUILT_SURELY) if built else (COSTLY, SURELY)
    return "warning" if cost.gain >= least and cost.low >= surely else "note"


@dataclass(frozen=True)
class Finding(Record):
    """One problem, or one thing worth knowing.

    Args:
        name: name of the rule.
        severity: "note", "warning" or "critical".
        evidence: the numbers, in a sentence.
        cause: in a sentence.
        advice: what to do, in a sentence.
        settings: keys and values for `--set`; empty where no setting would help, where it is so
            already, and where there is no training.
        expect: what the next diagnosis should show.
        paper: key of the bibliography.
        strength: how far beyond its threshold, as a factor; orders findings of one severity.
        explains: names of findings that follow from this one.
        cost: what was measured with the cure and without it; None where no cure was tried.
        p: probability of such evidence by chance, where there is a control; None otherwise.
        line: what cures arrays in memory, in numpy; empty where nothing does.
        target: what to aim at in any training loop, by name (`tau`, `views` as a factor, `batch`,
            `steps`, `lr`, `pairs`, `batches`, `units`, `evaluation`).
        symptom: whether it follows from something else, and stands behind what may cause it.
    """

    name: str
    severity: str
    evidence: str
    cause: str
    advice: str
    expect: str
    paper: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    strength: float = 1.0
    explains: tuple[str, ...] = ()
    cost: Cost | None = None
    p: float | None = None
    line: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)
    symptom: bool = False

    @property
    def change(self) -> list[str]:
        """The settings as `key=value`, one for each `--set`.

        Example:
            >>> Finding(
            ...     "few", "note", "", "", "", "", "", {"batch": 256, "views.fresh": True}
            ... ).change
            ['batch=256', 'views.fresh=true']
        """
        return [f"{key}={_text(value)}" for key, value in self.settings.items()]

    @property
    def confidence(self) -> str:
        """How sure it is, in words: the interval of what the cure changes, or the chance of it."""
        said = [] if self.cost is None else [f"with the cure {self.cost.words}"]
        if self.p is not None:
            said.append("by chance p < 1e-12" if self.p < 1e-12 else f"by chance p = {self.p:.2g}")
        return "; ".join(said)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Facts:
    """Input of the rules: measures by name, and settings by dotted key.

    Args:
        measures: of `diagnose`; what could not be measured is missing.
        settings: such as `{"network.projector": "Projector(d=64)"}`; empty without a run.
    """

    measures: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.measures[name]

    def has(self, *names: str) -> bool:
        """Whether all of these were measured."""
        return all(self.measures.get(name) is not None for name in names)

    def get(self, name: str, otherwise: Any = None) -> Any:
        """A measure, or something else."""
        value = self.measures.get(name)
        return otherwise if value is None else value

    def main(self, name: str, otherwise: Any = None) -> Any:
        """A measure of h, or of z where there is no h."""
        return self.get(name, self.get(f"z_{name}", otherwise))

    def setting(self, key: str, otherwise: Any = None) -> Any:
        """A setting, or something else where there is no run."""
        return self.settings.get(key, otherwise)

    def cost(self, cure: str) -> Cost | None:
        """What a cure changed; None where it was not tried."""
        if not self.has(f"cure_{cure}_gain"):
            return None
        return Cost(*(self.measures[f"cure_{cure}_{name}"] for name in _PARTS))

    @property
    def kind(self) -> str:
        """What the rows look like, "embedding" unless it was seen."""
        return str(self.get("kind", "embedding"))

    @property
    def contrastive(self) -> bool:
        """Whether rows are to be judged as embeddings: no map, counts, codes, shares or table."""
        return self.kind == "embedding"

    @property
    def built(self) -> bool:
        """Whether dimensions start at 0 (relu, counts, histograms) or are principal directions."""
        return bool(self.get("rectified", False) or self.get("principal", False))

    @property
    def training(self) -> bool:
        """Whether the loss of a training is facts, so that its settings can be at fault."""
        return self.has("negative_deviation") or self.has("last_loss") or bool(self.settings)

    @property
    def labelled(self) -> bool:
        """Whether neighbours could be right or wrong."""
        return self.has("knn_accuracy")


def drowned(facts: Facts, share: float = 0.0) -> bool:
    """Whether a cure of the rows regains labels: then these are there, under something else.

    Args:
        share: of the labels that it must regain to be what is wrong with them.
    """
    cures = map(facts.cost, ("centre", "first", "even", "columns", "euclidean"))
    return any(one is not None and one.gain >= max(REGAINS, share) for one in cures)
