"""Several pairs of views on two ranks: one message each way, and the weights of one process."""

import json

import numpy as np
import pytest

import forked
from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine import read_settings, train

COMMON = [
    *("epochs=2", "batch=16", "saving.every=100", "saving.record=100", "schedule.warmup=0"),
    *("optimiser.name=sgd", "optimiser.lr=0.05"),
    "network.projector=Projector(d=4, depth=1, last='none')",
]
ROWS = ["views.first=Jitter(noise=0.1)", "network.encoder=MLP(d_in=6, d=8, depth=2, width=16)"]
CROPS = [
    "views.first=MultiCrop((2, SimCLR(size=8)), (2, SimCLR(size=8)))",
    "network.encoder=MLP(d_in=192, d=8, depth=1)",
]
PREDICTOR = "network.predictor=Projector(d=4, depth=1, last='none')"
HEAD = "network.projector=Prototypes(d=4, batch_norm=False)"
ONE, TWO = ["all_gather"], ["all_gather", "_REDUCE_SCATTER"]
CASES = {
    "BYOL": (ONE, ROWS, ["objective=BYOL()", "network.momentum=0.9", "symmetric=true", PREDICTOR]),
    "NNCLR": (
        *(TWO, ROWS),
        [
            *("objective=NNCLR()", PREDICTOR, "network.own_target=true"),
            *("network.queue=32", "symmetric=true"),
        ],
    ),
    "MoCo": (
        *(TWO, ROWS),
        [
            "objective=InfoNCE(Cosine(tau=Learnable(0.2)), OnlyPositive(), anchors='first')",
            *("network.momentum=0.9", "network.queue=32", "symmetric=true"),
        ],
    ),
    "measured": (
        *(TWO, ROWS),
        [
            "objective=InfoNCE(Gaussian(tau=Adaptive(0.5, 4)))",
            *("network.momentum=0.9", "symmetric=true"),
        ],
    ),
    "DINO": (
        *(ONE, ROWS),
        [
            *("objective=DINO()", HEAD),
            *("network.momentum=0.9", "symmetric=true"),
        ],
    ),
    "SwAV": (
        ONE,
        ROWS,
        ["objective=SwAV()", "network.projector=Prototypes(d=4, batch_norm=False)"],
    ),
    "crops": (TWO, CROPS, ["objective=InfoNCE()"]),
    "crops against a slow copy": (
        *(ONE, CROPS),
        [
            "objective=DINO()",
            "network.projector=Prototypes(d=4, batch_norm=False)",
            "network.momentum=0.9",
        ],
    ),
    "crops and a queue": (
        *(TWO, CROPS),
        [
            "objective=InfoNCE(Cosine(tau=0.2), OnlyPositive(), anchors='first')",
            *("network.momentum=0.9", "network.queue=32"),
        ],
    ),
    "triples": (TWO, ROWS, ["objective=InfoNCE(Cosine(tau=0.2), OtherView(), anchors='first')"]),
}
"""Messages of a step, and settings."""

SCRIPT = """
import json, sys
import torch.distributed as dist
from chiaroscuro.engine import distributed, fitting, joined_ranks, rank, read_settings, train

sent, starts, take_step = [], [], fitting.take_step

def counted(place, name):
    call = getattr(place, name)
    setattr(place, name, lambda *a, **k: (sent.append(name), call(*a, **k))[1])

def counting(*arguments):
    starts.append(len(sent))
    return take_step(*arguments)

for name in ("all_gather", "all_reduce", "broadcast", "barrier"):
    counted(dist, name)
for name in ("_REDUCE_SCATTER", "_ALL_GATHER"):
    counted(distributed, name)
fitting.take_step = counting
folder, told = sys.argv[1], {}
with joined_ranks():
    for name, sets in json.loads(sys.argv[2]).items():
        sent.clear(), starts.clear()
        train(read_settings("simclr", sets), f"{folder}/two {name}")
        # but for the first, which agrees on sizes, and the last of an epoch, which ends it
        steps = [sent[a:b] for a, b in zip(starts, starts[1:])]
        told[name] = [steps[k] for k in (1, 2, 5)]
    if rank() == 0:
        open(f"{folder}/told.json", "w").write(json.dumps(told))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    rng = np.random.default_rng(0)
    x, near, far = (rng.normal(size=(64, 6)).astype(np.float32) for _ in range(3))
    np.savez(folder / "rows.npz", x=x)
    np.savez(folder / "triples.npz", x=x, second_view=x + 0.1 * near, negatives=far[:, None])
    np.savez(folder / "images.npz", images=rng.integers(0, 255, (64, 8, 8, 3), np.uint8))
    sets = {}
    for name, (_, kind, more) in CASES.items():
        source = "triples" if name == "triples" else "rows" if kind is ROWS else "images"
        sets[name] = [*COMMON, *kind, *more, f"data.source={folder}/{source}.npz"]
    script = folder / "ranks.py"
    script.write_text(SCRIPT)
    done = forked.run(script, str(folder), json.dumps(sets), world=2)
    assert done.codes == [0, 0], done.err
    return folder, sets, json.loads((folder / "told.json").read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_several_pairs_is_one_message_each_way(trained, name):
    for step in trained[2][name]:
        assert step == CASES[name][0], name


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_end_with_the_weights_of_one_process(trained, name):
    folder, sets, _ = trained
    train(read_settings("simclr", sets[name]), folder / f"one {name}")
    one, two = (
        checkpoints.latest_good(Run.open(folder / f"{n} {name}").checkpoints).checkpoint
        for n in ("one", "two")
    )
    assert one.step == two.step == 8
    kinds = ("networks", "objective", "target", "queue")
    compared = [key for key in one.arrays if key.startswith(kinds)]
    assert len(compared) > 3
    for key in compared:
        np.testing.assert_allclose(two.arrays[key], one.arrays[key], rtol=1e-3, atol=1e-5)
