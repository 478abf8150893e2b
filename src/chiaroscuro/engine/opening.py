"""`open_run`: everything of a run, each part loaded once, when it is first asked for."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from chiaroscuro.artifacts import History, Run, checkpoints
from chiaroscuro.data import Dataset, Scaling
from chiaroscuro.engine.batches import ViewPair, training_part, with_tokenizer
from chiaroscuro.engine.descriptions import require_fit
from chiaroscuro.engine.ingredients import PLACES, Ingredients
from chiaroscuro.engine.networks import Networks
from chiaroscuro.engine.settings import Settings, is_placeholder
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.models import pack, unpack, without_weights
from chiaroscuro.objectives import Objective

__all__ = ["INITIAL", "OpenRun", "as_trained", "initial_weights", "open_run", "save_initial"]

INITIAL = "initial"
"""The folder of the weights before the first step, where modules were given."""


class OpenRun:
    """A run with its settings, data, views and networks; each part is loaded at most once.

    Made by `open_run` of a folder, or returned by `train` where nothing is written.

    Args:
        settings: that it was asked for with.
        ingredients: objects in the place of texts.
        run: the folder, or None for a training in memory.
        networks: trained ones, where they are here already.
        records: records of the history, for a training in memory.
        initial: weights before the first step, where texts do not make them again.
        known: what is known of objects without a notation; a folder has it in `objects.json`.
    """

    def __init__(
        self,
        settings: Settings,
        ingredients: Ingredients | None = None,
        run: Run | None = None,
        networks: Networks | None = None,
        records: list[dict[str, Any]] | None = None,
        initial: Mapping[str, Tensor] | None = None,
        known: Mapping[str, Any] | None = None,
    ):
        self.settings, self.run = settings, run
        self.ingredients = ingredients or Ingredients()
        self._networks, self._initial, self._records = networks, initial, records
        self._in_memory = known

    def __repr__(self) -> str:
        return f"OpenRun({str(self.run.folder) if self.run else 'in memory'!r})"

    @property
    def name(self) -> str:
        """What to call it."""
        if self.run is None:
            return "run"
        return self.run.folder.name or str(self.run.folder)

    # ---- what it was trained on ----

    @property
    def reading(self) -> Settings:
        """The settings, with texts read by the vocabulary that the run folder keeps."""
        return as_kept(self.settings, self.run)

    @cached_property
    def data(self) -> Dataset:
        """All samples of its data, both sides of their split."""
        data = self._source
        if (
            self.run is not None
            and self.ingredients.table is not None
            and "data" in self._descriptions
        ):
            require_fit(
                self.name, "data", training_part(self.reading, data), self._descriptions["data"]
            )
        return self.as_trained(data)

    def as_trained(self, data: Dataset) -> Dataset:
        """Return data as the networks know them: tables in the scaling of the training rows, texts
        by the tokenizer of the run.

        Args:
            data: any samples.
        """
        data, known = with_tokenizer(self.reading, data), self.scaling
        if data.scaling is None or known is None or data.scaling == known:
            return data
        return data.scaled_by(known)

    @property
    def scaling(self) -> Scaling | None:
        """The scaling of the rows of a table that it was trained on; None where it was none."""
        if self.run is None:
            return self._source.scaling
        known = self.run.scaling()
        return None if known is None else Scaling.read(known)

    @cached_property
    def _source(self) -> Dataset:
        """Its data as they are opened."""
        try:
            return self.ingredients.open_data(self.reading)
        except InputError as error:
            if self.run is None or self.ingredients.table is not None:
                raise
            raise InputError(
                f"{error} The run `{self.name}` was trained on these data; if they moved, pass "
                "them as `data` (`--data` on the command line)."
            ) from None

    @cached_property
    def training_data(self) -> Dataset:
        """The samples that it is trained on."""
        return training_part(self.reading, self.data)

    @cached_property
    def views(self) -> ViewPair:
        """The views of the two sides of a pair."""
        self._check("view", "second_view")
        return self.ingredients.views(self.settings)

    @cached_property
    def objective(self) -> Objective:
        """The objective, with what it has learnt where there is a checkpoint."""
        self._check("objective")
        given = copy.deepcopy(self.ingredients.objective)
        made = Ingredients(objective=given).make_objective(self.settings)
        if self.run is not None and self._newest.checkpoint is not None:
            with as_trained(self.run.folder, self._newest.checkpoint.step):
                made.load_state_dict(self._saved["objective"])
        return made

    @property
    def sees_labels(self) -> bool:
        """Whether the objective is given labels; the objective itself is not needed to know."""
        known = self._descriptions.get("objective", {})
        if self.ingredients.objective is None and "takes" in known:
            return "labels" in known["takes"]
        return "labels" in self.objective.takes

    @property
    def contrast(self) -> Any:
        """The objective, if it has a kernel, negatives and anchors: None for those without."""
        names = ("kernel", "negatives", "anchors")
        whole = all(hasattr(self.objective, name) for name in names)
        return self.objective if whole else None

    def history(self) -> History:
        """Return all records, and what was wrong with lines that are none."""
        return History(self._records or [], []) if self.run is None else self.run.history()

    def plot(self, ax: Any = None) -> Any:
        """Draw the loss over steps; needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        return self.history().plot(ax)

    def _repr_html_(self) -> str:
        folder = None if self.run is None else self.run.folder
        return self.history().html(self.settings.table(), folder)

    # ---- networks ----

    @cached_property
    def networks(self) -> Networks:
        """The trained networks, in evaluation mode; the averaged ones where an average is kept.

        Of a folder those of its newest good checkpoint, in copies of the modules that are given.
        """
        if self._networks is not None:
            return self._networks.eval()
        if self.run is None:
            raise InputError("A run that is not in a folder needs its networks: `networks=...`.")
        if self._newest.checkpoint is None:
            raise ChiaroError(
                f"`{self.run.folder}` has no good checkpoint, of {len(self._newest.bad)} found; "
                "train it first."
            )
        with without_weights(self.run.configurations):
            built = self._built()
        with as_trained(self.run.folder, self._newest.checkpoint.step):
            state = self._saved["networks"]
            if self._saved["average"] is not None:
                average = self._saved["average"]
                state = {name.removeprefix("module."): value for name, value in average.items()}
            return _loaded(built, state, self.name)

    @cached_property
    def untrained(self) -> Networks:
        """The networks before the first step, in evaluation mode."""
        initial = self._initial
        if initial is None and self.run is not None:
            initial = initial_weights(self.run.folder)
        if initial is None:
            return self._built().eval()
        with without_weights(None if self.run is None else self.run.configurations):
            built = self._built()
        with as_trained(self.name, 0):
            return _loaded(built, initial, self.name)

    @property
    def given(self) -> frozenset[str]:
        """Names of the networks that were given their first weights, and did not draw them.

        A folder without a record of it, of an older version, has kept first weights where any
        network was given; they are taken for those of the encoder.
        """
        loaded = {"encoder"} if getattr(self.untrained.encoders[0], "pretrained", False) else set()
        modules = self.ingredients.modules().given()
        if self.run is None:
            return frozenset({*modules, *loaded})
        recorded = self.run.given_networks()
        if recorded is None:
            kept = (self.run.folder / INITIAL).is_dir() or "encoder" in modules
            recorded = ["encoder"] if kept else []
        return frozenset({*recorded, *loaded})

    @property
    def step(self) -> int | None:
        """The step of the weights: of the newest checkpoint, or the last of the history.

        None for networks of another moment, whose step is not known.
        """
        if self.run is not None and self._networks is None:
            checkpoint = self._newest.checkpoint
            return None if checkpoint is None else checkpoint.step
        if self.run is not None or self._records is None:
            return None
        return max((int(one.get("step") or 0) for one in self._records), default=0)

    @property
    def encoder(self) -> Any:
        """The first trained encoder."""
        return self.networks.encoders[0]

    @property
    def weights(self) -> str:
        """Which weights `networks` are, as a sentence for a protocol."""
        if self.run is None:
            return "of the last step, in memory"
        checkpoint = self._newest.checkpoint
        averaged = ", averaged" if self.settings.network.average else ""
        step = "no step" if checkpoint is None else f"step {checkpoint.step}"
        return f"of {step}, the newest checkpoint{averaged}; never the best of several"

    def save_pretrained(self, folder: str | os.PathLike, licence: str = "") -> Path:
        """Write the trained network so that `chiaroscuro.load_pretrained` reads it without the run.

        Args:
            folder: new or empty.
            licence: licence of the weights, for the model card.
        """
        # looked up when called: what exports a run is built on what opens one
        exporting = importlib.import_module("chiaroscuro.exporting")
        return exporting.save_pretrained(self, folder, licence)

    def _built(self) -> Networks:
        """Return networks as the settings and copies of the given modules make them."""
        names = ("encoder", "second_encoder", "projector", "predictor")
        self._check(*names)
        given = {name: getattr(self.ingredients, name) for name in names}
        sizes = [
            None if given[name] is None else self._descriptions.get(name, {}).get("d")
            for name in names[:2]
        ]
        dimensions = tuple(size if isinstance(size, int) else None for size in sizes)
        copies = {name: copy.deepcopy(value) for name, value in given.items()}
        return Ingredients(**copies).build(self.settings, dimensions)

    # ---- the folder ----

    @cached_property
    def _newest(self) -> checkpoints.Latest:
        need(self.run is not None, "A run in memory has no checkpoints.")
        return checkpoints.latest_good(self.run.checkpoints)  # type: ignore[union-attr]

    @cached_property
    def _saved(self) -> dict[str, Any]:
        checkpoint = self._newest.checkpoint
        if checkpoint is None:
            return {}
        with as_trained(self.name, checkpoint.step):
            return unpack(checkpoint.arrays, checkpoint.state)

    @cached_property
    def _descriptions(self) -> dict[str, Any]:
        """What the run remembers of objects without a notation."""
        return self.run.objects() if self.run is not None else dict(self._in_memory or {})

    def _check(self, *names: str) -> None:
        """Refuse objects that are not like those it was trained with."""
        for name in names if self.run is not None else ():
            value, known = getattr(self.ingredients, name), self._descriptions.get(name)
            if value is not None and known is not None:
                require_fit(self.name, name, value, known)


@contextlib.contextmanager
def as_trained(folder: Path | str, step: int) -> Iterator[None]:
    """Turn what is raised over a checkpoint that does not fit its settings into a sentence.

    Its checksums may be right: they tell damage, not who wrote it.

    Args:
        folder: folder of the run.
        step: step of the checkpoint.
    """
    try:
        yield
    except ChiaroError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ChiaroError(
            f"The checkpoint of step {step} in `{folder}` does not hold the state of a training "
            f"with its settings: {type(error).__name__}, {str(error)[:200]}."
        ) from None


def _loaded(networks: Networks, state: Mapping[str, Tensor], name: str) -> Networks:
    ours = networks.state_dict()
    apart = sorted(ours.keys() ^ state.keys())
    apart += [n for n in ours if n in state and ours[n].shape != state[n].shape]
    need(
        not apart,
        lambda: (
            f"The networks of `{name}` need its {len(state)} tensors; {len(apart)} differ in name "
            f"or shape, the first is `{apart[0]}`."
        ),
    )
    networks.load_state_dict(dict(state))
    return networks.eval()


def open_run(
    subject: Any,
    *,
    data: Any = None,
    encoder: Any = None,
    second_encoder: Any = None,
    projector: Any = None,
    predictor: Any = None,
    objective: Any = None,
    view: Any = None,
    second_view: Any = None,
    networks: Networks | None = None,
) -> OpenRun:
    """Open a run: settings, data, views, objective, networks, each loaded when first asked for.

    Objects that a run was trained with and that have no notation are asked for by name. They have
    to be like those it knew: their tensors of the same names and shapes, their rows the same. The
    code in a run folder, if any, is never run.

    Args:
        subject: a `Run`, its folder, an `OpenRun`, or settings (with `networks`).
        data, encoder, second_encoder, projector, predictor, objective, view, second_view: objects
            that it was trained with.
        networks: in the place of those of its newest checkpoint, such as those of a `Moment`.

    Example:
        >>> from chiaroscuro.engine import build, read_settings
        >>> settings = read_settings("simclr", ["network.encoder='MLP(d_in=4, d=3)'"])
        >>> open_run(settings, networks=build(settings.network, 0)).encoder.d
        3
    """
    given = Ingredients(
        data, encoder, second_encoder, projector, predictor, objective, view, second_view
    )
    if isinstance(subject, OpenRun):
        if networks is None and not given.given():
            return subject
        return OpenRun(
            subject.settings,
            given.over(subject.ingredients),
            subject.run,
            networks or subject._networks,
            subject._records,
            subject._initial,
            subject._in_memory,
        )
    if isinstance(subject, Settings):
        return OpenRun(given.written_into(subject), given, networks=networks)
    run = subject if isinstance(subject, Run) else _folder(subject)
    settings = Settings.of(run.settings())
    _refuse_replaced(run, settings, given)
    return OpenRun(settings, given, run, networks)


def as_kept(settings: Settings, run: Run | None) -> Settings:
    """Return settings that read texts by the vocabulary that a run folder keeps, if it does."""
    kept = None if run is None else run.tokenizer
    if kept is None:
        return settings
    part = dataclasses.replace(settings.data, tokenizer=str(kept))
    return dataclasses.replace(settings, data=part)


def _folder(subject: Any) -> Run:
    need(
        isinstance(subject, str | os.PathLike),
        lambda: f"A run or its folder is needed; received `{type(subject).__name__}`.",
    )
    return Run.open(subject)


def _refuse_replaced(run: Run, settings: Settings, given: Ingredients) -> None:
    """Refuse an object for what the run has a text for: it would be another training."""
    for name in given.given():
        part, key = PLACES[name]
        text = getattr(getattr(settings, part) if part else settings, key)
        need(
            is_placeholder(text) or name == "data",
            lambda name=name, text=text: (
                f"The settings of `{run.folder}` name its {name}, `{text}`; leave `{name}=` out."
            ),
        )


def initial_weights(folder: Path) -> dict[str, Tensor] | None:
    """Return the weights before the first step that a run folder keeps; None where it need not."""
    saved = checkpoints.latest_good(folder / INITIAL).checkpoint
    with as_trained(folder, 0):
        return None if saved is None else unpack(saved.arrays, saved.state)


def save_initial(run: Run, networks: Networks) -> None:
    """Keep the weights before the first step in the run folder."""
    arrays, tree = pack(dict(networks.state_dict()))
    checkpoints.save(run.folder / INITIAL, 0, arrays, tree, keep=1)
