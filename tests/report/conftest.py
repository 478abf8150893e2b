"""A run folder made by hand, without torch; and a real browser."""

import os
import shutil

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings, Run

CLASSES = ("circle", "square", "triangle")
SOFTWARE = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
DIMS = {"h": 12, "z": 6}


def colour_of(row):
    """The colour that thumbnail `row` is painted in: no two rows share it."""
    return np.array(
        [40 + 3 * (row % 60), 40 + 40 * (row // 60 % 4), 230 - 3 * (row % 50)], np.uint8
    )


def make_run(folder, n=240, epochs=4, seed=0, lr=0.01):
    """Three classes that separate as training goes on, with snapshots, history and a diagnosis."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    run = Run.create(
        folder,
        {
            "objective": "InfoNCE(kernel=Cosine(tau=0.2))",
            "epochs": epochs,
            "network": {"encoder": "MLP(d_in=4, d=12)"},
            "optimiser": {"lr": lr},
        },
    )
    ids = np.array([f"s{row:04d}" for row in range(n)])
    thumbnails = np.stack([np.broadcast_to(colour_of(row), (16, 16, 3)) for row in range(n)])
    Embeddings(
        ids=ids,
        labels=labels,
        class_names=CLASSES,
        factors=np.stack([rng.uniform(size=n), labels + 0.1 * rng.normal(size=n)], axis=1),
        factor_names=["size", "corners"],
        split=(np.arange(n) % 4 == 0).astype(int),
        thumbnails=thumbnails,
    ).save(run.embeddings("rows"))
    noise = {space: rng.normal(size=(n, d)) for space, d in DIMS.items()}
    shift = {space: rng.normal(size=(2, n, d)) for space, d in DIMS.items()}
    for epoch in range(epochs + 1):
        vectors = {}
        for space, d in DIMS.items():
            means = 4 * np.eye(3, d)[labels] * epoch / epochs
            vectors[space] = (means + noise[space]).astype(np.float32)
            for view in (0, 1):
                near = 1 - 0.8 * epoch / epochs
                moved = vectors[space] + near * shift[space][view]
                vectors[f"{space}{view + 1}"] = moved.astype(np.float32)
        Embeddings(ids=ids, **vectors).save(run.embeddings(f"epoch-{epoch:04d}"))
    for step in range(1, 10 * epochs + 1):
        run.append({"step": step, "loss": 5.0 / step, "lr": lr}, durable=False)
        if step % 10 == 0:
            epoch = step // 10
            run.append(
                {
                    "step": step,
                    "epoch": epoch,
                    "mean_loss": 5.0 / epoch,
                    "online_knn": 0.3 + epoch / 10,
                },
                durable=False,
            )
    return run


DIAGNOSIS = {
    "verdict": "The projector has collapsed to 3 of 6 dimensions; the encoder has not.",
    "measures": {"effective_rank": 7.25, "knn_accuracy": 0.875},
    "findings": [
        {"name": "few_negatives", "severity": "note", "evidence": "n = 32"},
        {
            "name": "dimensional_collapse",
            "severity": "critical",
            "evidence": "effective rank 3.1 of 6",
            "cause": "weight decay on the projector",
            "change": "--set optimiser.weight_decay=1e-6",
            "expect": "effective rank above 5",
            "paper": "jing2022directclr",
        },
    ],
}


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    made = make_run(tmp_path_factory.mktemp("runs") / "first")
    made.write_diagnosis(DIAGNOSIS)
    return made


@pytest.fixture(scope="session")
def second(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "second", seed=1, lr=0.02)


@pytest.fixture(scope="session")
def chromium():
    names = (os.environ.get("CHIARO_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser: `apt-get install chromium`, or CHIARO_CHROMIUM=PATH")
    return found


@pytest.fixture(scope="session")
def browser(chromium):
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: `.[test]`")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(SOFTWARE))
        yield started
        started.close()


class Opened:
    """A page that was opened, with everything it asked for and every error it had."""

    def __init__(self, browser, address, **options):
        options.setdefault("viewport", {"width": 1280, "height": 900})
        # scrolling at once: a smooth one would still be under way when places are read
        options.setdefault("reduced_motion", "reduce")
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=yes]", state="attached")

    def place(self, row):
        """Where a sample is drawn, in pixels of the window."""
        return self.places([row])[0]

    def places(self, rows):
        """Where samples are drawn, in pixels of the window, all read at one moment."""
        return self.page.evaluate(
            """(rows) => {
              const { map } = chiaroscuro;
              const { left, top } = map.stage.getBoundingClientRect();
              return rows.map((i) => map.place(i)).map(([x, y]) => [left + x, top + y]);
            }""",
            rows,
        )

    def show_map(self):
        self.page.locator("#map .left .stage").scroll_into_view_if_needed()
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")


@pytest.fixture
def opened(browser):
    contexts = []

    def open_page(address, **options):
        one = Opened(browser, address, **options)
        contexts.append(one.context)
        return one

    yield open_page
    for context in contexts:
        context.close()
