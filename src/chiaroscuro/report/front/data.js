// The document of the page, its arrays decoded when they are first asked for.

import { own } from "./numbers.js";

const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };
const decoded = new WeakMap();

export function read() {
  return JSON.parse(document.getElementById("document").textContent);
}

export function array(blob) {
  if (!decoded.has(blob)) {
    const text = atob(blob.data);
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
    decoded.set(blob, new TYPES[blob.type](bytes.buffer));
    blob.data = null; // the text is not needed again
  }
  return decoded.get(blob);
}

// What can colour the points: [key, name, {kind: "classes"|"numbers", values, names}].
export function colourings(run, space) {
  const { samples } = run;
  const choices = [];
  const classes = (key, name, blob, names, first) => {
    const codes = array(blob);
    choices.push([key, name, { kind: "classes", names, of: (i) => codes[i] - first }]);
  };
  const numbers = (key, name, blob) => {
    const values = array(blob);
    choices.push([key, name, { kind: "numbers", of: (i) => values[i], values }]);
  };
  if (samples.labels) classes("label", "label", samples.labels.codes, samples.labels.names, 1);
  if (samples.coarse) classes("coarse", "coarse label", samples.coarse.codes, samples.coarse.names, 1);
  const { graph } = run.spaces[space];
  const called = Array.from({ length: graph.n_clusters }, (_, c) => `cluster ${c + 1}`);
  classes("cluster", "spectral cluster", graph.clusters, called, 0);
  if (samples.split) classes("split", "split", samples.split, ["train", "test"], 0);
  numbers("norm", `norm of ${space}`, run.spaces[space].norms);
  numbers("hubs", "hubness: lists it is in", run.spaces[space].hubs);
  for (const [name, blob] of Object.entries(samples.factors ?? {})) {
    numbers(`factor ${name}`, `factor: ${name}`, blob);
  }
  return choices;
}

export function labelOf(run, i) {
  const { labels } = run.samples;
  if (!labels) return null;
  const code = array(labels.codes)[i] - 1;
  return code < 0 ? { code, name: "unlabelled" } : { code, name: labels.names[code] ?? String(code) };
}

const SPACES = { h: "encoder h", z: "projector z" };

export function spaceName(space) {
  return own(SPACES, space) ?? space;
}
