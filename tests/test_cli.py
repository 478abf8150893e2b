"""The command line: what it prints where, and how it ends."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import chiaroscuro
from chiaroscuro import cli
from chiaroscuro.cli.doctor import facts
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.references import bibliography, cited, keys


def run(capsys, *argv):
    status = cli.main(list(argv))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def process(*argv, code=None, **options):
    command = ["-c", code] if code else ["-m", "chiaroscuro.cli", *argv]
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, **options
    )


def test_help_does_not_import_torch_or_numpy():
    code = (
        "import sys; from chiaroscuro.cli import main; status = main(['--help'])\n"
        "print(status, sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = process(code=code)
    assert done.returncode == 0, done.stderr
    assert "cite" in done.stdout
    assert done.stdout.rstrip().endswith("0 []")


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"chiaro {chiaroscuro.__version__}\n", "")


@pytest.mark.parametrize(
    "verb", ["demo", "train", "preset", "embed", "evaluate", "reproduce", "data", "cite", "doctor"]
)
def test_every_verb_has_help(capsys, verb):
    status, out, err = run(capsys, verb, "--help")
    assert (status, err) == (0, "")
    assert f"chiaro {verb}" in out


WRONG = {
    (): "`chiaro` needs a command: demo, train, preset, list, embed, evaluate, ",
    ("docter",): "did you mean `chiaro doctor`?",
    ("xyzzy",): "`chiaro xyzzy` is not a command; there are demo, train, ",
    ("--verbose",): "COMMAND",
    ("doctor", "--jso"): "--jso",
    ("doctor", "--js"): "--js",
    ("train",): "`chiaro train` needs data, a preset or a file of settings",
    ("train", "nowhere/"): "`nowhere/` does not exist",
    ("train", "mine.csv"): "`mine.csv` does not exist",
    ("train", "simclr", "--epochs", "3"): "`--set epochs=3`",
    ("train", "simclr", "--lr=0.1"): "`--set optimiser.lr=0.1`",
    ("train", "simclr", "--minutes", "3"): "use `--set epochs=N`",
    ("train", "--resume"): "needs the run folder",
    ("train", "--resume", "--out", "nowhere"): "`nowhere` is not a run",
    ("train", "simclr", "--restart"): "`--restart` goes with `--resume`",
    ("report", "runs/nope"): "`runs/nope` does not exist",
    ("train", "simlcr", "--out", "x"): "`simlcr` is not a preset; did you mean `simclr`?",
    ("train", "simclr", "--set", "optimiser.rl=1", "--out", "x"): "did you mean `optimiser.lr`?",
    ("preset", "show", "byo"): "did you mean `byol`?",
    ("embed", "nowhere", "--out", "x.npz"): "There is no folder `nowhere`",
    ("evaluate", "nowhere.npz"): "`nowhere.npz` does not exist",
    ("data", "get", "cifra10"): "`cifra10` is not a dataset to download",
    ("cite",): "OBJECT",
    ("cite", "a", "b"): "unrecognized arguments: b",
    ("cite", "Gausian"): "`Gausian` is not known here; did you mean `Gaussian`?",
    ("cite", "Gaussian(tua=1)"): "`tua`",
    ("cite", "Gaussian(tau=-0.1)"): "-0.1",
    ("cite", "Gaussian("): "character 9",
    ("cite", ""): "empty",
}


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_a_wrong_call_is_one_sentence_and_status_2(capsys, argv):
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert WRONG[argv] in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_a_wrong_call_from_a_shell():
    done = process("docter")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "`chiaro docter` is not a command; did you mean `chiaro doctor`?\n"


def test_ctrl_c_is_130_and_a_refusal_is_2(capsys, monkeypatch):
    def stop(call):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.doctor, "doctor", stop)
    assert run(capsys, "doctor") == (130, "", "")

    def refuse(call):
        raise InputError("`f(x)` needs `x > 0`; received `-1`.")

    monkeypatch.setattr(cli.doctor, "doctor", refuse)
    assert run(capsys, "doctor") == (2, "", "`f(x)` needs `x > 0`; received `-1`.\n")


def test_a_reader_that_leaves_is_no_error():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "chiaroscuro.cli", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


# ---- training ----

TINY = [
    "epochs=1",
    "batch=32",
    "data.source=digits(size=16, renderings=(1, 1), test=0.8)",
    "network.encoder=ResNet(9, 0.125, stem='strided')",
]


def test_train_embed_and_evaluate(capsys, tmp_path):
    folder, file = str(tmp_path / "run"), str(tmp_path / "e.npz")
    status, out, err = run(capsys, "train", "digits", "--set", *TINY, "--out", folder)
    assert (status, out) == (0, f"run: {folder}\n")
    assert "online_knn" in err
    assert f"  chiaro evaluate {folder} " in err  # the next commands, filled in
    assert run(capsys, "embed", folder, "--out", file)[:2] == (0, f"embeddings: {file}\n")
    status, of_file, err = run(capsys, "evaluate", file, "--json")
    assert (status, err) == (0, "")
    found = json.loads(of_file)
    assert list(found["results"]) == ["input", "untrained", "encoder", "projector"]
    for row in found["results"].values():
        assert {"knn_20", "knn_200", "linear", "linear_sgd"} <= set(row)
        assert 0 < row["knn_20"] < 1
    status, of_run, _ = run(capsys, "evaluate", folder)
    assert status == 0
    percent = f"{100 * found['results']['encoder']['knn_20']:.1f} %"
    assert percent in next(line for line in of_run.splitlines() if line.startswith("knn_20"))
    assert run(capsys, "train", "digits", "--set", *TINY, "--out", folder)[0] == 2
    again = run(capsys, "train", "digits", "--set", *TINY, "--out", folder, "--resume")
    assert again[0] == 0


ARRAYS = [
    *("views.first=Jitter(noise=0.5)", "network.encoder=MLP(d_in=5, d=8)", "batch=8"),
    *("network.projector=Projector(d=4)", "epochs=1", "schedule.warmup=0"),
]


def trained_on_arrays(capsys, folder, preset, *sets):
    """A run on 60 rows, of which every third is on the test side if there is a split."""
    draw = np.random.default_rng(0)
    x, labels = draw.normal(size=(60, 5)).astype(np.float32), np.arange(60) % 2
    np.savez(folder / "a.npz", x=x, labels=labels, split=np.arange(60) % 3 // 2)
    np.savez(folder / "b.npz", x=x, labels=labels)
    out = str(folder / f"run-{len(os.listdir(folder))}")
    assert run(capsys, "train", preset, "--set", *ARRAYS, *sets, "--out", out)[0] == 0
    return out


@pytest.mark.parametrize(
    ("preset", "part", "rows", "test_rows", "line"),
    [
        ("simclr", "train", 40, 0, "fitted on 40 rows, tested on 20 held-out rows"),
        ("simclr", "test", 20, 20, "training used 20 rows of the test set (data.part = test)"),
        ("supcon", "all", 60, 20, "training used 20 rows of the test set with their labels (data"),
    ],
)
def test_an_evaluation_says_what_training_saw(
    capsys, tmp_path, preset, part, rows, test_rows, line
):
    source = f"data.source={tmp_path}/a.npz"
    folder = trained_on_arrays(capsys, tmp_path, preset, source, f"data.part={part}")
    _, out, _ = run(capsys, "evaluate", folder)
    assert out.startswith(line)
    file = str(tmp_path / "e.npz")
    assert run(capsys, "embed", folder, "--out", file)[0] == 0
    protocol = json.loads(run(capsys, "evaluate", file, "--json")[1])["protocol"]
    assert protocol["untrained"] == "before training (fresh weights)"
    assert protocol["trained_on"] == {
        "source": f"{tmp_path}/a.npz",
        "part": part,
        "labels": "seen" if preset == "supcon" else "not seen",
        "rows": rows,
        "test_rows": test_rows,
    }


def test_own_data_are_evaluated_on_the_share_they_hold_out(capsys, tmp_path):
    whole = trained_on_arrays(capsys, tmp_path, "simclr", f"data.source={tmp_path}/b.npz")
    status, _, err = run(capsys, "evaluate", whole)
    assert status == 2
    assert "data.source=arrays('mine.npz', test=0.2)" in err
    source = f"data.source=arrays('{tmp_path}/b.npz', test=0.2)"
    status, out, _ = run(
        capsys, "evaluate", trained_on_arrays(capsys, tmp_path, "simclr", source), "--json"
    )
    protocol = json.loads(out)["protocol"]
    assert (status, protocol["n_train"], protocol["n_test"]) == (0, 48, 12)
    assert protocol["trained_on"]["rows"] == 48
    assert protocol["trained_on"]["test_rows"] == 0


def test_pictures_and_texts_are_retrieved(capsys, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "dots.npz", images=rng.integers(0, 255, (40, 32, 32, 3), np.uint8))
    records = [
        {"id": i, "captions": [f"number {i}", f"the {i}th"], "category": "ab"[i % 2]}
        for i in range(40)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "dots_captions.jsonl").write_text(lines)
    tiny = [
        *("epochs=1", "batch=8", "schedule.warmup=0"),
        f"data.source=pairs('{tmp_path}/dots_captions.jsonl', test=0.5)",
        "network.encoder=ResNet(9, 0.125, stem='strided')",
        "network.second_encoder=SequenceTransformer(n_tokens=258, length=96, d=16, depth=1)",
    ]
    folder, file = str(tmp_path / "run"), str(tmp_path / "e.npz")
    assert run(capsys, "train", "clip", "--set", *tiny, "--out", folder)[0] == 0
    status, out, _ = run(capsys, "evaluate", folder, "--json", "--template", "dots, {}")
    assert status == 0
    found = json.loads(out)
    assert found["protocol"]["prompts"] == ["dots, a", "dots, b"]
    assert found["protocol"]["weights"].startswith("of step 2, the newest checkpoint")
    for name in ("untrained", "projector"):
        row = found["results"][name]
        assert row["retrieval"]["n_images"] == row["retrieval"]["n_texts"] == 20
        for way in ("image_to_text", "text_to_image"):
            assert row["retrieval"][way]["chance"]["recall_5"] == pytest.approx(0.25)
        assert 0 <= row["zero_shot"] <= 1
    assert {"knn_20", "linear", "linear_sgd"} <= set(found["results"]["encoder"])
    assert run(capsys, "embed", folder, "--out", file)[0] == 0
    with np.load(file) as arrays:
        assert arrays["z1"].shape == arrays["z2"].shape == (40, 128)
        assert arrays["layer_texts"].shape == (40, 16)
        assert arrays["prompts"].tolist() == ["a", "b"]
        assert not np.array_equal(arrays["prompt_z"], arrays["untrained_prompt_z"])
    status, out, _ = run(capsys, "evaluate", file)
    assert status == 0
    assert "text to image, 20 held-out pairs" in out
    assert run(capsys, "evaluate", file, "--template", "{}")[0] == 2
    assert run(capsys, "evaluate", folder, "--template", "dots")[0] == 2


def test_the_demo_prints_a_table_and_where_things_are(capsys, tmp_path):
    from chiaroscuro import demo

    (tmp_path / "run-1").mkdir()  # of a demo before
    demo.main(str(tmp_path), TINY)
    out, run_2 = capsys.readouterr().out, tmp_path / "run-2"
    names = ["input", "untrained", "encoder", "projector"]
    words = [line.split() for line in out.splitlines()]
    assert names in [one[:4] for one in words]  # the head of the table
    assert out.splitlines()[-1] == f"open this page: {run_2 / 'report.html'}"
    assert out.count("\n") < 25
    assert (run_2 / "embeddings" / "all.npz").is_file()
    assert json.loads((run_2 / "evaluation.json").read_text())["protocol"]


def test_presets_are_listed_and_shown(capsys):
    status, out, err = run(capsys, "preset", "list")
    assert (status, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert "simclr" in names
    assert "SimCLR: pull two augmentations of an image together," in out
    for name in names:
        assert run(capsys, "preset", "show", name)[1].startswith("# ")


def test_data_are_listed(capsys, monkeypatch, tmp_path):
    (tmp_path / "mine.npz").touch()
    monkeypatch.setenv("CHIARO_DATA", str(tmp_path))
    status, out, err = run(capsys, "data", "list")
    assert (status, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()]
    assert names[0] == "digits"
    assert "mine" in names[1:]


# ---- your own data ----


def table(folder):
    draw = np.random.default_rng(0)
    labels = np.arange(80) % 2
    x = draw.normal(size=(80, 5)) * [1, 10, 100, 1, 1] + labels[:, None]
    np.savez(folder / "table.npz", x=x.astype(np.float32), labels=labels)


def test_data_are_enough_to_train(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    for number in (1, 2):
        status, out, err = run(capsys, "train", "table.npz", "--set", "epochs=1")
        assert (status, out) == (0, f"run: {os.path.join('runs', f'table-{number}')}\n")
    assert "80 samples, read as a table: a matrix of 5 columns." in err
    assert "16 samples are held out" in err
    assert "chiaro diagnose runs/table-2" in err
    monkeypatch.chdir("/")  # the path of the data in the run is absolute
    status, out, _ = run(capsys, "evaluate", str(tmp_path / "runs" / "table-2"), "--json")
    assert (status, json.loads(out)["protocol"]["n_test"]) == (0, 16)


def test_a_run_is_continued_from_its_folder_and_for_longer(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    assert run(capsys, "train", "table.npz", "--set", "epochs=1", "--out", "a")[0] == 0
    before = chiaroscuro.Run.open("a").history().records[-1]["step"]
    assert run(capsys, "train", "a", "--resume")[0] == 0  # finished: nothing to do
    status, _, err = run(capsys, "train", "--resume", "--out", "a", "--set", "epochs=3")
    assert status == 0
    assert "3 epochs in place of 1: the schedule `cosine`" in err
    records = chiaroscuro.Run.open("a").history().records
    assert records[-1]["step"] == 3 * before
    assert {"step": before, "epochs_before": 1, "epochs_now": 3} in records
    for change, sentence in {"epochs=2": "3 epochs", "batch=4": "--init a"}.items():
        status, _, err = run(capsys, "train", "a", "--resume", "--set", change)
        assert (status, sentence in err) == (2, True), err
    (tmp_path / "moved").mkdir()
    (tmp_path / "table.npz").rename(tmp_path / "moved" / "table.npz")
    moved = "arrays('moved/table.npz', test=0.2)"
    assert run(capsys, "train", "a", "--resume", "--data", moved)[0] == 0


def test_a_run_starts_from_the_weights_of_another(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    quick = ["--set", "epochs=1", "optimiser.lr=0", "optimiser.weight_decay=0"]
    assert run(capsys, "train", "table.npz", "--set", "epochs=1", "--out", "a")[0] == 0
    assert run(capsys, "train", "table.npz", *quick, "--init", "a", "--out", "b")[0] == 0
    one, two = (
        dict(chiaroscuro.engine.load_networks(name).named_parameters()) for name in ("a", "b")
    )
    assert all(bool((one[name] == two[name]).all()) for name in one)  # at rate 0 nothing moves
    assert run(capsys, "train", "b", "--resume", "--set", "epochs=2")[0] == 0
    assert run(capsys, "evaluate", "b")[0] == 0
    status, _, err = run(capsys, "train", "table.npz", "--init", "nowhere")
    assert (status, "nowhere" in err) == (2, True)


# ---- doctor ----


def test_doctor_prints_one_fact_a_line(capsys):
    status, out, err = run(capsys, "doctor")
    assert (status, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()]
    assert names == list(facts())


def test_doctor_json_is_one_document(capsys, monkeypatch, tmp_path):
    (tmp_path / "cifar.npz").touch()
    monkeypatch.setenv("CHIARO_DATA", str(tmp_path))
    status, out, err = run(capsys, "doctor", "--json")
    facts = json.loads(out)
    assert (status, err) == (0, "")
    assert facts["chiaroscuro"] == chiaroscuro.__version__
    assert facts["torch"]
    assert facts["threads"] >= 1
    assert facts["data"]["CHIARO_DATA"] == facts["data"]["folders"][0] == str(tmp_path)
    assert {"digits", "cifar"} <= set(facts["data"]["datasets"])


def test_doctor_says_when_the_data_folder_is_missing(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("CHIARO_DATA", str(tmp_path / "nowhere"))
    assert "nowhere (not there)" in run(capsys, "doctor")[1]


# ---- cite ----


def test_cite_a_name_cites_its_default_object(capsys):
    status, out, err = run(capsys, "cite", "InfoNCE", "--keys")
    assert (status, err) == (0, "")
    assert "oord2018cpc" in out.split()
    assert set(cited(chiaroscuro.InfoNCE())) == set(out.split())


def test_cite_a_name_that_needs_arguments_cites_the_class(capsys):
    status, out, _ = run(capsys, "cite", "OnDims", "--keys")
    assert status == 0
    assert out.split() == keys(chiaroscuro.OnDims.__doc__)


@pytest.mark.parametrize("name", ["SimCLR", "MoCo", "VICReg", "supcon"])
def test_cite_a_method_cites_its_paper(capsys, name):
    status, out, _ = run(capsys, "cite", name, "--keys")
    assert status == 0
    assert any(key.endswith(name.lower()) for key in out.split())


def test_cite_a_spec_cites_all_that_is_inside(capsys):
    spec = "InfoNCE(Sum(Gaussian(0.5), Laplace(0.5)))"
    status, out, _ = run(capsys, "cite", spec)
    assert status == 0
    assert out.count("@") == len(cited(chiaroscuro.parse(spec)))
    assert "@inproceedings{tan2024," in out


def test_every_key_cited_is_in_the_bibliography():
    entries = bibliography()
    for name in chiaroscuro.NAMES:
        for key in keys(getattr(chiaroscuro.NAMES[name], "__doc__", None)):
            assert key in entries, f"{name} cites {key}"


def test_every_object_at_the_door_names_its_source():
    public = set(chiaroscuro.NAMES) & set(chiaroscuro.__all__)
    silent = {name for name in public if not keys(chiaroscuro.NAMES[name].__doc__)}
    assert silent <= {"Weighted"}  # a sum of losses is nobody's invention


def test_the_bibliography_is_whole():
    entries = bibliography()
    assert len(entries) >= 21
    for key, entry in entries.items():
        assert entry.startswith("@")
        assert entry.endswith("}")
        assert all(f"  {field} " in entry for field in ("author", "title", "year")), key


def test_a_key_without_an_entry_is_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr("chiaroscuro.references.bibliography", dict)
    status, out, err = run(capsys, "cite", "Gaussian")
    assert (status, out) == (1, "")
    assert "has no entry for" in err


def test_a_broken_bibliography_is_a_sentence(monkeypatch, tmp_path):
    (tmp_path / "references.bib").write_text("@misc{open2020,\n  title = {never closed\n")
    monkeypatch.setattr("chiaroscuro.references.resources.files", lambda _: tmp_path)
    with pytest.raises(ChiaroError, match="leaves a brace open"):
        bibliography()


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        (None, []),
        ("No section: tan2024.", []),
        ("One.\n\nReferences:\n    tan2024, chen2020simclr\n", ["tan2024", "chen2020simclr"]),
        ("One.\n\n    References:\n        a2020\n        b2021x (eq. 3)\n", ["a2020", "b2021x"]),
        ("One.\n\n    References:\n        a2020\n\n    Example:\n        c2022\n", ["a2020"]),
        ("One.\n\n    References:\n        a2020", ["a2020"]),
    ],
)
def test_keys_are_read_from_the_references_section(doc, found):
    assert keys(doc) == found


def test_the_package_is_the_command(tmp_path):
    words = [sys.executable, "-m", "chiaroscuro", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "chiaro")
