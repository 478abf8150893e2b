"""A one-dimensional convolutional encoder for time series, sensors and audio."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model, positive

__all__ = ["SeriesNet"]


class SeriesNet(Model):
    """One-dimensional convolutional residual network for series of any length.

        x <- relu(x + conv(relu(conv(x)))), half as long after each stage;   h = mean over time

    Takes (n, channels, length), or (n, length) for one channel. The mean over time makes the output
    independent of the length, so that windows of a recording and the whole of it can be compared.

    Args:
        channels: of the input.
        d: dimension of the output.
        width: channels of the first stage; they double at each of the next ones.
        depth: stages, each of which halves the length.
        kernel: places that a convolution sees; odd. 7 for the first layer and 5 within blocks are
            plain values without a paper behind them.
        stride: of the first layer; raise it for audio, where neighbouring samples are nearly equal.

    Numerics: in training, batch statistics need more than one value per channel. Series shorter
    than `2 ** depth * stride` are refused.

    Example:
        >>> net = SeriesNet(channels=3, d=64)
        >>> net(torch.zeros(2, 3, 100)).shape, SeriesNet()(torch.zeros(2, 50)).shape
        (torch.Size([2, 64]), torch.Size([2, 128]))
    """

    def __init__(
        self,
        channels: int = 1,
        d: int = 128,
        width: int = 32,
        depth: int = 3,
        kernel: int = 5,
        stride: int = 1,
    ):
        super().__init__()
        positive(
            self, channels=channels, d=d, width=width, depth=depth, kernel=kernel, stride=stride
        )
        need(
            kernel % 2 == 1,
            lambda: f"`SeriesNet(kernel={kernel})` needs an odd number of places.",
        )
        self.channels, self.d, self.width = channels, d, width
        self.depth, self.kernel, self.stride = depth, kernel, stride
        self.first = nn.Conv1d(channels, width, 7, stride, padding=3, bias=False)
        self.norm = nn.BatchNorm1d(width)
        sizes = [width * 2**stage for stage in range(depth)]
        self.blocks = nn.ModuleList(
            _Block(sizes[max(0, at - 1)], size, kernel) for at, size in enumerate(sizes)
        )
        self.last = nn.Linear(sizes[-1], d)
        for module in self.modules():
            if isinstance(module, nn.Conv1d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Tensor) and x.ndim == 2 and self.channels == 1:
            x = x[:, None]
        self._check(x)
        x = F.relu(self.norm(self.first(x)))
        for block in self.blocks:
            x = block(x)
        return self.last(x.mean(-1))

    def example(self, n: int = 2) -> Tensor:
        return torch.zeros(n, self.channels, 64 * self.stride)

    def _check(self, x: Tensor) -> None:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        need(
            isinstance(x, Tensor) and x.ndim == 3 and x.is_floating_point(),
            lambda: (
                f"`SeriesNet(channels={self.channels})` needs floating-point series (n, "
                f"{self.channels}, length); received {shape}."
            ),
        )
        need(
            x.shape[1] == self.channels,
            lambda: (
                f"`SeriesNet(channels={self.channels})` needs series (n, {self.channels}, length); "
                f"received {shape}, which has {x.shape[1]} channels."
                + (" Time comes last: `x.transpose(0, 2, 1)`." * (x.shape[2] == self.channels))
            ),
        )
        least = 2**self.depth * self.stride
        need(
            x.shape[2] >= least,
            lambda: (
                f"`SeriesNet(depth={self.depth}, stride={self.stride})` needs series of at least "
                f"{least} places; received {x.shape[2]}. Take a smaller `depth`."
            ),
        )


class _Block(nn.Module):
    """Two convolutions, the first of stride 2, and a shortcut."""

    def __init__(self, d_in: int, d_out: int, kernel: int):
        super().__init__()
        self.one = nn.Conv1d(d_in, d_out, kernel, 2, padding=kernel // 2, bias=False)
        self.two = nn.Conv1d(d_out, d_out, kernel, padding=kernel // 2, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm1d(d_out), nn.BatchNorm1d(d_out)
        self.shortcut = nn.Conv1d(d_in, d_out, 1, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm_two(self.two(F.relu(self.norm_one(self.one(x)))))
        return F.relu(inner + self.shortcut(x))
