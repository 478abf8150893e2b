"""BatchNorm whose statistics are those of the batch of all ranks, on any device."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from chiaroscuro.engine.distributed import gather_alike, sum_alike, world_size
from chiaroscuro.errors import need

__all__ = ["SyncBatchNorm", "synchronised"]

Module = TypeVar("Module", bound=nn.Module)


class SyncBatchNorm(nn.BatchNorm1d):
    """Batch normalisation over the rows of all ranks [ioffe2015batchnorm, Alg. 1].

        mean = sum_r sum_i x_ri / n,   var = sum_r sum_i (x_ri - mean)^2 / n
        y = weight (x - mean) / sqrt(var + eps) + bias

    torch's own needs CUDA; this one is plain sums, which every backend can add up, in one message
    forward and one backward. The state has the same names as that of `nn.BatchNorm2d`.

    Relations: on one rank, and in evaluation mode, it is `nn.BatchNorm1d`, `2d`, `3d`.

    Numerics: statistics in float32 at least; each rank sends its mean and its squares around that
    mean, which are put together without cancellation [chan1983variance].

    References:
        ioffe2015batchnorm, chan1983variance

    Example:
        >>> x = torch.arange(6.0).reshape(3, 2)
        >>> torch.allclose(SyncBatchNorm(2)(x), nn.BatchNorm1d(2)(x), atol=1e-6)
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        need(
            input.ndim >= 2 and input.shape[1] == self.num_features,
            lambda: (
                f"`SyncBatchNorm` needs (n, {self.num_features}, ...); received "
                f"{tuple(input.shape)}."
            ),
        )
        if not self.training:
            mean, var = self.running_mean, self.running_var
            return nn.functional.batch_norm(
                input, mean, var, self.weight, self.bias, False, 0.0, self.eps
            )
        if world_size() == 1:
            values = input.numel() // self.num_features
            need(values > 1, lambda: f"A batch norm needs at least 2 values; received {values}.")
            return super().forward(input)
        y, mean, var, n = _Normalised.apply(input, self.weight, self.bias, self.eps)
        self._remember(mean, var * n / (n - 1))
        return y

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of axes."""

    @torch.no_grad()
    def _remember(self, mean: Tensor, var: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        share = self.momentum
        if share is None:
            share = 1 / float(self.num_batches_tracked)  # type: ignore[arg-type]
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(var.to(self.running_var), share)


class _Normalised(torch.autograd.Function):
    """The normalised rows of this rank, and the statistics of all, from one message each way."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = input if input.dtype == torch.float64 else input.float()
        others = [dim for dim in range(x.ndim) if dim != 1]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        count = x.numel() // x.shape[1]
        mean = x.sum(others) / max(count, 1)
        squares = (x - mean.view(shape)).square().sum(others)
        everyone = gather_alike(torch.cat([mean.new_tensor([float(count)]), mean, squares]))
        counts = everyone[:, :1]
        means, spreads = everyone[:, 1:].chunk(2, dim=1)
        n = counts.sum()
        total = int(n) if n.device.type == "cpu" else 2
        need(total > 1, lambda: f"A batch norm needs at least 2 values; received {total}.")
        mean = (counts * means).sum(0) / n
        var = (spreads + counts * (means - mean).square()).sum(0) / n
        scale = torch.rsqrt(var + eps)
        unit = (x - mean.view(shape)) * scale.view(shape)
        ctx.save_for_backward(unit, weight, scale, n)
        ctx.others, ctx.shape, ctx.dtype = others, shape, input.dtype
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(mean, var, n)
        y = unit if weight is None else unit * weight.view(shape)
        y = y if bias is None else y + bias.view(shape)
        return y.to(input.dtype), mean, var, n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        unit, weight, scale, n = ctx.saved_tensors
        g = grads[0].to(unit.dtype)
        bias_g, weight_g = g.sum(ctx.others), (g * unit).sum(ctx.others)
        gain = scale if weight is None else scale * weight
        of_bias, of_weight = sum_alike(torch.cat([bias_g, weight_g])).chunk(2)
        both = of_bias.view(ctx.shape) + unit * of_weight.view(ctx.shape)
        dx = gain.view(ctx.shape) * (g - both / n)
        return (
            dx.to(ctx.dtype),
            None if weight is None else weight_g.to(weight.dtype),
            bias_g.to(weight.dtype if weight is not None else g.dtype) if ctx.has_bias else None,
            None,
        )


def synchronised(module: Module, device: str = "cpu") -> Module:
    """Return the same module with every BatchNorm in it turned into one over all ranks.

    Args:
        module: changed in place.
        device: the kind it will be on: torch has its own for CUDA.

    Example:
        >>> synchronised(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))[1]
        SyncBatchNorm(8, eps=1e-05, momentum=0.1, affine=True, ...)
    """
    if device == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)
    for name, child in module.named_children():
        setattr(module, name, _converted(child))
    return module


def _converted(module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        return synchronised(module)
    made = SyncBatchNorm(
        module.num_features,
        module.eps,
        module.momentum,
        module.affine,
        module.track_running_stats,
    )
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(made, name, getattr(module, name))
    return made.train(module.training)
