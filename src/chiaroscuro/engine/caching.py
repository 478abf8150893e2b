"""Gradient caching: the exact step of a large batch in the memory of a small one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from chiaroscuro.engine.distributed import distributed_loss, share_buffers
from chiaroscuro.errors import need
from chiaroscuro.objectives import Objective

__all__ = ["cached_backward"]

Encode = Callable[[Any], Tensor]

_REPEATS = 0.01
_REPEATS_IN_HALF = 0.1
"""How far the second embedding may be from the first, relative to the largest entry. Rounding
stays well below; another dropout mask or another augmentation does not."""


def cached_backward(
    encode: Encode | Sequence[Encode],
    views: Sequence[Any],
    loss: Objective | Callable[..., Tensor],
    micro_batch: int,
    scale: float | Tensor | Callable[[Tensor], Tensor] = 1.0,
    later: list[Callable[[], None]] | None = None,
) -> Tensor:
    """Run the backward pass of a batch of any size, holding the graph of one micro-batch at a time.

        z_v = encode(x_v) in micro-batches, without a graph
        g_v = d loss(z_1, z_2, ...) / d z_v
        d loss / d theta = sum over micro-batches b of  g_vb . d encode(x_vb) / d theta

    Each micro-batch is embedded twice, the second time with a graph and with the random state of
    the first. Parameters receive the same gradients as from `loss(encode(x1), encode(x2))
    .backward()`, dropout included, at the price of one more forward pass [gao2021gradcache].
    This is not gradient accumulation, which shows every micro-batch only its own negatives.

    Batch statistics are the exception. With BatchNorm in training mode every micro-batch is
    normalised by its own statistics ("ghost" batches), so the step is that of a network so
    normalised, not the plain step on the whole batch. Buffers change as in *one* pass over the
    micro-batches: they are put back after the first. In evaluation mode BatchNorm is an affine
    map and the step is the plain one. SyncBatchNorm takes the b-th micro-batches of all ranks
    together: each rank must then have as many of them. GroupNorm and LayerNorm need no thought.

    Several ranks: an objective goes through `distributed_loss`, so all ranks together make one
    batch. A `DistributedDataParallel` encoder synchronises once, in its last micro-batch; ranks
    may have different numbers of them. Parameters of the objective receive their gradient once;
    follow with `average_gradients(objective.parameters())`.

    Relations: with `micro_batch >= n` and no randomness it is the plain step. Gradients are added
    to what `.grad` already holds, as `backward` does.

    Args:
        encode: a module or function from a batch to embeddings (n, d), or one for each view.
            Buffers and synchronisation are looked after where it is a module, a method of one,
            or a function that refers to modules by name.
        views: the views of the batch; each a tensor, anything else with rows that can be sliced,
            or a dict of such.
        loss: an objective, or any function of the embeddings of the views to a scalar, such as
            `lambda z1, z2: distributed_loss(objective, z1, z2, labels)`.
        micro_batch: rows embedded at a time; the last micro-batch of a view may be smaller.
        scale: multiplies the loss for the backward pass: a number, or a `GradScaler`'s `scale`.
        later: on an accelerator, takes the comparison of both embeddings as a function to be
            called when the host waits anyway; None compares at once.

    Returns:
        The loss, unscaled and detached.

    Numerics: autocast applies to `encode` and `loss` as where this is called, and never to the
    backward passes. If the second embedding differs from the first (random numbers from outside
    torch, say), the gradients would be wrong and it raises.

    References:
        gao2021gradcache

    Example:
        >>> from chiaroscuro.objectives import InfoNCE
        >>> encode, x1, x2 = nn.Linear(5, 3), torch.randn(9, 5), torch.randn(9, 5)
        >>> loss = cached_backward(encode, (x1, x2), InfoNCE(), micro_batch=4)
        >>> bool(torch.isclose(loss, InfoNCE()(encode(x1), encode(x2))))
        True
    """
    pieces = _pieces(encode, views, micro_batch)
    if isinstance(loss, Objective):
        loss = partial(distributed_loss, loss)
    with torch.enable_grad():
        z = _embedded(pieces)
        value = loss(*z)
        need(
            isinstance(value, Tensor) and value.numel() == 1 and value.requires_grad,
            lambda: (
                "`cached_backward(loss)` needs a scalar that depends on the embeddings; "
                f"received {value!r}."
            ),
        )
        with _without_autocast():
            (scale(value) if callable(scale) else value * scale).backward()
        check = _replay(pieces, z)
    if later is None or z[0].device.type == "cpu":
        check()
    else:
        later.append(check)
    return value.detach()


@dataclass
class _Piece:
    """A micro-batch: some rows of one view, and what is needed to embed them twice alike."""

    encode: Encode
    modules: list[nn.Module]
    view: int
    rows: slice
    x: Any
    random: list[Tensor] = field(default_factory=list)
    last: bool = True
    """No later piece that has a gradient shares a module with it."""


def _pieces(
    encode: Encode | Sequence[Encode], views: Sequence[Any], micro_batch: int
) -> list[_Piece]:
    need(
        isinstance(micro_batch, int) and not isinstance(micro_batch, bool) and micro_batch > 0,
        lambda: (
            "`cached_backward(micro_batch)` needs a whole number of at least 1 row; received "
            f"{micro_batch!r}."
        ),
    )
    need(
        isinstance(views, (tuple, list)) and len(views) > 0,
        lambda: (
            "`cached_backward(views)` needs a tuple of views, `(x1, x2)`; received "
            f"{len(views) if isinstance(views, (tuple, list)) else type(views).__name__}."
        ),
    )
    encoders: list[Any] = [encode] * len(views)
    if isinstance(encode, (tuple, list)):
        encoders = list(encode)
    need(
        len(encoders) == len(views) and all(map(callable, encoders)),
        lambda: (
            "`cached_backward(encode)` needs one function, or one for each of "
            f"{len(views)} views; received {[type(e).__name__ for e in encoders]}."
        ),
    )
    pieces = []
    for v, (each, x) in enumerate(zip(encoders, views, strict=True)):
        modules, n = _modules(each), _length(x, v)
        for start in range(0, max(n, 1), micro_batch):  # a rank without rows still takes part
            rows = slice(start, min(start + micro_batch, n))
            pieces.append(_Piece(each, modules, v, rows, x))
    return pieces


def _length(x: Any, view: int) -> int:
    lengths = {len(part) for part in (x.values() if isinstance(x, Mapping) else [x])}
    need(
        len(lengths) == 1,
        lambda: (
            "`cached_backward(views)` needs as many rows in all parts of a view; received "
            f"{sorted(lengths)} in view {view}."
        ),
    )
    return lengths.pop()


def _run(piece: _Piece) -> Tensor:
    x, rows = piece.x, piece.rows
    some = {name: part[rows] for name, part in x.items()} if isinstance(x, Mapping) else x[rows]
    z = piece.encode(some)
    expected = rows.stop - rows.start
    need(
        isinstance(z, Tensor) and z.ndim == 2 and len(z) == expected,
        lambda: (
            f"`cached_backward(encode)` needs a matrix of one embedding for each of {expected} "
            f"rows; received {tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__}."
        ),
    )
    return z


def _embedded(pieces: list[_Piece]) -> list[Tensor]:
    """Return the embeddings of each view as leaves; every piece remembers its random state."""
    views: dict[int, list[Tensor]] = {}
    with torch.no_grad(), _buffers_put_back(pieces):
        for piece in pieces:
            piece.random = _random_state()
            views.setdefault(piece.view, []).append(_run(piece))
    # torch before 2.11 would use weights again that it cast without a graph: no gradient for them
    torch.clear_autocast_cache()
    return [torch.cat(parts).requires_grad_() for parts in views.values()]


def _replay(pieces: list[_Piece], embeddings: list[Tensor]) -> Callable[[], None]:
    """Embed every piece again, with a graph, and send its part of the gradient down.

    Returns what refuses embeddings that are not those of the first time.
    """
    now = _random_state()
    pending: set[nn.Module] = set()
    for piece in reversed(pieces):
        if embeddings[piece.view].grad is not None:
            piece.last = pending.isdisjoint(piece.modules)
            pending.update(piece.modules)
    drift, size = torch.zeros(()), torch.zeros(())
    for piece in pieces:
        z0, g = embeddings[piece.view].detach()[piece.rows], embeddings[piece.view].grad
        _set_random_state(piece.random)
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(g is not None))
            for module in piece.modules:
                if not piece.last and _parallel(module):
                    stack.enter_context(cast(Any, module).no_sync())
            z = _run(piece)
            if g is not None and z.requires_grad:
                with _without_autocast():
                    z.backward(g[piece.rows])
        if len(z):
            drift = torch.maximum(drift.to(z.device), (z.detach() - z0).abs().amax())
            size = torch.maximum(size.to(z.device), z0.abs().amax())
    _set_random_state(now)
    half = any(z.dtype in (torch.float16, torch.bfloat16) for z in embeddings)
    half = half or any(map(torch.is_autocast_enabled, _device_types()))
    moved = torch.stack([drift, size])

    def check() -> None:
        most, scale = moved.tolist()
        _require_repeated(most, scale, half)

    return check


def _require_repeated(drift: float, size: float, half: bool) -> None:
    need(
        drift <= (_REPEATS_IN_HALF if half else _REPEATS) * size,
        lambda: (
            "`cached_backward(encode)` needs to embed the same rows alike twice; received "
            f"embeddings of size up to {size:.3g} that moved by {drift:.3g}, so the gradients are "
            "wrong. Random numbers must come from torch, and calls must not depend on earlier ones."
        ),
    )


def _modules(encode: Encode) -> list[nn.Module]:
    """Return the modules a callable runs: itself, its owner, what it wraps, or those it names."""
    objects = [encode, getattr(encode, "__self__", None), getattr(encode, "func", None)]
    if inspect.isfunction(encode):
        names = inspect.getclosurevars(encode)
        objects += [*names.nonlocals.values(), *names.globals.values()]
    return [thing for thing in objects if isinstance(thing, nn.Module)]


def _parallel(module: nn.Module) -> bool:
    """Return whether it adds up gradients over ranks by itself,
    as `DistributedDataParallel` does.
    """
    return hasattr(module, "no_sync")


@contextmanager
def _buffers_put_back(pieces: list[_Piece]) -> Iterator[None]:
    """Buffers of all encoders end as they began: the replay goes through the same states."""
    modules = dict.fromkeys(module for piece in pieces for module in piece.modules)
    for module in modules:
        # what DistributedDataParallel would do in its next forward pass, before we look
        if _parallel(module) and getattr(module, "broadcast_buffers", False):
            share_buffers(module, module.process_group)
    before = [
        (part, name, buffer, buffer.clone())
        for part in dict.fromkeys(part for module in modules for part in module.modules())
        for name, buffer in part.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for part, name, buffer, value in before:
            buffer.copy_(value)
            if getattr(part, name) is not buffer:  # it was replaced, not changed
                setattr(part, name, buffer)


def _random_state() -> list[Tensor]:
    """Return the state of torch's generators, of the CPU and of every CUDA device."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *cuda]


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1:])


def _device_types() -> list[str]:
    accelerator = torch.accelerator.current_accelerator()
    return ["cpu"] if accelerator is None else ["cpu", accelerator.type]


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Backward passes run in the precision their forward pass chose, as outside of autocast."""
    with ExitStack() as stack:
        for device in _device_types():
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
