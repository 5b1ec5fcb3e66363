// The window of a timeline and all that follows from it. Pure functions: times in µs after the start of the trace.

export const LEAST_SPAN_US = 20;
export const ROWS_LEAST = 2;
export const BARS_ROW_PX = 4;
export const LABEL_PX = 90;
export const BARS_AGAIN = 9000;

const clampNumber = (value, low, high) => Math.min(Math.max(value, low), high);

/** The window inside of the trace: as long as it was where that fits. */
export function clamped({ t0, t1, y0, y1 }, span, rows) {
  const length = clampNumber(t1 - t0, Math.min(LEAST_SPAN_US, span), span);
  const start = clampNumber(t0, 0, span - length);
  const count = clampNumber(y1 - y0, Math.min(ROWS_LEAST, rows), rows);
  const first = clampNumber(y0, 0, rows - count);
  return { t0: start, t1: start + length, y0: first, y1: first + count };
}

/** The window zoomed in time around a moment; a factor above 1 shows more. */
export function zoomed(view, factor, at) {
  return { ...view, t0: at - (at - view.t0) * factor, t1: at + (view.t1 - at) * factor };
}

/** The window zoomed in rows around a row. */
export function zoomedRows(view, factor, at) {
  return { ...view, y0: at - (at - view.y0) * factor, y1: at + (view.y1 - at) * factor };
}

export function panned(view, us, rows = 0) {
  return { t0: view.t0 + us, t1: view.t1 + us, y0: view.y0 + rows, y1: view.y1 + rows };
}

/** The coarsest level whose bins are not longer than a pixel and a half, else the finest. */
export function levelFor(levels, usPerPixel) {
  const found = levels.findIndex(({ bin_us }) => bin_us <= usPerPixel * 1.5);
  return found < 0 ? levels.length - 1 : found;
}

/** Bars or heat: many bars or low rows are heat, and it takes fewer to come back than to leave. */
export function modeFor(before, total, rowPixels, most) {
  if (total === null || rowPixels < BARS_ROW_PX) return "heat";
  return total <= (before === "bars" ? most : BARS_AGAIN) ? "bars" : "heat";
}

/** The rows in the order that is asked for: positions among all ranks. */
export function ordered(info, order) {
  const all = info.ranks.map((_, at) => at);
  const collator = new Intl.Collator("en", { numeric: true });
  const host = (at) => info.hosts[info.host_of[at]] ?? "￿";
  const place = (at) => info.positions[info.ranks[at]] ?? Number.MAX_SAFE_INTEGER;
  if (order === "host") return all.sort((a, b) => collator.compare(host(a), host(b)) || a - b);
  if (order === "group") return all.sort((a, b) => place(a) - place(b) || a - b);
  if (order === "late") return all.sort((a, b) => info.late_ns[b] - info.late_ns[a] || a - b);
  return all;
}

/** The least time of a code of the scale, ns. */
export function nsOfCode(code, { least_ns, most_ns, top }) {
  return code < 2 ? 0 : least_ns * 10 ** (((code - 2) * Math.log10(most_ns / least_ns)) / (top - 2));
}

export function durationText(ns) {
  if (ns === null || ns === undefined) return "–";
  const size = Math.abs(ns);
  if (size >= 60e9) return `${(ns / 60e9).toFixed(1)} min`;
  if (size >= 1e9) return `${(ns / 1e9).toFixed(size >= 10e9 ? 1 : 2)} s`;
  if (size >= 1e6) return `${(ns / 1e6).toFixed(size >= 10e6 ? 0 : 1)} ms`;
  return `${(ns / 1e3).toFixed(size >= 10e3 ? 0 : 1)} µs`;
}

/** What a code says in words. */
export function valueText(code, metric, info) {
  if (!code) return "nothing";
  if (metric === "state") return info.states[code] ?? "?";
  if (metric === "busy") return `${Math.round(((code - 1) / (info.scale.top - 1)) * 100)} % inside`;
  if (code < 2) return "< 10 µs";
  return `${code > info.scale.top ? "> " : ""}${durationText(nsOfCode(Math.min(code, info.scale.top), info.scale))}`;
}

/**
 * Low, high and greatest code of the scale: the 1st and 99th percentile of a histogram of codes, at least a little apart,
 * and the most there is. What is rarer than one in a hundred keeps the upper half of the ramp: a stall among jitter.
 */
export function scaleOf(histogram, metric, top) {
  if (metric === "busy") return [1, top, top];
  let all = 0;
  for (let code = 1; code < 256; code += 1) all += histogram[code];
  if (!all) return [1, top, top];
  const at = (share) => {
    let seen = 0;
    for (let code = 1; code < 256; code += 1) {
      seen += histogram[code];
      if (seen >= all * share) return code;
    }
    return 255;
  };
  const low = at(0.01);
  const high = Math.max(at(0.99), low + 12);
  return [low, high, Math.max(at(1), high)];
}

const RARE = 0.5;

/** Where a code lies on the ramp, 0 to 1. */
export function shareOf(code, [low, high, most]) {
  const common = Math.min(Math.max((code - low) / (high - low), 0), 1);
  // Only where something stands out by much: else the whole ramp is for what is common.
  if (most < high + 12) return common;
  return code <= high ? common * RARE : RARE + (1 - RARE) * Math.min((code - high) / (most - high), 1);
}

const STEPS_US = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 3e7, 6e7, 12e7, 3e8, 6e8, 12e8, 36e8, 72e8, 216e8, 432e8, 864e8];

/** Round moments of the window, and how long a step is. */
export function ticks(t0, t1, startNs, wanted) {
  const step = STEPS_US.find((each) => (t1 - t0) / each <= wanted) ?? STEPS_US.at(-1);
  const offset = Number((BigInt(startNs) / 1000n) % BigInt(Math.round(step)));
  const made = [];
  for (let at = Math.ceil((t0 + offset) / step) * step - offset; at <= t1; at += step) made.push(at);
  return { step, at: made };
}

/** A moment as time of day, with as many digits as the step needs. */
export function clockText(us, startNs, step = 1000) {
  const all = BigInt(startNs) / 1000n + BigInt(Math.round(us));
  const text = new Date(Number(all / 1000n)).toISOString().slice(11, 19);
  const digits = step >= 1e6 ? 0 : step >= 1e3 ? 3 : 6;
  return digits ? `${text}.${String(all % 1000000n).padStart(6, "0").slice(0, digits)}` : text;
}

/** The bars of an answer; null: an unknown version. */
export function decodeBars(buffer) {
  const head = new DataView(buffer);
  if (head.getUint32(0, true) !== 1) return null;
  const count = head.getUint32(4, true);
  const total = head.getUint32(8, true);
  const estimated = head.getUint32(12, true) === 1;
  let at = 16;
  const take = (Type, size) => {
    const found = new Type(buffer, at, count);
    at += count * size;
    return found;
  };
  return { count, total, estimated, start: take(Float32Array, 4), end: take(Float32Array, 4), row: new Uint16Array(buffer.slice(16 + 8 * count, 16 + 10 * count)), kind: new Uint8Array(buffer, 16 + 10 * count, count), state: new Uint8Array(buffer, 16 + 11 * count, count), seq: new Uint32Array(buffer.slice(16 + 12 * count, 16 + 16 * count)), comm: new Uint32Array(buffer.slice(16 + 16 * count, 16 + 20 * count)) };
}
