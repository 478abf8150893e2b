"""New samples are read as those of the run were: tables in its scaling, texts by its tokenizer."""

import json

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.data import Tokenizer, open_data
from chiaroscuro.engine import embed, open_run, read_settings, suggest, train
from chiaroscuro.engine.embedding import _as_rgb
from chiaroscuro.errors import ChiaroError, InputError

DRAW = np.random.default_rng(0)


def table(path, shift=0.0, n=40):
    rows = DRAW.normal(size=(n, 2)) + shift
    lines = [f"{a:.4f},{b:.4f},{'uv'[at % 2]}" for at, (a, b) in enumerate(rows)]
    path.write_text("\n".join(["length,width,colour", *lines]) + "\n")
    return str(path)


def test_new_rows_of_a_table_are_scaled_by_the_training_rows(tmp_path):
    old = table(tmp_path / "old.csv")
    settings = suggest(old, overrides=["epochs=1"]).settings
    run = train(settings, tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "scaling.json").read_text())
    data = open_data(settings.data.source)
    assert kept["mean"] == list(data.scaling.mean)
    assert kept["names"] == ["length", "width", "colour=u", "colour=v"]
    assert data.scaling != open_data(old).scaling  # the test side sets no scale
    new = tmp_path / "new.csv"
    table(new, shift=5.0)
    made = embed(run, str(new))
    raw = np.loadtxt(new, delimiter=",", skiprows=1, usecols=(0, 1))
    expected = (raw - kept["mean"][:2]) / kept["std"][:2]
    assert np.allclose(made.layers["input"][:, :2], expected, atol=1e-5)
    assert made.layers["input"][:, 0].mean() > 3  # its own scaling would give 0
    (tmp_path / "old.csv").unlink()  # the run alone knows the scaling
    assert np.allclose(embed(tmp_path / "run", str(new)).h, made.h)
    new.write_text("length,weight\n1,2\n3,4\n")
    with pytest.raises(InputError, match=r"lacks \['width'\] and has \['weight'\]"):
        embed(run, str(new))


def test_texts_are_cut_where_the_settings_say(tmp_path):
    (tmp_path / "s.txt").write_text("".join(f"{'word ' * 30}{at}\n" for at in range(24)))
    made = suggest(str(tmp_path / "s.txt"), overrides=["epochs=1", "data.text_length=20"])
    assert "length=20" in made.settings.network.encoder
    assert "at most 20 bytes" in " ".join(made.reasons)
    run = cs.train(made.settings, tmp_path / "run")
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{'word ' * 30}x{at}\n" for at in range(3)))
    h = embed(run, str(other)).h
    assert np.allclose(h, h[0])  # what differs comes after 20 bytes
    with pytest.raises(InputError, match=r"data\.text_length"):
        read_settings("text", ["data.text_length=0"])


def test_bytes_never_go_into_another_vocabulary(tmp_path):
    (tmp_path / "s.txt").write_text("".join(f"sentence {at}\n" for at in range(24)))
    small = "network.encoder=SequenceTransformer(n_tokens=100, length=96, padding=0)"
    with pytest.raises(InputError, match="tokens from 0 to 99; texts become tokens from 0 to 257"):
        train(suggest(str(tmp_path / "s.txt"), overrides=["epochs=1", small]).settings)
    with pytest.raises(InputError, match=r"needs a `tokenizer.json`"):
        Tokenizer(tmp_path)
    with pytest.raises(InputError, match="at least 1"):
        Tokenizer(length=0)


def test_without_the_package_a_tokenizer_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ChiaroError, match=r"\[transformers\]"):
        Tokenizer(tmp_path)(["a"])


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_images_of_any_channels_and_numbers_have_thumbnails(channels, dtype):
    top = {"uint8": 255, "uint16": 65535, "float32": 1.0}[dtype]
    images = (np.linspace(0, 1, 2 * 16 * channels).reshape(2, 4, 4, channels) * top).astype(dtype)
    shown = _as_rgb(images)
    assert shown.dtype == np.uint8
    assert shown.shape == (2, 4, 4, 3)
    assert (shown[0, 0, 0, 0], shown[-1, -1, -1, -1] >= 200) == (0, True)
    if channels < 3:
        assert (shown[..., 0] == shown[..., 2]).all()
    assert (
        _as_rgb(np.array([-3.0, 5.0]).reshape(1, 1, 2, 1)).ravel().tolist() == [0] * 3 + [255] * 3
    )


# ---- tokenizers of another library ----


def words(folder):
    """A small tokenizer of words with [CLS] and [SEP], and the configuration of a tiny BERT."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    for word in ("the", "cat", "dog", "sits", *map(str, range(24))):
        vocabulary[word] = len(vocabulary)
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    import transformers

    transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, pad_token_id=0,
    ).save_pretrained(folder)  # fmt: skip
    return folder, len(vocabulary)


@pytest.mark.extra("transformers")
def test_a_tokenizer_is_a_setting(tmp_path):
    folder, n = words(tmp_path / "bert")
    read = Tokenizer(folder, length=5)
    assert (read.n_tokens, read.padding) == (n, 0)
    assert read(["the cat", "the dog sits 5 6 7"]).tolist() == [[2, 4, 5, 3, 0], [2, 4, 6, 7, 3]]
    (tmp_path / "s.txt").write_text("".join(f"the cat sits {at}\n" for at in range(24)))
    made = suggest(
        str(tmp_path / "s.txt"),
        overrides=["epochs=1", f"data.tokenizer={folder}", "data.text_length=8"],
    )
    assert f"n_tokens={n}, length=8" in made.settings.network.encoder
    run = train(made.settings, tmp_path / "run")
    first = embed(run).h
    assert len(np.unique(first.round(5), axis=0)) > 12
    run.save_pretrained(tmp_path / "out")
    folder = folder.rename(tmp_path / "elsewhere")  # the run and what is saved of it keep their own
    again = cs.load_pretrained(tmp_path / "out")
    for found in (embed(run), again.embed(str(tmp_path / "s.txt"))):
        np.testing.assert_allclose(found.h, first, rtol=1e-5, atol=1e-6)
    train(made.settings, run.folder, resume=True)
    wrong = [f"data.tokenizer={folder}", "epochs=1", "network.encoder=SequenceTransformer(30)"]
    with pytest.raises(InputError, match=f"texts become tokens from 0 to {n - 1}"):
        suggest(str(tmp_path / "s.txt"), overrides=wrong[:1] + wrong[2:])


@pytest.mark.extra("transformers")
def test_text_encoders_of_transformers_train(tmp_path):
    folder, n = words(tmp_path / "bert")
    import transformers

    model = transformers.BertModel(transformers.BertConfig.from_pretrained(folder))
    model.save_pretrained(folder)  # random weights, in the place of pretrained ones
    (tmp_path / "s.txt").write_text("".join(f"the cat sits {at}\n" for at in range(24)))
    encoder = f"network.encoder=from_transformers('{folder}')"
    with pytest.raises(InputError, match=f"vocabulary of its own, of {n} tokens.*data.tokenizer"):
        train(suggest(str(tmp_path / "s.txt"), overrides=["epochs=1", encoder]).settings)
    made = suggest(
        str(tmp_path / "s.txt"),
        overrides=["epochs=1", encoder, f"data.tokenizer={folder}", "data.text_length=8"],
    )
    run = train(made.settings, tmp_path / "run")
    opened = open_run(run)
    before = opened.untrained.encoders[0].state_dict()
    moved = [
        name
        for name, weight in opened.encoder.state_dict().items()
        if weight.is_floating_point() and not torch.equal(weight, before[name])
    ]
    assert any("word_embeddings" in name for name in moved)
    assert any("attention" in name for name in moved)
