"""Networks cut over two ranks: no device holds the whole, and all ranks end with the same."""

import json

import pytest
import torch

import forked

SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile
from chiaroscuro.engine import FitOptions, Networks, OptimiserSettings, fit, joined_ranks, rank
from chiaroscuro.engine.state import begin
from chiaroscuro.errors import ChiaroError
from chiaroscuro.kernels import Cosine, Learnable
from chiaroscuro.objectives import InfoNCE

WIDTH, DEPTH = 256, 12

class Positions(torch.nn.Module):
    "A buffer that no checkpoint holds, and a tensor that is no buffer."
    def __init__(self):
        super().__init__()
        self.register_buffer("ramp", torch.linspace(0, 1, 8), persistent=False)
        self.plain = torch.tensor(2.0)
    def forward(self, x):
        return x * (1 + self.ramp) * self.plain

def networks():
    torch.manual_seed(0)
    inner = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
    ends = torch.nn.Linear(8, WIDTH), torch.nn.Linear(WIDTH, 4)
    return Networks([torch.nn.Sequential(Positions(), ends[0], torch.nn.Tanh(), *inner, ends[1])])

def resident(work):
    "The most bytes that were held at once, beyond those before."
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = work()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    most = now = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most, kept

sgd = OptimiserSettings(name="sgd", lr=0.05)
folder = Path(sys.argv[1])
options = FitOptions(device="cpu", shard=True)
x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
with joined_ranks():
    whole = networks()
    size = sum(p.numel() * p.element_size() for p in whole.parameters())
    most, state = resident(lambda: begin(whole, InfoNCE(), sgd, options))
    parts = sum(p.to_local().numel() * 4 for p in state.networks.parameters())
    on_meta = all(p.is_meta for p in whole.parameters())
    del state
    mine = x[16 * rank() : 16 * (rank() + 1)]
    trained = networks()
    fitted = fit(trained, InfoNCE(), [(mine, mine + 0.1)] * 3, sgd, options=options)
    same = fitted.networks is trained
    told = {"most": most, "size": size, "parts": parts, "on_meta": on_meta, "same": same}
    (folder / f"told-{rank()}.json").write_text(json.dumps(told))
    torch.save(dict(fitted.networks.state_dict()), folder / f"weights-{rank()}.pt")

    def small(name, tau, **more):
        "Weights after six steps, cut and whole, and the temperature."
        found = []
        for shard in (True, False):
            torch.manual_seed(0)
            layers = [torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4)]
            objective = InfoNCE(Cosine(Learnable(tau)))
            optimiser = OptimiserSettings(name=name, lr=0.05, second_momentum=0.99)
            options = FitOptions(device="cpu", shard=shard, **more)
            batches = [(mine, mine + 0.1)] * 6
            done = fit(Networks([torch.nn.Sequential(*layers)]), objective, batches, optimiser,
                       options=options)
            learnt = [*done.networks.parameters(), *done.objective.parameters()]
            found.append(torch.cat([p.detach().flatten() for p in learnt]))
        return found

    apart = {}
    for name in ("sgd", "adamw", "lars"):
        for what, tau, more in (("float16", 0.5, {"precision": "float16", "clip": 1.0}),
                                ("clipped", [0.3, 0.5, 0.7, 0.9], {"clip": 0.1})):
            cut, kept = small(name, tau, **more)
            apart[f"{name}, {what}"] = float((cut - kept).abs().max())
    try:
        small("sgd", [0.5] * 4, precision="float16")
    except ChiaroError as error:
        apart["refused"] = str(error)
    (folder / f"apart-{rank()}.json").write_text(json.dumps(apart))
for name in ("RANK", "WORLD_SIZE"):
    del os.environ[name]
alone = networks()
fit(alone, InfoNCE(), [(x, x + 0.1)] * 3, sgd, options=FitOptions(device="cpu"))
torch.save(dict(alone.state_dict()), folder / "alone.pt")
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharding")
    script = folder / "ranks.py"
    script.write_text(SCRIPT)
    done = forked.run(script, str(folder), world=2)
    assert done.codes == [0, 0], done.err
    return folder, [json.loads((folder / f"told-{r}.json").read_text()) for r in range(2)]


def test_no_rank_makes_the_whole_again(told):
    """Parts, and one tensor on its way: of what was built on the host, each rank takes half."""
    for one in told[1]:
        assert abs(one["parts"] / one["size"] - 0.5) < 0.01
        assert one["parts"] <= one["most"] <= 0.75 * one["size"], one
    assert [one["on_meta"] for one in told[1]] == [False, True]


def test_all_ranks_end_with_the_weights_of_one_process(told):
    folder, facts = told
    assert all(one["same"] for one in facts)
    alone = torch.load(folder / "alone.pt")
    for r in range(2):
        found = torch.load(folder / f"weights-{r}.pt")
        assert found.keys() == alone.keys()
        for name, value in alone.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_cut_networks_take_the_steps_of_whole_ones_in_float16_and_clipped(told):
    """Whatever steps them, and beside a temperature that is not cut."""
    folder, _ = told
    for rank in range(2):
        apart = json.loads((folder / f"apart-{rank}.json").read_text())
        assert "learns 4 together" in apart.pop("refused")
        assert len(apart) == 6
        for name, gap in apart.items():
            assert gap <= 1e-6, f"{name} is {gap:.1e} from whole networks"
