"""Settings: everything a training is asked for, from TOML, presets and `--set`."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.resources
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from chiaroscuro import kernels, models, objectives, pairwise, views
from chiaroscuro.artifacts import to_toml
from chiaroscuro.errors import InputError, need
from chiaroscuro.objectives import Objective
from chiaroscuro.spec import parse
from chiaroscuro.views import View

__all__ = [
    "DataSettings",
    "NetworkSettings",
    "OptimiserSettings",
    "SavingSettings",
    "ScheduleSettings",
    "Settings",
    "ViewSettings",
    "preset_text",
    "presets",
    "read_settings",
]


@dataclass(frozen=True)
class DataSettings:
    """Which samples.

    Args:
        source: a text for `open_data`; `digits` is embedded, so that every preset runs anywhere.
        part: "train" or "test" side of the split, or "all"; data without a split are taken whole.
        distinct: only the first row of every group, so that no two samples of a batch show the same
            thing and are yet each other's negatives. Needed with `views.fresh`.
    """

    source: str = "digits"
    part: str = "train"
    distinct: bool = False

    def __post_init__(self) -> None:
        _one_of("data.part", self.part, ("train", "test", "all"))


@dataclass(frozen=True)
class ViewSettings:
    """What a positive pair is made of.

    Args:
        first: a view in its notation; "" leaves samples as they are. Strength 0.5 is SimCLR's for
            small pictures [chen2020simclr, B.9].
        second: of the other side of the pair; "" is the same as the first.
        fresh: the data draw each side anew before the view is applied, as wandering digits can.
    """

    first: str = "SimCLR(size=32, strength=0.5)"
    second: str = ""
    fresh: bool = False

    def __post_init__(self) -> None:
        self.objects()

    def objects(self) -> tuple[View | None, View | None]:
        """The views of the two sides."""
        names = _classes(views, View)
        both = (self.first, self.second or self.first)
        one, two = (_named(text, names, "views") if text.strip() else None for text in both)
        return one, two


@dataclass(frozen=True)
class NetworkSettings:
    """What maps samples to embeddings.

    Args:
        encoder: in its notation.
        second_encoder: of the other side of the pair (texts); "" shares the first.
        projector: in its notation without `d_in`, which is the encoder's `d`. 128 dimensions
            [chen2020simclr, Sec. 2.3]; it standardises, which small networks need to leave the
            collapsed start.
        predictor: on top of the projector, on the side that learns [grill2020byol]; "" is none.
        momentum: of a slow copy that embeds the other side, 0.999 [he2020moco], 0.996
            [grill2020byol]; 0 is no copy.
        queue: how many of the copy's embeddings are kept as candidates [he2020moco]; 0 is none.
        average: decay of an average of weights kept for evaluation; 0 is none.
        sync_batch_norm: batch statistics over all ranks.
    """

    encoder: str = "ResNet(depth=18, stem='small')"
    second_encoder: str = ""
    projector: str = "Projector(d=128)"
    predictor: str = ""
    momentum: float = 0.0
    queue: int = 0
    average: float = 0.0
    sync_batch_norm: bool = False

    def __post_init__(self) -> None:
        _between("network.momentum", self.momentum, 0, 1)
        _between("network.average", self.average, 0, 1)
        _between("network.queue", self.queue, 0)
        need(
            self.queue == 0 or self.momentum > 0,
            lambda: (
                f"`network.queue = {self.queue}` needs a slow copy that fills it: `network.momentum"
                f"` above 0; received {self.momentum}."
            ),
        )


@dataclass(frozen=True)
class OptimiserSettings:
    """How weights move.

    Args:
        name: "lars", "sgd" or "adamw".
        lr: 0.3, SimCLR's at batch 256 with LARS [chen2020simclr, Sec. 2.1].
        momentum: 0.9 [you2017lars]; the first beta of AdamW.
        second_momentum: the second beta of AdamW, 0.999 [loshchilov2019adamw].
        weight_decay: 1e-6 [chen2020simclr, Sec. 2.1].
        trust: LARS's eta, 0.001 [you2017lars].
        clip: largest norm of the whole gradient; 0 does not clip.
    """

    name: str = "lars"
    lr: float = 0.3
    momentum: float = 0.9
    second_momentum: float = 0.999
    weight_decay: float = 1e-6
    trust: float = 0.001
    clip: float = 0.0

    def __post_init__(self) -> None:
        _one_of("optimiser.name", self.name, ("lars", "sgd", "adamw"))
        for name in ("lr", "weight_decay", "trust", "clip"):
            _between(f"optimiser.{name}", getattr(self, name), 0)
        for name in ("momentum", "second_momentum"):
            value = getattr(self, name)
            need(
                0 <= value < 1,
                lambda name=name, value=value: (
                    f"`optimiser.{name}` needs a number from 0 to below 1; received {value}."
                ),
            )


@dataclass(frozen=True)
class ScheduleSettings:
    """How the learning rate goes.

    Args:
        name: "cosine" [chen2020simclr, B.6], "linear" or "constant".
        warmup: epochs of linear warm-up; 10 [chen2020simclr, B.6].
    """

    name: str = "cosine"
    warmup: float = 10.0

    def __post_init__(self) -> None:
        _one_of("schedule.name", self.name, ("cosine", "linear", "constant"))
        _between("schedule.warmup", self.warmup, 0)


@dataclass(frozen=True)
class SavingSettings:
    """What is written while training; none of it changes a weight.

    Args:
        every: steps between checkpoints; 0 is one at the end of each epoch.
        keep: checkpoints kept; 2, so that one is good while the next is written.
        record: steps between lines of loss in the history.
    """

    every: int = 0
    keep: int = 2
    record: int = 10

    def __post_init__(self) -> None:
        _between("saving.every", self.every, 0)
        _between("saving.keep", self.keep, 1)
        _between("saving.record", self.record, 1)


@dataclass(frozen=True)
class Settings:
    """One training, said completely: the same settings and threads give the same weights.

    Objects (objective, views, networks) are texts in the notation of `chiaroscuro.spec`, and can
    name what their rooms export and nothing else.

    Args:
        objective: NT-Xent at 0.5 [chen2020simclr, B.9].
        symmetric: with a slow copy, add the loss with the two views exchanged [grill2020byol].
        seed: of weights, order and views.
        epochs: 100, the shortest of [chen2020simclr].
        batch: pairs of a step, all ranks together; 256, the smallest of [chen2020simclr].
        micro_batch: pairs embedded at a time, by gradient caching; 0 is all of them.
        device: "auto" is CUDA where there is one, else the CPU.

    Example:
        >>> settings = read_settings("simclr", ["optimiser.lr=0.1"])
        >>> settings.objective, settings.optimiser.lr
        ('InfoNCE(kernel=Cosine(tau=0.5))', 0.1)
        >>> read_settings("simclr", ["optimiser.rl=0.1"])
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `optimiser.rl` is not a setting; did you mean `optimiser.lr`?
    """

    objective: str = "InfoNCE(kernel=Cosine(tau=0.5))"
    symmetric: bool = False
    seed: int = 0
    epochs: int = 100
    batch: int = 256
    micro_batch: int = 0
    device: str = "auto"
    data: DataSettings = field(default_factory=DataSettings)
    views: ViewSettings = field(default_factory=ViewSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    saving: SavingSettings = field(default_factory=SavingSettings)

    def __post_init__(self) -> None:
        _between("seed", self.seed, 0, 2**63 - 1)
        _between("epochs", self.epochs, 1)
        _between("batch", self.batch, 1)
        _between("micro_batch", self.micro_batch, 0)
        objective = self.make_objective()
        need(
            self.network.queue == 0 or "queue" in objective.takes,
            lambda: (
                f"`network.queue = {self.network.queue}` needs an objective with candidates; "
                f"`{type(objective).__name__}` takes no queue."
            ),
        )
        need(
            not self.symmetric or self.network.momentum > 0,
            lambda: (
                "`symmetric` needs a slow copy, `network.momentum` above 0; received "
                f"{self.network.momentum}. Without one both views are anchors already."
            ),
        )
        need(
            self.micro_batch == 0 or self.network.momentum == 0,
            lambda: (
                f"`micro_batch = {self.micro_batch}` needs both sides to learn: `network.momentum` "
                f"0; received {self.network.momentum}."
            ),
        )

    # ---- the objects ----

    def make_objective(self) -> Objective:
        """The objective, new."""
        made = parse(self.objective, _algebra())
        need(
            isinstance(made, Objective),
            lambda: f"`objective` needs an objective; received `{type(made).__name__}`.",
        )
        return made

    # ---- text ----

    def table(self) -> dict[str, Any]:
        """Nested dictionaries, every default filled in."""
        return dataclasses.asdict(self)

    def toml(self) -> str:
        """The text that `read_settings` reads back as these settings."""
        return to_toml(self.table())

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Settings:
        """Settings from nested dictionaries; an unknown key or a value of another kind is refused.

        Args:
            table: only what differs from the defaults.
        """
        return _record(cls, table, "")


def presets() -> list[str]:
    """The names of all presets.

    Example:
        >>> "simclr" in presets()
        True
    """
    return sorted(file.name.removesuffix(".toml") for file in _preset_files())


def preset_text(name: str) -> str:
    """The TOML of a preset, to be copied and edited."""
    for file in _preset_files():
        if file.name == f"{name}.toml":
            return file.read_text(encoding="utf-8")
    raise InputError(
        f"`{name}` is not a preset{_nearest(name, presets())} There are {', '.join(presets())}."
    )


def read_settings(what: Any, overrides: Iterable[str] = ()) -> Settings:
    """Settings from a preset's name, a TOML file, TOML text or a dictionary, and overrides.

    Args:
        what: `"simclr"`, `"mine.toml"`, a text with line breaks or `=`, a dictionary, or settings.
        overrides: `"optimiser.lr=0.1"`, dotted keys as TOML has them.
    """
    if isinstance(what, Settings):
        table = what.table()
    elif isinstance(what, Mapping):
        table = {key: value for key, value in what.items() if key != "format"}
    else:
        table = _toml(what)
    for override in overrides:
        _override(table, override)
    return Settings.of(table)


# ---- reading ----


def _preset_files() -> list[Any]:
    folder = importlib.resources.files("chiaroscuro.engine") / "presets"
    return [file for file in folder.iterdir() if file.name.endswith(".toml")]


def _toml(what: Any) -> dict[str, Any]:
    text, name = str(what), f"`{what}`"
    if "\n" not in text and (text.endswith(".toml") or Path(text).is_file()):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{name} cannot be read: {reason}.") from None
    elif "\n" in text or "=" in text:
        name = "The text of the settings"
    else:
        text = preset_text(text)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name} is not TOML: {error}.") from None
    table.pop("format", None)
    return table


def _override(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path = [part.strip() for part in key.split(".")]
    need(
        bool(equals) and all(path),
        lambda: f"`--set` needs `key=value`, such as `optimiser.lr=0.1`; received `{override}`.",
    )
    for part in path[:-1]:
        table = table.setdefault(part, {})
        need(
            isinstance(table, dict),
            lambda part=part: (
                f"`--set {override}`: `{part}` is one value, and has no keys below it."
            ),
        )
    table[path[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    """What a text means in TOML; a text that means nothing there is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _record(kind: Any, table: Any, path: str) -> Any:
    need(
        isinstance(table, Mapping),
        lambda: f"`{path}` needs a table of settings; received {table!r}.",
    )
    hints = get_type_hints(kind)
    under = f"{path}." if path else ""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in hints:
            raise InputError(f"`{under}{key}` is not a setting{_closest(key, under, hints)}")
        of = hints[key]
        values[key] = (
            _record(of, value, under + key)
            if dataclasses.is_dataclass(of)
            else _typed(of, value, under + key)
        )
    return kind(**values)


def _typed(of: type, value: Any, key: str) -> Any:
    if of is float and type(value) is int:
        return float(value)
    need(
        type(value) is of,
        lambda: f"`{key}` needs {_KINDS[of]}; received {value!r}.",
    )
    return value


_KINDS: dict[type, str] = {
    bool: "`true` or `false`",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def _closest(key: str, under: str, hints: Mapping[str, Any]) -> str:
    """The nearest name in the same table, or else anywhere."""
    close = difflib.get_close_matches(key, hints, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{under}{close[0]}`?"
    everywhere = {path.rpartition(".")[2]: path for path in _paths(Settings, "")}
    return _nearest(key, everywhere, everywhere)


def _nearest(word: str, known: Iterable[str], shown: Mapping[str, str] | None = None) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean `{(shown or {}).get(close[0], close[0])}`?" if close else "."


def _paths(kind: Any, under: str) -> list[str]:
    found = []
    for name, of in get_type_hints(kind).items():
        inside = dataclasses.is_dataclass(of)
        found += _paths(of, f"{under}{name}.") if inside else [f"{under}{name}"]
    return found


# ---- the closed sets of names ----


@functools.cache
def _algebra() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for room in (kernels, pairwise, objectives):
        every = ((name, getattr(room, name)) for name in room.__all__)
        found |= {name: value for name, value in every if isinstance(value, type)}
    return found


def _classes(room: Any, base: type) -> dict[str, Callable[..., Any]]:
    every = ((name, getattr(room, name)) for name in room.__all__)
    return {
        name: value
        for name, value in every
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }


def model_names() -> dict[str, Callable[..., Any]]:
    """What an encoder's text may name: the room's models, and adapters to those of others."""
    adapters = {name: getattr(models, name) for name in models.__all__ if name.startswith("from_")}
    return {**_classes(models, models.Model), **adapters}


def _named(text: str, names: Mapping[str, Callable[..., Any]], key: str) -> Any:
    try:
        return parse(text, names)
    except InputError as error:
        raise InputError(f"`{key}`: {error}") from None


# ---- ranges ----


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    listed = ", ".join(f"`{choice}`" for choice in allowed)
    need(
        value in allowed,
        lambda: f"`{key}` needs one of {listed}; received `{value}`{_nearest(value, allowed)}",
    )


def _between(key: str, value: float, low: float, high: float = math.inf) -> None:
    need(
        low <= value <= high and math.isfinite(value),
        lambda: (
            f"`{key}` needs a number "
            + (f"from {low}" if high == math.inf else f"from {low} to {high}")
            + f"; received {value}."
        ),
    )
