"""`FitOptions`: how the loop runs, apart from what it trains on."""

from __future__ import annotations

from dataclasses import dataclass, field

from chiaroscuro.engine.records import between, one_of
from chiaroscuro.engine.settings import SavingSettings, Settings
from chiaroscuro.errors import need

__all__ = ["FitOptions"]


@dataclass(frozen=True)
class FitOptions:
    """How `fit` runs: momentum encoder, memory, precision, device, and what is saved.

    Args:
        seed: seed of the queue's first rows, of dropout, and of a `DataLoader`'s own shuffling.
        symmetric: with a momentum copy, add the loss with the two views exchanged [grill2020byol].
        micro_batch: pairs embedded at a time, by gradient caching; 0 is all of them.
        device: "auto" is the accelerator (CUDA, MPS, ...) where there is one, else the CPU.
        precision: "full"; "bfloat16" by autocast; or "float16", with a loss that is scaled so that
            small gradients are kept (for GPUs without bfloat16).
        compile: whether the networks are compiled by torch.compile.
        momentum: momentum of the momentum encoder that embeds the other view; 0 uses none.
        momentum_schedule: "constant", or "cosine" from the momentum to 1.
        queue: how many of the copy's embeddings are kept as candidates; 0 is none.
        own_target: compare each side with the network's own projections of the other, without
            predictor and gradient [chen2021simsiam].
        average: decay of an average of weights kept for evaluation; 0 is none.
        sync_batch_norm: batch statistics over all ranks.
        shard: cut parameters, gradients and moments over the ranks (`fully_shard`), for networks
            that do not fit on one device.
        recompute: make activations again in the backward pass instead of keeping them.
        clip: largest norm of the whole gradient; 0 does not clip.
        workers: processes that prepare batches of our data ahead; a `DataLoader` brings its own.
        timeout: seconds to wait for a batch of theirs; 0 waits for ever.
        saving: how often to save and to record, where there is a place to save.

    Example:
        >>> FitOptions(momentum_schedule="linear")
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `momentum_schedule` needs one of `constant`, ...
    """

    seed: int = 0
    symmetric: bool = False
    micro_batch: int = 0
    device: str = "auto"
    precision: str = "full"
    compile: bool = False
    momentum: float = 0.0
    momentum_schedule: str = "constant"
    queue: int = 0
    own_target: bool = False
    average: float = 0.0
    sync_batch_norm: bool = False
    shard: bool = False
    recompute: bool = False
    clip: float = 0.0
    workers: int = 0
    timeout: float = 600.0
    saving: SavingSettings = field(default_factory=SavingSettings)

    def __post_init__(self) -> None:
        between("seed", self.seed, 0, 2**63 - 1)
        for name in ("micro_batch", "queue", "clip", "workers", "timeout"):
            between(name, getattr(self, name), 0)
        for name in ("momentum", "average"):
            between(name, getattr(self, name), 0, 1)
        one_of("precision", self.precision, ("full", "bfloat16", "float16"))
        one_of("momentum_schedule", self.momentum_schedule, ("constant", "cosine"))
        whole = {
            name: value
            for name in ("momentum", "average", "micro_batch", "compile")
            if (value := getattr(self, name))
        }
        need(
            not self.shard or not whole,
            lambda: (
                "`shard` cuts networks that every rank would need whole for "
                + ", ".join(f"`{name}={value}`" for name, value in whole.items())
                + "; leave one of them out."
            ),
        )
        needs_copy = {"queue": self.queue, "symmetric": self.symmetric}
        for name, value in needs_copy.items():
            need(
                not value or self.momentum > 0 or self.own_target,
                lambda name=name, value=value: (
                    f"`{name}={value}` needs a momentum encoder, `momentum` above 0; received "
                    f"{self.momentum}. Or `own_target`, which compares with the network itself."
                ),
            )
        need(
            not (self.own_target and self.momentum > 0),
            lambda: (
                f"`own_target` needs `momentum=0`; received {self.momentum}: one "
                "target, the copy or the network itself."
            ),
        )
        need(
            not (self.own_target and self.micro_batch),
            lambda: (
                f"`own_target` needs the whole batch at once, `micro_batch` 0; received "
                f"{self.micro_batch}."
            ),
        )
        need(
            self.micro_batch == 0 or self.momentum == 0,
            lambda: (
                f"`micro_batch={self.micro_batch}` needs both sides to learn: `momentum` 0; "
                f"received {self.momentum}."
            ),
        )

    @classmethod
    def of(cls, settings: Settings) -> FitOptions:
        """Return the options that settings ask for."""
        network = settings.network
        return cls(
            seed=settings.seed,
            symmetric=settings.symmetric,
            micro_batch=settings.micro_batch,
            device=settings.device,
            precision=settings.precision,
            compile=settings.compile,
            momentum=network.momentum,
            momentum_schedule=network.momentum_schedule,
            queue=network.queue,
            own_target=network.own_target,
            average=network.average,
            sync_batch_norm=network.sync_batch_norm,
            shard=network.shard,
            recompute=network.recompute,
            clip=settings.optimiser.clip,
            workers=settings.data.workers,
            timeout=settings.data.timeout,
            saving=settings.saving,
        )
