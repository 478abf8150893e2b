"""The loop: killed and resumed it ends bit by bit where it would have; every preset takes steps."""

import dataclasses
import io
import json
import signal
import textwrap

import numpy as np
import pytest
import torch
from torch import nn

import forked
from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.data import open_data
from chiaroscuro.engine import (
    Networks,
    Pairs,
    embed,
    held_out,
    load_networks,
    plain,
    presets,
    read_settings,
    step,
    stopping,
    tokens,
    train,
)
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.models import MLP, Projector

SMALL = [
    "epochs=3",
    "batch=16",
    "views.first=Jitter(noise=0.1)",
    "network.encoder=MLP(d_in=12, d=16, depth=2, width=16, normalisation='batch')",
    "network.projector=Projector(d=8)",
    "schedule.warmup=1",
    "saving.every=3",
]


@pytest.fixture
def points(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 4
    x = rng.normal(size=(4, 12))[labels] * 2 + rng.normal(size=(80, 12))
    path = tmp_path / "points.npz"
    np.savez(path, x=x.astype(np.float32), labels=labels, split=np.repeat([0, 1], [64, 16]))
    return path


def small(points, *more):
    return read_settings("simclr", [*SMALL, f"data.source={points}", *more])


def weights(run):
    found = checkpoints.latest_good(run.checkpoints).checkpoint
    return found.step, found.arrays


def equal(a, b):
    (step_a, arrays_a), (step_b, arrays_b) = a, b
    assert step_a == step_b
    assert arrays_a.keys() == arrays_b.keys()
    for name, array in arrays_a.items():
        assert array.tobytes() == arrays_b[name].tobytes(), name


METHODS = {
    "simclr": [],
    "adamw and average": ["optimiser.name=adamw", "network.average=0.9", "optimiser.clip=0.5"],
    "moco": [
        "objective=InfoNCE(Cosine(tau=Learnable(0.1)), OtherView(), anchors='first')",
        "network.momentum=0.9",
        "network.queue=40",
    ],
    "byol": [
        "objective=BYOL()",
        "symmetric=true",
        "network.momentum=0.9",
        "network.predictor=Projector(d=8, last='none')",
    ],
    "supcon": ["objective=SupCon()"],
    "gradient caching": ["micro_batch=8"],
}


# ---- the same weights ----


@pytest.mark.parametrize("more", METHODS.values(), ids=METHODS)
def test_interrupted_in_an_epoch_and_resumed_it_ends_the_same(tmp_path, points, more, monkeypatch):
    settings = small(points, *more)
    whole = train(settings, tmp_path / "whole")
    follow, steps = step._follow, []

    def ctrl_c(*args):  # in the middle of step 6, of 4 an epoch; the handler waits for its end
        steps.append(1)
        if len(steps) == 6:
            signal.raise_signal(signal.SIGINT)
        follow(*args)

    monkeypatch.setattr(step, "_follow", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "cut")
    assert weights(Run.open(tmp_path / "cut"))[0] == 6
    resumed = train(settings, tmp_path / "cut", resume=True)
    equal(weights(whole), weights(resumed))
    kept = ("step", "loss", "lr", "mean_loss")
    one, two = (
        [{k: r[k] for k in kept if k in r} for r in run.history().records]
        for run in (whole, resumed)
    )
    assert one == two


KILLED = """
    import json, os, signal, sys
    import torch
    from chiaroscuro.artifacts import checkpoints, files
    from chiaroscuro.engine import read_settings, step, train
    torch.set_num_threads(1)
    folder, moments, overrides = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    ahead = lambda workers: read_settings("digits", [*overrides, f"data.workers={workers}"])

    def child(work):
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def die_at(where, count):
        seen = [0]
        room, name = {"step": (step, "_follow"), "save": (checkpoints, "_durably"),
                      "saved": (checkpoints, "_verified"), "append": (os, "fsync")}[where]
        inner = getattr(room, name)
        def dying(*args, **kwargs):
            seen[0] += 1
            if seen[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(*args, **kwargs)
        setattr(room, name, dying)

    assert child(lambda: train(ahead(0), f"{folder}/whole")) == 0
    for where, count, workers in moments:
        out = f"{folder}/{where}-{count}"
        def killed():
            die_at(where, count)
            train(ahead(workers), out, resume=True)
        status = child(killed)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (where, status)
        assert child(lambda: train(ahead(2 - workers), out, resume=True)) == 0, where
"""


def test_killed_at_any_moment_and_resumed_it_ends_the_same(tmp_path):
    """Images, convolutions in channels_last and AdamW; kill -9 between and inside saves; with
    workers before or after, and none in the run that is left alone."""
    images = np.random.default_rng(0).integers(0, 255, (64, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "noise.npz", images=images)
    overrides = [
        "epochs=2",
        "batch=32",
        f"data.source={tmp_path / 'noise.npz'}",
        "data.distinct=false",
        "views.fresh=false",
        "views.first=SimCLR(size=16)",
        "network.encoder=ResNet(9, 0.125, stem='strided')",
        "network.average=0.9",
        "schedule.warmup=1",
        "saving.every=2",
    ]
    moments = [["step", 3, 2], ["save", 3, 0], ["saved", 2, 0], ["append", 9, 2]]
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    arguments = [str(tmp_path), json.dumps(moments), json.dumps(overrides)]
    done = forked.run(script, *arguments)
    assert done.codes == [0], done.err
    whole = weights(Run.open(tmp_path / "whole"))
    assert whole[0] == 4
    for where, count, _ in moments:
        equal(whole, weights(Run.open(tmp_path / f"{where}-{count}")))


def test_a_second_ctrl_c_is_not_waited_for(tmp_path, points, monkeypatch):
    """But what a launcher passes on at once is no second one."""
    settings, seen = small(points), []
    before = signal.getsignal(signal.SIGINT)  # a shell's background jobs begin with it ignored

    def twice(*args):
        seen.append(1)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(step, "_follow", twice)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "one")
    assert weights(Run.open(tmp_path / "one"))[0] == len(seen) == 1
    monkeypatch.setattr(stopping, "AGAIN", 0.0)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "two")
    assert checkpoints.latest_good(tmp_path / "two" / "checkpoints").checkpoint is None
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_on_the_command_line_is_130(tmp_path, points):
    code = (
        "import signal, sys\nfrom chiaroscuro.engine import train, read_settings\n"
        "from chiaroscuro.cli import main\n"
        "import chiaroscuro.engine.step as t\n"
        "inner = t._follow\n"
        "def follow(*a):\n    signal.raise_signal(signal.SIGINT)\n    t._follow = inner\n"
        "t._follow = follow\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    sets = [word for one in [*SMALL, f"data.source={points}"] for word in ("--set", one)]
    out = tmp_path / "run"
    (tmp_path / "ctrl_c.py").write_text(code)
    done = forked.run(tmp_path / "ctrl_c.py", "train", "simclr", *sets, "--out", str(out))
    assert done.codes == [130], done.err
    assert "stopped after step 1 of 12" in done.err
    assert weights(Run.open(out))[0] == 1


# ---- what a run is ----


def test_a_run_learns_and_leaves_its_files(tmp_path, points):
    seen = []

    def callback(moment):
        assert not moment.networks.training
        assert not torch.is_grad_enabled()
        torch.rand(5)  # what a callback draws moves nothing
        seen.append(moment.epoch)
        return {"measure": 0.5}

    more = ["epochs=30", "optimiser.name=adamw", "optimiser.lr=0.01"]
    run = train(small(points, *more), tmp_path / "run", [callback])
    plain_run = train(small(points, *more), tmp_path / "plain")
    equal(weights(run), weights(plain_run))
    assert seen == list(range(30))
    records = [r for r in run.history().records if "epoch" in r]
    assert [r["epoch"] for r in records] == list(range(1, 31))
    assert records[-1]["measure"] == 0.5
    assert records[-1]["mean_loss"] < records[0]["mean_loss"] - 0.1
    assert read_settings(run.folder / "settings.toml") == small(points, *more)


def test_the_first_step_is_the_formula(tmp_path, points):
    """One step of SGD, by hand, from the untrained networks."""
    more = ["epochs=1", "optimiser.name=sgd", "optimiser.lr=0.1", "optimiser.momentum=0"]
    more += ["schedule.warmup=0", "schedule.name=constant", "saving.every=1", "saving.keep=9"]
    settings = small(points, *more, "optimiser.weight_decay=0")
    run = train(settings, tmp_path / "run")
    first = sorted(run.checkpoints.iterdir())[0]
    saved = checkpoints.load(first).arrays
    from chiaroscuro.data import Order
    from chiaroscuro.engine import build, open_training_data

    networks, data = build(settings.network, settings.seed).train(), open_training_data(settings)
    x1, x2 = Pairs.of(settings, data)(Order(len(data), 16, 0).indices(0, 0), 0)
    z1, z2 = networks(x1, x2)
    settings.make_objective()(z1, z2).backward()
    for name, p in networks.named_parameters():
        moved = (p - 0.1 * p.grad).detach().numpy()
        np.testing.assert_allclose(moved, saved[f"networks.{name}"], rtol=1e-5, atol=1e-7)


def test_resuming_with_other_settings_is_refused(tmp_path, points):
    train(small(points), tmp_path / "run")
    with pytest.raises(InputError, match=r"`optimiser.lr` was 0.3 and is 0.1 now"):
        train(small(points, "optimiser.lr=0.1"), tmp_path / "run", resume=True)
    with pytest.raises(InputError, match="holds a run already"):
        train(small(points), tmp_path / "run")
    again = train(small(points), tmp_path / "run", resume=True)  # done already
    assert weights(again)[0] == 12


BAD = {
    "batch=65": "A batch of 65 needs at least as many samples; the data have 64",
    "batch=1": "needs at least 2 samples",
    "objective=Cosine()": "`objective` needs an objective; received `Cosine`",
    "network.encoder=MLP(d_in=13)": "needs 13 numbers per sample",
    "network.encoder=MPL(d_in=12)": "did you mean `MLP`?",
    "network.projector=Projector(d_in=3)": "`network.projector`",
    "views.fresh=true": "`views.fresh` needs data that can draw views",
    "views.first=SimCLR(size=8)": "`SimCLR` needs",
    "data.source=nowhere.npz": "`nowhere.npz` does not exist",
    "optimiser.lr=1e30": "Lower `optimiser.lr`",
    "device=foo": "`device` needs `auto` or one that is here: cpu.*; received `foo`",
    "device=cuda:99": "`device` needs `auto` or one that is here: cpu.*; received `cuda:99`",
    "network.encoder=from_transformers('bert')": "needs the package `transformers`",
}


@pytest.mark.parametrize("override", BAD)
def test_bad_input_is_one_sentence(tmp_path, points, override):
    with pytest.raises(ChiaroError, match=BAD[override]):
        train(small(points, "optimiser.name=sgd", override), tmp_path / "run")
    # what can be known before the first step leaves no folder behind
    assert (tmp_path / "run").exists() == ("1e30" in override)


def test_a_folder_that_cannot_be_made_is_one_sentence(points):
    with pytest.raises(ChiaroError, match="cannot be written: Not a directory"):
        train(small(points), points / "run")


def test_supcon_without_labels_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((20, 12), np.float32))
    with pytest.raises(InputError, match=r"`SupCon\(\)` needs labels"):
        train(small(tmp_path / "x.npz", "objective=SupCon()"), tmp_path / "run")


# ---- presets ----

TINY = [
    "epochs=1",
    "batch=8",
    "schedule.warmup=0",
    "data.source=digits(renderings=(1, 1), test=0.99)",
]


WITH_TEXTS = {name for name in presets() if name.endswith("clip")} | {"siglip"}
WITHOUT_IMAGES = {"series": (64, 1, 40), "table": (64, 16)}  # presets of other data, by shape


@pytest.mark.parametrize("name", sorted(set(presets()) - WITH_TEXTS - {"symbol-context-tokens"}))
def test_every_preset_takes_steps(tmp_path, name):
    full = read_settings(name)
    sized = ["network.encoder=ResNet(9, 0.125, stem='strided')"]
    if name in WITHOUT_IMAGES:
        x = np.random.default_rng(0).normal(size=WITHOUT_IMAGES[name]).astype(np.float32)
        np.savez(tmp_path / "x.npz", x=x)
        sized = [f"data.source={tmp_path / 'x.npz'}", f"network.encoder={full.network.encoder}"]
    if name == "directclr":
        sized += ["objective=OnDims(InfoNCE(Cosine(tau=0.1)), 0, 32)"]
    if full.network.predictor:
        sized += [f"network.{p}=Projector(d=16, last='none')" for p in ("projector", "predictor")]
    elif "d=2048" in full.network.projector:
        sized += ["network.projector=Projector(d=64, depth=3, width=64, last='none')"]
    if full.network.queue:
        sized += ["network.queue=32"]
    run = train(read_settings(name, [*TINY, *sized]), tmp_path / "run")
    step, arrays = weights(run)
    assert step >= 1
    before = _untrained(run)
    moved = [k for k, v in before.items() if not np.array_equal(v, arrays[f"networks.{k}"])]
    assert len(moved) > len(before) / 2


def _untrained(run):
    from chiaroscuro.engine import build

    settings = read_settings(run.settings())
    networks = build(settings.network, settings.seed)
    return {k: v.detach().numpy() for k, v in networks.named_parameters()}


def test_tokens_and_sequences(tmp_path):
    run = train(read_settings("symbol-context-tokens", ["epochs=1"]), tmp_path / "run")
    step, arrays = weights(run)
    assert step == 205 // 32
    before = _untrained(run)
    assert all(not np.array_equal(v, arrays[f"networks.{k}"]) for k, v in before.items())
    settings = read_settings(run.settings())
    data = open_data(settings.data.source)
    x1, x2 = Pairs.of(settings, data)(np.arange(20), epoch=0)
    sequences = data.column("x")[:20]
    masked = (x2 == 16).numpy()
    assert masked.sum(axis=1).tolist() == [1] * 20
    assert not masked[:, 2].any()
    np.testing.assert_array_equal(sequences[masked], x1.numpy())


def test_labels_are_shown_to_the_context_alone(tmp_path):
    settings = read_settings("symbol-context-labels", TINY)
    data = open_data(settings.data.source)
    other = dataclasses.replace(
        data, columns={**data.columns, "labels": (data.column("labels") + 1) % 10}
    )
    one, two = (Pairs.of(settings, d)(np.arange(6), epoch=0) for d in (data, other))
    assert torch.equal(one[0], two[0])
    assert (one[1] != two[1]).flatten(1).any(dim=1).all()
    columns = {name: c for name, c in data.columns.items() if name != "labels"}
    without = dataclasses.replace(data, columns=columns, class_names=())
    with pytest.raises(InputError, match="`LabelledContext` needs labels; `digits` has none"):
        Pairs.of(settings, without)(np.arange(6), epoch=0)


@pytest.mark.parametrize("name", sorted(WITH_TEXTS))
def test_pictures_and_texts(tmp_path, name):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "dots.npz", images=rng.integers(0, 255, (24, 32, 32, 3), np.uint8))
    lines = [{"id": i, "captions": [f"number {i}", f"the {i}th"]} for i in range(24)]
    captions = tmp_path / "dots_captions.jsonl"
    captions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiny = [
        *TINY[:3],
        f"data.source={captions}",
        "network.encoder=ResNet(9, 0.125, stem='strided')",
        "network.second_encoder=SequenceTransformer(n_tokens=258, d=16, depth=1, padding=0)",
    ]
    settings = read_settings(name, tiny)
    run = train(settings, tmp_path / "run")
    found = embed(run), embed(run, side=1)
    assert found[0].h.shape == (24, 64)
    assert found[1].h.shape == (24, 16)
    d = 64 if name.startswith("emoji") else 128
    assert found[0].z.shape == found[1].z.shape == found[0].z2.shape == (24, d)
    np.testing.assert_array_equal(found[0].z2, found[1].z)
    _, x2 = Pairs.of(settings, open_data(str(captions)))(np.arange(24), epoch=0)
    originals = tokens([line["captions"][0] for line in lines])
    same = [
        row[: (o > 0).sum()].tolist() == o[o > 0].tolist()
        for row, o in zip(x2, originals, strict=True)
    ]
    assert 3 < sum(same) < 21 if name.endswith("laclip") else all(same)


# ---- embedding ----


def test_embedding_a_run(tmp_path):
    more = ["network.encoder=ResNet(9, 0.125, stem='strided')", "network.average=0.5"]
    settings = read_settings("digits", [*TINY, *more])
    run = train(settings, tmp_path / "run", [held_out(lambda a, b: {"n": float(len(b[0]))}, 7)])
    assert run.history().records[-1]["n"] == 7.0
    found = embed(run)
    data = open_data(settings.data.source)
    assert found.h.shape == found.layers["untrained"].shape == (len(data), 64)
    assert found.z.shape == (len(data), 64)
    assert found.factors.shape == (len(data), 10)
    np.testing.assert_array_equal(found.labels, data.labels)
    np.testing.assert_array_equal(found.split, data.split)
    np.testing.assert_array_equal(found.thumbnails, data.column("images"))
    networks = load_networks(run)
    with torch.no_grad():
        h = networks.encode(plain(data, np.arange(300, 310)))
    np.testing.assert_allclose(h.numpy(), found.h[300:310], rtol=1e-4, atol=1e-5)
    averaged = checkpoints.latest_good(run.checkpoints).checkpoint.arrays
    for name, p in networks.named_parameters():
        np.testing.assert_array_equal(p.detach().numpy(), averaged[f"average.module.{name}"])


def test_pictures_come_to_the_size_of_the_views(tmp_path):
    more = ["network.encoder=ResNet(9, 0.125, stem='strided')", "views.first=SimCLR(size=16)"]
    run = train(read_settings("simclr", [*TINY, *more]), tmp_path / "run")
    rows = np.arange(5)
    x = plain(open_data(read_settings(run.settings()).data.source), rows)
    small = nn.functional.interpolate(x, (16, 16), mode="bilinear", antialias=True)
    with torch.no_grad():
        h = load_networks(run).encode(small)
    np.testing.assert_allclose(embed(run).h[rows], h.numpy(), rtol=1e-4, atol=1e-5)


def test_embedding_leaves_the_mode_alone():
    networks = Networks([MLP(3, 4)], [Projector(4, 2)]).train()
    networks.encoders.eval()
    embed(networks, {"x": np.eye(3, dtype=np.float32)})
    assert networks.training
    assert not networks.encoders.training
    assert embed(nn.Flatten(), {"x": np.ones((2, 3), np.float32)}).z is None


def test_an_untrained_run_cannot_be_loaded(tmp_path, points):
    run = Run.create(tmp_path / "run", small(points).table())
    with pytest.raises(ChiaroError, match="no good checkpoint, of 0 found"):
        load_networks(run)


def test_the_weights_of_a_file_are_counted_before_the_first_step(tmp_path):
    weights = MLP(d_in=3, d=4).state_dict()
    del weights["layers.0.bias"]
    torch.save({**weights, "extra.weight": torch.ones(2)}, tmp_path / "w.pt")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(16, 3)).astype("float32"))
    encoder = f"from_weights(MLP(d_in=3, d=4), '{tmp_path / 'w.pt'}', partial=true)"
    sets = ["epochs=1", "batch=8", "views.first=Jitter(noise=0.1)", "schedule.warmup=0"]
    sets += [f"network.encoder={encoder}", f"data.source={tmp_path / 'x.npz'}"]
    said = io.StringIO()
    train(read_settings("simclr", sets), tmp_path / "run", progress=said)
    counted = "tensors fit, 1 missing (`layers.0.bias`), 1 left over (`extra.weight`)"
    assert counted in said.getvalue()


def test_groups_of_the_data_are_no_negatives(tmp_path):
    """The `groups` of the data come before their labels."""
    x = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    groups, labels = np.arange(24) // 2, np.arange(24) % 3
    known = {"groups": {"groups": groups, "labels": labels}, "same": {"labels": groups}}
    known |= {"labels": {"labels": labels}}
    sets = ["epochs=1", "batch=12", "views.first=Jitter(noise=0.1)", "schedule.warmup=0"]
    sets += ["network.encoder=MLP(d_in=3, d=4)", "objective=Grouped(InfoNCE())"]
    made = {}
    for name, columns in known.items():
        np.savez(tmp_path / f"{name}.npz", x=x, **columns)
        settings = read_settings("simclr", [*sets, f"data.source={tmp_path / name}.npz"])
        made[name] = weights(train(settings, tmp_path / f"run-{name}"))
    equal(made["groups"], made["same"])
    with pytest.raises(AssertionError):
        equal(made["groups"], made["labels"])
    np.savez(tmp_path / "none.npz", x=x)
    with pytest.raises(InputError, match=r"`Grouped.*` needs labels or groups; `none` has none"):
        train(read_settings("simclr", [*sets, f"data.source={tmp_path / 'none.npz'}"]))
