// What is drawn over heat and bars: hatches, the rows of the verdict, names, axis, crosshair.

import { hatch } from "../flow/strips.mjs";
import { clockText, ticks } from "./view.mjs";
import { GUTTER, TOP } from "./plot.mjs";

export function drawSilent(timeline, pen) {
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, TOP, timeline.plotWidth, timeline.plotHeight);
  pen.clip();
  for (let row = Math.floor(timeline.view.y0); row < Math.ceil(timeline.view.y1); row += 1) {
    const place = timeline.shown[row];
    const tall = Math.max(timeline.rowPx, 1);
    if (timeline.silentSet.has(place)) hatch(pen, GUTTER, timeline.yOf(row), timeline.plotWidth, tall, timeline.look.nolog);
    else if (timeline.info.from_us[place] > timeline.view.t0) hatch(pen, GUTTER, timeline.yOf(row), Math.min(timeline.xOf(timeline.info.from_us[place]) - GUTTER, timeline.plotWidth), tall, timeline.look.nolog);
  }
  pen.restore();
}

/** The rows of the verdict in the hue of the cause, the chosen row, and since when. */
export function drawMarks(timeline, pen) {
  const { look } = timeline;
  const band = (row) => {
    const tall = Math.max(timeline.rowPx, 2);
    return [timeline.yOf(row) + (timeline.rowPx - tall) / 2, tall];
  };
  const inView = (row) => row !== null && row + 1 > timeline.view.y0 && row < timeline.view.y1;
  const labels = [];
  const chosen = timeline.rowOf(timeline.rank);
  if (inView(chosen)) {
    const [y, tall] = band(chosen);
    pen.strokeStyle = look.focus;
    pen.lineWidth = 1.5;
    pen.strokeRect(GUTTER + 0.75, y - 1.5, timeline.plotWidth - 1.5, tall + 3);
    labels.push({ y: y + tall / 2, text: `${timeline.rank}`, colour: look.text, weight: 650, first: 1 });
  }
  for (const [rank, sure] of timeline.guilty) {
    const row = timeline.rowOf(rank);
    if (!inView(row)) continue;
    const [y, tall] = band(row);
    pen.fillStyle = look.cause;
    pen.strokeStyle = look.cause;
    if (tall >= 7) {
      pen.lineWidth = 2;
      pen.setLineDash(sure ? [] : [6, 4]);
      pen.strokeRect(GUTTER + 1, y + 1, timeline.plotWidth - 2, tall - 2);
      pen.setLineDash([]);
    } else if (sure) pen.fillRect(GUTTER, y, timeline.plotWidth, Math.min(tall, 3));
    else for (let x = GUTTER; x < GUTTER + timeline.plotWidth; x += 10) pen.fillRect(x, y, 6, Math.min(tall, 3));
    labels.push({ y: y + tall / 2, text: `▲ ${rank}`, colour: look.causeText, weight: 650, first: 0 });
  }
  drawLabels(timeline, pen, labels);
  for (const incident of timeline.info.incidents) {
    if (incident.since_us === null || incident.since_us < timeline.view.t0 || incident.since_us > timeline.view.t1) continue;
    const x = Math.round(timeline.xOf(incident.since_us)) + 0.5;
    pen.strokeStyle = look.text;
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(x, TOP - 2);
    pen.lineTo(x, TOP + timeline.plotHeight);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = look.text;
    pen.font = `600 11px ${look.font}`;
    const text = `${incident.id} since ${clockText(incident.since_us, timeline.info.start_ns)}`;
    const wide = pen.measureText(text).width;
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    pen.fillText(text, Math.min(Math.max(x - wide / 2, GUTTER), GUTTER + timeline.plotWidth - wide), TOP - 5);
  }
  pen.strokeStyle = look.strong;
  pen.lineWidth = 1;
  pen.strokeRect(GUTTER + 0.5, TOP + 0.5, timeline.plotWidth - 1, timeline.plotHeight - 1);
}

/** Names beside the rows: the verdict's first, then the chosen one, then as many others as have room. */
function drawLabels(timeline, pen, labels) {
  const { look } = timeline;
  const first = Math.floor(timeline.view.y0);
  const last = Math.min(Math.ceil(timeline.view.y1), timeline.rows) - 1;
  const step = [1, 2, 4, 5, 8, 10, 16, 32, 50, 64, 100, 128, 250, 256, 500, 512, 1000, 1024, 2000, 4096].find((each) => each * timeline.rowPx >= 15) ?? 8192;
  const others = [first, last];
  for (let row = Math.ceil(first / step) * step; row <= last; row += step) others.push(row);
  for (const row of others) labels.push({ y: Math.min(Math.max(timeline.yOf(row) + timeline.rowPx / 2, TOP + 5), TOP + timeline.plotHeight - 5), text: `${row === first ? "rank " : ""}${timeline.info.ranks[timeline.shown[row]]}`, colour: look.muted, weight: 400, first: 2 });
  labels.sort((a, b) => a.first - b.first);
  const taken = [];
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const label of labels) {
    if (taken.some((y) => Math.abs(y - label.y) < 12)) continue;
    taken.push(label.y);
    pen.font = `${label.weight} 11px ${look.font}`;
    pen.fillStyle = label.colour;
    pen.fillText(label.text, GUTTER - 8, label.y);
  }
}

export function drawAxis(timeline, pen) {
  const { look, view } = timeline;
  const { step, at } = ticks(view.t0, view.t1, timeline.info.start_ns, Math.max(2, Math.floor(timeline.plotWidth / 130)));
  pen.font = `11px ${look.font}`;
  pen.textBaseline = "alphabetic";
  pen.textAlign = "center";
  for (const moment of at) {
    const x = timeline.xOf(moment);
    pen.strokeStyle = look.strong;
    pen.beginPath();
    pen.moveTo(Math.round(x) + 0.5, TOP + timeline.plotHeight);
    pen.lineTo(Math.round(x) + 0.5, TOP + timeline.plotHeight + 4);
    pen.stroke();
    pen.fillStyle = look.muted;
    const text = clockText(moment, timeline.info.start_ns, step);
    const half = pen.measureText(text).width / 2;
    if (x - half >= GUTTER - 20 && x + half <= timeline.width) pen.fillText(text, x, TOP + timeline.plotHeight + 16);
  }
  pen.textAlign = "right";
  pen.fillStyle = look.muted;
  pen.fillText("UTC", GUTTER - 24, TOP + timeline.plotHeight + 16);
}

export function drawOver(timeline) {
  const pen = timeline.over.getContext("2d");
  pen.setTransform(timeline.ratio ?? 1, 0, 0, timeline.ratio ?? 1, 0, 0);
  pen.clearRect(0, 0, timeline.width ?? 0, timeline.height);
  if (!timeline.pointer || !timeline.look) return;
  const { x, y } = timeline.pointer;
  if (timeline.drag?.box && timeline.drag.moved) {
    pen.strokeStyle = timeline.look.focus;
    pen.lineWidth = 1.5;
    pen.strokeRect(timeline.drag.x, timeline.drag.y, x - timeline.drag.x, y - timeline.drag.y);
    return;
  }
  if (timeline.info.clock_us) {
    // Between hosts, moments within this band cannot be put in order.
    const half = Math.max((timeline.info.clock_us / (timeline.view.t1 - timeline.view.t0)) * timeline.plotWidth, 1);
    pen.fillStyle = timeline.look.focus;
    pen.globalAlpha = 0.16;
    pen.fillRect(Math.max(x - half, GUTTER), TOP, Math.min(2 * half, timeline.plotWidth), timeline.plotHeight);
    pen.globalAlpha = 1;
  }
  pen.strokeStyle = timeline.look.text;
  pen.globalAlpha = 0.55;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(Math.round(x) + 0.5, TOP);
  pen.lineTo(Math.round(x) + 0.5, TOP + timeline.plotHeight);
  pen.moveTo(GUTTER, Math.round(y) + 0.5);
  pen.lineTo(GUTTER + timeline.plotWidth, Math.round(y) + 0.5);
  pen.stroke();
  pen.globalAlpha = 1;
}
