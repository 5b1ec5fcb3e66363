// Keeps what a page shows in its address: an element with `data-view='{"key": "value"}'` sets these keys, null takes
// one away. The entry of the history is replaced: nothing is loaded, and Back leads to the page before.

import { build, parse } from "./urls.mjs";

// Keys of the view that are plain text (see urls.mjs); all others are extra.
const TEXTS = ["c", "m"];

/** The address with some of its keys set (null: taken away); of keys that appear twice the last stays. */
export function withKeys(address, keys) {
  const parsed = parse(address);
  if (parsed.page === null) return address;
  const names = Object.keys(keys);
  const extra = parsed.extra.filter(([name]) => !names.includes(name));
  const view = { ...parsed.view };
  for (const name of names) {
    const value = keys[name] === null || keys[name] === "" ? undefined : String(keys[name]);
    if (TEXTS.includes(name)) view[name] = value;
    else if (value !== undefined) extra.push([name, value]);
  }
  return build({ ...parsed, view, extra });
}

function apply(place) {
  const text = place.getAttribute("data-view");
  if (place.mycroftApplied === text) return;
  place.mycroftApplied = text;
  const here = window.location.pathname + window.location.search;
  const there = withKeys(here, JSON.parse(text));
  if (there !== here) history.replaceState(history.state, "", there + window.location.hash);
}

export function startViewKeys() {
  const all = () => document.querySelectorAll("[data-view]").forEach(apply);
  new MutationObserver(all).observe(document.body, {
    childList: true,
    subtree: true,
    attributes: true,
    attributeFilter: ["data-view"],
  });
}
