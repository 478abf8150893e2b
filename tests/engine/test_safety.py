"""Nothing lost, nothing silent: resuming, one writer, signals, divergence, workers that stop."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
import torch

from chiaroscuro import embed, evaluate
from chiaroscuro.artifacts import Embeddings, Run, checkpoints, one_writer
from chiaroscuro.cli import main
from chiaroscuro.engine import (
    ScheduleSettings,
    continued,
    distributed,
    fitting,
    held_out,
    read_settings,
    state,
    step,
    train,
)
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.models import pack, unpack

SMALL = [
    "epochs=2",
    "batch=16",
    "views.first=Jitter(noise=0.1)",
    "network.encoder=MLP(d_in=5, d=8)",
    "network.projector=Projector(d=4)",
    "optimiser.name=adamw",
    "schedule.warmup=0",
    "saving.every=1",
    "saving.record=1",
]


def small(folder, *more, **arrays):
    x = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)
    np.savez(folder / "x.npz", **({"x": x} | arrays))
    return read_settings("simclr", [*SMALL, f"data.source={folder / 'x.npz'}", *more])


def newest(run):
    return checkpoints.latest_good(run.checkpoints).checkpoint


# ---- resuming ----


def test_a_run_without_checkpoints_is_not_begun_again_unasked(tmp_path):
    settings = small(tmp_path)
    run = train(settings, tmp_path / "run")
    before = run.history().records
    (run.folder / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"has taken 6 steps, and no checkpoint .*--restart"):
        train(settings, run.folder, resume=True)
    assert run.history().records == before
    said = io.StringIO()
    train(settings, run.folder, resume=True, restart=True, progress=said)
    assert "begins again at step 0; it had taken 6 steps" in said.getvalue()
    assert newest(run).step == 6
    aside = (run.folder / "history-before-restart-1.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in aside] == before
    (tmp_path / "elsewhere").rename(tmp_path / "kept")


def test_checkpoints_that_cannot_be_read_stop_a_resume_and_stay(tmp_path, monkeypatch):
    settings = small(tmp_path)
    run = train(settings, tmp_path / "run")
    before, names = run.history().records, sorted(os.listdir(run.checkpoints))

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_verified", denied)
        with pytest.raises(ChiaroError, match="cannot be read: Permission denied"):
            train(settings, run.folder, resume=True, restart=True)
    assert run.history().records == before
    assert sorted(os.listdir(run.checkpoints)) == names


FORGED = {
    "networks": [None, {}, 3],
    "objective": [[]],
    "optimiser": [{}, "x"],
    "target": [{}],
    "average": [None, 3],
    "lanes": [None, 0, 10**9],
    "queue": [torch.ones(2, 4)],
    "oldest": [-1, "x"],
    "losses": [3, (float("nan"), 1)],
    "data": [3, ("x", "y", "z")],
    "random": [None, torch.zeros(1, 8, dtype=torch.uint8), torch.zeros(1, 9000)],
}


def test_a_checkpoint_that_agrees_with_itself_and_not_with_its_settings_is_a_sentence(tmp_path):
    """Its checksums are right: they tell damage, not who wrote it."""
    settings = small(tmp_path, "network.average=0.9", "network.momentum=0.9", "network.queue=16")
    run = train(settings, tmp_path / "run")
    good = newest(run)
    for name, values in FORGED.items():
        for value in (KeyError, *values):
            tree = unpack(good.arrays, good.state)
            tree[name] = value
            if value is KeyError:
                del tree[name]
                if name in ("lanes", "data"):  # older checkpoints lack them
                    continue
            arrays, forged = pack(tree)
            checkpoints.save(run.checkpoints, good.step, arrays, forged)
            with pytest.raises(ChiaroError, match=r"does not hold the state of a training") as why:
                train(settings, run.folder, resume=True)
            assert "\n" not in str(why.value), name
            if name in ("objective", "average"):  # an average of None is that of no average
                with contextlib.nullcontext() if value is None else pytest.raises(ChiaroError):
                    embed(run)
    tree = unpack(good.arrays, good.state)
    tree["optimiser"]["state"][0]["exp_avg"] = torch.ones(3)
    checkpoints.save(run.checkpoints, good.step, *pack(tree))
    with pytest.raises(ChiaroError, match="`exp_avg` is not one of its own"):
        train(settings, run.folder, resume=True)


# ---- one writer ----


def test_a_second_writer_is_told_of_the_first(tmp_path):
    settings = small(tmp_path)
    run = train(settings, tmp_path / "run")
    with one_writer(run.folder):
        sentence = rf"Another process \(pid {os.getpid()}, on .+, since .+\) trains in"
        with pytest.raises(ChiaroError, match=sentence):
            train(settings, run.folder, resume=True)
    train(settings, run.folder, resume=True)


def test_nothing_is_changed_under_a_writer_or_for_data_that_are_refused(tmp_path):
    """Settings are written once the folder is locked and the data are found to be the same."""
    settings = small(tmp_path)
    run = train(settings, tmp_path / "run")
    before = {p.name: p.read_bytes() for p in run.folder.iterdir() if p.is_file()}
    longer = continued(run.folder, ["epochs=3"])
    np.save(tmp_path / "other.npy", np.ones((48, 5), np.float32))
    other = continued(run.folder, ["epochs=3", f"data.source={tmp_path / 'other.npy'}"])
    with one_writer(run.folder):
        for out in (run.folder, tmp_path / "run"):
            with pytest.raises(ChiaroError, match="trains in"):
                train(longer, out, resume=True)
    with pytest.raises(InputError, match="needs the data it began with"):
        train(other, run.folder, resume=True)
    assert {p.name: p.read_bytes() for p in run.folder.iterdir() if p.is_file()} == before
    train(longer, run.folder, resume=True)
    assert {"step": 6, "epochs_before": 2, "epochs_now": 3} in run.history().records


def test_two_that_begin_in_one_folder_do_not_both_create_a_run(tmp_path):
    (tmp_path / "run").mkdir()
    with one_writer(tmp_path / "run"), pytest.raises(ChiaroError, match="trains in"):
        train(small(tmp_path), tmp_path / "run")
    assert os.listdir(tmp_path / "run") == ["writer.lock"]


def test_nothing_is_written_through_links_of_a_run_folder(tmp_path):
    """A stranger's folder must not have files changed that are the reader's."""
    settings = small(tmp_path)
    run = train(settings, tmp_path / "run")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("no line end")
    checkpoints.save(outside / "saved", 1, {}, {})
    before = {path: path.stat().st_mtime_ns for path in outside.rglob("*")}
    places = {"writer.lock": "precious", "history.jsonl": "precious"}
    places |= dict.fromkeys(("checkpoints", "embeddings", "initial", "moments"), "saved")
    for name, to in places.items():
        aside = (run.folder / name).exists() and (run.folder / name).rename(tmp_path / "aside")
        (run.folder / name).symlink_to(outside / to)
        with pytest.raises(InputError, match=rf"{name}` .*is a link to `.+outside/{to}`"):
            train(continued(run.folder, ["epochs=3"]), run.folder, resume=True)
        (run.folder / name).unlink()
        if aside:
            aside.rename(run.folder / name)
    assert {path: path.stat().st_mtime_ns for path in outside.rglob("*")} == before
    (run.folder / "checkpoints").rename(run.folder / "elsewhere")
    (run.folder / "checkpoints").symlink_to("elsewhere")  # inside: nobody else's
    (tmp_path / "link").symlink_to(run.folder)
    train(settings, tmp_path / "link", resume=True)


def test_a_lock_that_is_no_file_is_a_sentence(tmp_path, monkeypatch):
    from chiaroscuro.artifacts import locks

    os.mkfifo(tmp_path / "writer.lock")
    with pytest.raises(InputError, match="is not a regular file"), one_writer(tmp_path):
        pass
    (tmp_path / "writer.lock").unlink()

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(locks.os, "pwrite", full)
        with pytest.raises(ChiaroError, match="The disk is full"), one_writer(tmp_path):
            pass
    with one_writer(tmp_path):  # the failure holds nothing
        pass


def test_what_is_left_of_a_run_is_not_trained_over(tmp_path):
    run = train(small(tmp_path), tmp_path / "run")
    (run.folder / "settings.toml").unlink()
    there = sorted(run.folder.rglob("*"))
    for resume in (False, True):
        with pytest.raises(InputError, match=r"other entries, the first is `checkpoints/00"):
            train(small(tmp_path), run.folder, resume=resume)
    assert sorted(run.folder.rglob("*")) == there


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from chiaroscuro.artifacts import one_writer\n"
        "with one_writer(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline().strip() == "held"
        with (
            pytest.raises(ChiaroError, match=rf"pid {holder.pid}, on "),
            one_writer(tmp_path),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with one_writer(tmp_path) as said:
        assert said == ""


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    from chiaroscuro.artifacts import locks

    def none(*args):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", none)
    with one_writer(tmp_path) as said:
        assert "has no locks (No locks available)" in said


# ---- signals ----


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_the_signals_of_a_scheduler_save_and_end(tmp_path, monkeypatch, name, status):
    settings, inner, seen = small(tmp_path, "saving.every=100"), step._follow, []
    number = getattr(signal, name)
    signal.signal(number, signal.SIG_DFL)  # a shell's `nohup` may have it ignored
    before = signal.getsignal(number)

    def asked(*args):
        seen.append(1)
        if len(seen) == 2:
            signal.raise_signal(number)
        inner(*args)

    whole = train(settings, tmp_path / "whole")
    monkeypatch.setattr(step, "_follow", asked)
    said = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        train(settings, tmp_path / "run", progress=said)
    assert ended.value.code == status
    assert signal.getsignal(number) == before
    assert f"`--resume --out {tmp_path / 'run'}` goes on" in said.getvalue()
    run = Run.open(tmp_path / "run")
    assert newest(run).step == 2
    train(settings, run.folder, resume=True)
    one, two = newest(whole).arrays, newest(run).arrays
    assert all(one[key].tobytes() == two[key].tobytes() for key in one)


# ---- divergence ----


def ruined(at):
    """A step after whose update the weights are not finite."""
    inner = fitting.take_step

    def take_step(run_state, *args):
        loss = inner(run_state, *args)
        if run_state.step + 1 == at and max(run_state.rates) > 1e-4:
            with torch.no_grad():
                next(run_state.networks.parameters()).mul_(torch.nan)
        return loss

    return take_step


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    """Also in the last step, whose loss is still finite; a lower rate goes on from there."""
    settings = small(tmp_path, "optimiser.lr=0.001")
    monkeypatch.setattr(fitting, "take_step", ruined(at=6))
    with pytest.raises(state.Diverged, match=r"After step 6 1 of .* tensors .*Lower"):
        train(settings, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert newest(run).step == 5
    assert "diverged" in run.history().records[-1]
    with pytest.raises(InputError, match=r"`optimiser.lr` was 0.001 and is 0.01 now"):
        train(small(tmp_path, "optimiser.lr=0.01"), run.folder, resume=True)
    lower = small(tmp_path, "optimiser.lr=1e-5")
    train(lower, run.folder, resume=True)
    assert newest(run).step == 6
    assert {"step": 5, "lr_lowered_from": 0.001, "lr_lowered_to": 1e-05} in run.history().records
    assert run.settings()["optimiser"]["lr"] == 1e-5
    train(lower, run.folder, resume=True)


def test_the_command_line_lowers_the_rate_after_a_divergence(tmp_path, monkeypatch, capsys):
    settings = small(tmp_path, "optimiser.lr=0.001")
    monkeypatch.setattr(fitting, "take_step", ruined(at=6))
    with pytest.raises(state.Diverged):
        train(settings, tmp_path / "run")
    again = ["train", str(tmp_path / "run"), "--resume", "--set"]
    assert main([*again, "optimiser.lr=0.01"]) == 2
    capsys.readouterr()
    assert main([*again, "optimiser.lr=1e-5"]) == 0
    assert "`optimiser.lr` is 1e-05 in place of 0.001 from here on" in capsys.readouterr().err
    records = Run.open(tmp_path / "run").history().records
    assert {"step": 5, "lr_lowered_from": 0.001, "lr_lowered_to": 1e-05} in records


def test_a_lower_rate_needs_a_divergence(tmp_path):
    run = train(small(tmp_path, "optimiser.lr=0.001"), tmp_path / "run")
    with pytest.raises(InputError, match=r"`optimiser.lr` was 0.001 and is 1e-05 now"):
        train(small(tmp_path, "optimiser.lr=1e-5"), run.folder, resume=True)


# ---- labels, schedules, workers ----


def test_labels_that_are_ids_cost_nothing(tmp_path):
    labels = np.arange(48) % 3 * 10**9
    seen = []

    def measure(known, asked):
        seen.append((known[1], asked[1]))
        return {"n": float(np.bincount(known[1]).size)}

    run = train(small(tmp_path, labels=labels), tmp_path / "run", [held_out(measure)])
    assert [r["n"] for r in run.history().records if "n" in r] == [3.0, 3.0]
    assert set(np.concatenate(seen[0]).tolist()) == {0, 1, 2}


def test_ids_are_evaluated_like_classes():
    rng = np.random.default_rng(0)
    known = {"h": rng.normal(size=(200, 4)), "split": np.repeat([0, 1], 100)}
    labels = np.arange(200) % 4
    one, two = (
        evaluate(Embeddings(labels=y, **known), probes=["ridge"])["results"]["encoder"]
        for y in (labels, labels * 10**9 + 5)
    )
    assert one == two


def test_of_many_epochs_few_are_tried_out(tmp_path, monkeypatch):
    settings, inner, asked = small(tmp_path, "epochs=100000000"), ScheduleSettings.factor, []
    monkeypatch.setattr(ScheduleSettings, "factor", lambda *args: asked.append(1) or inner(*args))

    def stop(moment):
        raise fitting.StopTraining

    train(settings, callbacks=[stop])
    assert len(asked) < 1010  # and once for each step


STOPPED = """
    import multiprocessing, os, signal, sys, threading, time
    import numpy as np
    from chiaroscuro.engine import read_settings, train
    settings = read_settings("simclr", [*sys.argv[2].split(";"), "data.workers=1"])
    def stop():
        while not multiprocessing.active_children():
            time.sleep(0.01)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGSTOP)
    threading.Thread(target=stop, daemon=True).start()
    train(settings, sys.argv[1])
"""


def test_a_worker_that_is_stopped_ends_training_with_a_sentence(tmp_path):
    small(tmp_path)
    sets = [*SMALL, f"data.source={tmp_path / 'x.npz'}", "epochs=10000", "data.timeout=2"]
    script = tmp_path / "stopped.py"
    script.write_text(textwrap.dedent(STOPPED))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run"), ";".join(sets)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "does not answer: DataLoader timed out after 2" in done.stderr.splitlines()[-1]


def test_the_command_line_takes_restart(tmp_path, capsys):
    out = tmp_path / "run"
    sets = [*SMALL, "epochs=1", f"data.source={tmp_path / 'x.npz'}"]
    small(tmp_path)
    assert main(["train", "simclr", "--out", str(out), "--set", *sets]) == 0
    (out / "checkpoints").rename(tmp_path / "kept")
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(out)]) == 2
    assert "--restart" in capsys.readouterr().err
    assert main(["train", "--resume", "--restart", "--out", str(out)]) == 0


# ---- ranks that are asked to end ----


def test_what_is_parallel_ends_before_the_group_of_ranks(monkeypatch):
    """A parallel network that outlived its group waited for ever for ranks that had left."""
    seen = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(
        distributed.dist, "rendezvous", lambda url: iter([(torch.distributed.HashStore(), 0, 2)])
    )
    monkeypatch.setattr(distributed.dist, "init_process_group", lambda kind, **group: None)
    monkeypatch.setattr(
        distributed.dist, "destroy_process_group", lambda: seen.append([r() for r in alive])
    )
    alive = []

    class Parallel:
        pass

    def loop():
        inner = Parallel()
        alive.append(weakref.ref(inner))
        try:
            raise ValueError("first")
        except ValueError:
            raise SystemExit(143) from None

    with pytest.raises(SystemExit), distributed.joined_ranks():
        loop()
    assert seen == [[None]]
