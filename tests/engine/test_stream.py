"""Batches ahead: the same bytes from workers as without them, and their failures a sentence."""

import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import forked
from chiaroscuro.data import Dataset
from chiaroscuro.engine import read_settings
from chiaroscuro.engine.stream import Steps, watched_workers
from chiaroscuro.errors import InputError


class Column:
    """Rows that can be read until one is asked for that cannot."""

    ndim = 2

    def __init__(self, n, missing=None):
        self.n, self.missing = n, missing

    def __len__(self):
        return self.n

    def __getitem__(self, rows):
        if self.missing in rows:
            raise InputError(f"`{self.missing}.png` is not there.")
        return np.cos(rows[:, None] * np.arange(1.0, 9)).astype(np.float32)


def steps(column, *more, **options):
    data = Dataset({"x": column, "labels": np.arange(len(column)) % 3})
    settings = read_settings("simclr", ["batch=8", "views.first=Jitter(noise=0.3)", *more])
    return Steps.of(settings, data, takes_labels=True, **{"rank": 0, "world": 1, **options})


@pytest.mark.parametrize("threads", [1, 2])
def test_workers_change_nothing(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    random = torch.get_rng_state()
    batches = steps(Column(24))
    try:
        plain, ahead = (list(batches.stream(2, 9, workers)) for workers in (0, 2))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert len(plain) == len(ahead) == 7
    for one, two in zip(plain, ahead, strict=True):
        for a, b in zip(one, two, strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes()
    assert torch.equal(torch.get_rng_state(), random)
    assert multiprocessing.active_children() == []


def test_ranks_have_their_parts():
    whole = steps(Column(24))[4]
    parts = [steps(Column(24), rank=r, world=2)[4] for r in (0, 1)]
    for place, right in enumerate(whole):
        assert torch.equal(torch.cat([part[place] for part in parts]), right)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_cannot_be_read_is_one_sentence(workers):
    batches = steps(Column(24, missing=17))
    with pytest.raises(InputError, match=r"^`17.png` is not there.$"):
        list(batches.stream(0, 3, workers))
    assert multiprocessing.active_children() == []


def test_a_stream_that_is_left_ends_its_workers():
    stream = steps(Column(24)).stream(0, 300, 2)
    next(stream)
    assert len(multiprocessing.active_children()) == 2
    stream.close()
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="who sent a signal is asked of Linux")
@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_worker_leaves_signals_to_its_parent(name):
    """A scheduler, torchrun and a terminal send them to all processes of a job."""
    stream = steps(Column(24)).stream(0, 40, 1)
    next(stream)
    (worker,) = multiprocessing.active_children()
    for _ in range(2):
        subprocess.run(["kill", f"-{name}", str(worker.pid)], check=True)
    assert len(list(stream)) == 39


def test_a_worker_ends_when_its_parent_says_so():
    stream = steps(Column(24)).stream(0, 40, 1)
    next(stream)
    (worker,) = multiprocessing.active_children()
    worker.terminate()
    worker.join(60)
    assert worker.exitcode == 0
    stream.close()


def test_the_end_of_a_worker_is_one_sentence(tmp_path):
    # in a process of its own: torch raises wherever the parent happens to be
    code = "\n".join(
        [
            "import multiprocessing, os, signal, sys",
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})",
            "from test_stream import Column, steps",
            "from chiaroscuro.engine.stream import watched_workers",
            "stream = steps(Column(24)).stream(0, 10**6, 2)",
            "next(stream)",
            "with watched_workers():",
            "    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)",
            "    list(stream)",
        ]
    )
    (tmp_path / "ends.py").write_text(code)
    done = forked.run(tmp_path / "ends.py", seconds=120)
    assert done.codes == [1]
    assert re.search(
        r"ChiaroError: .* has ended .*: (DataLoader worker|Connection).*`data.workers`",
        done.err,
    )


def test_another_error_is_left_alone():
    with pytest.raises(RuntimeError, match="another"), watched_workers():
        raise RuntimeError("another")
