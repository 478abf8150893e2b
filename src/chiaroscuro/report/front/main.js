// The page: a header, and the sections of one run or of several.

import { el, fading, refill } from "./dom.js";
import { read } from "./data.js";
import { format, learn } from "./numbers.js";
import { compareSection } from "./compare.js";
import { exploreSection } from "./explore.js";
import { listPage } from "./list.js";
import { countOf, geometrySection, graphSection, labsSection, madeSection, trainingSection, viewsSection } from "./panels.js";
import { setTheme, theme } from "./palette.js";
import { verdictSection } from "./verdict.js";

const content = read();
learn(content.measures);
const page = document.getElementById("page");
const token = new URLSearchParams(location.search).get("token");

// An address of the live server; the token goes along.
function address(path, query = {}) {
  const words = new URLSearchParams({ token: token ?? "" });
  for (const [key, values] of Object.entries(query)) for (const value of values) words.append(key, value);
  return `/${path}?${words}`;
}

function header(links) {
  const button = el("button.quiet", { type: "button", "aria-label": "Switch between light and dark" }, "◐");
  button.addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
  const brand = content.live
    ? el("a.brand", { href: address("") }, "Chiaroscuro")
    : el("span.brand", {}, "Chiaroscuro");
  const nav = fading(el("nav", { "aria-label": "Sections", tabindex: "0" }, links.map(([id, name]) => el("a", { href: `#${id}` }, name))));
  return el("header.top", {}, el("a.skip", { href: "#top" }, "Skip to the content"), brand, nav,
    el("span.live", { role: "status" }), button);
}

const NAMES = {
  compare: "Compare", verdict: "Verdict", map: "Map", training: "Training", geometry: "Geometry",
  graph: "Graph", views: "Views", labs: "Labs", made: "Settings",
};

function reportPage() {
  const { runs } = content;
  const details = el("div");
  const tabs = el("div.tabs", { role: "group", "aria-label": "Run" });
  let current = null;
  const open = (at, scroll = true) => {
    const run = runs[at];
    const followers = [];
    const follow = (index, epoch) => followers.forEach((follower) => follower(index, epoch));
    // the geometry registers its follower before the slider first calls
    const geometry = geometrySection(run, followers);
    const onlyLabs = run.labs.length > 0 && !run.samples && !run.made && !run.diagnosis;
    const explored = onlyLabs ? null : exploreSection(run, follow);
    const show = (ids) => explored.showIds?.(ids) ?? 0;
    const parts = onlyLabs ? [labsSection(run)] : [verdictSection(run, show), explored, trainingSection(run), geometry,
      graphSection(run), viewsSection(run), labsSection(run), madeSection(run)].filter(Boolean);
    current = { run, parts };
    refill(details, el("h1", {}, run.name), el("p.explain", {}, about(run)), ...parts);
    refill(tabs, runs.length > 1 ? runs.map((one, k) => el("button.toggle", {
      type: "button", "aria-pressed": String(k === at), on: { click: () => open(k) },
    }, one.name)) : null);
    if (scroll && runs.length > 1) details.scrollIntoView();
  };
  open(0, false);
  const compared = runs.length > 1 ? compareSection(runs, open) : null;
  const ids = [...(compared ? ["compare"] : []), ...current.parts.map((part) => part.id)];
  refill(page, header(ids.map((id) => [id, NAMES[id]])),
    el("main", { id: "top" }, compared ? el("h1", {}, "Comparison of runs") : null, compared, tabs, details),
    el("footer", {}, "Made with Chiaroscuro. This page contains all its data and loads nothing from the network."));
  globalThis.chiaroscuro = { content, get map() { return details.querySelector("#map").map; } };
  if (content.live) liveCurves(() => current);
}

function about(run) {
  const parts = [];
  const flat = run.made?.flat;
  if (flat) parts.push(flat.objective, flat["network.encoder"], flat["data.source"]);
  if (run.samples) parts.push(`${format(countOf(run))} samples`);
  if (run.epochs?.length > 1) parts.push(`${run.epochs.length} snapshots to epoch ${run.epochs.at(-1)}`);
  return parts.filter(Boolean).join(" · ");
}

// ---- live ----

function events(query, heard) {
  const source = new EventSource(address("events", query));
  const said = document.querySelector(".live");
  source.addEventListener("open", () => (said.textContent = "● live"));
  source.addEventListener("error", () => (said.textContent = "○ the server is gone; waiting for it"));
  source.addEventListener("message", (event) => heard(JSON.parse(event.data)));
}

function liveCurves(current) {
  const said = document.querySelector(".live");
  events({ run: content.live }, (news) => {
    const { run, parts } = current();
    const mine = news[content.live[content.runs.indexOf(run)]];
    if (!mine?.training) return;
    run.training = mine.training;
    parts.find((part) => part.id === "training")?.refresh();
    if (mine.snapshots > (run.epochs?.length ?? 0)) {
      refill(said, "● live, ", el("a", { href: location.href }, `${mine.snapshots} snapshots: reload the map`));
    }
  });
}

if (content.kind === "list") {
  const list = listPage(content, address);
  refill(page, header([]), list.node);
  globalThis.chiaroscuro = { content };
  events({}, list.update);
} else reportPage();
document.documentElement.dataset.ready = "yes";
