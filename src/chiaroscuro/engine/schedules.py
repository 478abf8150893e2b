"""Schedules: pure functions from a step to the factor on the learning rate."""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping

from chiaroscuro.errors import InputError, need

__all__ = ["SCHEDULES", "Formula", "constant", "cosine", "linear", "towards_one"]

Schedule = Callable[[int, int, int], float]


def cosine(step: int, steps: int, warmup: int = 0) -> float:
    """Linear warm-up, then half a cosine down to 0 [chen2020simclr, Sec. 2.3].

        factor = (step + 1) / warmup                                      step < warmup
        factor = (1 + cos(pi (step - warmup) / (steps - warmup))) / 2     after it

    Args:
        step: from 0; at `steps` and beyond the factor is 0.
        steps: steps of the whole training.
        warmup: steps until the factor is 1.

    References:
        chen2020simclr

    Example:
        >>> [round(cosine(step, 6, warmup=2), 3) for step in range(7)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    return _warm(step, steps, warmup) * (1 + math.cos(math.pi * _progress(step, steps, warmup))) / 2


def linear(step: int, steps: int, warmup: int = 0) -> float:
    """Linear warm-up, then a line down to 0: 1 - (step - warmup) / (steps - warmup).

    Args:
        step, steps, warmup: as for `cosine`.

    Example:
        >>> [linear(step, 6, warmup=2) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return _warm(step, steps, warmup) * (1 - _progress(step, steps, warmup))


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


def towards_one(momentum: float, step: int, steps: int) -> float:
    """Return the momentum of BYOL's target: a cosine from its value to 1 [grill2020byol, Sec. 3.3].

        m(step) = 1 - (1 - m) (cos(pi step / steps) + 1) / 2

    Args:
        momentum: at step 0; 0.996 in the paper.
        step: from 0.
        steps: steps of the whole training.

    References:
        grill2020byol

    Example:
        >>> [round(towards_one(0.996, step, 10), 4) for step in (0, 5, 10)]
        [0.996, 0.998, 1.0]
    """
    return 1 - (1 - momentum) * (math.cos(math.pi * step / steps) + 1) / 2


class Formula:
    """The factor on the learning rate as a formula of the step: what torch's LambdaLR does.

        lr(step) = lr * formula(step)

    [tan2024, App. B] names LambdaLR and not its function; the SimCLR of the library it reproduces
    hands it a linear warm-up from 0 and half a cosine, in this notation

        step / warmup if step < warmup else (1 + cos(pi * (step - warmup) / (steps - warmup))) / 2

    Relations: from the second step on this is `cosine` one step late while it warms up, and
    `cosine` itself afterwards.

    Args:
        text: numbers, `+ - * / // % **`, comparisons, `a if b else c`, `and or not`; `pi`, `sin`,
            `cos`, `exp`, `log`, `sqrt`, `floor`, `abs`, `min`, `max`; `step` and `epoch` (from 0,
            whole), `steps`, `epochs`, and `warmup` in steps.

    References:
        tan2024

    Example:
        >>> decay = Formula("0.5 ** epoch")
        >>> [decay(step, steps=8, warmup=0, per_epoch=2) for step in range(5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
        >>> Formula("lr * 2")
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `schedule.formula` knows no `lr`; it may name abs, cos, ...
    """

    def __init__(self, text: str):
        self.text = text
        try:
            self.tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = getattr(error, "msg", None) or error
            raise InputError(f"`schedule.formula` cannot be read: {why} in `{text}`.") from None
        for node in ast.walk(self.tree):  # also in the branch that the first step does not take
            if isinstance(node, ast.Name) and node.id not in {*_NAMES, *_FUNCTIONS}:
                known = ", ".join(sorted({*_NAMES, *_FUNCTIONS}))
                raise InputError(f"`schedule.formula` knows no `{node.id}`; it may name {known}.")
        self(0, 2, 1, 1)

    def __call__(self, step: int, steps: int, warmup: int, per_epoch: int) -> float:
        """Return the factor at a step of `steps`, of which `per_epoch` make an epoch."""
        epoch, epochs = step // per_epoch, steps // per_epoch
        values = map(float, (step, steps, warmup, epoch, epochs, math.pi))
        names = dict(zip(_NAMES, values, strict=True))
        try:
            value = float(_value(self.tree, names))
        except RecursionError:
            raise InputError("`schedule.formula` nests too deeply.") from None
        except (ArithmeticError, ValueError, TypeError) as error:
            raise InputError(
                f"`schedule.formula` has no value at step {step} of {steps}: {error}, in "
                f"`{self.text}`."
            ) from None
        need(
            math.isfinite(value) and value >= 0,
            lambda: (
                f"`schedule.formula` needs a factor from 0; at step {step} of {steps} `{self.text}`"
                f" is {value}."
            ),
        )
        return value


_NAMES = ("step", "steps", "warmup", "epoch", "epochs", "pi")
_FUNCTIONS: dict[str, Callable[..., float]] = {
    **{name: getattr(math, name) for name in ("sin", "cos", "exp", "log", "sqrt", "floor")},
    "abs": abs,
    "min": min,
    "max": max,
}
_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _value(node: ast.AST, names: Mapping[str, float]) -> float:
    """Return the value of one part of a formula; whatever is no arithmetic is refused."""
    see = functools.partial(_value, names=names)
    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            return float(number)
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=op, operand=one) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](see(one))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](see(left), see(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](see(left), see(right))
        case ast.BoolOp(op=ast.And(), values=values):
            return all(see(one) for one in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(see(one) for one in values)
        case ast.IfExp(test=test, body=body, orelse=other):
            return see(body) if see(test) else see(other)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(see, args))
    raise InputError(f"`schedule.formula` is arithmetic of the step; `{ast.unparse(node)}` is not.")


def _warm(step: int, steps: int, warmup: int) -> float:
    need(
        0 <= warmup <= steps and step >= 0,
        lambda: (
            f"A schedule needs `0 <= warmup <= steps` and `step >= 0`; received warmup {warmup}, "
            f"steps {steps}, step {step}."
        ),
    )
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _progress(step: int, steps: int, warmup: int) -> float:
    """Return the share of the way after the warm-up, 0 to 1."""
    return min(1.0, max(0, step - warmup) / max(1, steps - warmup))
