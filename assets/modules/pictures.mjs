// Saves a picture that stands on a page as PNG, in the colours of the theme: its styles are written into a copy, which
// the browser draws on a canvas. Nothing leaves the browser.

import { announce } from "./copying.mjs";

const PIXELS = 2;
const MARGIN = 12;
// What the style sheets set on shapes and texts; everything else keeps the default of the browser.
const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap", "opacity",
  "font-family", "font-size", "font-weight", "font-style", "letter-spacing", "paint-order", "visibility", "display",
];

/** A copy of `svg` that looks the same without the style sheets of the page. */
export function standalone(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, at) => {
    const computed = getComputedStyle(node);
    for (const name of STYLES) to[at].style.setProperty(name, computed.getPropertyValue(name));
    to[at].removeAttribute("class");
  });
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  return copy;
}

/** A name of a file from the heading of the panel around a picture. */
export function fileName(title, trace) {
  const plain = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60);
  return `${["mycroft", plain(trace), plain(title) || "picture"].filter(Boolean).join("-")}.png`;
}

async function fontRule() {
  // A picture that is drawn from text cannot see the fonts of the page: they go into it.
  const answer = await fetch("/assets/fonts/inter.woff2");
  const bytes = new Uint8Array(await answer.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return `@font-face { font-family: "Inter"; font-weight: 100 900; src: url(data:font/woff2;base64,${btoa(text)}); }`;
}

/** The picture as PNG. */
export async function toPng(svg) {
  const copy = standalone(svg);
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = await fontRule();
  copy.prepend(style);
  const { width, height } = svg.getBoundingClientRect();
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil((width + 2 * MARGIN) * PIXELS);
  canvas.height = Math.ceil((height + 2 * MARGIN) * PIXELS);
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel").trim();
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(PIXELS, PIXELS);
  context.drawImage(image, MARGIN, MARGIN, width, height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png");
  });
}

async function save(button) {
  const svg = button.parentElement?.querySelector("svg");
  if (!svg) return;
  const title = button.closest(".panel")?.querySelector(".panel__title")?.textContent ?? "";
  const trace = /^\/t\/([^/]+)/.exec(location.pathname)?.[1] ?? "";
  button.disabled = true;
  try {
    const address = URL.createObjectURL(await toPng(svg));
    const link = document.createElement("a");
    link.href = address;
    link.download = fileName(title, trace);
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } catch (error) {
    announce(`Not saved: ${error.message}`);
  } finally {
    button.disabled = false;
  }
}

/** A button that saves the picture beside it. */
export function saveButton() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button button--small figure__save";
  button.textContent = "PNG";
  button.setAttribute("aria-label", "Save this picture as PNG");
  button.addEventListener("click", () => save(button));
  return button;
}
