"""A run leaves in every format, and comes back with the same embeddings."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import chiaroscuro as cs
from chiaroscuro.cli import main
from chiaroscuro.engine import read_settings, train
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.exporting import Preprocessing, export, load_pretrained, save_pretrained
from chiaroscuro.exporting.graphs import _compared, as_program, to_onnx
from chiaroscuro.exporting.libraries import for_timm, for_torchvision, for_transformers
from chiaroscuro.models import MLP, Adapter, ResNet, SequenceTransformer, Table, ViT
from chiaroscuro.views import SimCLR

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
VIEW = "SimCLR(size=32, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.3), jitter=0.0, grayscale=0.0)"
VIT = "ViT(size=32, patch=8, d=24, depth=2, heads=2)"
RESNET = "ResNet(depth=9, stem='large')"


def a_run(folder, encoder, view=VIEW):
    """Two steps on twelve images with labels and a split."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(16, 32, 32, 3), dtype=np.uint8)
    data = folder / "images.npz"
    labels, split = np.arange(16) % 2, np.repeat([0, 1], 8)
    np.savez(data, images=images, labels=labels, split=split)
    sets = [
        f"data.source={data}", f"views.first={view}", f"network.encoder={encoder}",
        "network.projector=Projector(d=4)", "epochs=1", "batch=4", "schedule.warmup=0",
    ]  # fmt: skip
    return train(read_settings("simclr", sets), folder / "run"), images


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return a_run(tmp_path_factory.mktemp("vit"), VIT)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    return a_run(tmp_path_factory.mktemp("resnet"), RESNET)


# ---- our own folder ----


def test_what_is_saved_embeds_as_the_run_does(vit, tmp_path):
    run, images = vit
    run.save_pretrained(tmp_path / "out", licence="cc-by-4.0")
    model = cs.load_pretrained(tmp_path / "out")
    right = cs.embed(run)
    again = model.embed(run.settings()["data"]["source"])
    np.testing.assert_allclose(again.h, right.h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(again.z, right.z, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        h = model(model.prepare(images)).numpy()
    np.testing.assert_allclose(h, right.h, rtol=1e-5, atol=1e-6)
    assert model.preprocessing == Preprocessing(3, 32, (0.5, 0.4, 0.3), (0.2, 0.2, 0.3))
    assert not model.training
    assert "[network]" in (tmp_path / "out" / "settings.toml").read_text()
    twice = save_pretrained(model, tmp_path / "twice")
    one, two = (load_file(p / "model.safetensors") for p in (tmp_path / "out", twice))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_card_is_filled_in_from_the_run(vit, tmp_path):
    run, _ = vit
    text = (run.save_pretrained(tmp_path / "out", licence="CC-BY-4.0") / "README.md").read_text()
    assert "knn_200" not in text  # 8 rows have no 200 neighbours
    for words in (
        'license: "cc-by-4.0"', "24 numbers", f"`{run.settings()['data']['source']}`",
        "minus [0.5, 0.4, 0.3], divided by [0.2, 0.2, 0.3]", "raw input (control)",
        "the network before training (control)", "Fitted on 8 rows, tested on 8 others",
        "Not diagnosed", "@inproceedings{chen2020simclr", "`Cosine(tau=0.5)`"[1:12],
        'cs.load_pretrained("out")',
    ):  # fmt: skip
        assert words in text, words
    quiet = export(run, "torch", tmp_path / "quiet", evaluation=False) / "README.md"
    assert "No licence was stated" in quiet.read_text()
    assert "Not evaluated: it was not asked for." in quiet.read_text()


def test_a_network_that_started_from_a_file_loads_without_it(tmp_path):
    torch.save(ViT(size=32, patch=8, d=24, depth=2, heads=2).state_dict(), tmp_path / "w.pt")
    run, _ = a_run(tmp_path, f"from_weights({VIT}, '{tmp_path / 'w.pt'}')")
    right = cs.embed(run).h
    run.save_pretrained(tmp_path / "out")
    (tmp_path / "w.pt").unlink()
    again = load_pretrained(tmp_path / "out").embed(run.settings()["data"]["source"])
    np.testing.assert_allclose(again.h, right, rtol=1e-5, atol=1e-6)


def a_table(path, shift=0.0):
    rows = np.random.default_rng(0).normal(size=(40, 2)) * [1.0, 50.0] + [shift, 300.0]
    lines = [f"{a:.5f},{b:.5f},{'uv'[at % 2]}" for at, (a, b) in enumerate(rows)]
    path.write_text("\n".join(["length,width,kind", *lines]) + "\n")
    return f"table('{path}', labels='kind', test=0.25)"


@pytest.mark.parametrize("kept", [True, False])
def test_a_table_is_scaled_by_the_rows_that_were_trained_on(kept, tmp_path):
    """In a folder or in memory, and by what is saved of either."""
    old, new = a_table(tmp_path / "old.csv"), a_table(tmp_path / "new.csv", shift=9.0)
    sets = {"epochs": 1, "batch": 8, "network.encoder": "MLP(d_in=2, d=3)", "schedule.warmup": 0}
    run = cs.train("table", data=old, overrides=sets, out=tmp_path / "run" if kept else None)
    right = cs.embed(run, new)
    assert right.layers["input"][:, 0].mean() > 7  # its own scaling would give 0
    out = cs.export(run, "torch", tmp_path / "out")
    model = load_pretrained(out)
    np.testing.assert_allclose(model.embed(new).h, right.h, rtol=1e-5, atol=1e-6)
    again = load_pretrained(save_pretrained(model, tmp_path / "again"))
    np.testing.assert_allclose(again.embed(new).h, right.h, rtol=1e-5, atol=1e-6)
    assert json.loads((out / "config.json").read_text())["scaling"]["names"] == ["length", "width"]
    assert "2 features, each minus its mean" in (out / "README.md").read_text()
    few = cs.finetuning.FinetuneSettings(steps=2, fractions=(1.0,), seeds=1)
    by_run, by_folder = (cs.finetune(one, new, None, few) for one in (run, out))
    assert [r["accuracy"] for r in by_folder.rows] == [r["accuracy"] for r in by_run.rows]


def test_images_of_16_bits_are_prepared_as_in_training():
    images = np.random.default_rng(0).integers(0, 65536, (3, 8, 8, 5), dtype=np.uint16)
    model = cs.exporting.Pretrained(ResNet(depth=9, width=0.125, channels=5))
    right = torch.from_numpy(images.astype(np.float32) / 65535).permute(0, 3, 1, 2)
    torch.testing.assert_close(model.prepare(images), right)
    grey = (images[..., 0] // 257).astype(np.uint8)
    three = model.prepare(grey)
    assert three.shape == (3, 3, 8, 8)
    assert torch.equal(three[:, 2], torch.from_numpy(grey).float() / 255)


def test_both_encoders_of_images_with_texts_leave(tmp_path):
    """Each in a folder of its own; the texts are plain strings, which the preset `clip` takes."""
    rng = np.random.default_rng(0)
    texts = [f"thing {at}" for at in range(16)]
    images = rng.integers(0, 256, (16, 8, 8, 3), dtype=np.uint8)
    known = {"labels": np.arange(16) % 2, "split": np.repeat([0, 1], 8)}
    np.savez(tmp_path / "p.npz", images=images, texts=texts, **known)
    sets = [
        f"data.source={tmp_path / 'p.npz'}", "views.first=SimCLR(size=8)", "epochs=1", "batch=4",
        "network.encoder=ResNet(depth=9, width=0.125)", "schedule.warmup=0",
        "network.second_encoder=SequenceTransformer(258, length=12, d=8, depth=1, heads=2)",
        "data.text_length=12",
    ]  # fmt: skip
    run = train(read_settings("clip", sets), tmp_path / "run")
    right = cs.embed(run)
    pictures = load_pretrained(export(run, "torch", tmp_path / "images"))
    written = load_pretrained(save_pretrained(run, tmp_path / "texts", side=1))
    np.testing.assert_allclose(pictures.embed(images).z, right.z1, rtol=1e-5, atol=1e-6)
    found = written.embed(texts)
    np.testing.assert_allclose(found.z, right.z2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.h, right.layers["texts"], rtol=1e-5, atol=1e-6)
    card = (tmp_path / "images" / "README.md").read_text()
    assert "Retrieval among 8 held-out pairs." in card
    assert "| the network before training (control) |" in card
    with pytest.raises(InputError, match=r"a side from 0 to 1, for `run` has 2 .*; received 2"):
        export(run, "torch", tmp_path / "third", side=2)
    assert "raw input (control)" in card
    assert "raw input (control)" not in (tmp_path / "texts" / "README.md").read_text()
    call = ["export", str(run.folder), "--to", "torch", "--out", str(tmp_path / "again")]
    assert main([*call, "--side", "1", "--no-evaluation"]) == 0
    one, two = (load_file(tmp_path / p / "model.safetensors") for p in ("texts", "again"))
    assert one.keys() == two.keys()


def test_a_module_of_yours_leaves_as_a_graph(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    noisy = lambda one: one + 0.1 * torch.randn(one.shape)
    run = cs.train(
        {"epochs": 1, "batch": 8}, data=x, encoder=net, view=noisy, objective="InfoNCE()"
    )
    out = export(run, "torch", tmp_path / "out")
    lines = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names = {"x": x}
    exec(lines.replace("out/", f"{out}/"), names)  # noqa: S102
    np.testing.assert_allclose(names["h"].detach(), cs.embed(run).h, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=r"`Adapter.* holds a module of yours"):
        run.save_pretrained(tmp_path / "saved")
    with pytest.raises(InputError, match=r"`--to torch` and `--to onnx` take any"):
        export(run, "timm", tmp_path / "timm")


def test_refusals_are_sentences(vit, tmp_path):
    run, _ = vit
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    with pytest.raises(InputError, match=r"empty folder; .* has 1 entries, the first is `a`"):
        export(run, "torch", tmp_path / "full")
    with pytest.raises(InputError, match="`chiaro export --to tflite` is not known; there are"):
        export(run, "tflite", tmp_path / "out")
    with pytest.raises(InputError, match=r"needs `config.json`"):
        load_pretrained(tmp_path / "full")
    (tmp_path / "full" / "model.safetensors").touch()
    for text, words in (
        ("{", "is not JSON"),
        ('{"encoder": "ResNet()"}', "needs a folder of `save_pretrained`"),
        ('{"encoder": "MLP(3)", "library": "chiaroscuro", "format": 99}', "99"),
    ):
        (tmp_path / "full" / "config.json").write_text(text)
        with pytest.raises(ChiaroError, match=words):
            load_pretrained(tmp_path / "full")
    mine = cs.exporting.Pretrained(Adapter(torch.nn.Linear(3, 2)))
    with pytest.raises(InputError, match="holds a module of yours"):
        save_pretrained(mine, tmp_path / "mine")


SMALL = ResNet(depth=9, width=0.25)
WRONG = {
    "stem": (for_timm, SMALL, "stem='small', stages=1"),
    "width": (for_torchvision, ResNet(depth=9, width=0.25, stem="large"), "width=0.25"),
    "channels": (for_torchvision, ResNet(depth=9, stem="large", channels=4), "received 4"),
    "pool": (for_transformers, ViT(pool="mean"), "received `pool='mean'`"),
    "mlp": (for_timm, MLP(3, d=2), r"`ViT` or `from_timm\(...\)`; received `MLP"),
    "text": (for_transformers, SequenceTransformer(9), "received `SequenceTransformer"),
}


@pytest.mark.parametrize(("call", "encoder", "words"), WRONG.values(), ids=WRONG)
def test_an_architecture_that_the_library_lacks(call, encoder, words):
    with pytest.raises(InputError, match=words):
        call(encoder, Preprocessing.of(encoder, None))


def test_preprocessing_is_that_of_the_view():
    view = SimCLR(size=96, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))
    found = Preprocessing.of(ResNet(depth=9, width=0.25), view)
    assert found == Preprocessing(3, 96, (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    crops = cs.views.MultiCrop((2, view), (3, SimCLR(size=32)))
    assert Preprocessing.of(ResNet(depth=9, width=0.25), crops) == found
    bare = Preprocessing.of(ViT(size=16, channels=2), None)
    assert bare == Preprocessing(2, 16, (0.0, 0.0), (1.0, 1.0))
    assert Preprocessing.of(MLP(3, d=2), None).as_dict() == {}


# ---- graphs ----

NETWORKS = {
    "resnet": ResNet(depth=9, width=0.125),
    "vit": ViT(size=16, patch=4, d=12, depth=1, heads=2),
    "mean": ViT(size=16, patch=4, d=12, depth=1, heads=2, pool="mean"),
    "mlp": MLP(4, d=3, normalisation="batch"),
    "sequence": SequenceTransformer(9, length=5, d=8, depth=1, heads=2, padding=0, pool="cls"),
    "table": Table(7, d=3),
    "adapter": Adapter(torch.nn.Conv2d(3, 4, 3), example=torch.zeros(1, 3, 8, 8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_traced_network_takes_any_batch(name):
    model = NETWORKS[name]
    program = as_program(model).module()
    assert model.training
    model.eval()
    for n in (1, 3, 7):
        x = model.example(n)
        x = torch.rand(x.shape) if x.is_floating_point() else x
        torch.testing.assert_close(program(x), model(x), **CLOSE)
    if name == "sequence":
        x = torch.tensor([[3, 4, 0], [7, 0, 0]])  # shorter than it was traced with, and padded
        torch.testing.assert_close(program(x), model(x), **CLOSE)
    model.train()


class Cancelling(torch.nn.Module):
    """Loses digits in single precision."""

    def forward(self, x):
        return (x + 1e4) - 1e4


def test_a_graph_that_differs_by_more_than_rounding_is_refused():
    example = torch.rand(1, 3)
    sound = Adapter(torch.nn.Linear(3, 3), example=example)
    with pytest.raises(ChiaroError, match=r"The file differs .* by 1\.0e-04 .* most 1e-05"):
        _compared(sound, lambda x: sound(x) * (1 + 1e-4), "The file", None)
    assert _compared(sound, lambda x: sound(x) * (1 + 1e-6), "The file", None) < 1e-5
    cancelling = Adapter(Cancelling(), example=example)
    assert 1e-4 < _compared(cancelling, lambda x: x, "The file", None) < 1e-3
    with pytest.raises(ChiaroError, match=r"The file differs .* by 1\.\de-02 "):
        _compared(cancelling, lambda x: x + 0.01, "The file", None)


def test_the_command_writes_a_folder(vit, tmp_path, capsys):
    run, _ = vit
    out = tmp_path / "out"
    assert main(["export", str(run.folder), "--to", "torch", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"export: {out}\n"
    names = {"README.md", "config.json", "model.pt2", "model.safetensors", "settings.toml"}
    assert {p.name for p in out.iterdir()} == names
    x = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        h = torch.export.load(out / "model.pt2").module()(x)
        torch.testing.assert_close(h, load_pretrained(out)(x), **CLOSE)
    assert main(["export", str(run.folder), "--to", "x", "--out", str(tmp_path / "b")]) == 2


@pytest.mark.extra("onnx")
@pytest.mark.parametrize("which", ["vit", "resnet"])
def test_onnx_takes_any_batch_and_agrees_to_1e_5(which, request, tmp_path):
    import onnxruntime

    run, _ = request.getfixturevalue(which)
    out = export(run, "onnx", tmp_path / "out", evaluation=False)
    session = onnxruntime.InferenceSession(str(out / "model.onnx"))
    encoder = cs.engine.open_run(run).encoder
    assert session.get_inputs()[0].shape == ["n", 3, 32, 32]
    assert session.get_outputs()[0].shape == ["n", encoder.d]
    for n in (1, 4, 9):
        x = torch.rand(n, 3, 32, 32)  # the size of the view
        (h,) = session.run(None, {"x": x.numpy()})
        with torch.no_grad():
            right = encoder(x).numpy()
        assert np.abs(h - right).max() <= 1e-5 * np.abs(right).max()
    assert "Largest relative difference from torch" in (out / "README.md").read_text()


@pytest.mark.extra("onnx", "transformers")
def test_onnx_takes_texts_of_any_length(tmp_path):
    import onnxruntime
    from transformers import BertConfig, BertModel

    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1}
    more = {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 20}
    BertModel(BertConfig(**sizes, **more)).save_pretrained(tmp_path / "bert")
    bert = cs.models.from_transformers(str(tmp_path / "bert")).eval()
    for name, model in {"ours": NETWORKS["sequence"].eval(), "bert": bert}.items():
        to_onnx(model, tmp_path / f"{name}.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / f"{name}.onnx"))
        assert session.get_inputs()[0].shape == ["n", "tokens"]
        for tokens in ([[5, 3, 0], [8, 0, 0], [1, 2, 3]], [[4, 7, 2, 5, 0]]):
            x = torch.tensor(tokens)
            (h,) = session.run(None, {"x": x.numpy()})
            with torch.no_grad():
                np.testing.assert_allclose(h, model(x).numpy(), **CLOSE)
    NETWORKS["sequence"].train()


# ---- the other libraries ----


def features(run, x):
    with torch.no_grad():
        return cs.engine.open_run(run).encoder(x)


@pytest.mark.extra("timm")
@pytest.mark.parametrize("which", ["vit", "resnet"])
def test_timm_loads_every_key(which, request, tmp_path):
    import timm
    from huggingface_hub import ModelCard
    from PIL import Image

    run, _ = request.getfixturevalue(which)
    out = export(run, "timm", tmp_path / "out", licence='our: own "licence"')
    assert ModelCard.load(out / "README.md").data.license == 'our: own "licence"'
    model = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
    weights = load_file(out / "model.safetensors")
    model.load_state_dict(weights, strict=True)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(x), features(run, x), **CLOSE)
    prepared = timm.data.resolve_model_data_config(model)
    assert list(prepared["mean"]) == [0.5, 0.4, 0.3]
    assert list(prepared["input_size"]) == [3, 32, 32]
    wide = np.random.default_rng(0).integers(0, 255, (1, 40, 72, 3), np.uint8)
    transform = timm.data.create_transform(**prepared)
    right = cs.engine.open_run(run).views[0].plain(torch.from_numpy(wide).permute(0, 3, 1, 2))
    torch.testing.assert_close(transform(Image.fromarray(wide[0]))[None], right, rtol=0, atol=0.05)


@pytest.mark.extra("timm")
@pytest.mark.parametrize(
    ("name", "size"), [("test_vit", None), ("test_vit2", 64), ("swin_tiny_patch4_window7_224", 64)]
)
def test_networks_of_timm_come_back_by_the_lines_of_the_card(name, size, tmp_path, monkeypatch):
    """Built for a size that is not the default of their class, or renamed by timm's reader."""
    encoder = cs.models.from_timm(name, size=size).eval()
    side = encoder.example(1).shape[-1]
    files = for_timm(encoder, Preprocessing(3, side, (0.5,) * 3, (0.2,) * 3))
    (tmp_path / "DIR").mkdir()
    files.write(tmp_path / "DIR")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(files.usage, names)  # noqa: S102
    x = torch.rand(1, 3, side, side)
    with torch.no_grad():
        assert torch.equal(names["model"](x), encoder(x))


@pytest.mark.extra("torchvision")
@pytest.mark.parametrize("which", ["vit", "resnet"])
def test_torchvision_loads_every_key_as_the_card_says(which, request, tmp_path, monkeypatch):
    run, _ = request.getfixturevalue(which)
    out = export(run, "torchvision", tmp_path / "out", evaluation=False)
    lines = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(lines, names)  # noqa: S102
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(names["model"](x), features(run, x), **CLOSE)


@pytest.mark.extra("transformers")
@pytest.mark.parametrize("which", ["vit", "resnet"])
def test_transformers_loads_every_key(which, request, tmp_path):
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModel

    run, images = request.getfixturevalue(which)
    out = export(run, "transformers", tmp_path / "out", evaluation=False)
    options = {"add_pooling_layer": False} if which == "vit" else {}
    model, info = AutoModel.from_pretrained(out, output_loading_info=True, **options)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    prepare = AutoImageProcessor.from_pretrained(out)
    x = prepare([Image.fromarray(image) for image in images[:2]], return_tensors="pt")
    with torch.no_grad():
        found = model.eval()(**x)
    h = found.last_hidden_state[:, 0] if which == "vit" else found.pooler_output.flatten(1)
    torch.testing.assert_close(h, torch.from_numpy(cs.embed(run).h[:2]), **CLOSE)


@pytest.mark.extra("timm")
def test_a_network_of_timm_trains_embeds_and_leaves(tmp_path):
    import timm

    run, images = a_run(tmp_path, "from_timm('resnet18')")
    right = cs.embed(run).h
    assert right.shape == (16, 512)
    run.save_pretrained(tmp_path / "own")
    again = load_pretrained(tmp_path / "own").embed(run.settings()["data"]["source"])
    np.testing.assert_allclose(again.h, right, rtol=1e-4, atol=1e-5)
    out = export(run, "timm", tmp_path / "timm", evaluation=False)
    model = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
    graph = export(run, "torch", tmp_path / "torch", evaluation=False) / "model.pt2"
    x = load_pretrained(tmp_path / "own").prepare(images)
    with torch.no_grad():
        for found in (model(x), torch.export.load(graph).module()(x)):
            np.testing.assert_allclose(found.numpy(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.extra("transformers")
def test_an_image_model_of_transformers_trains_embeds_and_leaves(tmp_path):
    from transformers import AutoModel, ViTConfig

    ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        image_size=32, patch_size=8,
    ).save_pretrained(tmp_path / "config")  # fmt: skip
    text = f"from_transformers('{tmp_path / 'config'}', pool='cls', fresh=true)"
    run, _ = a_run(tmp_path, text)
    right = cs.embed(run).h
    run.save_pretrained(tmp_path / "own")
    (tmp_path / "config" / "config.json").rename(tmp_path / "moved.json")
    model = load_pretrained(tmp_path / "own")
    again = model.embed(run.settings()["data"]["source"])
    np.testing.assert_allclose(again.h, right, rtol=1e-4, atol=1e-5)
    (tmp_path / "moved.json").rename(tmp_path / "config" / "config.json")
    out = export(run, "transformers", tmp_path / "theirs", evaluation=False)
    _, info = AutoModel.from_pretrained(
        out, output_loading_info=True, add_pooling_layer=False
    )  # fmt: skip
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert json.loads((out / "config.json").read_text())["hidden_size"] == 16


@pytest.mark.extra("transformers")
@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_a_text_model_of_transformers_leaves_with_its_tokenizer(pool, tmp_path, monkeypatch):
    """The lines of the card give the embeddings of the run."""
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sits"]
    words += map(str, range(24))
    vocabulary = {word: at for at, word in enumerate(words)}
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(tmp_path / "bert")
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=20,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    texts = [f"the cat sits {at}" + " the cat" * (at % 4) for at in range(24)]
    (tmp_path / "s.txt").write_text("\n".join(texts))
    sets = [
        f"data.source={tmp_path / 's.txt'}", f"data.tokenizer={tmp_path / 'bert'}",
        f"network.encoder=from_transformers('{tmp_path / 'bert'}', pool='{pool}')",
        "data.text_length=8", "epochs=1", "batch=8", "schedule.warmup=0", "views.first=",
    ]  # fmt: skip
    run = train(read_settings("text", sets), tmp_path / "run")
    out = export(run, "transformers", tmp_path / "out", evaluation=False)
    lines = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names = {"texts": texts}
    exec(lines, names)  # noqa: S102
    np.testing.assert_allclose(names["h"].detach(), cs.embed(run).h, **CLOSE)
