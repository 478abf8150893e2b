"""Networks of timm, torchvision and transformers, as those packages build them."""

import pytest
import torch
from safetensors.torch import save_file

import chiaroscuro.models as models
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.models import (
    ResNet,
    ViT,
    from_timm,
    from_torchvision,
    from_transformers,
    load_weights,
)
from chiaroscuro.spec import parse

NAMES = {name: getattr(models, name) for name in models.__all__}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # the order of sums differs


def randomised(module):
    """Biases, scales and batch statistics that are nobody's initial values."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point() and (value.ndim == 1 or "token" in name):
                value.add_(0.2 * torch.rand_like(value))
    return module.eval()


def same_features(ours, theirs, side):
    x = torch.rand(2, 3, side, side)
    with torch.no_grad():
        a, b = ours.eval()(x), theirs(x)
    torch.testing.assert_close(a, b, **CLOSE)


# ---- their weights in our networks ----


@pytest.mark.extra("timm")
@pytest.mark.parametrize("depth", [18, 34, 50])
def test_resnets_of_timm_give_the_same_features_here(depth):
    import timm

    theirs = randomised(timm.create_model(f"resnet{depth}"))
    ours = ResNet(depth=depth, stem="large")
    match = load_weights(ours, theirs.state_dict())
    assert match.head == ("fc.weight", "fc.bias")
    theirs.reset_classifier(0)
    same_features(ours, theirs, 64)


@pytest.mark.extra("torchvision")
def test_resnets_of_torchvision_give_the_same_features_here(tmp_path):
    import torchvision

    theirs = randomised(torchvision.models.resnet18())
    torch.save({"state_dict": theirs.state_dict()}, tmp_path / "w.pth")
    ours = ResNet(depth=18, stem="large")
    load_weights(ours, tmp_path / "w.pth")
    theirs.fc = torch.nn.Identity()
    same_features(ours, theirs, 64)


@pytest.mark.extra("torchvision")
def test_resnets_in_a_row_of_their_children_load():
    """As users of lightly build them, `backbone.4.0.conv1.weight`, beside a projector."""
    import torchvision

    theirs = randomised(torchvision.models.resnet18())
    net = torch.nn.Module()
    net.backbone = torch.nn.Sequential(*list(theirs.children())[:-1])
    net.projection_head = torch.nn.Sequential(torch.nn.Linear(512, 8), torch.nn.BatchNorm1d(8))
    ours = ResNet(depth=18, stem="large")
    match = load_weights(ours, net.state_dict())
    assert (match.prefix, match.complete, match.outside) == ("backbone.", True, 7)
    theirs.fc = torch.nn.Identity()
    same_features(ours, theirs, 64)


@pytest.mark.extra("transformers")
@pytest.mark.parametrize("kind", ["basic", "bottleneck"])
def test_resnets_of_transformers_give_the_same_features_here(kind, tmp_path):
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = [64, 128, 256, 512] if kind == "basic" else [256, 512, 1024, 2048]
    depths = [2, 2, 2, 2] if kind == "basic" else [3, 4, 6, 3]
    config = ResNetConfig(layer_type=kind, hidden_sizes=sizes, depths=depths)
    theirs = randomised(ResNetForImageClassification(config))
    theirs.save_pretrained(tmp_path)
    ours = ResNet(depth=18 if kind == "basic" else 50, stem="large")
    match = load_weights(ours, tmp_path / "model.safetensors")
    assert match.prefix == "resnet."
    same_features(ours, lambda x: theirs.resnet(x).pooler_output.flatten(1), 64)


@pytest.mark.extra("timm")
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_transformers_of_timm_give_the_same_features_here(pool):
    from timm.models.vision_transformer import VisionTransformer

    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3}
    more = {} if pool == "cls" else {"class_token": False, "global_pool": "avg", "fc_norm": False}
    theirs = randomised(VisionTransformer(**shape, **more))
    ours = ViT(size=32, patch=8, d=24, depth=3, heads=3, pool=pool)
    assert len(load_weights(ours, theirs.state_dict()).head) == 2
    theirs.reset_classifier(0)
    same_features(ours, theirs, 32)


@pytest.mark.extra("timm")
def test_positions_are_interpolated_as_timm_does():
    from timm.layers import resample_abs_pos_embed

    small, large = ViT(size=32, patch=8, d=24, heads=3), ViT(size=56, patch=8, d=24, heads=3)
    load_weights(large, small.state_dict())
    right = resample_abs_pos_embed(small.pos_embed, (7, 7), num_prefix_tokens=1)
    torch.testing.assert_close(large.pos_embed, right, rtol=1e-5, atol=1e-6)


@pytest.mark.extra("torchvision")
def test_transformers_of_torchvision_give_the_same_features_here():
    from torchvision.models import VisionTransformer

    theirs = randomised(VisionTransformer(32, 8, 3, 3, 24, 96))
    ours = ViT(size=32, patch=8, d=24, depth=3, heads=3)
    load_weights(ours, theirs.state_dict())
    theirs.heads = torch.nn.Identity()
    same_features(ours, theirs, 32)


@pytest.mark.extra("transformers")
@pytest.mark.parametrize("saved", [True, False])
def test_transformers_of_transformers_give_the_same_features_here(saved, tmp_path):
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=96,
        image_size=32, patch_size=8, layer_norm_eps=1e-6,
    )  # fmt: skip
    theirs = randomised(ViTModel(config))
    theirs.save_pretrained(tmp_path)
    ours = ViT(size=32, patch=8, d=24, depth=3, heads=3)
    match = load_weights(ours, tmp_path / "model.safetensors" if saved else theirs.state_dict())
    assert all(name.startswith("pooler.") for name in match.head)
    same_features(ours, lambda x: theirs(x).last_hidden_state[:, 0], 32)


# ---- their networks as encoders ----


@pytest.mark.extra("timm")
def test_networks_of_timm_lose_their_head(tmp_path):
    import timm

    theirs = timm.create_model("resnet18")
    save_file(theirs.state_dict(), tmp_path / "whole.safetensors")
    theirs.reset_classifier(0)
    save_file(theirs.state_dict(), tmp_path / "headless.safetensors")
    for file in ("whole", "headless"):
        adapter = from_timm("resnet18", weights=tmp_path / f"{file}.safetensors")
        assert adapter.pretrained
        assert adapter.d == 512
        assert torch.equal(adapter.module.conv1.weight, theirs.conv1.weight)
        again = parse(repr(adapter), NAMES)
        assert torch.equal(again.module.layer4[1].conv2.weight, theirs.layer4[1].conv2.weight)
    assert not from_timm("resnet18").pretrained
    assert from_timm("resnet18", channels=13)(torch.zeros(2, 13, 64, 64)).shape == (2, 512)
    with pytest.raises(InputError, match="did you mean `resnet18`"):
        from_timm("resnet81")
    with pytest.raises(InputError, match="takes images of any size"):
        from_timm("resnet18", size=96)
    with pytest.raises(InputError, match=r"1 of another shape.*\(64, 4, 7, 7\) here"):
        from_timm("resnet18", channels=4, weights=tmp_path / "whole.safetensors")
    from_timm("resnet18", channels=4, weights=tmp_path / "whole.safetensors", partial=True)


@pytest.mark.extra("timm")
def test_a_transformer_of_timm_takes_another_size(tmp_path):
    import timm

    theirs = timm.create_model("vit_tiny_patch16_224")
    save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    adapter = from_timm("vit_tiny_patch16_224", weights=tmp_path / "w.safetensors", size=96)
    assert adapter.module.pos_embed.shape == (1, 37, 192)
    assert adapter(adapter.example(2)).shape == (2, 192)
    assert "size=96" in repr(adapter)
    assert "1 resized (`pos_embed`)" in adapter.fitted
    distilled = timm.create_model("deit_tiny_distilled_patch16_224")  # two tokens in front
    save_file(distilled.state_dict(), tmp_path / "d.safetensors")
    adapter = from_timm(
        "deit_tiny_distilled_patch16_224", weights=tmp_path / "d.safetensors", size=96
    )
    assert torch.equal(adapter.module.pos_embed[:, :2], distilled.pos_embed[:, :2])


@pytest.mark.extra("torchvision")
def test_networks_of_torchvision_lose_their_head(tmp_path):
    import torchvision

    theirs = torchvision.models.resnet18()
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    adapter = from_torchvision("resnet18", weights=tmp_path / "w.pth")
    assert (adapter.d, adapter.pretrained) == (512, True)
    assert torch.equal(adapter.module.conv1.weight, theirs.conv1.weight)
    with pytest.raises(InputError, match="did you mean `resnet18`"):
        from_torchvision("resnet81")


@pytest.fixture
def bert(tmp_path):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
    )
    model = BertModel(config).eval()
    model.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert", model


@pytest.mark.extra("transformers")
def test_a_text_model_is_pooled_over_real_tokens(bert):
    folder, theirs = bert
    tokens = torch.tensor([[2, 4, 9], [5, 6, 0]])  # 0 is its padding
    mask = tokens != 0
    with torch.no_grad():
        states = theirs(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        mean, cls = (from_transformers(str(folder), pool=p).eval() for p in ("mean", "cls"))
        right = torch.stack([states[0].mean(0), states[1, :2].mean(0)])
        torch.testing.assert_close(mean(tokens), right)
        torch.testing.assert_close(mean(tokens, mask), right)
        torch.testing.assert_close(cls(tokens), states[:, 0])
    assert mean.d == 16
    assert all(p.requires_grad for p in mean.parameters())
    fresh = from_transformers(str(folder), fresh=True)
    assert not fresh.pretrained
    fresh(tokens).square().sum().backward()
    idle = [name for name, p in fresh.named_parameters() if p.grad is None]
    assert idle == []


@pytest.mark.extra("transformers")
def test_image_models_of_transformers(tmp_path):
    from transformers import ResNetConfig, ViTConfig

    configs = {
        "vit": ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            image_size=32, patch_size=8, num_channels=4,
        ),
        "resnet": ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1],
            layer_type="basic", num_channels=4,
        ),
    }  # fmt: skip
    for name, config in configs.items():
        config.save_pretrained(tmp_path / name)
        model = from_transformers(str(tmp_path / name), pool="cls", fresh=True).eval()
        assert model.d == 16
        x = torch.rand(3, 4, 32, 32)
        h, states = model(x), model.module.module(pixel_values=x).last_hidden_state
        assert torch.equal(h, states[:, 0] if name == "vit" else states.mean((2, 3)))


@pytest.mark.extra("transformers")
def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(ChiaroError, match=r"finds no such model.*downloads nothing"):
        from_transformers(str(tmp_path / "missing"))
    with pytest.raises(InputError, match="pool='max'"):
        from_transformers("x", pool="max")


# ---- what fits of a folder or file of transformers ----


def saved(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text((config / "config.json").read_text())
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.mark.extra("transformers")
def test_a_folder_that_fits_in_part_is_counted_and_taken_only_when_asked(bert, tmp_path, capfd):
    from safetensors.torch import load_file

    folder, theirs = bert
    tensors = load_file(folder / "model.safetensors")
    less = {k: v for k, v in tensors.items() if "intermediate" not in k and "pooler" not in k}
    half = saved(tmp_path / "half", folder, less)
    with pytest.raises(
        InputError, match=r"its 21 tensors.* 19 tensors fit, 2 missing \(`encoder.*`partial=true`"
    ):
        from_transformers(half)
    adapter = from_transformers(half, partial=True)
    assert "2 missing" in adapter.fitted
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(adapter.module.module.state_dict()[words], theirs.state_dict()[words])
    assert adapter.origin == f"from_transformers(name={half!r}, pool='mean', partial=True)"

    other = saved(tmp_path / "other", folder, {**tensors, words: torch.zeros(60, 3)})
    with pytest.raises(InputError, match="1 of another shape"):
        from_transformers(other)
    deeper = {"encoder.layer.7.output.dense.bias": torch.zeros(16), "cls.predictions.bias": less[
        "embeddings.LayerNorm.bias"].clone()}  # fmt: skip
    more = saved(tmp_path / "more", folder, {**tensors, **deeper})
    with pytest.raises(InputError, match=r"1 left over \(`encoder.layer.7.* 1 of a head, not used"):
        from_transformers(more)
    assert capfd.readouterr().err == ""  # the report of transformers is ours


@pytest.mark.extra("transformers")
@pytest.mark.parametrize("prefix", ["", "bert.", "module.backbone."])
def test_a_file_of_weights_for_a_configuration_of_transformers(bert, tmp_path, prefix):
    folder, theirs = bert
    tensors = {prefix + name: value for name, value in theirs.state_dict().items()}
    torch.save({"state_dict": tensors | {"cls.bias": torch.zeros(2)}}, tmp_path / "w.pth")
    adapter = from_transformers(str(folder), weights=tmp_path / "w.pth").eval()
    tokens = torch.randint(1, 60, (2, 5))
    with torch.no_grad():
        right = from_transformers(str(folder)).eval()(tokens)
        assert torch.equal(adapter(tokens), right)
    assert "0 missing" in adapter.fitted
    with pytest.raises(InputError, match="`fresh` or `weights`; received both"):
        from_transformers(str(folder), fresh=True, weights="w.pth")


@pytest.mark.extra("timm")
def test_the_network_of_a_file_is_chosen_by_its_prefix(tmp_path):
    import timm

    state = timm.create_model("resnet18").state_dict()
    zeros = {f"second.{name}": torch.zeros_like(value) for name, value in state.items()}
    torch.save({f"first.{k}": v for k, v in state.items()} | zeros, tmp_path / "w.pth")
    with pytest.raises(
        InputError, match=r"2 fit alike: `first\.`, `second\.`. Choose with `prefix=`"
    ):
        from_timm("resnet18", weights=tmp_path / "w.pth")
    adapter = from_timm("resnet18", weights=tmp_path / "w.pth", prefix="first.")
    assert torch.equal(adapter.module.conv1.weight, state["conv1.weight"])
    assert "prefix='first.'" in adapter.origin
    with models.without_weights():
        again = parse(adapter.origin, NAMES)
    assert again.origin == adapter.origin
    assert not torch.equal(again.module.conv1.weight, state["conv1.weight"])


@pytest.mark.extra("transformers")
def test_what_is_no_encoder_of_images_or_texts_is_refused(tmp_path):
    import transformers

    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    text, vision = {"vocab_size": 60, **tiny}, {"image_size": 16, "patch_size": 8, **tiny}
    clip = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    for config, words in (
        (clip, r"`CLIPModel`, .*CLIPVisionModel.from_pretrained"),
        (
            transformers.T5Config(vocab_size=20, **sizes),
            "`T5Model`, which takes `input_ids` and decodes",
        ),
        (transformers.Wav2Vec2Config(num_conv_pos_embedding_groups=2, **tiny), "`input_values`"),
    ):
        config.save_pretrained(tmp_path / type(config).__name__)
        with pytest.raises(InputError, match=words):
            from_transformers(str(tmp_path / type(config).__name__), fresh=True)
    part = transformers.CLIPVisionModel(clip.vision_config)
    part.save_pretrained(tmp_path / "vision")
    assert from_transformers(str(tmp_path / "vision")).d == 8


@pytest.mark.extra("transformers")
def test_positions_of_transformers_are_interpolated_to_another_size(bert, tmp_path, monkeypatch):
    from transformers import Dinov2Config, ViTConfig, ViTModel

    from chiaroscuro.exporting import Preprocessing
    from chiaroscuro.exporting.libraries import for_transformers

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        image_size=32, patch_size=8,
    )  # fmt: skip
    theirs = ViTModel(config, add_pooling_layer=False).eval()
    theirs.save_pretrained(tmp_path / "vit")
    adapter = from_transformers(str(tmp_path / "vit"), pool="cls", size=48).eval()
    x = torch.rand(2, 3, 48, 48)
    with torch.no_grad():
        right = theirs(x, interpolate_pos_encoding=True).last_hidden_state[:, 0]
        assert torch.equal(adapter(x), right)
    assert adapter.example(1).shape == (1, 3, 48, 48)
    assert parse(repr(adapter), NAMES).origin == adapter.origin
    files = for_transformers(adapter, Preprocessing(3, 48, (0.0,) * 3, (1.0,) * 3))
    (tmp_path / "DIR").mkdir()
    files.write(tmp_path / "DIR")
    monkeypatch.chdir(tmp_path)
    images = (x.permute(0, 2, 3, 1) * 255).byte().numpy()
    names: dict = {"images": list(images)}
    with torch.no_grad():
        exec(files.usage, names)  # noqa: S102
        prepared = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
        torch.testing.assert_close(names["h"], adapter(prepared), **CLOSE)

    with pytest.raises(InputError, match="does not take samples of shape"):
        from_transformers(str(tmp_path / "vit")).eval()(x)
    itself = Dinov2Config(  # has no such option
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
    )
    itself.save_pretrained(tmp_path / "dinov2")
    other = from_transformers(str(tmp_path / "dinov2"), fresh=True, size=48)
    assert other(x).shape == (2, 16)
    assert other.example(1).shape[-1] == 48
    with pytest.raises(InputError, match=r"size=48.*needs a model of images"):
        from_transformers(str(bert[0]), size=48)


@pytest.mark.extra("transformers")
def test_folders_that_cannot_be_read_are_sentences(bert):
    folder, theirs = bert
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(ChiaroError, match=r"bert'\)` cannot be read: Error while deserializing"):
        from_transformers(str(folder))
    weights.unlink()
    with pytest.raises(ChiaroError, match=r"bert'\)` cannot be read"):
        from_transformers(str(folder))
    torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ChiaroError, match=r"by `weights='.*pytorch_model.bin'`"):
        from_transformers(str(folder))
    assert from_transformers(str(folder), weights=folder / "pytorch_model.bin").d == 16
    (folder / "config.json").write_text('{"model_type": "bert", ')
    with pytest.raises(ChiaroError, match="cannot be read"):
        from_transformers(str(folder), fresh=True)
