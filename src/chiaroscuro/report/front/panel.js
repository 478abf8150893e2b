// A panel explains itself in one sentence, names its source, and says what to run when it is empty.

import { copyable, el, unique } from "./dom.js";
import { paperLink } from "./papers.js";

export function panel(title, sentence, paper, ...body) {
  const id = unique("panel");
  const papers = (Array.isArray(paper) ? paper : [paper]).filter(Boolean);
  const links = papers.map((key) => paperLink(key, el)).flatMap((link, at) => (at ? [", ", link] : [link]));
  return el("section.panel", { "aria-labelledby": id },
    el("h3", { id }, title),
    el("p.explain", {}, sentence, links.length ? " (" : null, links, links.length ? ")" : null),
    ...body);
}

export function empty(sentence, ...commands) {
  return el("div.empty", {}, el("p", {}, sentence), commands.map(copyable));
}

export function section(id, title, ...body) {
  return el("section.part", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), ...body);
}

// Two panels a row; one that would stand alone in its row takes all of it.
export function columns(...body) {
  const panels = body.flat().filter(Boolean);
  let alone = null;
  for (const one of panels) {
    if (one.classList.contains("wide")) {
      alone?.classList.add("wide");
      alone = null;
    } else {
      alone = alone ? null : one;
    }
  }
  alone?.classList.add("wide");
  return el("div.columns", {}, ...panels);
}
