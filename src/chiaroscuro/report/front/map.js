// The map: points that can be coloured, hovered, encircled, and moved through the epochs.

import { byTouch, el, refill, responsive } from "./dom.js";
import { array, colourings } from "./data.js";
import { extent, format } from "./numbers.js";
import { category, gradient, rgb, scale, shape } from "./palette.js";
import { renderer } from "./renderer.js";
import { card, tile } from "./samples.js";

const NEAR = 14; // pixels at which a point counts as hovered
const MOST_LINES = 4000;
const MOST_IMAGES = 160; // points on the stage up to which their images are drawn
const IMAGE = 34; // pixels of an image on the map, at most

// plan: coordinates to show instead of the run's own maps, such as those of the raw input.
export function pointMap(run, { height = 44, onSelect = () => {}, onLook = () => {}, small = false, plan = null } = {}) {
  const forced = new URLSearchParams(location.search).get("renderer");
  const ground = el("canvas.ground");
  const over = el("canvas.over");
  const tip = el("div.tip", { hidden: true, role: "status" });
  const stage = el("div.stage", {
    tabindex: "0", role: "application",
    "aria-label": plan ? "Map of the raw input, beside that of the embedding" : "Map of the samples. Arrow keys move, plus and minus zoom, 0 shows all, full stop "
      + "and comma go from sample to sample, L switches the lasso.",
  }, ground, over, tip);
  const key = el("div.key");
  const n = run.samples.n;
  const points = renderer(ground, n, forced);
  const rgba = new Uint8Array(4 * n);
  const shapes = new Uint8Array(n);
  const state = {
    space: run.opens?.space ?? Object.keys(run.spaces)[0], map: run.opens?.map ?? "PCA", colour: null,
    t: run.epochs.length - 1, zoom: 1, centre: [0.5, 0.5], lasso: !byTouch(), selected: null, only: null, at: null,
    pairs: false, edges: false, images: !small && Boolean(run.samples.sheets), custom: null,
  };
  const last = plan ? 0 : run.epochs.length - 1; // frame
  let size = { width: 0, height: 0, ratio: 1, rem: 16 };
  let drawn = null;
  let fitted = null;
  let path = null;
  let wanted = false;

  // ---- geometry ----
  const view = () => {
    const side = Math.min(size.width, size.height) * 0.92 * state.zoom;
    return { scale: side, x: size.width / 2 - state.centre[0] * side, y: size.height / 2 + state.centre[1] * side };
  };
  const all = () => array((plan ?? run.spaces[state.space].maps[state.map]).points);
  // calls visit(i, x, y) for every point, without an array for each: there may be 100,000
  const each = (visit, v = view()) => {
    const p = all();
    const low = Math.min(Math.floor(state.t), last);
    const [a, b] = [2 * n * low, 2 * n * Math.min(low + 1, last)];
    const part = Math.min(1, Math.max(0, state.t - low));
    const k = v.scale / 65535;
    for (let i = 0, at = 0; i < n; i += 1, at += 2) {
      visit(i, v.x + k * (p[a + at] + part * (p[b + at] - p[a + at])),
        v.y - k * (p[a + at + 1] + part * (p[b + at + 1] - p[a + at + 1])));
    }
  };
  const place = (i, v = view()) => {
    const p = all();
    const low = Math.min(Math.floor(state.t), last);
    const high = Math.min(low + 1, last);
    const part = Math.min(1, Math.max(0, state.t - low));
    const of = (axis) => {
      const [a, b] = [p[2 * (low * n + i) + axis], p[2 * (high * n + i) + axis]];
      return (a + part * (b - a)) / 65535;
    };
    return [v.x + v.scale * of(0), v.y - v.scale * of(1)];
  };
  let painted = null; // what colours the points now
  const visible = (i) => state.only === null || painted.of(i) === state.only;
  const coloured = () => state.custom ?? colourings(run, state.space).find(([name]) => name === state.colour)[2];
  const name = () => (plan ? "plan" : `${state.space}/${state.map}`);

  // ---- drawing ----
  function paint() {
    const choices = colourings(run, state.space);
    if (!choices.some(([name]) => name === state.colour)) state.colour = choices[0][0];
    const by = coloured();
    painted = by;
    const [low, high] = by.range ?? (by.kind === "numbers" ? spread(by.values) : [0, 1]);
    const chosen = state.selected ? new Uint8Array(n) : null;
    for (const i of state.selected ?? []) chosen[i] = 1;
    const classes = new Map(); // the colour of a class is looked up once
    const ofClass = (value) => {
      if (!classes.has(value)) classes.set(value, rgb(category(value)));
      return classes.get(value);
    };
    for (let i = 0; i < n; i += 1) {
      const value = by.of(i);
      const colour = by.kind === "classes" ? ofClass(value)
        : Number.isFinite(value) ? scale((value - low) / (high - low || 1)) : ofClass(-1);
      rgba.set(colour, 4 * i);
      rgba[4 * i + 3] = (chosen && !chosen[i]) || !visible(i) ? 36 : 220;
      shapes[i] = by.kind === "classes" ? shape(value) : 0;
    }
    points.colours(rgba, shapes);
    drawKey(by, low, high);
    ask();
  }
  function drawKey(by, low, high) {
    if (by.kind === "numbers") {
      const bar = el("span.ramp");
      bar.style.background = gradient();
      refill(key, el("span", {}, format(low)), bar, el("span", {}, format(high)));
      return;
    }
    const buttons = by.names.slice(0, 40).map((name, c) => {
      const dot = el("span.dot", { class: `dot shape-${shape(c)}` });
      dot.style.background = category(c);
      return el("button.chip", {
        type: "button", "aria-pressed": String(state.only === c), "data-class": String(c),
        on: { click: () => { state.only = state.only === c ? null : c; paint(); } },
      }, dot, name);
    });
    const more = by.names.length > 40 ? el("span", {}, `and ${by.names.length - 40} more`) : null;
    refill(key, buttons, more);
  }
  function ask() {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame(() => {
      wanted = false;
      draw();
    });
  }
  function draw() {
    if (!size.width) return;
    if (fitted !== name()) fit();
    const v = view();
    const { ratio } = size;
    const dot = (small ? 3.5 : n > 20000 ? 3 : n > 4000 ? 4 : 6) * ratio * (size.rem / 16) * Math.min(2.2, Math.max(1, Math.sqrt(state.zoom / 1.5)));
    if (drawn !== name()) {
      points.frames(all(), n);
      drawn = name();
    }
    const scaled = { x: v.x * ratio, y: v.y * ratio, scale: v.scale * ratio };
    points.draw({ t: plan ? 0 : state.t, view: scaled, size: dot });
    const context = over.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    const ink = getComputedStyle(stage).color;
    if (state.pairs) drawPairs(context, v, ink);
    if (state.edges) drawEdges(context, v, ink);
    if (state.images) drawImages(context, v);
    if (path) drawPath(context, ink);
    if (state.at !== null) {
      const [x, y] = place(state.at, v);
      context.strokeStyle = ink;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 9, 0, 2 * Math.PI);
      context.stroke();
    }
  }
  // close enough, a point is its image, framed in its colour
  function drawImages(context, v) {
    const { sheets } = run.samples;
    if (!sheets) return;
    const inView = [];
    each((i, x, y) => {
      if (x > 0 && y > 0 && x < size.width && y < size.height && rgba[4 * i + 3] > 100) inView.push([i, x, y]);
    }, v);
    stage.dataset.images = inView.length > MOST_IMAGES ? "0" : String(inView.length);
    if (inView.length > MOST_IMAGES) return;
    const side = Math.max(16, Math.min(IMAGE, 3 * sheets.side)) * (size.rem / 16);
    context.imageSmoothingEnabled = false;
    for (const [i, x, y] of inView) {
      const thumbnail = tile(run, i, ask);
      if (!thumbnail) continue;
      context.fillStyle = `rgb(${rgba[4 * i]} ${rgba[4 * i + 1]} ${rgba[4 * i + 2]})`;
      context.fillRect(x - side / 2 - 2, y - side / 2 - 2, side + 4, side + 4);
      context.drawImage(thumbnail.image, thumbnail.x, thumbnail.y, sheets.side, sheets.side, x - side / 2, y - side / 2, side, side);
    }
  }
  function drawPairs(context, v, ink) {
    const { pairs } = run.spaces[state.space];
    if (plan || !pairs || state.map !== "PCA" || state.t < run.epochs.length - 1) return;
    const [one, two] = [array(pairs["1"]), array(pairs["2"])];
    const step = Math.ceil(n / MOST_LINES);
    context.lineWidth = 1;
    context.globalAlpha = 0.35;
    context.strokeStyle = ink;
    context.beginPath();
    for (let i = 0; i < n; i += step) {
      if (state.selected ? !state.selected.includes(i) : !visible(i)) continue;
      context.moveTo(v.x + (v.scale * one[2 * i]) / 65535, v.y - (v.scale * one[2 * i + 1]) / 65535);
      context.lineTo(v.x + (v.scale * two[2 * i]) / 65535, v.y - (v.scale * two[2 * i + 1]) / 65535);
    }
    context.stroke();
    context.globalAlpha = 1;
  }
  function drawEdges(context, v, ink) {
    const edges = array(run.spaces[state.space].graph.edges);
    context.lineWidth = 0.7;
    context.globalAlpha = 0.22;
    context.strokeStyle = ink;
    context.beginPath();
    for (let at = 0; at < edges.length; at += 2) {
      if (!visible(edges[at])) continue;
      context.moveTo(...place(edges[at], v));
      context.lineTo(...place(edges[at + 1], v));
    }
    context.stroke();
    context.globalAlpha = 1;
  }
  function drawPath(context, ink) {
    context.beginPath();
    path.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.closePath();
    context.globalAlpha = 0.12;
    context.fillStyle = ink;
    context.fill();
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    context.strokeStyle = ink;
    context.stroke();
  }

  // ---- looking at one sample ----
  function nearestTo(x, y) {
    let best = null;
    let least = NEAR * NEAR;
    each((i, px, py) => {
      const far = (px - x) * (px - x) + (py - y) * (py - y);
      if (far < least && visible(i)) {
        best = i;
        least = far;
      }
    });
    return best;
  }
  // told: by another map, which has said it already
  function lookAt(i, told = false) {
    if (i === state.at) return;
    state.at = i;
    if (!told) onLook(i);
    tip.hidden = i === null || small;
    if (i !== null && !small) {
      refill(tip, card(run, state.space, i));
      const [x, y] = place(i);
      const right = x > size.width / 2;
      tip.style.left = right ? "auto" : `${x + 16}px`;
      tip.style.right = right ? `${size.width - x + 16}px` : "auto";
      const tall = tip.offsetHeight;
      tip.style.top = `${Math.max(4, Math.min(size.height - tall - 4, y - tall / 2))}px`;
      const wide = tip.offsetWidth; // on a narrow stage neither side has room: inside all the same
      if ((right ? x : size.width - x) < wide + 20) {
        tip.style.left = `${Math.max(4, Math.min(size.width - wide - 4, right ? x - wide - 16 : x + 16))}px`;
        tip.style.right = "auto";
      }
    }
    ask();
  }

  // ---- pointer ----
  let held = null;
  const where = (event) => {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { from: where(event), centre: [...state.centre], lasso: state.lasso !== event.shiftKey, moved: false };
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    const [x, y] = where(event);
    if (!held) {
      lookAt(nearestTo(x, y));
      return;
    }
    held.moved ||= Math.hypot(x - held.from[0], y - held.from[1]) > 4;
    if (!held.moved) return;
    lookAt(null);
    if (held.lasso) {
      path ??= [held.from];
      path.push([x, y]);
    } else {
      const { scale: k } = view();
      state.centre = [held.centre[0] - (x - held.from[0]) / k, held.centre[1] + (y - held.from[1]) / k];
    }
    ask();
  });
  stage.addEventListener("pointerup", (event) => {
    if (held && !held.moved) select(nearestTo(...where(event)) === null ? null : [nearestTo(...where(event))]);
    else if (held?.lasso && path?.length > 2) select(inside(path));
    path = null;
    held = null;
    ask();
  });
  stage.addEventListener("pointerleave", () => !held && lookAt(null));
  stage.addEventListener("wheel", (event) => {
    if ((small && !plan) || !(event.ctrlKey || event.metaKey || document.activeElement === stage)) return;
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY / 300), where(event));
  }, { passive: false });
  function inside(polygon) {
    const rows = [];
    each((i, x, y) => { if (visible(i) && within(polygon, x, y)) rows.push(i); });
    return rows;
  }
  function zoomBy(factor, [x, y] = [size.width / 2, size.height / 2]) {
    const before = view();
    state.zoom = Math.min(400, Math.max(0.5, state.zoom * factor));
    const after = view();
    for (const [axis, sign, p, low] of [[0, 1, x, before.x], [1, -1, y, before.y]]) {
      const value = (sign * (p - low)) / before.scale;
      const middle = axis ? size.height / 2 : size.width / 2;
      state.centre[axis] = value - (sign * (p - middle)) / after.scale;
    }
    lookAt(null);
    ask();
  }
  function select(rows, told = false) {
    state.selected = rows?.length ? rows : null;
    paint();
    if (!told) onSelect(state.selected);
  }

  // ---- keys ----
  const step = 0.08;
  const keys = {
    ArrowLeft: () => (state.centre[0] -= step / state.zoom),
    ArrowRight: () => (state.centre[0] += step / state.zoom),
    ArrowUp: () => (state.centre[1] += step / state.zoom),
    ArrowDown: () => (state.centre[1] -= step / state.zoom),
    "+": () => zoomBy(1.25), "=": () => zoomBy(1.25), "-": () => zoomBy(0.8),
    0: () => fit(),
    ".": () => lookAt(next(1)), ",": () => lookAt(next(-1)),
    Enter: () => state.at !== null && select([state.at]),
    Escape: () => select(null),
  };
  function next(by) {
    const among = state.selected ?? Array.from({ length: n }, (_, i) => i).filter(visible);
    const at = among.indexOf(state.at);
    return among[(at + by + among.length) % among.length] ?? null;
  }
  // all points of this epoch, as large as they fit
  function fit() {
    const p = all();
    const low = [65535, 65535];
    const high = [0, 0];
    const from = Math.min(last, Math.round(state.t)) * n * 2;
    for (let at = from; at < from + 2 * n; at += 1) {
      low[at & 1] = Math.min(low[at & 1], p[at]);
      high[at & 1] = Math.max(high[at & 1], p[at]);
    }
    state.centre = [0, 1].map((axis) => (low[axis] + high[axis]) / 2 / 65535);
    const room = [size.width, size.height].map((side, axis) => side / ((high[axis] - low[axis]) / 65535 + 0.001));
    state.zoom = Math.min(400, Math.min(...room) / Math.min(size.width, size.height));
    fitted = name();
    ask();
  }
  stage.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
    ask();
  });
  stage.addEventListener("blur", () => lookAt(null));

  const redraw = responsive(stage, (width) => {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const tall = small ? Math.min(width, (plan ? 15 : 20) * rem) : Math.min(height * rem, Math.max(320, width * 0.85));
    stage.style.height = `${tall}px`;
    size = { width, height: tall, ratio, rem };
    fitted = null;
    for (const canvas of [ground, over]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(tall * ratio);
    }
    draw();
  });
  addEventListener("theme", paint);
  paint();
  // the points as they are drawn now: [id, x, y, label or value, colour]
  function table() {
    const rows = [];
    const v = { x: 0, y: 0, scale: 1 };
    each((i, x, y) => rows.push([run.samples.ids[i], x, -y, painted.kind === "classes" ? painted.names[painted.of(i)] ?? "" : painted.of(i),
      rgba.slice(4 * i, 4 * i + 3)]), v);
    return rows;
  }
  return {
    table, touches: () => { stage.style.touchAction = state.lasso ? "none" : "pan-y"; },
    stage, key, state, renderer: points.kind, paint, ask, draw, fit, zoomBy, select, lookAt, redraw, place,
    finish: points.finish,
  };
}

function spread(values) {
  const some = Array.from(values).filter(Number.isFinite).sort((a, b) => a - b);
  const at = (share) => some[Math.floor(share * (some.length - 1))];
  const [low, high] = [at(0.01), at(0.99)];
  return low < high ? [low, high] : extent(some);
}

function within(polygon, x, y) {
  let odd = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i, i += 1) {
    const [[xi, yi], [xj, yj]] = [polygon[i], polygon[j]];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) odd = !odd;
  }
  return odd;
}
