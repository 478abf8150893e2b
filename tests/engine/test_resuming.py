"""A run goes on with what it began with: the same data; and it says where rounding may differ."""

import io
import json

import numpy as np
import pytest

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.data import Dataset, from_arrays
from chiaroscuro.engine import read_settings, train
from chiaroscuro.engine.fingerprint import fingerprint
from chiaroscuro.errors import InputError

SMALL = [
    "epochs=2",
    "batch=16",
    "views.first=Jitter(noise=0.1)",
    "network.encoder=MLP(d_in=5, d=8)",
    "network.projector=Projector(d=4)",
    "schedule.warmup=0",
]


def rows(n=48, seed=0):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(n, 5)).astype(np.float32), "labels": np.arange(n) % 3}


@pytest.fixture
def begun(tmp_path):
    """A run whose last checkpoint is lost, and its settings."""
    np.savez(tmp_path / "x.npz", **rows())
    settings = read_settings("simclr", [*SMALL, f"data.source={tmp_path / 'x.npz'}"])
    run = train(settings, tmp_path / "run")
    newest = sorted(run.checkpoints.iterdir())[-1]
    newest.rename(tmp_path / "lost")
    return run, settings


OTHERS = {
    "more rows": (rows(90), "there were 48 samples and are 90 now"),
    "other numbers": (rows(seed=1), "the 48 samples have other ids, labels or contents now"),
    "other labels": ({**rows(), "labels": np.zeros(48, int)}, "other ids, labels or contents"),
}


@pytest.mark.parametrize(("arrays", "sentence"), OTHERS.values(), ids=OTHERS)
def test_other_data_are_refused(tmp_path, begun, arrays, sentence):
    run, settings = begun
    before = run.history().records
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match=sentence):
        train(settings, run.folder, resume=True)
    assert Run.open(run.folder).history().records == before
    np.savez(tmp_path / "x.npz", **rows())
    train(settings, run.folder, resume=True)
    assert checkpoints.latest_good(run.checkpoints).checkpoint.step == 6


def test_other_threads_and_versions_are_said(begun):
    run, settings = begun
    path = run.folder / "environment.json"
    facts = json.loads(path.read_text())
    now = facts["threads"], facts["packages"]["torch"]
    facts["threads"], facts["packages"]["torch"] = 77, "1.0"
    path.write_text(json.dumps(facts))
    said = io.StringIO()
    train(settings, run.folder, resume=True, progress=said)
    assert f"threads 77 then and {now[0]} now, torch 1.0 then and {now[1]} now" in said.getvalue()
    assert said.getvalue().count("not the same to the bit") == 1


def test_the_same_machine_is_not_spoken_of(begun):
    said = io.StringIO()
    train(begun[1], begun[0].folder, resume=True, progress=said)
    assert "to the bit" not in said.getvalue()


def test_a_fingerprint_sees_order_ids_types_and_texts():
    plain = fingerprint(from_arrays(rows()))
    assert plain == fingerprint(from_arrays(rows()))
    assert plain.rows == 48
    x = rows()["x"]
    variants = [
        from_arrays(rows()).take(np.arange(48)[::-1]),
        from_arrays(rows(), ids=np.arange(48) + 1),
        from_arrays(rows() | {"x": x.astype(np.float64)}),
        from_arrays(rows() | {"x": x.reshape(48, 1, 5)}),
        Dataset({"texts": np.array(["a", "b"])}),
        Dataset({"texts": np.array(["a", "c"])}),
    ]
    found = {plain, *map(fingerprint, variants)}
    assert len(found) == 7


def test_a_fingerprint_reads_few_rows_of_many():
    read = []

    class Lazy:
        def __len__(self):
            return 10_000

        def __getitem__(self, rows):
            read.extend(rows)
            return np.zeros((len(rows), 2, 2, 3), np.uint8)

    assert fingerprint(Dataset({"images": Lazy()})).rows == 10_000
    assert len(read) == 64
