"""Running a step: several ranks as one batch, and large batches in constant memory."""

from chiaroscuro.engine.caching import cached_backward
from chiaroscuro.engine.distributed import (
    average_gradients,
    barrier,
    distributed_loss,
    gather_rows,
    is_first,
    rank,
    share_buffers,
    world_size,
)

__all__ = [
    "average_gradients",
    "barrier",
    "cached_backward",
    "distributed_loss",
    "gather_rows",
    "is_first",
    "rank",
    "share_buffers",
    "world_size",
]
