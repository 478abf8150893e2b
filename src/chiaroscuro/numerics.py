"""Arithmetic that stays right at the edges: zero rows, coincident points, tiny and huge norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake
from torch.nn.functional import mse_loss

from chiaroscuro.errors import need

__all__ = [
    "NEAR",
    "device_distances",
    "full_precision",
    "locate_non_finite",
    "narrow_for",
    "paired_power",
    "paired_squared",
    "power",
    "power_sums",
    "product",
    "readable",
    "require_finite",
    "squared_distances",
    "transformed",
    "unit",
    "wide",
    "widest",
]

NEAR = 1 / 64
"""|a-b|^2 below this share of |a|^2 + |b|^2 is never taken from |a|^2 + |b|^2 - 2 a.b.

The expansion loses a factor (|a|^2 + |b|^2) / |a-b|^2 in relative accuracy; at 1/64 a distance
still keeps all but about three bits.
"""

_PAIRS_AT_ONCE = 1 << 15


def wide(z: Tensor) -> Tensor:
    """Return the tensor in at least float32: half precision is an input format, never an
    accumulator.
    """
    return z if z.dtype in (torch.float32, torch.float64) else z.float()


def widest(x: Tensor) -> Tensor:
    """The tensor in float64; on MPS, which has none, in float32."""
    return x.float() if x.device.type == "mps" else x.double()


def narrow_for(module: nn.Module, move: Callable[[Tensor], Tensor]) -> None:
    """Turn the float64 parameters of a module to float32 before it moves to MPS, which has none.

    Call it in `_apply(move)`: a number that float32 cannot hold makes a float64 parameter.
    """
    exact = [p for p in module.parameters(recurse=False) if p.dtype == torch.float64]
    if exact and move(torch.zeros(0)).device.type == "mps":
        for parameter in exact:
            parameter.data = parameter.data.float()


def readable(*tensors: Tensor) -> bool:
    """Return whether Python may read numbers of the tensors in passing.

    On an accelerator that would wait for the device; inside `torch.compile` it would break the
    graph, and inside `torch.func` and on `meta` there is nothing to read. What looks at numbers to
    choose a faster way or to raise an error does so only here.

    Example:
        >>> readable(torch.zeros(2)), readable(torch.zeros(2, device="meta"))
        (True, False)
    """
    return not transformed() and all(
        x.device.type == "cpu" and (type(x) is Tensor or not is_fake(x)) for x in tensors
    )


def transformed() -> bool:
    """Return whether `torch.compile` or `torch.func` is tracing: a hand-written gradient cannot
    follow.
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """No autocast and no reduced-precision products inside: logits are divided by tau."""
    if torch.compiler.is_compiling():
        return torch.autocast(device.type, enabled=False)
    if device.type == "meta":
        return nullcontext()
    products = _products(device)
    reduced = products is not None and products.fp32_precision not in ("none", "ieee")
    if not reduced and not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return _exactly(device, products if reduced else None)


def _products(device: torch.device) -> Any:
    """Return where torch keeps the precision of matrix products, by the kind of device."""
    if device.type == "cuda":
        return torch.backends.cuda.matmul
    return getattr(torch.backends.mkldnn, "matmul", None) if device.type == "cpu" else None


@contextmanager
def _exactly(device: torch.device, products: Any) -> Iterator[None]:
    before = None if products is None else products.fp32_precision
    with torch.autocast(device.type, enabled=False):
        try:
            if products is not None:
                products.fp32_precision = "ieee"
            yield
        finally:
            if products is not None:
                products.fp32_precision = before


def require_finite(call: str, **embeddings: Tensor | None) -> None:
    """Refuse NaN and infinity, naming the tensor and the first row that has one.

    A scalar product decides for all rows at once; only if it is not finite are they searched
    (and acquitted, where finite numbers merely added up to more than the format holds). Where the
    numbers are not `readable` nothing is refused here: NaN reaches the loss.
    """
    given = {name: z.detach() for name, z in embeddings.items() if z is not None and z.numel()}
    if not readable(*given.values()):
        return
    rows = list(given.values())
    factors = [(z, z) for z in rows]
    if len(rows) > 1 and rows[0].shape == rows[1].shape and rows[0].dtype == rows[1].dtype:
        factors[:2] = [(rows[0], rows[1])]  # 0 times infinity is not finite either: one for both
    if all(math.isfinite(a.flatten().dot(b.flatten())) for a, b in factors):
        return
    locate_non_finite(call, **given)


def locate_non_finite(call: str, **embeddings: Tensor) -> None:
    """Refuse NaN and infinity, row by row and on any device: it waits for the numbers."""
    given = embeddings
    for name, z in given.items():
        bad = (~torch.isfinite(z).all(dim=1)).nonzero().flatten()
        need(
            len(bad) == 0,
            lambda name=name, z=z, bad=bad: (
                f"`{call}` needs finite embeddings; received {len(bad)} of {len(z)} rows of "
                f"`{name}` with NaN or infinity, the first is row {int(bad[0])}. Look one step "
                "upstream: a diverging learning rate, a division by zero, or overflow in half "
                "precision."
            ),
        )


def _unit(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return unit rows and the reciprocals of their norms: zero for a zero row, and for one of
    subnormal numbers, whose reciprocal the type cannot hold.
    """
    if not torch.is_grad_enabled() and z.numel() and readable(z):
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        least, most = (x.item() for x in norm.aminmax())
        if least > 1e-15 and most < 1e15:  # neither a square nor its sum was lost
            return z / norm, norm.reciprocal_()
    largest = z.detach().abs().amax(dim=1, keepdim=True)
    zero = largest < torch.finfo(z.dtype).tiny
    largest = largest.masked_fill(zero, torch.inf)
    y = z / largest
    norm = torch.linalg.vector_norm(y, dim=1, keepdim=True).masked_fill(zero, 1.0)
    return y / norm, 1 / norm / largest


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        u, reciprocal = _unit(z)
        ctx.save_for_backward(z, u, reciprocal)
        return u

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        z, u, reciprocal = ctx.saved_tensors
        g = grads[0]
        if torch.is_grad_enabled():  # someone will differentiate the gradient: stay in the graph
            u, reciprocal = _unit(z)
        return g.addcmul(u, (u * g).sum(dim=1, keepdim=True), value=-1) * reciprocal


def unit(z: Tensor) -> Tensor:
    """Return rows divided by their norms, z_i / |z_i|; a zero row stays zero and gets gradient
    zero.

    Numerics: rows are scaled by their largest entry first, so norms from 1e-37 to 1e38 are safe
    in float32, where the sum of squares alone would under- or overflow beyond 1e-19 and 1e19. A
    row of subnormal numbers (below 1.2e-38) is a zero row: its gradient would be infinite.

    Example:
        >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e18, 4e18]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000],
                [0.6000, 0.8000]])
    """
    return _unit(z)[0] if transformed() else _Unit.apply(z)


def power(t: Tensor, q: float) -> Tensor:
    """t^q for t >= 0 with value and gradient zero at t = 0, where t^(q-1) may be infinite.

    The zero is taken out *before* the power; masking its gradient afterwards gives 0 * inf = NaN.

    Example:
        >>> power(torch.tensor([0.0, 4.0]), 0.5).tolist()
        [0.0, 2.0]
    """
    if not readable(t) and not transformed():
        return _Power.apply(t, q)
    positive = t > 0
    return torch.where(positive, t, 1.0).pow(q) * positive


class _Power(torch.autograd.Function):
    """The same in fewer operations, where each is a launch."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, q: float) -> Tensor:
        ctx.q = q
        ctx.save_for_backward(t)
        return t.pow(q)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (t,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # zero out before the power: this gradient has one of its own
            slope = torch.where(t > 0, t, 1.0).pow(ctx.q - 1) * (t > 0)
        else:
            slope = t.pow(ctx.q - 1).masked_fill_(t == 0, 0.0)
        return grads[0] * slope * ctx.q, None


def paired_squared(a: Tensor, b: Tensor) -> Tensor:
    """|a_i - b_i|^2 row by row, from the differences."""
    return mse_loss(a, b, reduction="none").sum(dim=1)  # the fewest launches, both ways


def paired_power(a: Tensor, b: Tensor, p: float) -> Tensor:
    """sum_k |a_ik - b_ik|^p row by row, with gradient zero where coordinates coincide."""
    return power((a - b).abs(), p).sum(dim=1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a b^T in full precision, in the forward and in the backward pass.

    Traced code cannot change how torch multiplies, so under `torch.compile` the product is one
    opaque operation that does. Inside `torch.func` it is an ordinary one, whose gradient is as
    precise as products are set to be.
    """
    if torch._C._are_functorch_transforms_active():
        return a @ b.mT
    return _exact_product(a, b) if torch.compiler.is_compiling() else _Product.apply(a, b)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)
        with full_precision(a.device):
            return a @ b.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (a, b), g, wants = ctx.saved_tensors, grads[0], ctx.needs_input_grad
        return (
            _laid_out(g, b.mT, a) if wants[0] else None,
            _laid_out(g.mT, a.mT, b) if wants[1] else None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        (a, b), (da, db) = ctx.saved_tensors, tangents
        moved = [product(a, db)] if db is not None else []
        moved += [product(da, b)] if da is not None else []
        return sum(moved[1:], moved[0])


def _laid_out(a: Tensor, b: Tensor, like: Tensor) -> Tensor:
    """a b^T in the memory order of what it is the gradient of: no copy is made of it then."""
    return product(b, a).mT if like.mT.is_contiguous() else product(a, b)


@torch.library.custom_op("chiaroscuro::product", mutates_args=())
def _exact_product(a: Tensor, b: Tensor) -> Tensor:
    with full_precision(a.device):
        return a @ b.mT


@_exact_product.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.mT


def _product_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    wants = ctx.needs_input_grad
    return (
        _exact_product(g, b.mT) if wants[0] else None,
        _exact_product(g.mT, a.mT) if wants[1] else None,
    )


def _save_product(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


_exact_product.register_autograd(_product_backward, setup_context=_save_product)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return all |a_i - b_j|^2, exact for near points, by ordinary differentiable operations.

    Far pairs use the expansion |a|^2 + |b|^2 - 2 a.b (one matrix product) around the common mean;
    pairs closer than `NEAR` are recomputed from their differences, so equal rows give exactly 0.
    Where numbers are not `readable` nobody can ask which pairs are near: on a device all pairs are
    taken from their differences, see `device_distances`; inside a transform the expansion is taken
    in float64 on the CPU, elsewhere in the format of the rows, and what it leaves below its own
    rounding is 0.

    Example:
        >>> squared_distances(torch.tensor([[1e4, 1.0]]), torch.tensor([[1e4, 1.0], [1e4, 3.0]]))
        tensor([[0., 4.]])
    """
    if not readable(a, b):
        return _expanded(a, b) if transformed() else device_distances(a, b)
    centre = b.detach().mean(dim=0) if len(b) else 0.0
    a0, b0 = a - centre, b - centre
    sizes = a0.square().sum(dim=1)[:, None] + b0.square().sum(dim=1)
    t = sizes - 2 * product(a0, b0)
    i, j = (t.detach() < NEAR * sizes.detach()).nonzero(as_tuple=True)
    if len(i) == 0:
        return t
    chunks = zip(i.split(_PAIRS_AT_ONCE), j.split(_PAIRS_AT_ONCE), strict=True)
    return t.index_put((i, j), torch.cat([paired_squared(a[k], b[m]) for k, m in chunks]))


def _expanded(a: Tensor, b: Tensor) -> Tensor:
    centre = b.detach().mean(dim=0) if len(b) else 0.0
    wide = torch.float64 if a.device.type == "cpu" else a.dtype
    a0, b0 = a.to(wide) - centre, b.to(wide) - centre
    size_a, size_b = a0.square().sum(dim=1, keepdim=True), b0.square().sum(dim=1, keepdim=True)
    left = torch.cat([a0 * -2, size_a, torch.ones_like(size_a)], dim=1)
    t = product(left, torch.cat([b0, torch.ones_like(size_b), size_b], dim=1))
    rounding = 32 * torch.finfo(t.dtype).eps
    equal = t.detach() <= rounding * (size_a.detach() + size_b.detach().T)
    return t.masked_fill(equal, 0.0).to(a.dtype)


def device_distances(a: Tensor, b: Tensor) -> Tensor:
    """All |a_i - b_j|^2 of rows (..., n, d) and (..., m, d) without asking the host.

    From the differences, in the format of the rows: float64 products would be exact too, but most
    graphics cards multiply it at a 32nd or 64th of the speed. The gradient is two products, around
    the mean: that of a pair at distance r is known to eps |a - mean| / r of itself. Equal points
    have distance 0.
    """
    return _DeviceDistances.apply(a, b)


class _DeviceDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.cdist(a, b, 2.0, "donot_use_mm_for_euclid_dist").square_()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        g = grads[0] * 2
        mean = b.detach().mean(dim=-2, keepdim=True)
        with full_precision(a.device):
            a0, b0 = a - mean, b - mean
            wants = ctx.needs_input_grad
            return (
                a0 * g.sum(dim=-1, keepdim=True) - g @ b0 if wants[0] else None,
                b0 * g.sum(dim=-2).unsqueeze(-1) - g.mT @ a0 if wants[1] else None,
            )


def power_sums(a: Tensor, b: Tensor, p: float) -> Tensor:
    """Return all sum_k |a_ik - b_jk|^p, by ordinary differentiable operations on all the
    differences.
    """
    return power((a[:, None] - b[None, :]).abs(), p).sum(dim=2)
