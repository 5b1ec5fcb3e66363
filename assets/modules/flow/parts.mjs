// The parts of a lens: boxes of ranks, bars of counters, edges with their state, pills for what is folded.

import { fit, s, text } from "../svg.mjs";
import { WORDS, said } from "./states.mjs";

export const BOX_HEIGHT = 40;
export const BARS_TOP = 14;
export const BAR = 12;
export const GROUP_GAP = 7;
const FONT = "Inter, sans-serif";

const SENDS = [["G", "ready", "filled by the GPU"], ["T", "moved", "handed to the network"], ["D", "done", "acknowledged"]];
const RECEIVES = [["P", "posted", "buffers posted"], ["R", "moved", "received"], ["C", "done", "consumed by the GPU"]];
export const BARS_HEIGHT = BARS_TOP + 6 * BAR + GROUP_GAP;

export function defs() {
  return s("defs", {}, s("pattern", { id: "flow-hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, s("path", { d: "M0 6 L6 0", class: "flow-hatch-line" })));
}

/** How a rank is drawn: the verdict's root cause, one of several suspects, without a log, waiting, or plain. */
export function kindOf(view, rank, edges) {
  for (const cause of view.flow.causes) if (cause.ranks.includes(rank)) return cause.sure ? "cause" : "suspect";
  if (!(view.flow.ranks[rank]?.log ?? false)) return "nolog";
  return edges.some((edge) => edge && ["upstream", "downstream", "stopped"].includes(edge.state)) ? "wait" : "plain";
}

const KIND_WORDS = { cause: "root cause", suspect: "suspect", nolog: "no log", wait: "waits", plain: "" };

/** A box of a rank; choosing it moves the lens. */
export function box(view, rank, x, y, width, kind) {
  const known = view.flow.ranks[rank] ?? {};
  const mark = kind === "cause" || kind === "suspect" ? "▲ " : "";
  const host = kind === "nolog" ? "no log" : known.entered === false ? "not entered" : (known.host ?? "host unknown");
  const middle = x + width / 2;
  const shownHost = fit(host, width - 8, `11px ${FONT}`);
  const node = s(
    "g",
    { class: "flow-node", tabindex: 0, role: "button", "aria-label": `rank ${rank} ${shownHost}${KIND_WORDS[kind] ? `, ${KIND_WORDS[kind]}` : ""}` },
    s("rect", { x, y, width, height: BOX_HEIGHT, rx: 4, class: `flow-box flow-box--${kind}` }),
    text(middle, y + 17, fit(`${mark}rank ${rank}`, width - 8, `650 12.5px ${FONT}`), `flow-rank flow-rank--${kind}`, "middle"),
    " ",
    text(middle, y + 32, shownHost, `flow-host flow-host--${kind}`, "middle"),
  );
  act(node, () => view.choose(rank));
  return node;
}

function act(node, what) {
  node.addEventListener("click", what);
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    what();
  });
}

function bars(half, named, x, y, width, missing) {
  if (half === null || half.silent) {
    return [
      s("rect", { x: x + 14, y, width: width - 14, height: 3 * BAR - 3, class: missing === "no log" ? "flow-unknown" : "flow-track" }),
      text(x + 14 + (width - 14) / 2, y + 1.5 * BAR + 2, missing, `flow-number ${missing === "no log" ? "flow-number--unknown" : ""}`, "middle"),
    ];
  }
  const number = 26;
  const track = Math.max(width - 14 - number, 10);
  return named.flatMap(([letter, field, meaning], row) => {
    const top = y + row * BAR;
    const value = half[field];
    const share = value === null || !half.total ? 0 : Math.min(value / half.total, 1);
    return [
      s("g", {},
        text(x + 9, top + 8.5, letter, "flow-letter", "end"),
        s("rect", { x: x + 14, y: top, width: track, height: BAR - 3, class: value === null ? "flow-unknown" : "flow-track" }),
        share > 0 ? s("rect", { x: x + 14, y: top, width: Math.max(track * share, 1.5), height: BAR - 3, class: `flow-bar--${letter}` }) : null,
        text(x + 14 + track + 4, top + 8.5, value === null ? "–" : String(value), `flow-number ${value === null ? "flow-number--unknown" : ""}`),
        s("title", {}, `${letter}: ${meaning}, ${value === null ? "not seen by this source" : `${value} of ${half.total}`}`)),
    ];
  });
}

/** The bars under a box: what the rank sends on one edge, and what it receives on the other. */
export function barGroups(view, rank, outgoing, incoming, x, y, width) {
  const log = view.flow.ranks[rank]?.log ?? false;
  const missing = (half) => (!log || half?.silent ? "no log" : "nothing yet");
  return [
    ...(outgoing ? bars(outgoing.send, SENDS, x, y + BARS_TOP, width, missing(outgoing.send)) : []),
    ...(incoming ? bars(incoming.recv, RECEIVES, x, y + BARS_TOP + 3 * BAR + GROUP_GAP, width, missing(incoming.recv)) : []),
  ];
}

export function barNames(view, total, y) {
  const of = total === null || total === undefined ? "" : `of ${total}`;
  return [
    text(84, y + BARS_TOP + 9, "sends", "flow-label", "end"),
    text(84, y + BARS_TOP + 9 + BAR, of, "flow-label", "end"),
    text(84, y + BARS_TOP + 9 + 3 * BAR + GROUP_GAP, "receives", "flow-label", "end"),
    text(84, y + BARS_TOP + 9 + 4 * BAR + GROUP_GAP, of, "flow-label", "end"),
  ];
}

export function isCause(view, edge) {
  return view.flow.causes.some((cause) => cause.edges.some(([channel, src, dst]) => channel === edge.channel && src === edge.src && dst === edge.dst));
}

/** An edge as an arrow from (x1, y1) to (x2, y2); with `bend` it goes up or down at that x and level on either side. */
export function arrow(view, edge, x1, y1, x2, y2, bend = null) {
  const cause = isCause(view, edge);
  const kind = cause && edge.state !== "done" && edge.state !== "moving" ? "cause" : edge.state;
  const [fromX, fromY] = bend === null ? [x1, y1] : [bend, y2];
  const length = Math.hypot(x2 - fromX, y2 - fromY) || 1;
  const [ux, uy] = [(x2 - fromX) / length, (y2 - fromY) / length];
  const [hx, hy] = [x2 - ux * 8, y2 - uy * 8];
  // The cross stands on the longer level part, where no other edge runs.
  const [mx, my] = bend === null ? [(x1 + x2) / 2 - ux * 3, (y1 + y2) / 2 - uy * 3] : Math.abs(x2 - bend) > Math.abs(x1 - bend) ? [(bend + x2) / 2, y2] : [(x1 + bend) / 2, y1];
  const way = bend === null ? "" : `M${x1} ${y1} H${bend} V${y2} H${hx}`;
  const stopped = kind === "cause" || kind === "stopped";
  return s(
    "g",
    {},
    bend === null ? s("line", { x1, y1, x2: hx, y2: hy, class: `flow-edge flow-edge--${kind}` }) : s("path", { d: way, fill: "none", class: `flow-edge flow-edge--${kind}` }),
    s("path", { d: `M${x2} ${y2} L${hx - uy * 4.5} ${hy + ux * 4.5} L${hx + uy * 4.5} ${hy - ux * 4.5} Z`, class: `flow-arrow flow-arrow--${kind}` }),
    stopped ? s("path", { d: `M${mx - 5} ${my - 5} l10 10 m0 -10 l-10 10`, class: `flow-cross flow-cross--${kind}` }) : null,
    s("title", {}, `rank ${edge.src} → rank ${edge.dst}: ${WORDS[edge.state]}. ${said(edge, view.flow.standing_ms)}`),
  );
}

/** A pill that stands for ranks that are folded. */
export function pill(view, x, y, width, first, second, target) {
  const node = s(
    "g",
    { class: "flow-node", tabindex: 0, role: "button", "aria-label": `${first} ${second}: move the lens there` },
    s("rect", { x, y, width, height: BOX_HEIGHT, rx: BOX_HEIGHT / 2, class: "flow-pill" }),
    text(x + width / 2, y + 17, fit(first, width - 16, `11px ${FONT}`), "flow-pill-text", "middle"),
    " ",
    text(x + width / 2, y + 31, fit(second, width - 16, `11px ${FONT}`), "flow-pill-text flow-pill-text--muted", "middle"),
  );
  act(node, () => view.choose(target));
  return node;
}
