"""Objects in the place of texts: what a training is made of, and how a run remembers it.

An object whose notation reads back as itself is written as that text. Another is written as a
placeholder, `<package.module.Name>`, and described by what can be compared later: the names and
shapes of its tensors, or the number of its rows and a digest of them. Nothing in a run folder is
ever imported or run to make an object again; it is asked for by name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from chiaroscuro.data import SECOND, Dataset, open_data
from chiaroscuro.engine.batches import ViewPair, as_view, with_tokenizer
from chiaroscuro.engine.descriptions import describe, import_path
from chiaroscuro.engine.fingerprint import Fingerprint
from chiaroscuro.engine.networks import (
    Modules,
    Networks,
    build,
    dimension,
    projector_names,
    require_module,
)
from chiaroscuro.engine.optimisers import Optimiser
from chiaroscuro.engine.settings import (
    UNCHANGED,
    Settings,
    is_placeholder,
    model_names,
    parse_objective,
    parse_view,
    require_notation,
)
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.kernels import Kernel
from chiaroscuro.models import Projector, Prototypes
from chiaroscuro.objectives import Objective
from chiaroscuro.objectives.objective import Batch
from chiaroscuro.spec import notation, parse

__all__ = [
    "AnyLoss",
    "Ingredients",
    "as_objective",
    "described",
    "require_given",
    "text_of",
    "written",
]


@dataclass(frozen=True, eq=False)
class Ingredients:
    """Objects that a training run uses; None where the text in the settings applies.

    Args:
        data: anything that `open_data` takes.
        encoder, second_encoder: modules from samples to (n, d); the second is for the other side of
            a pair.
        projector: a module from h to z.
        predictor: a module on top of the projector, on the side that learns.
        objective: one of ours, or a function `(z1, z2) -> scalar`.
        view, second_view: a `View`, or a function of one sample.
        optimiser: a function from a list of parameters to an optimiser of torch.
    """

    data: Any = None
    encoder: Any = None
    second_encoder: Any = None
    projector: Any = None
    predictor: Any = None
    objective: Any = None
    view: Any = None
    second_view: Any = None
    optimiser: Any = None

    def given(self) -> dict[str, Any]:
        """Return those that are not None, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @functools.cached_property
    def table(self) -> Dataset | None:
        """The data as a table, read once; None where they are a text, or not given."""
        return None if self.data is None or isinstance(self.data, str) else open_data(self.data)

    def over(self, others: Ingredients) -> Ingredients:
        """Return these, and those of the others where none is given here."""
        return dataclasses.replace(others, **self.given())

    # ---- with settings ----

    def written_into(self, settings: Settings) -> Settings:
        """Return settings that name what is given: as a text where it has one."""
        table = settings.table()
        for name, value in self.given().items():
            part, key = PLACES[name]
            place = table[part] if part else table
            place[key] = written(name, value)
        if self.table is not None:
            if self.view is None and SECOND in self.table.columns:  # pairs come as they are
                table["views"] |= {"first": "", "second": ""}
            elif _of_two_kinds(self.table, table) and not table["views"]["second"]:
                table["views"]["second"] = UNCHANGED
            table["views"]["fresh"] &= self.table.source is not None
        return Settings.of(table)

    def of(self, settings: Settings) -> Ingredients:
        """Return the objects, those that a text can make again left out (None)."""
        kept = {
            name: value
            for name, value in self.given().items()
            if not isinstance(value, str)
            and (name in _HELD or is_placeholder(text_of(settings, name)))
        }
        made = Ingredients(**kept)
        vars(made)["table"] = self.table  # read already
        return made

    # ---- the objects ----

    def open_data(self, settings: Settings) -> Dataset:
        """Return all samples of the data, both sides of their split."""
        if self.table is not None:
            return with_tokenizer(settings, self.table)
        require_notation("data", settings.data.source)
        return with_tokenizer(settings, open_data(settings.data.source))

    def views(self, settings: Settings) -> ViewPair:
        """Return the views of the two sides."""
        first = as_view(self.view) if self.view is not None else parse_view(settings.views.first)
        if self.second_view is not None:
            return first, as_view(self.second_view)
        text = settings.views.second
        return first, parse_view(text) if text.strip() else first

    def make_objective(self, settings: Settings) -> Objective:
        """Return the objective: the one given, or a new one."""
        given = self.objective is not None
        return as_objective(self.objective if given else settings.make_objective())

    def build(self, settings: Settings, dimensions: Sequence[int | None] = ()) -> Networks:
        """Return the networks: modules that are given, and fresh ones where there is a text."""
        return build(settings.network, settings.seed, self.modules(), dimensions)

    def dimensions(self, samples: Sequence[Tensor]) -> tuple[int | None, ...]:
        """Return the dimension of each encoder's output; None where none is given as a module.

        Args:
            samples: two of each side.
        """
        for name in _MODULES:
            if (value := getattr(self, name)) is not None:
                require_module(name, value)
        encoders = (self.encoder, self.second_encoder)
        return tuple(
            None if m is None else dimension(m, x) for m, x in zip(encoders, samples, strict=True)
        )

    def modules(self) -> Modules:
        """Return those that are parts of the networks."""
        names = [field.name for field in dataclasses.fields(Modules)]
        return Modules(**{name: getattr(self, name) for name in names})

    def make_optimiser(self, settings: Settings) -> Optimiser:
        """Return what makes the optimiser."""
        if self.optimiser is not None:
            return self.optimiser
        require_notation("optimiser", settings.optimiser.name)
        return settings.optimiser


PLACES = {
    "data": ("data", "source"),
    "encoder": ("network", "encoder"),
    "second_encoder": ("network", "second_encoder"),
    "projector": ("network", "projector"),
    "predictor": ("network", "predictor"),
    "objective": ("", "objective"),
    "view": ("views", "first"),
    "second_view": ("views", "second"),
    "optimiser": ("optimiser", "name"),
}
"""Where the text of each stands in the settings."""

_MODULES = ("encoder", "second_encoder", "projector", "predictor")
_HELD = (*_MODULES, "objective", "data")
"""Objects that are used as they are while training, even where they have a text: their weights, or
the rows that are read already, are theirs."""


def require_given(run: str, settings: Settings, given: Ingredients) -> None:
    """Refuse to go on with a run without the objects that it was trained with.

    Args:
        run: its folder.
        settings: in the folder.
        given: the objects at hand.
    """
    texts = {name: text_of(settings, name) for name in PLACES}
    lacking = [n for n, text in texts.items() if is_placeholder(text) and n not in given.given()]
    need(
        not lacking,
        lambda: (
            f"Resuming `{run}` needs the {len(lacking)} objects again that it was trained with and "
            "that have no notation: "
            + ", ".join(f"{name}=`{texts[name][1:-1]}`" for name in lacking)
            + ". Give them by name: `train(..., "
            + ", ".join(f"{name}=..." for name in lacking)
            + ", resume=True)`."
        ),
    )


def _of_two_kinds(data: Dataset, table: Mapping[str, Any]) -> bool:
    """Return whether a network each takes the images and the texts of the data."""
    two = bool(table["network"]["second_encoder"]) and "images" in data.inputs
    return two and bool({"texts", "captions"} & set(data.inputs))


def text_of(settings: Settings, name: str) -> str:
    """Return the text that settings have for an ingredient.

    Args:
        settings: settings of a run.
        name: one of those of `Ingredients`.
    """
    part, key = PLACES[name]
    return getattr(getattr(settings, part) if part else settings, key)


# ---- notations ----


def written(name: str, value: Any) -> str:
    """Return the notation of an object where that reads back as it, else a placeholder."""
    if isinstance(value, str):
        return value
    try:
        text = notation(value)
        if name in ("projector", "predictor"):
            text = re.sub(r"^(Projector|Prototypes)\(d_in=\d+, ", r"\1(", text)
        again = _READERS[name](text, value)
    except ChiaroError:  # no notation, or one that cannot be read
        again = None
    if again is not None and type(again) is type(value) and again == value:
        return text
    return f"<{import_path(value)}>"


def _read_model(text: str, like: Any) -> Any:
    return parse(text, model_names())


def _read_projector(text: str, like: Any) -> Any:
    need(isinstance(like, Projector | Prototypes), "Only projectors of ours have a notation here.")
    return parse(text, projector_names(like.d_in))


def _no_notation(text: str, like: Any) -> Any:
    return None


def _read_data(text: str, like: Any) -> Any:
    """Return the process itself where its text opens data: those are a function of the text."""
    need(not isinstance(like, Dataset), "A table has no notation.")
    return like if callable(getattr(like, "dataset", None)) and open_data(text) else None


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "data": _read_data,
    "encoder": _read_model,
    "second_encoder": _read_model,
    "projector": _read_projector,
    "predictor": _read_projector,
    "objective": lambda text, like: parse_objective(text),
    "view": lambda text, like: parse_view(text),
    "second_view": lambda text, like: parse_view(text),
    "optimiser": _no_notation,
}


# ---- objectives ----


class AnyLoss(Objective):
    """Any function of two paired (n, d) tensors to a scalar, as an objective.

    On several ranks every rank computes it on the whole batch.

    Args:
        function: `(z1, z2) -> scalar`; with a parameter `labels` it receives those as well.

    Example:
        >>> import torch
        >>> loss = AnyLoss(lambda z1, z2: (z1 - z2).square().mean())
        >>> float(loss(torch.zeros(2, 3), torch.ones(2, 3)))
        1.0
    """

    reduces = "batch"

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        _require_two(function)
        self.function = function
        self.takes = frozenset({"labels"} if "labels" in _parameters(function) else ())

    def loss(self, batch: Batch) -> Tensor:
        z1, z2 = batch.pair
        more = {"labels": batch.labels} if "labels" in self.takes else {}
        value = self.function(z1, z2, **more)
        need(
            isinstance(value, Tensor) and (value.requires_grad or not z1.requires_grad),
            lambda: (
                f"A loss needs a gradient with respect to z; `{import_path(self.function)}` "
                + (
                    "cuts it off: leave out `detach()`, `item()` and `no_grad()`."
                    if isinstance(value, Tensor)
                    else f"returned {value!r}, which is no tensor."
                )
            ),
        )
        need(
            value.numel() == 1,
            lambda: (
                "A loss needs to return one number; "
                f"`{import_path(self.function)}` returned shape {tuple(value.shape)}."
            ),
        )
        return value.reshape(())


def _parameters(function: Callable[..., Any]) -> list[str]:
    call = function.forward if isinstance(function, nn.Module) else function
    try:
        return list(inspect.signature(call).parameters)
    except (TypeError, ValueError):  # some builtins do not tell
        return []


def _require_two(function: Any) -> None:
    """Refuse what cannot be called with the two sides of a batch, and kernels."""
    call = function.forward if isinstance(function, nn.Module) else function
    name = import_path(function)
    need(
        not isinstance(function, Kernel),
        lambda: f"A kernel is not yet a loss; give `InfoNCE({function!r})`.",
    )
    need(
        not isinstance(function, type),
        lambda: f"A loss needs to be made before it is used; received the class `{name}`: call it.",
    )
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # some builtins do not tell
        return
    more = {"labels": None} if "labels" in signature.parameters else {}
    try:
        signature.bind(None, None, **more)
    except TypeError:
        raise InputError(
            f"A loss needs to take `(z1, z2)`, and `labels` if it wants them; `{name}` takes "
            f"`{signature}`."
        ) from None


def as_objective(loss: Any) -> Objective:
    """Return an objective: one of ours as it is, that of a text, or any function as one."""
    if isinstance(loss, Objective):
        return loss
    if isinstance(loss, str):
        return parse_objective(loss)
    need(
        callable(loss),
        lambda: (
            "An objective needs one of ours, its text, or a function (z1, z2) -> scalar; received "
            f"`{type(loss).__name__}`."
        ),
    )
    return AnyLoss(loss)


# ---- what a run remembers of objects without a notation ----


def described(
    ingredients: Ingredients,
    settings: Settings,
    fingerprint: Fingerprint | None,
    dimensions: Sequence[int | None] = (),
) -> dict[str, Any]:
    """Return what is known of each object that the settings hold a placeholder for.

    Args:
        ingredients: the objects.
        settings: that name them.
        fingerprint: fingerprint of the data trained on.
        dimensions: of each encoder's output, None where it is not known.
    """
    descriptions: dict[str, Any] = {}
    sizes = dict(zip(_MODULES, dimensions, strict=False))
    for name, value in ingredients.given().items():
        if isinstance(value, str) or not is_placeholder(text_of(settings, name)):
            continue
        if name == "data":
            descriptions[name] = {"path": import_path(value)}
            if fingerprint is not None:
                known = {"rows": fingerprint.rows, "sha256": fingerprint.sampled}
                descriptions[name] |= known
        else:
            descriptions[name] = describe(value)
        if name == "objective":
            descriptions[name]["takes"] = sorted(as_objective(value).takes)
        if sizes.get(name) is not None:
            descriptions[name]["d"] = sizes[name]
    return descriptions
