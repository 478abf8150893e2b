"""Change one thing in the notation of a setting: parse, change, write."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chiaroscuro import kernels, spec
from chiaroscuro.errors import ChiaroError

__all__ = ["Call", "projector_that", "read_call", "scaled_views", "with_temperature"]

_STRENGTHS = {"strength": 1.0, "noise": None, "sd": None, "p": 0.9, "scale": None}
"""Arguments of views that say how strong they are, with their largest value if there is one."""


@dataclass(frozen=True)
class Call:
    """A name with its arguments, as a text has them; of what it makes nothing is known."""

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def __str__(self) -> str:
        inside = [_text(value) for value in self.arguments]
        inside += [f"{key}={_text(value)}" for key, value in self.keywords.items()]
        return f"{self.name}({', '.join(inside)})"


class _EveryName(Mapping[str, Callable[..., Call]]):
    """Every name makes a `Call`."""

    def __getitem__(self, name: str) -> Callable[..., Call]:
        return lambda *arguments, **keywords: Call(name, arguments, keywords)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _text(value: Any) -> str:
    if isinstance(value, Call):
        return str(value)
    several = isinstance(value, list | tuple)
    if several and any(isinstance(one, Call | list | tuple) for one in value):
        inner = ", ".join(_text(one) for one in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return spec.notation(value)


def read_call(text: str) -> Call | None:
    """The calls that a text denotes; None where it denotes something else.

    Example:
        >>> str(read_call("InfoNCE(kernel=Cosine(tau=Learnable(0.07)), anchors='first')"))
        "InfoNCE(kernel=Cosine(tau=Learnable(0.07)), anchors='first')"
    """
    try:
        call = spec.parse(text, _EveryName())
    except ChiaroError:
        return None
    return call if isinstance(call, Call) else None


def with_temperature(text: str, tau: float | list[float]) -> str | None:
    """An objective whose kernels have another temperature; None where they have none to set.

    A list keeps its proportions, one that is learnt or measured begins there. Nothing else
    changes: neither the objective nor its negatives.

    Example:
        >>> with_temperature("InfoNCE(kernel=Cosine(tau=Learnable(0.07, least=0.01)))", 0.2)
        'InfoNCE(kernel=Cosine(tau=Learnable(0.2, least=0.01)))'
        >>> with_temperature("BYOL()", 0.2) is None
        True
    """
    parsed = read_call(text)
    if parsed is None:
        return None
    changed = _each(parsed, lambda call: _heated(call, tau))
    return None if changed == parsed else str(changed)


def scaled_views(text: str, factor: float) -> str | None:
    """Views so many times as strong; None where nothing of them can change.

    Example:
        >>> scaled_views("Chain(Jitter(noise=0.2), Mask(p=0.3))", 0.5)
        'Chain(Jitter(noise=0.1), Mask(p=0.15))'
        >>> scaled_views("SimCLR(size=32, strength=1.0)", 3) is None
        True
    """
    parsed = read_call(text)
    if parsed is None:
        return None
    changed = _each(parsed, lambda call: _scaled(call, factor))
    return None if changed == parsed else str(changed)


def projector_that(text: str, **changes: Any) -> str | None:
    """A projector with other keywords; None where it is no projector or has them already.

    Example:
        >>> projector_that("Projector(d=64, last='none')", last="standardise")
        "Projector(d=64, last='standardise')"
    """
    call = read_call(text)
    if call is None or call.name != "Projector":
        return None
    if all(call.keywords.get(key) == value for key, value in changes.items()):
        return None
    return str(Call(call.name, call.arguments, {**call.keywords, **changes}))


def _each(value: Any, change: Callable[[Call], Call]) -> Any:
    """The same with every call changed, those inside first."""
    if isinstance(value, list | tuple):
        return type(value)(_each(one, change) for one in value)
    if not isinstance(value, Call):
        return value
    inside = Call(
        value.name,
        tuple(_each(one, change) for one in value.arguments),
        {key: _each(one, change) for key, one in value.keywords.items()},
    )
    return change(inside)


def _heated(call: Call, tau: float | list[float]) -> Call:
    kernel = getattr(kernels, call.name, None)
    if not inspect.isclass(kernel) or "tau" not in inspect.signature(kernel).parameters:
        return call
    if "tau" in call.keywords:
        new = _temperature(call.keywords["tau"], tau)
        return Call(call.name, call.arguments, {**call.keywords, "tau": new})
    at = list(inspect.signature(kernel).parameters).index("tau")
    if at < len(call.arguments):
        new = _temperature(call.arguments[at], tau)
        return Call(
            call.name, (*call.arguments[:at], new, *call.arguments[at + 1 :]), call.keywords
        )
    return Call(call.name, call.arguments, {**call.keywords, "tau": tau})


def _temperature(old: Any, tau: float | list[float]) -> Any:
    if isinstance(old, Call):
        if "tau" in old.keywords:
            keywords = {**old.keywords, "tau": _temperature(old.keywords["tau"], tau)}
            return Call(old.name, old.arguments, _least(keywords, tau))
        if old.arguments:
            first = _temperature(old.arguments[0], tau)
            return Call(old.name, (first, *old.arguments[1:]), _least(dict(old.keywords), tau))
        return old
    if isinstance(old, list | tuple) and isinstance(tau, int | float):
        mean = sum(old) / len(old)
        return type(old)(float(f"{value * tau / mean:.2g}") for value in old)
    return tau


def _least(keywords: dict[str, Any], tau: float | list[float]) -> dict[str, Any]:
    bound = keywords.get("least")
    if isinstance(bound, int | float) and isinstance(tau, int | float) and tau < bound:
        keywords["least"] = tau
    return keywords


def _scaled(call: Call, factor: float) -> Call:
    keywords = dict(call.keywords)
    for name, most in _STRENGTHS.items():
        value = keywords.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | tuple | list):
            continue
        if isinstance(value, tuple | list):
            if all(isinstance(one, int | float) for one in value):
                keywords[name] = type(value)(_times(one, factor, most) for one in value)
        else:
            keywords[name] = _times(value, factor, most)
    return Call(call.name, call.arguments, keywords)


def _times(value: float, factor: float, most: float | None) -> float:
    rounded = float(f"{value * factor:.2g}")
    return rounded if most is None else min(rounded, max(most, value))
