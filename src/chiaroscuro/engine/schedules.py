"""Schedules: pure functions from a step to the factor on the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from chiaroscuro.errors import need

__all__ = ["SCHEDULES", "constant", "cosine", "linear"]

Schedule = Callable[[int, int, int], float]


def cosine(step: int, steps: int, warmup: int = 0) -> float:
    """Linear warm-up, then half a cosine down to 0 [chen2020simclr, B.6].

        factor = (step + 1) / warmup                                      step < warmup
        factor = (1 + cos(pi (step - warmup) / (steps - warmup))) / 2     after it

    Args:
        step: from 0; at `steps` and beyond the factor is 0.
        steps: of the whole training.
        warmup: steps until the factor is 1.

    References:
        chen2020simclr

    Example:
        >>> [round(cosine(step, 6, warmup=2), 3) for step in range(7)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    return _warm(step, steps, warmup) * (1 + math.cos(math.pi * _gone(step, steps, warmup))) / 2


def linear(step: int, steps: int, warmup: int = 0) -> float:
    """Linear warm-up, then a line down to 0: 1 - (step - warmup) / (steps - warmup).

    Args:
        step, steps, warmup: as for `cosine`.

    Example:
        >>> [linear(step, 6, warmup=2) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return _warm(step, steps, warmup) * (1 - _gone(step, steps, warmup))


def constant(step: int, steps: int, warmup: int = 0) -> float:
    """Linear warm-up, then 1.

    Args:
        step, steps, warmup: as for `cosine`.

    Example:
        >>> [constant(step, 6, warmup=2) for step in (0, 1, 5)]
        [0.5, 1.0, 1.0]
    """
    return _warm(step, steps, warmup)


SCHEDULES: dict[str, Schedule] = {"cosine": cosine, "linear": linear, "constant": constant}


def _warm(step: int, steps: int, warmup: int) -> float:
    need(
        0 <= warmup <= steps and step >= 0,
        lambda: (
            f"A schedule needs `0 <= warmup <= steps` and `step >= 0`; received warmup {warmup}, "
            f"steps {steps}, step {step}."
        ),
    )
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _gone(step: int, steps: int, warmup: int) -> float:
    """The share of the way after the warm-up, 0 to 1."""
    return min(1.0, max(0, step - warmup) / max(1, steps - warmup))
