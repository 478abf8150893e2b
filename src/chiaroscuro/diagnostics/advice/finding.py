"""What a rule says, and what it is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chiaroscuro.measures.record import Record

__all__ = ["SEVERITIES", "Finding", "Known", "argument", "replaced"]

SEVERITIES = ("note", "warning", "critical")
"""In rising order: good to know; costs quality; nothing below it can be trusted."""


@dataclass(frozen=True)
class Finding(Record):
    """One thing that is wrong, or worth knowing.

    Args:
        name: of the rule.
        severity: "note", "warning" or "critical".
        evidence: the numbers, in a sentence.
        cause: in a sentence.
        advice: what to do, in a sentence.
        settings: keys and values for `--set`; empty where no setting would help.
        expect: what the next diagnosis should show.
        paper: key of the bibliography.
        strength: how far beyond its threshold, as a factor; orders findings of one severity.
        explains: names of findings that follow from this one.
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


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Known:
    """What the rules are told: measures by name, and the settings of the training by dotted key.

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
        found = self.measures.get(name)
        return otherwise if found is None else found

    def setting(self, key: str, otherwise: Any = None) -> Any:
        """A setting, or something else where there is no run."""
        return self.settings.get(key, otherwise)


def replaced(text: str, name: str, value: Any) -> str | None:
    """A notation with one argument replaced wherever it stands; None where it stands nowhere.

    Example:
        >>> replaced("InfoNCE(kernel=Cosine(tau=5.0))", "tau", 0.2)
        'InfoNCE(kernel=Cosine(tau=0.2))'
        >>> replaced("SimCLR(size=32, strength=0.5)", "strength", 1.0)
        'SimCLR(size=32, strength=1.0)'
    """
    found, times = re.subn(rf"\b{name}=(\[[^\]]*\]|[^,)\s]+)", f"{name}={value}", text)
    return found if times else None


def argument(text: str, name: str) -> str | None:
    """The text of one argument of a notation, brackets and all; None where it is not named.

    Example:
        >>> argument("InfoNCE(kernel=Sum(Dot(tau=1), Dot(tau=2)), anchors='first')", "kernel")
        'Sum(Dot(tau=1), Dot(tau=2))'
    """
    found = re.search(rf"\b{name}=", text)
    if found is None:
        return None
    depth = 0
    for at, letter in enumerate(text[found.end() :], start=found.end()):
        if depth == 0 and letter in ",)":
            return text[found.end() : at].strip()
        depth += (letter in "([") - (letter in ")]")
    return None
