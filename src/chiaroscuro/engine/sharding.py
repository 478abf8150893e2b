"""Networks too large for one device: cut over the ranks (FSDP2), and activations made twice.

`fully_shard` keeps of every parameter, gradient and moment one part on each rank, and gathers a
block of layers when its turn comes. A checkpoint holds the whole weights, as always; the moments of
the optimiser lie beside it in parts, which any number of ranks can read again.
"""

from __future__ import annotations

import copy
import functools
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import checkpoint as sharded_files
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.utils.checkpoint import checkpoint

from chiaroscuro.engine.distributed import is_first, on_every_rank, world_size
from chiaroscuro.engine.networks import Networks
from chiaroscuro.errors import need

__all__ = [
    "blocks",
    "load_moments",
    "plain_copy",
    "recomputed",
    "save_moments",
    "set_whole_weights",
    "sharded",
    "whole_weights",
]

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def blocks(networks: nn.Module) -> list[nn.Module]:
    """Return the layers that come one after the other: what is gathered or made again at a time.

    Those are, in each encoder and projector, the elements of the outermost lists and sequences
    that have parameters.

    Example:
        >>> layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
        >>> [type(block).__name__ for block in blocks(Networks([layers]))]
        ['Linear', 'Sequential']
    """
    if not isinstance(networks, Networks):
        return _elements(networks)
    parts = [*networks.encoders, *networks.projectors, networks.predictor]
    return [block for part in parts if part is not None for block in _elements(part)]


def _elements(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential | nn.ModuleList):
        return [child for child in module if any(True for _ in child.parameters())]
    return [block for child in module.children() for block in _elements(child)]


def sharded(networks: Networks) -> Networks:
    """Cut networks over the ranks, in place; alone, they stay as they are.

    Args:
        networks: on their device; made into networks whose parameters are parts.
    """
    if world_size() == 1:
        return networks
    from torch.distributed.fsdp import fully_shard

    # of outputs that are views of one tensor: nobody changes them in place
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    for block in blocks(networks):
        fully_shard(block)
    fully_shard(networks)
    return networks


def recomputed(networks: nn.Module) -> nn.Module:
    """Let blocks of layers make their activations again in the backward pass, in place.

    Memory holds those of one block and the inputs of all; a step takes a third longer.

    Args:
        networks: without batch norms, whose running statistics would move twice.
    """
    norms = [m for m in networks.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    need(
        not norms,
        lambda: (
            f"`recompute` needs networks without batch norms, which would see each batch twice; "
            f"there are {len(norms)}. Take layer norms, as in `ViT`, or `micro_batch`."
        ),
    )
    for block in blocks(networks):
        kind = type(block)
        block.__class__ = _twice(kind)  # type: ignore[arg-type]
    return networks


@functools.cache
def _twice(kind: type[nn.Module]) -> type[nn.Module]:
    """Return the same class, of which activations are not kept."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return kind.forward(self, *args, **kwargs)
        return checkpoint(
            functools.partial(kind.forward, self), *args, use_reentrant=False, **kwargs
        )

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def plain_copy(networks: Networks) -> Networks:
    """Return a copy on the CPU, made before networks are cut, for `whole_weights` to fill."""
    return copy.deepcopy(networks).to("cpu").requires_grad_(False)


def whole_weights(networks: nn.Module) -> dict[str, Tensor]:
    """Return all weights on the CPU of the first rank, {} elsewhere; all ranks have to call."""
    weights: dict[str, Any] = get_model_state_dict(networks, options=_WHOLE)
    return weights


def set_whole_weights(networks: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give each rank its part of whole weights, which all of them have."""
    whole: dict[str, Any] = dict(weights)
    set_model_state_dict(networks, whole, options=StateDictOptions(full_state_dict=True))


def save_moments(
    modules: nn.Module, optimiser: torch.optim.Optimizer, folder: Path, step: int, keep: int
) -> None:
    """Write the moments of an optimiser, each rank its parts; all have to call.

    Args:
        modules, optimiser: all that learns, and its moments.
        folder: for all steps; older ones than the last `keep` are removed.
        step: after which.
        keep: how many steps are kept.
    """
    with _quietly():
        state = {"moments": get_optimizer_state_dict(modules, optimiser)}
        sharded_files.save(state, checkpoint_id=folder / f"{step:08d}", no_dist=world_size() == 1)

    def tidy() -> None:
        for old in sorted(path for path in folder.iterdir() if path.is_dir())[:-keep]:
            shutil.rmtree(old)

    on_every_rank(lambda: tidy() if is_first() else None)


def load_moments(
    modules: nn.Module, optimiser: torch.optim.Optimizer, folder: Path, step: int
) -> None:
    """Read moments that any number of ranks wrote; all have to call.

    Args:
        modules, optimiser: as they were, on any number of ranks.
        folder, step: as for `save_moments`.
    """
    place = folder / f"{step:08d}"
    need(
        (place / ".metadata").is_file(),
        lambda: f"`{place}` needs to hold the moments of step {step}; they are not there.",
    )
    with _quietly():
        state = {"moments": get_optimizer_state_dict(modules, optimiser)}
        sharded_files.load(state, checkpoint_id=place, no_dist=world_size() == 1)
        set_optimizer_state_dict(modules, optimiser, state["moments"])


@contextmanager
def _quietly() -> Iterator[None]:
    """torch warns of its own insides there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
