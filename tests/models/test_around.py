"""What is done with models: momentum, layers, adapters, foreign weights, packing."""

import json
import math
import os
import random
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import chiaroscuro.models as models
from chiaroscuro.artifacts import checkpoints
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.models import (
    MLP,
    Adapter,
    Momentum,
    Projector,
    ResNet,
    features,
    from_timm,
    from_torchvision,
    from_transformers,
    load_foreign,
    pack,
    unpack,
)
from chiaroscuro.spec import parse

NAMES = {name: getattr(models, name) for name in models.__all__}

# ---- momentum ----


def test_momentum_is_the_average_written_out():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    average = Momentum(model)
    by_hand = {k: v.clone().double() for k, v in model.named_parameters()}
    for step in range(5):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        model(torch.randn(8, 3))
        m = 0.9 + 0.01 * step
        average.update(model, m)
        by_hand = {
            k: m * v + (1 - m) * dict(model.named_parameters())[k] for k, v in by_hand.items()
        }
    for name, p in average.module.named_parameters():
        torch.testing.assert_close(p.double(), by_hand[name].detach(), rtol=1e-5, atol=1e-6)
        assert not p.requires_grad
    for (_, ours), (_, theirs) in zip(
        average.module.named_buffers(), model.named_buffers(), strict=True
    ):
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()


def test_momentum_at_its_ends_is_exact():
    torch.manual_seed(0)
    start, model = MLP(3, d=2), MLP(3, d=2)
    average = Momentum(start)
    average.update(model, 1.0)
    assert all(map(torch.equal, average.module.parameters(), start.parameters()))
    average.update(model, 0.0)
    assert all(map(torch.equal, average.module.parameters(), model.parameters()))


def test_momentum_has_no_gradient_and_leaves_the_model_its_own():
    model = MLP(3, d=2)
    average = Momentum(model)
    assert not average(torch.ones(1, 3, requires_grad=True)).requires_grad
    assert model(torch.ones(1, 3)).requires_grad
    assert average.d == 2


def test_momentum_comes_back_from_its_state_and_its_notation():
    average = Momentum(Projector(4, d=2))
    again = parse(repr(average), NAMES)
    assert repr(again) == repr(average)
    again.load_state_dict(average.state_dict())
    h = torch.randn(4, 4)
    assert torch.equal(again(h), average(h))
    assert repr(Momentum(nn.Linear(2, 2))) == "Momentum(module=<Linear>)"


def test_momentum_of_another_model_is_refused():
    with pytest.raises(InputError, match=r"2 of 4 tensors differ.*`layers.2"):
        Momentum(MLP(3, d=2, depth=2)).update(MLP(3, d=5, depth=2), 0.9)


# ---- layers ----


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


def test_features_are_what_the_layers_gave():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 2))
    x = torch.randn(4, 3)
    found = features(model, x, ["2", "0", ""])
    assert list(found) == ["2", "0", ""]
    assert torch.equal(found["0"], model[0](x)), "not what the in-place relu left"
    assert found["0"].min() < 0
    assert torch.equal(found["2"], found[""])
    assert found["0"].requires_grad
    assert hooks(model) == 0


def test_features_of_a_resnet():
    found = features(
        ResNet(9, 0.25), torch.randn(2, 3, 32, 32), ["conv1", "layer1", "layer2.0.conv1", "layer4"]
    )
    assert [tuple(h.shape[1:]) for h in found.values()] == [
        (16, 32, 32),
        (16, 32, 32),
        (32, 16, 16),
        (128, 4, 4),
    ]


def test_features_leave_no_hook_behind_when_they_fail():
    model = MLP(3, d=2)
    with pytest.raises(InputError, match="3 numbers per sample"):
        features(model, torch.zeros(2, 4), ["layers.0"])
    with pytest.raises(InputError, match=r"did you mean `layers.0`"):
        features(model, torch.zeros(2, 3), ["layer.0"])

    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.pair = nn.Identity(), nn.LSTM(3, 2)

        def forward(self, x):
            return self.pair(x)[0]

    lazy = Lazy()
    for name, words in (("unused", "did not run"), ("pair", "returned `tuple`")):
        with pytest.raises(InputError, match=words):
            features(lazy, torch.zeros(2, 3), [name])
    assert hooks(model) == hooks(lazy) == 0


# ---- adapters ----


@pytest.mark.parametrize(
    ("module", "d"),
    [
        (nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5)), 5),
        (nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()), 6),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 62 * 62, 7)), 7),
        (nn.Sequential(nn.Conv1d(2, 9, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten()), 9),
        (nn.Embedding(20, 11), 11),
        (nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)), 3),
    ],
)
def test_the_dimension_is_found(module, d):
    before = {k: v.clone() for k, v in module.state_dict().items()}
    state = torch.get_rng_state()
    adapter = Adapter(module)
    assert adapter.d == d
    assert all(m.training for m in module.modules())
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert adapter(adapter.example(4)).shape == (4, d)


def test_maps_and_tokens_are_averaged():
    class Gives(nn.Module):
        def forward(self, x):
            return x

    x = torch.randn(2, 5, 4, 3)
    assert torch.equal(Adapter(Gives(), d=5)(x), x.mean((2, 3)))
    assert torch.equal(Adapter(Gives(), d=4)(x[..., 0]), x[..., 0].mean(1))
    with pytest.raises(InputError, match=r"received \(2,\)"):
        Adapter(Gives(), d=5)(x[:, 0, 0, 0])
    with pytest.raises(InputError, match="received tuple"):
        Adapter(Gives(), d=5)((x,))


def test_a_module_that_does_not_tell():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Linear(3, 2)

        def forward(self, x):
            return self.w(x["a"])

    with pytest.raises(InputError, match=r"needs `d=` or an `example=`.*1 trial.*\(2, 3\)"):
        Adapter(Odd())
    with pytest.raises(InputError, match="0 trial inputs"):
        Adapter(nn.Identity())
    adapter = Adapter(nn.Identity(), example=torch.zeros(2, 6))
    assert adapter.d == 6
    assert adapter.example(3).shape == (3, 6)
    assert Adapter(Odd(), d=2).d == 2
    assert repr(Adapter(Odd(), d=2)) == "Adapter(module=<Odd>, d=2)"
    with pytest.raises(InputError, match="received `int`"):
        Adapter(3)
    with pytest.raises(InputError, match="d=0"):
        Adapter(nn.Identity(), d=0)


@pytest.mark.parametrize(
    ("call", "package"),
    [(from_timm, "timm"), (from_transformers, "transformers"), (from_torchvision, "torchvision")],
)
def test_a_missing_package_is_named(call, package, monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ChiaroError, match=rf"`{package}`, which is not installed: `pip install"):
        call("resnet18")


# ---- foreign weights ----


class Bomb:
    def __reduce__(self):
        return (os._exit, (3,))


def test_foreign_weights_in_all_wrappings(tmp_path):
    weights = {"a.weight": torch.randn(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    prefixed = {f"module.{name}": value for name, value in weights.items()}
    for wrapped in (
        weights,
        {"state_dict": weights, "epoch": 3},
        {"model": prefixed},
        {"state_dict": {f"_orig_mod.{name}": value for name, value in weights.items()}},
        {**weights, "step": 4},
    ):
        torch.save(wrapped, tmp_path / "w.pt")
        found = load_foreign(tmp_path / "w.pt")
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[name], weights[name]) for name in weights)
    save_file(weights, tmp_path / "w.safetensors")
    assert torch.equal(load_foreign(str(tmp_path / "w.safetensors"))["b"], weights["b"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_foreign_runs_and_every_refusal_is_a_sentence(tmp_path):
    torch.save({"w": torch.ones(1), "x": Bomb()}, tmp_path / "bomb.pt")
    torch.save(
        {"w": torch.ones(1), "x": Bomb()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False
    )
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    torch.save(torch.ones(2), tmp_path / "bare.pt")
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save({"w": torch.ones(1000)}, tmp_path / "cut.pt")
    data = (tmp_path / "cut.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[: len(data) // 2])
    for name, words in {
        "bomb.pt": "could run code",
        "old.pt": "could run code",
        "module.pt": "could run code",
        "none.pt": "holds a `dict` with 1 entries: epoch",
        "bare.pt": "holds a `Tensor`",
        "text.pt": r"5 bytes\)",
        "empty.pt": r"0 bytes\)",
        "text.safetensors": "cannot be read as weights",
        "cut.pt": "cannot be read as weights",
        "missing.pt": "there is none",
    }.items():
        with pytest.raises(ChiaroError, match=words) as raised:
            load_foreign(tmp_path / name)
        assert len(str(raised.value).splitlines()) == 1, raised.value


# ---- packing ----

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]


def bits(tensor: torch.Tensor) -> bytes:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
def test_a_tensor_of_any_type_survives_bit_by_bit(dtype, shape):
    generator = torch.Generator().manual_seed(0)
    size = max(1, math.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), generator=generator)
    whole = raw.to(torch.uint8).view(dtype)
    tensor = whole[: math.prod(shape)].reshape(shape)
    arrays, state = pack({"a": tensor})
    back = unpack(arrays, json.loads(json.dumps(state)))["a"]
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert bits(back) == bits(tensor)


def test_the_state_of_a_training_survives():
    model = MLP(3, d=2, normalisation="batch")
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimiser.step()
    tree = {
        "model": dict(model.state_dict()),
        "optimiser": optimiser.state_dict(),
        "python": random.getstate(),
        "numpy": np.random.default_rng(0).bit_generator.state,
        "keys": np.arange(4, dtype=np.uint32),
        "torch": torch.get_rng_state(),
        "odd": {"$": 1, 2: "b", None: [math.inf], ("t", 1): {}},
        "a.b": torch.ones(1),
        "a": {"b": torch.zeros(1)},
        "view": torch.arange(6.0).reshape(2, 3).T[:, :1],
    }
    arrays, state = pack(tree)
    back = unpack(arrays, json.loads(json.dumps(state)))
    assert back["python"] == tree["python"]
    assert back["numpy"] == tree["numpy"]
    assert back["odd"] == tree["odd"]
    assert (back["a.b"].item(), back["a"]["b"].item()) == (1, 0)
    assert torch.equal(back["view"], tree["view"])
    assert back["keys"].dtype == np.uint32
    again = torch.optim.AdamW(model.parameters())
    again.load_state_dict(back["optimiser"])
    assert str(again.state_dict()) == str(optimiser.state_dict())
    random.setstate(back["python"])
    torch.set_rng_state(back["torch"])


def test_packed_state_survives_a_checkpoint(tmp_path):
    tree = {"w": [torch.randn(3).to(dtype) for dtype in DTYPES if dtype.is_floating_point]}
    tree |= {"rng": random.getstate(), "c": torch.randn(2, dtype=torch.complex64)}
    arrays, state = pack(tree)
    found = checkpoints.load(checkpoints.save(tmp_path, 1, arrays, {"tree": state}))
    back = unpack(found.arrays, found.state["tree"])
    assert back["rng"] == tree["rng"]
    for ours, theirs in zip([*back["w"], back["c"]], [*tree["w"], tree["c"]], strict=True):
        assert ours.dtype == theirs.dtype
        assert bits(ours) == bits(theirs)


def test_packed_arrays_are_copies():
    weight = torch.zeros(2)
    arrays, state = pack({"w": weight})
    weight.add_(1)
    assert arrays["w"].tolist() == [0, 0]
    first = unpack(arrays, state)["w"]
    first.add_(5)
    assert unpack(arrays, state)["w"].tolist() == [0, 0]


def test_what_has_no_form_is_named():
    with pytest.raises(InputError, match=r"received `object` at `a.1`"):
        pack({"a": [0, object()]})
    with pytest.raises(InputError, match="array of <U1, at `a`"):
        pack({"a": np.array(["x"])})
    with pytest.raises(ChiaroError, match="does not know a `set`"):
        unpack({}, {"$": "set"})


def test_a_foreign_model_at_another_size_is_one_sentence():
    class Sized(nn.Module):
        def forward(self, x):
            assert x.shape[-1] == 8, f"Input size {x.shape[-1]} doesn't match model (8)"
            return x.mean((2, 3))

    adapter = Adapter(Sized(), d=3)
    assert adapter(torch.zeros(2, 3, 8, 8)).shape == (2, 3)
    with pytest.raises(InputError, match=r"`Sized`.*\(2, 3, 9, 9\): Input size 9.*views\.first"):
        adapter(torch.zeros(2, 3, 9, 9))
