"""Training: settings, the loop, checkpoints; several ranks as one batch; embedding."""

from chiaroscuro.engine.batch_norm import SyncBatchNorm, synchronised
from chiaroscuro.engine.batches import Pairs, open_training_data, plain, tokens
from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.continuing import continued
from chiaroscuro.engine.distributed import (
    anyone,
    average_gradients,
    barrier,
    distributed_loss,
    gather_rows,
    in_parallel,
    is_first,
    joined_ranks,
    rank,
    share_buffers,
    sum_over_ranks,
    together,
    world_size,
)
from chiaroscuro.engine.embedding import embed, held_out, load_networks, newest_weights
from chiaroscuro.engine.examining import (
    Look,
    contrast_of,
    examine,
    inputs_of,
    look,
    view_parameters,
)
from chiaroscuro.engine.loggers import Logger, MLflow, TensorBoard, WandB
from chiaroscuro.engine.monitors import watch
from chiaroscuro.engine.networks import Networks, build
from chiaroscuro.engine.optimisers import LARS, optimiser
from chiaroscuro.engine.reading import preset_summary, preset_text, presets, read_settings
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
from chiaroscuro.engine.suggestion import Suggestion, suggest
from chiaroscuro.engine.training import Callback, Moment, train

__all__ = [
    "LARS",
    "Callback",
    "DataSettings",
    "Formula",
    "Logger",
    "Look",
    "MLflow",
    "Moment",
    "NetworkSettings",
    "Networks",
    "OptimiserSettings",
    "Pairs",
    "SavingSettings",
    "ScheduleSettings",
    "Settings",
    "Suggestion",
    "SyncBatchNorm",
    "TensorBoard",
    "ViewSettings",
    "WandB",
    "anyone",
    "average_gradients",
    "barrier",
    "build",
    "cached_backward",
    "constant",
    "continued",
    "contrast_of",
    "cosine",
    "distributed_loss",
    "embed",
    "examine",
    "gather_rows",
    "held_out",
    "in_parallel",
    "inputs_of",
    "is_first",
    "joined_ranks",
    "linear",
    "load_networks",
    "look",
    "newest_weights",
    "open_training_data",
    "optimiser",
    "plain",
    "preset_summary",
    "preset_text",
    "presets",
    "rank",
    "read_settings",
    "share_buffers",
    "snapshots",
    "suggest",
    "sum_over_ranks",
    "synchronised",
    "together",
    "tokens",
    "towards_one",
    "train",
    "view_parameters",
    "watch",
    "world_size",
]
