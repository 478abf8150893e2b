"""Objects in the place of texts: trained, written down where they can be, asked for where not."""

import inspect

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import chiaroscuro as cs
from chiaroscuro.artifacts import checkpoints
from chiaroscuro.engine import build, read_settings
from chiaroscuro.errors import ChiaroError, InputError

SMALL = {
    "epochs": 2,
    "batch": 16,
    "optimiser": {"name": "adamw", "lr": 0.01},
    "schedule": {"warmup": 0.0},
    "saving": {"every": 1},
}


class Net(nn.Module):
    """A module of one's own, with dropout and a buffer."""

    def __init__(self, d=6):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.2))
        self.last = nn.Linear(8, d)

    def forward(self, x):
        return self.last(self.layers(x).relu())


def noisy(x):
    return x + 0.1 * torch.randn(x.shape)


def loss(z1, z2):
    return cs.InfoNCE(cs.Gaussian(tau=0.5))(z1, z2)


def rows(n=48, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)


def labelled(n=48, seed=0):
    return TensorDataset(torch.from_numpy(rows(n, seed)), torch.arange(n) % 3)


def net(seed=0, d=6):
    torch.manual_seed(seed)
    return Net(d)


def trained(out=None, **more):
    parts = {"data": labelled(), "encoder": net(), "view": noisy, "objective": loss, **more}
    stated = {name: value for name, value in parts.items() if name not in ("resume", "callbacks")}
    settings = {**SMALL, "network": {"projector": "Projector(d=4)"}}
    flags = {name: parts[name] for name in ("resume", "callbacks") if name in parts}
    return cs.train(settings, out, **flags, **stated)


def weights(networks):
    return {name: value.clone() for name, value in networks.state_dict().items()}


def same(one, two):
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert torch.equal(value, two[name]), name


# ---- in memory ----


def test_nothing_is_written_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = net()
    before = weights(own)
    run = trained(encoder=own)
    assert not list(tmp_path.iterdir())
    assert run.encoder is own
    assert not torch.equal(own.last.weight, before["last.weight"])
    same(weights(run.untrained.encoders[0]), before)
    embeddings = cs.embed(run)
    assert embeddings.h.shape == (48, 6)
    assert embeddings.z.shape == (48, 4)
    assert embeddings.labels.tolist() == (np.arange(48) % 3).tolist()
    assert embeddings.layers["untrained"].shape == (48, 6)
    assert cs.diagnose(run).measures["effective_rank"] > 1
    assert [r["step"] for r in run.history().records if "epoch" in r] == [3, 6]


def test_texts_and_objects_train_alike(tmp_path):
    """What has a notation is the same training, to the bit, whichever way it is said."""
    texts = {
        "objective": "InfoNCE(kernel=Gaussian(tau=0.5))",
        "view": "Jitter(noise=0.1)",
        "encoder": "MLP(d_in=5, d=6)",
        "projector": "Projector(d=4)",
    }
    sets = [f"network.{name}={texts[name]!r}" for name in ("encoder", "projector")]
    settings = read_settings(SMALL, sets)
    networks = build(settings.network, settings.seed)
    objects = {
        "objective": cs.InfoNCE(cs.Gaussian(tau=0.5)),
        "view": cs.views.Jitter(noise=0.1),
        "encoder": networks.encoders[0],
        "projector": networks.projectors[0],
    }
    one = cs.train(SMALL, tmp_path / "texts", data=rows(), **texts)
    two = cs.train(SMALL, tmp_path / "objects", data=rows(), **objects)
    same(*(weights(cs.engine.open_run(run).networks) for run in (one, two)))
    table = two.settings()
    assert table["network"]["encoder"].startswith("MLP(d_in=5, d=6")
    assert table["views"]["first"].startswith("Jitter(noise=0.1")
    assert table["objective"].startswith("InfoNCE(kernel=Gaussian(tau=0.5)")
    assert list(two.objects()) == ["data"]


# ---- a run made with objects is a run ----


def test_a_run_says_what_it_was_made_of_and_asks_for_it(tmp_path):
    own = net()
    run = trained(tmp_path / "run", encoder=own)
    known = run.objects()
    assert known["encoder"]["path"].endswith("test_objects.Net")
    assert known["encoder"]["parameters"] == 5 * 8 + 8 + 4 * 8 + 1 + 8 * 6 + 6
    assert known["data"]["rows"] == 48
    assert known["view"]["path"].endswith(".noisy")
    with pytest.raises(InputError, match=r"its encoder given as an object, .*Net`.*`encoder=...`"):
        cs.embed(run, labelled(), view=noisy, objective=loss)
    with pytest.raises(InputError, match=r"its data given as an object, .*TensorDataset"):
        cs.embed(run, encoder=net(), view=noisy, objective=loss)
    given = {"encoder": net(9), "view": noisy, "objective": loss}
    embeddings = cs.embed(run, labelled(), **given)
    right = own.eval()(torch.from_numpy(rows())).detach().numpy()
    np.testing.assert_allclose(embeddings.h, right, rtol=1e-5, atol=1e-6)
    diagnosis = cs.diagnose(run, data=labelled(), **given)
    assert run.diagnosis()["measures"] == diagnosis.json()["measures"]
    with pytest.raises(
        InputError, match=r"135 numbers in 9 tensors; received .*Net` with 162 in 9"
    ):
        cs.embed(run, labelled(), **{**given, "encoder": net(d=9)})
    with pytest.raises(InputError, match="of 48 rows; received 50"):
        cs.diagnose(run, data=labelled(50), **given)
    with pytest.raises(InputError, match="other ids, labels or contents"):
        cs.diagnose(run, data=labelled(seed=1), **given)
    with pytest.raises(InputError, match=r"with objective=`.*\.loss`; received `.*\.noisy`"):
        cs.diagnose(run, data=labelled(), **{**given, "objective": noisy})


def test_nothing_in_the_folder_is_imported_or_run(tmp_path, monkeypatch):
    run = trained(tmp_path / "run")
    bait = tmp_path / "bait.py"
    bait.write_text("raise SystemExit('run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    table = run.settings()
    table["network"]["encoder"] = "<bait.Net>"
    run.write_settings(table)
    with pytest.raises(InputError, match=r"given as an object, `bait.Net`"):
        cs.embed(run, labelled(), view=noisy, objective=loss)


def test_stopped_and_resumed_with_objects_it_ends_the_same(tmp_path):
    whole = trained(tmp_path / "whole")

    def stop(moment):
        raise cs.engine.StopTraining

    trained(tmp_path / "cut", callbacks=[stop])
    resumed = trained(tmp_path / "cut", resume=True, encoder=net(seed=7))
    one, two = (checkpoints.latest_good(r.checkpoints).checkpoint for r in (whole, resumed))
    assert one.step == two.step == 6
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes(), name
    with pytest.raises(InputError, match=r"needs the encoder it began with, .*parameters 135 then"):
        trained(tmp_path / "cut", resume=True, encoder=net(d=7))
    with pytest.raises(InputError, match=r"needs the data .*: rows 48 then and 60 now"):
        trained(tmp_path / "cut", resume=True, data=labelled(60))


def test_killed_before_its_first_checkpoint_it_begins_with_the_same_weights(tmp_path, monkeypatch):
    from chiaroscuro.engine import fitting

    whole = trained(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "take_step", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "cut")
    resumed = trained(tmp_path / "cut", resume=True, encoder=net(seed=7))
    one, two = (checkpoints.latest_good(r.checkpoints).checkpoint for r in (whole, resumed))
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes(), name


# ---- a run is opened once ----


def test_a_diagnosis_loads_each_thing_once(tmp_path, monkeypatch):
    labels = np.arange(240) % 3
    x = np.random.default_rng(0).normal(size=(240, 12)).astype(np.float32) + labels[:, None]
    np.savez(tmp_path / "x.npz", x=x, labels=labels, split=np.arange(240) % 2)
    sets = [
        *("epochs=1", "batch=40", "schedule.warmup=0", f"data.source={tmp_path / 'x.npz'}"),
        *("network.encoder=MLP(d_in=12, d=8)", "network.projector=Projector(d=8)"),
        "views.first=Jitter(noise=0.1)",
    ]
    run = cs.train(read_settings("simclr", sets), tmp_path / "run")
    counts = {"checkpoint": 0, "networks": 0, "data": 0}

    def counted(name, inner):
        def call(*args, **kwargs):
            counts[name] += 1
            return inner(*args, **kwargs)

        return call

    from chiaroscuro.engine import ingredients

    monkeypatch.setattr(checkpoints, "_verified", counted("checkpoint", checkpoints._verified))
    monkeypatch.setattr(ingredients, "build", counted("networks", ingredients.build))
    monkeypatch.setattr(ingredients, "open_data", counted("data", ingredients.open_data))
    from chiaroscuro.cli import main

    assert main(["diagnose", str(run.folder), "--json"]) == 0
    assert counts == {"checkpoint": 1, "networks": 2, "data": 1}  # the untrained control is one
    for name in counts:
        counts[name] = 0
    (run.folder / "diagnosis.json").unlink()
    assert main(["report", str(run.folder)]) == 0
    assert counts == {"checkpoint": 1, "networks": 2, "data": 1}
    assert run.evaluation()["results"]["encoder"]["knn_20"] > 0


# ---- views and data ----


def test_a_transform_of_one_sample_is_a_function_of_the_sample(tmp_path):
    images = [Image.fromarray(np.full((8, 8, 3), i, np.uint8)) for i in range(12)]
    seen = []

    def flip(image):
        seen.append(type(image).__name__)
        return torch.full((3, 4, 4), float(np.asarray(image)[0, 0, 0])) + torch.rand(3, 4, 4)

    batches = cs.engine.view_batches(images, flip, batch=4, seed=3)
    state = torch.get_rng_state()
    one, two = batches[1], batches[1]
    assert torch.equal(torch.get_rng_state(), state)
    assert set(seen) == {"Image"}
    assert torch.equal(one[0], two[0])
    assert not torch.equal(one[0], one[1])
    assert one[0].shape == (4, 3, 4, 4)
    sizes = iter([1, 2])
    uneven = cs.engine.SampleTransform(lambda x: torch.ones(next(sizes)))
    with pytest.raises(InputError, match=r"one shape; received 2, from \(1,\) to \(2,\)"):
        uneven(torch.ones(2, 3), [0, 1])


def test_ready_pairs_come_as_they_are():
    pairs = TensorDataset(torch.from_numpy(rows()), torch.from_numpy(rows()) + 1)
    batches = cs.engine.view_batches(pairs, batch=8)
    x1, x2, _ = batches[0]
    assert torch.allclose(x2, x1 + 1)
    run = cs.train(SMALL, data=pairs, encoder=net(), projector="Projector(d=4)")
    assert run.settings.views.first == ""
    assert run.views == (None, None)


def test_the_estimator_takes_objects_and_leaves_them_alone():
    own = net()
    before = weights(own)
    estimator = cs.ContrastiveEmbedding(encoder=own, objective=loss, view=noisy, epochs=1, batch=16)
    assert estimator.fit(rows()).transform(rows()).shape == (48, 6)
    same(weights(own), before)
    empty = cs.ContrastiveEmbedding(encoder=nn.Sequential(), view=noisy, epochs=1, batch=16)
    assert empty.fit(rows()).transform(rows()).shape == (48, 5)  # false as a truth, yet a module


def test_a_dictionary_of_settings_holds_objects():
    own, again = net(), net()
    table = {
        **SMALL,
        "objective": loss,
        "data": {"source": labelled()},
        "views": {"first": noisy},
        "network": {"encoder": own, "projector": "Projector(d=4)"},
    }
    run = cs.train(table)
    assert run.encoder is own
    same(weights(own), weights(trained(encoder=again).encoder))
    with pytest.raises(InputError, match="`encoder=` and `encoder` of the settings"):
        cs.train(table, encoder=net())
    with pytest.raises(InputError, match=r"received a `Net`. Objects have names: `train\(encoder="):
        cs.train(net(), data=rows())


class Letters(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.table = nn.Embedding(258, d)

    def forward(self, tokens):
        return self.table(tokens).mean(dim=1)


def test_images_and_texts_need_no_view_of_texts(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (16, 8, 8, 3), np.uint8)
    pairs = [(image, f"number {i}") for i, image in enumerate(images)]
    parts = {"encoder": nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), "second_encoder": Letters()}
    run = cs.train(SMALL, tmp_path / "run", data=pairs, view="SimCLR(size=8)", **parts)
    assert run.settings()["views"]["second"] == "none"
    opened = cs.engine.open_run(run, data=pairs, **parts)
    assert opened.views[1] is None
    assert cs.embed(opened).z2.shape == (16, 128)
    half = {"encoder": parts["encoder"], "second_encoder": "SequenceTransformer(258, 32, d=8)"}
    assert cs.train(SMALL, data=pairs, view="SimCLR(size=8)", **half).networks.encoders[1].d == 8
    with pytest.raises(InputError, match=r"SimCLR. needs images.*give `view=`.*Jitter"):
        cs.train(SMALL, data=rows(), encoder=net())


def test_pairs_of_two_shapes_go_through_an_encoder_each(tmp_path):
    x, y = torch.from_numpy(rows()), torch.from_numpy(rows(seed=1))[:, :3]
    parts = {"encoder": net(), "second_encoder": nn.Linear(3, 6)}
    run = cs.train(SMALL, tmp_path / "run", data=TensorDataset(x, y), **parts)
    opened = cs.engine.open_run(run, data=TensorDataset(x, y), **parts)
    embeddings = cs.embed(opened)
    encode = opened.networks.encode
    expected = {side: encode(v, side).detach().numpy() for side, v in enumerate((x, y))}
    np.testing.assert_allclose(embeddings.h, expected[0], rtol=1e-5)
    np.testing.assert_allclose(embeddings.layers["second"], expected[1], rtol=1e-5)
    assert embeddings.z2.shape == (48, 128)
    assert cs.diagnose(opened).measures["z_alignment"] > 0
    with pytest.raises(InputError, match=r"shapes \(5,\) and \(3,\) need an encoder each"):
        cs.train(SMALL, data=TensorDataset(x, y), encoder=net())


REFUSED = {
    "class": ({"encoder": Net}, "`encoder` needs a module of torch; received the class `Net`"),
    "shape": (
        {"encoder": nn.Linear(7, 3)},
        r"`Linear` needs to take samples .*\(2, 5\) in float32",
    ),
    "lambda": ({"projector": len}, "`projector` needs a module of torch; received a `builtin"),
}


@pytest.mark.parametrize(("wrong", "words"), REFUSED.values(), ids=REFUSED)
def test_modules_that_do_not_fit_are_refused(wrong, words, tmp_path):
    with pytest.raises(InputError, match=words):
        trained(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


# ---- reports ----


def test_a_report_takes_open_runs(tmp_path, capsys):
    data = cs.data.from_object(labelled(80)).with_split(0.25)
    given = {"data": data, "encoder": net(), "view": noisy, "objective": loss}
    run = trained(tmp_path / "run", **given)
    page = cs.report(cs.engine.open_run(run, **{**given, "encoder": net(9)}), maps=())
    assert page == run.report
    assert run.diagnosis() is not None
    assert run.evaluation()["results"]["encoder"]["knn_20"] > 0
    assert cs.Embeddings.load(run.embeddings("report")).h.shape == (80, 6)
    assert not capsys.readouterr().err
    memory = trained(**given)
    with pytest.raises(InputError, match="needs a place for its page, `path`"):
        cs.report(memory)
    text = cs.report(memory, tmp_path / "page.html", maps=()).read_text()
    for part in ("knn_20", "mean_loss", "effective_rank"):
        assert part in text
    asked = trained(tmp_path / "asked", **given)
    cs.report(asked, maps=())
    said = capsys.readouterr().err
    assert "is not diagnosed: This run was trained with its data" in said
    assert "is not evaluated: This run was trained with its data" in said


# ---- the public functions ----


@pytest.mark.parametrize("name", ["train", "embed", "evaluate", "diagnose", "report", "tune"])
def test_public_functions_are_plain_and_documented(name):
    function = getattr(cs, name)
    assert inspect.isfunction(function)
    assert name in cs.__all__
    assert "Args:" in inspect.getdoc(function)
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


@pytest.mark.parametrize(
    "text",
    [
        "ResNet(depth=9, width=0.125)",
        "MLP(d_in=3, d=2)",
        "Projector(d_in=4, d=2)",
        "SimCLR(size=8)",
        "Jitter(noise=0.5)",
        "InfoNCE(kernel=Laplace(tau=0.5))",
    ],
)
def test_parse_knows_what_settings_know(text):
    assert cs.parse(repr(cs.parse(text))) == cs.parse(text)


def test_parse_knows_every_name_of_the_settings():
    from chiaroscuro.engine.networks import projector_names
    from chiaroscuro.engine.settings import model_names

    known = cs._every_name()
    assert model_names().keys() | projector_names(3).keys() <= known.keys()
    for name in cs.engine.presets():
        settings = read_settings(name)
        assert repr(cs.parse(settings.objective)) == repr(settings.make_objective())
        for text, view in zip(
            (settings.views.first, settings.views.second or settings.views.first),
            settings.views.objects(),
            strict=True,
        ):
            assert (cs.parse(text) if text.strip() else None) == view
        for text in (settings.network.encoder, settings.network.second_encoder):
            assert not text or text.partition("(")[0] in known


def test_parse_opens_data():
    assert len(cs.parse("digits(renderings=(1, 1))")) == 1797
    text = "Process(Box(2), content=2, style=Laplace(0.3), mixing=Linear(2))"
    with pytest.raises(ChiaroError):
        cs.parse(text.replace("Box", "Bx"))


# ---- images of several sizes, texts, labels, and what is asked for ----


def photos(n=24):
    rng = np.random.default_rng(0)
    sizes = [(12, 16), (20, 14), (9, 9)]
    return [
        Image.fromarray(rng.integers(0, 255, (*sizes[i % 3], 3), dtype=np.uint8)) for i in range(n)
    ]


def flat(d=6):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, d))


def written(images, folder):
    paths = [folder / f"{number}.png" for number in range(len(images))]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    return paths


@pytest.mark.parametrize("kind", ["pillow", "arrays", "files", "labelled"])
def test_a_view_brings_images_of_several_sizes_to_one(kind, tmp_path):
    images = photos()
    data = {
        "pillow": lambda: images,
        "arrays": lambda: [np.asarray(image) for image in images],
        "files": lambda: written(images, tmp_path),
        "labelled": lambda: [(image, row % 2) for row, image in enumerate(images)],
    }[kind]()
    made = [
        cs.train(SMALL, data=data, encoder=flat(), projector="", view=view)
        for view in ("SimCLR(size=8)", cs.views.SimCLR(size=8))
    ]
    same(*(weights(run.networks) for run in made))
    h = cs.embed(made[0]).h
    assert h.shape == (24, 6)
    x = cs.views.SimCLR(size=8).plain([torch.from_numpy(np.array(images[1])).permute(2, 0, 1)])
    np.testing.assert_allclose(h[1], made[0].encoder(x)[0].detach(), rtol=1e-4, atol=1e-5)
    assert cs.embed(made[0]).thumbnails.shape == (24, 20, 20, 3)


def test_a_function_resizes_images_of_several_sizes(tmp_path):
    def small(image):
        assert isinstance(image, Image.Image)
        return image.resize((8, 8))

    run = cs.train(SMALL, data=photos(), encoder=flat(), projector="", view=small)
    with pytest.raises(InputError, match=r"need one size; `data` has 3 in one.*attribute `plain`"):
        cs.embed(run)
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 6))
    with pytest.raises(InputError, match=r"3 in one, from \(9, 9\) to \(20, 14\)"):
        cs.train(SMALL, data=photos(), encoder=pooled, projector="", view="")


def test_images_with_texts_need_an_encoder_for_the_texts():
    data = [(image, f"text {row}") for row, image in enumerate(photos())]
    with pytest.raises(InputError, match=r"holds 24 images with texts, and one encoder.*`second_e"):
        cs.train(SMALL, data=data, encoder=flat(), view="SimCLR(size=8)")
    texts = "SequenceTransformer(n_tokens=258, length=16, d=8, depth=1, padding=0)"
    run = cs.train(
        SMALL, data=data, encoder=flat(8), second_encoder=texts, projector="", view="SimCLR(size=8)"
    )
    assert cs.embed(run).z2.shape == (24, 8)


def test_embeddings_do_not_need_the_objective(tmp_path):
    run = trained(tmp_path / "run")
    h = cs.embed(run, labelled(), encoder=net(), view=noisy)
    assert h.facts()["trained_on.labels"] == "not seen"
    seen = trained(tmp_path / "labels", objective=lambda z1, z2, labels: (z1 - z2).square().mean())
    h = cs.embed(seen, labelled(), encoder=net(), view=noisy)
    assert h.facts()["trained_on.labels"] == "seen"


def test_a_report_takes_the_objects_that_it_asks_for(tmp_path, capsys):
    run = trained(tmp_path / "run")
    given = {"data": labelled(), "encoder": net(), "view": noisy, "objective": loss}
    page = cs.report(run.folder, **given)
    assert page == run.report
    assert run.diagnosis() is not None
    assert "not diagnosed" not in capsys.readouterr().err
    with pytest.raises(InputError, match=r"`report\(encoder=...\)` is for one run; received 2"):
        cs.report([run, run], tmp_path / "page.html", encoder=net())


def test_resuming_without_the_objects_names_them(tmp_path):
    trained(tmp_path / "run")
    words = (
        r"needs the 4 objects again .* data=`.*TensorDataset`, encoder=`.*Net`.*`train\(\.\.\., "
    )
    with pytest.raises(InputError, match=words):
        cs.train(SMALL, tmp_path / "run", resume=True)
    with pytest.raises(InputError, match=r"needs the 1 objects again .*: view=`.*noisy`"):
        cs.train(
            {**SMALL, "network": {"projector": "Projector(d=4)"}},
            tmp_path / "run",
            resume=True,
            data=labelled(),
            encoder=net(),
            objective=loss,
        )
