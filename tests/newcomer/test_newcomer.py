"""Follow the README and the guide literally, as a new user would, on small files of every kind.

Every ```bash line of the pages that begins with `chiaro` is typed as it stands, in a folder that
holds the files it names; training is cut to one epoch. The Python blocks of the guide are executed.
"""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from chiaroscuro import cli

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
SMALL = (
    "batch=32 'data.source=digits(size=16, renderings=(1, 1), test=0.8)' "
    "\"network.encoder=ResNet(9, 0.125, stem='strided')\""
)
"""Settings of the README's training that make it one of seconds."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with small files of every kind that the guide names."""
    from PIL import Image

    folder, draw = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    for name in ("photos", "new_photos"):
        for at in range(16):
            place = folder / name / ("cat", "dog")[at % 2]
            place.mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 255, (12 + at % 2, 14, 3), np.uint8)
            Image.fromarray(pixels).save(place / f"{at}.png")
    labels = np.arange(40) % 2
    x = draw.normal(size=(40, 4)) + labels[:, None]
    rows = [f"{a:.2f},{b:.2f},{'uv'[y]}" for (a, b, *_), y in zip(x, labels, strict=True)]
    for name in ("table.csv", "new.csv"):
        (folder / name).write_text("\n".join(["length,width,species", *rows]) + "\n")
    tabs = [row.replace(",", "\t") for row in ["length,width,species", *rows]]
    (folder / "table.tsv").write_text("\n".join(tabs) + "\n")
    ids = [f"{at},2026-01-{at % 28 + 1:02d},{row}" for at, row in enumerate(rows)]
    (folder / "dated.csv").write_text("\n".join(["id,date,length,width,species", *ids]) + "\n")
    reviews = [f"review number {at} of a book,{at % 3 + 1}" for at in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["review,stars", *reviews]) + "\n")
    shown = [f"photos/{('cat', 'dog')[at % 2]}/{at}.png,{at}" for at in range(16)]
    (folder / "products.csv").write_text("\n".join(["photo,price", *shown]) + "\n")
    np.savez(folder / "table.npz", x=x, labels=labels)
    np.save(folder / "table.npy", x)
    np.savez(folder / "images.npz", images=draw.integers(0, 255, (24, 16, 16, 3), np.uint8))
    np.savez(folder / "grey.npz", images=draw.integers(0, 255, (24, 16, 16), np.uint8))
    sides = {f"x_{s}": x[k] for s, k in (("train", slice(0, 30)), ("test", slice(30, 40)))}
    sides |= {"y_train": labels[:30], "y_test": labels[30:]}
    np.savez(folder / "split.npz", **sides)
    waves = np.sin(np.linspace(0, 20, 100) * draw.uniform(1, 3, (40, 1)))
    np.savez(folder / "recordings.npz", x=waves[:, None].astype(np.float32))
    (folder / "sentences.txt").write_text("".join(f"sentence number {at}\n" for at in range(40)))
    texts = [{"captions": [f"a {at}", f"one {at}"], "category": "ab"[at % 2]} for at in range(40)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in texts))
    pairs = [
        {"image": f"photos/{('cat', 'dog')[at % 2]}/{at}.png", "captions": [f"image {at}"]}
        for at in range(16)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in pairs))
    for name in ("embeddings", "theirs"):
        np.save(folder / f"{name}.npy", draw.normal(size=(100, 8)))
        np.savez(folder / f"{name}.npz", h=draw.normal(size=(100, 8)), labels=np.arange(100) % 4)
    _embeddings(folder, draw)
    return folder


def _embeddings(folder, draw):
    """The files that the page of diagnosis names."""
    h, labels = draw.normal(size=(120, 8)), np.arange(120) % 4
    h = h + np.eye(4, 8)[labels] * 3
    (folder / "shards").mkdir()
    for at in range(2):
        np.save(folder / "shards" / f"{at}.npy", h[60 * at : 60 * at + 60])
    near = h + 0.3 * draw.normal(size=h.shape)
    np.savez(folder / "clip.npz", image_embeds=h, text_embeds=near)
    np.savez(folder / "x.npz", h=h, labels=labels)
    np.savez(folder / "odd.npz", feats=h, who=labels)
    np.save(folder / "x.npy", h)
    (folder / "labels.csv").write_text("label\n" + "".join(f"{y}\n" for y in labels))
    np.save(folder / "images.npy", h)
    np.save(folder / "captions.npy", near @ draw.normal(size=(8, 6)))
    for name, rows in (("new", near), ("old", h), ("first", h), ("second", near)):
        np.savez(folder / f"{name}.npz", h=rows, labels=labels, ids=np.arange(120))
    steps = [{"step": 100 * at, "epoch": at, "loss": 5.0 - 0.3 * at} for at in range(1, 9)]
    (folder / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in steps))
    (folder / "config.json").write_text(json.dumps({"batch": 64, "optimiser": {"lr": 0.001}}))


def typed(capsys, line):
    """Type a line of a shell; its comment does not count."""
    words = shlex.split(line, comments=True)
    assert words[0] == "chiaro"
    status = cli.main(words[1:])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# ---- eleven kinds of data, each by one command ----

ELEVEN = {
    "photos/": "images",
    "images.npz": "images",
    "grey.npz": "images",
    "table.csv --labels species": "a table",
    "table.tsv --labels species": "a table",
    "table.npz": "a table",
    "table.npy": "a table",
    "split.npz": "a table",
    "recordings.npz": "series",
    "sentences.txt": "texts",
    "texts.jsonl": "pairs",
    "pairs.jsonl": "pairs",
}


@pytest.mark.parametrize("data", ELEVEN)
def test_data_of_every_kind_train_embed_and_are_diagnosed(capsys, home, monkeypatch, data):
    monkeypatch.chdir(home)
    status, out, err = typed(capsys, f"chiaro train {data} --set epochs=1 saving.record=1")
    assert status == 0, err
    assert f"read as {ELEVEN[data]}:" in err
    run = out.removeprefix("run: ").strip()
    following = [line.strip().split("  ")[0] for line in err.splitlines() if "  chiaro " in line]
    assert following, err
    for line in following:  # the next commands are right as they are printed
        if not line.startswith("chiaro report"):  # tested where the report is
            status, _, said = typed(capsys, line)
            assert status in (0, 1), said  # 1: too few rows to judge
            assert "Traceback" not in said
    assert (Path(run) / "settings.toml").is_file()


# ---- the pages, line by line ----

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = (
    "quickstart",
    "images",
    "tables",
    "text",
    "pairs",
    "series",
    "module",
    "diagnosis",
    "migrate",
    "weights",
)
ELSEWHERE = (
    "from_timm",
    "from_transformers",
    "theirs.parquet",
    "chiaro demo",
    "simclr",
    "mine.toml",
    "runs/",
    "chiaro report",
)
"""Lines that need another library, take minutes, or name a run that an earlier line made."""


def lines_of(page):
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    found = [block for kind, block in BLOCK.findall(text) if kind == "bash"]
    return [line for block in found for line in block.splitlines() if line.startswith("chiaro ")]


LINES = [
    line for page in PAGES for line in lines_of(page) if not any(one in line for one in ELSEWHERE)
]
LINES = sorted({re.sub(r"\s+#.*", "", line) for line in LINES})


@pytest.mark.parametrize("line", LINES)
def test_the_lines_of_the_guide_work_as_they_stand(capsys, home, monkeypatch, line):
    monkeypatch.chdir(home)
    line = line.replace(
        "'table.csv', labels='species', drop=", "'dated.csv', labels='species', drop="
    )
    if line == "chiaro train table.csv":  # a page that does not name its classes
        line += " --labels species"
    quick = f"{line} --set epochs=1" if line.startswith("chiaro train") else line
    status, _, err = typed(capsys, quick)
    assert status == 0, f"{line}: {err}"


@pytest.mark.parametrize("page", PAGES)
def test_the_python_blocks_of_the_guide_run(home, monkeypatch, page):
    monkeypatch.chdir(home)
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            exec(compile(block, f"{page}.md", "exec"), {})  # noqa: S102


@pytest.mark.extra("timm")
@pytest.mark.parametrize("page", ["images", "module", "weights"])
def test_the_lines_with_networks_of_timm_work_in_their_order(
    capsys, home, tmp_path, monkeypatch, page
):
    import timm
    from safetensors.torch import save_file

    (tmp_path / "photos").symlink_to(home / "photos")
    save_file(timm.create_model("resnet18").state_dict(), tmp_path / "resnet18.safetensors")
    monkeypatch.chdir(tmp_path)
    lines = [one for one in lines_of(page) if "from_timm" in one or page == "weights"]
    assert lines
    for line in lines:
        quick = f"{line} --set epochs=1" if line.startswith("chiaro train") else line
        status, _, err = typed(capsys, quick)
        assert status == 0, f"{line}: {err}"


@pytest.mark.extra("transformers")
def test_the_line_with_a_text_model_works(capsys, tmp_path, monkeypatch):
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sentence", "number"]
    vocabulary = {word: at for at, word in enumerate([*words, *map(str, range(40))])}
    folder = tmp_path / "all-MiniLM-L6-v2"
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    (tmp_path / "sentences.txt").write_text("".join(f"sentence number {i}\n" for i in range(40)))
    monkeypatch.chdir(tmp_path)
    (line,) = [one for one in lines_of("text") if "from_transformers" in one]
    status, _, err = typed(capsys, f"{line} --set epochs=1")
    assert status == 0, err


# ---- the README, command by command ----


def test_the_commands_of_the_readme_work_as_they_stand(capsys, home, monkeypatch):
    monkeypatch.chdir(home)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ (chiaro .*)$", readme, re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["train", "evaluate", "report", "diagnose"]
    for line in lines:
        cut = "--no-diagnose --map none --points 200" if "report" in line else ""
        cut = f"--set epochs=1 {SMALL}" if " train " in line else cut
        status, out, err = typed(capsys, f"{line} {cut}")
        assert status == 0, f"{line}: {err}"
        assert out


# ---- what a newcomer gets wrong ----

WRONG = {
    "chiaro train table.csv": "--labels target",
    "chiaro train phots/": "`phots/` does not exist",
    "chiaro train photos/ --epochs 3": "--set epochs=3",
    "chiaro report runs/nope": "`runs/nope` does not exist",
    "chiaro evaluate runs/nope": "runs/nope",
    "chiaro diagnose nope.npy": "nope.npy",
    "chiaro train simclr --set epoch=3": "did you mean `epochs`?",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_answered_by_one_sentence(capsys, home, monkeypatch, line):
    monkeypatch.chdir(home)
    (home / "table.csv").write_text((home / "table.csv").read_text().replace("species", "target"))
    status, out, err = typed(capsys, line)
    (home / "table.csv").write_text((home / "table.csv").read_text().replace("target", "species"))
    assert (status, out) == (2, ""), err
    assert WRONG[line] in err
    assert err.count("\n") == 1
