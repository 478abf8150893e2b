"""Moments in parts: written by any number of ranks, read by any, never unpickled."""

import os
import pickle
import shutil

import numpy as np
import pytest
import torch

from chiaroscuro.artifacts import checkpoints
from chiaroscuro.engine import read_settings, train
from chiaroscuro.engine.sharding import load_moments, save_moments
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.models import pack, unpack


def learner(steps, lr=1e-3):
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 7)
    optimiser = torch.optim.AdamW(module.parameters(), lr=lr)
    for _ in range(steps):
        module(torch.randn(5, 3)).square().sum().backward()
        optimiser.step()
    return module, optimiser


def moments(optimiser):
    return [
        {key: value.clone() for key, value in state.items()}
        for state in optimiser.state_dict()["state"].values()
    ]


@pytest.fixture
def saved(tmp_path):
    """Moments of 7 rows, cut by hand as three ranks would: 3, 3 and 1."""
    module, optimiser = learner(4, lr=0.5)
    (name,) = save_moments(module, optimiser, tmp_path, 4, 2)
    tree = unpack(*vars_of(checkpoints.load(tmp_path / "rank-00000" / name)))
    names = []
    for rank, first in enumerate((0, 3, 6)):
        part, rows = {}, {}
        for owner, values in tree["moments"].items():
            part[owner] = {k: v[first : first + 3] if v.ndim else v for k, v in values.items()}
            rows[owner] = {k: [first, 7] if v.ndim else None for k, v in values.items()}
        new = {"moments": part, "rows": rows, "groups": tree["groups"]}
        place = tmp_path / "cut" / f"rank-{rank:05d}"
        names.append(checkpoints.save(place, 4, *pack(new)).name)
    return tmp_path / "cut", names, moments(optimiser)


def vars_of(checkpoint):
    return checkpoint.arrays, checkpoint.state


def test_moments_come_back_from_any_number_of_parts(saved, tmp_path):
    folder, names, right = saved
    module, optimiser = learner(0)
    load_moments(module, optimiser, folder, names)
    for found, wanted in zip(moments(optimiser), right, strict=True):
        assert {k: v.tolist() for k, v in found.items()} == {
            k: v.tolist() for k, v in wanted.items()
        }
    assert optimiser.param_groups[0]["lr"] == 0.5


def test_parts_that_are_lost_damaged_or_others_are_refused(saved):
    folder, names, _ = saved
    with pytest.raises(ChiaroError, match=r"The 2 parts in .* hold 6 of 7 rows of `exp_avg`"):
        load_moments(*learner(0), folder, names[:2])
    other = torch.nn.Linear(3, 8)
    with pytest.raises(ChiaroError, match=r"has 7 rows, and 8 are needed"):
        load_moments(other, torch.optim.AdamW(other.parameters()), folder, names)
    with pytest.raises(ChiaroError, match="does not hold the moments of these networks"):
        load_moments(
            torch.nn.Sequential(other), torch.optim.SGD(other.parameters(), 1), folder, names[:1]
        )
    path = folder / "rank-00001" / names[1] / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChiaroError, match="does not have the checksum"):
        load_moments(*learner(0), folder, names)
    shutil.rmtree(folder / "rank-00001")
    with pytest.raises(ChiaroError, match="is missing"):
        load_moments(*learner(0), folder, names)


def test_parts_of_ranks_that_are_no_more_are_removed_in_the_end(tmp_path):
    left = checkpoints.save(tmp_path / "rank-00001", 4, {}, {})
    for step in (4, 6):
        save_moments(*learner(1), tmp_path, step, 2)
        assert left.exists()
    save_moments(*learner(1), tmp_path, 8, 2)
    assert not left.exists()
    assert len(os.listdir(tmp_path / "rank-00000")) == 2


class Command:
    def __reduce__(self):
        return os.system, ("touch was-run",)


def test_resuming_unpickles_nothing(tmp_path, monkeypatch):
    """Moments were pickles once: a stranger's run folder could have run a command."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32))
    small = ["epochs=2", "batch=16", "data.source=x.npy", "views.first=Jitter(noise=0.1)"]
    small += ["network.encoder=MLP(d_in=5, d=8)", "network.projector=Projector(d=4)"]
    settings = read_settings("simclr", small)
    run = train(settings, "run")
    tree = unpack(*vars_of(checkpoints.latest_good(run.checkpoints).checkpoint))
    for parts in (None, ["../../moments"], [3]):
        arrays, state = pack({**tree, "optimiser": None, "moments": parts})
        checkpoints.save(run.checkpoints, 6, arrays, state)
        for name in (".metadata", "tensors.safetensors", "state.json", "manifest.json"):
            for place in ("00000006", "rank-00000/moments"):
                path = run.folder / "moments" / place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(pickle.dumps(Command()))
        with pytest.raises((ChiaroError, InputError), match=r"could run code|not a good check"):
            train(settings, "run", resume=True)
    assert not (tmp_path / "was-run").exists()
