"""Write TOML, which the standard library only reads; read it with one sentence for every fault."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.errors import InputError

__all__ = ["from_toml", "read_toml", "to_toml", "toml_value"]

_MOST_BYTES = 16 << 20

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f"}
_ESCAPES["\r"] = "\\r"


def to_toml(settings: Mapping[str, Any]) -> str:
    """Return the text that `tomllib.loads` reads back as `settings`.

    Takes strings, integers, floats, booleans, lists and tables of these; tuples become lists.
    Within a table plain values come first, then its tables.

    Args:
        settings: nested dictionaries with string keys. TOML has no None: leave the key out.

    Example:
        >>> print(to_toml({"seed": 0, "data": {"name": "digits", "shape": [3, 32]}}), end="")
        seed = 0
        <BLANKLINE>
        [data]
        name = "digits"
        shape = [3, 32]
    """
    return _table(settings, ()).lstrip("\n")


def from_toml(text: str, what: str = "The text") -> dict[str, Any]:
    """Return the table that a TOML text holds; raise `InputError` for any text that is not TOML.

    Args:
        text: TOML. Deep nesting and integers of more than 4,300 digits are refused too.
        what: the subject of the sentence, such as "`settings.toml`".

    Example:
        >>> from_toml("seed = 0")
        {'seed': 0}
        >>> from_toml("seed = ", "`a.toml`")
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `a.toml` is not TOML: Invalid value (at end of document).
    """
    try:
        return _within_64_bits(tomllib.loads(text))
    except RecursionError:
        raise InputError(f"{what} is not TOML that can be read: it nests too deeply.") from None
    except (ValueError, OverflowError) as error:  # TOMLDecodeError; numbers, dates out of range
        raise InputError(f"{what} is not TOML: {str(error)[:200].rstrip('.')}.") from None


def read_toml(path: str | os.PathLike) -> dict[str, Any]:
    """Return the table of a TOML file: a regular one of at most 16 MB, or a sentence."""
    if not os.path.exists(path):
        raise InputError(f"`{path}` cannot be read: No such file or directory.")
    try:
        text = read_regular(path, _MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not TOML: {error}.") from None
    return from_toml(text, f"`{path}`")


def toml_value(text: str) -> Any:
    """Return what a text means as a value of TOML; one that means nothing there is a string.

    Example:
        >>> toml_value("0.5"), toml_value("Gaussian(tau=0.5)")
        (0.5, 'Gaussian(tau=0.5)')
    """
    try:
        return _within_64_bits(tomllib.loads(f"value = {text}")["value"])
    except tomllib.TOMLDecodeError:
        return text
    except (RecursionError, ValueError, OverflowError) as error:
        reason = "it nests too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise InputError(
            f"A value of {len(text):,} letters, beginning with `{text[:20]}`, is not TOML that can "
            f"be read: {reason.rstrip('.')}."
        ) from None


def _within_64_bits(value: Any) -> Any:
    """Return a value whose integers TOML has: one in hexadecimal may have any number of digits."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _within_64_bits(inner)
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"an integer of {value.bit_length():,} bits, of which TOML has 64")
    return value


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> str:
    for key in table:
        if not isinstance(key, str):
            raise InputError(f"TOML needs string keys; received `{key!r}` in `{_dotted(path)}`.")
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in inner}
    lines = [f"{_key(key)} = {_value(value, (*path, key))}\n" for key, value in plain.items()]
    header = f"\n[{'.'.join(map(_key, path))}]\n" if path and (lines or not inner) else ""
    return header + "".join(lines) + "".join(_table(v, (*path, k)) for k, v in inner.items())


def _value(value: Any, path: tuple[str, ...]) -> str:
    if hasattr(value, "tolist"):  # a number of numpy or torch
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if not math.isnan(value) else "nan"
    if isinstance(value, str):
        return _string(value, path)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item, path) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {_value(item, (*path, key))}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    raise InputError(
        f"TOML has no form for `{value!r}` of type `{type(value).__name__}`, at `{_dotted(path)}`."
        + (" Leave the key out." * (value is None))
    )


def _string(text: str, path: tuple[str, ...] = ()) -> str:
    if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise InputError(f"TOML has no form for half a surrogate pair, at `{_dotted(path)}`.")
    escaped = (
        _ESCAPES.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c) for c in text
    )
    return f'"{"".join(escaped)}"'


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the top"
