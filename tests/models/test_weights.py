"""Weights of every origin: names, prefixes, heads, shapes, and what is said about the rest."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import chiaroscuro.models as models
from chiaroscuro.errors import InputError
from chiaroscuro.models import MLP, ResNet, ViT, from_weights, load_weights
from chiaroscuro.models.names import LIBRARIES, names_in, naming_schemes
from chiaroscuro.spec import parse

NAMES = {name: getattr(models, name) for name in models.__all__}


def small(seed=0, **changes):
    torch.manual_seed(seed)
    return ResNet(**{"depth": 9, "width": 0.125, **changes}).eval()


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    return ViT(**{"size": 16, "patch": 4, "d": 12, "depth": 2, "heads": 2, **changes}).eval()


def equal(a: nn.Module, b: nn.Module) -> bool:
    theirs = b.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in a.state_dict().items())


def renamed(model, scheme):
    """The state dict as another library's file has it."""
    out = {}
    for name, theirs in scheme.items():
        parts = model.state_dict()[name].chunk(len(theirs)) if len(theirs) > 1 else None
        out |= dict(zip(theirs, parts or [model.state_dict()[name]], strict=True))
    return out


# ---- names ----


@pytest.mark.parametrize("make", [small, tiny])
def test_every_naming_of_every_library_loads(make):
    trained, schemes = make(1), naming_schemes(make())
    assert len(schemes) == {"small": 3, "tiny": 4}[make.__name__]
    for scheme in schemes:
        fresh = make()
        match = load_weights(fresh, renamed(trained, scheme))
        assert match.complete
        assert len(match.loaded) == len(fresh.state_dict())
        assert equal(fresh, trained)


def test_names_are_one_to_one():
    for model in (small(), ResNet(depth=50, width=0.125), tiny()):
        for library in LIBRARIES:
            names = [name for theirs in names_in(model, library).values() for name in theirs]
            assert len(set(names)) == len(names)
    assert names_in(MLP(3, d=2), "timm") is None


@pytest.mark.parametrize(
    "prefix", ["module.", "backbone.", "encoder.", "teacher.backbone.", "a.b.c.", ""]
)
def test_prefixes_are_found(prefix):
    trained, fresh = small(1), small()
    weights = {f"{prefix}{name}": value for name, value in trained.state_dict().items()}
    match = load_weights(fresh, weights)
    assert (match.prefix, match.outside) == (prefix, 0)
    assert equal(fresh, trained)


def test_other_networks_in_the_file_are_counted_and_left_alone():
    teacher, student, fresh = tiny(1), tiny(2), tiny()
    weights = {f"student.backbone.{k}": v for k, v in student.state_dict().items()}
    weights |= {f"teacher.backbone.{k}": v for k, v in teacher.state_dict().items()}
    weights["teacher.head.mlp.weight"] = torch.ones(3, 3)
    match = load_weights(fresh, weights)
    assert match.prefix == "teacher.backbone."
    assert match.outside == len(student.state_dict()) + 1
    assert equal(fresh, teacher)
    load_weights(fresh, weights, prefix="student.backbone.")
    assert equal(fresh, student)
    twins = {f"{side}.{k}": v for side in "ab" for k, v in student.state_dict().items()}
    with pytest.raises(InputError, match=r"2 fit alike: `a\.`, `b\.`. Choose with `prefix=`"):
        load_weights(fresh, twins)
    with pytest.raises(InputError, match=r"none of its 30 tensors.*prefix `c\.`"):
        load_weights(fresh, twins, prefix="c.")


HEADS = ["fc.weight", "head.bias", "classifier.1.weight", "heads.head.x", "projection_head.0.bias"]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_is_left_out(head):
    trained, fresh = small(1), small()
    match = load_weights(fresh, {**trained.state_dict(), head: torch.ones(2)})
    assert match.head == (head,)
    assert match.complete
    assert equal(fresh, trained)


def test_nested_networks_of_one_file(tmp_path):
    teacher = tiny(1)
    inside = {f"module.backbone.{k}": v for k, v in teacher.state_dict().items()}
    torch.save({"teacher": inside, "epoch": 3, "optimizer": {"state": {}}}, tmp_path / "dino.pth")
    fresh = tiny()
    assert load_weights(fresh, tmp_path / "dino.pth").prefix == "teacher.module.backbone."
    assert equal(fresh, teacher)


# ---- what does not fit ----


def test_what_does_not_fit_is_counted_and_taken_only_when_asked():
    trained, fresh, untouched = small(1, width=0.25), small(), small()
    weights = {**trained.state_dict(), "extra.weight": torch.ones(1)}
    del weights["bn1.bias"]
    with pytest.raises(InputError) as raised:
        load_weights(fresh, weights)
    said = str(raised.value)
    assert "1 missing (`bn1.bias`)" in said
    assert "1 left over (`extra.weight`)" in said
    assert "of another shape" in said
    assert "`conv1.weight` is (8, 3, 3, 3) here and (16, 3, 3, 3) there" in said
    assert "`partial=true` takes those that fit" in said
    assert equal(fresh, untouched)


def test_a_partial_match_sets_what_fits_and_nothing_else():
    trained, fresh, untouched = small(1), small(), small()
    weights = {k: v for k, v in trained.state_dict().items() if not k.startswith("layer4")}
    weights["layer3.0.bn1.bias"] = torch.ones(5)
    match = load_weights(fresh, weights, partial=True)
    assert match.other_shape == ("layer3.0.bn1.bias",)
    assert all(name.startswith("layer4") for name in match.missing)
    for name, value in fresh.state_dict().items():
        from_file = name in match.loaded
        assert torch.equal(value, (trained if from_file else untouched).state_dict()[name]), name
    with pytest.raises(InputError, match=r"finds none of its .* tensors in the state dict, which"):
        load_weights(fresh, {"a": torch.ones(1)}, partial=True)


def test_counters_of_batches_are_not_asked_for():
    trained, fresh = small(1), small()
    old = {k: v for k, v in trained.state_dict().items() if "num_batches" not in k}
    assert load_weights(fresh, old).complete


# ---- shapes ----


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_positions_are_interpolated_to_another_size(pool):
    trained, larger = tiny(1, pool=pool), tiny(size=32, pool=pool)
    match = load_weights(larger, trained.state_dict())
    assert match.resized == ("pos_embed",)
    front = int(pool == "cls")
    old = trained.pos_embed[:, front:].reshape(1, 4, 4, 12).permute(0, 3, 1, 2)
    new = larger.pos_embed[:, front:].reshape(1, 8, 8, 12).permute(0, 3, 1, 2)
    right = nn.functional.interpolate(old, (8, 8), mode="bicubic", antialias=True)
    torch.testing.assert_close(new, right)
    torch.testing.assert_close(larger.pos_embed[:, :front], trained.pos_embed[:, :front])
    assert larger(torch.zeros(2, 3, 32, 32)).shape == (2, 12)


def test_positions_of_a_class_token_are_left_out_in_part():
    trained, fresh = tiny(1), tiny(size=32, pool="mean")
    with pytest.raises(InputError, match=r"1 left over \(`cls_token`\), 1 of another shape"):
        load_weights(fresh, trained.state_dict())
    match = load_weights(fresh, trained.state_dict(), partial=True)
    assert (match.left_over, match.other_shape, match.resized) == (
        ("cls_token",),
        (),
        ("pos_embed",),
    )
    right = tiny(size=32)
    load_weights(right, trained.state_dict())
    assert torch.equal(fresh.pos_embed, right.pos_embed[:, 1:])
    again = tiny()  # with a class token on both sides nothing changes in part
    load_weights(again, trained.state_dict(), partial=True)
    assert torch.equal(again.pos_embed, trained.pos_embed)
    larger = tiny(size=32)
    load_weights(larger, trained.state_dict(), partial=True)
    assert torch.equal(larger.pos_embed, right.pos_embed)


def test_a_pickled_module_is_named_and_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(InputError, match=r"it holds a `torch\.nn\.modules\.linear\.Linear`\. Save"):
        load_weights(nn.Linear(2, 2), tmp_path / "whole.pt")


def test_a_linear_field_of_positions_stays_one():
    """Away from the border, bicubic interpolation reproduces a + b row + c column exactly."""
    field = torch.arange(8.0)[:, None] + 10 * torch.arange(8.0)[None, :]
    source, target = tiny(size=32), tiny(size=64)
    weights = source.state_dict()
    weights["pos_embed"][0, 1:] = field.reshape(64, 1)
    load_weights(target, weights)
    got = target.pos_embed[0, 1:, 0].reshape(16, 16)
    at = (torch.arange(16) + 0.5) / 2 - 0.5
    right = at[:, None] + 10 * at[None, :]
    torch.testing.assert_close(got[4:-4, 4:-4], right[4:-4, 4:-4])


def test_another_number_of_channels_is_partial():
    trained = small(1)
    for channels in (1, 2, 4, 13):
        fresh = small(channels=channels)
        with pytest.raises(InputError, match="1 of another shape"):
            load_weights(fresh, trained.state_dict())
        match = load_weights(fresh, trained.state_dict(), partial=True)
        assert match.resized == ("conv1.weight",)
        assert match.complete
        gray = torch.rand(2, 1, 32, 32)
        if channels == 1:  # a gray image is three equal channels
            torch.testing.assert_close(
                fresh(gray), trained(gray.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5
            )
        w = fresh.conv1.weight
        torch.testing.assert_close(
            w[:, 0], trained.conv1.weight.sum(1) if channels == 1
            else trained.conv1.weight[:, 0] * 3 / channels,
        )  # fmt: skip


@pytest.mark.parametrize("channels", range(1, 14))
def test_images_have_1_to_13_channels(channels):
    for model in (small(channels=channels).train(), tiny(channels=channels)):
        x = torch.rand(4, channels, 16, 16)
        model(x).square().sum().backward()
        first = model.conv1.weight if isinstance(model, ResNet) else model.patch_embed.proj.weight
        assert first.shape[1] == channels
        assert first.grad.abs().amax(dim=(0, 2, 3)).min() > 0


# ---- in the settings ----


def test_a_model_with_weights_is_written_and_read_back(tmp_path):
    trained = small(1)
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    text = f"from_weights(ResNet(depth=9, width=0.125), '{tmp_path / 'w.safetensors'}')"
    model = parse(text, NAMES)
    assert model.pretrained
    assert model.fitted.endswith("tensors fit, 0 missing, 0 left over, 0 of another shape")
    assert equal(model, trained)
    assert equal(parse(repr(model), NAMES), trained)
    partial = text.replace("width=0.125", "width=0.125, channels=4")[:-1] + ", partial=true)"
    assert "partial=True" in repr(parse(partial, NAMES))
    with pytest.raises(InputError, match="needs a model; received `int`"):
        from_weights(3, "w.pt")


def test_the_running_average_is_taken_as_timm_does(tmp_path):
    net, average = small(), small()
    torch.save(
        {"state_dict": net.state_dict(), "state_dict_ema": average.state_dict()}, tmp_path / "w.pth"
    )
    found = small()
    load_weights(found, tmp_path / "w.pth")
    assert all(map(torch.equal, found.state_dict().values(), average.state_dict().values()))


@pytest.mark.parametrize("prefix", ["", "module.", "backbone."])
def test_weights_of_the_module_inside_an_adapter(prefix, tmp_path):
    """As the module itself is saved, or as the adapter is."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    torch.save({prefix + k: v for k, v in net.state_dict().items()}, tmp_path / "w.pth")
    torch.save(models.Adapter(net).state_dict(), tmp_path / "adapter.pth")
    for name in ("w.pth", "adapter.pth"):
        fresh = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        adapter = models.from_weights(models.Adapter(fresh), str(tmp_path / name))
        x = torch.rand(5, 3)
        assert torch.equal(adapter(x), net(x))
