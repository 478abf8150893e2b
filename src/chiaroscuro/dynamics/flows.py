"""Gradient flows of embeddings: with a neural kernel, without a network, and by actual training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from chiaroscuro.dynamics.capture import trainable
from chiaroscuro.dynamics.kernel import gradient
from chiaroscuro.errors import need, number

__all__ = ["RULES", "Flow", "Loss", "Steps", "kernel_flow", "training_flow", "vanilla_flow"]

RULES = ("euler", "rk4")

Loss = Callable[[Tensor], Tensor]
State = list[Tensor]


@dataclass(frozen=True)
class Steps:
    """How to integrate a flow: the step size, the rule, and which steps to record.

        euler   s <- s + size v(s): gradient descent [calder2025, eq. 14 and 15]; error of order 1
        rk4     the classical Runge-Kutta rule, four velocities a step; error of order 4

    Args:
        size: size of a step in time: the learning rate of gradient descent.
        count: how many.
        every: record the start, every so many steps, and the end.
        rule: "euler" is gradient descent itself; "rk4" is close to the flow.

    Example:
        >>> Steps(size=0.1, count=5, every=2).recorded
        [0, 2, 4, 5]
    """

    size: float
    count: int
    every: int = 1
    rule: str = "euler"

    def __post_init__(self) -> None:
        number("Steps", "size", self.size, above=True)
        whole = all(isinstance(x, int) for x in (self.count, self.every))
        need(
            whole and self.count >= 0 and self.every >= 1,
            lambda: (
                "`Steps(count, every)` needs whole numbers, at least 0 and at least 1; received "
                f"{self.count} and {self.every}."
            ),
        )
        need(
            self.rule in RULES,
            lambda: f"`Steps(rule)` needs one of {', '.join(RULES)}; received `{self.rule}`.",
        )

    @property
    def recorded(self) -> list[int]:
        """The steps after which the state is kept."""
        return sorted({*range(0, self.count + 1, self.every), self.count})


@dataclass(frozen=True, eq=False)
class Flow:
    """Trajectory of embeddings.

    Args:
        times: (s,), step times size.
        z: (s, n, d).
        losses: (s,), the total loss at each.
        steps: how it was followed.
        kind: "vanilla", "kernel" or "training".
        parameters: the trained parameters at the end, by name, of a training flow.
    """

    times: Tensor
    z: Tensor
    losses: Tensor
    steps: Steps
    kind: str
    parameters: dict[str, Tensor] | None = None

    @property
    def velocities(self) -> Tensor:
        """(s-1, n, d): the mean velocity between records, by differences."""
        return self.z.diff(dim=0) / self.times.diff().to(self.z)[:, None, None]


def vanilla_flow(
    loss: Loss, z: Tensor, steps: Steps, project: Callable[[Tensor], Tensor] | None = None
) -> Flow:
    """Integrate the flow of embeddings without a network: z' = -grad L(z) [calder2025, eq. 13].

    grad L is that of the total loss. In the terms of eq. (11), for a loss that is a mean of n
    separate terms, this is K_ij = n delta_ij I (Remark 4.2 corrected).

    Relations: it is `kernel_flow` with K = I.

    Args:
        loss: loss of all embeddings (n, d) together. For two views, stack them and part them
            inside: `lambda z: objective(z[:n], z[n:])`.
        z: (n, d), the start.
        steps: how to follow it.
        project: applied after each step, `numerics.unit` for the sphere.

    References:
        calder2025

    Example:
        >>> flow = vanilla_flow(lambda z: z.square().sum() / 2, torch.ones(1, 1), Steps(0.5, 2))
        >>> flow.z.flatten().tolist()  # halves at each step
        [1.0, 0.5, 0.25]
    """
    _check_start("vanilla_flow(loss, z)", z)
    move = lambda state: [-gradient(loss, state[0])]
    return _follow("vanilla", loss, [z.detach().clone()], move, lambda s: s[0], steps, project)


def kernel_flow(
    loss: Loss,
    z: Tensor,
    K: Tensor | Callable[[Tensor], Tensor],
    steps: Steps,
    project: Callable[[Tensor], Tensor] | None = None,
) -> Flow:
    """Integrate the flow of embeddings under a fixed neural kernel.

        z_i' = -sum_j K_ij grad_j L       [calder2025, eq. 11, for the total loss]

    The kernel of a network changes as it trains; with the one of its start this is the flow of the
    network linearised there, and stays near `training_flow` as long as the kernel does.

    Relations: one Euler step agrees with one of `training_flow` up to size^2; for a module that is
    linear in its weights all do. K = I gives `vanilla_flow`.

    Args:
        loss, z, steps, project: as for `vanilla_flow`.
        K: (n, n, d, d) as `neural_kernel` gives it, or a function v -> K v of (n, d), such as
            `lambda v: kernel_action(module, x, v)`.

    References:
        calder2025, jacot2018

    Example:
        >>> K = 2 * torch.eye(3)[:, :, None, None]  # n = 3, d = 1
        >>> flow = kernel_flow(lambda z: z.sum(), torch.zeros(3, 1), K, Steps(0.5, 1))
        >>> flow.z[-1].flatten().tolist()
        [-1.0, -1.0, -1.0]
    """
    _check_start("kernel_flow(loss, z, K)", z)
    n, d = z.shape
    if isinstance(K, Tensor):
        need(
            K.shape == (n, n, d, d),
            lambda: f"`kernel_flow(K)` needs {(n, n, d, d)}; received {tuple(K.shape)}.",
        )
        matrix = K.permute(0, 2, 1, 3).reshape(n * d, n * d).to(z)
        act = lambda v: (matrix @ v.reshape(-1)).view(n, d)
    else:
        act = K

    def move(state: State) -> State:
        v = act(gradient(loss, state[0]))
        need(
            v.shape == z.shape,
            lambda: (
                f"`kernel_flow(K)` needs K v of shape {(n, d)}, like v; received {tuple(v.shape)}."
            ),
        )
        return [-v]

    return _follow("kernel", loss, [z.detach().clone()], move, lambda s: s[0], steps, project)


def training_flow(loss: Loss, module: nn.Module, x: Tensor, steps: Steps) -> Flow:
    """Train a network by gradient descent and record its embeddings: w' = -grad_w L(f(w, x)).

    With "euler" this is plain full-batch gradient descent. The module itself is left as it is; the
    weights at the end are in the result.

    Relations: with "euler" it equals `torch.optim.SGD` at learning rate `size`.

    Args:
        loss: loss of all outputs (n, d) together.
        module: maps x to (n, d); its mode (`train` or `eval`) is kept, its buffers are copied.
        x: (n, ...), the whole batch.
        steps: how to follow it.

    References:
        calder2025

    Example:
        >>> f = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.ones_(f.weight)
        >>> flow = training_flow(lambda z: z.sum(), f, torch.tensor([[2.0]]), Steps(0.25, 2))
        >>> flow.z.flatten().tolist()  # w falls by 0.25 * 2 each step
        [2.0, 1.0, 0.0]
    """
    parameters = trainable(module)
    names = list(parameters)
    buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
    run = lambda state: functional_call(
        module, {**dict(zip(names, state, strict=True)), **buffers}, (x,)
    )

    def move(state: State) -> State:
        with torch.enable_grad():
            weights = [w.detach().requires_grad_() for w in state]
            z = run(weights)
            grads = torch.autograd.grad(z, weights, gradient(loss, z), allow_unused=True)
        return [
            torch.zeros_like(w) if g is None else -g for w, g in zip(weights, grads, strict=True)
        ]

    def observe(state: State) -> Tensor:
        with torch.no_grad():
            return run(state)

    start = [p.detach().clone() for p in parameters.values()]
    return _follow("training", loss, start, move, observe, steps, None, names)


def _check_start(call: str, z: Tensor) -> None:
    need(
        isinstance(z, Tensor) and z.is_floating_point() and z.ndim == 2,
        lambda: (
            f"`{call}` needs floating-point embeddings (n, d) to start from; received "
            f"{getattr(z, 'dtype', type(z).__name__)} of shape {tuple(getattr(z, 'shape', ()))}."
        ),
    )


def _follow(
    kind: str,
    loss: Loss,
    state: State,
    move: Callable[[State], State],
    observe: Callable[[State], Tensor],
    steps: Steps,
    project: Callable[[Tensor], Tensor] | None,
    names: list[str] | None = None,
) -> Flow:
    recorded = set(steps.recorded)
    z, losses = [], []
    for step in range(steps.count + 1):
        if step in recorded:
            at = observe(state).detach().clone()
            with torch.no_grad():
                total = loss(at)
            need(
                isinstance(total, Tensor) and total.numel() == 1,
                lambda total=total: (
                    "A flow needs a loss that is one number; received "
                    f"{type(total).__name__} of shape {tuple(getattr(total, 'shape', ()))}."
                ),
            )
            value = float(total)
            need(
                bool(at.isfinite().all()) and value == value and abs(value) != float("inf"),
                lambda step=step, value=value: (
                    f"A {kind} flow needs steps that keep it finite; after {step} of size "
                    f"{steps.size} the loss is {value}. Take smaller steps."
                ),
            )
            z.append(at)
            losses.append(value)
        if step < steps.count:
            state = _advance(state, move, steps)
            if project is not None:
                state = [project(s) for s in state]
    times = torch.tensor(steps.recorded, dtype=torch.float64) * steps.size
    ends = None if names is None else dict(zip(names, state, strict=True))
    every = torch.tensor(losses, dtype=torch.float64)
    return Flow(times, torch.stack(z), every, steps, kind, ends)


def _advance(state: State, move: Callable[[State], State], steps: Steps) -> State:
    def along(v: State, t: float) -> State:
        return [s + t * each for s, each in zip(state, v, strict=True)]

    h = steps.size
    v1 = move(state)
    if steps.rule == "euler":
        return along(v1, h)
    v2 = move(along(v1, h / 2))
    v3 = move(along(v2, h / 2))
    v4 = move(along(v3, h))
    mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(v1, v2, v3, v4, strict=True)]
    return along(mean, h)
