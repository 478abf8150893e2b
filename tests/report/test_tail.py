"""The history of a run that is being written is read once, and little of it is kept."""

import json

from chiaroscuro.artifacts import Run
from chiaroscuro.report import tail
from chiaroscuro.report.tail import Tails


def written(run, records):
    with (run / "history.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def test_it_is_the_history_while_it_grows_is_replaced_and_is_torn(tmp_path):
    tails = Tails()
    assert tails.history(tmp_path).records == []
    for step in range(5):
        written(tmp_path, [{"step": step, "loss": 1.0}, {"step": step, "epoch": step}])
        assert tails.history(tmp_path) == Run(tmp_path).history()
    written(tmp_path, [[1]])
    assert tails.history(tmp_path) == Run(tmp_path).history()
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"step": ')
    assert "9 bytes without a line end" in tails.history(tmp_path).problems[-1]
    (tmp_path / "history.jsonl").unlink()
    written(tmp_path, [{"step": 7, "loss": 3.0}] * 40)  # longer than before, and another
    assert tails.history(tmp_path) == Run(tmp_path).history()
    text = (tmp_path / "history.jsonl").read_text().replace("3.0", "4.0")
    with (tmp_path / "history.jsonl").open("r+") as file:  # in place
        file.write(text + text)
    assert tails.history(tmp_path) == Run(tmp_path).history()


def test_many_records_are_thinned_and_the_last_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "KEPT", 100)
    tails = Tails()
    for at in range(10):
        written(tmp_path, [{"step": 100 * at + k, "loss": 0.5} for k in range(100)])
        steps = [record["step"] for record in tails.history(tmp_path).records]
        assert len(steps) <= 101
        assert (steps[0], steps[-1]) == (0, 100 * at + 99)
        assert steps == sorted(steps)


def test_few_runs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "RUNS", 3)
    tails = Tails()
    for name in "abcdef":
        (tmp_path / name).mkdir()
        written(tmp_path / name, [{"step": 1, "loss": 0.5}])
        assert len(tails.history(tmp_path / name).records) == 1
    assert len(tails._tails) == 3
