"""Where a search looks: a distribution for each thing that is drawn.

The value of a trial is a function of (seed, name, trial) alone. Whichever engine runs the search,
in whatever order, before or after a stop, trial 7 is trial 7.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chiaroscuro.data.counter import uniforms
from chiaroscuro.errors import InputError, need
from chiaroscuro.spec import parse

__all__ = ["Choice", "Distribution", "Integers", "LogUniform", "Uniform", "drawn", "read_space"]


@dataclass(frozen=True)
class Uniform:
    """Number between two bounds, chosen uniformly.

        value = low + u (high - low),   u uniform in [0, 1)

    Args:
        low, high: the ends.

    Example:
        >>> Uniform(0.0, 1.0).at(0.25)
        0.25
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _ordered(self)

    def at(self, u: float) -> float:
        """Return the value at a quantile."""
        return self.low + u * (self.high - self.low)


@dataclass(frozen=True)
class LogUniform:
    """Number between two bounds, uniform in its logarithm.

        value = low (high / low)^u,   density 1 / (value log(high / low))

    Where it fails: on [0, high], as [tan2024, Table 3] prints it, there is no such law, for 1/x has
    no finite integral there. The lower end has to be stated.

    Args:
        low, high: the ends, above 0.

    References:
        tan2024

    Example:
        >>> LogUniform(0.01, 1.0).at(0.5)
        0.1
        >>> LogUniform(0.0, 1.0)
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `LogUniform(low, high)` needs low above 0; received 0.0. ...
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        need(
            self.low > 0,
            lambda: (
                f"`LogUniform(low, high)` needs low above 0; received {self.low}. 1/x has no "
                f"finite integral down to 0: state a lower end, such as {self.high / 100:g}."
            ),
        )
        _ordered(self)

    def at(self, u: float) -> float:
        """Return the value at a quantile."""
        return self.low * (self.high / self.low) ** u


@dataclass(frozen=True)
class Integers:
    """Integer between two bounds, both included, chosen uniformly.

    Args:
        low, high: the ends.

    Example:
        >>> [Integers(1, 3).at(u) for u in (0.0, 0.34, 0.99)]
        [1, 2, 3]
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        whole = all(type(end) is int for end in (self.low, self.high))
        need(
            whole and self.low <= self.high,
            lambda: (
                "`Integers(low, high)` needs whole numbers low <= high; received "
                f"{self.low!r} and {self.high!r}."
            ),
        )

    def at(self, u: float) -> int:
        """Return the value at a quantile."""
        return self.low + int(u * (self.high - self.low + 1))


@dataclass(frozen=True, init=False)
class Choice:
    """One of several values, chosen uniformly.

    Args:
        options: numbers, texts or truth values.

    Example:
        >>> Choice(128, 256).at(0.5)
        256
    """

    options: tuple[Any, ...]

    def __init__(self, *options: Any):
        need(
            bool(options) and all(isinstance(one, bool | int | float | str) for one in options),
            lambda: f"`Choice` needs numbers, texts or truth values; received {options!r}.",
        )
        object.__setattr__(self, "options", options)

    def at(self, u: float) -> Any:
        """Return the value at a quantile."""
        return self.options[int(u * len(self.options))]

    def __repr__(self) -> str:
        return f"Choice({', '.join(map(repr, self.options))})"


Distribution = Uniform | LogUniform | Integers | Choice
_NAMES = {kind.__name__: kind for kind in (Uniform, LogUniform, Integers, Choice)}


def _ordered(law: Uniform | LogUniform) -> None:
    ends = (law.low, law.high)
    numbers = all(type(end) in (int, float) and math.isfinite(end) for end in ends)
    need(
        numbers and law.low < law.high,
        lambda: (
            f"`{type(law).__name__}(low, high)` needs finite numbers low < high; received "
            f"{law.low!r} and {law.high!r}."
        ),
    )


def read_space(table: Mapping[str, Any]) -> dict[str, Distribution]:
    """Return distributions by name, from their notation.

    Args:
        table: `{"optimiser.lr": "LogUniform(0.01, 10.0)", "tau": "Uniform(0.1, 1.0)"}`.

    Example:
        >>> read_space({"batch": "Choice(128, 256)"})
        {'batch': Choice(128, 256)}
    """
    need(
        isinstance(table, Mapping) and bool(table),
        lambda: f"`space` needs at least one name with a distribution; received {table!r}.",
    )
    space = {}
    for name, law in table.items():
        if isinstance(law, str):
            try:
                law = parse(law, _NAMES)
            except InputError as error:
                raise InputError(f"`space`, `{name}`: {error}") from None
        need(
            isinstance(law, tuple(_NAMES.values())),
            lambda name=name, law=law: (
                f"`space`, `{name}` needs one of {', '.join(_NAMES)}; received {law!r}."
            ),
        )
        space[name] = law
    return space


def drawn(space: Mapping[str, Distribution], seed: int, trial: int) -> dict[str, Any]:
    """Return the values of one trial.

    Relations: taking a name out of the space leaves the values of the others.

    Args:
        space: distributions by name.
        seed: seed of the search.
        trial: its number, from 0.

    Example:
        >>> space = {"tau": LogUniform(0.01, 1.0), "batch": Choice(128, 256)}
        >>> drawn(space, seed=0, trial=3) == drawn(dict(reversed(space.items())), 0, 3)
        True
    """
    return {
        name: law.at(float(uniforms(1, seed, zlib.crc32(name.encode()), trial)[0, 0]))
        for name, law in space.items()
    }
