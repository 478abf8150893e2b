"""Two ranks, started as torchrun starts them, are one batch; killed and resumed, the same run."""

import os
import signal
import socket
import subprocess
import sys

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
DYING = (
    "import os, signal, sys, chiaroscuro.engine.step as s\n"
    "inner, seen = s._follow, []\n"
    "def follow(*a):\n"
    "    seen.append(1)\n"
    "    if len(seen) == int(os.environ.get('DIE_AT', '0')):\n"
    "        os.kill(os.getpid(), signal.SIGKILL)\n"
    "    inner(*a)\n"
    "s._follow = follow\n"
    "from chiaroscuro.cli import main\n"
    "sys.exit(main(sys.argv[1:]))"
)


def launch(out, sets, **environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    call = [sys.executable, "-c", DYING, "train", "simclr", "--set", *sets, "--out", str(out)]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [*call, "--resume"],
            env={**os.environ, **shared, **environment, "RANK": str(r), "LOCAL_RANK": str(r)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in (0, 1)
    ]
    said = [rank.communicate(timeout=120) for rank in ranks]
    return [rank.returncode for rank in ranks], said


def weights(folder):
    return checkpoints.latest_good(Run.open(folder).checkpoints).checkpoint.arrays


@pytest.fixture
def sets(tmp_path):
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    return [*SETTINGS, f"data.source={tmp_path / 'x.npz'}"]


def test_two_ranks_are_one_batch_and_resume_to_the_bit(tmp_path, sets):
    train(read_settings("simclr", sets), tmp_path / "one")
    codes, said = launch(tmp_path / "two", sets)
    assert codes == [0, 0], said
    assert said[1] == ("", "")  # only the first speaks
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, array in one.items():
        if name.startswith(("networks", "objective")):
            np.testing.assert_allclose(two[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
    codes, _ = launch(tmp_path / "cut", sets, DIE_AT="5")
    assert codes == [-signal.SIGKILL] * 2
    codes, said = launch(tmp_path / "cut", sets)
    assert codes == [0, 0], said
    for name, array in weights(tmp_path / "cut").items():
        assert array.tobytes() == two[name].tobytes(), name
