"""One error tree, and `need`: every refusal is a sentence with numbers in it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["ChiaroError", "InputError", "SpecError", "install_command", "need", "number"]


LONGEST = 2000
"""Letters of a sentence."""

_LINES = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_CONTROLS = {c: repr(chr(c))[1:-1] for c in (*range(32), *range(127, 160))}
"""Signs that would move the cursor or colour a terminal."""


class ChiaroError(Exception):
    """Base class of all errors that Chiaroscuro raises; the message is a sentence for the user.

    What a sentence quotes may be anything: of more than 2,000 letters the middle is left out, ends
    of lines become spaces, and control characters are spelled out.

    Example:
        >>> str(ChiaroError("There is no `a\\nb\\x1b[2J`."))
        'There is no `a b\\\\x1b[2J`.'
    """

    def __init__(self, sentence: object = "") -> None:
        text = _LINES.sub(" ", str(sentence)).translate(_CONTROLS)
        super().__init__(text if len(text) <= LONGEST else f"{text[:1500]} ... {text[-490:]}")


class InputError(ChiaroError, ValueError):
    """Raised for a wrong call; the message names what is required, what was received, and a fix."""


class SpecError(InputError):
    """A notation such as `Gaussian(tau=0.1)` could not be read."""


def need(condition: bool, sentence: str | Callable[[], str]) -> None:
    """Raise `InputError` with the sentence unless the condition holds.

    The sentence may be a function, so that numbers are only formatted when they are needed.

    Example:
        >>> need(1 + 1 == 2, "arithmetic needs to hold")
        >>> need(False, lambda: f"`tau` needs to be positive; received `{-0.1}`.")
        Traceback (most recent call last):
        chiaroscuro.errors.InputError: `tau` needs to be positive; received `-0.1`.
    """
    if not condition:
        raise InputError(sentence if isinstance(sentence, str) else sentence())


def install_command(extra: str) -> str:
    """Return the command that installs an extra: from the clone, where this is one.

    Example:
        >>> install_command("plots")
        "pip install ...[plots]'"
    """
    root = Path(__file__).resolve().parents[2]
    clone = (root / "pyproject.toml").is_file() and root / "src" in Path(__file__).resolve().parents
    return f"pip install -e '{root}[{extra}]'" if clone else f"pip install 'chiaroscuro[{extra}]'"


def number(call: str, name: str, x: object, least: float = 0.0, above: bool = False) -> float:
    """Return x as a float if it is finite and at least `least` (or above it), or raise an error.

    Example:
        >>> number("Weighted", "weight", 2)
        2.0
        >>> number("Lp", "p", 0, above=True)
        Traceback (most recent call last):
        chiaroscuro.errors.InputError: `Lp(p)` needs a finite number above 0.0; received 0.
    """
    if isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x):
        value = float(x)
        if value > least or (value == least and not above):
            return value
    bound = f"above {least}" if above else f"of at least {least}"
    raise InputError(f"`{call}({name})` needs a finite number {bound}; received {x!r}.")
