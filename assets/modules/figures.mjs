// Puts pictures that the server has drawn into their places: `<div data-svg="…">`.

import { saveButton } from "./pictures.mjs";

const ALLOWED = new Set(["svg", "g", "a", "rect", "line", "path", "circle", "text", "tspan", "title", "desc", "defs", "pattern"]);
const SVG = "http://www.w3.org/2000/svg";

/** Whether an attribute may stand in a picture: no handlers, no styles, links only to places of our own. */
export function isHarmless(name, value) {
  if (name.startsWith("on") || name === "style") return false;
  if (name === "href" || name.endsWith(":href")) return value.startsWith("#") || (value.startsWith("/") && !value.startsWith("//"));
  return !/url\(\s*['"]?\s*(?!#)/i.test(value);
}

/** Parses a picture; anything in it that is not a shape, a text or a link of our own makes it null. */
export function parsePicture(source) {
  const root = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
  for (const node of [root, ...root.querySelectorAll("*")]) {
    if (node.namespaceURI !== SVG || !ALLOWED.has(node.localName)) return null;
    for (const attribute of node.attributes) {
      if (!isHarmless(attribute.name, attribute.value)) return null;
    }
  }
  return root;
}

function fill(place) {
  const source = place.getAttribute("data-svg");
  if (place.mycroftDrawn === source) return;
  place.mycroftDrawn = source;
  const picture = parsePicture(source);
  if (!picture) {
    console.error("a picture was refused: it holds something that is no shape");
    return;
  }
  place.replaceChildren(document.importNode(picture, true), saveButton());
}

export function startFigures() {
  const all = () => document.querySelectorAll("[data-svg]").forEach(fill);
  new MutationObserver(all).observe(document.body, {
    childList: true,
    subtree: true,
    attributes: true,
    attributeFilter: ["data-svg"],
  });
  all();
}
