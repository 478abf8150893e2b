"""Count what an accelerator would be asked to do: operations, waits and bytes."""

import collections

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["VIEWS", "WAITS", "Counting"]

VIEWS = {
    *("view", "t", "transpose", "slice", "detach", "expand", "unsqueeze", "select", "alias"),
    *("_unsafe_view", "diagonal", "split", "permute", "squeeze", "split_with_sizes"),
    *("as_strided", "unbind", "unfold", "lift_fresh"),
}
"""They move no number: a device never hears of them."""
WAITS = {
    *("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "_unique2", "unique_dim"),
    *("masked_select", "bincount"),
}
"""The host has to know numbers of the device before it can go on."""


class Counting(TorchDispatchMode):
    """Inside, every operation is counted: those that launch something, and those that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.names: collections.Counter[str] = collections.Counter()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        out = function(*args, **(kwargs or {}))
        if name in VIEWS:
            return out
        self.names[name] += 1
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.bytes += x.numel() * x.element_size()
        return out

    @property
    def operations(self) -> int:
        """How many launches."""
        return sum(self.names.values()) - self.waits

    @property
    def waits(self) -> int:
        """How often the host waits."""
        return sum(self.names[name] for name in WAITS)
