"""Every lab at its quick scale: it runs, judges all its claims, draws; an identity is decided."""

import ast
import dataclasses
import json
from pathlib import Path

import pytest
from PIL import Image

import chiaroscuro
from chiaroscuro import labs
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.labs import lab as lab_module
from chiaroscuro.references import bibliography

HERE = Path(lab_module.__file__).parent
LABS = labs.all_labs()
KEYS = ["id", "statement", "where", "paper", "ours", "rule", "verdict"]


@pytest.mark.usefixtures("sketched")
@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_quick(lab, tmp_path):
    (report,) = labs.reproduce(lab.name, out=tmp_path)
    record = report.record()
    assert list(record) == ["lab", "paper", "scale", "seeds", "seconds", "claims"]
    assert (record["lab"], record["paper"], record["scale"]) == (lab.name, lab.paper, "quick")
    stated = {one.id: one for one in lab.module.CLAIMS}
    for claim in record["claims"]:
        assert list(claim)[:7] == KEYS
        assert claim["verdict"] in labs.VERDICTS
        assert claim["verdict"] != "fails", claim
        assert claim["kind"] == stated[claim["id"]].kind
        if claim["kind"] == "identity":
            assert claim["verdict"] == "holds", claim
        elif claim["kind"] != "empirical" and not stated[claim["id"]].enough:
            assert claim["verdict"] == claim["kind"], claim
    judged = [claim["id"] for claim in record["claims"]]
    assert judged == [one.id for one in lab.module.CLAIMS]
    folder = tmp_path / "quick" / lab.paper
    kept = json.loads((folder / f"{lab.name}.json").read_text())
    assert kept["claims"] == record["claims"]
    assert kept["settings"]["seeds"] == record["seeds"]
    for name in kept["figures"]:
        assert (folder / name).stat().st_size > 1000
    assert list(kept)[-1] == "result"
    assert not list(folder.glob("*.pieces"))
    # the figure and the verdicts come from the data alone, whole or as the record keeps them
    data = json.loads((folder / f"{lab.name}.data.json").read_text())
    for result in (data, kept["result"]):
        assert [one.verdict for one in lab.module.claims(result)] == [
            c["verdict"] for c in kept["claims"]
        ]


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_the_form_of_a_lab(lab):
    module = lab.module
    assert lab.paper in bibliography()
    assert {one.id for one in module.CLAIMS} == set(lab.claims)
    assert lab.paper in module.__doc__
    assert "eviation" in module.__doc__, "a header states the deviations"
    for scale in labs.SCALES:
        settings = lab.settings(scale)
        assert type(settings) is module.Settings
        assert len(settings.seeds) >= 1
    assert dataclasses.is_dataclass(module.Settings)
    assert module.Settings.__dataclass_params__.frozen
    told = module.Settings.__doc__
    for field in dataclasses.fields(module.Settings):
        assert field.name in told, f"`{field.name}` needs its source"
    assert len(lab.settings("laptop").seeds) >= 3


def test_every_erratum_quotes_the_paper_and_says_why():
    for lab in LABS:
        for one in lab.module.CLAIMS:
            if one.kind in ("erratum", "typo"):
                assert len(one.quote) > 20, one.id
                assert len(one.why) > 20, one.id


def test_what_cannot_fail_is_a_definition():
    kinds = {one.id: one.kind for lab in LABS for one in lab.module.CLAIMS}
    definitions = {name for name, kind in kinds.items() if kind == "definition"}
    assert definitions == {"G1.policies", "G1.preset", "S6.presets", "C7.caption", "V2.same"}


def test_the_scale_between_laptop_and_paper():
    atoms, tsne = labs.chosen(["atoms"])[0], labs.chosen(["tsne"])[0]
    assert atoms.settings("long") == atoms.module.LAPTOP
    assert tsne.settings("long") == tsne.module.LONG
    assert labs.SCALES == ("quick", "laptop", "long", "paper")


@pytest.mark.parametrize("name", ["invariance", "pair_graph"])
def test_figures_are_drawn_again_from_the_record(name, tmp_path):
    from chiaroscuro.labs import pages

    (report,) = labs.reproduce(name, out=tmp_path)
    png = tmp_path / "quick" / report.lab.paper / f"{name}.png"
    png.unlink()
    assert png in pages.redraw(tmp_path, [name])
    assert png.stat().st_size > 1000


def test_records_are_compact():
    from chiaroscuro.labs.reproduce import compact, written

    record = {"lab": "x", "claims": [{"id": "V0"}], "result": compact({"a": [1 / 3, 2, None]})}
    text = written(record)
    assert json.loads(text) == {**record, "result": {"a": [0.3333333, 2, None]}}
    assert ' "result": {"a":[0.3333333,2,null]}\n' in text


def test_labs_are_found_by_looking():
    files = {path.stem for path in HERE.glob("*/[a-z]*.py")}
    assert {lab.name for lab in LABS} == files
    assert len({lab.name for lab in LABS}) == len(LABS)
    ids = [one for lab in LABS for one in lab.claims]
    assert len(set(ids)) == len(ids)
    topics = {topic for lab in LABS for topic in lab.topics}
    assert {f"V{i}" for i in range(1, 10)} <= topics
    assert {f"S{i}" for i in range(1, 8)} <= topics


def test_labs_use_the_public_api():
    for path in HERE.glob("*/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chiaroscuro"):
                assert node.module.startswith("chiaroscuro.labs")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["atoms"], ["atoms"]),
        (["V4"], ["atoms"]),
        (["v4"], ["atoms"]),
        (["V4.limit"], ["atoms"]),
        (["calder2025/atoms"], ["atoms"]),
        (["V3"], ["stationary", "second_variation"]),
        (["V4", "atoms"], ["atoms"]),
    ],
)
def test_what_words_mean(words, names):
    assert {lab.name for lab in labs.chosen(words)} == set(names)


def test_a_paper_means_all_its_labs():
    assert {lab.paper for lab in labs.chosen(["tan2024"])} == {"tan2024"}
    assert len(labs.chosen(["tan2024"])) == 8


def test_an_unknown_word_names_the_nearest():
    with pytest.raises(InputError, match="did you mean `atoms`"):
        labs.chosen(["atom"])
    with pytest.raises(InputError, match="--list"):
        labs.chosen(["%%%%"])


def test_scales_and_seeds():
    with pytest.raises(InputError, match="'huge'"):
        labs.reproduce("atoms", scale="huge")
    for seed in (-1, 10**20):
        with pytest.raises(InputError, match=f"from 0 to 2147483647; received {seed}"):
            labs.reproduce("latent_law", seed=seed)
    (report,) = labs.reproduce("latent_law", seed=7)
    assert report.seeds == (7, 8)
    assert not report.failed


def test_a_stopped_run_goes_on_from_its_pieces(tmp_path, monkeypatch):
    module = next(lab for lab in LABS if lab.name == "kernel_infonce").module
    calls, real = [], module.trained

    def stops(settings, seed, sign):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append((seed, sign))
        return real(settings, seed, sign)

    monkeypatch.setattr(module, "trained", stops)
    with pytest.raises(KeyboardInterrupt):
        labs.reproduce("S5", out=tmp_path)
    pieces = tmp_path / "quick" / "tan2024" / "kernel_infonce.pieces"
    assert len(list(pieces.glob("*.json"))) == 3
    again = []

    def counts(settings, seed, sign):
        again.append((seed, sign))
        return real(settings, seed, sign)

    monkeypatch.setattr(module, "trained", counts)
    (report,) = labs.reproduce("S5", out=tmp_path)
    assert len(again) == 1
    assert not set(again) & set(calls)
    assert not pieces.exists()
    (whole,) = labs.reproduce("S5")
    assert [c.record() for c in report.claims] == [c.record() for c in whole.claims]


def test_pieces_of_other_settings_are_not_taken(tmp_path):
    from chiaroscuro.labs.pieces import Pieces

    first, second = Pieces(tmp_path, "a"), Pieces(tmp_path, "b")
    assert first("x", lambda: 1) == 1
    assert second("x", lambda: 2) == 2
    assert Pieces(tmp_path, "a")("x", lambda: 3) == 1


def test_pieces_of_other_settings_stay_when_a_run_is_whole(tmp_path):
    from chiaroscuro.labs.pieces import Pieces

    first, second = Pieces(tmp_path / "x", "a"), Pieces(tmp_path / "x", "b")
    first("x", lambda: 1)
    second("x", lambda: 2)
    first.clear()
    assert Pieces(tmp_path / "x", "a")("x", lambda: 3) == 3
    assert Pieces(tmp_path / "x", "b")("x", lambda: 3) == 2
    first.clear()
    second.clear()
    assert not (tmp_path / "x").exists()


def test_a_piece_has_room_for_its_training_until_the_run_is_whole(tmp_path):
    from chiaroscuro.labs.pieces import Pieces

    pieces = Pieces(tmp_path / "x", "a")
    room = pieces.room("seed 0")
    room.mkdir(parents=True)
    (room / "weights").write_text("1")
    assert Pieces(tmp_path / "x", "a").room("seed 0") == room
    assert Pieces(tmp_path / "x", "b").room("seed 0") != room
    assert Pieces(None, "a").room("seed 0") is None
    pieces.clear()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("text", ["", '{"seconds": 1.0, "val', "[]", "{}"])
def test_a_piece_that_is_not_whole_is_named(tmp_path, text):
    from chiaroscuro.labs.pieces import Pieces

    Pieces(tmp_path, "a")("x", lambda: 1)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    with pytest.raises(ChiaroError, match=f"{path.name}`, {len(text)} bytes.*Delete it"):
        Pieces(tmp_path, "a")("x", lambda: 1)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    module = labs.chosen(["V2"])[0].module
    monkeypatch.setattr(module, "run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(ChiaroError, match=r"file/quick/calder2025` cannot be written.*errno \d+"):
        labs.reproduce("V2", out=tmp_path / "file")


def test_labs_are_public():
    assert chiaroscuro.labs.reproduce is labs.reproduce


@pytest.mark.parametrize("colours", [True, False])
def test_only_photographs_keep_all_their_colours(tmp_path, colours):
    canvas, axes = labs.style.canvas(1, 1)
    pixels = [[[0.9, 0.1, 0.2], [0.2, 0.35, 0.3]]] if colours else [[0.1, 0.7]]
    axes[0, 0].imshow(pixels, interpolation="nearest")
    png = labs.style.save(canvas, tmp_path / "shown")[0]
    with Image.open(png) as picture:
        assert (picture.mode == "P") == (not colours)
        found = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24)}
        assert ((51, 89, 76) in found) == colours
