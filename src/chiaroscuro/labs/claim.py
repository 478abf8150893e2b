"""What a paper claims, the rule that judges it, and the verdict.

A `Stated` or `Erratum` is written down in the lab before anything runs: its rule is a line such as
`error < 1e-10 and gain > 0`. Judged by the numbers of a run it becomes a `Claim`. The rule is kept
as text, so whoever reads the JSON of a run can judge it again.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chiaroscuro import InputError

__all__ = ["VERDICTS", "Claim", "Erratum", "Stated", "satisfied"]

VERDICTS = ("holds", "fails", "erratum", "inconclusive", "not_run")

Number = float | int | Sequence[float]
Numbers = Mapping[str, Any]

_OPERATORS = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARISON = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|==|<|>)\s*(\S+)\s*")


def satisfied(rule: str, ours: Numbers) -> bool:
    """Whether numbers obey a rule: comparisons joined by `and`.

    Left of each sign stands a name, right of it a number or another name. A name may mean a list
    (one entry a seed): then every entry must obey. NaN obeys nothing.

    Example:
        >>> satisfied("error < 1e-10 and gain > 0", {"error": 1e-15, "gain": [0.2, 0.3]})
        True
        >>> satisfied("gain > base", {"gain": [0.2, 0.3], "base": 0.25})
        False
    """
    return all(_obeys(part, rule, ours) for part in rule.split(" and "))


def _obeys(part: str, rule: str, ours: Numbers) -> bool:
    found = _COMPARISON.fullmatch(part)
    if found is None:
        raise InputError(
            f"a rule needs comparisons `name < number` joined by `and`; received `{part}` in "
            f"`{rule}`."
        )
    name, sign, bound = found.groups()
    left = _numbers(name, rule, ours)
    right = _numbers(bound, rule, ours)
    if len(right) == 1:
        right = right * len(left)
    if len(left) != len(right) or not left:
        raise InputError(
            f"the rule `{rule}` needs as many numbers on both sides, at least one; received "
            f"{len(left)} and {len(right)} in `{part}`."
        )
    return all(_OPERATORS[sign](a, b) for a, b in zip(left, right, strict=True))


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
        printed, corrected: of an erratum, both forms: `says`, `ours`, `rule`, `holds`.
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

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(
                f"`Claim(verdict)` needs one of {', '.join(VERDICTS)}; received {self.verdict!r}."
            )

    def record(self) -> dict[str, Any]:
        """The claim as JSON can hold it; `printed` and `corrected` only of an erratum."""
        found = {
            "id": self.id,
            "statement": self.statement,
            "where": self.where,
            "paper": self.paper,
            "ours": _plain(self.ours),
            "rule": self.rule,
            "verdict": self.verdict,
        }
        if self.printed is not None:
            found |= {"printed": _plain(self.printed), "corrected": _plain(self.corrected)}
        return found


@dataclass(frozen=True)
class Stated:
    """A claim before it is judged.

    Args:
        id, says, where, paper: see `Claim`.
        rule: what `ours` must obey.
        enough: what `ours` must obey to judge at all (`n_seeds >= 3`). Without it the claim is an
            identity or a certainty and can never be inconclusive.

    Example:
        >>> stated = Stated("V0", "one and one is two", "Sec. 1", 2, "error < 1e-10")
        >>> stated.judge(error=0.0).verdict
        'holds'
        >>> stated.judge(error=0.1).verdict
        'fails'
    """

    id: str
    says: str
    where: str
    paper: Any
    rule: str
    enough: str = ""

    def judge(self, **ours: Any) -> Claim:
        """The claim with its verdict, from numbers by name."""
        verdict = "holds" if satisfied(self.rule, ours) else "fails"
        if self.enough and not satisfied(self.enough, ours):
            verdict = "inconclusive"
        rule = _with(self.rule, self.enough)
        return Claim(self.id, self.says, self.where, self.paper, ours, rule, verdict)

    def not_run(self, why: str) -> Claim:
        """The claim where data or hardware is missing, and which."""
        ours, rule = {"missing": why}, _with(self.rule, self.enough)
        return Claim(self.id, self.says, self.where, self.paper, ours, rule, "not_run")


@dataclass(frozen=True)
class Erratum:
    """A statement we hold to be wrong as printed, before it is judged.

    It is an `erratum` if the printed form fails *and* the corrected one holds, both measured. If
    the printed form holds after all the paper is right: `holds`. If neither holds: `fails`.

    Args:
        id, where: see `Claim`.
        printed, corrected: the two forms, one sentence each.
        printed_rule, corrected_rule: what the numbers of each must obey.
        enough: what the corrected numbers must obey to judge at all, as for `Stated`.

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

    def judge(self, printed: Numbers, corrected: Numbers) -> Claim:
        """The claim with its verdict, from the numbers of both forms."""
        right = satisfied(self.printed_rule, printed)
        mended = satisfied(self.corrected_rule, corrected)
        verdict = "holds" if right else "erratum" if mended else "fails"
        if self.enough and not satisfied(self.enough, corrected):
            verdict = "inconclusive"
        return Claim(
            id=self.id,
            statement=f"Printed: {self.printed} Corrected: {self.corrected}",
            where=self.where,
            paper=self.printed,
            ours=dict(corrected),
            rule=_with(
                f"printed fails {self.printed_rule}; corrected obeys {self.corrected_rule}",
                self.enough,
            ),
            verdict=verdict,
            printed=_form(self.printed, printed, self.printed_rule, right),
            corrected=_form(self.corrected, corrected, self.corrected_rule, mended),
        )


def _with(rule: str, enough: str) -> str:
    return f"{rule} (to judge at all: {enough})" if enough else rule


def _form(says: str, ours: Numbers, rule: str, holds: bool) -> dict[str, Any]:
    return {"says": says, "ours": dict(ours), "rule": rule, "holds": holds}


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
