"""A run that started from a file of weights does not need the file again."""

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.artifacts import checkpoints
from chiaroscuro.engine import open_run, read_settings, train
from chiaroscuro.errors import ChiaroError
from chiaroscuro.models import MLP, load_weights

SETS = [
    *("epochs=2", "batch=8", "schedule.warmup=0", "views.first=Jitter(noise=0.1)"),
    *("network.projector=Projector(d=3)", "saving.every=2"),
]


def settings(folder, encoder, **arrays):
    if not arrays:
        arrays = {"x": np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)}
    np.savez(folder / "data.npz", labels=np.arange(24) % 2, **arrays)
    more = [f"data.source={folder / 'data.npz'}", f"network.encoder={encoder}"]
    return read_settings("simclr", [*SETS, *more])


def resumed_alike(asked, folder, moved):
    """Train, resume after `moved` went away, and return the run."""
    run = train(asked, folder / "run")
    whole = checkpoints.latest_good(run.checkpoints).checkpoint
    before = cs.embed(run)
    for path in moved:
        path.rename(path.with_name(f"{path.name}.away"))
    again = cs.embed(run.folder)
    assert np.array_equal(before.h, again.h)
    assert np.array_equal(before.layers["untrained"], again.layers["untrained"])
    sorted(run.checkpoints.iterdir())[-1].rename(folder / "lost")
    train(asked, run.folder, resume=True)
    resumed = checkpoints.latest_good(run.checkpoints).checkpoint
    assert whole.step == resumed.step == 6
    assert whole.arrays.keys() == resumed.arrays.keys()
    assert all(a.tobytes() == resumed.arrays[k].tobytes() for k, a in whole.arrays.items())
    return run


def test_the_file_may_be_moved(tmp_path):
    start = MLP(d_in=4, d=5, depth=2, width=6)
    torch.save(start.state_dict(), tmp_path / "w.pth")
    text = f"from_weights(MLP(d_in=4, d=5, depth=2, width=6), '{tmp_path / 'w.pth'}')"
    asked = settings(tmp_path, text)
    run = resumed_alike(asked, tmp_path, [tmp_path / "w.pth"])
    opened = open_run(run)
    untrained = opened.untrained.encoders[0]
    assert untrained.pretrained
    for name, value in start.state_dict().items():
        assert torch.equal(untrained.state_dict()[name], value)
    assert repr(opened.encoder).startswith("from_weights(")
    assert not (run.folder / "objects.json").exists()  # no objects were given
    with pytest.raises(ChiaroError, match="there is none at"):  # a new training needs it
        train(asked, tmp_path / "new")


@pytest.mark.extra("timm")
def test_a_file_for_timm_may_be_moved(tmp_path):
    import timm

    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "w.pth")
    images = np.random.default_rng(0).integers(0, 255, (24, 32, 32, 3), np.uint8)
    asked = settings(
        tmp_path, f"from_timm('test_resnet', weights='{tmp_path / 'w.pth'}')", images=images
    )
    asked = read_settings(asked, ["views.first=SimCLR(size=32)"])
    run = resumed_alike(asked, tmp_path, [tmp_path / "w.pth"])
    out = cs.export(run, "timm", tmp_path / "out")
    module = timm.create_model(f"local-dir:{out}", pretrained=True)
    load_weights(module, out / "model.safetensors")


@pytest.mark.extra("transformers")
def test_a_folder_of_transformers_may_be_moved(tmp_path):
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=16, patch_size=8, hidden_dropout_prob=0.1,
    )  # fmt: skip
    ViTModel(config).half().save_pretrained(tmp_path / "vit")  # trained in full precision
    images = np.random.default_rng(0).integers(0, 255, (24, 16, 16, 3), np.uint8)
    asked = settings(tmp_path, f"from_transformers('{tmp_path / 'vit'}')", images=images)
    asked = read_settings(asked, ["views.first=SimCLR(size=16)"])
    run = resumed_alike(asked, tmp_path, [tmp_path / "vit"])
    assert {p.dtype for p in open_run(run).encoder.parameters()} == {torch.float32}
    cs.export(run, "transformers", tmp_path / "out")
    assert (tmp_path / "out" / "config.json").is_file()
