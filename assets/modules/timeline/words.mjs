// What the timeline says in words: under the pointer, of a selection, as a summary, and as a table.

import { announce } from "../copying.mjs";
import { go } from "../navigation.mjs";
import { view as addressView } from "../view_state.mjs";
import { build, parse } from "../urls.mjs";
import { clockText, durationText, valueText } from "./view.mjs";
import { GUTTER, make, TOP } from "./plot.mjs";

export function link(timeline, text, page, params) {
  const keys = addressView();
  const href = build({ page, params: { trace: parse(window.location.pathname).params.trace, ...params }, view: keys.g === undefined ? {} : { g: keys.g }, extra: [] });
  const made = make("a", { href }, text);
  made.addEventListener("click", (event) => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    go(href);
  });
  return made;
}

export function nameOf(timeline, place) {
  const host = timeline.info.hosts[timeline.info.host_of[place]];
  return `Rank ${timeline.info.ranks[place]}${host ? ` · ${host}` : ""}`;
}

export function tellPointer(timeline) {
  const { x, y } = timeline.pointer;
  const place = timeline.shown[Math.floor(timeline.rowAt(y))];
  if (place === undefined) return;
  const moment = clockText(timeline.timeAt(x), timeline.info.start_ns, (timeline.view.t1 - timeline.view.t0) / 50);
  const code = timeline.painted ? timeline.painted.made[Math.min(Math.floor((y - TOP) * timeline.ratio), timeline.painted.height - 1) * timeline.painted.width + Math.min(Math.floor((x - GUTTER) * timeline.ratio), timeline.painted.width - 1)] : 0;
  const mark = timeline.guilty.has(timeline.info.ranks[place]) ? (timeline.guilty.get(timeline.info.ranks[place]) ? " · ▲ root cause" : " · ▲ suspect") : "";
  const silent = timeline.silentSet.has(place) ? " · no log" : "";
  timeline.said.replaceChildren(make("strong", {}, `${nameOf(timeline, place)}${mark}`), ` · ${moment} UTC${silent || (timeline.mode === "heat" ? ` · ${timeline.metric} ${valueText(code, timeline.metric, timeline.info)}` : "")}`);
}

/** What is under the pointer; a hover that goes on is dropped, what was asked for by a click is not. */
export async function hit(timeline, hover = false) {
  const { x, y } = timeline.pointer;
  const row = timeline.shown[Math.floor(timeline.rowAt(y))];
  if (row === undefined) return null;
  const slack = ((timeline.view.t1 - timeline.view.t0) / timeline.plotWidth) * 2;
  const at = timeline.timeAt(x);
  const control = new AbortController();
  if (hover) {
    timeline.hitControl?.abort();
    timeline.hitControl = control;
  }
  try {
    const answer = await fetch(`${timeline.base}/hits?t=${Math.max(0, Math.floor(at - slack))}-${Math.max(0, Math.ceil(at + slack))}&y=${row}-${row}`, { signal: control.signal });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

function opText(timeline, op) {
  const comm = timeline.info.comms[op.comm];
  const parts = [`${op.kind} ${op.seq}${comm ? ` of ${comm[1]}` : ""}`, timeline.info.states[op.state]];
  if (op.late_ns !== null && op.late_ns > 0) parts.push(`${durationText(op.late_ns)} late${op.state === 4 ? " and not there yet" : ""}`);
  if (op.wait_ns !== null && op.wait_ns > 0) parts.push(`waits ${durationText(op.wait_ns)}`);
  return parts.join(", ");
}

export async function tellHit(timeline) {
  if (!timeline.pointer) return;
  const { pointer } = timeline;
  const found = await hit(timeline, true);
  if (!found || timeline.pointer !== pointer || !found.ops.length) return;
  const more = found.total > 1 ? ` (and ${(found.total - 1).toLocaleString("en-US")} more here)` : "";
  timeline.said.append(make("br"), `${opText(timeline, found.ops[0])}${more}`);
}

export function tellSelected(timeline, rank, op, key) {
  const place = timeline.info.ranks.indexOf(rank);
  const parts = [make("strong", {}, `${nameOf(timeline, place)} selected`), " · ", link(timeline, "open the rank", "rank", { rank })];
  const host = timeline.info.hosts[timeline.info.host_of[place]];
  if (host) parts.push(" · ", link(timeline, "its host", "host", { host }));
  if (op && key) parts.push(make("br"), `${opText(timeline, op)} · `, link(timeline, "open the operation", "op", { comm: key, seq: op.seq }));
  timeline.said.replaceChildren(...parts);
  announce(`Rank ${rank} selected${op ? `, ${opText(timeline, op)}` : ""}`);
}

/** The rows with most in the window, each with its code; rows that share a pixel have what is most in it. */
function worst(timeline, limit) {
  const { lines, most, height } = timeline.painted;
  const best = new Map();
  for (let y = 0; y < height; y += 1) {
    const row = Math.floor(timeline.view.y0 + (y / height) * (timeline.view.y1 - timeline.view.y0));
    best.set(row, Math.max(best.get(row) ?? 0, most[lines.of[y]]));
  }
  return [...best].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, limit);
}

export function summary(timeline, hasBars) {
  const [[row, code]] = worst(timeline, 1);
  const place = timeline.shown[row];
  const span = `${clockText(timeline.view.t0, timeline.info.start_ns)} to ${clockText(timeline.view.t1, timeline.info.start_ns)} UTC`;
  const guilty = [...timeline.guilty].map(([rank, sure]) => `rank ${rank} is ${sure ? "the root cause" : "a suspect"}`).join(", ");
  const text = `Timeline of ${timeline.rows} ranks, ${span}, ${hasBars ? "bars" : timeline.metric}. Most: rank ${timeline.info.ranks[place]}, ${valueText(code, timeline.metric, timeline.info)}.${guilty ? ` By the verdict ${guilty}.` : ""}`;
  if (timeline.canvas.getAttribute("aria-label") !== text) timeline.canvas.setAttribute("aria-label", text);
}

export function fillTable(timeline) {
  timeline.table.querySelector(".table-scroll")?.remove();
  if (!timeline.table.open || !timeline.painted) return;
  const body = make("tbody");
  const rows = Math.min(Math.ceil(timeline.view.y1), timeline.rows) - Math.floor(timeline.view.y0);
  for (const [row, code] of worst(timeline, 50)) {
    const place = timeline.shown[row];
    if (place === undefined) continue;
    const rank = timeline.info.ranks[place];
    const guilty = timeline.guilty.has(rank) ? (timeline.guilty.get(rank) ? "▲ root cause" : "▲ suspect") : "";
    body.append(make("tr", {}, make("td", {}, link(timeline, `rank ${rank}`, "rank", { rank })), make("td", {}, timeline.info.hosts[timeline.info.host_of[place]] ?? "–"), make("td", {}, timeline.silentSet.has(place) ? "no log" : valueText(code, timeline.metric, timeline.info)), make("td", {}, guilty)));
  }
  const table = make("table", { class: "table" }, make("thead", {}, make("tr", {}, ...["Rank", "Host", `Most in this window: ${timeline.metric}`, "Verdict"].map((name) => make("th", { scope: "col" }, name)))), body);
  const place = make("div", { class: "table-scroll", tabindex: "0" }, table);
  if (rows > 50) place.append(make("p", { class: "muted" }, `50 of ${rows.toLocaleString("en-US")} rows, those with most first; several rows may share a pixel`));
  timeline.table.append(place);
}
