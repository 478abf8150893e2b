"""A run goes on with what it began with: the same data; and it says where rounding may differ."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.data import Dataset, from_arrays
from chiaroscuro.data.pictures import Pictures, as_images
from chiaroscuro.data.text import Strings
from chiaroscuro.engine import fingerprint as module
from chiaroscuro.engine import read_settings, state, train
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


def changed_in_the_middle(n=1000):
    """Pairs of data that differ in one row that is none of 64 evenly spaced ones."""
    x = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    y = x.copy()
    y[501, 3] += 1
    yield Dataset({"x": x}), Dataset({"x": y})
    words = [f"w{i}" for i in range(n)]
    others = [*words[:501], "other", *words[502:]]
    for make in (np.array, lambda w: Strings(*Strings.packed(w))):
        yield Dataset({"texts": make(words)}), Dataset({"texts": make(others)})
    grey = np.zeros((n, 4, 4), np.uint16)
    dot = grey.copy()
    dot[501, 1, 1] = 9
    yield Dataset({"images": as_images(grey)}), Dataset({"images": as_images(dot)})
    files = [image_bytes(0)] * n
    other = [*files[:501], image_bytes(1), *files[502:]]
    yield Dataset({"images": Pictures(files)}), Dataset({"images": Pictures(other)})


def image_bytes(shade):
    out = io.BytesIO()
    Image.new("RGB", (4, 4), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


def test_a_change_in_any_row_is_seen():
    for one, two in changed_in_the_middle():
        a, b = fingerprint(one), fingerprint(two)
        assert a.sampled == b.sampled, one
        assert a.sha256 != b.sha256, one
        assert a == fingerprint(one)


def test_contents_of_files_are_read_once_until_one_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "CACHED_FROM", 1)
    paths = [tmp_path / f"{i}.png" for i in range(80)]
    for path in paths:
        path.write_bytes(image_bytes(0))
    data = Dataset({"images": Pictures(paths)})
    first = fingerprint(data)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_add_encoded", lambda *_: pytest.fail("read again"))
        assert fingerprint(data) == first
    looked_at = set(np.linspace(0, 79, module.LOOKED_AT).astype(int).tolist())
    paths[min(set(range(80)) - looked_at)].write_bytes(image_bytes(1))
    second = fingerprint(data)
    assert (second.sampled, second.sha256 != first.sha256) == (first.sampled, True)


def test_checkpoints_of_older_versions_are_gone_on_with(tmp_path):
    now = fingerprint(from_arrays(rows()))
    state._same_data(now, (now.rows, now.sampled), Run(tmp_path))
    with pytest.raises(InputError, match="other ids, labels or contents"):
        state._same_data(now, (now.rows, "0" * 64), Run(tmp_path))


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
