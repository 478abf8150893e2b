"""Run every objective and kernel on the toy device and on the CPU; print what differs, as JSON.

python on_toy.py toy.so
"""

import copy
import json
import os
import sys
import types
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import chiaroscuro as cs
from zoo import exported, extras, instances, pair

N = 16


def register(library: str) -> None:
    torch.utils.rename_privateuse1_backend("toy")
    module = types.ModuleType("torch.toy")
    module.is_available = module.is_initialized = lambda: True
    module.device_count, module.current_device = lambda: 1, lambda: 0
    module._is_in_bad_fork, module.manual_seed_all = lambda: False, lambda seed: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    torch._register_device_module("toy", module)
    torch.ops.load_library(library)


def compared(objective, dtype=torch.float32) -> dict:
    """Waits and launches of a step there, and how far its numbers are from those of the CPU."""
    views = [z.detach() for z in pair(N, dtype=dtype)]
    found = []
    for device in ("cpu", "toy"):
        z1, z2 = (z.clone().to(device).requires_grad_() for z in views)
        more = {name: x.to(device) for name, x in extras(objective, views[0]).items()}
        there = copy.deepcopy(objective).to(device)
        torch.ops.toy.reset()
        loss = there(z1, z2, **more)
        loss.backward()
        counts = [torch.ops.toy.counted(what) for what in ("waits", "launches")]
        waits = torch.ops.toy.waits()
        grads = [torch.zeros_like(z) if z.grad is None else z.grad for z in (z1, z2)]
        found.append([x.detach().cpu().float() for x in (loss, *grads)])
    scale = max(1.0, *(float(x.abs().max()) for x in found[0]))
    apart = max(float((a - b).abs().max()) for a, b in zip(*found, strict=True)) / scale
    return {"waits": counts[0], "which": waits, "launches": counts[1], "apart": apart}


def main() -> None:
    register(sys.argv[1])
    x = torch.ones(3).to("toy")
    torch.ops.toy.reset()
    float((x + x).sum())
    known = {"waits": torch.ops.toy.counted("waits"), "which": torch.ops.toy.waits()}
    objectives = [o for cls in exported(cs.Objective) for o in instances(cls)[:2]]
    leaves = [instances(cls)[0] for cls in exported(cs.Kernel)]
    objectives += [cs.InfoNCE(kernel) for kernel in leaves]
    several = [0.3, 0.5, 0.7, 0.9]
    taus = [cs.Learnable(0.3), cs.Learnable(several), several, cs.Balanced(0.5, d=4)]
    taus.append(cs.Adaptive(0.5, d=4))
    objectives += [cs.InfoNCE(cs.Cosine(tau), cs.OtherView()) for tau in taus]
    objectives += [cs.InfoNCE(cs.Laplace(copy.deepcopy(tau))) for tau in taus]
    objectives += [cs.Debiased(cs.Cosine(cs.Learnable(0.3)), beta=1.0)]
    objectives += [cs.DINO(centring="sinkhorn")]
    result = {repr(objective): compared(objective) for objective in objectives}
    half = {
        f"{objective!r} in {dtype}": compared(objective, dtype)
        for objective in objectives
        for dtype in (torch.float16, torch.bfloat16)
    }
    print(json.dumps({"reading a number": known, "objectives": result, "half": half}))


if __name__ == "__main__":
    main()
    # autograd's thread of the device still waits, and torch may destroy it at exit without joining
    sys.stdout.flush()
    os._exit(0)
