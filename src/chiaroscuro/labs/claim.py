"""A paper's claim, the rule that judges it, and the verdict.

A `Stated` or `Erratum` is written down in the lab before anything runs: its rule is a line such as
`error < 1e-10` or `mean(gain) > 0`. Judged by the numbers of a run it becomes a `Claim`. The rule
is kept as text, so whoever reads the JSON of a run can judge it again with `judged`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chiaroscuro import InputError

__all__ = [
    "KINDS", "VERDICTS", "Claim", "Erratum", "Interval", "Remark", "Stated", "interval", "judged",
    "satisfied", "spread",
]  # fmt: skip

VERDICTS = (
    "holds", "fails", "erratum", "inconclusive", "not_run", "typo", "remark", "definition"
)  # fmt: skip
"""The last three are of their own kind: a slip of the pen in the paper, a remark of ours that the
paper does not make, and a statement that no experiment can refute. None counts as `holds`."""

KINDS = ("identity", "empirical", "definition", "remark", "erratum", "typo")
"""What sort of statement a claim is. `identity`: mathematics, checked to a tolerance. `empirical`:
a measurement or a statistic of a sample decides."""

UNSAID = ("not covered", "not measured", "not said", "not stated", "not tried", "not tried there")
"""What `paper` is where a claim is ours."""

Numbers = Mapping[str, Any]

_OPERATORS = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARISON = re.compile(
    r"\s*(mean\()?([A-Za-z_]\w*)(?(1)\))\s*(<=|>=|==|<|>)\s*(?:mean\((\w+)\)|([^\s()]+))\s*"
)
_STATISTIC = re.compile(r"\b(ks|(largest_)?z(_\w+)?) <")
"""Names kept for statistics of samples: Kolmogorov and Smirnov's, and a z-score."""
_ENOUGH, _EFFECT = " (to judge at all: ", " (the paper's effect: "


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its standard error and 95 % interval (Student's t)."""

    mean: float
    error: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent runs, its standard error and its 95 % interval.

    One run has no standard error: its interval is the whole line.

    Example:
        >>> spread = interval([1.0, 2.0, 3.0])
        >>> [round(x, 3) for x in (spread.mean, spread.error, spread.low, spread.high)]
        [2.0, 0.577, -0.484, 4.484]
    """
    from scipy.special import stdtrit

    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    if not math.isfinite(mean):
        return Interval(mean, math.nan, math.nan, math.nan)
    if n < 2:
        return Interval(mean, math.inf, -math.inf, math.inf)
    error = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1) / n)
    half = float(stdtrit(n - 1, 0.975)) * error
    return Interval(mean, error, mean - half, mean + half)


def satisfied(rule: str, ours: Numbers) -> bool:
    """Return whether numbers obey a rule: comparisons joined by `and`.

    Left of each sign stands a name, right of it a number or another name. A name may mean a list:
    then every entry must obey. `mean(name)` is the mean of a list over seeds: its whole 95 %
    interval must obey. `mean(a) < mean(b)` is about the differences a - b, seed by seed: the whole
    interval of their mean must obey. NaN obeys nothing.

    Example:
        >>> satisfied("error < 1e-10 and gain > 0", {"error": 1e-15, "gain": [0.2, 0.3]})
        True
        >>> satisfied("gain > base", {"gain": [0.2, 0.3], "base": 0.25})
        False
        >>> satisfied("mean(gain) > 0", {"gain": [0.2, 0.3, -0.01, 0.2, 0.2]})
        True
    """
    return all(_part(part, rule, ours, {}) == "holds" for part in rule.split(" and "))


def judged(rule: str, ours: Numbers) -> str:
    """Return `holds`, `fails` or `inconclusive` from a rule as it stands in a record.

    A comparison of a mean is undecided where its interval holds the bound. If the paper's effect is
    stated (`gain = 4.1`, or `a - b = 4.1` for two means) and lies beyond the interval, the paper is
    contradicted: `fails`. An effect that the paper gives with an error, `gain = 4.1 +- 2`, lies
    beyond it where all from 2.1 to 6.1 does. Otherwise it is `inconclusive`, however narrow the
    interval. One comparison that fails makes the claim fail.

    Example:
        >>> judged("mean(gain) > 0", {"gain": [0.3, -0.2, 0.1]})
        'inconclusive'
        >>> judged("mean(gain) > 0 (the paper's effect: gain = 4.1)", {"gain": [0.3, -0.2, 0.1]})
        'fails'
        >>> judged("mean(gain) > 0 (the paper's effect: gain = 1 +- 2)", {"gain": [0.3, -0.2, 0.1]})
        'inconclusive'
        >>> judged("mean(a) > mean(b)", {"a": [1, 2, 3], "b": [0.9, 1.8, 2.85]})
        'holds'
        >>> judged("gain > 0 (to judge at all: n >= 3)", {"gain": 1.0, "n": 2})
        'inconclusive'
    """
    rule, _, enough = rule.partition(_ENOUGH)
    rule, _, effect = rule.partition(_EFFECT)
    if enough and not satisfied(enough.removesuffix(")"), ours):
        return "inconclusive"
    effects = _effects(effect.removesuffix(")"))
    verdicts = {_part(part, rule, ours, effects) for part in rule.split(" and ")}
    return next(v for v in ("fails", "inconclusive", "holds") if v in verdicts)


def _effects(text: str) -> dict[str, tuple[float, float]]:
    """`gain = 0.041 and a - b = 1 +- 0.5` as numbers with their errors by name."""
    found = {}
    for part in text.split(" and ") if text else ():
        name, value = part.split(" = ")
        effect, _, error = value.partition(" +- ")
        found[name] = (float(effect), float(error or 0))
    return found


def _part(part: str, rule: str, ours: Numbers, effects: Mapping[str, tuple[float, float]]) -> str:
    comparison = _COMPARISON.fullmatch(part)
    if comparison is None:
        raise InputError(
            f"a rule needs comparisons `name < number` or `mean(name) < number` joined by `and`; "
            f"received `{part}` in `{rule}`."
        )
    averaged, name, sign, other, bound = comparison.groups()
    effect = effects.get(f"{name} - {other}" if other else name)
    left, right = _sides(name, other or bound, rule, ours)
    obeys = _OPERATORS[sign]
    if not averaged:
        return "holds" if all(obeys(a, b) for a, b in zip(left, right, strict=True)) else "fails"
    over = interval([a - b for a, b in zip(left, right, strict=True)])
    if obeys(over.low, 0.0) and obeys(over.high, 0.0):
        return "holds"
    if over.error == 0.0 or not over.low <= 0.0 <= over.high:  # NaN too
        return "fails"
    if effect is None:
        return "inconclusive"
    size, error = effect
    beyond = size if other else size - math.fsum(right) / len(right)
    return "inconclusive" if over.low - error <= beyond <= over.high + error else "fails"


def _sides(name: str, other: str, rule: str, ours: Numbers) -> tuple[list[float], list[float]]:
    left, right = _numbers(name, rule, ours), _numbers(other, rule, ours)
    if len(right) == 1:
        right = right * len(left)
    if len(left) != len(right) or not left:
        raise InputError(
            f"the rule `{rule}` needs as many numbers on both sides, at least one; received "
            f"{len(left)} and {len(right)} of `{name}` and `{other}`."
        )
    return left, right


def _numbers(word: str, rule: str, ours: Numbers) -> list[float]:
    if word in ours:
        value = ours[word]
        return [float(x) for x in (value if isinstance(value, Sequence) else [value])]
    try:
        return [float(word)]
    except ValueError:
        raise InputError(
            f"the rule `{rule}` needs the number `{word}`; received {', '.join(ours) or 'none'}."
        ) from None


@dataclass(frozen=True)
class Claim:
    """One judged statement of a paper.

    Args:
        id: begins with the id of the list of claims, such as `V4`.
        statement: what is claimed, in one sentence.
        where: the place in the paper.
        paper: the paper's value, a number or words.
        ours: what was measured, by name; a list has one entry a seed or a size.
        rule: how `ours` was judged.
        verdict: one of `VERDICTS`.
        printed, corrected: of an erratum or a typo, both forms: `says`, `ours`, `rule`, `holds`;
            the printed one of an erratum also has the paper's sentence (`quote`) and why it cannot
            be read otherwise (`why`).
        kind: one of `KINDS`.
        expected: of a remark with two forms, the one that fails: `says`, `ours`, `rule`, `holds`.
    """

    id: str
    statement: str
    where: str
    paper: Any
    ours: dict[str, Any]
    rule: str
    verdict: str
    printed: dict[str, Any] | None = None
    corrected: dict[str, Any] | None = None
    kind: str = "empirical"
    expected: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(
                f"`Claim(verdict)` needs one of {', '.join(VERDICTS)}; received {self.verdict!r}."
            )
        if self.kind not in KINDS:
            raise InputError(
                f"`Claim(kind)` needs one of {', '.join(KINDS)}; received {self.kind!r}."
            )

    def record(self) -> dict[str, Any]:
        """Return the claim as JSON can hold it; `printed` and `corrected` only where there are."""
        record = {
            "id": self.id,
            "statement": self.statement,
            "where": self.where,
            "paper": self.paper,
            "ours": _plain(self.ours),
            "rule": self.rule,
            "verdict": self.verdict,
            "kind": self.kind,
        }
        if self.printed is not None:
            record |= {"printed": _plain(self.printed), "corrected": _plain(self.corrected)}
        if self.expected is not None:
            record["expected"] = _plain(self.expected)
        return record


@dataclass(frozen=True)
class Stated:
    """A claim before it is judged.

    Args:
        id, says, where, paper: see `Claim`.
        rule: what `ours` must obey; see `judged`.
        enough: what `ours` must obey to judge at all (`n_seeds >= 3`). An identity has none and
            can never be inconclusive.
        effect: the paper's effect for the means of the rule, `gain = 0.041` or, for
            `mean(a) > mean(b)`, `a - b = 0.041`, if it states one; with its error, if it has one,
            `gain = 0.041 +- 0.01`.
        kind: "identity", "empirical", "definition" or "remark"; unless given, empirical if there
            is `enough`, a mean or a statistic of a sample (`ks`, `z_mean`) in the rule, else an
            identity.

    Example:
        >>> stated = Stated("V0", "one and one is two", "Sec. 1", 2, "error < 1e-10")
        >>> stated.judge(error=0.0).verdict
        'holds'
        >>> stated.judge(error=0.1).verdict
        'fails'
        >>> Stated("V0", "it gains", "Fig. 1", "+1", "mean(gain) > 0").judge(gain=[1, -1]).verdict
        'inconclusive'
    """

    id: str
    says: str
    where: str
    paper: Any
    rule: str
    enough: str = ""
    effect: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        if not self.kind:
            open_ended = self.enough or "mean(" in self.rule or _STATISTIC.search(self.rule)
            object.__setattr__(self, "kind", "empirical" if open_ended else "identity")
        if self.kind not in ("identity", "empirical", "definition", "remark"):
            raise InputError(f"`Stated({self.id!r})` is of no known kind: {self.kind!r}.")
        if self.kind == "identity" and (self.enough or "mean(" in self.rule):
            raise InputError(
                f"the identity `{self.id}` needs a rule without `enough` and `mean`; received "
                f"`{self.text}`: it can never be inconclusive."
            )
        unknown = set(_effects(self.effect)) - {
            f"{name} - {other}" if other else name for name, other in _averaged(self.rule)
        }
        if unknown:
            raise InputError(
                f"the effect of `{self.id}` needs means of its rule, `gain = 1` or `a - b = 1`; "
                f"received `{', '.join(unknown)}` with `{self.rule}`."
            )

    @property
    def text(self) -> str:
        """The whole rule, as a record holds it."""
        return _with(self.rule, self.enough, self.effect)

    def judge(self, **ours: Any) -> Claim:
        """Return the claim with its verdict, from numbers by name.

        Added to them are, of every mean and every difference of means in the rule, `name_mean`,
        its standard error `name_se` and half its 95 % interval `name_half`.
        """
        verdict = judged(self.text, ours)
        if verdict == "holds" and self.kind in ("definition", "remark"):
            verdict = self.kind
        return self._claim({**ours, **spread(self.rule, ours)}, verdict)

    def not_run(self, why: str) -> Claim:
        """Return the claim where data or hardware is missing, and which."""
        return self._claim({"missing": why}, "not_run")

    def _claim(self, ours: dict[str, Any], verdict: str) -> Claim:
        return Claim(
            self.id, self.says, self.where, self.paper, ours, self.text, verdict, kind=self.kind
        )


@dataclass(frozen=True)
class Erratum:
    """A statement we hold to be wrong as printed, before it is judged.

    It is an `erratum` (or a `typo`) if the printed form fails *and* the corrected one holds, both
    measured. If the printed form holds after all the paper is right: `holds`. If the corrected one
    fails too: `fails`. If the interval of a mean leaves either open: `inconclusive`.

    Args:
        id, where: see `Claim`.
        printed, corrected: the two forms, one sentence each.
        printed_rule, corrected_rule: what the numbers of each must obey.
        enough: what the corrected numbers must obey to judge at all, as for `Stated`.
        quote: the paper's sentence, word for word (formulas in plain text).
        why: why the sentence cannot be read so that it is right.
        kind: "erratum", a mathematical error, or "typo", a slip of the pen that the paper itself
            contradicts elsewhere or never uses.

    Example:
        >>> wrong = Erratum("V0", "Sec. 1", "1+1=3", "error < 1e-10", "1+1=2", "error < 1e-10")
        >>> wrong.judge(printed={"error": 1.0}, corrected={"error": 0.0}).verdict
        'erratum'
    """

    id: str
    where: str
    printed: str
    printed_rule: str
    corrected: str
    corrected_rule: str
    enough: str = ""
    quote: str = ""
    why: str = ""
    kind: str = "erratum"

    def __post_init__(self) -> None:
        if self.kind not in ("erratum", "typo"):
            raise InputError(f"`Erratum({self.id!r})` is of no known kind: {self.kind!r}.")

    def judge(self, printed: Numbers, corrected: Numbers) -> Claim:
        """Return the claim with its verdict, from the numbers of both forms."""
        right = judged(self.printed_rule, printed)
        mended = judged(self.corrected_rule, corrected)
        verdict = "holds" if right == "holds" else _of_two(self.kind, right, mended)
        if self.enough and not satisfied(self.enough, corrected):
            verdict = "inconclusive"
        said = {"quote": self.quote, "why": self.why}
        wrong = _form(self.printed, printed, self.printed_rule, right)
        return Claim(
            id=self.id,
            statement=f"Printed: {self.printed} Corrected: {self.corrected}",
            where=self.where,
            paper=self.printed,
            ours={**corrected, **spread(self.corrected_rule, corrected)},
            rule=_with(
                f"printed fails {self.printed_rule}; corrected obeys {self.corrected_rule}",
                self.enough,
            ),
            verdict=verdict,
            printed=wrong | {name: text for name, text in said.items() if text},
            corrected=_form(self.corrected, corrected, self.corrected_rule, mended),
            kind=self.kind,
        )


@dataclass(frozen=True)
class Remark:
    """A remark of ours that the paper does not make, before it is judged.

    It names a form that one might expect, or implement, and the one that holds. It is a `remark` if
    the first fails and the second holds, both measured; it is `inconclusive` if the interval of a
    mean leaves either open, and otherwise `fails`.

    Args:
        id, where: see `Claim`.
        expected, says: the two forms, one sentence each.
        expected_rule, rule: what the numbers of each must obey.
        enough: what the numbers of the second must obey to judge at all, as for `Stated`.

    Example:
        >>> ours = Remark("V0", "Sec. 1", "1+1=3", "error < 1e-10", "1+1=2", "error < 1e-10")
        >>> ours.judge(expected={"error": 1.0}, ours={"error": 0.0}).verdict
        'remark'
    """

    id: str
    where: str
    expected: str
    expected_rule: str
    says: str
    rule: str
    enough: str = ""
    kind: str = "remark"

    def judge(self, expected: Numbers, ours: Numbers) -> Claim:
        """Return the claim with its verdict, from the numbers of both forms."""
        wrong = judged(self.expected_rule, expected)
        verdict = _of_two(self.kind, wrong, judged(self.rule, ours))
        if self.enough and not satisfied(self.enough, ours):
            verdict = "inconclusive"
        return Claim(
            id=self.id,
            statement=f"One might expect: {self.expected} Measured: {self.says}",
            where=self.where,
            paper="not said",
            ours={**ours, **spread(self.rule, ours)},
            rule=_with(f"{self.rule}; expected fails {self.expected_rule}", self.enough),
            verdict=verdict,
            expected=_form(self.expected, expected, self.expected_rule, wrong),
            kind=self.kind,
        )


def _with(rule: str, enough: str, effect: str = "") -> str:
    rule = f"{rule}{_EFFECT}{effect})" if effect else rule
    return f"{rule}{_ENOUGH}{enough})" if enough else rule


def _averaged(rule: str) -> list[tuple[str, str]]:
    """Every mean of a rule, and the mean it is compared with or an empty string."""
    comparisons = rule.partition(" (")[0].split(" and ")  # what follows says when they count
    found = (_COMPARISON.fullmatch(part) for part in comparisons)
    return [(one[2], one[4] or "") for one in found if one and one[1]]


def spread(rule: str, ours: Numbers) -> dict[str, float]:
    """Return mean, standard error and half the 95 % interval of every mean of a rule.

    Of `mean(a) < mean(b)` also those of the differences by seed, `a_minus_b`.

    Example:
        >>> spread("mean(gain) > 0", {"gain": [1.0, 3.0]})
        {'gain_mean': 2.0, 'gain_se': 1.0, 'gain_half': 12.706...}
    """
    lists: dict[str, Sequence[float]] = {}
    for name, other in _averaged(rule):
        lists[name] = _numbers(name, rule, ours)
        if other:
            left, right = _sides(name, other, rule, ours)
            lists[other] = _numbers(other, rule, ours)
            lists[f"{name}_minus_{other}"] = [a - b for a, b in zip(left, right, strict=True)]
    numbers: dict[str, float] = {}
    for name, values in lists.items():
        over = interval(values)
        numbers |= {f"{name}_mean": over.mean, f"{name}_se": over.error, f"{name}_half": over.half}
    return numbers


def _of_two(kind: str, first: str, second: str) -> str:
    """The verdict on a form that should fail and one that should hold."""
    if first == "holds" or second == "fails":
        return "fails"
    return kind if (first, second) == ("fails", "holds") else "inconclusive"


def _form(says: str, ours: Numbers, rule: str, verdict: str) -> dict[str, Any]:
    numbers = {**ours, **spread(rule, ours)}
    return {"says": says, "ours": numbers, "rule": rule, "holds": verdict == "holds"}


def _plain(value: Any) -> Any:
    """Numbers rounded to six figures, as JSON can hold them (no NaN: it becomes a word)."""
    match value:
        case Mapping():
            return {name: _plain(one) for name, one in value.items()}
        case bool() | int() | str() | None:
            return value
        case float():
            return float(f"{value:.6g}") if math.isfinite(value) else str(value)
        case Sequence():
            return [_plain(one) for one in value]
    raise InputError(f"a claim needs numbers, words and lists; received {type(value).__name__}.")
