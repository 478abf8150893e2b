"""The one-hidden-layer network of calder2025, Sec. 4.2: its kernel, exactly and in the limit."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need

__all__ = ["OneHidden", "limit_kernel", "one_hidden_kernel", "slope"]

Activation = Callable[[Tensor], Tensor]


class OneHidden(nn.Module):
    """f(x) = A^T sigma(B x): d outputs, each the scaled sum of M hidden units of its own.

        f^k(x) = M^-1/2 sum_{p = (k-1) M + 1}^{k M} sigma(b_p . x)      [calder2025, eq. 18 and 19]

    A is fixed, B is trained. Without biases, and with ReLU, f is positively homogeneous and never
    negative: points on one ray stay on one ray. Use tanh, or append a 1 to the inputs, where that
    matters (four clusters on a line, Fig. 5).

    Relations: `neural_kernel` of it is `one_hidden_kernel(B, x, d, activation)`.

    Args:
        inputs: D.
        width: M, hidden units of each output.
        d: outputs.
        activation: sigma, elementwise; tanh, for the reason above.
        seed: rows of B are independent standard normal, as Prop. 4.4 needs them.

    References:
        calder2025

    Example:
        >>> OneHidden(inputs=3, width=8, d=2)(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        d: int,
        activation: Activation = torch.tanh,
        seed: int = 0,
    ):
        super().__init__()
        need(
            min(inputs, width, d) >= 1,
            lambda: (
                f"`OneHidden(inputs, width, d)` needs at least 1 of each; received {inputs}, "
                f"{width} and {d}."
            ),
        )
        self.width, self.d, self.activation = width, d, activation
        generator = torch.Generator().manual_seed(seed)
        dtype = torch.get_default_dtype()
        self.B = nn.Parameter(torch.randn(d * width, inputs, generator=generator, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """(n, D) to (n, d)."""
        hidden = self.activation(x @ self.B.T)
        return hidden.unflatten(1, (self.d, self.width)).sum(dim=2) / math.sqrt(self.width)


def slope(activation: Activation, t: Tensor) -> Tensor:
    """sigma'(t), elementwise, by autograd; that of ReLU at 0 is 0."""
    with torch.enable_grad():
        at = t.detach().requires_grad_()
        return torch.autograd.grad(activation(at).sum(), at)[0]


def one_hidden_kernel(B: Tensor, x: Tensor, d: int, activation: Activation = torch.tanh) -> Tensor:
    """Return the neural kernel of `OneHidden`, by its formula.

        K_ij^kl = 1[k = l] / M  x_i . x_j  sum_{p of k} sigma'(b_p . x_i) sigma'(b_p . x_j)

    [calder2025, Prop. 4.3, eq. 20]. The outputs do not share weights, so blocks are diagonal.

    Relations: it is `neural_kernel(OneHidden(...), x)`; for ReLU and standard normal rows of B it
    tends to `limit_kernel(x, d)` like M^-1/2.

    Args:
        B: (M d, D), output by output.
        x: (n, D).
        d: outputs.
        activation: sigma.

    Returns:
        (n, n, d, d).

    References:
        calder2025

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> one_hidden_kernel(torch.ones(4, 2), x, 1, torch.relu)[:, :, 0, 0].tolist()  # x_i . x_j
        [[1.0, 1.0], [1.0, 2.0]]
    """
    need(
        d >= 1 and len(B) % d == 0 and B.ndim == x.ndim == 2 and B.shape[1] == x.shape[1],
        lambda: (
            f"`one_hidden_kernel(B, x, d)` needs B (M d, D) and x (n, D); received "
            f"{tuple(B.shape)} and {tuple(x.shape)} with d = {d}."
        ),
    )
    width = len(B) // d
    s = slope(activation, x @ B.T).unflatten(1, (d, width))
    diagonal = torch.einsum("ikp,jkp->ijk", s, s) / width * (x @ x.T)[:, :, None]
    return torch.diag_embed(diagonal)


def limit_kernel(x: Tensor, d: int) -> Tensor:
    """Return the kernel of `OneHidden` with ReLU at infinite width [calder2025, Prop. 4.4].

        K_ij = x_i . x_j (1/2 - arccos(cos(x_i, x_j)) / (2 pi)) I

    For rows of B that are zero-mean and isotropic (the proposition's "Gaussian" is not enough: with
    a mean, or unequal variances, the probability that both units are active is another). Then
    E sigma'(b . x_i) sigma'(b . x_j) is the share of directions on the positive side of both.

    Relations: |x_i|^2 / 2 I on the diagonal; 0 for orthogonal inputs and for opposite ones.

    Args:
        x: (n, D); a zero row has K = 0.
        d: outputs.

    Numerics: angles by atan2 of |u - v| and |u + v|, exact also for near parallel inputs.

    References:
        calder2025, jacot2018

    Example:
        >>> limit_kernel(torch.tensor([[2.0, 0.0]]), 1).flatten().tolist()
        [2.0]
    """
    need(
        isinstance(x, Tensor) and x.is_floating_point() and x.ndim == 2 and d >= 1,
        lambda: (
            f"`limit_kernel(x, d)` needs floating-point x (n, D) and d from 1; received "
            f"{getattr(x, 'dtype', type(x).__name__)} of shape {tuple(getattr(x, 'shape', ()))} "
            f"and d = {d}."
        ),
    )
    size = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    u = x / torch.where(size > 0, size, 1.0)
    apart = torch.linalg.vector_norm(u[:, None] - u, dim=2)
    together = torch.linalg.vector_norm(u[:, None] + u, dim=2)
    angle = 2 * torch.atan2(apart, together)
    value = (x @ x.T) * (0.5 - angle / (2 * math.pi))
    return value[:, :, None, None] * torch.eye(d).to(x)
