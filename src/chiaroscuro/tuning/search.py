"""What is searched: settings with letters in them, a space for the letters, and who goes on."""

from __future__ import annotations

import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts import to_toml
from chiaroscuro.artifacts.files import newer
from chiaroscuro.artifacts.toml import read_toml, toml_value
from chiaroscuro.engine import Settings, presets, read_settings
from chiaroscuro.errors import need
from chiaroscuro.tuning.space import Distribution, drawn, read_space

__all__ = ["MEASURES", "SEARCH_FORMAT", "Search", "read_search"]

SEARCH_FORMAT = 1
"""The `format` of `search.toml` and `trials.json`."""

MEASURES = ("online_linear", "online_knn")
"""By which a trial may be judged; both are in [0, 1], and more is better."""

_LETTER = re.compile(r"\{\s*(1\s*-\s*)?([A-Za-z_]\w*)\s*\}")
_TAU = re.compile(r"\btau=(\d[\d.eE+-]*)")
_WEIGHT = re.compile(r"\((\d[\d.eE+-]*), (?=[A-Z])")
_KEYS = ("preset", "set", "space", "measure", "first", "reduction", "seed")


@dataclass(frozen=True)
class Search:
    """Random search with early stopping: its settings, search space and rule.

    Trial i trains the settings with the values that (seed, i) draws, for at most `settings.epochs`.
    After `first * reduction^k` epochs, k = 0, 1, ..., it goes on only if its accuracy is among the
    best 1/`reduction` of all trials that came so far: asynchronous successive halving [li2020asha].

    Args:
        table: settings as nested dictionaries; texts may hold letters `{tau}` and `{1-lambda}`.
        space: distributions by name: of a setting (`optimiser.lr`) or of a letter.
        measure: "online_linear", the accuracy of a linear classifier on representations of rows
            held out inside the training side, which is the selection of [tan2024, App. B]; or
            "online_knn", that of 20 neighbours.
        first: epochs before the first decision; 1, the least there is.
        reduction: 4, the default of Ray Tune, which [tan2024, App. B] used; 0 stops no trial early.
        seed: seed of the values. The seed of the trainings is a setting.

    References:
        li2020asha, tan2024

    Example:
        >>> search = read_search("kernel-infonce-laplace")
        >>> search.space
        {'optimiser.lr': LogUniform(low=0.01, high=10.0), 'tau': LogUniform(low=0.01, high=1.0)}
        >>> search.settings(0).objective
        'InfoNCE(kernel=Laplace(tau=...))'
    """

    table: dict[str, Any]
    space: dict[str, Distribution]
    measure: str = "online_linear"
    first: int = 1
    reduction: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        need(
            self.measure in MEASURES,
            lambda: f"`measure` needs one of {', '.join(MEASURES)}; received {self.measure!r}.",
        )
        for name, least in (("first", 1), ("reduction", 0), ("seed", 0)):
            value = getattr(self, name)
            need(
                type(value) is int and value >= least,
                lambda name=name, least=least, value=value: (
                    f"`{name}` needs a whole number of at least {least}; received {value!r}."
                ),
            )
        need(
            self.reduction != 1,
            "`reduction` needs at least 2, or 0 to stop none early; received 1, which keeps all.",
        )
        used = {letter for text in _texts(self.table) for letter in _letters(text)}
        for name in self.space:
            need(
                name in used or _is_setting(name),
                lambda name=name: (
                    f"`{name}` of the space is neither a setting nor a letter: no text of `set` "
                    f"has {{{name}}}."
                ),
            )
        missing = sorted(used - set(self.space))
        need(
            not missing,
            lambda: (
                f"`{{{missing[0]}}}` is in the settings and not in the space: "
                f"{', '.join(self.space)}."
            ),
        )
        self.settings(0)

    def values(self, trial: int) -> dict[str, Any]:
        """Return what is drawn for a trial, by name."""
        return drawn(self.space, self.seed, trial)

    def settings(self, trial: int) -> Settings:
        """Return what a trial trains."""
        values = self.values(trial)
        table = _filled(self.table, values)
        for name, value in values.items():
            if _is_setting(name):
                *path, last = name.split(".")
                at = table
                for part in path:
                    at = at.setdefault(part, {})
                at[last] = value
        return Settings.of(table)

    def stops(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs after which a trial of so many may be stopped.

        Example:
            >>> read_search("simclr").stops(100)
            (1, 4, 16, 64)
        """
        rungs, at = [], self.first
        while self.reduction and at < epochs:
            rungs.append(at)
            at *= self.reduction
        return tuple(rungs)

    def toml(self) -> str:
        """Return the text that `read_search` reads back as this search."""
        rest = {name: getattr(self, name) for name in ("measure", "first", "reduction", "seed")}
        space = {name: repr(law) for name, law in self.space.items()}
        table = {"format": SEARCH_FORMAT, **rest, "space": space, "set": self.table}
        return to_toml(table)


def read_search(what: Any, overrides: Iterable[str] = ()) -> Search:
    """Return a search from a file, or from settings, which get the space of [tan2024, Table 3].

    A search file has a table `space`, and what is trained in it: `preset`, the name of a preset or
    a settings file, and a table `set` over it. Settings without a space, by name or file, are
    searched where Table 3 says: the learning rate, each `tau` of the objective that is a number,
    and `lambda`, the weight of the first of two losses. Its learning rates are for LARS at 0.3;
    settings with another optimiser or rate get the same decades around their own rate.

    Args:
        what: a preset's name, a TOML file of settings or of a search, a dictionary, or a `Search`.
        overrides: `"epochs=10"`, of the settings.

    References:
        tan2024
    """
    if isinstance(what, Search):
        return what
    table = _table(what)
    if table is None or "space" not in table:
        return _table_3(read_settings(what, overrides))
    if "format" in table:
        newer(f"`{what}`", table.pop("format"), SEARCH_FORMAT)
    for key in table:
        need(
            key in _KEYS,
            lambda key=key: (
                f"`{key}` is not a part of a search: {', '.join(_KEYS)}. Settings go into "
                f"`set`: `[set]`, `{key} = ...`."
            ),
        )
    base = read_settings(table.get("preset", {})).table()
    known = table.get("set", {})
    need(isinstance(known, Mapping), lambda: f"`set` needs a table; received {known!r}.")
    settings = _over(base, known)
    for override in overrides:
        settings = _over(settings, _override(override))
    rest = {key: table[key] for key in ("measure", "first", "reduction", "seed") if key in table}
    return Search(settings, read_space(_named_space(table["space"])), **rest)


def _table(what: Any) -> dict[str, Any] | None:
    """Return a dictionary or the TOML of a file; None where `what` is neither."""
    if isinstance(what, Mapping):
        return dict(what)
    path = Path(str(what))
    if str(what) in presets() or not (path.is_file() or path.suffix == ".toml"):
        return None
    return read_toml(path)


def _named_space(space: Any) -> Any:
    return _declared() if space == "table3" else space


def _declared() -> dict[str, str]:
    file = importlib.resources.files("chiaroscuro.tuning") / "spaces" / "table3.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))["space"]


def _table_3(settings: Settings) -> Search:
    """Return the space of [tan2024, Table 3] on these settings."""
    table = settings.table()
    text = settings.objective
    taus = len(_TAU.findall(text))
    names = iter(["tau"] if taus == 1 else [f"tau_{i + 1}" for i in range(taus)])
    text = _TAU.sub(lambda match: f"tau={{{next(names)}}}", text)
    if text.startswith("Weighted(") and len(_WEIGHT.findall(text)) == 2:
        weights = iter(("({lambda}, ", "({1-lambda}, "))
        text = _WEIGHT.sub(lambda match: next(weights), text)
    table["objective"] = text
    declared = _declared()
    used = set(_letters(text))
    laws = {
        name: declared["tau" if name.startswith("tau") else name]
        for name in ("optimiser.lr", *sorted(used))
    }
    space = read_space(laws)
    ours, theirs = settings.optimiser, Settings().optimiser
    if (ours.name, ours.lr) != (theirs.name, theirs.lr):
        law: Any = space["optimiser.lr"]
        factor = ours.lr / theirs.lr
        space["optimiser.lr"] = type(law)(law.low * factor, law.high * factor)
    return Search(table, space)


# ---- texts with letters ----


def _texts(table: Mapping[str, Any]) -> Iterator[str]:
    for value in table.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str):
            yield value


def _letters(text: str) -> list[str]:
    return [match[2] for match in _LETTER.finditer(text)]


def _filled(table: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    def one(match: re.Match) -> str:
        value = values[match[2]]
        return repr(1 - value if match[1] else value)

    def fill(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _filled(value, values)
        return _LETTER.sub(one, value) if isinstance(value, str) else value

    return {key: fill(value) for key, value in table.items()}


def _is_setting(name: str) -> bool:
    at: Any = Settings().table()
    for part in name.split("."):
        if not isinstance(at, dict) or part not in at:
            return False
        at = at[part]
    return not isinstance(at, dict)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, the second over the first."""
    out = dict(below)
    for key, value in above.items():
        inside = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = _over(out[key], value) if inside else value
    return out


def _override(text: str) -> dict[str, Any]:
    """`"optimiser.lr=0.1"` as nested tables; letters may stand in its value."""
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    need(
        bool(equals) and all(path),
        lambda: f"`--set` needs `key=value`, such as `optimiser.lr=0.1`; received `{text}`.",
    )
    nested: Any = toml_value(value.strip())
    for part in reversed(path):
        nested = {part: nested}
    return nested
