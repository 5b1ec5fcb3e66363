// Building pictures in the page: elements with text that can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; children are elements or text, null ones are left out. */
export function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A line of text. */
export function text(x, y, content, kind, anchor = "start") {
  return s("text", { x, y, class: kind, "text-anchor": anchor }, String(content));
}

const canvas = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");

/** A text cut in its middle to at most `width` px. */
export function fit(content, width, font) {
  const whole = String(content);
  canvas.font = font;
  if (canvas.measureText(whole).width <= width) return whole;
  for (let kept = whole.length - 1; kept > 1; kept -= 1) {
    const cut = `${whole.slice(0, Math.ceil(kept / 2))}…${whole.slice(whole.length - Math.floor(kept / 2))}`;
    if (canvas.measureText(cut).width <= width) return cut;
  }
  return "…";
}
