"""Fine-tuning: what learns at which rate, the comparison, and what is refused."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import chiaroscuro as cs
from chiaroscuro.cli import main
from chiaroscuro.engine import read_settings, train
from chiaroscuro.errors import InputError
from chiaroscuro.finetuning import Classifier, Finetuned, FinetuneSettings, finetune, layers_of
from chiaroscuro.finetuning.comparing import ARMS
from chiaroscuro.finetuning.layers import freeze_but_last, rate_groups
from chiaroscuro.finetuning.supervised import Rows, Supervised, fit_labels
from chiaroscuro.models import MLP, ResNet, ViT

SMALL_VIEW = "SimCLR(size=8, strength=0.0, mean=(0.4, 0.4, 0.4), std=(0.2, 0.2, 0.2))"
FEW = FinetuneSettings(steps=12, batch=16, fractions=(0.25, 1.0), seeds=2, lr=0.02)


def arrays(n=60, seed=0):
    """Three classes far apart, a third of the rows held out."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = rng.normal(size=(n, 6)) * 0.3 + np.eye(6)[y] * 2
    return {
        "x": x.astype(np.float32),
        "labels": y,
        "split": (np.arange(n) >= 2 * n // 3).astype(int),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    np.savez(folder / "x.npz", **arrays())
    sets = ["epochs=2", "batch=16", "views.first=Jitter(noise=0.1)", "schedule.warmup=0"]
    sets += [
        "network.encoder=MLP(d_in=6, d=8, depth=3, width=16)",
        "network.projector=Projector(d=4)",
    ]
    settings = read_settings("simclr", [*sets, f"data.source={folder / 'x.npz'}"])
    return train(settings, folder / "run"), folder


# ---- layers ----


def test_layers_go_from_the_input_to_the_output():
    vit = ViT(size=8, patch=4, d=6, depth=3, heads=2)
    layers = layers_of(vit)
    assert len(layers) == 5  # patches (with positions and class token), three blocks, norm
    assert any(p is vit.pos_embed for p in layers[0])
    assert any(p is vit.cls_token for p in layers[0])
    assert {id(p) for p in layers[2]} == {id(p) for p in vit.blocks[1].parameters()}
    resnet = ResNet(18, width=1 / 16)
    assert len(layers_of(resnet)) == 2 + 8  # convolution, its norm, two blocks in each stage
    for net in (vit, resnet, MLP(3, d=2, depth=4), cs.models.Adapter(nn.Linear(3, 2))):
        found = [id(p) for layer in layers_of(net) for p in layer]
        assert sorted(found) == sorted(map(id, net.parameters()))


def test_the_rate_falls_towards_the_input():
    net = MLP(3, d=2, depth=3, width=4)
    groups = rate_groups(net, nn.Linear(2, 2), lr=1.0, decay=0.5, weight_decay=0.1)
    rates = {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    layers = layers_of(net)
    assert [rates[id(layer[0])][0] for layer in layers] == [0.125, 0.25, 0.5]
    assert groups[-1]["lr"] == groups[-2]["lr"] == 1.0
    assert all(rates[id(p)][1] == (0.1 if p.ndim > 1 else 0.0) for p in net.parameters())


def test_only_the_last_layers_learn_and_the_others_keep_their_statistics():
    net = MLP(6, d=8, depth=3, width=16, normalisation="batch")
    data = cs.data.open_data(arrays())
    before = {k: v.clone() for k, v in net.state_dict().items()}
    count = len(layers_of(net))
    rows = Rows(data, np.arange(40), np.arange(40) % 3)
    fit_labels(Classifier(net, 8, 3), rows, None, Supervised(steps=3, layers=1, lr=0.1), seed=0)
    changed = {k for k, v in net.state_dict().items() if not torch.equal(v, before[k])}
    last = {f"layers.{len(net.layers) - 1}.{k}" for k in ("weight", "bias")}
    assert changed == last
    with pytest.raises(InputError, match=f"from 0 \\(all\\) to {count}; received {count + 1}"):
        freeze_but_last(net, count + 1)


# ---- the comparison ----


def test_the_same_again_and_from_where_it_stopped(run, tmp_path):
    folder = run[0].folder
    data = str(run[1] / "x.npz")
    whole = finetune(folder, data, tmp_path / "a", FEW)
    assert len(whole.rows) == 2 * 2 * 3
    assert [row["n_labels"] for row in whole.rows[::6]] == [10, 40]
    again = finetune(folder, data, None, FEW)
    assert again.rows == whole.rows
    pieces = json.loads((tmp_path / "a" / "pieces.json").read_text())
    name = "1 1 finetuned"
    pieces["done"] = {k: 0.125 for k in pieces["done"] if k != name}  # it is taken from here
    (tmp_path / "a" / "pieces.json").write_text(json.dumps(pieces))
    resumed = finetune(folder, data, tmp_path / "a", FEW)
    assert [r["accuracy"] for r in resumed.rows[:-1]] == [0.125] * 11
    assert resumed.rows[-1]["accuracy"] == whole.rows[-1]["accuracy"]
    with pytest.raises(InputError, match="another network, other data or settings"):
        finetune(folder, data, tmp_path / "a", FinetuneSettings(steps=3))
    saved = load_file(tmp_path / "a" / "model.safetensors")
    assert saved["head.weight"].shape == (3, 8)
    stored = json.loads((tmp_path / "a" / "finetune.json").read_text())
    assert stored["summary"][0]["fraction"] == 0.25
    assert "did pretraining help?" in (tmp_path / "a" / "table.txt").read_text()


def test_every_arm_learns_what_is_easy(run):
    settings = FinetuneSettings(steps=60, batch=16, fractions=(1.0,), seeds=1, lr=0.02)
    found = finetune(run[0], arrays(), None, settings)
    assert {row["arm"]: row["accuracy"] for row in found.rows} == {
        "probe": 1.0, "scratch": 1.0, "finetuned": 1.0,
    }  # fmt: skip


def test_scratch_has_fresh_weights_and_the_run_is_not_changed(run):
    opened = cs.engine.open_run(run[0])
    before = {k: v.clone() for k, v in opened.networks.state_dict().items()}
    seen = []

    def scratch():
        seen.append(MLP(6, d=8, depth=3, width=16))
        return seen[-1]

    few = FinetuneSettings(steps=1, fractions=(1.0,), seeds=2)
    finetune(opened, arrays(), None, few, scratch=scratch)
    assert len(seen) == 2
    assert not torch.equal(seen[0].layers[0].weight, seen[1].layers[0].weight)
    assert all(torch.equal(v, before[k]) for k, v in opened.networks.state_dict().items())


def test_weights_pretrained_folders_and_modules_are_taken(run, tmp_path):
    encoder = cs.engine.open_run(run[0]).encoder
    save_file(
        {f"backbone.{k}": v for k, v in encoder.state_dict().items()}, tmp_path / "w.safetensors"
    )
    cs.save_pretrained(run[0], tmp_path / "saved", evaluation=False)
    few = FinetuneSettings(steps=2, fractions=(1.0,), seeds=1)
    by_run = finetune(run[0], arrays(), None, few)
    text = "MLP(d_in=6, d=8, depth=3, width=16)"
    by_file = finetune(tmp_path / "w.safetensors", arrays(), None, few, encoder=text)
    by_folder = finetune(tmp_path / "saved", arrays(), None, few)
    by_module = finetune(encoder, arrays(), None, few)
    wanted = [r["accuracy"] for r in by_run.rows]
    for found in (by_file, by_folder, by_module):
        assert [r["accuracy"] for r in found.rows] == wanted
    own = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    assert len(finetune(own, arrays(), None, few).rows) == 3
    with pytest.raises(InputError, match="say which network they are for"):
        finetune(tmp_path / "w.safetensors", arrays(), None, few)
    with pytest.raises(InputError, match=r"`nowhere` does not exist"):
        finetune("nowhere", arrays(), None, few)


class Bias(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return x + self.b


def test_a_module_that_cannot_be_drawn_again_is_said(run):
    few = FinetuneSettings(steps=1, fractions=(1.0,), seeds=1)
    with pytest.raises(
        InputError, match="1 tensors of `Bias` cannot be drawn again, the first is `b`"
    ):
        finetune(Bias(), arrays(), None, few)


def test_images_are_cropped_and_flipped(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (24, 8, 8, 3), np.uint8)
    view = cs.views.SimCLR(size=8, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    net = cs.exporting.Pretrained(MLP(192, d=4, depth=1), None, view)
    split = (np.arange(24) >= 16).astype(int)
    few = FinetuneSettings(steps=2, fractions=(1.0,), seeds=1)
    found = finetune(
        net, {"images": images, "labels": np.arange(24) % 2, "split": split}, None, few
    )
    seen = cs.parse(found.protocol["view"]).explicit()
    assert (seen.scale, seen.flip, seen.jitter, seen.mean) == ((0.08, 1.0), 0.5, 0.0, view.mean)


@pytest.mark.parametrize("view", [SMALL_VIEW, cs.parse(SMALL_VIEW)], ids=["text", "object"])
def test_held_out_images_get_the_size_of_the_view_that_is_given(view, tmp_path):
    """A network of a file of weights brings none: it has to see both sides alike."""
    rng, y = np.random.default_rng(0), np.arange(60) % 2
    images = rng.integers(0, 60, (60, 12, 12, 3)) + 150 * y[:, None, None, None]
    data = {"images": images.astype(np.uint8), "labels": y, "split": (np.arange(60) >= 40) * 1}
    torch.save(MLP(192, d=4, depth=1).state_dict(), tmp_path / "w.pt")
    few = FinetuneSettings(steps=30, fractions=(1.0,), seeds=1, lr=0.01)
    found = finetune(
        tmp_path / "w.pt", data, None, few, encoder="MLP(192, d=4, depth=1)", view=view
    )
    assert {row["arm"]: row["accuracy"] for row in found.rows} == dict.fromkeys(ARMS, 1.0)


def made(rows):
    protocol = {
        "network": "N", "data": "D", "n_train": 9, "n_test": 9, "n_classes": 3,
        "settings": {"seeds": 2},
    }  # fmt: skip
    names = ("arm", "seed", "accuracy")
    known = [dict(zip(names, row, strict=True)) for row in rows]
    return Finetuned([{"fraction": 0.1, "n_labels": 7, **row} for row in known], protocol)


def test_intervals_are_those_of_student():
    """Two seeds at 0.5 and 0.7: t(0.975, 1) = 12.7062, times 0.1414 / sqrt(2)."""
    rows = [("probe", 0, 0.5), ("probe", 1, 0.5), ("scratch", 0, 0.1), ("scratch", 1, 0.3)]
    found = made([*rows, ("finetuned", 0, 0.5), ("finetuned", 1, 0.7)])
    (line,) = found.summary()
    assert line["finetuned"] == pytest.approx(0.6)
    assert line["finetuned_interval"] == pytest.approx(12.7062 * 0.1, rel=1e-4)
    assert (line["gain"], line["gain_interval"]) == (
        pytest.approx(0.4),
        pytest.approx(0, abs=1e-12),
    )
    assert line["helped"] == "yes"
    assert "10 % (7)" in str(found)
    assert "60.0 ± 127.1 %" in found._repr_html_()
    pyplot = pytest.importorskip("matplotlib.pyplot")
    _, axes = pyplot.subplots()
    assert found.plot(ax=axes) is axes
    drawn = {bars.get_label(): bars[0].get_xydata().tolist() for bars in axes.containers}
    assert drawn["fine-tuned"] == [[7, pytest.approx(0.6)]]
    assert list(drawn) == ["linear probe", "from scratch", "fine-tuned"]
    pyplot.close("all")
    worse = made(
        [
            *rows[:2],
            ("scratch", 0, 0.9),
            ("scratch", 1, 0.9),
            ("finetuned", 0, 0.1),
            ("finetuned", 1, 0.2),
        ]
    )
    assert worse.summary()[0]["helped"] == "no, it hurt"
    unsure = made([*rows, ("finetuned", 0, 0.2), ("finetuned", 1, 0.3)])
    assert unsure.summary()[0]["helped"] == "not resolved"
    single = made([row for row in [*rows, ("finetuned", 0, 0.5)] if row[1] == 0])
    assert single.summary()[0]["helped"] == "one seed: not known"


WRONG = {
    "fraction": ({"fractions": (0.0,)}, "received (0.0,)"),
    "seeds": ({"seeds": 0}, "`seeds` needs 1; received 0"),
    "decay": ({"layer_decay": 1.5}, "up to 1; received 1.5"),
    "layers": ({"layers": -1}, "`layers` needs at least 0; received -1"),
}


@pytest.mark.parametrize(("given", "sentence"), WRONG.values(), ids=WRONG)
def test_settings_that_are_none(given, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        FinetuneSettings(**given)


def test_data_without_labels_or_split_are_refused(run):
    x = arrays()
    with pytest.raises(InputError, match="has no labels and a split"):
        finetune(run[0], {"x": x["x"], "split": x["split"]}, None, FEW)
    with pytest.raises(InputError, match="has labels and no split"):
        finetune(run[0], {"x": x["x"], "labels": x["labels"]}, None, FEW)
    with pytest.raises(InputError, match="received 9"):
        finetune(run[0], x, None, FinetuneSettings(layers=9))


def test_the_command(run, tmp_path, capsys):
    call = ["finetune", str(run[0].folder), "--data", str(run[1] / "x.npz")]
    call += ["--out", str(tmp_path / "out"), "--steps", "3", "--seeds", "2", "--fractions", "1"]
    assert main(call) == 0
    said = capsys.readouterr()
    assert "did pretraining help?" in said.out
    assert said.err.count("100 % of the labels") == 6
    assert main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["protocol"]["n_test"] == 20


# ---- several datasets ----


def test_a_run_is_evaluated_on_several_data_sets(run, tmp_path, capsys):
    np.savez(tmp_path / "other.npz", **arrays(seed=3))
    own, other = str(run[1] / "x.npz"), str(tmp_path / "other.npz")
    found = cs.evaluate(run[0], ["ridge"], on=[own, other, arrays(seed=4)])
    assert list(found)[:2] == [own, other]
    assert len(found) == 3
    alone = cs.evaluate(run[0], ["ridge"])
    assert found[own]["results"]["encoder"] == alone["results"]["encoder"]
    assert found[other]["protocol"]["data"] == other
    with pytest.raises(InputError, match="dataset 2 of 2: `evaluate` needs"):
        cs.evaluate(run[0], ["ridge"], on=[own, arrays()["x"]])
    with pytest.raises(InputError, match="needs a list of datasets; received the text"):
        cs.evaluate(run[0], on=own)
    assert main(["evaluate", str(run[0].folder), "--data", own, other]) == 0
    said = capsys.readouterr().out
    assert said.count("fitted on 40 rows") == 2
    assert main(["evaluate", str(run[0].folder), "--json", "--data", own]) == 0
    assert list(json.loads(capsys.readouterr().out)) == [own]


def test_new_rows_are_scaled_and_tokenised_as_in_the_run(run, monkeypatch):
    opened = cs.engine.open_run(run[0])
    seen = []
    kept = type(opened).as_trained
    monkeypatch.setattr(
        type(opened), "as_trained", lambda self, data: seen.append(len(data)) or kept(self, data)
    )
    finetune(opened, arrays(n=30), None, FinetuneSettings(steps=1, fractions=(1.0,), seeds=1))
    assert 30 in seen


@pytest.mark.extra("timm")
def test_a_file_of_weights_of_timm_is_fine_tuned(tmp_path):
    import timm

    theirs = timm.create_model("test_vit").state_dict()
    torch.save({"state_dict": {f"module.{k}": v for k, v in theirs.items()}}, tmp_path / "w.pth")
    images = np.random.default_rng(0).integers(0, 255, (24, 12, 12, 3), np.uint8)
    data = {"images": images, "labels": np.arange(24) % 2, "split": (np.arange(24) >= 16) * 1}
    found = finetune(
        tmp_path / "w.pth", data, None, FinetuneSettings(steps=1, fractions=(1.0,), seeds=1),
        encoder="from_timm('test_vit', size=32)", view="SimCLR(size=32, strength=0.0)",
    )  # fmt: skip
    assert "0 missing" in found.protocol["weights"]
    assert "resized (`module.pos_embed`)" in found.protocol["weights"]
