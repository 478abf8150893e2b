"""Training: settings, the loop, checkpoints; several ranks as one batch; embedding."""

from chiaroscuro.engine.batches import Pairs, open_training_data, plain, tokens
from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.distributed import (
    average_gradients,
    barrier,
    distributed_loss,
    gather_rows,
    is_first,
    joined_ranks,
    rank,
    share_buffers,
    world_size,
)
from chiaroscuro.engine.embedding import embed, held_out, load_networks, newest_weights
from chiaroscuro.engine.networks import Networks, build
from chiaroscuro.engine.optimisers import LARS, optimiser
from chiaroscuro.engine.schedules import constant, cosine, linear
from chiaroscuro.engine.settings import (
    DataSettings,
    NetworkSettings,
    OptimiserSettings,
    SavingSettings,
    ScheduleSettings,
    Settings,
    ViewSettings,
    preset_text,
    presets,
    read_settings,
)
from chiaroscuro.engine.training import Callback, Moment, train

__all__ = [
    "LARS",
    "Callback",
    "DataSettings",
    "Moment",
    "NetworkSettings",
    "Networks",
    "OptimiserSettings",
    "Pairs",
    "SavingSettings",
    "ScheduleSettings",
    "Settings",
    "ViewSettings",
    "average_gradients",
    "barrier",
    "build",
    "cached_backward",
    "constant",
    "cosine",
    "distributed_loss",
    "embed",
    "gather_rows",
    "held_out",
    "is_first",
    "joined_ranks",
    "linear",
    "load_networks",
    "newest_weights",
    "open_training_data",
    "optimiser",
    "plain",
    "preset_text",
    "presets",
    "rank",
    "read_settings",
    "share_buffers",
    "tokens",
    "train",
    "world_size",
]
