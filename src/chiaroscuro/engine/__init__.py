"""Training: the loop, settings, checkpoints, runs; several ranks as one batch; embedding."""

from chiaroscuro.engine.batch_norm import SyncBatchNorm, synchronised
from chiaroscuro.engine.batches import Pairs, open_training_data, plain, spaced, tokens
from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.continuing import continued
from chiaroscuro.engine.distributed import (
    average_gradients,
    barrier,
    distributed_loss,
    gather_rows,
    in_parallel,
    is_first,
    joined_ranks,
    on_any_rank,
    on_every_rank,
    opened_by_ranks,
    rank,
    share_buffers,
    world_size,
)
from chiaroscuro.engine.embedding import Passing, embed, load_networks
from chiaroscuro.engine.embedding_shards import embed_shards
from chiaroscuro.engine.examining import Examined, examine
from chiaroscuro.engine.fitting import Callback, Fitted, Moment, Origin, StopTraining, fit
from chiaroscuro.engine.ingredients import AnyLoss, Ingredients
from chiaroscuro.engine.loggers import Logger, MLflow, TensorBoard, WandB
from chiaroscuro.engine.monitors import held_out, watch
from chiaroscuro.engine.networks import Modules, Networks, build
from chiaroscuro.engine.opening import OpenRun, open_run
from chiaroscuro.engine.optimisers import LARS, optimiser
from chiaroscuro.engine.options import FitOptions
from chiaroscuro.engine.read_settings import preset_summary, preset_text, presets, read_settings
from chiaroscuro.engine.sample_transform import SampleTransform
from chiaroscuro.engine.schedules import Formula, constant, cosine, linear, towards_one
from chiaroscuro.engine.settings import (
    DataSettings,
    NetworkSettings,
    OptimiserSettings,
    SavingSettings,
    ScheduleSettings,
    Settings,
    ViewSettings,
)
from chiaroscuro.engine.snapshots import snapshots
from chiaroscuro.engine.state import device_of
from chiaroscuro.engine.stream import Iterated, Steps, view_batches
from chiaroscuro.engine.suggestion import Suggestion, suggest
from chiaroscuro.engine.training import train

__all__ = [
    "LARS",
    "AnyLoss",
    "Callback",
    "DataSettings",
    "Examined",
    "FitOptions",
    "Fitted",
    "Formula",
    "Ingredients",
    "Iterated",
    "Logger",
    "MLflow",
    "Modules",
    "Moment",
    "NetworkSettings",
    "Networks",
    "OpenRun",
    "OptimiserSettings",
    "Origin",
    "Pairs",
    "Passing",
    "SampleTransform",
    "SavingSettings",
    "ScheduleSettings",
    "Settings",
    "Steps",
    "StopTraining",
    "Suggestion",
    "SyncBatchNorm",
    "TensorBoard",
    "ViewSettings",
    "WandB",
    "average_gradients",
    "barrier",
    "build",
    "cached_backward",
    "constant",
    "continued",
    "cosine",
    "device_of",
    "distributed_loss",
    "embed",
    "embed_shards",
    "examine",
    "fit",
    "gather_rows",
    "held_out",
    "in_parallel",
    "is_first",
    "joined_ranks",
    "linear",
    "load_networks",
    "on_any_rank",
    "on_every_rank",
    "open_run",
    "open_training_data",
    "opened_by_ranks",
    "optimiser",
    "plain",
    "preset_summary",
    "preset_text",
    "presets",
    "rank",
    "read_settings",
    "share_buffers",
    "snapshots",
    "spaced",
    "suggest",
    "synchronised",
    "tokens",
    "towards_one",
    "train",
    "view_batches",
    "watch",
    "world_size",
]
