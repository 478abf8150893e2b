"""Neural kernels and flows as loops, in float64: what the fast versions are compared with."""

import math

import torch

__all__ = ["descent", "jacobian", "kernel", "one_hidden", "tanh_slope"]


def jacobian(module, x):
    """(n, d, p): one backward pass for each sample alone and each output."""
    weights = [p for p in module.parameters() if p.requires_grad]
    rows = []
    for sample in x:
        z = module(sample[None])[0]
        for value in z:
            grads = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
            flat = [
                torch.zeros_like(w).flatten() if g is None else g.to_dense().flatten()
                for g, w in zip(grads, weights, strict=True)
            ]
            rows.append(torch.cat(flat))
    return torch.stack(rows).view(len(x), len(z), -1)


def kernel(module, x, y=None):
    """Eq. (12) of calder2025."""
    a = jacobian(module, x)
    b = a if y is None else jacobian(module, y)
    return torch.einsum("ikp,jlp->ijkl", a, b)


def one_hidden(B, x, d, derivative):
    """Eq. (20), index by index."""
    n, M = len(x), len(B) // d
    K = torch.zeros(n, n, d, d, dtype=x.dtype)
    for i in range(n):
        for j in range(n):
            for k in range(d):
                total = sum(
                    derivative(float(B[p] @ x[i])) * derivative(float(B[p] @ x[j]))
                    for p in range(k * M, (k + 1) * M)
                )
                K[i, j, k, k] = float(x[i] @ x[j]) * total / M
    return K


def descent(f, start, size, count):
    """Scalar gradient descent, written out."""
    values = [start]
    for _ in range(count):
        values.append(values[-1] - size * f(values[-1]))
    return values


def tanh_slope(t):
    """1 - tanh^2."""
    return 1 - math.tanh(t) ** 2
