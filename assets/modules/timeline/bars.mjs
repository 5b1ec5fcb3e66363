// Bars: one per operation, colour by kind, pattern by state, with its name where there is room.

import { hatch } from "../flow/strips.mjs";
import { LABEL_PX } from "./view.mjs";

const FAMILY = { all_reduce: "a", all_gather: "b", reduce_scatter: "b", send: "c", recv: "c" };
const LETTER = { all_reduce: "R", all_gather: "G", reduce_scatter: "S", send: "→", recv: "←", broadcast: "B", all_to_all: "A", barrier: "|", reduce: "r", gather: "g", scatter: "s", coalesced: "C", other: "o" };

export const FAMILIES = [
  ["a", "all_reduce"],
  ["b", "all_gather, reduce_scatter"],
  ["c", "send, recv"],
  ["d", "others"],
];

export function familyOf(kind) {
  return FAMILY[kind] ?? "d";
}

/** Paints bars; `placeOf` gives the row on the screen of a row of the answer, or undefined. */
export function paintBars(pen, { bars, low, from_us, info, view, width, height, placeOf, colours, chosen }) {
  const rowPx = height / (view.y1 - view.y0);
  const perUs = width / (view.t1 - view.t0);
  const order = Array.from({ length: bars.count }, (_, at) => at);
  // The long ones first: what is short lies on top of them.
  order.sort((a, b) => bars.end[b] - bars.start[b] - (bars.end[a] - bars.start[a]));
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.font = `11px ${colours.font}`;
  for (const at of order) {
    const place = placeOf(low + bars.row[at]);
    if (place === undefined || place + 1 < view.y0 || place > view.y1) continue;
    const x = (from_us + bars.start[at] - view.t0) * perUs;
    const right = (from_us + bars.end[at] - view.t0) * perUs;
    const left = Math.max(x, -2);
    const wide = Math.max(Math.min(right, width + 2) - left, 1);
    const y = (place - view.y0) * rowPx + (rowPx > 6 ? 1 : 0);
    const tall = Math.max(rowPx - (rowPx > 6 ? 2 : 0.5), 1);
    const kind = info.kinds[bars.kind[at]];
    const state = bars.state[at];
    if (state === 4) {
      pen.strokeStyle = colours.muted;
      pen.setLineDash([4, 3]);
      pen.strokeRect(left + 0.5, y + 0.5, wide - 1, Math.max(tall - 1, 1));
      pen.setLineDash([]);
    } else {
      pen.fillStyle = colours[familyOf(kind)];
      pen.fillRect(left, y, wide, tall);
      if (state === 2 && tall >= 4) {
        pen.strokeStyle = colours.wait;
        pen.lineWidth = 1.5;
        pen.strokeRect(left + 0.75, y + 0.75, Math.max(wide - 1.5, 1), Math.max(tall - 1.5, 1));
        pen.lineWidth = 1;
      }
      if (state === 3) hatch(pen, left, y, wide, tall, colours.text);
    }
    if (chosen && chosen.seq === bars.seq[at] && chosen.comm === bars.comm[at]) {
      pen.strokeStyle = colours.focus;
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, y + 1, Math.max(wide - 2, 1), Math.max(tall - 2, 1));
      pen.lineWidth = 1;
    }
    if (tall < 11) continue;
    const visible = Math.min(right, width) - Math.max(x, 0);
    pen.fillStyle = colours.ink;
    if (visible > LABEL_PX) {
      const label = `${kind} ${bars.seq[at]} · ${info.comms[bars.comm[at]]?.[1] ?? ""}${state === 2 ? " · open" : state === 4 ? " · not entered" : ""}`;
      pen.save();
      pen.beginPath();
      pen.rect(Math.max(left, 0), y, visible, tall);
      pen.clip();
      pen.fillText(label, Math.max(left, 0) + 5, y + tall / 2 + 0.5);
      pen.restore();
    } else if (visible > 13) pen.fillText(LETTER[kind] ?? "o", Math.max(left, 0) + visible / 2 - 4, y + tall / 2 + 0.5);
  }
}
