// The addresses of the dashboard, read and written as `app/urls.py` does; both are held together by the vectors in
// `tests/data/url_vectors.json`. An address is a page with parameters, a view (the query keys that are known), and
// whatever other keys were there, which are ignored and kept.

export const MAX_INT = Number.MAX_SAFE_INTEGER;

const TEMPLATES = [
  ["traces", "/"],
  ["overview", "/t/<trace>"],
  ["diagnosis", "/t/<trace>/d/<incident>"],
  ["timeline", "/t/<trace>/timeline"],
  ["op", "/t/<trace>/op/<comm>/<seq>"],
  ["rank", "/t/<trace>/rank/<rank>"],
  ["comm", "/t/<trace>/comm/<comm>"],
  ["host", "/t/<trace>/host/<host>"],
  ["stacks", "/t/<trace>/stacks"],
  ["links", "/t/<trace>/links"],
  ["sql", "/t/<trace>/sql"],
  ["files", "/t/<trace>/files"],
  ["file", "/t/<trace>/files/<file>"],
  ["compare", "/compare"],
  ["job", "/jobs/<job>"],
  ["fleet", "/fleet"],
  ["live", "/live"],
  ["live_job", "/live/<job>"],
  ["live_incident", "/live/<job>/d/<incident>"],
];
const INTEGER_PARAMS = new Set(["seq", "rank", "file"]);
const VIEW_INTEGERS = new Set(["op", "r", "ch", "at", "rev", "g"]);
const VIEW_RANGES = new Set(["t", "y"]);
const VIEW_ORDER = ["a", "b", "c", "op", "r", "ch", "t", "at", "y", "m", "o", "rev", "g"];

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8");

/** Undoes percent-encoding; what is no valid UTF-8 becomes the replacement character instead of an error. */
function unquote(text) {
  const bytes = [];
  for (let i = 0; i < text.length; ) {
    const hex = text.slice(i + 1, i + 3);
    if (text[i] === "%" && /^[0-9a-fA-F]{2}$/.test(hex)) {
      bytes.push(Number.parseInt(hex, 16));
      i += 3;
      continue;
    }
    const symbol = String.fromCodePoint(text.codePointAt(i));
    bytes.push(...encoder.encode(symbol));
    i += symbol.length;
  }
  return decoder.decode(new Uint8Array(bytes));
}

function quote(text) {
  return Array.from(encoder.encode(text), (byte) => {
    const symbol = String.fromCharCode(byte);
    return /[A-Za-z0-9_.\-~:@!$,]/.test(symbol) ? symbol : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}

/** A whole number from decimal digits, clamped to what JavaScript holds exactly; null for anything else. */
function whole(text) {
  return /^[0-9]+$/.test(text) ? Math.min(Number(text.slice(0, 32)), MAX_INT) : null;
}

function range(text) {
  const at = text.indexOf("-");
  const start = at < 0 ? null : whole(text.slice(0, at));
  const end = at < 0 ? null : whole(text.slice(at + 1));
  if (start === null || end === null) return null;
  return start <= end ? [start, end] : [end, start];
}

function parsePath(path) {
  const segments = path.split("/").filter(Boolean);
  for (const [name, template] of TEMPLATES) {
    const parts = template.split("/").filter(Boolean);
    if (parts.length !== segments.length) continue;
    const params = {};
    const fits = parts.every((part, i) => {
      if (!part.startsWith("<")) return part === segments[i];
      const key = part.slice(1, -1);
      params[key] = INTEGER_PARAMS.has(key) ? whole(segments[i]) : unquote(segments[i]);
      return params[key] !== null;
    });
    if (fits) return { page: name, params };
  }
  return { page: null, params: {} };
}

/** Reads an address: path and query, no scheme, host or fragment. Never throws. */
export function parse(address) {
  const bare = address.split("#", 1)[0];
  const at = bare.indexOf("?");
  const { page, params } = parsePath(at < 0 ? bare : bare.slice(0, at));
  const view = {};
  const extra = [];
  const problems = [];
  for (const pair of (at < 0 ? "" : bare.slice(at + 1)).split("&")) {
    if (!pair) continue;
    const equals = pair.indexOf("=");
    const plain = (text) => unquote(text.replaceAll("+", " "));
    const key = plain(equals < 0 ? pair : pair.slice(0, equals));
    const text = equals < 0 ? "" : plain(pair.slice(equals + 1));
    if (!VIEW_ORDER.includes(key)) {
      extra.push([key, text]);
      continue;
    }
    const value = VIEW_INTEGERS.has(key) ? whole(text) : VIEW_RANGES.has(key) ? range(text) : text || null;
    if (value === null) problems.push(`${key}=${text.slice(0, 40)} cannot be read and is ignored`);
    else view[key] = value;
  }
  return { page, params, view, extra, problems };
}

/** Writes an address so that `parse` gives it back; keys in one order, so that equal views are equal text. */
export function build({ page, params, view, extra }) {
  const template = TEMPLATES.find(([name]) => name === page)?.[1];
  if (template === undefined) throw new Error("an address without a page has no path");
  const path = template.replace(/<(\w+)>/g, (_, key) => quote(String(params[key])));
  const pairs = VIEW_ORDER.filter((key) => view[key] !== undefined).map((key) => [
    key,
    Array.isArray(view[key]) ? view[key].join("-") : String(view[key]),
  ]);
  const query = [...pairs, ...extra].map(([key, value]) => `${quote(key)}=${quote(value)}`).join("&");
  return path + (query ? `?${query}` : "");
}

/** The address with its numbers inside `extents` (key: [least, greatest]); changes go to `problems`. */
export function clamp(address, extents) {
  const view = { ...address.view };
  const problems = [...address.problems];
  for (const [key, [least, most]] of Object.entries(extents)) {
    const value = view[key];
    let inside;
    if (typeof value === "number") inside = Math.min(Math.max(value, least), most);
    else if (Array.isArray(value)) {
      const apart = value[1] < least || value[0] > most;
      inside = apart ? [least, most] : [Math.max(value[0], least), Math.min(value[1], most)];
    } else continue;
    if (String(inside) !== String(value)) {
      problems.push(`${key} is outside the trace; shown is ${[inside].flat().join("-")}`);
      view[key] = inside;
    }
  }
  return { ...address, view, problems };
}
