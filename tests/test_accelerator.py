"""What an accelerator would have to do for a loss, counted: no waits, and few operations.

At 4096 pairs on `meta`, where nothing is computed and every operation is counted; and on a toy
device that is compiled here, where every wait for a number shows and the numbers must be those of
the CPU.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import chiaroscuro as cs
from accelerator.counting import Counting
from chiaroscuro.engine.optimisers import LARS
from chiaroscuro.models import SequenceTransformer
from chiaroscuro.models.momentum import Momentum
from chiaroscuro.numerics import device_distances, narrow_for, power
from zoo import KERNELS, OBJECTIVES, extras

HERE = Path(__file__).parent / "accelerator"
PAIRS, MOST = 4096, 100


def counted(objective, n=PAIRS, d=4):
    """A step on `meta`, which has no numbers to read: to ask for one is an error."""
    z1, z2 = (torch.empty(n, d, device="meta", requires_grad=True) for _ in range(2))
    more = {name: x.to("meta") for name, x in extras(objective, torch.zeros(n, d)).items()}
    with Counting() as count:
        objective.to("meta")(z1, z2, **more).backward()
    return count


def budget(objective):
    """100 operations for a kernel or a sum of two; else 100 for each member of each loss."""
    if isinstance(objective, cs.Weighted):
        return sum(budget(member) for _, member in objective.members)
    if isinstance(objective, cs.Matryoshka):
        return len(objective.dims) * budget(objective.objective)
    if isinstance(objective, cs.OnDims | cs.Grouped):
        return budget(objective.objective) + 5
    kernel = getattr(objective, "kernel", getattr(objective, "eta", None))
    parts = kernel.parts(4) if isinstance(kernel, cs.Kernel) else []
    if isinstance(kernel, cs.Sum) and len(parts) == 2 and not list(kernel.parameters()):
        parts = parts[:1]
    twice = isinstance(objective, cs.Debiased | cs.NNCLR)  # two comparisons with the candidates
    return MOST * max(1, len(parts)) * (1 + twice)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_an_objective_is_few_operations_and_waits_for_nothing(objective):
    count = counted(copy.deepcopy(objective))
    assert count.waits == 0
    assert count.operations <= budget(objective), count.names.most_common()


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_kernel_is_few_operations_and_waits_for_nothing(kernel):
    for negatives in (cs.AllButSelf(), cs.OtherView()):
        objective = cs.InfoNCE(copy.deepcopy(kernel), negatives)
        count = counted(objective)
        assert count.waits == 0
        assert count.operations <= budget(objective), count.names.most_common()


def test_the_counter_counts():
    with Counting() as count:
        x = torch.ones(3)
        float((x.view(3, 1) + x).sum())
        x.nonzero()
    assert count.names == {"ones": 1, "add": 1, "sum": 1, "_local_scalar_dense": 1, "nonzero": 1}
    assert (count.operations, count.waits) == (3, 2)


def test_larger_batches_are_more_blocks_of_the_same():
    small, large = (counted(cs.InfoNCE(cs.Gaussian(0.5)), n) for n in (4096, 8192))
    assert small.operations < large.operations < 5 * small.operations
    assert large.waits == 0


class Largest(TorchDispatchMode):
    """The most differences of coordinates that the gradient of a `cdist` is asked to hold."""

    most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ == "_cdist_backward":
            self.most = max(self.most, args[0].numel() * args[1].shape[-1])
        return function(*args, **(kwargs or {}))


def test_differences_of_coordinates_stay_within_a_gigabyte():
    """The gradient of `cdist` allocates all of them: 34 GB at 4096 pairs of 128 dimensions."""
    for loss in (cs.InfoNCE, cs.SigLIP, cs.SupCon):
        with Largest() as largest:
            counted(loss(cs.Lp(3, 0.5)), d=128)
        assert 1 << 27 < largest.most <= 1 << 28


class Formats(TorchDispatchMode):
    """The formats of all results."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.seen |= {x.dtype for x in (out if isinstance(out, tuple) else [out])
                      if isinstance(x, torch.Tensor)}  # fmt: skip
        return out


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_no_float64_on_a_device(objective):
    """Graphics cards compute it at a fraction of the speed, and MPS not at all."""
    with Formats() as formats:
        counted(copy.deepcopy(objective))
    assert torch.float64 not in formats.seen


def test_the_gradient_of_near_points_on_a_device():
    """Distances are exact there; the gradient of a pair is known to eps |a - mean| / r."""
    torch.manual_seed(0)
    a = torch.randn(40, 8, dtype=torch.float32)
    a[20:] = a[:20] + 1e-3 * torch.randn(20, 8)
    a[3] = a[2]
    exact = (a[:, None].double() - a.double()).square().sum(dim=2)
    found = device_distances(a, a)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0)
    z = a.clone().requires_grad_()
    power(device_distances(z, z), 0.5).sum().backward()
    y = a.double().requires_grad_()
    power((y[:, None] - y).square().sum(dim=2), 0.5).sum().backward()
    torch.testing.assert_close(z.grad.double(), y.grad, rtol=0, atol=1e-3)


def test_parameters_of_float64_become_float32_before_they_move_to_mps():
    for module in (cs.Learnable(0.3, log_ratio=0.1), cs.SigLIP(bias=-0.1)):
        assert torch.float64 in {p.dtype for p in module.parameters()}

        def move(x):
            if x.dtype == torch.float64:
                raise TypeError("MPS has no float64")
            with FakeTensorMode():
                return torch.empty(x.shape, dtype=x.dtype, device="mps")

        for part in module.modules():
            narrow_for(part, move)
        assert {p.dtype for p in module.parameters()} == {torch.float32}
    kept = cs.Learnable(0.3, log_ratio=0.1).to("meta")
    assert kept.log_ratio.dtype == torch.float64


def test_lars_and_slow_copies_are_a_few_operations_for_any_number_of_tensors():
    layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(50)))
    weights, others = ([p for p in layers.parameters() if (p.ndim > 1) == wide] for wide in (1, 0))
    for p in layers.parameters():
        p.grad = torch.ones_like(p)
    optimiser = LARS([{"params": weights}, {"params": others, "exclude": True}], lr=0.1)
    optimiser.step()
    slow = Momentum(layers)
    with Counting() as count:
        optimiser.step()
        slow.update(layers, 0.9)
    launches = sum(count.names.values())
    assert count.waits == 0
    assert launches <= 30, count.names
    optimiser.found_inf = torch.tensor(0.0)  # as a gradient scaler says in float16
    with Counting() as count:
        optimiser.step()
    assert count.waits == 0
    assert sum(count.names.values()) <= 25, count.names


def test_a_sequence_model_waits_for_nothing():
    net = SequenceTransformer(n_tokens=50, length=8, d=16, padding=0).to("meta")
    with Counting() as count:
        net(torch.zeros(4, 8, dtype=torch.long, device="meta"))
    assert count.waits == 0


# ---- the toy device ----


def toy_device() -> Path:
    """The compiled library, made once for this source, compiler and torch."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("the toy device needs a C++ compiler, and there is none")
    from torch.utils.cpp_extension import include_paths

    includes = include_paths()
    if not (Path(includes[0]) / "torch" / "library.h").is_file():
        pytest.skip("the toy device needs the C++ headers of torch, and there are none")
    source = HERE / "toy.cpp"
    key = sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"chiaroscuro-toy-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{key}.so"
    if not library.is_file():
        made = library.with_suffix(f".{os.getpid()}")
        lib = Path(torch.__file__).parent / "lib"
        command = [compiler, "-O0", "-w", "-std=c++20", "-shared", "-fPIC", str(source)]
        command += [*(f"-I{path}" for path in includes), f"-L{lib}", "-ltorch_cpu", "-lc10"]
        done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"the toy device does not compile here: {done.stderr[-400:]}")
        made.replace(library)
    return library


def test_on_a_device_nothing_waits_and_the_numbers_are_those_of_the_cpu():
    command = [sys.executable, str(HERE / "on_toy.py"), str(toy_device())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["reading a number"] == {"waits": 1, "which": "aten::_local_scalar_dense x 1; "}
    assert len(result["objectives"]) > 25
    for name, row in result["objectives"].items():
        assert row["waits"] == 0, f"{name} waits: {row['which']}"
        assert row["apart"] <= 5e-6, f"{name} is {row['apart']:.2e} from the CPU's numbers"
        assert row["launches"] > 5
    assert len(result["half"]) > 50
    for name, row in result["half"].items():
        assert row["waits"] == 0, f"{name} waits: {row['which']}"
        # gradients are rounded to the format of the embeddings, at the end
        bound = 2e-3 if "float16" in name and "bfloat16" not in name else 2e-2
        assert row["apart"] <= bound, f"{name} is {row['apart']:.2e} from the CPU's numbers"


def test_a_step_on_a_device_waits_for_nothing():
    """Whatever is trained; but for optimisers of others in float16, which torch asks the host to
    step."""
    command = [sys.executable, str(HERE / "steps_on_toy.py"), str(toy_device())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert len(result["steps"]) == 12
    for name, row in result["steps"].items():
        foreign = "foreign" in name
        assert row["waits"] == ["aten::_local_scalar_dense x 1; " if foreign else ""] * 3, name
        assert row["apart"] <= 1e-4, f"{name} is {row['apart']:.2e} from the CPU's numbers"
    assert "needs to embed the same rows alike twice" in result["moved"]
    for name, row in result["spoilt"].items():
        assert row == {"weights": True, "moments": True, "scale": 32768.0}, name
