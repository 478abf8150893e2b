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

import chiaroscuro as cs
from accelerator.counting import Counting
from chiaroscuro.engine.optimisers import LARS
from chiaroscuro.models import SequenceTransformer
from chiaroscuro.models.momentum import Momentum
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
