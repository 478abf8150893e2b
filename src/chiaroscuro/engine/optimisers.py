"""Optimisers: LARS, and torch's SGD and AdamW with bias and norms left out of the decay."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.engine.settings import OptimiserSettings
from chiaroscuro.errors import need

__all__ = ["LARS", "Optimiser", "as_optimiser", "optimiser"]


Optimiser = torch.optim.Optimizer | OptimiserSettings | Callable[[list[Any]], Any]
"""An optimiser of torch, settings of one, or a function from a list of parameters to one."""


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling [you2017lars, Alg. 1].

        trust = eta |w| / (|g| + decay |w|)       1 where |w| or |g| is 0, or the layer is excluded
        v <- momentum v + lr trust (g + decay w)
        w <- w - v

    Every tensor moves by a share of its own norm, whatever the size of its gradient. Tensors of one
    dimension or none (biases, the scales of normalisations, temperatures) are excluded by
    `optimiser`: for them it is SGD without decay, as in the code of [chen2020simclr].

    Relations: excluded tensors without decay follow `torch.optim.SGD` while lr is constant.

    Args:
        params: tensors or groups; a group with `exclude=True` has trust 1 and no decay.
        lr: 0.3 batch / 256 [chen2020simclr, Sec. 2.3].
        momentum: 0.9 [you2017lars, Sec. 5].
        weight_decay: 1e-6 [chen2020simclr, Sec. 2.3].
        eta: 0.001 [you2017lars, Sec. 5].

    References:
        you2017lars, chen2020simclr

    Example:
        >>> w = nn.Parameter(torch.full((2, 2), 1.0))
        >>> w.grad = torch.full((2, 2), 1e6)
        >>> LARS([w], lr=1.0, weight_decay=0.0).step()  # moves by 0.001 |w| all the same
        >>> round(w[0, 0].item(), 6)
        0.999
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 1e-6,
        eta: float = 0.001,
    ):
        need(
            lr >= 0 and 0 <= momentum < 1 and weight_decay >= 0 and eta > 0,
            lambda: (
                "`LARS` needs `lr >= 0`, `0 <= momentum < 1`, `weight_decay >= 0` and `eta > 0`; "
                f"received {lr}, {momentum}, {weight_decay} and {eta}."
            ),
        )
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eta": eta}
        super().__init__(params, {**defaults, "exclude": False})
        # a gradient scaler then leaves it to the device whether a step is taken
        self._step_supports_amp_scaling = True

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every tensor that has a gradient."""
        need(closure is None, "`LARS.step` takes no closure; call `backward` before it.")
        for group in self.param_groups:
            alike: dict[tuple[torch.device, torch.dtype, bool], list[Tensor]] = {}
            for w in group["params"]:
                if w.grad is not None:  # parts of tensors and whole ones are not moved together
                    kind = w.device, w.dtype, _is_cut(w)
                    alike.setdefault(kind, []).append(w)
            for weights in alike.values():
                self._move(weights, [w.grad for w in weights], group)

    def _move(self, weights: list[Tensor], slopes: list[Tensor], group: dict[str, Any]) -> None:
        """Tensors of one device and format, all of them in a few operations."""
        rate = group["lr"]
        if group["exclude"]:
            moves = torch._foreach_mul(slopes, rate)
        else:
            decay = group["weight_decay"]
            size = torch.stack(torch._foreach_norm(weights))
            slope = torch.stack(torch._foreach_norm(slopes))
            trust = group["eta"] * size / (slope + decay * size)
            trust = torch.where((size > 0) & (slope > 0), trust, 1.0) * rate
            moves = torch._foreach_add(slopes, weights, alpha=decay)
            torch._foreach_mul_(moves, list(trust.unbind()))
        for w in weights:
            if "v" not in self.state[w]:
                self.state[w]["v"] = torch.zeros_like(w)
        velocities = [self.state[w]["v"] for w in weights]
        overflowed = getattr(self, "found_inf", None)
        if overflowed is not None:  # set by a gradient scaler: the device takes the step or not
            parts = [[_part(t) for t in some] for some in (weights, moves, velocities)]
            torch._fused_sgd_(
                *parts,
                weight_decay=0.0,
                momentum=group["momentum"],
                lr=1.0,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
                found_inf=overflowed,
            )
            return
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, moves)
        torch._foreach_sub_(weights, velocities)


def _is_cut(t: Tensor) -> bool:
    """Return whether a tensor is one of which each rank has a part."""
    return hasattr(t, "to_local")


def _part(t: Tensor) -> Tensor:
    """Return what this rank has of a tensor, in the same memory."""
    return t.to_local() if _is_cut(t) else t  # type: ignore[attr-defined]


def optimiser(
    settings: OptimiserSettings, *modules: nn.Module, scaled: bool = False
) -> torch.optim.Optimizer:
    """Return the optimiser that the settings name, on all parameters of the modules.

    Parameters of one dimension or none are in a group of their own, without decay and, for LARS,
    without trust ratio.

    Args:
        settings: name, lr and what goes with them.
        modules: networks, and an objective that learns its temperature.
        scaled: whether a gradient scaler steps it, in float16: the device then decides whether a
            step is taken, and nobody waits for it.

    Example:
        >>> from chiaroscuro.engine.settings import OptimiserSettings
        >>> groups = optimiser(OptimiserSettings(name="sgd"), nn.Linear(3, 2)).param_groups
        >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
        [(1, 1e-06), (1, 0.0)]
    """
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    need(bool(parameters), "`optimiser` needs parameters that want a gradient; received 0.")
    weights = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim <= 1]
    groups = [
        {"params": weights, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if settings.name == "lars":
        groups[1]["exclude"] = True
        return LARS(groups, settings.lr, settings.momentum, eta=settings.trust)
    fused = True if scaled else None  # only those leave the decision to the device
    if settings.name == "sgd":
        if any(map(_is_cut, parameters)):
            fused = None  # torch has no such step of parts of tensors: the host decides
        made = torch.optim.SGD(groups, settings.lr, settings.momentum, fused=fused)
        for p in parameters if fused and settings.momentum else ():
            # torch leaves them as memory was where the first step is not taken
            made.state[p]["momentum_buffer"] = torch.zeros_like(p)
        return made
    moments = settings.momentum, settings.second_momentum
    return torch.optim.AdamW(groups, settings.lr, moments, fused=fused)


def as_optimiser(
    what: Optimiser, *modules: nn.Module, scaled: bool = False
) -> torch.optim.Optimizer:
    """Return an optimiser of the modules' parameters, made if need be.

    Args:
        what: an optimiser, which has to hold parameters of the modules; settings; or a function
            such as `lambda parameters: torch.optim.Adam(parameters, 1e-3)`.
        modules: networks, and an objective that may learn.
        scaled: as for `optimiser`.

    Example:
        >>> type(as_optimiser(lambda p: torch.optim.SGD(p, 0.1), nn.Linear(3, 2))).__name__
        'SGD'
    """
    if isinstance(what, OptimiserSettings):
        return optimiser(what, *modules, scaled=scaled)
    need(
        isinstance(what, torch.optim.Optimizer) or callable(what),
        lambda: (
            "An optimiser needs one of torch's, `OptimiserSettings`, or a function from parameters "
            f"to one; received {what!r}."
        ),
    )
    wanted = [p for module in modules for p in module.parameters() if p.requires_grad]
    made = what if isinstance(what, torch.optim.Optimizer) else what(wanted)
    need(
        isinstance(made, torch.optim.Optimizer),
        lambda: f"An optimiser of torch is needed; received `{type(made).__name__}`.",
    )
    _, *arguments = inspect.signature(type(made).step).parameters.values()
    plain = (p for p in arguments if p.kind is p.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in plain if p.default is p.empty]
    need(
        not needed,
        lambda: (
            f"An optimiser needs a step without arguments; that of `{type(made).__name__}` takes "
            f"`{', '.join(needed)}`. Those that evaluate the loss again, as LBFGS does, are for "
            "loops of one's own."
        ),
    )
    known = {id(p) for module in modules for p in module.parameters()}
    held = [p for group in made.param_groups for p in group["params"]]
    strange = sum(id(p) not in known for p in held)
    need(
        strange < len(held),
        lambda: (
            f"The optimiser needs parameters of the networks that are trained; of its {len(held)} "
            "tensors none is one of theirs. Make it after the networks are, on their parameters."
        ),
    )
    return made
