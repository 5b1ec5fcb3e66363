// What the server would answer, out of the file itself: JSON, tiles and bars, packed by gzip and base64.
//
// The same pictures are drawn from it as on the dashboard. What the file does not hold is answered with 404, and the
// windows of bars with less than was asked for by no bars at all, so that the picture stays a heat map there.

const HEAD = 16;
const unpacked = new Map();
let held = { json: {}, tiles: {}, bars: {} };

/** Takes what the file holds: address -> base64 of gzip. */
export function take(content) {
  held = content;
}

async function bytesOf(text) {
  if (!unpacked.has(text)) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(text, new Response(stream).arrayBuffer());
  }
  return unpacked.get(text);
}

const NO_BARS = new ArrayBuffer(HEAD);

/** The columns of bars as the server writes them. */
export function columnsOf(buffer) {
  const count = new DataView(buffer).getUint32(4, true);
  const part = (from, to, Type) => new Type(buffer.slice(HEAD + from * count, HEAD + to * count));
  return { count, start: part(0, 4, Float32Array), end: part(4, 8, Float32Array), row: part(8, 10, Uint16Array), kind: part(10, 11, Uint8Array), state: part(11, 12, Uint8Array), seq: part(12, 16, Uint32Array), comm: part(16, 20, Uint32Array) };
}

/** The bars of a smaller window out of those of a larger one, in the same form. */
export function cutBars(buffer, from, { t0, t1, y0, y1 }) {
  const all = columnsOf(buffer);
  const kept = [];
  for (let at = 0; at < all.count; at += 1) {
    if (from + all.end[at] < t0 || from + all.start[at] > t1 || all.row[at] < y0 || all.row[at] > y1) continue;
    kept.push(at);
  }
  const made = new ArrayBuffer(HEAD + 20 * kept.length);
  const head = new DataView(made);
  [1, kept.length, kept.length].forEach((value, at) => head.setUint32(4 * at, value, true));
  const count = kept.length;
  kept.forEach((at, place) => {
    head.setFloat32(HEAD + 4 * place, from + all.start[at] - t0, true);
    head.setFloat32(HEAD + 4 * count + 4 * place, from + all.end[at] - t0, true);
    head.setUint16(HEAD + 8 * count + 2 * place, all.row[at] - y0, true);
    head.setUint8(HEAD + 10 * count + place, all.kind[at]);
    head.setUint8(HEAD + 11 * count + place, all.state[at]);
    head.setUint32(HEAD + 12 * count + 4 * place, all.seq[at], true);
    head.setUint32(HEAD + 16 * count + 4 * place, all.comm[at], true);
  });
  return made;
}

function windowOf(query) {
  const asked = new URLSearchParams(query);
  const [t0, t1] = asked.get("t").split("-").map(Number);
  const [y0, y1] = asked.get("y").split("-").map(Number);
  return { t0, t1, y0, y1 };
}

/** The bars of the file that hold a window whole, or null. */
function holding(base, { t0, t1 }) {
  return (held.bars[base] ?? []).find(({ from, to }) => from <= t0 && to >= t1) ?? null;
}

async function barsOf(base, window) {
  const found = holding(base, window);
  return found ? cutBars(await bytesOf(found.body), found.from, window) : NO_BARS;
}

async function hitsOf(base, window) {
  const found = holding(base, window);
  if (!found) return { total: 0, ops: [] };
  const info = JSON.parse(new TextDecoder().decode(await bytesOf(held.json[`${base}/timeline`])));
  const all = columnsOf(await bytesOf(found.body));
  const middle = (window.t0 + window.t1) / 2;
  const ops = [];
  for (let at = 0; at < all.count; at += 1) {
    const [start, end] = [found.from + all.start[at], found.from + all.end[at]];
    if (all.row[at] !== window.y0 || end < window.t0 || start > window.t1) continue;
    ops.push({ start_us: start, end_us: end, kind: info.kinds[all.kind[at]], state: all.state[at], seq: all.seq[at], comm: all.comm[at], late_ns: null, wait_ns: null });
  }
  const away = (op) => Math.abs(Math.max(op.start_us, middle) - Math.min(op.end_us, middle));
  ops.sort((a, b) => away(a) - away(b) || a.end_us - a.start_us - (b.end_us - b.start_us));
  return { total: ops.length, ops: ops.slice(0, 12) };
}

const answered = (status, body) => ({
  ok: status < 300,
  status,
  json: async () => (body instanceof ArrayBuffer ? JSON.parse(new TextDecoder().decode(body)) : body),
  arrayBuffer: async () => body,
});

/** In place of `fetch`: the same answers, from nowhere but this file. */
export async function answer(address) {
  const [path, query] = address.split("?");
  if (held.json[path] !== undefined) return answered(200, await bytesOf(held.json[path]));
  const [, base, what, tile] = /^([^/]+)\/(\w+)(?:\/(.*))?$/.exec(path) ?? [];
  if (what === "tiles") {
    const cells = held.tiles[`${base}/${tile}`];
    return cells === undefined ? answered(404, { error: "not in this file" }) : cells === "" ? answered(204, null) : answered(200, await bytesOf(cells));
  }
  if (what === "bars") return answered(200, await barsOf(base, windowOf(query)));
  if (what === "hits") return answered(200, await hitsOf(base, windowOf(query)));
  return answered(404, { error: "not in this file" });
}
