// What the parts of a timeline share: the margins of the plot in px, and how elements are made.

export const GUTTER = 92;
export const RIGHT = 8;
export const TOP = 16;
export const AXIS = 20;
export const MAP = 26;

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}
