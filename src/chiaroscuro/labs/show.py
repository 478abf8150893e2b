"""A table of claims that grows while labs run: coloured on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TextIO

from chiaroscuro.labs.claim import Claim
from chiaroscuro.labs.lab import Lab

__all__ = ["Show", "brief", "tally"]

_COLOUR = {
    "holds": 32, "fails": 31, "inconclusive": 33, "erratum": 35, "typo": 35, "remark": 36,
    "definition": 90, "not_run": 90,
}  # fmt: skip
_WIDTH = 12


class Show:
    """Writes one row a claim; on a terminal the lab that runs is named in a line that goes away.

    Args:
        stream: where to; None says nothing.
    """

    def __init__(self, stream: TextIO | None):
        self.stream = stream
        self.live = stream is not None and stream.isatty()

    def begin(self, lab: Lab, scale: str) -> None:
        """A lab starts."""
        topics = ", ".join(lab.topics)
        self._write(f"{lab.paper}/{lab.name} ({topics}, {scale}): {lab.title}")
        if self.live:
            self._write("  running ...", end="")

    def piece(self, name: str, seconds: float) -> None:
        """A piece of the lab is done; one that took a second or more is worth a word."""
        if self.live:
            self._write(f"\r\x1b[K  running ... {name} done in {seconds:.1f} s", end="")
        elif seconds >= 1:
            self._write(f"  {name} done in {seconds:.1f} s")

    def end(self, claims: Sequence[Claim], seconds: float) -> None:
        """A lab is done: its claims, a row each."""
        self._write("\r\x1b[K" * self.live, end="")
        for claim in claims:
            verdict = f"{claim.verdict:<{_WIDTH}}"
            if self.live:
                verdict = f"\x1b[{_COLOUR[claim.verdict]}m{verdict}\x1b[0m"
            self._write(f"  {verdict}  {claim.id:<18}  {brief(claim)}")
        self._write(f"  {tally([claim.verdict for claim in claims])}, {seconds:.1f} s")

    def say(self, sentence: str) -> None:
        """A sentence on a line of its own."""
        self._write(("\r\x1b[K" * self.live) + f"  {sentence}")

    def _write(self, text: str, end: str = "\n") -> None:
        if self.stream is not None:
            print(text, end=end, file=self.stream, flush=True)


def brief(claim: Claim) -> str:
    """What was measured, in one line; of an erratum or a remark both forms."""
    if claim.printed is not None and claim.corrected is not None:
        both = (numbers(claim.printed["ours"]), numbers(claim.corrected["ours"]))
        return "printed: {}; corrected: {}".format(*both)
    if claim.expected is not None:
        return f"expected: {numbers(claim.expected['ours'])}; measured: {numbers(claim.ours)}"
    return numbers(claim.ours)


def numbers(ours: dict) -> str:
    """Return names and numbers in one line; of a list of numbers its range.

    Of a mean the half-width of its 95 % interval and its standard error stand behind it.

    Example:
        >>> numbers({"gain": [0.2, 0.4], "gain_mean": 0.3, "gain_se": 0.1, "gain_half": 1.27062})
        'gain 0.2 .. 0.4, gain_mean 0.3 +- 1.27 (se 0.1)'
        >>> numbers({"error": 1.234567e-16, "gain": [0.5, 0.25, 1.0]})
        'error 1.2e-16, gain 0.25 .. 1'
        >>> numbers({"behind": ["SimCLR", "simple sum"], "by_rate": {"0.1": 2.0, "1": 3.0}})
        'behind SimCLR, simple sum, by_rate (0.1: 2, 1: 3)'
        >>> numbers({"by_rate": {"0.1": 2.0, "0.3": 2.5, "1": 3.0, "3": 2.0}})
        'by_rate 2 .. 3 (4 values)'
    """
    means = [name[:-5] for name in ours if name.endswith("_half")]
    behind = {f"{name}_{end}" for name in means for end in ("se", "half")}
    return ", ".join(
        f"{name} {_short(value)}{_error(name, ours)}"
        for name, value in ours.items()
        if name not in behind
    )


def _error(name: str, ours: dict) -> str:
    stem = name.removesuffix("_mean")
    if f"{stem}_half" not in ours or stem == name:
        return ""
    half, error = ours[f"{stem}_half"], ours[f"{stem}_se"]
    return f" +- {float(half):.3g} (se {float(error):.2g})"


_NUMBERS = ("nan", "inf", "-inf")
"""Numbers that JSON has no other way to write."""


def _short(value: object) -> str:
    match value:
        case dict() if len(value) > 3 and all(isinstance(x, int | float) for x in value.values()):
            return f"{_short(list(value.values()))} ({len(value)} values)"
        case dict():
            return "(" + ", ".join(f"{name}: {_short(x)}" for name, x in value.items()) + ")"
        case list() | tuple() if any(isinstance(x, str) and x not in _NUMBERS for x in value):
            return ", ".join(map(str, value))
        case list() | tuple():
            known = [x for x in value if not math.isnan(float(x))]  # in JSON it is the word "nan"
            if len(known) < len(value):
                return f"{_short(known)}, {len(value) - len(known)} nan" if known else "nan"
            low, high = min(value, key=float), max(value, key=float)
            return _short(low) if low == high else f"{_short(low)} .. {_short(high)}"
        case bool() | int() | str():
            return str(value)
        case float():
            return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:.4g}"
    return str(value)


def tally(verdicts: Sequence[str]) -> str:
    """How many of each.

    Example:
        >>> tally(["holds", "erratum", "holds"])
        '2 holds, 1 erratum'
    """
    counts = {verdict: verdicts.count(verdict) for verdict in _COLOUR}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
