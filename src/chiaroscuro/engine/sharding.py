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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from chiaroscuro.artifacts import checkpoints
from chiaroscuro.engine.distributed import (
    gather_rows,
    is_first,
    on_every_rank,
    rank,
    share_buffers,
    world_size,
)
from chiaroscuro.engine.networks import Networks
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.models import pack, unpack

__all__ = [
    "blocks",
    "clip_gradients",
    "fill",
    "load_moments",
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


def sharded(networks: Networks, device: torch.device) -> Networks:
    """Return networks of which each rank has its parts on the device; alone, they are moved there.

    The whole never is on a device: the parts are made empty, and the first rank sends out one
    tensor after the other. It keeps the networks on its host; those of other ranks lose their
    numbers.

    Args:
        networks: on the host, alike on every rank.
        device: device of the parts.
    """
    if world_size() == 1:
        return networks.to(device)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # of outputs that are views of one tensor: nobody changes them in place
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    mesh = init_device_mesh(device.type, (world_size(),))
    cut = _without_numbers(networks)
    for block in blocks(cut):
        fully_shard(block, mesh=mesh)
    fully_shard(cut, mesh=mesh)
    cut.to_empty(device=device)
    _send_parts(networks, cut, device)
    if is_first():
        for part, buffer in zip(cut.buffers(), networks.buffers(), strict=True):
            part.copy_(buffer)
    else:
        networks.to("meta")
    share_buffers(cut)
    return cut


@torch.no_grad()
def _send_parts(networks: Networks, cut: Networks, device: torch.device) -> None:
    """Send every parameter of the first rank to all, of which each keeps its part.

    All go through one buffer, as large as the largest of them: a backend may hold what it has sent
    for a while longer, which would add up.
    """
    pairs = list(zip(networks.parameters(), cut.parameters(), strict=True))
    sizes = [p.numel() * p.element_size() for p, _ in pairs]
    buffer = torch.empty(max(sizes, default=0), dtype=torch.uint8, device=device)
    for (whole, kept), size in zip(pairs, sizes, strict=True):
        sent = buffer[:size].view(whole.dtype).view(whole.shape)
        if is_first():
            sent.copy_(whole)
        dist.broadcast(sent, 0)
        parts = sent.chunk(world_size())
        if rank() < len(parts):  # of two rows, a third rank has none
            kept.to_local().copy_(parts[rank()])  # type: ignore[attr-defined]


def _without_numbers(networks: Networks) -> Networks:
    """Return a copy whose tensors have shapes and no numbers, without copying any."""
    memo: dict[int, Any] = {}
    for p in networks.parameters():
        memo[id(p)] = nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad)
    for buffer in networks.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(networks, memo)


def clip_gradients(parameters: Sequence[Tensor], most: float) -> None:
    """Scale gradients down to a norm of `most` together, whether they are cut over ranks or not.

    Args:
        parameters: with or without gradients; those of an objective are whole on every rank.
        most: the norm that is allowed.
    """
    kinds = [[p for p in parameters if isinstance(p, DTensor) == cut] for cut in (True, False)]
    if not all(kinds):
        nn.utils.clip_grad_norm_(parameters, most)
        return
    norms = [
        nn.utils.get_total_norm([p.grad for p in kind if p.grad is not None]) for kind in kinds
    ]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    total = torch.linalg.vector_norm(torch.stack(whole))
    for kind in kinds:
        nn.utils.clip_grads_with_norm_(kind, most, total)


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


def fill(whole: Networks, networks: nn.Module, everywhere: bool) -> None:
    """Give whole networks on the host the numbers of those that are cut, one tensor at a time.

    All ranks have to call this.

    Args:
        whole: of the first rank, or of all.
        networks: which are cut.
        everywhere: on every rank; else on the first.
    """
    filled = everywhere or is_first()
    if filled and any(p.is_meta for p in whole.parameters()):
        whole.to_empty(device="cpu")
    ours = dict(whole.named_parameters()) | dict(whole.named_buffers())
    with torch.no_grad():
        for name, t in [*networks.named_parameters(), *networks.named_buffers()]:
            full = t.full_tensor() if isinstance(t, DTensor) else t
            if filled:
                ours[name].copy_(full)


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
) -> list[str]:
    """Write the moments of an optimiser, each rank its parts; all have to call.

    The parts of a rank are a checkpoint of their own in `rank-00000` and so on: verified, synced to
    the disk and never unpickled. Returns the names of all ranks' checkpoints, which end in their
    checksums, for the checkpoint that counts on them.

    Args:
        modules, optimiser: all that learns, and its moments.
        folder: for all steps; older ones than the last `keep` are removed.
        step: after which.
        keep: how many steps are kept.
    """
    with _quietly():
        whole: dict[str, Any] = get_optimizer_state_dict(modules, optimiser)
    moments, rows = _parts(whole["state"])
    arrays, tree = pack({"moments": moments, "rows": rows, "groups": whole["param_groups"]})
    place = folder / _place(rank())
    path = on_every_rank(lambda: checkpoints.save(place, step, arrays, tree, keep))
    letters = torch.tensor(list(path.name.rjust(_LETTERS).encode()), dtype=torch.uint8)
    names = [bytes(row.tolist()).decode().strip() for row in gather_rows(letters[None])]
    on_every_rank(lambda: _tidy(folder, keep) if is_first() else None)
    return names


_LETTERS = 80
"""Longer than the name of any checkpoint."""


def _place(number: int) -> str:
    return f"rank-{number:05d}"


def _parts(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return this rank's part of each moment, and its first row of how many, where it is cut."""
    moments: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for name, values in state.items():
        moments[name] = {key: _local(value)[0] for key, value in values.items()}
        rows[name] = {key: _local(value)[1] for key, value in values.items()}
    return moments, rows


def _local(value: Any) -> tuple[Any, list[int] | None]:
    """Return what this rank has of a tensor, and its first row of how many, or None if all."""
    if not hasattr(value, "to_local"):
        return value, None
    mesh, placements = value.device_mesh, value.placements
    need(
        mesh.ndim == 1 and len(placements) == 1 and placements[0].is_shard(0),
        lambda: f"Moments need to be cut into rows over all ranks; they are {placements}.",
    )
    n = len(value)
    return value.to_local(), [min(n, mesh.get_local_rank() * -(-n // mesh.size())), n]


def _tidy(folder: Path, keep: int) -> None:
    """Remove what ranks left that are no more, once no checkpoint counts on it."""
    kept = sorted(path.name for path in (folder / _place(0)).iterdir() if "-step-" in path.name)
    oldest = _step_of(kept[0])
    for place in folder.glob("rank-*"):
        if int(place.name[5:]) >= world_size() and len(kept) >= keep:
            for path in place.glob("*-step-*"):
                if _step_of(path.name) < oldest:
                    shutil.rmtree(path)


def _step_of(name: str) -> int:
    return int(name.split("-")[2])


def load_moments(
    modules: nn.Module, optimiser: torch.optim.Optimizer, folder: Path, names: Sequence[str]
) -> None:
    """Read moments that any number of ranks wrote; all have to call.

    One part after the other is in memory.

    Args:
        modules, optimiser: as they were, on any number of ranks.
        folder: as for `save_moments`.
        names: as that returned.
    """
    with _quietly():
        whole: dict[str, Any] = get_optimizer_state_dict(modules, optimiser)
    filled: Counter[tuple[str, str]] = Counter()

    def fill(number: int, name: str) -> None:
        path = folder / _place(number) / Path(name).name
        checkpoint = checkpoints.load(path)
        try:
            part = unpack(checkpoint.arrays, checkpoint.state)
            for owner, values in whole["state"].items():
                for key in values:
                    source, rows = part["moments"][owner][key], part["rows"][owner][key]
                    filled[owner, key] += _fill(values, key, source, rows, number == 0)
            if number == 0:
                _set_groups(whole["param_groups"], part["groups"])
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ChiaroError(
                f"`{path}` does not hold the moments of these networks: {str(error)[:200]}."
            ) from None

    def check() -> None:
        for owner, values in whole["state"].items():
            for key, value in values.items():
                rows = _length(_local(value)[0])
                if filled[owner, key] != rows:
                    raise ChiaroError(
                        f"The {len(names)} parts in `{folder}` hold {filled[owner, key]} of {rows} "
                        f"rows of `{key}` of `{owner}`."
                    )

    for number, name in enumerate(names):
        on_every_rank(lambda number=number, name=name: fill(number, name))
    on_every_rank(check)
    with _quietly():
        set_optimizer_state_dict(modules, optimiser, whole)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, Tensor) and value.ndim else 1


def _fill(values: dict[str, Any], key: str, source: Any, rows: Any, is_first: bool) -> int:
    """Put what a part has of a moment into that of this rank; the number of rows that it had."""
    target, cut = _local(values[key])
    if rows is None and not is_first:
        return 0  # every rank wrote the same
    if not (isinstance(target, Tensor) and target.ndim):
        values[key] = source.to(target.device) if isinstance(target, Tensor) else source
        return 1
    mine, all_mine = cut or (0, len(target))
    theirs, all_theirs = rows or (0, len(source))
    if all_mine != all_theirs:
        raise ValueError(f"`{key}` has {all_theirs} rows, and {all_mine} are needed")
    start, stop = max(mine, theirs), min(mine + len(target), theirs + len(source))
    if stop > start:
        with torch.no_grad():
            target[start - mine : stop - mine].copy_(source[start - theirs : stop - theirs])
    return max(0, stop - start)


def _set_groups(groups: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    """Give groups of parameters the rates and options that they were saved with."""
    for group, then in zip(groups, saved, strict=True):
        if sorted(group["params"]) != sorted(then["params"]):
            raise ValueError(f"a group has {len(then['params'])} other parameters")
        group.update({key: value for key, value in then.items() if key != "params"})


@contextmanager
def _quietly() -> Iterator[None]:
    """torch warns of its own insides there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
