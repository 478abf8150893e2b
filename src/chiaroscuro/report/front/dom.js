// Elements without markup: text is only ever text, so nothing that is shown can run.

const SVG = "http://www.w3.org/2000/svg";

// el("button.quiet", {on: {click}, "aria-label": "…"}, "text", child, …)
export function el(what, attributes = {}, ...children) {
  return fill(document.createElement(what.split(".")[0]), what, attributes, children);
}

export function svg(what, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, what.split(".")[0]), what, attributes, children);
}

function fill(node, what, attributes, children) {
  const classes = what.split(".").slice(1).join(" ");
  if (classes) node.setAttribute("class", classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function refill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

let names = 0;

export function unique(stem) {
  names += 1;
  return `${stem}-${names}`;
}

// Words between backticks are code.
export function prose(text) {
  const parts = text.replaceAll("R^2", "R²").split("`");
  if (parts.length % 2 === 0) return [parts.join("`")]; // one of them is only a letter
  return parts.map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

// A command or setting that one click copies.
export function copyable(text) {
  const said = el("span.said", { "aria-live": "polite" });
  const button = el("button.copy", { type: "button", "aria-label": `Copy ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    said.textContent = (await copy(text)) ? "Copied" : "Select and copy by hand";
    setTimeout(() => (said.textContent = ""), 2000);
  });
  return el("div.command", {}, el("code", { tabindex: "0" }, text), button, said);
}

export function copy(text) {
  return copying(text);
}

async function copying(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // a page from a file may not have a clipboard: the old way
    const field = el("textarea", { "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

export function choice(label, options, value, change) {
  const id = unique("choice");
  const select = el("select", { id, on: { change: (event) => change(event.target.value) } });
  for (const [key, text] of options) {
    select.append(el("option", { value: key, selected: key === value }, text));
  }
  return el("div.choice", {}, el("label", { for: id }, label), select);
}

export function toggle(label, pressed, change, extra = {}) {
  const button = el("button.toggle", { type: "button", "aria-pressed": String(pressed), ...extra });
  button.append(label);
  button.addEventListener("click", () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    change(now);
  });
  return button;
}

// A part of the page that scrolls sideways, and fades on the side where there is more.
export function scroller(label, ...children) {
  return fading(el("div.scroll", { tabindex: "0", role: "region", "aria-label": label }, ...children));
}

export function fading(node) {
  const look = () => {
    const left = node.scrollLeft > 2;
    const right = node.scrollLeft + node.clientWidth < node.scrollWidth - 2;
    node.dataset.more = `${left ? "left" : ""} ${right ? "right" : ""}`.trim();
  };
  node.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(node);
  return node;
}

// Whether this is held in a hand: fingers, no pointer that hovers.
export function byTouch() {
  return matchMedia("(hover: none) and (pointer: coarse)").matches;
}

// Calls draw(width) now and whenever the width of the node changes.
export function responsive(node, draw) {
  let last = 0;
  const look = () => {
    const width = Math.round(node.clientWidth);
    if (width > 0 && width !== last) {
      last = width;
      draw(width);
    }
  };
  new ResizeObserver(look).observe(node);
  return () => {
    last = 0;
    look();
  };
}
