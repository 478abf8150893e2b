"""The empirical neural kernel: how a gradient step on the weights moves the embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from chiaroscuro.dynamics.capture import (
    check_module,
    factors,
    outputs_of,
    plain_attention,
    trainable,
)
from chiaroscuro.dynamics.factors import BUDGET, Factor, Outer
from chiaroscuro.errors import need

__all__ = ["gradient", "kernel_action", "kernel_trace", "neural_kernel", "velocity"]

_ROWS = 1024


def neural_kernel(module: nn.Module, x: Tensor, y: Tensor | None = None) -> Tensor:
    """Return the neural kernel of a module on a batch, a d x d block for each pair of samples.

        K_ij^kl = sum_w (d f^k(x_i) / d w) (d f^l(x_j) / d w)     [calder2025, eq. 12]

    over all trainable parameters w: K = J J^T, symmetric and positive semi-definite. Under gradient
    flow on the weights the outputs move as z_i' = -sum_j K_ij grad_j L, grad_j L the gradient of
    the *total* loss by z_j. (The 1/n of eq. (11) belongs to a loss that is a mean of separate
    terms; it is in the gradient then.)

    Exact for any module whose outputs depend on their own sample alone. Linear, convolutional,
    normalising and embedding layers are taken by structure: for a linear layer with inputs a and
    output gradients g the block is (g_i g_j^T) (a_i . a_j + 1) and no gradient by a weight is ever
    formed. What other layers hold goes through `torch.func`, or, where that has no rule (recurrent
    layers), through one backward pass for every output.

    Relations: `kernel_action(module, x, v)` is K v, `kernel_trace(module, x)` its trace. It adds
    over layers, and over parameters.

    Args:
        module: maps (n, ...) to (n, d); batch norm and dropout in `eval` mode.
        x: (n, ...).
        y: (m, ...), for K between x and y; x itself, if not given.

    Returns:
        (n, m, d, d): [i, j, k, l] is K_ij^kl. In memory it lies as the matrix (n d, m d), which
        `.permute(0, 2, 1, 3).reshape(n * d, m * d)` gives without a copy.

    Numerics: in the module's own dtype; memory is K, the inputs and output gradients of all layers,
    and half a gigabyte.

    References:
        calder2025, jacot2018, novak2022

    Example:
        >>> f = nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> neural_kernel(f, x)[:, :, 0, 0].tolist()  # x_i . x_j
        [[1.0, 1.0], [1.0, 5.0]]
    """
    need(
        isinstance(x, Tensor) and x.ndim >= 1 and len(x) > 0,
        lambda: (
            "`neural_kernel(module, x)` needs a tensor with at least 1 sample; received "
            f"{type(x).__name__} of {_shape(x)}."
        ),
    )
    need(
        y is None or (isinstance(y, Tensor) and len(y) > 0 and y.shape[1:] == x.shape[1:]),
        lambda: (
            f"`neural_kernel(module, x, y)` needs samples like those of x, {_shape(x)}; received "
            f"{type(y).__name__} of {_shape(y)}."
        ),
    )
    n = len(x)
    z, layer_factors = factors(module, x if y is None else torch.cat([x, y]))
    d = z.shape[1]
    m = n if y is None else len(z) - n
    K = z.new_zeros(n * d, m * d)
    with torch.no_grad():
        for factor in layer_factors:
            _add(K, factor, n, d, symmetric=y is None)
        if y is None:
            step = _samples(d) * d
            for i in range(0, n * d, step):
                K[i + step :, i : i + step] = K[i : i + step, i + step :].T
                block = K[i : i + step, i : i + step]
                block.copy_(block.triu() + block.triu(1).T)
    return K.view(n, d, m, d).permute(0, 2, 1, 3)


def kernel_action(module: nn.Module, x: Tensor, v: Tensor) -> Tensor:
    """K v without K: J (J^T v), by a backward pass and the derivative of one.

        (K v)_i = sum_j K_ij v_j

    Relations: it is `neural_kernel(module, x)` applied to v; -K grad L is `velocity`.

    Args:
        module, x: as for `neural_kernel`.
        v: (n, d), one vector for each sample.

    References:
        calder2025

    Example:
        >>> f = nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> kernel_action(f, x, torch.tensor([[1.0], [1.0]])).tolist()
        [[2.0], [6.0]]
    """
    check_module(module)
    parameters = list(trainable(module).values())
    with torch.enable_grad(), plain_attention():
        z = outputs_of(module, x)
        need(
            v.shape == z.shape,
            lambda: f"`kernel_action(module, x, v)` needs v of {_shape(z)}; received {_shape(v)}.",
        )
        # J u is the derivative of u . J^T t by t, whatever t is: J^T t is linear in it
        t = torch.zeros_like(z, requires_grad=True)
        pulled = _grad(z, parameters, t, create_graph=True)
        direction = _grad(z, parameters, v.to(z))
        return _grad(pulled, [t], direction)[0].detach()


def _grad(
    of: Tensor | Sequence[Tensor],
    by: Sequence[Tensor],
    weights: Tensor | Sequence[Tensor],
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    return torch.autograd.grad(
        of,
        by,
        weights,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )


def velocity(module: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """Return how the outputs move under gradient flow on the weights [calder2025, Prop. 4.1].

        z' = -K grad L

    Args:
        module, x: as for `neural_kernel`.
        loss: loss of all outputs (n, d) together, a scalar: the total, with no factor to be added.

    References:
        calder2025

    Example:
        >>> f = nn.Linear(1, 1, bias=False)
        >>> velocity(f, torch.tensor([[1.0], [2.0]]), lambda z: z.sum()).tolist()  # -x_i (1 + 2)
        [[-3.0], [-6.0]]
    """
    with torch.no_grad():
        z = outputs_of(module, x)
    return -kernel_action(module, x, gradient(loss, z))


def kernel_trace(module: nn.Module, x: Tensor) -> float:
    """Return the trace of K, sum_i sum_k |grad_w f^k(x_i)|^2, without K.

    At least 0; 0 where no weight moves any output. In float64.

    Args:
        module, x: as for `neural_kernel`.

    References:
        calder2025

    Example:
        >>> kernel_trace(nn.Linear(2, 3), torch.tensor([[1.0, 2.0]]))  # 3 outputs, |x|^2 + 1 each
        18.0
    """
    with torch.no_grad():
        _, layer_factors = factors(module, x)
        return float(sum(factor.squares() for factor in layer_factors))


def gradient(loss: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """grad L at z, by autograd; a sentence if the loss is no scalar."""
    with torch.enable_grad():
        at = z.detach().requires_grad_()
        value = loss(at)
        need(
            isinstance(value, Tensor) and value.ndim == 0,
            lambda: f"A flow needs a loss that is one number; received {_shape(value)}.",
        )
        need(
            value.requires_grad,
            lambda: f"A flow needs a loss with a gradient by z; that of {float(value)} has none.",
        )
        return torch.autograd.grad(value, at)[0]


def _samples(d: int) -> int:
    """Samples whose rows of K make a block."""
    return max(1, _ROWS // d)


def _add(K: Tensor, factor: Factor, n: int, d: int, symmetric: bool) -> None:
    """K += the factor's share; if symmetric, on and above the blocks of the diagonal only."""
    step = _samples(d)
    if isinstance(factor, Outer) and factor.by_places:
        places = factor.g.shape[2]
        row = places * d * places * K.shape[1] * K.element_size()  # of the products of a sample
        some = max(1, min(step, BUDGET // (4 * row)))
        for i in range(0, n, some):
            first = i // step * step if symmetric else n
            part = factor.block(slice(i, min(i + some, n)), slice(first, None))
            K[i * d : (i + some) * d, K.shape[1] - part.shape[1] :] += part
        return
    for J in factor.matrices():
        if not symmetric:
            K.addmm_(J[: n * d], J[n * d :].T)
            continue
        for i in range(0, n * d, step * d):
            K[i : i + step * d, i:].addmm_(J[i : i + step * d], J[i:].T)


def _shape(x: object) -> str:
    return f"shape {tuple(getattr(x, 'shape', ()))}"
