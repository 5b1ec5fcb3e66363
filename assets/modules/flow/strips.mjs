// The strips: one line per channel over the whole order, the shade is the lag. Painted on a canvas.

import { ramp } from "../ramp.mjs";
import { reduced, stripAt } from "./states.mjs";

export const LEFT = 92;
export const STRIP = 15;
export const GAP = 4;
const TOP = 30;
export const STRIPS_MAX = 8;

/** Which channels get a strip: all, or the worst of them where they are many. */
export function shownChannels(index, orders, tick, cause) {
  const channels = index.flow.channels;
  if (channels.length <= STRIPS_MAX) return { shown: channels, hidden: [] };
  const worst = new Map(channels.map((channel) => [channel, Math.max(0, ...stripAt(index, channel, orders.get(channel), tick).map((lag) => lag ?? 0))]));
  const first = new Set(cause.map((edge) => edge[0]));
  const shown = [...channels]
    .sort((a, b) => first.has(b) - first.has(a) || worst.get(b) - worst.get(a) || a - b)
    .slice(0, STRIPS_MAX)
    .sort((a, b) => a - b);
  return { shown, hidden: channels.filter((channel) => !shown.includes(channel)) };
}

export const heightOf = (count) => TOP + count * (STRIP + GAP) + 2;

/** The canvas in the colours of the theme; returns where each strip is, for clicks. */
export function paintStrips(canvas, { index, orders, shown, tick, width, chosen, cause, suspect, names }) {
  const ratio = window.devicePixelRatio || 1;
  const height = heightOf(shown.length);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const colour = ramp(canvas);
  const style = getComputedStyle(canvas);
  const value = (name) => style.getPropertyValue(name).trim();
  const plot = width - LEFT - 6;
  const font = style.fontFamily;
  pen.font = `11.5px ${font}`;
  pen.textBaseline = "middle";
  const order = orders.get(shown[0]);
  pen.fillStyle = value("--muted");
  pen.textAlign = "left";
  pen.fillText(names.first, LEFT, 9);
  pen.textAlign = "right";
  pen.fillText(names.last(order.length), LEFT + plot, 9);
  shown.forEach((channel, at) => {
    const y = TOP + at * (STRIP + GAP);
    const mine = cause.some((edge) => edge[0] === channel);
    pen.fillStyle = channel === chosen ? value("--text") : value("--muted");
    pen.font = `${channel === chosen ? 650 : 400} 11.5px ${font}`;
    pen.textAlign = "right";
    pen.fillText(`${mine ? "▲ " : ""}channel ${channel}`, LEFT - 10, y + STRIP / 2);
    const cells = reduced(stripAt(index, channel, orders.get(channel), tick), Math.floor(plot));
    cells.forEach((lag, cell) => {
      const from = LEFT + Math.floor((cell * plot) / cells.length);
      const to = LEFT + Math.floor(((cell + 1) * plot) / cells.length);
      if (lag === null) hatch(pen, from, y, to - from, STRIP, value("--nolog"));
      else {
        pen.fillStyle = colour(0.08 + 0.92 * Math.min(1, lag));
        pen.fillRect(from, y, to - from, STRIP);
      }
    });
    pen.strokeStyle = value("--line");
    pen.lineWidth = 1;
    pen.strokeRect(LEFT + 0.5, y + 0.5, plot - 1, STRIP - 1);
  });
  const marks = new Map();
  for (const [channel, src, dst] of cause) {
    const ranks = orders.get(channel);
    const position = ranks?.indexOf(src);
    if (!shown.includes(channel) || position === undefined || position < 0) continue;
    // Half way between the two, which is where the edge is; past the end for the one that closes the ring.
    const x = Math.round(LEFT + ((Math.max(position, index.flow.shape === "tree" ? ranks.indexOf(dst) : position) + (index.flow.shape === "tree" ? 0.5 : 1)) / ranks.length) * plot);
    const rows = marks.get(x) ?? { rows: [], label: `rank ${src} → ${dst}` };
    rows.rows.push(shown.indexOf(channel));
    marks.set(x, rows);
  }
  let free = LEFT;
  for (const [x, { rows, label }] of [...marks].sort((a, b) => a[0] - b[0])) {
    const top = TOP - 3;
    pen.strokeStyle = value("--cause-fill");
    pen.lineWidth = 2;
    pen.setLineDash(suspect ? [4, 3] : []);
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, TOP + (Math.max(...rows) + 1) * (STRIP + GAP) - GAP + 2);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = value("--cause-fill");
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x - 5, top - 8);
    pen.lineTo(x + 5, top - 8);
    pen.fill();
    pen.font = `650 11.5px ${font}`;
    pen.fillStyle = value("--cause-text");
    const wide = pen.measureText(label).width;
    const right = x + 10 + wide < LEFT + plot;
    const from = right ? x + 9 : x - 9 - wide;
    // Of labels that would lie on each other the first is kept; the marks are all drawn.
    if (from < free) continue;
    free = from + wide + 12;
    pen.fillStyle = value("--panel");
    pen.fillRect(from - 3, top - 12, wide + 6, 13);
    pen.fillStyle = value("--cause-text");
    pen.textAlign = "left";
    pen.fillText(label, from, top - 5);
  }
  return { top: TOP, plot };
}

/** Hatching: nothing is known here. */
export function hatch(pen, x, y, width, height, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.globalAlpha = 0.65;
  pen.lineWidth = 1;
  pen.beginPath();
  const from = Math.floor((x - height) / 6) * 6;
  for (let at = from; at < x + width; at += 6) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}
