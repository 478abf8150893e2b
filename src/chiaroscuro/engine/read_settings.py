"""Settings from a preset's name, a TOML file or text, a dictionary, and `--set`."""

from __future__ import annotations

import importlib.resources
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from chiaroscuro.artifacts.files import newer
from chiaroscuro.artifacts.run import RUN_FORMAT
from chiaroscuro.artifacts.toml import from_toml, read_toml, toml_value
from chiaroscuro.engine.records import nearest
from chiaroscuro.engine.settings import Settings
from chiaroscuro.errors import InputError, need

__all__ = ["preset_summary", "preset_text", "presets", "read_settings"]


def presets() -> list[str]:
    """Return the names of all presets.

    Example:
        >>> "simclr" in presets()
        True
    """
    return sorted(file.name.removesuffix(".toml") for file in _preset_files())


def preset_text(name: str) -> str:
    """Return the TOML of a preset, to be copied and edited."""
    for file in _preset_files():
        if file.name == f"{name}.toml":
            return file.read_text(encoding="utf-8")
    raise InputError(
        f"`{name}` is not a preset{nearest(name, presets())} There are {', '.join(presets())}."
    )


def preset_summary(name: str) -> str:
    """Return the first sentence of a preset's comment.

    Example:
        >>> preset_summary("simclr")
        'SimCLR: pull two augmentations of an image together, push ... away.'
    """
    lines = itertools.takewhile(lambda line: line.startswith("#"), preset_text(name).splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in lines)
    return re.split(r"(?<=[a-z)`]\.) (?=[A-Z`\"])", text)[0]


def read_settings(what: Any, overrides: Iterable[str] | Mapping[str, Any] = ()) -> Settings:
    """Read settings from a preset's name, a TOML file, TOML text or a dictionary, with overrides.

    Args:
        what: `"simclr"`, `"mine.toml"`, a text with line breaks or `=`, a dictionary, or settings.
        overrides: `"optimiser.lr=0.1"`, dotted keys as TOML has them; or `{"optimiser.lr": 0.1}`.
    """
    if isinstance(what, Settings):
        table = what.table()
    elif isinstance(what, Mapping):
        table = _current("The table of settings", dict(what))
    else:
        need(
            isinstance(what, str | os.PathLike),
            lambda: (
                "Settings need a preset's name, a TOML file or text, a dictionary or `Settings`; "
                f"received a `{type(what).__name__}`. Objects have names: `train(encoder=..., "
                "data=..., objective=...)`."
            ),
        )
        table = _toml(what)
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            _set(table, key, value, f"{key}={value!r}")
    else:
        for override in overrides:
            _override(table, override)
    return Settings.of(table)


def _preset_files() -> list[Any]:
    folder = importlib.resources.files("chiaroscuro.engine") / "presets"
    return [file for file in folder.iterdir() if file.name.endswith(".toml")]


def _toml(what: Any) -> dict[str, Any]:
    text, name = str(what), f"`{what}`"
    if "\n" not in text and (text.endswith(".toml") or os.path.isfile(text)):
        return _current(name, read_toml(text))
    if "\n" in text or "=" in text:
        name = "The text of the settings"
    else:
        text = preset_text(text)
    return _current(name, from_toml(text, name))


def _current(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return the table without its `format`, which must not be newer than ours."""
    if "format" in table:
        newer(name, table.pop("format"), RUN_FORMAT)
    return table


def _override(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    shown = override if override.isprintable() else repr(override)[1:-1]
    shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
    need(
        bool(equals) and bool(key.strip()),
        lambda: f"`--set` needs `key=value`, such as `optimiser.lr=0.1`; received `{shown}`.",
    )
    _set(table, key, toml_value(text.strip()), shown)


def _set(table: dict[str, Any], key: str, value: Any, shown: str) -> None:
    path = [part.strip() for part in key.split(".")]
    need(
        all(path),
        lambda: f"A setting needs a dotted key, such as `optimiser.lr`; received `{shown}`.",
    )
    for part in path[:-1]:
        table = table.setdefault(part, {})
        need(
            isinstance(table, dict),
            lambda part=part: f"`{shown}`: `{part}` is one value, and has no keys below it.",
        )
    table[path[-1]] = value
