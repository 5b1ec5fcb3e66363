// The view in the address: what is selected and how far the picture is zoomed. Nothing here rebuilds the page.

import { build, parse } from "./urls.mjs";

const REST_MS = 250;
let waiting = null;
let pending = {};

function here() {
  return parse(window.location.pathname + window.location.search);
}

/** The view of an address with some keys changed; null takes a key out. */
export function merged(view, changes) {
  const made = { ...view, ...changes };
  for (const [key, value] of Object.entries(made)) if (value === null || value === undefined) delete made[key];
  return made;
}

function write(method, changes) {
  const address = here();
  if (address.page === null) return;
  const next = build({ ...address, view: merged(address.view, changes) }) + window.location.hash;
  if (next === window.location.pathname + window.location.search + window.location.hash) return;
  history[method](history.state ?? {}, "", next);
}

/** The keys that the address has now, with those that are about to be written. */
export function view() {
  return merged(here().view, pending);
}

/** Pan, zoom, slider: written a moment after the last change, in place of what was there. */
export function settle(changes) {
  pending = { ...pending, ...changes };
  clearTimeout(waiting);
  waiting = setTimeout(flush, REST_MS);
}

/** Writes at once what `settle` was given. */
export function flush() {
  clearTimeout(waiting);
  if (Object.keys(pending).length) write("replaceState", pending);
  pending = {};
}

/** A selection: a step of its own in the history. Whatever else shows the same hears of it by `mycroft:chosen`. */
export function choose(changes) {
  flush();
  write("pushState", changes);
  window.dispatchEvent(new CustomEvent("mycroft:chosen", { detail: changes }));
}
