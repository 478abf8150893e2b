"""Sixty ways to run a script, as labels, texts, file and class names: none runs."""

import json

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.report import report

RUN = "window.pwned=1"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<SCRIPT>{RUN}</SCRIPT>",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f"<script\x20type='text/javascript'>{RUN}</script>",
    f"<script\x0a>{RUN}</script>",
    f"<script/x>{RUN}</script>",
    f"<script src=data:text/javascript,{RUN}></script>",
    f"<script type=module>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"<!--<script>{RUN}</script>",
    f"]]><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"</textarea><script>{RUN}</script>",
    f"</noscript><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<img src=x onerror='{RUN}'>",
    f'"><img src=x onerror={RUN}>',
    f"'><img src=x onerror={RUN}>",
    f"<img/src=x/onerror={RUN}>",
    f"<image src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg/onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<svg><set onbegin={RUN} attributename=x>",
    f"<svg><a xlink:href='javascript:{RUN}'><text>x</text></a></svg>",
    f"<svg><foreignObject><img src=x onerror={RUN}></foreignObject></svg>",
    f"<math><mtext><img src=x onerror={RUN}></mtext></math>",
    f"<body onload={RUN}>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<iframe src=javascript:parent.{RUN}></iframe>",
    f"<embed src=javascript:{RUN}>",
    f"<object data=javascript:{RUN}></object>",
    f"<a href=javascript:{RUN}>x</a>",
    f"javascript:{RUN}",
    f"JaVaScRiPt:{RUN}",
    f"java\tscript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    f"<video><source onerror={RUN}></video>",
    f"<audio src=x onerror={RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"<select autofocus onfocus={RUN}>",
    f"<marquee onstart={RUN}>",
    f"<style>@import 'javascript:{RUN}';</style>",
    f"<link rel=stylesheet href=javascript:{RUN}>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    f"<base href=javascript:{RUN}//>",
    f"<form action=javascript:{RUN}><button>x</button></form>",
    f"<div style='background:url(javascript:{RUN})'>",
    f"<template><script>{RUN}</script></template>",
    f"\u003cscript\u003e{RUN}\u003c/script\u003e",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
    f"');{RUN};//",
    f'";{RUN};//',
    f"`+{RUN}+`",
    f"\u2028{RUN}\u2029",
    "__proto__",
    "constructor",
]


NAMES = ("constructor", "__proto__", "toString", "hasOwnProperty")


def test_there_are_sixty():
    assert len(set(PAYLOADS)) >= 60


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    n = len(PAYLOADS)
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("hostile")
    name = PAYLOADS[16].replace("/", "\u2215")
    run = Run.create(folder / name, {"objective": PAYLOADS[0], "data": {"source": PAYLOADS[17]}})
    run.append({"step": 1, "loss": 1.0, PAYLOADS[22]: 2.0})
    run.append({"step": 1, "epoch": 1, "mean_loss": 1.0, **dict.fromkeys(PAYLOADS[23:], 2.0)})
    Embeddings(
        h=rng.normal(size=(n, 5)),
        z1=rng.normal(size=(n, 4)),
        z2=rng.normal(size=(n, 4)),
        labels=np.arange(n),
        class_names=PAYLOADS,
        ids=PAYLOADS,
        texts=PAYLOADS,
        factors=rng.normal(size=(n, n)),
        factor_names=PAYLOADS,
        layers={p.replace("/", "|"): rng.normal(size=(n, 3)) for p in (*PAYLOADS[:3], *NAMES)},
    ).save(run.embeddings("all"))
    finding = {key: PAYLOADS[at] for at, key in enumerate(("name", "evidence", "cause", "expect"))}
    papers = [PAYLOADS[36], PAYLOADS[37], PAYLOADS[38], PAYLOADS[39], "https://x/'onclick=" + RUN]
    run.write_diagnosis(
        {
            "verdict": PAYLOADS[1],
            "measures": dict.fromkeys(PAYLOADS, 1.0),
            "findings": [
                {**finding, "paper": paper, "change": PAYLOADS[18], "severity": PAYLOADS[19]}
                for paper in papers
            ],
        }
    )
    results = {p: dict.fromkeys(PAYLOADS[:3], 0.5) for p in PAYLOADS[:5]}
    (run.folder / "evaluation.json").write_text(json.dumps({"results": results}))
    labs = run.folder / "labs"
    labs.mkdir()
    claims = [{"id": p, "statement": p, "paper": p, "ours": {p: p}, "verdict": p} for p in PAYLOADS]
    record = {"lab": PAYLOADS[3], "paper": PAYLOADS[36], "scale": PAYLOADS[5], "claims": claims}
    (labs / "x.json").write_text(json.dumps(record))
    (labs / "x.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" onload="{RUN}"><script>{RUN}</script></svg>'
    )
    return report([run, run], folder / "page.html")


def test_none_runs(opened, hostile):
    one = opened(hostile.as_uri())
    assert one.errors == []
    dialogs = []
    one.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    one.show_map()
    for row in range(0, 60, 7):
        one.page.mouse.move(*one.place(row))
    one.page.mouse.click(*one.place(16))
    one.page.wait_for_selector(".detail .card")
    for option in one.page.get_by_label("Colour").locator("option").all()[:12]:
        one.page.get_by_label("Colour").select_option(option.get_attribute("value"))
    for link in one.page.locator("a").all():
        assert link.get_attribute("href").startswith(("#", "https://"))
    one.page.wait_for_timeout(300)
    assert one.page.evaluate("() => window.pwned") is None
    assert dialogs == []
    assert [url for url in one.requests if not url.startswith(("data:", "file:"))] == []
    assert len([url for url in one.requests if url.startswith("file:")]) == 1
    # nothing was made into an element, and everything is shown as it is written
    inside = (
        "#page script, #page iframe, #page object, #page embed, #page img:not(.figure), #page base"
    )
    assert one.page.locator(inside).count() == 0
    claims = one.page.locator("#labs .claims tbody tr")
    shown = [row.locator("td").first.text_content() for row in claims.all()]
    assert shown == PAYLOADS
    assert one.page.locator(".verdict").first.text_content() == PAYLOADS[1]
    assert one.page.title().startswith(PAYLOADS[16].replace("/", "\u2215"))


def test_a_script_that_gets_in_all_the_same_does_not_run(opened, hostile):
    """The second wall: what is put into the page by hand is stopped by its policy."""
    one = opened(hostile.as_uri())
    one.page.evaluate(
        """(code) => {
          const script = document.createElement("script");
          try { script.textContent = code; document.body.append(script); } catch {}
          const image = document.createElement("img");
          try { image.setAttribute("onerror", code); } catch {}
          image.src = "data:image/png;base64,xx";
          document.body.append(image);
          try { document.body.innerHTML += `<img src=x onerror="${code}">`; } catch {}
          const link = document.createElement("a");
          link.href = `javascript:${code}`;
          document.body.append(link);
          link.click();
        }""",
        RUN,
    )
    one.page.wait_for_timeout(300)
    assert one.page.evaluate("() => window.pwned") is None
