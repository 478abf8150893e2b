"""Every method's preset, made small: two ranks are one batch, and a resumed run has the same bits.

The networks have no batch norm, which would amplify rounding at 8 samples; `test_ranks` has it.
"""

import fnmatch
import itertools
import json
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import forked
from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine import read_settings, train
from planting import plant

SMALL = [
    "epochs=2",
    "batch=8",
    "schedule.warmup=1",
    "saving.every=4",
]
TWO = "views.first=SimCLR(size=8, strength=0.5)"
CROPS = "views.first=MultiCrop((2, SimCLR(size=8)), (1, SimCLR(size=12)))"
PLAIN = "d=4, depth=2, width=8, batch_norm=False, last='none'"
HEAD, PREDICTOR = f"network.projector=Projector({PLAIN})", f"network.predictor=Projector({PLAIN})"
CLUSTERS = "network.projector=Prototypes(d=6, bottleneck=4, width=8, batch_norm=False)"
ANY_SIZE, FROZEN = (
    f"network.encoder=ViT(size=8, patch=4, d=8, depth=1, heads=2, {what}=True)"
    for what in ("any_size", "frozen_patches")
)
METHODS = {
    "dino": [ANY_SIZE, CROPS, CLUSTERS],
    "swav": [ANY_SIZE, CROPS, CLUSTERS],
    "simsiam": [ANY_SIZE, TWO, HEAD, PREDICTOR],
    "moco-v3": [FROZEN, TWO, HEAD, PREDICTOR],
    "nnclr": [ANY_SIZE, TWO, HEAD, PREDICTOR, "network.queue=20"],
    "siglip": [  # all pairs are summed, so that its gradient is larger
        *(ANY_SIZE, TWO, HEAD, "network.second_encoder=", "views.second="),
        "optimiser.lr=0.0005",
    ],
    "simclr": [ANY_SIZE, TWO, HEAD],
    "simclr with groups": [
        *(ANY_SIZE, TWO, HEAD, "objective=Grouped(InfoNCE())", "data.source={folder}/groups.npz"),
    ],
    "simclr on triples": [
        "network.encoder=MLP(d_in=5, d=8, depth=2, width=8)",
        "network.projector=Projector(d=4, depth=1, last='none')",
        "views.first=",
        "objective=InfoNCE(Cosine(tau=0.1), OtherView(), anchors='first')",
        "data.source={folder}/triples.npz",
    ],
    "matryoshka": [ANY_SIZE, TWO, HEAD, "objective=Matryoshka(InfoNCE(), (2, 3, 4))"],
    "debiased": [ANY_SIZE, TWO, HEAD],
    "hard-negatives": [ANY_SIZE, TWO, HEAD],
    "kernel-infonce-sum": [ANY_SIZE, TWO, HEAD],
    "supcon": [ANY_SIZE, TWO, HEAD, "data.source={folder}/groups.npz"],
    "directclr": [ANY_SIZE, TWO, "objective=OnDims(InfoNCE(), 0, 5)"],
    "moco": [ANY_SIZE, TWO, HEAD, "network.queue=20"],
    "byol": [ANY_SIZE, TWO, HEAD, PREDICTOR],
    "vicreg": [ANY_SIZE, TWO, HEAD],
    "barlow-twins": [ANY_SIZE, TWO, HEAD, "optimiser.lr=0.0005"],  # large gradients, as above
    "clip": [ANY_SIZE, TWO, HEAD, "network.second_encoder=", "views.second="],
}
RANKS = """
    import json, sys
    from chiaroscuro.engine import joined_ranks, read_settings, train
    folder, methods = sys.argv[1], json.load(open(sys.argv[1] + "/methods.json"))
    with joined_ranks():
        for name, sets in methods.items():
            train(read_settings(name.split()[0], sets), f"{folder}/two-{name}")
"""


def checkpoint(folder):
    return checkpoints.latest_good(Run.open(folder).checkpoints).checkpoint


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each method on two ranks, all in one process group."""
    folder = tmp_path_factory.mktemp("methods")
    images = np.random.default_rng(0).integers(0, 255, (24, 8, 8, 3), np.uint8)
    np.savez(folder / "x.npz", images=images)
    groups = np.arange(24) % 5
    np.savez(folder / "groups.npz", images=images, groups=groups, labels=groups // 2)
    source = f"data.source={folder / 'x.npz'}"
    # rates at which rounding stays rounding: a large step amplifies it
    gentle = ["optimiser.name=sgd", "optimiser.lr=0.02", "optimiser.weight_decay=0"]
    rng = np.random.default_rng(0)
    x, second, hard = (rng.normal(size=(24, *k, 5)).astype(np.float32) for k in ((), (), (2,)))
    np.savez(folder / "triples.npz", x=x, second_view=second, negatives=hard)
    sets = {
        name: [*SMALL, source, *gentle, *(one.replace("{folder}", str(folder)) for one in some)]
        for name, some in METHODS.items()
    }
    (folder / "methods.json").write_text(json.dumps(sets))
    (folder / "ranks.py").write_text(textwrap.dedent(RANKS))
    done = forked.run(folder / "ranks.py", str(folder), world=2)
    assert done.codes == [0, 0], done.err
    return folder, sets


@pytest.mark.parametrize("name", METHODS)
def test_two_ranks_are_one_batch_and_a_resumed_run_has_the_same_bits(runs, name):
    folder, sets = runs
    settings = read_settings(name.split()[0], sets[name])
    run = train(settings, folder / f"one-{name}")
    one, two = checkpoint(run.folder), checkpoint(folder / f"two-{name}")
    assert one.step == two.step == 6
    compared = [k for k in one.arrays if k.startswith(("networks", "objective", "target", "queue"))]
    assert len(compared) >= 4
    for key in compared:
        a, b = one.arrays[key], two.arrays[key]
        np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-5, err_msg=key)
    newest = sorted(run.checkpoints.iterdir())[-1]
    newest.rename(folder / f"lost-{name}")
    train(settings, run.folder, resume=True)
    again = checkpoint(run.folder)
    assert again.step == 6
    assert again.arrays.keys() == one.arrays.keys()
    for key, array in one.arrays.items():
        assert array.tobytes() == again.arrays[key].tobytes(), key


def test_every_method_of_the_guide_is_here_and_has_a_preset_with_its_sources():
    from chiaroscuro.engine import preset_text

    table = (Path(__file__).parents[2] / "docs/guide/methods.md").read_text().split("|---")[-1]
    rows = [line.split(" | ")[4] for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 18
    tested = {name.split()[0] for name in METHODS}
    for presets in rows:
        first = presets.split("`")[1]
        assert first in tested or any(fnmatch.fnmatch(name, first) for name in tested), presets
    for name in tested:
        header = itertools.takewhile(
            lambda line: line.startswith("#"), preset_text(name).split("\n")
        )
        assert re.search(r"\b20\d\d\b", "".join(header)), name


def test_the_centre_of_dino_moves_once_a_step():
    """By the mean of both large crops of the teacher, after the losses of the step."""
    import copy

    import torch

    from chiaroscuro.engine import FitOptions, build
    from chiaroscuro.engine.crops import Crops
    from chiaroscuro.engine.state import begin
    from chiaroscuro.engine.step import take_step

    settings = read_settings("dino", [*SMALL, *METHODS["dino"]])
    options = FitOptions.of(settings)
    objective = settings.make_objective()
    state = begin(build(settings.network, 0), objective, settings.optimiser, options)
    with torch.no_grad():
        for p in state.target.parameters():  # no longer the student
            p.mul_(0.7)
    x = torch.rand(3, 4, 3, 8, 8)
    teacher = copy.deepcopy(state.target.module)
    with torch.no_grad():
        z = torch.cat([teacher.project(teacher.encode(one)) for one in (x[0], x[1])])
    take_step(state, state.networks, (x[0], Crops([x[1], x[2]]), None), options, 10)
    torch.testing.assert_close(state.objective.centre, 0.1 * z.mean(dim=0))


PLANTED = {
    "the student's rows": ("_adapt", "_rows(spread.z2)", "_rows(spread.z1)"),
    "one crop of two": ("_of_crops", "_adapt(state, kept)", "_adapt(state, kept[:1])"),
    "never": ("_adapt", "if adapts(state.objective):", "if False:"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_every_mistake_planted_into_the_centre_is_caught(name, monkeypatch):
    from chiaroscuro.engine import step

    with monkeypatch.context() as patch:
        plant(patch, step, *PLANTED[name])
        with pytest.raises(AssertionError):
            test_the_centre_of_dino_moves_once_a_step()
