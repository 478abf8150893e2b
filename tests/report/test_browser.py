"""The page in a real browser: what a reader does, and what they see."""

import json
import re

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
    results = {"encoder": {"d": 128, "knn_20": 0.832, "linear": 0.8}, "projector": {"d": 64}}
    made.folder.joinpath("evaluation.json").write_text(json.dumps({"results": results}))
    one = opened(report(made, tmp_path / "a.html").as_uri())
    shown = text(one, "#verdict")
    assert "encoder (128)" in shown
    assert "83.2" in shown
    assert "\t80 %" in shown
    assert "800 %" not in shown  # 100 times 128 or 64
    assert "400 %" not in shown
    assert "are of 2\u202f048 rows" in shown  # two values under one name are told apart
    assert "alignment of z" in shown
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
        near = np.subtract(one.place(at), one.place(row))
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
    end = one.place(5)
    assert text(one, "#map output") == "epoch 4 of 4"
    before = one.page.locator("#geometry svg title").first.text_content()
    slider.focus()
    for _ in range(4):
        slider.press("ArrowLeft")
    assert text(one, "#map output") == "before training"
    start = one.place(5)
    assert np.hypot(*np.subtract(start, end)) > 5
    assert one.page.locator("#geometry svg title").first.text_content() != before
    rule = one.page.locator(".right .cursor").nth(1)
    assert rule.get_attribute("visibility") == "visible"
    left = float(rule.get_attribute("x1"))
    slider.press("ArrowRight")
    assert float(rule.get_attribute("x1")) > left
    slider.evaluate("(s) => { s.value = '0.5'; s.dispatchEvent(new Event('input')); }")
    middle = one.place(5)
    between = one.page.evaluate(
        """() => {
          const { map } = chiaroscuro;
          const at = (t) => { map.state.t = t; return map.place(5); };
          const [a, b] = [at(0), at(1)];
          map.state.t = 0.5;
          return [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
        }"""
    )
    box = one.page.locator("#map .stage").bounding_box()
    np.testing.assert_allclose(middle, np.add(between, (box["x"], box["y"])), atol=0.01)


def test_play_runs_to_the_end(opened, address):
    one = opened(address)
    one.page.get_by_role("button", name="Play the training").click()
    one.page.wait_for_function(
        "() => document.querySelector('#map output').textContent !== 'epoch 4 of 4'"
    )
    one.page.get_by_role("button", name="Pause").click()
    paused = text(one, "#map output")
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
    box = one.page.locator("#map .stage").bounding_box()
    places = np.array([one.place(row) for row in range(240)])
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
    one.page.get_by_label("Axes").select_option("spectral")
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
    one.page.get_by_label("Axes").select_option("PCA")
    one.page.get_by_role("button", name="Pairs").click()
    assert one.errors == []


def test_keys_alone(opened, address):
    one = opened(address)
    stage = one.page.locator("#map .stage")
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
    one.page.locator(".side button").nth(1).click()
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
    told = " ".join(one.page.locator(".empty code").all_inner_texts())
    for command in ("chiaro diagnose", "chiaro train PRESET --out RUN", "chiaro embed RUN"):
        assert command in told
    assert one.errors == []


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
