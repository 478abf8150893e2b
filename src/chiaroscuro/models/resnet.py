"""Residual networks, with a stem for small images and a width factor."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model, images, one_of

__all__ = ["ResNet"]

BLOCKS = {9: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
_SHRINKS = {"small": 8, "strided": 16, "large": 32}  # image side per side of the last map


class ResNet(Model):
    """Residual network without its classifier: stem, four stages, global average pooling.

        x <- relu(x + F(x)) block by block; h = mean over positions of the last stage(s)

    `depth` 18, 34 and 50 are the usual networks (50 with bottlenecks); 9 has one basic block per
    stage, nine convolutions on the main path. The stages have 64, 128, 256 and 512 channels times
    `width` (times 4 at depth 50), and d is that of the last, or of the last `stages` together.
    Submodules carry torchvision's names, so its weights load into `stem="large"`.

    Args:
        depth: 9, 18, 34 or 50.
        width: factor on all channel counts; `64 * width` is rounded to an integer.
        channels: of the input.
        stem: "small", a 3x3 convolution of stride 1 without pooling, for images of about 32 pixels
            [chen2020simclr, B.9]; "strided", the same with stride 2, a quarter of the work;
            "large", 7x7 of stride 2 and max-pooling, for about 224 pixels.
        stages: h holds the means of so many stages side by side, the last one last; 1 is the usual
            network. What is coarse and near the pixels stays in h, which helps small networks.
        zero_init: the last BatchNorm of each block starts at 0, each block as the identity (its
            other weights then get their first gradient after one step). Off by default.

    Numerics: He initialisation over the fan-out. In training, batch statistics need more than one
    value per channel. Works in `channels_last`.

    References:
        chen2020simclr

    Example:
        >>> net = ResNet(depth=9, width=0.25, stem="strided")
        >>> net.d, net(torch.zeros(2, 3, 32, 32)).shape
        (128, torch.Size([2, 128]))
    """

    def __init__(
        self,
        depth: int = 18,
        width: float = 1.0,
        channels: int = 3,
        stem: str = "small",
        zero_init: bool = False,
        stages: int = 1,
    ):
        super().__init__()
        one_of(self, "depth", depth, BLOCKS)
        one_of(self, "stem", stem, _SHRINKS)
        need(
            isinstance(channels, int) and channels > 0,
            lambda: f"`ResNet(channels={channels!r})` needs a positive integer.",
        )
        need(
            isinstance(width, int | float) and 1 <= 64 * width < float("inf"),
            lambda: (
                f"`ResNet(width={width!r})` needs `64 * width >= 1` channels in its first "
                f"stage; received `{width!r}`."
            ),
        )
        need(
            type(stages) is int and 1 <= stages <= 4,
            lambda: f"`ResNet(stages={stages!r})` needs 1, 2, 3 or 4.",
        )
        self.stages = stages
        self.depth, self.width, self.channels = depth, float(width), channels
        self.stem, self.zero_init = stem, zero_init
        block = _Bottleneck if depth == 50 else _Basic
        planes = round(64 * width)
        kernel, stride = (7, 2) if stem == "large" else (3, 2 if stem == "strided" else 1)
        self.conv1 = _conv(channels, planes, kernel, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        d, made = planes, []
        for stage, count in enumerate(BLOCKS[depth]):
            width_here = planes * 2**stage
            blocks: OrderedDict[str, nn.Module] = OrderedDict()
            for at in range(count):
                blocks[str(at)] = block(d, width_here, 2 if stage and not at else 1)
                d = width_here * block.expansion
            made.append(nn.Sequential(blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = made
        self.d = sum(planes * 2**stage * block.expansion for stage in range(4 - stages, 4))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init and isinstance(module, _Basic | _Bottleneck):
                nn.init.zeros_(module.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        x = F.relu(self.bn1(self.conv1(x)))
        if self.stem == "large":
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        means = []
        for at, stage in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            x = stage(x)
            if at >= 4 - self.stages:
                means.append(x.mean((2, 3)))
        return torch.cat(means, dim=1) if self.stages > 1 else means[0]

    def example(self, n: int = 2) -> Tensor:
        side = 224 if self.stem == "large" else 32
        return torch.zeros(n, self.channels, side, side)

    def _check(self, x: Tensor) -> None:
        images(self, x, self.channels)
        least, (n, _, height, width) = _SHRINKS[self.stem], x.shape
        need(
            min(height, width) >= least,
            lambda: (
                f"`ResNet(stem={self.stem!r})` shrinks images {least} times and needs at least "
                f"{least}x{least} pixels; received {height}x{width}."
                + (' `stem="small"` takes images from 8x8.' * (self.stem != "small"))
            ),
        )
        need(
            not (self.training and n == 1 and max(height, width) <= least),
            lambda: (
                f"`ResNet` needs more than one value per channel in a training batch; received 1 "
                f"image of {height}x{width}, of which 1x1 remains in the last stage."
            ),
        )


def _conv(d_in: int, d_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(d_in, d_out, kernel, stride, padding=kernel // 2, bias=False)


def _shortcut(d_in: int, d_out: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and d_in == d_out:
        return None
    return nn.Sequential(_conv(d_in, d_out, 1, stride), nn.BatchNorm2d(d_out))


class _Basic(nn.Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, d_in: int, width: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = _conv(d_in, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = _shortcut(d_in, width, stride)

    @property
    def last(self) -> nn.BatchNorm2d:
        return self.bn2

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class _Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 to four times the width."""

    expansion = 4

    def __init__(self, d_in: int, width: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = _conv(d_in, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(d_in, 4 * width, stride)

    @property
    def last(self) -> nn.BatchNorm2d:
        return self.bn3

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))
