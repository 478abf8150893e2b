"""Settings of a training run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chiaroscuro import kernels, models, objectives, pairwise, views
from chiaroscuro.artifacts import to_toml
from chiaroscuro.engine.records import between, one_of, record
from chiaroscuro.engine.schedules import SCHEDULES, Formula
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
    "is_placeholder",
    "parse_objective",
    "parse_view",
    "require_notation",
]

UNCHANGED = "none"
"""The second view that leaves samples as they are."""

WITHOUT_EFFECT = ("saving.", "data.workers", "data.timeout")
"""Settings that change no weight: a run may be resumed with others."""


def is_placeholder(text: str) -> bool:
    """Return whether a text stands for an object without a notation: `<package.module.Name>`.

    Example:
        >>> is_placeholder("<torch.nn.modules.linear.Linear>"), is_placeholder("MLP(d_in=3)")
        (True, False)
    """
    return text.startswith("<") and text.endswith(">")


@dataclass(frozen=True)
class DataSettings:
    """Choose the samples to train on.

    Args:
        source: dataset, file or call, as `open_data` reads it. The default `digits` is bundled.
        part: side of the split to train on: "train", "test" or "all". Data without a split are used
            whole.
        distinct: use only the first row of every group, so that two samples of the same thing are
            not negatives of each other. Required by `views.fresh`.
        workers: number of processes that prepare batches; 0 prepares them in the training process.
            The batches are identical.
        timeout: seconds to wait for a batch from the workers before training stops with an error;
            0 waits forever.
        tokenizer: Hugging Face `tokenizer.json`, or a model folder that contains one; "" reads
            texts as bytes.
        text_length: maximum number of tokens of a text; longer texts are truncated.
    """

    source: str = "digits"
    part: str = "train"
    distinct: bool = False
    workers: int = 0
    timeout: float = 600.0
    tokenizer: str = ""
    text_length: int = 96

    def __post_init__(self) -> None:
        between("data.text_length", self.text_length, 1)
        between("data.timeout", self.timeout, 0)
        one_of("data.part", self.part, ("train", "test", "all"))
        between("data.workers", self.workers, 0, 1024)


@dataclass(frozen=True)
class ViewSettings:
    """Choose the two views of a positive pair.

    Args:
        first: augmentation of the first view, such as `SimCLR(size=32)`; "" applies none. Strength
            0.5 is SimCLR's for small images [chen2020simclr, B.9].
        second: augmentation of the second view; "" uses the first, "none" applies none.
        fresh: render each view anew from the data before augmenting it; for data that can, such as
            `digits`.
    """

    first: str = "SimCLR(size=32, strength=0.5)"
    second: str = ""
    fresh: bool = False

    def __post_init__(self) -> None:
        for text in (self.first, self.second):
            if not is_placeholder(text):
                parse_view(text)

    def objects(self) -> tuple[View | None, View | None]:
        """Return the views of the two sides."""
        return parse_view(self.first), parse_view(self.second or self.first)


@dataclass(frozen=True)
class NetworkSettings:
    """Choose the networks that map samples to embeddings.

    Args:
        encoder: encoder, such as `ResNet(depth=18)`.
        second_encoder: encoder of the second view, such as texts; "" shares the first.
        projector: projector, written without `d_in`, which is the encoder's `d`. 128 dimensions
            [chen2020simclr, Sec. 2.3]. The default standardises its output, which small networks
            need to leave the collapsed start.
        predictor: network after the projector, on the online branch only [grill2020byol]; "" is
            none.
        momentum: momentum of the momentum encoder (EMA copy) that embeds the other view: 0.999
            [he2020moco], 0.996 [grill2020byol]; 0 uses none.
        momentum_schedule: "constant" [he2020moco], or "cosine", which raises the momentum to 1
            [grill2020byol, Sec. 3.3].
        queue: number of earlier keys of the momentum encoder kept as negatives [he2020moco]; 0
            keeps none.
        own_target: compare each view with the network's own projection of the other, without
            predictor and gradient [chen2021simsiam], instead of a momentum encoder.
        average: decay of an exponential moving average of the weights for evaluation; 0 keeps none.
        sync_batch_norm: compute batch-norm statistics over all ranks instead of per rank.
        shard: shard parameters, gradients and optimiser state over the ranks (FSDP), for networks
            that do not fit on one device; no effect on a single rank.
        recompute: recompute activations in the backward pass (gradient checkpointing) instead of
            storing them; for networks without batch norm.
    """

    encoder: str = "ResNet(depth=18, stem='small')"
    second_encoder: str = ""
    projector: str = "Projector(d=128)"
    predictor: str = ""
    momentum: float = 0.0
    momentum_schedule: str = "constant"
    queue: int = 0
    own_target: bool = False
    average: float = 0.0
    sync_batch_norm: bool = False
    shard: bool = False
    recompute: bool = False

    def __post_init__(self) -> None:
        between("network.momentum", self.momentum, 0, 1)
        one_of("network.momentum_schedule", self.momentum_schedule, ("constant", "cosine"))
        between("network.average", self.average, 0, 1)
        between("network.queue", self.queue, 0)
        need(
            self.queue == 0 or self.momentum > 0 or self.own_target,
            lambda: (
                f"`network.queue = {self.queue}` needs a momentum encoder that fills it, with "
                f"`network.momentum` above 0; received {self.momentum}. Or set "
                "`network.own_target = true`."
            ),
        )
        need(
            not (self.own_target and self.momentum > 0),
            lambda: (
                "`network.own_target` needs `network.momentum = 0`; received "
                f"{self.momentum}. The target is either the network itself or a momentum encoder."
            ),
        )


@dataclass(frozen=True)
class OptimiserSettings:
    """Choose the optimiser.

    Args:
        name: optimiser: "lars", "sgd" or "adamw".
        lr: learning rate; 0.3, SimCLR's at batch 256 with LARS [chen2020simclr, Sec. 2.3].
        momentum: momentum, or the first beta of AdamW; 0.9 [you2017lars].
        second_momentum: second beta of AdamW; 0.999 [loshchilov2019adamw].
        weight_decay: weight decay, 1e-6 [chen2020simclr, Sec. 2.3].
        trust: trust coefficient (eta) of LARS; 0.001 [you2017lars].
        clip: maximum norm of the gradient; 0 does not clip.
    """

    name: str = "lars"
    lr: float = 0.3
    momentum: float = 0.9
    second_momentum: float = 0.999
    weight_decay: float = 1e-6
    trust: float = 0.001
    clip: float = 0.0

    def __post_init__(self) -> None:
        if not is_placeholder(self.name):
            one_of("optimiser.name", self.name, ("lars", "sgd", "adamw"))
        for name in ("lr", "weight_decay", "trust", "clip"):
            between(f"optimiser.{name}", getattr(self, name), 0)
        for name in ("momentum", "second_momentum"):
            value = getattr(self, name)
            need(
                0 <= value < 1,
                lambda name=name, value=value: (
                    f"`optimiser.{name}` needs a number from 0 to below 1; received {value}."
                ),
            )

    def decayed(self, rates: float) -> float | None:
        """Return how far decay alone takes a weight: to exp(-x) of its start.

        AdamW decays by lr wd a step; momentum multiplies that of SGD by 1 / (1 - momentum), to
        first order. LARS scales every step by the norm of the weights, and has no such number.

        Args:
            rates: learning rates, summed over the steps.

        Example:
            >>> OptimiserSettings("adamw", lr=1e-3, weight_decay=0.1).decayed(1e-3 * 2000)
            0.2
            >>> OptimiserSettings("lars").decayed(100.0) is None
            True
        """
        if self.name not in ("adamw", "sgd"):
            return None
        return self.weight_decay * rates / (1 - self.momentum if self.name == "sgd" else 1.0)


@dataclass(frozen=True)
class ScheduleSettings:
    """Choose the schedule of the learning rate.

    Args:
        name: schedule: "cosine" [chen2020simclr, Sec. 2.3], "linear", "constant", or "lambda" with
            a formula, as torch's LambdaLR [tan2024, App. B].
        warmup: epochs of linear warm-up; 10 [chen2020simclr, Sec. 2.3].
        formula: factor on the learning rate for "lambda", including warm-up; see `Formula`.
    """

    name: str = "cosine"
    warmup: float = 10.0
    formula: str = ""

    def __post_init__(self) -> None:
        one_of("schedule.name", self.name, (*SCHEDULES, "lambda"))
        between("schedule.warmup", self.warmup, 0)
        need(
            (self.name == "lambda") == bool(self.formula.strip()),
            lambda: (
                '`schedule.formula` goes with `schedule.name = "lambda"`; received the formula '
                f"`{self.formula}` and the name `{self.name}`."
            ),
        )
        if self.formula:
            Formula(self.formula)

    def factor(self, step: int, steps: int, per_epoch: int) -> float:
        """Return the factor on the learning rate at a step.

        Args:
            step: index of the step, from 0.
            steps: number of steps in total.
            per_epoch: number of steps per epoch.
        """
        warmup = min(steps, round(self.warmup * per_epoch))
        if self.name == "lambda":
            return Formula(self.formula)(step, steps, warmup, per_epoch)
        return SCHEDULES[self.name](step, steps, warmup)

    def total(self, made: int, steps: int, per_epoch: int) -> float:
        """Return the sum of the factors over the steps made, from about a thousand of them.

        Args:
            made: number of steps made, at least 1.
            steps, per_epoch: as for `factor`.
        """
        some = range(0, made, max(1, made // 1000))
        return made * sum(self.factor(step, steps, per_epoch) for step in some) / len(some)


@dataclass(frozen=True)
class SavingSettings:
    """Choose what is saved during training; none of it changes the weights.

    Args:
        every: steps between checkpoints; 0 saves one at the end of each epoch.
        keep: number of checkpoints to keep; 2, so that one is complete while the next is written.
        record: steps between entries of the loss in the history.
    """

    every: int = 0
    keep: int = 2
    record: int = 10

    def __post_init__(self) -> None:
        between("saving.every", self.every, 0)
        between("saving.keep", self.keep, 1)
        between("saving.record", self.record, 1)


@dataclass(frozen=True)
class Settings:
    """Hold all settings of a training run: the same settings and threads give the same weights.

    Objects (objective, views, networks) are texts in the notation of `chiaroscuro.spec`, and can
    name what their packages export and nothing else.

    Args:
        objective: loss, such as `InfoNCE(kernel=Cosine(tau=0.5))`; NT-Xent at tau 0.5
            [chen2020simclr, B.9].
        symmetric: with a momentum encoder, add the loss with the two views exchanged
            [grill2020byol]; a queue then stores the keys of both.
        seed: seed of the initial weights, the order of samples and the augmentations.
        epochs: number of passes over the data; 100, the fewest in [chen2020simclr].
        batch: pairs per step, over all ranks; 256, the smallest in [chen2020simclr].
        micro_batch: pairs that are embedded at a time (gradient caching); 0 embeds the whole batch.
        device: device to train on; "auto" uses an accelerator (CUDA, MPS, ...) if there is one.
        precision: precision of the networks: "full", or "bfloat16" or "float16" by autocast.
            "float16" scales the loss and skips steps whose gradients overflow
            [micikevicius2018mixed, Sec. 3.2]. The objective is always computed in float32. CPUs
            without bfloat16 instructions emulate it, slowly.
        compile: compile the networks with torch.compile; needs a C++ compiler on a CPU.

    Example:
        >>> from chiaroscuro.engine import read_settings
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
    precision: str = "full"
    compile: bool = False
    data: DataSettings = field(default_factory=DataSettings)
    views: ViewSettings = field(default_factory=ViewSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    saving: SavingSettings = field(default_factory=SavingSettings)

    def __post_init__(self) -> None:
        between("seed", self.seed, 0, 2**63 - 1)
        between("epochs", self.epochs, 1)
        between("batch", self.batch, 1)
        between("micro_batch", self.micro_batch, 0)
        one_of("precision", self.precision, ("full", "bfloat16", "float16"))
        if not is_placeholder(self.objective):
            objective = self.make_objective()
            need(
                self.network.queue == 0 or "queue" in objective.takes,
                lambda: (
                    f"`network.queue = {self.network.queue}` needs an objective with candidates; "
                    f"`{type(objective).__name__}` takes no queue."
                ),
            )
        need(
            not (self.symmetric and self.network.queue and self.network.second_encoder.strip()),
            lambda: (
                f"`symmetric` with `network.queue = {self.network.queue}` needs one encoder: with "
                "two, the queue holds the keys of one side, and those are no candidates of the "
                "other."
            ),
        )
        need(
            not self.symmetric or self.network.momentum > 0 or self.network.own_target,
            lambda: (
                "`symmetric` needs a momentum encoder, `network.momentum` above 0; received "
                f"{self.network.momentum}. Without one both views are anchors already, unless "
                "`network.own_target` stops the gradient of one."
            ),
        )
        need(
            self.symmetric
            or not (self.network.second_encoder.strip() and self.network.momentum > 0),
            lambda: (
                f"`network.second_encoder` with `network.momentum = {self.network.momentum}` needs "
                "`symmetric = true`: otherwise only the first encoder would learn."
            ),
        )
        need(
            self.micro_batch == 0 or not (self.network.momentum or self.network.own_target),
            lambda: (
                f"`micro_batch = {self.micro_batch}` needs both sides to learn: `network.momentum` "
                f"0; received {self.network.momentum}"
                + (" and `network.own_target`." if self.network.own_target else ".")
            ),
        )

    # ---- the objects ----

    def make_objective(self) -> Objective:
        """Return the objective, new."""
        return parse_objective(self.objective)

    # ---- text ----

    def table(self) -> dict[str, Any]:
        """Nested dictionaries, every default filled in."""
        return dataclasses.asdict(self)

    def toml(self) -> str:
        """Return the text that `read_settings` reads back as these settings."""
        return to_toml(self.table())

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Settings:
        """Settings from nested dictionaries; an unknown key or a value of another kind is refused.

        Args:
            table: only what differs from the defaults.
        """
        return record(cls, table)


# ---- from text to objects ----


def parse_objective(text: str) -> Objective:
    """Return the objective that a text denotes, new."""
    require_notation("objective", text)
    made = parse(text, _algebra())
    need(
        isinstance(made, Objective),
        lambda: f"`objective` needs an objective; received `{type(made).__name__}`.",
    )
    return made


def parse_view(text: str) -> View | None:
    """Return the view that a text denotes; None for an empty one and for "none"."""
    require_notation("view", text)
    unchanged = text.strip() in ("", UNCHANGED)
    return None if unchanged else _named(text, view_names(), "views")


def require_notation(name: str, text: str) -> None:
    """Refuse a text that only stands for an object, and ask for the object by name."""
    need(
        not is_placeholder(text),
        lambda: (
            f"This run was trained with its {name} given as an object, `{text[1:-1]}`, which a "
            f"text cannot make again; pass the object from Python: `{name}=...`."
        ),
    )


# ---- the closed sets of names ----


@functools.cache
def _algebra() -> dict[str, Callable[..., Any]]:
    classes: dict[str, Callable[..., Any]] = {}
    for package in (kernels, pairwise, objectives):
        every = ((name, getattr(package, name)) for name in package.__all__)
        classes |= {name: value for name, value in every if isinstance(value, type)}
    return classes


def _classes(package: Any, base: type) -> dict[str, Callable[..., Any]]:
    every = ((name, getattr(package, name)) for name in package.__all__)
    return {
        name: value
        for name, value in every
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }


def model_names() -> dict[str, Callable[..., Any]]:
    """Return what an encoder's text may name: our models,
    and adapters to those of other libraries.
    """
    adapters = {name: getattr(models, name) for name in models.__all__ if name.startswith("from_")}
    return {**_classes(models, models.Model), **adapters}


def view_names() -> dict[str, Callable[..., Any]]:
    """Return what the text of a view may name."""
    return _classes(views, View)


def _named(text: str, names: Mapping[str, Callable[..., Any]], key: str) -> Any:
    try:
        return parse(text, names)
    except InputError as error:
        raise InputError(f"`{key}`: {error} See `chiaro list views`.") from None
