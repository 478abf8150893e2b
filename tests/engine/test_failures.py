"""Bad input and a full disk: one sentence, the right status, and nothing lost."""

import json
import textwrap

import numpy as np
import pytest

import forked
from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.cli import main

SETS = [
    "epochs=3",
    "batch=16",
    "views.first=Jitter(noise=0.1)",
    "network.encoder=MLP(d_in=3, d=64)",
    "network.projector=Projector(d=4)",
    "schedule.warmup=0",
    "saving.every=2",
    "saving.record=1",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    np.savez(folder / "x.npz", x=x)
    np.savez(folder / "labels.npz", x=x, labels=np.zeros(63, np.int64))
    (folder / "torn.npz").write_bytes((folder / "x.npz").read_bytes()[:-40])
    (folder / "file").write_text("a file")
    (folder / "unknown.toml").write_text('objective = "VICReg()"\nepoch = 3\n')
    (folder / "broken.toml").write_text("epochs = = 3\n")
    return folder


WRONG = {
    "missing data": (["data.source={0}/no.npz"], "no.npz` does not exist", 2),
    "torn data": (["data.source={0}/torn.npz"], "torn.npz", 2),
    "labels too few": (["data.source={0}/labels.npz"], "64 rows of `labels`|received 63", 2),
    "batch too large": (["batch=65"], "A batch of 65 needs at least as many samples; .* 64", 2),
    "batch of one": (["batch=1"], "needs at least 2 samples", 2),
    "unknown key": (["optimiser.lrr=1"], r"`optimiser.lrr` is not a setting; did you mean", 2),
    "formula": (["schedule.name=lambda", "schedule.formula=1 / (8 - step)"], "at step 8 of 12", 2),
}


@pytest.mark.parametrize(("more", "words", "status"), WRONG.values(), ids=WRONG)
def test_bad_input(folder, tmp_path, capsys, more, words, status):
    out = tmp_path / "run"
    sets = [*SETS, f"data.source={folder / 'x.npz'}", *(one.format(folder) for one in more)]
    assert main(["train", "simclr", "--out", str(out), "--set", *sets]) == status
    refused(capsys, words)
    assert not out.exists()


FILES = {
    "no such file": ("no.toml", "no.toml` cannot be read: No such file"),
    "unknown key": ("unknown.toml", r"`epoch` is not a setting; did you mean `epochs`\?"),
    "no toml": ("broken.toml", "is not TOML"),
}


@pytest.mark.parametrize(("name", "words"), FILES.values(), ids=FILES)
def test_bad_files_of_settings(folder, tmp_path, capsys, name, words):
    assert main(["train", str(folder / name), "--out", str(tmp_path / "run")]) == 2
    refused(capsys, words)


@pytest.mark.parametrize("out", ["{0}/file/run", "/proc/run", "{0}/file"])
def test_a_folder_that_cannot_be_written(folder, capsys, out):
    sets = [*SETS, f"data.source={folder / 'x.npz'}"]
    out = out.format(folder)
    assert main(["train", "simclr", "--out", out, "--set", *sets]) == 1
    refused(capsys, f"`{out}` cannot be")


def refused(capsys, words):
    import re

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert re.search(words, said.err), said.err


FULL = """
    import io, json, os, resource, sys
    from chiaroscuro.artifacts import checkpoints
    from chiaroscuro.cli import main
    from chiaroscuro.engine import step

    folder, sets = sys.argv[1], sys.argv[2].split(";")
    sys.stderr = told = io.StringIO()  # no file, which would have the limit too
    follow, before = step._follow, resource.getrlimit(resource.RLIMIT_FSIZE)

    def train(name, resume=(), limit=None):
        seen = []
        def counted(*arguments):
            seen.append(1)
            if limit and len(seen) == 5:  # after the checkpoint of step 4
                history = os.path.getsize(f"{folder}/{name}/history.jsonl")
                size = limit(history)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
            follow(*arguments)
        step._follow = counted
        out = ["--out", f"{folder}/{name}"]
        try:
            return main(["train", "simclr", *resume, *out, "--set", *sets])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            sys.stderr.write("END\\n")

    found = [train("whole")]
    for name, limit in (("save", lambda size: 9000), ("history", lambda size: size + 20)):
        found.append(train(name, limit=limit))
        good = checkpoints.latest_good(f"{folder}/{name}/checkpoints")
        found.append([good.checkpoint.step, len(good.bad)])
        found.append(train(name, resume=["--resume"]))
    print(json.dumps([found, told.getvalue()]))
"""


def test_a_full_disk_loses_nothing(folder, tmp_path):
    """While a checkpoint is saved, and while a record is written; then there is room again."""
    pytest.importorskip("resource")
    script = tmp_path / "full.py"
    script.write_text(textwrap.dedent(FULL))
    sets = [*SETS, f"data.source={folder / 'x.npz'}"]
    done = forked.run(script, str(tmp_path), ";".join(sets))
    assert done.codes == [0], done.err
    found, told = json.loads(done.out.splitlines()[-1])
    assert found == [0, 1, [4, 0], 0, 1, [4, 0], 0]
    _, save, _, history, *_ = told.split("END\n")
    for said, what in ((save, "step-00000006"), (history, "history.jsonl")):
        sentences = [line for line in said.splitlines() if "samples/s" not in line]
        assert len(sentences) == 1, said
        assert f"{what}` cannot be written: File too large (errno 27)" in sentences[0]
        assert "intact" in sentences[0]
    whole = checkpoints.latest_good(Run.open(tmp_path / "whole").checkpoints).checkpoint
    records = Run.open(tmp_path / "whole").history().records
    for name in ("save", "history"):
        run = Run.open(tmp_path / name)
        again = checkpoints.latest_good(run.checkpoints).checkpoint
        assert again.step == whole.step == 12
        for key, array in whole.arrays.items():
            assert array.tobytes() == again.arrays[key].tobytes(), (name, key)
        assert [r.get("loss") for r in run.history().records] == [r.get("loss") for r in records]
