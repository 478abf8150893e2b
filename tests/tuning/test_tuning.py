"""Searches: what is drawn, who is stopped, and that a stop at any moment changes nothing."""

import dataclasses
import json
import math
import os
import shutil
import signal
import sys
import time

import numpy as np
import pytest

from chiaroscuro import cli, tuning
from chiaroscuro.artifacts import Run
from chiaroscuro.engine import Settings, read_settings
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.tuning import locks, searching, with_optuna
from chiaroscuro.tuning.space import read_space
from forked import CONTEXT

optuna = pytest.importorskip("optuna")

TRIALS = 5


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A search whose trials take a tenth of a second."""
    folder = tmp_path_factory.mktemp("search")
    rng = np.random.Generator(np.random.Philox(0))
    labels = np.arange(90) % 3
    x = 2 * np.eye(3, 6)[labels] + rng.normal(size=(90, 6))
    np.savez(folder / "mine.npz", x=x.astype(np.float32), labels=labels)
    path = folder / "search.toml"
    path.write_text(f"""
reduction = 2
[set]
objective = "InfoNCE(kernel=Gaussian(tau={{tau}}))"
epochs = 4
batch = 32
data.source = "{folder / "mine.npz"}"
views.first = "Jitter(noise=0.3)"
network.encoder = "MLP(d_in=6, d=8)"
network.projector = "Projector(d=4, depth=1)"
optimiser.name = "adamw"
schedule.warmup = 0.0
[space]
"optimiser.lr" = "LogUniform(0.0001, 0.1)"
tau = "LogUniform(0.01, 1.0)"
""")
    return path


@pytest.fixture(scope="module")
def whole(file, tmp_path_factory):
    """The search in one go: its folder, what was found, and how often the journal was written."""
    from optuna.storages.journal import JournalFileBackend

    out, real, writes = (
        tmp_path_factory.mktemp("whole") / "search",
        JournalFileBackend.append_logs,
        [],
    )

    def append(self, logs):
        writes.append(logs)
        real(self, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JournalFileBackend, "append_logs", append)
        return out, tuning.tune(file, TRIALS, out), len(writes)


# ---- the space ----


@pytest.mark.parametrize(
    ("law", "uniform"),
    [
        (tuning.Uniform(-1.0, 3.0), lambda x: (x + 1) / 4),
        (tuning.LogUniform(0.01, 10.0), lambda x: np.log(x / 0.01) / math.log(1000)),
    ],
)
def test_what_is_drawn_follows_its_law(law, uniform):
    n = 2000
    x = np.array([tuning.drawn({"a": law}, 0, i)["a"] for i in range(n)])
    u = np.sort(uniform(x))
    gap = max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max())
    assert math.sqrt(n) * gap < 1.95  # Kolmogorov, 0.1 %


def test_whole_numbers_and_choices_are_equally_likely():
    space = {"n": tuning.Integers(2, 4), "c": tuning.Choice("a", "b")}
    rows = [tuning.drawn(space, 1, i) for i in range(3000)]
    counts = np.unique([row["n"] for row in rows], return_counts=True)
    assert counts[0].tolist() == [2, 3, 4]
    assert np.abs(counts[1] / 3000 - 1 / 3).max() < 0.04
    assert abs(sum(row["c"] == "a" for row in rows) / 3000 - 0.5) < 0.04


def test_a_value_depends_on_its_name_and_number_alone():
    a, b = tuning.LogUniform(0.1, 1.0), tuning.Uniform(0.0, 1.0)
    both = [tuning.drawn({"a": a, "b": b}, 3, i) for i in range(50)]
    assert [row["b"] for row in both] == [tuning.drawn({"b": b}, 3, i)["b"] for i in range(50)]
    assert len({row["b"] for row in both}) == 50
    assert both[0] != tuning.drawn({"a": a, "b": b}, 4, 0)
    u = np.array([[(math.log(row["a"]) + 2.3) / 2.3, row["b"]] for row in both])
    assert abs(np.corrcoef(u.T)[0, 1]) < 0.6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LogUniform(0.0, 1.0)", "received 0.0"),
        ("Uniform(1.0, 1.0)", "1.0 and 1.0"),
        ("Uniform(0.0, inf)", "inf"),
        ("Integers(1.5, 2)", "1.5"),
        ("Choice()", "()"),
        ("LogUnifrom(0.1, 1.0)", "did you mean `LogUniform`"),
        ("0.5", "received 0.5"),
    ],
)
def test_a_wrong_law_is_one_sentence(text, words):
    with pytest.raises(InputError, match=r"needs|`space`, `tau`") as refused:
        read_space({"tau": text})
    assert words in str(refused.value)


def test_laws_read_back():
    laws = {
        "a": tuning.Uniform(0.0, 1.0),
        "b": tuning.LogUniform(0.01, 1.0),
        "c": tuning.Integers(1, 8),
        "d": tuning.Choice("x", 2, 0.5, True),
    }
    assert read_space({name: repr(law) for name, law in laws.items()}) == laws


# ---- the search ----


def test_table_3_on_the_encoders_of_the_paper():
    lr, tau = tuning.LogUniform(0.01, 10.0), tuning.LogUniform(0.01, 1.0)
    for kernel in ("gaussian", "laplace", "gamma"):
        space = tuning.read_search(f"kernel-infonce-{kernel}").space
        assert space == {"optimiser.lr": lr, "tau": tau}
    for kernel in ("sum", "concat"):
        space = tuning.read_search(f"kernel-infonce-{kernel}").space
        assert space == {"optimiser.lr": lr, "tau_1": tau, "tau_2": tau}
    for kernel in ("loss-sum", "loss-concat"):
        search = tuning.read_search(f"kernel-infonce-{kernel}")
        assert set(search.space) == {"optimiser.lr", "lambda", "tau_1", "tau_2"}
        assert search.space["lambda"] == tuning.Uniform(0.0, 1.0)
        values = search.values(5)
        made = search.settings(5).make_objective()
        weights = [weight for weight, _ in made.members]
        assert weights == [values["lambda"], 1 - values["lambda"]]


def test_another_rate_gets_the_same_decades():
    law = tuning.read_search("digits").space["optimiser.lr"]
    lr = read_settings("digits").optimiser.lr
    assert law.low == pytest.approx(lr / 30)
    assert law.high == pytest.approx(lr * 100 / 3)


def test_a_search_reads_back(file, tmp_path):
    search = tuning.read_search(file, ["epochs=3", "optimiser.weight_decay=0.5"])
    assert search.settings(0).epochs == 3
    assert search.settings(0).optimiser.weight_decay == 0.5
    path = tmp_path / "again.toml"
    path.write_text(search.toml())
    assert tuning.read_search(path) == search
    assert tuning.read_search(path).settings(7) == search.settings(7)


def test_settings_hold_the_values(file):
    search = tuning.read_search(file)
    for trial in range(3):
        values, settings = search.values(trial), search.settings(trial)
        assert settings.optimiser.lr == values["optimiser.lr"]
        assert settings.make_objective().kernel.tau == values["tau"]


def test_stops_grow_by_the_reduction(file):
    search = dataclasses.replace(tuning.read_search(file), first=2, reduction=3)
    assert search.stops(40) == (2, 6, 18)
    assert search.stops(18) == (2, 6)
    assert dataclasses.replace(search, reduction=0).stops(40) == ()


WRONG = {
    "a name that is nothing": ("[space]\ntua = 'Uniform(0.0, 1.0)'", "`tua`"),
    "a letter without a law": (
        "[set]\nobjective = 'InfoNCE(kernel=Laplace(tau={tau}))'\n"
        "[space]\n'optimiser.lr' = 'Uniform(0.0, 1.0)'",
        "{tau}",
    ),
    "a setting at the top": ("epochs = 3\n[space]\nseed = 'Integers(0, 9)'", "`epochs`"),
    "a measure": ("measure = 'loss'\n[space]\nseed = 'Integers(0, 9)'", "'loss'"),
    "a reduction of one": ("reduction = 1\n[space]\nseed = 'Integers(0, 9)'", "received 1"),
    "no first stop": ("first = 0\n[space]\nseed = 'Integers(0, 9)'", "received 0"),
    "an empty space": ("[space]", "at least one"),
    "another kind of value": ("[space]\nbatch = 'Uniform(1.0, 9.0)'", "whole number"),
    "a newer format": ("format = 99\n[space]\nseed = 'Integers(0, 9)'", "99"),
    "no TOML": ("[space", "not TOML"),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_search_is_one_sentence(tmp_path, text, words):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        tuning.read_search(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# ---- halving ----


def test_the_decision_is_that_of_optuna():
    rng = np.random.Generator(np.random.Philox(7))
    for reduction in (2, 3, 4):
        pruner = optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=reduction)
        study = optuna.create_study(direction="maximize", pruner=pruner)
        seen = []
        for _ in range(40):
            value = float(rng.integers(0, 20)) / 20  # with equals
            trial = study.ask()
            trial.report(value, 1)
            assert tuning.goes_on(value, seen, reduction) == (not trial.should_prune())
            seen.append(value)
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)


def test_a_search_from_end_to_end(file, whole):
    out, found, _ = whole
    search = tuning.read_search(file)
    assert [trial.number for trial in found.trials] == list(range(TRIALS))
    assert all(trial.ended for trial in found.trials)
    assert found.count("stopped") >= 1
    assert found.count("complete") >= 1
    seen = {stop: [] for stop in search.stops(4)}
    for trial in found.trials:  # in their order, by the rule, from the accuracies alone
        values, ended = dict(trial.curve), None
        assert list(values) == list(range(1, trial.epochs + 1))
        for stop, others in seen.items():
            if stop not in values:
                break
            if not tuning.goes_on(values[stop], others, search.reduction):
                ended = stop
            others.append(values[stop])
            if ended:
                break
        assert trial.epochs == (ended or 4)
        assert trial.state == ("stopped" if ended else "complete")
    best = max((t for t in found.trials if t.state == "complete"), key=lambda t: t.value)
    assert found.best == best
    chosen = read_settings(out / "best.toml")
    assert chosen == search.settings(best.number)
    for trial in found.trials:
        run = out / "trials" / f"{trial.number:04d}"
        assert Settings.of(search.settings(trial.number).table()) == search.settings(trial.number)
        assert (run / "settings.toml").is_file()
        kept = list((run / "checkpoints").glob("*")) if (run / "checkpoints").is_dir() else []
        assert bool(kept) == (trial == best)
    assert tuning.read_result(out) == found
    table = json.loads((out / "trials.json").read_text())
    assert table["best"] == best.number


def test_the_journal_is_one_that_optuna_opens(whole):
    out, found, _ = whole
    backend = optuna.storages.journal.JournalFileBackend(str(out / "journal.log"))
    storage = optuna.storages.journal.JournalStorage(backend)
    study = optuna.load_study(study_name="search", storage=storage)
    assert study.best_trial.number == found.best.number
    assert study.best_value == found.best.value
    assert study.best_params == pytest.approx(found.best.values)


def test_the_figure_is_drawn(whole, tmp_path):
    pytest.importorskip("matplotlib")
    paths = tuning.draw_trials(whole[1], tmp_path)
    assert [path.name for path in paths] == ["trials.png", "trials.svg"]
    assert all(path.stat().st_size > 3000 for path in paths)


# ---- stopping and going on ----


@pytest.mark.parametrize("when", ["before", "after", "half"])
def test_stopped_at_any_write_the_search_is_the_same(file, whole, tmp_path, monkeypatch, when):
    from optuna.storages.journal import JournalFileBackend

    whole_text = (whole[0] / "trials.json").read_text()
    real, writes = JournalFileBackend.append_logs, whole[2]
    assert writes > 4 * TRIALS
    out = tmp_path / "stopped"
    stops, at = 0, [0]
    places = set(range(3 + len(when), writes, 6))

    def stopping(self, logs):
        at[0] += 1
        if at[0] in places:
            places.discard(at[0])
            if when == "after":
                real(self, logs)
            if when == "half":
                with open(self._file_path, "ab") as torn:
                    torn.write(b'{"op_code":')
            raise KeyboardInterrupt
        real(self, logs)

    monkeypatch.setattr(JournalFileBackend, "append_logs", stopping)
    while True:
        try:
            tuning.tune(file, TRIALS, out, resume=True)
            break
        except KeyboardInterrupt:
            stops += 1
            assert stops < 60
    assert stops >= 3
    assert (out / "trials.json").read_text() == whole_text


def test_killed_and_resumed_the_search_is_the_same(file, whole, tmp_path):
    out = tmp_path / "killed"
    command = ["tune", str(file), "--resume", "--trials", str(TRIALS), "--out", str(out)]
    kills = 0
    for looks in (2, 7):
        process = CONTEXT.Process(target=cli.main, args=(command,))
        process.start()
        journal = out / "journal.log"
        while process.is_alive():
            if journal.is_file() and journal.read_bytes().count(b"intermediate_") >= looks:
                process.kill()
                break
            time.sleep(0.002)
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills >= 1
    found = tuning.tune(file, TRIALS, out, resume=True)
    assert found == whole[1]
    assert (out / "trials.json").read_text() == (whole[0] / "trials.json").read_text()
    for trial in found.trials:
        history = Run.open(out / "trials" / f"{trial.number:04d}").history().records
        epochs = [row["epoch"] for row in history if "epoch" in row]
        assert len(epochs) == len(set(epochs))


def test_a_resumed_search_may_grow_and_does_nothing_twice(file, whole, tmp_path, monkeypatch):
    out = tmp_path / "grows"
    tuning.tune(file, 2, out)
    ran = []
    real = with_optuna.run_trial
    monkeypatch.setattr(
        with_optuna, "run_trial", lambda s, n, o, r: (ran.append(n), real(s, n, o, r))[1]
    )
    assert tuning.tune(file, TRIALS, out, resume=True) == whole[1]
    assert ran == [2, 3, 4]
    tuning.tune(file, TRIALS, out, resume=True)
    assert ran == [2, 3, 4]


def test_a_trial_of_another_process_is_left_to_it(file, tmp_path):
    search = tuning.read_search(file)
    (tmp_path / "trials").mkdir()
    study = with_optuna._study(optuna, search, 2, tmp_path)
    first, lock = with_optuna._claim(optuna, study, tmp_path)
    second, other = with_optuna._claim(optuna, study, tmp_path)
    assert (first.number, second.number) == (0, 1)
    assert with_optuna._claim(optuna, study, tmp_path) is None
    os.close(lock)  # as if that process had died
    again, lock = with_optuna._claim(optuna, study, tmp_path)
    assert again.number == 0
    assert locks.taken(tmp_path / "trials" / "0001.lock") is None
    os.close(lock)
    os.close(other)


def test_a_draw_that_cannot_be_trained_is_one_of_those_that_failed(file, tmp_path):
    text = file.read_text().replace("tau = ", 'batch = "Choice(32, 1000)"\ntau = ')
    path = tmp_path / "search.toml"
    path.write_text(text.replace("batch = 32\n", ""))
    found = tuning.tune(path, 6, tmp_path / "out")
    large = [trial.values["batch"] == 1000 for trial in found.trials]
    assert 0 < sum(large) < 6
    assert [trial.state == "failed" for trial in found.trials] == large
    assert all("1000" in trial.why for trial in found.trials if trial.state == "failed")
    assert tuning.tune(path, 6, tmp_path / "out", resume=True) == found


def test_a_trial_that_diverges_is_one_of_those_that_failed(file, tmp_path):
    search = tuning.read_search(file, ["optimiser.name=sgd", "epochs=2"])
    laws = {"tau": search.space["tau"], "optimiser.lr": tuning.Choice(0.01, 1e30)}
    search = dataclasses.replace(search, space=laws, reduction=0)
    states = {}
    for seed in range(4):
        chosen = dataclasses.replace(search, seed=seed)
        large = [chosen.values(i)["optimiser.lr"] > 1 for i in range(3)]
        if len(set(large)) == 2:
            found = tuning.tune(chosen, 3, tmp_path / str(seed))
            states = {t.number: t for t in found.trials}
            break
    assert [states[i].state for i in range(3)] == ["failed" if big else "complete" for big in large]
    assert all(("optimiser.lr" in states[i].why) == big for i, big in enumerate(large))
    assert not large[found.best.number]


def test_if_all_fail_the_sentence_says_why(file, tmp_path):
    search = tuning.read_search(file, ["optimiser.name=sgd", "epochs=2"])
    laws = {"tau": search.space["tau"], "optimiser.lr": tuning.Choice(1e30)}
    with pytest.raises(ChiaroError, match="None of 2 trials") as failed:
        tuning.tune(dataclasses.replace(search, space=laws), 2, tmp_path / "all")
    assert "1e+30" in str(failed.value)


# ---- wrong calls ----


def test_resuming_another_search_is_refused(file, whole, tmp_path):
    out = whole[0]
    with pytest.raises(InputError, match="--resume"):
        tuning.tune(file, TRIALS, out)
    with pytest.raises(InputError, match="`epochs` was 4 and is 5 now"):
        tuning.tune(tuning.read_search(file, ["epochs=5"]), TRIALS, out, resume=True)
    with pytest.raises(InputError, match="`seed` was 0 and is 3 now"):
        tuning.tune(dataclasses.replace(tuning.read_search(file), seed=3), TRIALS, out, resume=True)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match=r"1 entries, the first is `mine\.txt`"):
        tuning.tune(file, TRIALS, tmp_path)


def test_nothing_to_choose_by_is_refused(file, tmp_path):
    plain = tmp_path / "plain.npz"
    np.savez(plain, x=np.zeros((40, 6), np.float32))
    with pytest.raises(InputError, match="at least 2 classes"):
        tuning.tune(tuning.read_search(file, [f"data.source={plain}"]), 1, tmp_path / "a")
    sees = ["objective=SupCon(kernel=Gaussian(tau={tau}))"]
    with pytest.raises(InputError, match="seen their labels"):
        tuning.tune(tuning.read_search(file, sees), 1, tmp_path / "b")


def test_the_command(capsys, file, tmp_path):
    out = tmp_path / "out"
    argv = ["tune", str(file), "--trials", "2", "--out", str(out), "--set", "epochs=2"]
    assert cli.main(argv) == 0
    printed, progress = capsys.readouterr()
    assert str(out / "best.toml") in printed
    assert "1 of 2: trial 0, " in progress  # as its folder and the best are numbered
    assert "2 of 2: trial 1, " in progress
    assert cli.main([*argv, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] in (0, 1)
    assert cli.main(argv) == 2
    assert "--resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--trials", "0"), "at least 1; received 0"),
        (("--trials", "two"), "--trials"),
        (("--trials", "2", "--engine", "spark"), "optuna, ray; received 'spark'"),
        (("--trials", "2", "--set", "epoch=3"), "did you mean `epochs`"),
    ],
)
def test_a_wrong_call_is_one_sentence(capsys, file, tmp_path, argv, words):
    assert cli.main(["tune", str(file), "--out", str(tmp_path / "x"), *argv]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_without_the_engine_the_sentence_says_how_to_get_it(file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ChiaroError, match=r"\[tune\]"):
        tuning.tune(file, 1, tmp_path / "x")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ChiaroError, match=r"\[ray\]"):
        tuning.tune(file, 1, tmp_path / "y", engine="ray")
    assert not list(tmp_path.glob("[xy]"))


def test_a_search_goes_on_with_the_engine_it_began_with(file, whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    with pytest.raises(InputError, match="`optuna` and goes on with 1 engine only; received `ray`"):
        tuning.tune(file, TRIALS, out, resume=True, engine="ray")
    (out / "journal.log").unlink()
    (out / "ray").mkdir()
    with pytest.raises(InputError, match="has `ray`"):
        tuning.tune(file, TRIALS, out, resume=True)


@pytest.mark.parametrize("line", ["garbage", "[1]", "{}"])
def test_a_journal_that_somebody_wrote_to_is_named_with_the_line(file, whole, tmp_path, line):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    with (out / "journal.log").open("a") as journal:
        journal.write(line + "\n")
    count = len((out / "journal.log").read_text().splitlines())
    with pytest.raises(ChiaroError, match=f"line {count} of {count} is no entry"):
        tuning.tune(file, TRIALS, out, resume=True)


@pytest.mark.parametrize("name", ["journal.log", "journal.log.lock", "trials", ".claim"])
def test_nothing_is_written_through_links_of_a_search(file, whole, tmp_path, name):
    out, outside = tmp_path / "out", tmp_path / "outside"
    shutil.copytree(whole[0], out)
    (out / name).rename(outside)
    (out / name).symlink_to(outside)
    there = {p: p.stat().st_mtime_ns for p in [outside, *outside.rglob("*")]}
    with pytest.raises(ChiaroError, match=rf"{name}` .*is a link to `.+outside`"):
        tuning.tune(file, TRIALS, out, resume=True)
    assert {p: p.stat().st_mtime_ns for p in [outside, *outside.rglob("*")]} == there


@pytest.mark.parametrize("kept", [0, 1, 0.5, -1])
def test_a_journal_that_lost_trials_is_refused_and_nothing_is_run_again(
    file, whole, tmp_path, kept
):
    """Emptied, or cut at the end of a line: `trials.json` knows more than the journal."""
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    lines = (out / "journal.log").read_bytes().splitlines(keepends=True)
    n = int(kept * len(lines)) if kept == 0.5 else kept % len(lines)
    (out / "journal.log").write_bytes(b"".join(lines[:n]))
    before = {p: p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
    with pytest.raises(ChiaroError, match=r"journal.log.*trials.json.*another folder"):
        tuning.tune(file, TRIALS, out, resume=True)
    after = {p: p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
    assert after == before


@pytest.mark.parametrize("line", ['{"op_code": 99}', '{"op_code": 4, "trial_id": 10000000}'])
def test_an_entry_that_optuna_cannot_replay_is_a_sentence(file, whole, tmp_path, line):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    with (out / "journal.log").open("a") as journal:
        journal.write(line + "\n")
    with pytest.raises(ChiaroError, match=r"journal.log.*cannot be read"):
        tuning.tune(file, TRIALS, out, resume=True)


@pytest.mark.extra("ray")
def test_ray_draws_the_same_trials_and_leaves_the_same_files(file, whole, tmp_path):
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        out = tmp_path / "ray"
        found = searching.tune(file, TRIALS, out, engine="ray")
        assert [t.values for t in found.trials] == [t.values for t in whole[1].trials]
        assert all(trial.ended for trial in found.trials)
        for ours, theirs in zip(whole[1].trials, found.trials, strict=True):
            both = min(ours.epochs, theirs.epochs)
            assert ours.curve[:both] == theirs.curve[:both]
        assert tuning.read_result(out) == found
        assert tuning.tune(file, TRIALS, out, resume=True, engine="ray") == found
    finally:
        ray.shutdown()
