"""BatchNorm whose statistics are those of the batch of all ranks, on any device."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from chiaroscuro.engine.distributed import sum_over_ranks
from chiaroscuro.errors import need

__all__ = ["SyncBatchNorm", "synchronised"]

Module = TypeVar("Module", bound=nn.Module)


class SyncBatchNorm(nn.BatchNorm1d):
    """Batch normalisation over the rows of all ranks [ioffe2015batchnorm, Alg. 1].

        mean = sum_r sum_i x_ri / n,   var = sum_r sum_i (x_ri - mean)^2 / n
        y = weight (x - mean) / sqrt(var + eps) + bias

    torch's own needs CUDA; this one is plain sums, which every backend can add up. The state has
    the same names as that of `nn.BatchNorm2d`.

    Relations: on one rank, and in evaluation mode, it is `nn.BatchNorm1d`, `2d`, `3d`.

    Numerics: statistics in float32 at least; the variance from centred values, in two rounds.

    References:
        ioffe2015batchnorm

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
        x = input if input.dtype == torch.float64 else input.float()
        others = [dim for dim in range(x.ndim) if dim != 1]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        n = sum_over_ranks(x.new_tensor(x.numel() / x.shape[1]))
        need(float(n) > 1, lambda: f"A batch norm needs at least 2 values; received {int(n)}.")
        mean = sum_over_ranks(x.sum(others)) / n
        centred = x - mean.view(shape)
        var = sum_over_ranks(centred.square().sum(others)) / n
        self._remember(mean.detach(), var.detach() * n / (n - 1))
        y = centred * torch.rsqrt(var + self.eps).view(shape)
        if self.weight is not None:
            y = y * self.weight.view(shape)
        if self.bias is not None:
            y = y + self.bias.view(shape)
        return y.to(input.dtype)

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


def synchronised(module: Module) -> Module:
    """The same module with every BatchNorm in it turned into a `SyncBatchNorm`, state and all.

    Example:
        >>> synchronised(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))[1]
        SyncBatchNorm(8, eps=1e-05, momentum=0.1, affine=True, ...)
    """
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
