"""Two ranks, started by torchrun, are one batch; killed and resumed, the same run to the bit."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine import read_settings, train

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
RANKS = """
    import os, signal, sys
    from chiaroscuro.engine import joined_ranks, rank, read_settings, step, train
    from chiaroscuro.errors import InputError
    folder, sets, sync = sys.argv[1], sys.argv[2].split(";"), sys.argv[3].split(";")
    plain = read_settings("simclr", sets)
    with joined_ranks():
        train(plain, f"{folder}/two")
        train(read_settings("simclr", [*sets, *sync]), f"{folder}/sync")
        train(read_settings("clip", sys.argv[4].split(";")), f"{folder}/clip")
        here = ["data.source=nowhere.npz"] if rank() == 1 else []
        try:
            train(read_settings("simclr", [*sets, *here]), f"{folder}/half")
        except InputError as error:
            assert "`nowhere.npz` is not there" in str(error), error
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


def torchrun(*words):
    call = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*call, *words], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def weights(folder):
    return checkpoints.latest_good(Run.open(folder).checkpoints).checkpoint


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`two`, `sync`, and `cut`, which is killed in its fifth step and resumed."""
    folder = tmp_path_factory.mktemp("ranks")
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    np.savez(folder / "x.npz", x=x)
    sets = [*SETTINGS, f"data.source={folder / 'x.npz'}"]
    images = np.random.default_rng(0).integers(0, 255, (24, 8, 8, 3), np.uint8)
    np.savez(folder / "dots.npz", images=images)
    captions = (json.dumps({"id": i, "captions": [f"number {i}"]}) for i in range(24))
    (folder / "dots_captions.jsonl").write_text("\n".join(captions))
    clip = [*CLIP, f"data.source={folder / 'dots_captions.jsonl'}"]
    (folder / "ranks.py").write_text(textwrap.dedent(RANKS))
    said = map(";".join, (sets, SYNC, clip))
    done = torchrun(str(folder / "ranks.py"), str(folder), *said)
    assert done.returncode != 0
    assert "SIGKILL" in done.stderr, done.stderr
    assert weights(folder / "cut").step == 3, done.stderr
    command = ["-m", "chiaroscuro.cli", "train", "simclr", "--resume", "--out", str(folder / "cut")]
    done = torchrun(*command, "--set", *sets)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"run: {folder / 'cut'}\n"  # only the first speaks
    assert done.stderr.count("step 12/12") == 1
    return folder, sets


@pytest.mark.parametrize(("name", "more"), [("two", []), ("sync", SYNC)], ids=["two", "sync"])
def test_two_ranks_are_one_batch(runs, tmp_path, name, more):
    """With a batch norm too, if it is synchronised, and temperatures that are measured."""
    folder, sets = runs
    train(read_settings("simclr", [*sets, *more]), tmp_path / "one")
    one, two = weights(tmp_path / "one").arrays, weights(folder / name).arrays
    compared = [key for key in one if key.startswith(("networks", "objective"))]
    assert len(compared) > 4
    for key in compared:
        np.testing.assert_allclose(two[key], one[key], rtol=1e-3, atol=1e-5, err_msg=key)


def test_two_encoders_in_micro_batches_on_two_ranks_are_one_batch(runs, tmp_path):
    folder, _ = runs
    settings = read_settings("clip", [*CLIP, f"data.source={folder / 'dots_captions.jsonl'}"])
    train(settings, tmp_path / "one")
    one, two = weights(tmp_path / "one"), weights(folder / "clip")
    assert one.step == two.step == 6
    compared = [key for key in one.arrays if key.startswith(("networks", "objective"))]
    assert len(compared) > 8
    for key in compared:
        a, b = one.arrays[key], two.arrays[key]
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5, err_msg=key)


def test_killed_and_resumed_two_ranks_end_the_same(runs):
    folder, _ = runs
    cut, two = weights(folder / "cut"), weights(folder / "two")
    assert cut.step == two.step == 12
    for name, array in cut.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes(), name


def test_what_one_rank_cannot_have_none_begins(runs):
    assert not (runs[0] / "half").exists()


def test_other_numbers_of_ranks_cannot_resume(runs, capsys):
    from chiaroscuro.cli import main

    folder, sets = runs
    call = ["train", "simclr", "--resume", "--out", str(folder / "two"), "--set", *sets]
    assert main(call) == 1
    assert "was trained on 2 ranks and needs as many to be resumed; there are 1" in (
        capsys.readouterr().err
    )
