"""One forward pass and d backward passes: every layer's inputs and gradients of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from chiaroscuro.dynamics.factors import BUDGET, Factor, Lazy, Rows
from chiaroscuro.dynamics.layers import LAYERS, factor_of
from chiaroscuro.errors import need

__all__ = ["check_module", "factors", "outputs_of", "plain_attention", "trainable"]

_SAME = {torch.float64: 1e-8, torch.float32: 1e-3}
"""How far, relatively, rounding may part two ways to one gradient; faults do so by order 1."""


class _Call(NamedTuple):
    layer: Any
    a: Tensor
    y: Tensor


def trainable(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that the kernel sums over: those that require gradients, each once."""
    parameters: dict[str, Tensor] = {
        name: p for name, p in module.named_parameters() if p.requires_grad
    }
    need(
        len(parameters) > 0,
        lambda: (
            f"A neural kernel needs trainable parameters; `{type(module).__name__}` has "
            f"{sum(1 for _ in module.parameters())}, and none requires gradients."
        ),
    )
    return parameters


def check_module(module: nn.Module) -> None:
    """Refuse what makes an output depend on chance or on the other samples of the batch."""
    need(
        isinstance(module, nn.Module),
        lambda: f"A neural kernel needs a module with parameters; received {module!r}.",
    )
    for name, layer in module.named_modules():
        need(
            not getattr(layer, "scale_grad_by_freq", False),
            lambda name=name, layer=layer: (
                f"A neural kernel needs true gradients; layer `{name}`, {layer}, divides them by "
                "how often a batch has an entry. Leave out `scale_grad_by_freq`."
            ),
        )
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            bad = layer.training or layer.running_mean is None
        else:
            bad = (
                isinstance(layer, nn.modules.dropout._DropoutNd) and layer.training and layer.p > 0
            )
        need(
            not bad,
            lambda name=name, layer=layer: (
                "A neural kernel needs outputs that depend on their own sample alone; layer "
                f"`{name}`, {layer}, is in training mode or has no running statistics. Call "
                "`.eval()`."
            ),
        )


def outputs_of(module: nn.Module, x: Tensor) -> Tensor:
    """module(x), if it is one row of finite numbers for each sample, and the same when asked again.

    Chance inside `forward` (`F.dropout`, attention in training mode) shows in no list of layers.
    """
    z = module(x)
    need(
        isinstance(z, Tensor) and z.is_floating_point() and z.ndim == 2 and len(z) == len(x),
        lambda: (
            f"A neural kernel needs outputs (n, d), one row for each of {len(x)} samples; received "
            f"{getattr(z, 'dtype', type(z).__name__)} of shape {tuple(getattr(z, 'shape', ()))}."
        ),
    )
    bad = int((~z.isfinite().all(dim=1)).sum())
    need(
        bad == 0,
        lambda: (
            f"A neural kernel needs finite outputs; {bad} of {len(z)} rows have NaN or infinity."
        ),
    )
    with torch.no_grad():
        off = _apart(module(x), z)
    need(
        off <= _SAME.get(z.dtype, 1e-1),
        lambda: (
            f"A neural kernel needs outputs without chance; those of `{type(module).__name__}` "
            f"change by {off:.3g}, relatively, from one call to the next. Call `.eval()`."
        ),
    )
    return z


def _apart(a: Tensor, b: Tensor) -> float:
    """|a - b| / |b|."""
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def factors(module: nn.Module, x: Tensor) -> tuple[Tensor, list[Factor]]:
    """Outputs (n, d), and the gradients of each by all trainable parameters, in factors.

    Layers of `LAYERS` give their factor from inputs and gradients of outputs. Each is checked: the
    gradient that it implies for random weights of the outputs must be the one that autograd finds.
    Where it is not (a weight that is used by other means too), and for all other parameters, the
    gradients come from `torch.func`, or from one backward pass after the other.
    """
    check_module(module)
    parameters = trainable(module)
    with torch.enable_grad(), _recorded(module) as calls:
        z = outputs_of(module, x)
    kept, covered = [], set()
    if calls:
        names = {id(p): name for name, p in parameters.items()}
        u = torch.randn(z.shape, generator=torch.Generator().manual_seed(0)).to(z)
        truth = dict(zip(parameters, _backward(z, u, list(parameters.values())), strict=True))
        for layer, each in _by_layer(z, calls).items():
            factor = factor_of(layer, each)
            own = [names[id(p)] for p in layer.parameters() if p.requires_grad]
            if all(
                _same(*pair) for pair in zip(factor.weighed(u), map(truth.get, own), strict=True)
            ):
                kept.append(factor)
                covered |= set(own)
    rest = [name for name in parameters if name not in covered]
    if rest:
        kept.append(_by_func(module, parameters, rest, x, z.detach()))
    return z.detach(), kept


def _structured(module: nn.Module) -> list[nn.Module]:
    """Layers of known structure with trainable parameters that are theirs alone."""
    owners: dict[int, int] = {}
    for layer in module.modules():
        for p in layer.parameters(recurse=False):
            owners[id(p)] = owners.get(id(p), 0) + 1
    return [
        layer
        for layer in module.modules()
        if type(layer) in LAYERS
        and {name for name, _ in layer.named_parameters()} <= {"weight", "bias"}
        and any(p.requires_grad for p in layer.parameters())
        and all(owners[id(p)] == 1 for p in layer.parameters())
    ]


@contextmanager
def _recorded(module: nn.Module) -> Iterator[list[_Call]]:
    """Inputs and outputs of the structured layers of everything that is called inside."""
    calls: list[_Call] = []

    def record(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if not inputs or not isinstance(output, Tensor) or not output.requires_grad:
            return None
        calls.append(_Call(layer, inputs[0].detach(), output))
        return output.clone()  # what comes next may work in place

    hooks = [layer.register_forward_hook(record, prepend=True) for layer in _structured(module)]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _by_layer(z: Tensor, calls: list[_Call]) -> dict[Any, list[tuple[Tensor, Tensor]]]:
    """Inputs (n, ...) and gradients of outputs (n, d, ...) of each layer that goes row by row."""
    n, d = z.shape
    ys = [call.y for call in calls]
    u = torch.ones_like(z)
    u[[0, -1]] = 0  # nothing of the first and last outputs, so nothing to the first and last rows
    alone = [
        _goes_by_sample(call, n) and not g[[0, -1]].any()
        for call, g in zip(calls, _backward(z, u, ys), strict=True)
    ]
    mixed = {call.layer for call, good in zip(calls, alone, strict=True) if not good}
    kept = [call for call in calls if call.layer not in mixed]
    grads = []
    for k in range(d if kept else 0):
        u = torch.zeros_like(z)
        u[:, k] = 1
        grads.append(_backward(z, u, [call.y for call in kept]))
    by_layer: dict[Any, list[tuple[Tensor, Tensor]]] = {}
    for at, call in enumerate(kept):
        by_layer.setdefault(call.layer, []).append((call.a, torch.stack([g[at] for g in grads], 1)))
    return by_layer


def _goes_by_sample(call: _Call, n: int) -> bool:
    if len(call.y) != n or call.a.ndim == 0 or len(call.a) != n:
        return False
    if isinstance(call.layer, nn.Conv1d | nn.Conv2d):
        return call.a.ndim == call.layer.weight.ndim
    return call.a.ndim >= 2 or isinstance(call.layer, nn.Embedding)


def _backward(z: Tensor, u: Tensor, of: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of sum u z."""
    return torch.autograd.grad(
        z, of, u, retain_graph=True, allow_unused=True, materialize_grads=True
    )


def _same(a: Tensor, b: Any) -> bool:
    b = b.to_dense() if b.is_sparse else b
    tolerance = _SAME.get(a.dtype, 1e-1)
    return bool((a - b).norm() <= tolerance * (a.norm() + b.norm()) / 2 + 1e-30)


def _by_func(
    module: nn.Module, parameters: dict[str, Tensor], rest: list[str], x: Tensor, z: Tensor
) -> Lazy:
    """Gradients by `vmap(grad)`, sample by sample, for groups of parameters that fit together.

    Where `vmap` has no rule (recurrent layers, buffers that `forward` writes to), by backward
    passes of one sample after the other.
    """
    fixed = {name: p.detach() for name, p in parameters.items()}

    def one(some: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(module, {**fixed, **some}, (row[None],))[0]

    def at_once(some: dict[str, Tensor], rows: Tensor, outputs: int) -> list[dict[str, Tensor]]:
        return [  # output by output: nested vmap fails for some layers
            vmap(grad(lambda some, row, k=k: one(some, row)[k]), in_dims=(None, 0))(some, rows)
            for k in range(outputs)
        ]

    with plain_attention():
        try:
            at_once({name: fixed[name] for name in rest}, x[:1], 1)
            with torch.no_grad():
                alone = vmap(one, in_dims=(None, 0))({}, x)
            each = at_once
        except RuntimeError:  # a missing rule has many names
            with torch.no_grad():
                alone = torch.stack([one({}, row) for row in x])
            each = partial(_in_turn, one)
    off = _apart(alone, z)
    need(
        off <= _SAME.get(z.dtype, 1e-1),
        lambda: (
            "A neural kernel needs outputs that depend on their own sample alone; those of "
            f"`{type(module).__name__}` change by {off:.3g}, relatively, outside their batch."
        ),
    )
    groups: list[list[str]] = []
    size = 0
    for name in rest:
        bytes_ = z.numel() * fixed[name].numel() * fixed[name].element_size()
        if not groups or size + bytes_ > BUDGET:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += bytes_

    def gradients(names: list[str]) -> Rows:
        with plain_attention():
            per_output = each({name: fixed[name] for name in names}, x, z.shape[1])
        return Rows(tuple(torch.stack([g[name] for g in per_output], dim=1) for name in names))

    return Lazy(tuple(partial(gradients, names) for names in groups))


def _in_turn(
    one: Callable[[dict[str, Tensor], Tensor], Tensor],
    some: dict[str, Tensor],
    rows: Tensor,
    outputs: int,
) -> list[dict[str, Tensor]]:
    """Of each output, the gradients of all rows by name: a backward pass for every number."""
    per_output: list[list[tuple[Tensor, ...]]] = [[] for _ in range(outputs)]
    for row in rows:
        with torch.enable_grad():
            leaves = {name: p.detach().requires_grad_() for name, p in some.items()}
            z = one(leaves, row) + 0 * sum(p.sum() for p in leaves.values())  # also if unused
            for k in range(outputs):
                per_output[k].append(_backward(z[k], torch.ones_like(z[k]), list(leaves.values())))
    return [
        {name: torch.stack([g[at] for g in each]) for at, name in enumerate(some)}
        for each in per_output
    ]


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention by ordinary operations inside: fused forms have no vmap, no second derivative."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
