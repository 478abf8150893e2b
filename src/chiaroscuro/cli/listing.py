"""The verb that lists what settings may name: presets, settings, encoders, views and so on."""

import argparse
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["KINDS", "list_names", "print_columns", "setting_meanings"]

_WIDTH = 98  # characters of a line


def list_names(call: argparse.Namespace) -> int:
    """Print one kind of names, each with a sentence."""
    if call.kind is None:
        print_columns({f"chiaro list {kind}": says for kind, (says, _) in KINDS.items()})
        return 0
    says, rows = KINDS[call.kind]
    print(f"{says}\n")
    print_columns(rows())
    return 0


def print_columns(rows: Mapping[str, str]) -> None:
    """Print names, and what each means beside it."""
    width = min(40, max(map(len, rows)) + 2)
    for name, text in rows.items():
        lines = textwrap.wrap(text, _WIDTH - width) or [""]
        if len(name) + 2 > width:  # a long name has its line alone
            print(name)
            name = ""
        print(f"{name:<{width}}{lines[0]}".rstrip())
        for line in lines[1:]:
            print(" " * width + line)


# ---- the kinds ----


def _presets() -> dict[str, str]:
    from chiaroscuro.engine import preset_summary, presets

    return {name: preset_summary(name) for name in presets()}


def _settings() -> dict[str, str]:
    from chiaroscuro.engine import Settings

    rows: dict[str, str] = {}
    for field in dataclasses.fields(Settings):
        kind = field.default_factory
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            rows |= _row(field, "", setting_meanings(Settings))
            continue
        for inner in dataclasses.fields(kind):
            rows |= _row(inner, f"{field.name}.", setting_meanings(kind))
    return rows


def _row(field: Any, under: str, meanings: Mapping[str, str]) -> dict[str, str]:
    default = "" if field.default == "" else f"={field.default}"
    return {f"{under}{field.name}{default}": meanings.get(field.name, "")}


def setting_meanings(kind: type) -> dict[str, str]:
    """Return what each argument means, from the docstring of a class.

    Example:
        >>> from chiaroscuro.engine import Settings
        >>> setting_meanings(Settings)["seed"]
        'seed of the initial weights, the order of samples and the augmentations.'
    """
    text = inspect.getdoc(kind) or ""
    body = text.split("Args:\n", 1)[-1].split("\n\n")[0]
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in textwrap.dedent(body).splitlines():
        item = re.match(r"^(\w+(?:, \w+)*): (.*)$", line)
        if item:
            names = item[1].split(", ")
            meanings |= dict.fromkeys(names, item[2])
        else:
            meanings |= {name: f"{meanings[name]} {line.strip()}" for name in names}
    return meanings


def _encoders() -> dict[str, str]:
    from chiaroscuro.engine.settings import model_names

    # the first two come after an encoder, and the others need a module or a file from Python
    others = ("Projector", "Prototypes", "Adapter", "from_weights")
    return _described({name: made for name, made in model_names().items() if name not in others})


def _views() -> dict[str, str]:
    from chiaroscuro.engine.settings import view_names

    return _described(view_names())


def _objectives() -> dict[str, str]:
    from chiaroscuro import objectives

    return _described(_classes(objectives, objectives.Objective))


def _kernels() -> dict[str, str]:
    from chiaroscuro import kernels

    return _described(_classes(kernels, kernels.Kernel))


def _data() -> dict[str, str]:
    from chiaroscuro.data import layouts

    by_reader: dict[Any, list[str]] = {}
    for name, read in layouts().items():
        if not name.endswith(".gz"):
            by_reader.setdefault(inspect.unwrap(read), []).append(name)
    by_name = "Read a dataset by its name; see `chiaro data list`."
    return {", ".join(names): _sentence(read) or by_name for read, names in by_reader.items()}


def _classes(package: Any, base: type) -> dict[str, Callable[..., Any]]:
    every = ((name, getattr(package, name)) for name in package.__all__)
    return {
        name: one
        for name, one in every
        if isinstance(one, type) and issubclass(one, base) and not inspect.isabstract(one)
    }


def _described(things: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    return {_call(name, thing): _sentence(thing) for name, thing in sorted(things.items())}


def _call(name: str, thing: Callable[..., Any]) -> str:
    """Return the notation of a thing with its arguments, as `--set` takes it."""
    words = []
    for one in inspect.signature(thing).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            words.append("..." if one.kind is one.VAR_POSITIONAL else "")
        elif one.default is one.empty:
            words.append(one.name)
        else:
            words.append(f"{one.name}={one.default!r}")
    words = [word for word in words if word]
    while len(text := f"{name}({', '.join(words)})") > _WIDTH:
        words[-2:] = ["..."]
    return text


def _sentence(thing: Any) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


KINDS: dict[str, tuple[str, Callable[[], dict[str, str]]]] = {
    "presets": (
        "Presets, for `chiaro train NAME`; `chiaro preset show NAME` prints one.",
        _presets,
    ),
    "settings": ("Settings with their defaults, for `--set KEY=VALUE`.", _settings),
    "data": (
        "Data that `chiaro train` and `--data` take: files by their ending, or a call.",
        _data,
    ),
    "encoders": ("Encoders, for `--set network.encoder=...`.", _encoders),
    "views": ("Views (augmentations), for `--set views.first=... views.second=...`.", _views),
    "objectives": ("Objectives, for `--set objective=...`.", _objectives),
    "kernels": ("Kernels, for `--set 'objective=InfoNCE(kernel=...)'`.", _kernels),
}
"""By name: what is listed, and the function that lists it."""
