"""The page in a real browser: what a reader does, and what they see."""

import io
import json
import re
import shlex
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.report import report
from chiaroscuro.report.packing import blob, coordinates
from chiaroscuro.report.page import page
from report.conftest import CLASSES, DIAGNOSIS, colour_of, make_run


@pytest.fixture(scope="module")
def address(run, tmp_path_factory):
    return report(run, tmp_path_factory.mktemp("page") / "page.html").as_uri()


@pytest.fixture(scope="module")
def compared(run, second, tmp_path_factory):
    return report([run, second], tmp_path_factory.mktemp("page") / "two.html").as_uri()


def text(opened, selector):
    return opened.page.locator(selector).first.inner_text()


@pytest.mark.parametrize("renderer", ["", "?renderer=canvas"], ids=["webgl", "canvas"])
def test_it_opens_from_a_file_and_asks_for_nothing(opened, address, renderer):
    one = opened(address + renderer)
    one.show_map()
    assert one.errors == []
    asked = [url for url in one.requests if not url.startswith("data:")]
    assert asked == [address + renderer]
    wanted = "Canvas" if renderer else "WebGL2"
    assert one.page.evaluate("() => chiaroscuro.map.renderer") == wanted


def test_verdict_and_advice(opened, address):
    one = opened(address, permissions=["clipboard-read", "clipboard-write"])
    assert text(one, ".verdict").startswith("The projector has collapsed to 3 of 6")
    findings = one.page.locator(".finding")
    assert findings.count() == 2
    assert "critical" in findings.first.get_attribute("class")
    assert findings.first.locator("code").inner_text() == "--set optimiser.weight_decay=1e-6"
    assert "critical" in one.page.locator(".light").get_attribute("class")
    assert text(one, ".light strong") == "Something is wrong"
    link = findings.first.locator("a.paper")
    assert link.get_attribute("href") == "https://arxiv.org/abs/2110.09348"
    findings.first.locator("button.copy").click()
    one.page.wait_for_selector(".said:not(:empty)")
    assert findings.first.locator(".said").inner_text() == "Copied"
    copied = one.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == "--set optimiser.weight_decay=1e-6"


def test_accuracies_are_shares_and_dimensions_are_counts(opened, tmp_path):
    made = make_run(tmp_path / "run", n=60, epochs=1)
    made.write_diagnosis({**DIAGNOSIS, "measures": {"n": 2048, "effective_rank": 7.25}})
    encoder = {"d": 128, "knn_20": 0.832, "knn_20_majority": 0.8, "few_shot_1_interval": 0.01}
    results = {"encoder": encoder, "projector": {"d": 64}}
    made.folder.joinpath("evaluation.json").write_text(json.dumps({"results": results}))
    one = opened(report(made, tmp_path / "a.html").as_uri())
    shown = text(one, "#verdict")
    assert "encoder (128)" in shown
    assert "83.2" in shown
    assert "\t80 %" in shown
    assert "kNN accuracy, 20 neighbours, unweighted" in shown
    assert "few shot" not in shown  # half an interval is no accuracy
    assert "800 %" not in shown  # 100 times 128 or 64
    assert "400 %" not in shown
    assert "were computed on 2,048 rows" in shown  # two values under one name are told apart
    assert "alignment of z" in shown
    assert one.errors == []


def test_one_accuracy_is_told(opened, tmp_path):
    """Where an evaluation is there, no accuracy of other rows stands beside the held-out one."""
    made = make_run(tmp_path / "run", n=60, epochs=1)
    said = "No problem found by 2 checks: nearest neighbours predict 79.2% of the labels."
    measures = {"n": 60, "knn_accuracy": 0.792, "effective_rank": 7.25}
    checked = {"state": "nothing found", "checks": ["a", "b"], "findings": []}
    made.write_diagnosis({"verdict": said, "measures": measures, **checked})
    results = {"encoder": {"d": 12, "knn_20": 0.832}, "input": {"d": 4, "knn_20": 0.5}}
    made.folder.joinpath("evaluation.json").write_text(json.dumps({"results": results}))
    one = opened(report(made, tmp_path / "a.html").as_uri())
    assert text(one, ".verdict") == "2 checks found no problem."
    assert "83.2" in text(one, ".numbers")
    assert "79.2" not in text(one, "#verdict")
    two = opened(report([made, made], tmp_path / "two.html").as_uri())
    table = text(two, "table.compare")
    assert "83.2" in table
    assert "accuracy among the samples shown" not in table
    assert "effective rank, encoder h (dimensions)\t7.25\t7.25" in table  # of the diagnosis
    assert "samples shown, encoder h" in table  # what the diagnosis does not have
    assert two.errors == []


def test_search_across_pairs_is_shown(opened, tmp_path):
    made = make_run(tmp_path / "run", n=60, epochs=1)
    ways = {
        "image_to_text": {"recall_1": 0.25, "median_rank": 4.0, "chance": {"recall_1": 0.02}},
        "text_to_image": {"recall_1": 0.75, "median_rank": 2.0, "chance": {"recall_1": 0.02}},
    }
    results = {"projector": {"d": 6, "retrieval": ways}, "untrained": {"retrieval": "none"}, "x": 1}
    made.folder.joinpath("evaluation.json").write_text(json.dumps({"results": results}))
    one = opened(report(made, tmp_path / "a.html").as_uri())
    lines = [" ".join(line.split()) for line in text(one, "#verdict .heat").splitlines()]
    assert lines == [
        "partner is among the nearest chance projector",
        "image to text, among 1 2 % 25 %",
        "text to image, among 1 2 % 75 %",
    ]
    assert one.errors == []


def test_labels_may_be_numbers_of_any_size(opened, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    made = Embeddings(h=rng.normal(size=(60, 4)), labels=np.where(y == 0, -1, y * 10**12))
    one = opened(report(made, tmp_path / "a.html").as_uri())
    assert one.errors == []
    assert "2000000000000" in text(one, "#graph")


@pytest.mark.parametrize("renderer", ["", "?renderer=canvas"], ids=["webgl", "canvas"])
def test_hover_shows_the_right_sample(opened, address, renderer):
    one = opened(address + renderer)
    one.show_map()
    for row in (0, 7, 101, 239):
        one.page.mouse.move(*one.place(row))
        card = one.page.locator(".tip .card")
        card.wait_for()
        shown = card.get_attribute("data-id")
        # another sample may lie on the same pixel: then it is that one, and as near
        at = int(shown[1:])
        near = np.subtract(*one.places([at, row]))
        assert shown == f"s{row:04d}" or np.hypot(*near) < 1.5
        assert CLASSES[at % 3] in card.inner_text()
        one.page.wait_for_selector(f'.tip canvas[data-drawn="{at}"]')
        pixel = one.page.evaluate(
            "() => [...document.querySelector('.tip canvas').getContext('2d')"
            ".getImageData(8, 8, 1, 1).data].slice(0, 3)"
        )
        assert np.abs(np.subtract(pixel, colour_of(at).astype(int))).max() < 30


def test_the_points_are_drawn_where_they_are_said_to_be(opened, address):
    """The picture itself: the colour at a point's place is that of its class."""
    one = opened(address)
    one.show_map()
    places = one.page.evaluate(
        """() => {
          const { map } = chiaroscuro;
          map.draw();
          const canvas = map.stage.querySelector("canvas.ground");
          const copy = document.createElement("canvas");
          [copy.width, copy.height] = [canvas.width, canvas.height];
          const context = copy.getContext("2d");
          context.drawImage(canvas, 0, 0);
          const ratio = canvas.width / map.stage.clientWidth;
          return Array.from({ length: 240 }, (_, i) => {
            const [x, y] = map.place(i).map((v) => Math.round(v * ratio));
            return context.getImageData(x, y, 1, 1).data[3];
          });
        }"""
    )
    assert min(places) > 60


def test_the_slider_moves_the_points_and_the_charts(opened, address):
    one = opened(address)
    one.show_map()
    slider = one.page.get_by_role("slider", name="Epoch")
    on_stage = "() => chiaroscuro.map.place(5)"
    end = one.page.evaluate(on_stage)
    assert text(one, "#map output") == "epoch 4 of 4"
    before = one.page.locator("#geometry svg title").first.text_content()
    slider.focus()
    for _ in range(4):
        slider.press("ArrowLeft")
    assert text(one, "#map output") == "before training"
    start = one.page.evaluate(on_stage)
    assert np.hypot(*np.subtract(start, end)) > 5
    assert one.page.locator("#geometry svg title").first.text_content() != before
    rule = one.page.locator(".right .cursor").nth(1)
    assert rule.get_attribute("visibility") == "visible"
    left = float(rule.get_attribute("x1"))
    slider.press("ArrowRight")
    assert float(rule.get_attribute("x1")) > left
    slider.evaluate("(s) => { s.value = '0.5'; s.dispatchEvent(new Event('input')); }")
    middle, first, second = one.page.evaluate(
        """() => {
          const { map } = chiaroscuro;
          const at = (t) => { map.state.t = t; return map.place(5); };
          return [map.place(5), at(0), at(1)];
        }"""
    )
    np.testing.assert_allclose(middle, np.add(first, second) / 2, atol=0.01)


def test_moving_through_the_epochs_leaves_the_page_in_place(opened, address):
    one = opened(address)
    one.show_map()
    slider = one.page.get_by_role("slider", name="Epoch")
    slider.focus()
    measured = """() => ["#map .stage", "#map .key", "#map .time", "#training"]
        .map((selector) => document.querySelector(selector).getBoundingClientRect())
        .map(({ x, y, width, height }) => [x, y + scrollY, width, height])"""
    before = one.page.evaluate(measured)
    for t in (0, 0.5, 1, 2.7, 4):
        slider.evaluate("(s, t) => { s.value = t; s.dispatchEvent(new Event('input')); }", t)
        one.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")
        assert one.page.evaluate(measured) == before


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_playing_can_be_paused(opened, address, motion):
    one = opened(address, reduced_motion=motion)
    # paused by the page itself: on a slow machine, a click from here comes after the end
    paused = one.page.evaluate(
        """() => new Promise((done) => {
          const button = document.querySelector("#map button.play");
          const shown = document.querySelector("#map output");
          const look = () => {
            if (!["epoch 4 of 4", "before training"].includes(shown.textContent)) {
              button.click();
              done(shown.textContent);
            } else requestAnimationFrame(look);
          };
          button.click();
          look();
        })"""
    )
    assert paused in ("epoch 1 of 4", "epoch 2 of 4", "epoch 3 of 4")
    assert one.page.get_by_role("button", name="Play the training").count() == 1
    one.page.wait_for_timeout(300)
    assert text(one, "#map output") == paused


def lasso(one, corners):
    (x, y), *others = corners
    one.page.mouse.move(x, y)
    one.page.mouse.down()
    for x, y in [*others, corners[0]]:
        one.page.mouse.move(x, y, steps=4)
    one.page.mouse.up()


def test_the_lasso_takes_what_is_inside(opened, address):
    one = opened(address)
    one.show_map()
    box = one.page.locator("#map .left .stage").bounding_box()
    places = np.array(one.places(list(range(240))))
    x = float(np.median(places[:, 0]))
    left, right = box["x"] + 3, x
    top, bottom = box["y"] + 3, box["y"] + box["height"] - 3
    lasso(one, [(left, top), (right, top), (right, bottom), (left, bottom)])
    one.page.wait_for_selector(".summary")
    inside = int((places[:, 0] < x).sum())
    n = int(re.search(r"(\d+) samples selected", text(one, ".summary"))[1])
    assert abs(n - inside) <= 1
    tiles = one.page.locator(".selection > .tiles .tile")
    assert tiles.count() == min(48, n)
    wanted = {f"s{row:04d}" for row in np.flatnonzero(places[:, 0] < x + 0.5)}
    shown = {tile.get_attribute("data-id") for tile in tiles.all()}
    assert shown <= wanted


def test_a_sample_of_the_grid_opens_its_neighbours(opened, address, run):
    one = opened(address)
    one.show_map()
    one.page.mouse.click(*one.place(33))
    one.page.wait_for_selector(".detail .card")
    row = int(one.page.locator(".detail .card").get_attribute("data-id")[1:])
    h = Embeddings.load(run.embeddings("epoch-0004")).h.astype(np.float64)
    u = h / np.linalg.norm(h, axis=1, keepdims=True)
    cosines = u @ u[row]
    cosines[row] = -2
    wanted = [f"s{j:04d}" for j in np.argsort(-cosines)[:8]]
    tiles = one.page.locator(".detail .tiles .tile")
    assert [tile.get_attribute("data-id") for tile in tiles.all()] == wanted
    for tile, j in zip(tiles.all(), np.argsort(-cosines)[:8], strict=True):
        assert ("differs" in tile.get_attribute("class")) == (j % 3 != row % 3)
    tiles.first.click()
    assert one.page.locator(".detail .card").get_attribute("data-id") == wanted[0]


def test_colours_spaces_axes_and_the_key(opened, address):
    one = opened(address)
    one.show_map()
    chosen = "() => ['colour', 'space', 'map'].map((name) => chiaroscuro.map.state[name])"
    one.page.get_by_label("Colour").select_option("factor corners")
    one.page.wait_for_selector(".ramp")
    one.page.get_by_label("Space").select_option("z")
    one.page.get_by_label("Projection").select_option("spectral")
    assert one.page.evaluate(chosen) == ["factor corners", "z", "spectral"]
    one.page.get_by_label("Colour").select_option("label")
    names = one.page.locator("#map .key button").all_inner_texts()
    assert names == list(CLASSES)
    one.page.locator("#map .key button").nth(1).click()
    # only squares can be hovered now
    one.page.mouse.move(*one.place(1))
    one.page.wait_for_selector(".tip .card")
    assert int(one.page.locator(".tip .card").get_attribute("data-id")[1:]) % 3 == 1
    one.page.get_by_role("button", name="Graph").click()
    one.page.get_by_label("Projection").select_option("PCA")
    one.page.get_by_role("button", name="Pairs").click()
    assert one.errors == []


def test_keys_alone(opened, address):
    one = opened(address)
    stage = one.page.locator("#map .left .stage")
    stage.focus()
    stage.press(".")
    one.page.wait_for_selector(".tip .card")
    assert one.page.locator(".tip .card").get_attribute("data-id") == "s0000"
    stage.press(".")
    assert one.page.locator(".tip .card").get_attribute("data-id") == "s0001"
    stage.press("Enter")
    assert one.page.locator(".detail .card").get_attribute("data-id") == "s0001"
    stage.press("Escape")
    assert one.page.locator(".detail").count() == 0
    zoom = "() => chiaroscuro.map.state.zoom"
    first = one.page.evaluate(zoom)
    stage.press("+")
    assert one.page.evaluate(zoom) > first
    stage.press("0")
    assert one.page.evaluate(zoom) == pytest.approx(first)


def test_both_themes(opened, address):
    for scheme, dark in (("light", False), ("dark", True)):
        one = opened(address, color_scheme=scheme)
        ground = (
            "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
        )
        assert (one.page.evaluate(ground) < 128) == dark
        one.page.get_by_role("button", name="Switch between light and dark").click()
        assert (one.page.evaluate(ground) < 128) != dark
        assert one.errors == []


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_nothing_sticks_out_at_any_width(opened, address, width):
    one = opened(address, viewport={"width": width, "height": 900})
    one.page.evaluate("() => chiaroscuro.map.select([5])")  # and a sample with its facts is open
    one.page.wait_for_selector(".detail .facts")
    inside = """() => {
      const card = document.querySelector(".detail").getBoundingClientRect();
      const facts = [...document.querySelectorAll(".detail dd")];
      return facts.every((fact) => fact.getBoundingClientRect().right <= card.right);
    }"""
    assert one.page.evaluate(inside)
    assert one.page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert one.page.evaluate("() => parseFloat(getComputedStyle(document.body).fontSize)") >= 13


def test_two_runs_side_by_side(opened, compared):
    one = opened(compared)
    assert one.page.locator(".side .stage").count() == 2
    table = one.page.locator("table.compare")
    assert table.locator("thead th").all_inner_texts() == ["measure", "first", "second"]
    rows = table.locator("tbody tr")
    assert rows.count() >= 8
    differing = one.page.locator("#compare table.plain").last
    assert "optimiser.lr" in differing.inner_text()
    assert "objective" not in differing.inner_text()
    share = one.page.get_by_role("slider", name="Share of the training")
    share.evaluate("(s) => { s.value = '0'; s.dispatchEvent(new Event('input')); }")
    assert text(one, "#compare output") == "0 % of training"
    assert text(one, ".tabs + div h1") == "first"
    one.page.locator(".side button.link").nth(1).click()
    assert text(one, ".tabs + div h1") == "second"
    assert one.errors == []


def test_it_prints(opened, address, tmp_path):
    one = opened(address)
    pdf = one.page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert pdf.startswith(b"%PDF")
    one.page.emulate_media(media="print")
    assert not one.page.locator("header.top").is_visible()
    assert one.page.locator("#verdict").is_visible()


def test_empty_states_say_what_to_run(opened, tmp_path):
    bare = report(Embeddings(h=np.random.default_rng(0).normal(size=(30, 4))), tmp_path / "a.html")
    one = opened(bare.as_uri())
    told = " ".join(one.page.locator(".empty").all_inner_texts())
    for words in ("chiaroscuro.diagnose(embeddings)", "chiaro train digits --out runs/first"):
        assert words in told
    assert one.errors == []


def test_commands_that_are_copied_can_be_run(opened, tmp_path):
    """They name this run, quoted for a shell, and no placeholder."""
    run = make_run(tmp_path / "it's a run", n=60, epochs=1)
    one = opened(report(run, tmp_path / "a.html").as_uri())
    shown = one.page.locator(".command code").all_text_contents()  # also of what is folded
    assert any(text.startswith("chiaro diagnose") for text in shown)
    for text in shown:
        words = shlex.split(text)
        assert not {"RUN", "PRESET", "FILE.npz", "DIR"} & set(words)
        if words[1] == "diagnose":
            assert words[2:] == [str(run.folder), "--out", str(run.folder)]


def test_a_folder_of_labs_shows_labs(opened, tmp_path):
    claim = {
        "id": "V4.a",
        "statement": "it falls",
        "paper": 1,
        "ours": {"x": 2.5},
        "verdict": "erratum",
    }
    record = {"lab": "atoms", "paper": "calder2025", "scale": "quick", "claims": [claim]}
    (tmp_path / "atoms.json").write_text(json.dumps(record))
    Image.new("RGB", (40, 30), "white").save(tmp_path / "atoms.png")
    one = opened(report(tmp_path, tmp_path / "page.html").as_uri())
    cells = one.page.locator(".claims tbody tr").first.locator("th, td").all_inner_texts()
    assert cells == ["V4.a", "it falls", "1", "x 2.50", "≠ erratum"]
    picture = one.page.locator("img.figure")
    assert picture.evaluate("(image) => [image.naturalWidth, image.naturalHeight]") == [40, 30]
    assert one.page.locator("#verdict").count() == 0
    assert one.errors == []


def test_a_diagnosis_alone_is_a_page(opened, tmp_path):
    diagnostics = pytest.importorskip("chiaroscuro.diagnostics")
    found = diagnostics.diagnose(np.ones((200, 8)))
    one = opened(report(found, tmp_path / "page.html").as_uri())
    assert "full collapse" in text(one, ".finding h4")
    assert "critical" in text(one, ".finding h4")
    assert one.errors == []


def test_every_panel_explains_itself(opened, address):
    one = opened(address)
    for panel in one.page.locator(".panel").all():
        words = panel.locator(".explain").first.inner_text()
        assert len(words) > 30, panel.inner_text()
    assert one.page.locator(".panel a.paper").count() >= 7


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["address", "compared"])
def test_no_serious_barrier(opened, request, which, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: `.[test]`")
    one = opened(request.getfixturevalue(which), bypass_csp=True, color_scheme=scheme)
    one.show_map()
    one.page.mouse.click(*one.place(3))
    found = axe.Axe().run(one.page).response["violations"]
    serious = [
        (f["id"], f["nodes"][0]["html"][:200], f["nodes"][0]["failureSummary"][:300])
        for f in found
        if f["impact"] in ("serious", "critical")
    ]
    assert serious == []


# ---- findings, search, selections, files ----


def finding(name, severity, **more):
    return {"name": name, "severity": severity, "evidence": "it was seen", **more}


def test_three_findings_are_open_and_their_rows_are_shown(opened, run, tmp_path):
    rows = {"ids": ["s0003", "s0007", "s9999"]}
    listed = [finding(f"f{k}", "warning") for k in range(5)]
    listed[1]["rows"] = rows
    listed[2]["rows"] = ["s0011"]
    listed[3]["rows"] = "outliers"  # a list of the diagnosis, by its name
    lists = {"outliers": {"says": "are far", "total": 9, "ids": ["s0020", "s0021"]}}
    economy = {"sizes": [1, 2, 4], "accuracy": {}, "recall": {"first": [0.1, 0.4, 1.0]}}
    found = {"verdict": "Look.", "findings": listed, "rows": lists, "curves": {"economy": economy}}
    one = opened(report(run, tmp_path / "a.html", diagnosis=found).as_uri())
    opens = one.page.locator(".finding details").evaluate_all("(all) => all.map((d) => d.open)")
    assert opens == [True, True, True, False, False]
    assert text(one, ".light strong") == "Worth a look"
    one.page.get_by_role("button", name="Show its 3 rows on the map").click()
    assert one.page.evaluate("() => chiaroscuro.map.state.selected") == [3, 7]
    assert "2 of them" in text(one, ".finding:nth-child(2) .said")
    one.page.get_by_role("button", name="Show its row on the map").click()
    assert one.page.evaluate("() => chiaroscuro.map.state.selected") == [11]
    assert "Share of the ten nearest" in text(one, "#geometry")
    one.page.locator("details.lists summary").click()
    assert "are far" in text(one, "details.lists table")
    one.page.locator("button[data-list=outliers]").click()
    assert one.page.evaluate("() => chiaroscuro.map.state.selected") == [20, 21]
    assert one.errors == []


def test_advice_is_short(opened, run, tmp_path):
    long = f"InfoNCE(kernel=Cosine(tau=[{', '.join(['0.2'] * 32 + ['0.4'] * 32)}]))"
    found = {"findings": [finding("style", "note", settings={"objective": long})]}
    one = opened(report(run, tmp_path / "a.html", diagnosis=found).as_uri())
    shown = text(one, ".finding code")
    assert shown == "--set 'objective=InfoNCE(kernel=Cosine(tau=[0.2]*32+[0.4]*32))'"
    assert text(one, ".light strong") == "No problem found"


def test_search_finds_ids_and_labels(opened, address):
    one = opened(address)
    field = one.page.get_by_role("searchbox")
    field.fill("s0012")
    one.page.wait_for_function("() => chiaroscuro.map.state.selected?.length === 1")
    assert one.page.evaluate("() => chiaroscuro.map.state.selected") == [12]
    field.fill("SQUARE s00")
    one.page.wait_for_function("() => chiaroscuro.map.state.selected?.length > 1")
    found = one.page.evaluate("() => chiaroscuro.map.state.selected")
    assert found == [row for row in range(100) if row % 3 == 1]
    field.fill("")
    one.page.wait_for_function("() => chiaroscuro.map.state.selected === null")


def test_a_whole_label_or_id_means_no_other(opened, tmp_path):
    """A label `7` is not each id with a 7 in it; a part of a word is still searched for."""
    h = np.random.default_rng(0).normal(size=(90, 4))
    names = ["7", "no", "eagle"]
    e = Embeddings(
        h=h, labels=np.arange(90) % 3, class_names=names, texts=["a 7th"] * 3 + ["b"] * 87
    )
    one = opened(report(e, tmp_path / "a.html").as_uri())
    field = one.page.get_by_role("searchbox")
    chosen = "() => chiaroscuro.map.state.selected"
    for words, wanted in (
        ("7", [r for r in range(90) if r % 3 == 0 or r == 7 or r < 3]),
        ("eag", list(range(2, 90, 3))),
        ("7th no", [1]),
    ):
        field.fill(words)
        one.page.wait_for_function(
            "(n) => chiaroscuro.map.state.selected?.length === n", arg=len(wanted)
        )
        assert one.page.evaluate(chosen) == wanted


def saved(one, button):
    with one.page.expect_download() as waiting:
        button.click()
    path = waiting.value.path()
    return waiting.value.suggested_filename, path.read_bytes()


def test_a_selection_becomes_a_table_and_a_split(opened, address):
    one = opened(address)
    one.page.evaluate("() => chiaroscuro.map.select([2, 5, 7])")
    name, content = saved(one, one.page.get_by_role("button", name="CSV of ids"))
    assert name == "first-selection.csv"
    assert content.decode().splitlines() == [
        "id,label", "s0002,triangle", "s0005,triangle", "s0007,square",
    ]  # fmt: skip
    name, content = saved(one, one.page.get_by_role("button", name="New split"))
    lines = content.decode().splitlines()
    assert (name, lines[0], len(lines)) == ("first-split.csv", "id,split", 241)
    assert [line.split(",")[0] for line in lines if line.endswith(",1")] == [
        "s0002", "s0005", "s0007",
    ]  # fmt: skip


def test_every_chart_can_be_saved(opened, compared):
    one = opened(compared)
    assert one.page.locator(".raw, .side figure, .heat, .bars").count() >= 8
    for figure in one.page.locator("figure, div:has(> .above):has(> ul, .heat)").all():
        assert figure.locator(".export").all_inner_texts() == ["SVG", "PNG", "CSV"]
    for table in one.page.locator("div:has(> .above):has(.plain)").all():
        assert table.locator(".export").all_inner_texts() == ["CSV"]
    chart = one.page.locator("#training figure").first
    _, drawn = saved(one, chart.get_by_text("SVG", exact=True))
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("}svg")
    assert any("M" in path.get("d", "") for path in root.iter("{http://www.w3.org/2000/svg}path"))
    assert b"class=" not in drawn
    _, image = saved(one, chart.get_by_text("PNG", exact=True))
    assert Image.open(io.BytesIO(image)).size[0] > 300
    _, table = saved(one, chart.get_by_text("CSV", exact=True))
    lines = table.decode().splitlines()
    assert lines[0] == "step,loss"
    assert [float(line.split(",")[1]) for line in lines[1:3]] == [5.0, 2.5]
    exports = one.page.locator("#map .controls .exports")
    _, table = saved(one, exports.get_by_text("CSV", exact=True))
    lines = table.decode().splitlines()
    assert len(lines) == 241
    assert lines[1].startswith("s0000,")
    assert lines[1].endswith(",circle")
    _, drawn = saved(one, exports.get_by_text("SVG", exact=True))
    dots = list(ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}circle"))
    assert len(dots) == 240
    assert one.errors == []


def test_tables_and_bars_are_drawn_to_be_saved(opened, address):
    """The picture of a shaded table and of bars holds what the page shows."""
    one = opened(address)
    mark = "{http://www.w3.org/2000/svg}"
    for place, lines in (
        ("#graph div:has(> .above):has(.heat)", "tr"),
        ("#views div:has(> ul)", "li"),
    ):
        part = one.page.locator(place).first
        saves = part.locator(".exports")
        name, drawn = saved(one, saves.get_by_text("SVG", exact=True))
        root = ElementTree.fromstring(drawn)
        words = [word.text or "" for word in root.iter(f"{mark}text")]
        n_rows = part.locator(lines).count()
        assert name.endswith(".svg")
        assert set(part.locator(lines).last.inner_text().split("\t")[0].split("\n")) <= set(words)
        rects = list(root.iter(f"{mark}rect"))[1:]  # the first is the ground
        assert len(rects) == (n_rows if lines == "li" else (n_rows - 1) * len(CLASSES))
        assert max(float(rect.get("width")) for rect in rects) > 1
        _, image = saved(one, saves.get_by_text("PNG", exact=True))
        pixels = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 10
    assert one.page.locator("svg.offstage").count() == 0
    assert one.errors == []


def test_no_cell_becomes_a_formula(opened, tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"=cmd|' /C calc'!A{k}" for k in range(30)]
    e = Embeddings(h=rng.normal(size=(30, 4)), ids=ids, texts=['a "b", c'] * 30)
    one = opened(report(e, tmp_path / "a.html").as_uri())
    one.page.evaluate("() => chiaroscuro.map.select([0])")
    _, content = saved(one, one.page.get_by_role("button", name="CSV of ids"))
    assert content.decode().splitlines()[1] == '\'=cmd|\' /C calc\'!A0,"a ""b"", c"'


# ---- the map ----


def test_it_opens_on_neighbours_with_the_raw_input_beside(opened, address):
    one = opened(address)
    assert one.page.evaluate("() => chiaroscuro.map.state.map") == "t-SNE"
    maps = one.page.get_by_label("Projection").locator("option").all_inner_texts()
    assert maps == ["t-SNE", "PCA", "spectral"]
    assert one.page.locator(".raw .stage").count() == 1
    assert "pixels of the thumbnails" in text(one, ".raw figcaption")


def test_close_up_points_are_their_images(opened, address):
    one = opened(address)
    one.show_map()
    stage = one.page.locator("#map .left .stage")
    assert stage.get_attribute("data-images") == "0"
    place = "() => { const { map } = chiaroscuro; map.zoomBy(40, map.place(9)); map.draw(); }"
    one.page.evaluate(place)
    one.page.wait_for_function(
        "() => Number(document.querySelector('#map .left .stage').dataset.images) > 0"
    )
    one.page.wait_for_timeout(100)
    pixel = one.page.evaluate(
        """() => {
          const { map } = chiaroscuro;
          map.lookAt(null);
          map.draw();
          const over = map.stage.querySelector("canvas.over");
          const ratio = over.width / map.stage.clientWidth;
          const [x, y] = map.place(9).map((v) => Math.round(v * ratio));
          return [...over.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3);
        }"""
    )
    # another image may lie on top: it is then one of those close by
    far = [np.abs(np.subtract(pixel, colour_of(row).astype(int))).max() for row in range(240)]
    assert min(far) < 30


def test_a_plane_is_its_own_map(opened, tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(50, 2)) * [10, 1]
    e = Embeddings(h=rng.normal(size=(50, 6)), z=z)
    one = opened(report(e, tmp_path / "a.html").as_uri())
    assert one.page.evaluate("() => [chiaroscuro.map.state.space, chiaroscuro.map.state.map]") == [
        "z", "itself",
    ]  # fmt: skip
    chosen = one.page.get_by_label("Projection").locator("option").first.inner_text()
    assert chosen == "z itself"
    places = np.array(one.page.evaluate("() => chiaroscuro.map.table().map((r) => [r[1], r[2]])"))
    moved = z - z.mean(axis=0)
    places = places - places.mean(axis=0)
    share = np.linalg.norm(places) / np.linalg.norm(moved)
    np.testing.assert_allclose(places, share * moved, atol=1e-3 * share * np.abs(moved).max())


def test_fingers_are_told_what_fingers_do(opened, address):
    one = opened(address, has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844})
    told = text(one, ".told")
    assert "Tap a point" in told
    for word in ("hover", "wheel", "Ctrl", "Shift"):
        assert word not in told
    assert one.page.evaluate("() => document.querySelector('nav').dataset.more") == "right"
    assert one.errors == []


# ---- two runs ----


def test_two_runs_point_by_point(opened, compared, run, second):
    one = opened(compared)
    near = []
    for made in (run, second):
        h = Embeddings.load(made.embeddings("epoch-0004")).h.astype(np.float64)
        u = h / np.linalg.norm(h, axis=1, keepdims=True)
        cosines = u @ u.T
        np.fill_diagonal(cosines, -2)
        near.append(np.argsort(-cosines, axis=1)[:, :8])
    shares = [len(set(a) & set(b)) / 8 for a, b in zip(*near, strict=True)]
    shown = text(one, "#compare .summary strong")
    assert float(shown.split()[0]) == pytest.approx(100 * np.mean(shares), abs=0.06, rel=0)
    tiles = one.page.locator("#compare .tile[data-id]")
    first = int(tiles.first.get_attribute("data-id")[1:])
    assert shares[first] == min(shares)
    tiles.first.click()
    strips = one.page.locator("#compare .detail .tiles")
    assert strips.count() == 2
    for strip, mine, other in zip(strips.all(), near, reversed(near), strict=True):
        ids = [int(tile.get_attribute("data-id")[1:]) for tile in strip.locator(".tile").all()]
        assert ids == mine[first].tolist()
        for tile, j in zip(strip.locator(".tile").all(), ids, strict=True):
            assert ("differs" in tile.get_attribute("class")) == (j not in other[first])
    one.page.get_by_role("button", name="Colour both maps by this").click()
    assert one.errors == []


# ---- many points ----


def synthetic(n, epochs, rng):
    """A page of n points with none of the slow numbers."""
    frames = [np.cumsum(rng.normal(size=(n, 2)) * 0.01, axis=0) for _ in range(epochs)]
    plan = coordinates(frames)
    ones = blob(np.zeros(n, np.uint8))
    measures = {
        "spectrum": [1.0], "effective_rank": 1.0, "participation_ratio": 1.0, "uniformity": 0.0,
        "alignment": None, "knn_accuracy": None, "similarities": {},
    }  # fmt: skip
    space = {
        "d": 2,
        "maps": {"PCA": plan},
        "near": blob(np.zeros((n, 1), np.uint32)),
        "cosines": blob(np.zeros((n, 1), np.uint16)),
        "norms": blob(np.ones(n, np.float32)),
        "hubs": blob(np.ones(n, np.uint16)),
        "graph": {
            "clusters": ones, "n_clusters": 1, "edges": blob(np.zeros((0, 2), np.uint16)),
            "n_edges": 0, "n_landmarks": 0, "eigenvalues": [0.0, 0.1],
        },
    }  # fmt: skip
    labels = {"codes": blob((np.arange(n) % 10 + 1).astype(np.uint16)), "names": list("abcdefghij")}
    run = {
        "name": "many", "source": None, "diagnosis": None, "evaluation": None, "labs": [],
        "notes": [], "training": None, "sentence": "", "epochs": list(range(epochs)),
        "samples": {"n": n, "ids": [str(i) for i in range(n)], "labels": labels},
        "spaces": {"h": space}, "frames": [{"epoch": e, "h": measures} for e in range(epochs)],
        "sensitivity": None, "factors": None,
    }  # fmt: skip
    return {"format": 1, "kind": "report", "title": "many", "runs": [run]}


def test_a_hundred_thousand_points_move(opened, tmp_path):
    path = tmp_path / "many.html"
    path.write_text(page(synthetic(100_000, 4, np.random.default_rng(0))))
    one = opened(path.as_uri())
    one.show_map()
    at = lambda t: one.page.evaluate(
        "(t) => { const { map } = chiaroscuro; map.state.t = t; map.draw(); map.finish();"
        " return map.place(99999); }",
        t,
    )
    assert np.hypot(*np.subtract(at(0), at(3))) > 1
    assert one.errors == []


def test_a_card_draws_them_too(opened, tmp_path):
    path = tmp_path / "many.html"
    path.write_text(page(synthetic(100_000, 2, np.random.default_rng(0))))
    one = opened(path.as_uri() + "?renderer=webgl")
    one.show_map()
    one.page.evaluate("() => { chiaroscuro.map.draw(); chiaroscuro.map.finish(); }")
    assert one.page.evaluate("() => chiaroscuro.map.renderer") == "WebGL2"
    assert one.errors == []
