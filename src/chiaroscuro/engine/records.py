"""Frozen records from nested tables: an unknown key, another kind or range of value is named."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

from chiaroscuro.errors import InputError, need

__all__ = ["between", "nearest", "one_of", "record"]


def record(kind: Any, table: Any, path: str = "", whole: Any = None) -> Any:
    """Return the dataclass `kind` from a table, with those inside it from the tables inside.

    Args:
        kind: kind of the record.
        table: only what differs from the defaults.
        path: dotted, where the table stands.
        whole: the outermost record, in which a misplaced key is looked for; `kind` unless given.
    """
    whole = whole or kind
    need(
        isinstance(table, Mapping),
        lambda: f"`{path}` needs a table of settings; received {_short(table)}.",
    )
    hints = get_type_hints(kind)
    under = f"{path}." if path else ""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in hints:
            raise InputError(f"`{under}{key}` is not a setting{_closest(key, under, hints, whole)}")
        of = hints[key]
        values[key] = (
            record(of, value, under + key, whole)
            if dataclasses.is_dataclass(of)
            else _typed(of, value, under + key)
        )
    return kind(**values)


def _typed(of: type, value: Any, key: str) -> Any:
    if of is float and type(value) is int:
        return float(value)
    need(
        type(value) is of,
        lambda: f"`{key}` needs {_KINDS[of]}; received {_short(value)}.",
    )
    return value


_KINDS: dict[type, str] = {
    bool: "`true` or `false`",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


OTHER_NAMES = {
    "learning_rate": "optimiser.lr",
    "batch_size": "batch",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "model": "network.encoder",
    "backbone": "network.encoder",
    "augmentation": "views.first",
    "dataset": "data.source",
    "temperature": "objective=InfoNCE(kernel=Cosine(tau=0.1))",
    "tau": "objective=InfoNCE(kernel=Cosine(tau=0.1))",
    "loss": "objective",
}
"""What other libraries call our settings."""


def _closest(key: str, under: str, hints: Mapping[str, Any], whole: Any) -> str:
    """Return the nearest name in the same table, or else anywhere."""
    close = difflib.get_close_matches(key, hints, n=1, cutoff=0.5)
    if close and key not in OTHER_NAMES:
        return f"; did you mean `{under}{close[0]}`?"
    everywhere = {path.rpartition(".")[2]: path for path in _paths(whole, "")}
    if key in OTHER_NAMES:
        return f"; did you mean `{OTHER_NAMES[key]}`?"
    end = nearest(key, everywhere, everywhere)
    return end if end != "." else "; `chiaro list settings` shows them all."


def nearest(word: str, known: Iterable[str], shown: Mapping[str, str] | None = None) -> str:
    """The end of a sentence about an unknown word: "; did you mean ...?", or a full stop."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean `{(shown or {}).get(close[0], close[0])}`?" if close else "."


def _paths(kind: Any, under: str) -> list[str]:
    paths = []
    for name, of in get_type_hints(kind).items():
        inside = dataclasses.is_dataclass(of)
        paths += _paths(of, f"{under}{name}.") if inside else [f"{under}{name}"]
    return paths


# ---- ranges ----


def one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not one of those allowed."""
    listed = ", ".join(f"`{choice}`" for choice in allowed)
    shown = _short(value)[1:-1]
    need(
        value in allowed,
        lambda: f"`{key}` needs one of {listed}; received `{shown}`{nearest(value, allowed)}",
    )


def between(key: str, value: float, low: float, high: float = math.inf) -> None:
    """Refuse a number outside of [low, high], and what is no number."""
    need(
        low <= value <= high and math.isfinite(value),
        lambda: (
            f"`{key}` needs a number "
            + (f"from {low}" if high == math.inf else f"from {low} to {high}")
            + f"; received {value}."
        ),
    )


def _short(value: Any) -> str:
    """A value as a sentence can hold it."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
