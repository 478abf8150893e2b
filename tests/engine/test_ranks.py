"""Two ranks, started by torchrun, are one batch; killed and resumed, the same run to the bit."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine import build, continued, read_settings, train
from chiaroscuro.errors import InputError

SETTINGS = [
    "epochs=3",
    "batch=16",
    "views.first=Jitter(noise=0.1)",
    "objective=InfoNCE(Cosine(tau=Learnable(0.5)))",
    "network.encoder=MLP(d_in=6, d=8, depth=2, width=16)",
    "network.projector=Projector(d=4, depth=1, last='none')",
    "optimiser.name=sgd",
    "optimiser.lr=0.03",
    "schedule.warmup=1",
    "saving.every=3",
]
SYNC = [
    "objective=InfoNCE(Sum(Cosine(tau=Balanced(0.5, 4)), Gaussian(tau=Adaptive(0.5, 4))))",
    "network.encoder=MLP(d_in=6, d=8, depth=2, width=16, normalisation='batch')",
    "network.projector=Projector(d=4)",
    "network.sync_batch_norm=true",
]
OBJECTS = """
    import sys

    import numpy as np
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    import chiaroscuro as cs

    x = torch.from_numpy(np.random.default_rng(0).normal(size=(32, 5)).astype(np.float32))
    settings = {
        "epochs": 2,
        "batch": 8,
        "optimiser": {"name": "sgd", "lr": 0.1},
        "schedule": {"warmup": 0.0},
        "network": {"projector": ""},
    }


    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))


    def loss(z1, z2):
        return cs.InfoNCE(cs.Gaussian(tau=0.5))(z1, z2)


    def weights(world, rank):
        by_train, by_fit = net(), net()
        noisy = lambda row: row + 0.1 * torch.randn(5)
        cs.train(settings, data=x, encoder=by_train, view=noisy, objective=loss)
        pairs = TensorDataset(x, x + 0.1)
        part = DistributedSampler(pairs, world, rank, shuffle=False)
        loader = DataLoader(pairs, 8 // world, sampler=part)
        sgd = torch.optim.SGD(by_fit.parameters(), 0.1)
        options = cs.engine.FitOptions(micro_batch=2)
        cs.engine.fit(by_fit, loss, loader, sgd, epochs=2, options=options)
        return [p.detach() for one in (by_train, by_fit) for p in one.parameters()]
"""
RANKS = """
    import json, os, signal, subprocess, sys, time
    from datetime import timedelta
    import torch.distributed as dist
    from chiaroscuro.engine import distributed, fitting, joined_ranks, on_every_rank, rank
    from chiaroscuro.engine import read_settings, step, train
    from chiaroscuro.errors import InputError

    NAMES = [
        *("all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "broadcast"),
        *("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "barrier"),
    ]

    def collectives(settings):
        "Messages from the start of each step to that of the next, but for those of an epoch's end."
        sent, starts = [], []
        def counted(name, call):
            return lambda *a, **k: (sent.append(name), call(*a, **k))[1]
        places = [(dist, name) for name in NAMES if hasattr(dist, name)]
        places += [(distributed, "_REDUCE_SCATTER"), (distributed, "_ALL_GATHER")]
        before = [(place, name, getattr(place, name)) for place, name in places]
        inner = fitting.take_step
        def take_step(*arguments):
            starts.append(len(sent))
            return inner(*arguments)
        for place, name, call in before:
            setattr(place, name, counted(name, call))
        fitting.take_step = take_step
        try:
            train(settings)
        finally:
            fitting.take_step = inner
            for place, name, call in before:
                setattr(place, name, call)
        return [sent[a:b] for i, (a, b) in enumerate(zip(starts, starts[1:])) if i and i % 4 != 3]

    def patience():
        "The first rank is away for longer than the messages of the others may take."
        on_every_rank(lambda: None)
        limit = dist.distributed_c10d._set_pg_timeout
        limit(timedelta(seconds=1))
        on_every_rank(lambda: time.sleep(2.5) if rank() == 0 else None)
        limit(timedelta(minutes=5))

    folder, sets, sync = sys.argv[1], sys.argv[2].split(";"), sys.argv[3].split(";")
    me = int(os.environ["RANK"])
    by_objects = weights(2, me)  # each of its trainings joins the ranks and leaves them
    if me == 0:
        torch.save(by_objects, f"{folder}/objects.pt")
    plain = read_settings("simclr", sets)
    with joined_ranks():
        train(plain, f"{folder}/two")
        train(read_settings("simclr", [*sets, *sync]), f"{folder}/sync")
        train(read_settings("clip", sys.argv[4].split(";")), f"{folder}/clip")
        train(read_settings("clip", sys.argv[6].split(";")), f"{folder}/slow")
        # continues what one process began, until it is asked to stop
        def ask(moment):
            "As torchrun and schedulers do: every process of the rank, those of its data as well."
            if moment.epoch == 1:
                signals = ["kill", "-TERM", "--", f"-{os.getpgid(0)}"]
                subprocess.run(signals, check=True, start_new_session=True)
        try:
            ahead = read_settings("simclr", [*sets, "data.workers=1"])
            train(ahead, f"{folder}/elastic", [ask], resume=True, progress=sys.stderr)
        except SystemExit as stopped:
            assert stopped.code == 143, stopped.code
        else:
            raise SystemExit("asked to stop, and went on")
        # cut over the ranks, stopped, and resumed from the parts
        big = read_settings("simclr", [*sets, "network.shard=true", "network.recompute=true"])
        try:
            train(big, f"{folder}/big", [ask])
        except SystemExit:
            train(big, f"{folder}/big", resume=True)
        counted = {}
        for name, more in json.loads(sys.argv[5]).items():
            counted[name] = collectives(read_settings("simclr", [*sets, *more]))
        if rank() == 0:
            open(f"{folder}/collectives.json", "w").write(json.dumps(counted))
        patience()
        here = ["data.source=nowhere.npz"] if rank() == 1 else []
        try:
            train(read_settings("simclr", [*sets, *here]), f"{folder}/half")
        except InputError as error:
            assert "`nowhere.npz` does not exist" in str(error), error
        else:
            raise SystemExit("one rank had no data, and nothing was raised")
        follow, seen = step._follow, []
        def dying(*arguments):
            seen.append(1)
            if len(seen) == 5 and rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            follow(*arguments)
        step._follow = dying
        train(read_settings("simclr", [*sets, "data.workers=1"]), f"{folder}/cut")
"""


COUNTED = {
    "InfoNCE": [],
    "SupCon": ["objective=SupCon(Cosine(tau=Learnable(0.2)))"],
    "MoCo": [
        "objective=InfoNCE(Cosine(tau=0.2), OnlyPositive(), anchors='first')",
        "network.momentum=0.9",
        "network.queue=32",
    ],
    "Adaptive": ["objective=InfoNCE(Gaussian(tau=Adaptive(0.5, 4)))"],
    "VICReg": ["objective=VICReg()"],
    "BYOL": ["objective=BYOL()", "network.momentum=0.9"],
    "sync": [*SYNC[1:], "objective=InfoNCE()"],
    "micro_batch": ["micro_batch=4"],
}
"""Settings of which the messages of a step are counted."""
MORE = ["saving.every=100", "saving.record=100", "optimiser.lr=1e-4"]


CLIP = [
    "epochs=2",
    "batch=8",
    "micro_batch=2",
    "views.first=SimCLR(size=8, strength=0.1)",
    "network.encoder=MLP(d_in=192, d=8, depth=2, width=16)",
    "network.second_encoder=SequenceTransformer(n_tokens=258, d=8, depth=1, heads=2, padding=0)",
    "network.projector=Projector(d=4, depth=1, last='none')",
    "optimiser.name=sgd",
    "optimiser.lr=0.03",
    "schedule.warmup=0",
]


SLOW = [one for one in CLIP if "micro" not in one] + ["network.momentum=0.9", "symmetric=true"]
"""Two encoders, and a slow copy of each."""


def torchrun(*words):
    call = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*call, *words], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def ask_to_stop(moment):
    """As a scheduler does, after the first epoch."""
    if moment.epoch == 0:
        os.kill(os.getpid(), signal.SIGTERM)


def weights(folder):
    return checkpoints.latest_good(Run.open(folder).checkpoints).checkpoint


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`two`, `sync`, and `cut`, which is killed in its fifth step and resumed."""
    folder = tmp_path_factory.mktemp("ranks")
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    np.savez(folder / "x.npz", x=x, labels=np.arange(64) % 4)
    sets = [*SETTINGS, f"data.source={folder / 'x.npz'}"]
    images = np.random.default_rng(0).integers(0, 255, (24, 8, 8, 3), np.uint8)
    np.savez(folder / "dots.npz", images=images)
    captions = (json.dumps({"id": i, "captions": [f"number {i}"]}) for i in range(24))
    (folder / "dots_captions.jsonl").write_text("\n".join(captions))
    clip = [*CLIP, f"data.source={folder / 'dots_captions.jsonl'}"]
    (folder / "ranks.py").write_text(textwrap.dedent(OBJECTS) + textwrap.dedent(RANKS))
    said = map(";".join, (sets, SYNC, clip))
    with pytest.raises(SystemExit, match="143"):
        train(read_settings("simclr", sets), folder / "elastic", [ask_to_stop])
    counted = json.dumps({name: [*more, *MORE] for name, more in COUNTED.items()})
    slow = ";".join([*SLOW, f"data.source={folder / 'dots_captions.jsonl'}"])
    done = torchrun(str(folder / "ranks.py"), str(folder), *said, counted, slow)
    assert done.returncode != 0
    assert "SIGKILL" in done.stderr, done.stderr
    assert weights(folder / "cut").step == 3, done.stderr
    command = ["-m", "chiaroscuro.cli", "train", "simclr", "--resume", "--out", str(folder / "cut")]
    done = torchrun(*command, "--set", *sets)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"run: {folder / 'cut'}\n"  # only the first speaks
    assert done.stderr.count("step 12/12") == 1
    return folder, sets


@pytest.mark.parametrize(
    ("name", "more"), [("two", []), ("sync", SYNC), ("big", [])], ids=["two", "sync", "big"]
)
def test_two_ranks_are_one_batch(runs, tmp_path, name, more):
    """With a batch norm too, if it is synchronised, and temperatures that are measured; and where
    networks and their moments are cut over the ranks, stopped and resumed."""
    folder, sets = runs
    train(read_settings("simclr", [*sets, *more]), tmp_path / "one")
    one, two = weights(tmp_path / "one").arrays, weights(folder / name).arrays
    histories = [Run.open(p).history().records for p in (folder / name, tmp_path / "one")]
    means = [[r["mean_loss"] for r in records if "epoch" in r] for records in histories]
    np.testing.assert_allclose(*means, rtol=1e-4)
    compared = [key for key in one if key.startswith(("networks", "objective"))]
    assert len(compared) > 4
    for key in compared:
        np.testing.assert_allclose(two[key], one[key], rtol=1e-3, atol=1e-5, err_msg=key)


def test_one_process_goes_on_with_the_parts_of_two_ranks(runs, tmp_path):
    folder, sets = runs
    one = train(read_settings("simclr", sets), tmp_path / "one")
    big = shutil.copytree(folder / "big", tmp_path / "big")
    assert sorted(os.listdir(big / "moments")) == ["rank-00000", "rank-00001"]
    for run in (one.folder, big):
        train(continued(run, ["epochs=4"]), run, resume=True)
    right, found = weights(one.folder), weights(big)
    assert right.step == found.step == 16
    for key in (key for key in right.arrays if key.startswith("networks")):
        a, b = right.arrays[key], found.arrays[key]
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(("name", "more"), [("clip", CLIP), ("slow", SLOW)], ids=["micro", "slow"])
def test_two_encoders_on_two_ranks_are_one_batch(runs, tmp_path, name, more):
    """In micro-batches; and with a slow copy of each, where both learn."""
    folder, _ = runs
    settings = read_settings("clip", [*more, f"data.source={folder / 'dots_captions.jsonl'}"])
    start = build(settings.network, settings.seed).state_dict()
    train(settings, tmp_path / "one")
    one, two = weights(tmp_path / "one"), weights(folder / name)
    assert one.step == two.step == 6
    compared = [key for key in one.arrays if key.startswith(("networks", "objective"))]
    assert len(compared) > 8
    for key in compared:
        a, b = one.arrays[key], two.arrays[key]
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5, err_msg=key)
    for side in (0, 1):
        names = [key for key in start if key.startswith(f"encoders.{side}.")]
        moved = [np.abs(one.arrays[f"networks.{key}"] - start[key].numpy()).max() for key in names]
        assert max(moved) > 1e-4


def test_killed_and_resumed_two_ranks_end_the_same(runs):
    folder, _ = runs
    cut, two = weights(folder / "cut"), weights(folder / "two")
    assert cut.step == two.step == 12
    for name, array in cut.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes(), name


def test_what_one_rank_cannot_have_none_begins(runs):
    assert not (runs[0] / "half").exists()


def test_ranks_come_and_go(runs, tmp_path):
    """One process, stopped; two ranks, stopped; one again: the losses of one that went through."""
    folder, sets = runs
    settings = read_settings("simclr", [*sets, "saving.record=1"])
    train(settings, tmp_path / "one")
    said = io.StringIO()
    train(read_settings("simclr", sets), folder / "elastic", resume=True, progress=said)
    assert "was trained on 2 ranks and goes on with 1: the same samples" in said.getvalue()
    found, right = (Run.open(p).history().records for p in (folder / "elastic", tmp_path / "one"))
    means = [[r["mean_loss"] for r in records if "epoch" in r] for records in (found, right)]
    assert len(means[1]) == 3
    np.testing.assert_allclose(*means, rtol=1e-5)
    one, other = weights(tmp_path / "one"), weights(folder / "elastic")
    assert one.step == other.step == 12
    for key in (key for key in one.arrays if key.startswith(("networks", "objective"))):
        a, b = one.arrays[key], other.arrays[key]
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5, err_msg=key)


def test_a_step_sends_two_messages(runs):
    """Beside those of DistributedDataParallel: a gather, and a reduce-scatter of its gradient."""
    found = json.loads((runs[0] / "collectives.json").read_text())
    gather, back = "all_gather", "_REDUCE_SCATTER"
    for name in ("InfoNCE", "MoCo", "Adaptive"):
        assert len(found[name]) >= 6
        assert all(step == [gather, back] for step in found[name]), (name, found[name])
    for name in (
        "VICReg",
        "SupCon",
        "BYOL",
    ):  # every rank knows the gradients, or needs its own rows only
        assert all(step == [gather] for step in found[name]), (name, found[name])
    norms = 3  # one message forward and one backward for each batch norm
    for step in found["sync"]:
        assert sorted(step) == sorted([gather] * (1 + norms) + ["all_reduce"] * norms + [back])
    for step in found["micro_batch"]:  # all gradients in one bucket
        assert sorted(step) == sorted([gather, back, "all_reduce"])


def test_objects_train_twice_in_a_process_on_two_ranks(runs):
    """Each training joins the ranks anew; both end as on one rank."""
    alone: dict = {}
    exec(textwrap.dedent(OBJECTS), alone)  # noqa: S102 - the text above
    two = torch.load(runs[0] / "objects.pt")
    for one, other in zip(alone["weights"](1, 0), two, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_settings_of_the_cpu_ask_for_no_accelerator(monkeypatch):
    """Two ranks beside one accelerator: each needs one of its own, unless they train on the CPU."""
    from chiaroscuro.engine import distributed

    asked = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda")
    )
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    monkeypatch.setattr(distributed.dist, "rendezvous", lambda url: iter([(None, 1, 2)]))
    monkeypatch.setattr(distributed.dist, "PrefixStore", lambda name, store: store)
    monkeypatch.setattr(
        distributed.dist, "init_process_group", lambda kind, **more: asked.append(kind)
    )
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    with pytest.raises(InputError, match="cuda device of its own"), distributed.joined_ranks():
        pass
    with distributed.joined_ranks("cpu"):
        assert asked == ["gloo"]
    one = pytest.raises(InputError, match=r"2 ranks takes a device of its own; received `cuda:0`")
    with one, distributed.joined_ranks("cuda:0"):
        pass
