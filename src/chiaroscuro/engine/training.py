"""`train`: from settings and objects to networks, by `fit`; and the run folder it leaves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, overload

import torch
from torch import Tensor

from chiaroscuro.artifacts import Run, environment
from chiaroscuro.data import SECOND, Dataset
from chiaroscuro.engine.batches import training_part
from chiaroscuro.engine.continuing import Changes, changes
from chiaroscuro.engine.descriptions import require_same
from chiaroscuro.engine.distributed import joined_ranks, on_every_rank, opened_by_ranks
from chiaroscuro.engine.fingerprint import Fingerprint, fingerprint
from chiaroscuro.engine.fitting import Callback, Origin, fit, remember
from chiaroscuro.engine.ingredients import PLACES, Ingredients, described, require_given
from chiaroscuro.engine.loggers import Logger
from chiaroscuro.engine.networks import Networks, require_vocabulary
from chiaroscuro.engine.opening import OpenRun, as_kept, initial_weights
from chiaroscuro.engine.options import FitOptions
from chiaroscuro.engine.read_settings import read_settings
from chiaroscuro.engine.settings import Settings
from chiaroscuro.engine.stream import Steps
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.models import without_weights
from chiaroscuro.models.weights import Unread
from chiaroscuro.objectives import Grouped

__all__ = ["train"]


@overload
def train(
    settings: Any = ...,
    out: None = ...,
    callbacks: Sequence[Callback | Logger] = ...,
    resume: bool = ...,
    progress: TextIO | None = ...,
    *,
    overrides: Mapping[str, Any] | None = ...,
    restart: bool = ...,
    data: Any = ...,
    encoder: Any = ...,
    second_encoder: Any = ...,
    projector: Any = ...,
    predictor: Any = ...,
    objective: Any = ...,
    view: Any = ...,
    second_view: Any = ...,
    optimiser: Callable[..., torch.optim.Optimizer] | None = ...,
) -> OpenRun: ...


@overload
def train(
    settings: Any = ...,
    out: str | os.PathLike = ...,
    callbacks: Sequence[Callback | Logger] = ...,
    resume: bool = ...,
    progress: TextIO | None = ...,
    *,
    overrides: Mapping[str, Any] | None = ...,
    restart: bool = ...,
    data: Any = ...,
    encoder: Any = ...,
    second_encoder: Any = ...,
    projector: Any = ...,
    predictor: Any = ...,
    objective: Any = ...,
    view: Any = ...,
    second_view: Any = ...,
    optimiser: Callable[..., torch.optim.Optimizer] | None = ...,
) -> Run: ...


def train(
    settings: Any = "simclr",
    out: str | os.PathLike | None = None,
    callbacks: Sequence[Callback | Logger] = (),
    resume: bool = False,
    progress: TextIO | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    restart: bool = False,
    data: Any = None,
    encoder: Any = None,
    second_encoder: Any = None,
    projector: Any = None,
    predictor: Any = None,
    objective: Any = None,
    view: Any = None,
    second_view: Any = None,
    optimiser: Callable[..., torch.optim.Optimizer] | None = None,
) -> Run | OpenRun:
    """Train an encoder from settings or objects, and write a run folder or keep the run in memory.

    `data`, `encoder`, `projector`, `objective`, `view`, ... are objects, or texts as in settings; a
    dictionary of settings may hold objects too. Modules are trained in place. Objects that can be
    written as a text are saved in the run as that text. Of others the run keeps the import path,
    shapes and a fingerprint, and they must be passed again to `embed`, `evaluate`, `diagnose` and
    when resuming.

    Under `torchrun` every rank processes its part of each batch, and the loss is that of the whole
    batch; the run folder must be visible to all ranks. Ctrl-C, SIGTERM and SIGHUP finish the step,
    write a checkpoint and raise `KeyboardInterrupt` or `SystemExit`; a second Ctrl-C stops at once.

    Args:
        settings: a preset's name, a TOML file or text, a dictionary, or `Settings`.
        out: run folder: a new one, or with `resume` one that holds a run with the same settings.
            None writes nothing.
        callbacks: monitors (`Callback`) and loggers (`Logger`).
        resume: continue from the newest intact checkpoint.
        progress: stream for progress: a bar on a terminal, otherwise lines; None shows nothing.
        overrides: settings to change, by dotted name: `{"epochs": 20, "optimiser.lr": 0.01}`.
        restart: with `resume`, start again at step 0 if no checkpoint can be loaded.
        data: data to train on; `data.from_object` lists what is accepted.
        encoder: module that maps samples to (n, d).
        second_encoder: encoder of the second view, such as texts.
        projector: module that maps h to z.
        predictor: module after the projector, on the online branch only.
        objective: function `(z1, z2) -> scalar`, such as `InfoNCE()`.
        view: a `View`, or a function of one sample such as a torchvision transform.
        second_view: view for the second side of a pair; by default the same as the first.
        optimiser: function that returns a torch optimiser for a list of parameters.

    Returns:
        A `Run` if there is a folder, otherwise an `OpenRun`; functions of runs accept both.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
        >>> run = train(
        ...     {"epochs": 2, "batch": 16, "optimiser": {"name": "adamw", "lr": 0.01}},
        ...     data=x,
        ...     encoder=torch.nn.Linear(5, 3),
        ...     projector="Projector(d=4)",
        ...     view=lambda row: row + 0.1 * torch.randn(5),
        ... )
        >>> run.history().records[-1]["step"], run.encoder
        (8, Linear(in_features=5, out_features=3, bias=True))
    """
    asked = Ingredients(
        *(data, encoder, second_encoder, projector, predictor, objective, view, second_view),
        optimiser,
    )
    settings, asked = _parted(settings, asked)
    need(
        out is not None or not (resume or restart),
        "`train(resume=True)` needs the folder of the run to go on with: `out`.",
    )
    changed = overrides or ()
    with joined_ranks(_device(settings, changed)):
        made = opened_by_ranks(
            lambda: _resolve(read_settings(settings, changed), asked, out if resume else None)
        )
        origin = Origin(
            *(made.settings, made.opened.training_data, made.opened, made.fingerprint),
            prepare=lambda run: _prepare(made, origin, run, resume),
        )
        fitted = fit(
            made.networks,
            made.objects.make_objective(made.settings),
            made.batches,
            made.objects.make_optimiser(made.settings),
            made.settings.schedule,
            epochs=made.settings.epochs,
            options=FitOptions.of(made.settings),
            callbacks=callbacks,
            out=out,
            resume=resume,
            restart=restart,
            progress=progress,
            origin=origin,
        )
    if fitted.run is not None:
        return fitted.run
    return OpenRun(
        made.settings,
        made.objects,
        networks=fitted.networks,
        records=fitted.history,
        initial=made.initial,
        known=made.known,
    )


def _device(settings: Any, overrides: Any) -> str:
    """Return the device of settings; those that cannot be read are refused by all ranks at once."""
    try:
        return read_settings(settings, overrides).device
    except ChiaroError:
        return "auto"


def _parted(settings: Any, given: Ingredients) -> tuple[Any, Ingredients]:
    """Return settings without the objects in them, and the objects with those."""
    if not isinstance(settings, Mapping):
        return settings, given
    table = {k: dict(v) if isinstance(v, Mapping) else v for k, v in settings.items()}
    objects: dict[str, Any] = {}
    for name, (part, key) in PLACES.items():
        place = table.get(part, {}) if part else table
        if isinstance(place, dict) and key in place and not isinstance(place[key], str):
            objects[name] = place.pop(key)
            need(
                name not in given.given(),
                lambda name=name, key=key: (
                    f"`train` needs its {name} once; it is both `{name}=` and `{key}` of the "
                    "settings."
                ),
            )
    return table, given.over(Ingredients(**objects))


@dataclass(frozen=True, eq=False)
class _Resolved:
    """Everything that settings and objects make."""

    settings: Settings
    objects: Ingredients
    opened: OpenRun
    batches: Steps
    networks: Networks
    fingerprint: Fingerprint
    initial: dict[str, Tensor] | None
    """Weights before the first step, where modules or files of weights gave them."""
    known: dict[str, Any]
    """Of objects that have no notation."""
    notes: list[str]
    """What of them could not be compared with those that the run began with."""


def _resolve(asked: Settings, given: Ingredients, resumed: str | os.PathLike | None) -> _Resolved:
    """Resolve texts to objects, and objects to texts where they have one."""
    if resumed is not None and (Path(resumed) / "settings.toml").exists():
        require_given(str(resumed), Settings.of(Run(Path(resumed)).settings()), given)
    settings = given.written_into(asked)
    objects = given.of(settings)
    _require_an_encoder_each(settings, objects)
    views = objects.views(settings)
    run = None if resumed is None else Run(Path(resumed))
    read = as_kept(settings, run)
    data = objects.open_data(read)
    rows = training_part(read, data)
    objective = objects.make_objective(settings)
    grouped = isinstance(objective, Grouped)
    batches = Steps.of(settings, rows, "labels" in objective.takes, views=views, grouped=grouped)
    two = batches.order.indices(0, 0)[:2]
    dimensions: tuple[int | None, ...] = ()
    if objects.data is not None or objects.modules().any():
        samples = _samples(batches, two, given)
        _require_one_kind(settings, rows, samples)
        dimensions = objects.dimensions(samples)
    digest = fingerprint(rows)
    known, notes = described(objects, settings, digest, dimensions), []
    if resumed is not None:
        notes = require_same(str(resumed), Run(Path(resumed)).objects(), known)
    saved = None if run is None else initial_weights(run.folder)
    with contextlib.nullcontext() if saved is None else without_weights(run.configurations):  # type: ignore[union-attr]
        networks = objects.build(settings, dimensions)
    require_vocabulary(networks, data)
    initial, encoders = None, list(networks.encoders)
    if objects.modules().any() or any(getattr(one, "pretrained", False) for one in encoders):
        if saved is not None:
            networks.load_state_dict(saved)
        initial = {name: t.detach().clone() for name, t in networks.state_dict().items()}
    opened = OpenRun(settings, objects, initial=initial, known=known)
    vars(opened).update(data=data, training_data=rows, views=views)  # loaded already
    return _Resolved(settings, objects, opened, batches, networks, digest, initial, known, notes)


def _samples(batches: Steps, rows: Any, given: Ingredients) -> tuple[Tensor, Tensor]:
    """Return the two views of some rows; where no view was given, say that one can be."""
    try:
        return batches.pairs(rows, 0)
    except InputError as error:
        if given.view is not None or given.data is None:
            raise
        texts = "texts" in batches.pairs.data.inputs
        instead = (
            '`view=""`, which leaves texts as they are'
            if texts
            else ('a text such as `view="Jitter(noise=0.1)"`')
        )
        raise InputError(
            f"{error} The settings' view does not suit these data: give `view=`, a function of one "
            f"sample, or {instead}."
        ) from None


def _require_an_encoder_each(settings: Settings, objects: Ingredients) -> None:
    """Refuse images with texts that one encoder is to learn from: it would never see the texts."""
    table = objects.table
    if table is None or isinstance(objects.data, Dataset):
        return
    words = {"texts", "captions"} & set(table.inputs)
    need(
        not ("images" in table.inputs and words) or bool(settings.network.second_encoder.strip()),
        lambda: (
            f"`data=` holds {len(table)} images with texts, and one encoder would leave the texts "
            "out. Give one for them, such as "
            '`second_encoder="SequenceTransformer(n_tokens=258, length=96, padding=0)"`, or the '
            "images alone."
        ),
    )


def _require_one_kind(settings: Settings, data: Dataset, samples: tuple[Tensor, Tensor]) -> None:
    """Refuse ready pairs of two shapes that are to go through one encoder."""
    x1, x2 = samples
    two = bool(settings.network.second_encoder.strip())
    texts = "texts" in data.inputs  # as long as the longest of a batch
    need(
        two or texts or SECOND not in data.columns or x1.shape[1:] == x2.shape[1:],
        lambda: (
            f"Ready pairs of shapes {tuple(x1.shape[1:])} and {tuple(x2.shape[1:])} need an "
            "encoder each: `second_encoder=`. If the second is a label, it needs a whole number."
        ),
    )


# ---- the run folder ----


def _prepare(made: _Resolved, origin: Origin, run: Run, resume: bool) -> Callable[[], None]:
    """Refuse settings that a run cannot go on with; return what writes all that it has to know."""
    settings, data = made.settings, made.opened.data
    changed = on_every_rank(lambda: changes(run, settings)) if resume else Changes()
    origin.records.extend(changed.records)
    origin.notes.extend([*(_other_machine(run) if resume else []), *changed.notes, *made.notes])
    skipped = [{"path": one.path, "reason": one.reason} for one in data.skipped]
    if made.objects.table is not None:
        origin.notes.append(f"`data=` is taken for {made.objects.table!r}.")
    if not resume:
        encoders: Any = made.networks.encoders
        fitted = [(repr(one), getattr(one, "fitted", "")) for one in encoders]
        origin.notes.extend(f"`{text}`: {found}." for text, found in fitted if found)
    origin.notes.extend(_notes(settings))
    if skipped:
        origin.notes.append(f"{data.skipped_summary()} All are in `{run.folder / 'skipped.json'}`.")

    def write() -> None:
        if changed.any:
            run.write_settings(settings.table())
        if made.initial is not None:
            remember(run, made.networks, made.known, made.objects.modules().given())
        elif made.known:
            run.write_objects(made.known)
        if skipped:
            run.write_skipped(skipped)
        if data.tokenizer is not None and data.tokenizer.source and run.tokenizer is None:
            run.write_tokenizer(data.tokenizer.files())
        for key, text in _configurations(made.networks).items():
            if not (run.configurations / key).is_dir():
                run.write_configuration(key, text)
        if data.scaling is not None and not resume:
            run.write_scaling(data.scaling.table())

    return write


def _configurations(networks: Networks) -> dict[str, str]:
    """Return the configurations of the encoders that are models of transformers."""
    found = {}
    for encoder in networks.encoders:
        name = getattr(encoder, "configured_by", "")
        if name:
            found[Unread.key(name)] = encoder.module.module.config.to_json_string()  # type: ignore[union-attr, operator]
    return found


def _notes(settings: Settings) -> list[str]:
    """Return what one should know before the first step."""
    schedule = settings.schedule
    if not 0 < settings.epochs <= schedule.warmup or schedule.name == "lambda":
        return []
    return [
        f"`schedule.warmup` of {schedule.warmup:g} epochs is no shorter than the training of "
        f"{settings.epochs}: the learning rate only rises, at most to `optimiser.lr` "
        f"{settings.optimiser.lr:g}."
    ]


def _other_machine(run: Run) -> list[str]:
    """Return a sentence if what rounding depends on is not what the run began with."""
    then = on_every_rank(run.environment)
    packages = then.get("packages") or {}
    compared = {
        "threads": (then.get("threads"), torch.get_num_threads()),
        "torch": (packages.get("torch"), environment()["packages"]["torch"]),
    }
    other = [
        f"{name} {was} then and {now} now"
        for name, (was, now) in compared.items()
        if was is not None and was != now
    ]
    if not other:
        return []
    return [
        f"`{run.folder}` goes on with {', '.join(other)}: the weights will be alike, not the same "
        "to the bit."
    ]
