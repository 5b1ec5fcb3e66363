// Buttons that copy: `data-copy="text"`, or `data-copy-link` for the address of the page with its generation.

import { build, parse } from "./urls.mjs";

/** Copies text; works on plain HTTP too, where the clipboard interface is missing. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser refused to copy");
}

/** The address of the page with the generation of the trace in it, so that it shows the same later. */
export function pinnedAddress(here, generation) {
  const address = parse(here.pathname + here.search);
  if (address.page === null || !generation) return here.href;
  const pinned = { ...address, view: { ...address.view, g: address.view.g ?? Number(generation) } };
  return here.origin + build(pinned) + here.hash;
}

const BETWEEN_MS = 5000;
let said = null;
let waiting = null;

/** Tells a screen reader: at most one message in five seconds, of those that come closer the last. */
export function announce(message) {
  clearTimeout(waiting);
  const left = said === null ? 0 : said + BETWEEN_MS - Date.now();
  const tell = () => {
    said = Date.now();
    const region = document.getElementById("live-region");
    if (region) region.textContent = message;
  };
  if (left <= 0) tell();
  else waiting = setTimeout(tell, left);
}

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy], [data-copy-link]") : null;
    if (!button) return;
    const generation = document.querySelector("[data-generation]")?.getAttribute("data-generation");
    const text = button.hasAttribute("data-copy-link")
      ? pinnedAddress(window.location, generation)
      : button.getAttribute("data-copy");
    try {
      await copyText(text);
      button.setAttribute("data-copied", "");
      announce("Copied");
      setTimeout(() => button.removeAttribute("data-copied"), 1600);
    } catch (error) {
      announce(`Not copied: ${error.message}`);
    }
  });
}
