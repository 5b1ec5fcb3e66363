// The lens on a part of the flow: three ranks before and after in a ring, the way to the root in a tree, or pairs.

import { s, text } from "../svg.mjs";
import { arrow, barGroups, barNames, BARS_HEIGHT, box, BOX_HEIGHT, kindOf, pill } from "./parts.mjs";
import { childrenOf, edgeAt, folded, runs } from "./states.mjs";

const LEFT = 92;
const AROUND = 3;

function picture(width, height, label, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "flow__svg", role: "group", "aria-label": label }, ...children);
}

/** Seven ranks of a ring around the chosen one; the rest is folded into a pill on either side. */
export function ringLens(view, width) {
  const { index, flow, tick, channel, rank } = view;
  const order = flow.orders[channel];
  const size = order.length;
  const at = Math.max(0, order.indexOf(rank));
  const wrap = (place) => order[((place % size) + size) % size];
  const whole = size <= 2 * AROUND + 1;
  const from = whole ? at - Math.floor((size - 1) / 2) : at - AROUND;
  const count = whole ? size : 2 * AROUND + 1;
  const shown = Array.from({ length: count }, (_, i) => wrap(from + i));
  const edge = (src, dst) => edgeAt(index, channel, src, dst, tick);
  const ends = whole ? 64 : 132;
  const slot = Math.min((width - LEFT - 2 * ends) / count, 170);
  const boxWidth = Math.min(slot - 42, 112);
  const start = LEFT + ends + Math.max(0, (width - LEFT - 2 * ends - slot * count) / 2);
  const y = 4;
  const middle = y + BOX_HEIGHT / 2;
  const parts = [text(84, middle + 4, `channel ${channel}`, "flow-label--strong", "end")];
  const boxX = (i) => start + slot * i + (slot - boxWidth) / 2;
  const total = index.flow.halves.find((half) => half[0] === channel)?.[5];
  parts.push(...barNames(view, total, y + BOX_HEIGHT));
  shown.forEach((name, i) => {
    const out = size > 1 ? edge(name, wrap(from + i + 1)) : null;
    const into = size > 1 ? edge(wrap(from + i - 1), name) : null;
    if (i < count - 1) parts.push(arrow(view, out, boxX(i) + boxWidth + 3, middle, boxX(i + 1) - 3, middle));
    parts.push(box(view, name, boxX(i), y, boxWidth, kindOf(view, name, [out, into])));
    if (name === rank) parts.push(s("rect", { x: boxX(i) - 3, y: y - 3, width: boxWidth + 6, height: BOX_HEIGHT + 6, rx: 6, class: "flow-chosen" }));
    parts.push(...barGroups(view, name, out, into, boxX(i) - 8, y + BOX_HEIGHT, boxWidth + 20));
  });
  const rest = Array.from({ length: size - count }, (_, i) => wrap(from + count + i));
  const half = Math.ceil(rest.length / 2);
  const sides = rest.length ? [rest.slice(half), rest.slice(0, half)] : [[], []];
  const states = (ranks) => ranks.map((name) => edge(name, wrap(order.indexOf(name) + 1)).state);
  const named = (ranks) => {
    const text = runs([...ranks].sort((a, b) => a - b));
    return `${ranks.length} rank${ranks.length === 1 ? "" : "s"}${text.length < 10 ? ` · ${text}` : ""}`;
  };
  const last = boxX(count - 1) + boxWidth;
  if (rest.length) {
    const pillWidth = ends - 16;
    if (sides[0].length) {
      parts.push(pill(view, LEFT, y, pillWidth, named(sides[0]), folded(states(sides[0])), sides[0].at(-1)));
      parts.push(arrow(view, edge(sides[0].at(-1), shown[0]), LEFT + pillWidth + 3, middle, boxX(0) - 3, middle));
    } else parts.push(arrow(view, edge(wrap(from - 1), shown[0]), boxX(0) - 34, middle, boxX(0) - 3, middle));
    parts.push(arrow(view, edge(shown.at(-1), sides[1][0]), last + 3, middle, width - pillWidth - 5, middle));
    parts.push(pill(view, width - pillWidth - 2, y, pillWidth, named(sides[1]), folded(states(sides[1])), sides[1][0]));
  } else if (size > 1) {
    // The ring closes: the last sends to the first.
    const closing = edge(shown.at(-1), shown[0]);
    parts.push(arrow(view, closing, boxX(0) - 40, middle, boxX(0) - 3, middle), text(boxX(0) - 46, middle - 6, "from", "flow-label", "end"), text(boxX(0) - 46, middle + 8, String(shown.at(-1)), "flow-label", "end"));
    parts.push(arrow(view, closing, last + 3, middle, last + 40, middle), text(last + 46, middle - 6, "to", "flow-label"), text(last + 46, middle + 8, String(shown[0]), "flow-label"));
  }
  const label = `Lens on channel ${channel}: ranks ${shown.join(", ")} in the order of the ring`;
  return { svg: picture(width, y + BOX_HEIGHT + BARS_HEIGHT + 6, label, ...parts), positions: [at - (at - from), count], from: ((from % size) + size) % size, count, size };
}

// Between the boxes of a tree: the arrows' bends, and the bars of the upper end of the edge.
const TREE_GAP = 112;
const TREE_SLOT_LEAST = 196;

/**
 * The way from the chosen rank up to the root, and its children; what goes up and what comes down on each line. Of each
 * edge both ends are told: the lower one under its box, the upper one between the boxes.
 */
export function treeLens(view, width, channel) {
  const { index, flow, tick } = view;
  const { root, parents } = flow.trees[channel];
  const children = childrenOf(parents);
  const rank = flow.ranks[view.rank] && (view.rank === root || parents[view.rank] !== undefined) ? view.rank : root;
  const path = [rank];
  while (parents[path[0]] !== undefined && path.length < 64) path.unshift(parents[path[0]]);
  const kids = children.get(rank) ?? [];
  const most = Math.max(2, Math.floor((width - LEFT - 20) / TREE_SLOT_LEAST) - (kids.length ? 1 : 0));
  // The root, a fold, and the last of the way where it is too long to be drawn.
  const shown = path.length <= most ? path : [path[0], null, ...path.slice(path.length - (most - 2))];
  const columns = shown.length + (kids.length ? 1 : 0);
  const slot = Math.min((width - LEFT) / columns, 232);
  const boxWidth = Math.min(slot - TREE_GAP, 112);
  const block = BOX_HEIGHT + BARS_HEIGHT + 12;
  const rows = Math.max(1, kids.length);
  const y = 4 + ((rows - 1) * block) / 2;
  const parts = [text(84, y + BOX_HEIGHT / 2 + 4, `channel ${channel}`, "flow-label--strong", "end")];
  const total = flow.halves.find((half) => half[0] === channel)?.[5];
  if (shown.length > 1 || kids.length) parts.push(...barNames(view, total, y + BOX_HEIGHT));
  const x = (column) => LEFT + column * slot + (column === 0 ? 4 : (slot - boxWidth) / 2);
  const edge = (src, dst) => edgeAt(index, channel, src, dst, tick);
  const both = (child, parent) => [edge(child, parent), edge(parent, child)];
  const draw = (name, column, top) => {
    const parent = parents[name];
    const [up, down] = parent === undefined ? [null, null] : both(name, parent);
    const below = (children.get(name) ?? []).flatMap((child) => both(child, name));
    parts.push(box(view, name, x(column), top, boxWidth, kindOf(view, name, [up, down, ...below])));
    if (name === view.rank) parts.push(s("rect", { x: x(column) - 3, y: top - 3, width: boxWidth + 6, height: BOX_HEIGHT + 6, rx: 6, class: "flow-chosen" }));
    if (parent === undefined) parts.push(text(x(column) + boxWidth / 2, top + BOX_HEIGHT + BARS_TOP_TEXT, "root", "flow-label", "middle"));
    else parts.push(...barGroups(view, name, up, down, x(column) - 8, top + BOX_HEIGHT, boxWidth + 20));
  };
  const line = (child, parent, fromColumn, fromTop, toColumn, toTop) => {
    const [up, down] = both(child, parent);
    const a = { x: x(fromColumn) + boxWidth + 4, y: fromTop + BOX_HEIGHT / 2 };
    const b = { x: x(toColumn) - 4, y: toTop + BOX_HEIGHT / 2 };
    const bent = a.y !== b.y;
    parts.push(arrow(view, up, b.x, b.y - 6, a.x, a.y - 6, bent ? a.x + 10 : null), arrow(view, down, a.x, a.y + 6, b.x, b.y + 6, bent ? a.x + 16 : null));
    const left = a.x + 18;
    const room = b.x - 8 - left;
    if (room < BETWEEN_LEAST) return;
    parts.push(text(left + room / 2 + 8, toTop + BOX_HEIGHT + 9, `at rank ${parent}`, "flow-label", "middle"));
    parts.push(...barGroups(view, parent, down, up, left, toTop + BOX_HEIGHT, room));
  };
  shown.forEach((name, column) => {
    if (name === null) {
      const hidden = path.slice(1, path.length - (shown.length - 2));
      const states = hidden.map((each) => edge(each, parents[each]).state);
      parts.push(pill(view, x(column), y, boxWidth, `${hidden.length} ranks`, folded(states), hidden.at(-1)));
      return;
    }
    draw(name, column, y);
    if (column && shown[column - 1] !== null) line(name, shown[column - 1], column - 1, y, column, y);
  });
  kids.forEach((kid, row) => {
    const top = 4 + row * block;
    draw(kid, shown.length, top);
    line(kid, rank, shown.length - 1, y, shown.length, top);
    const beneath = countBeneath(children, kid);
    if (beneath) parts.push(text(x(shown.length) + boxWidth + 8, top + BOX_HEIGHT / 2 + 4, `+ ${beneath} below`, "flow-label"));
  });
  return picture(width, 4 + rows * block, `Lens on the tree of channel ${channel}: from the root ${path.join(", ")}`, ...parts);
}

const BARS_TOP_TEXT = 22;
const BETWEEN_LEAST = 56;

function countBeneath(children, rank) {
  let count = 0;
  const queue = [...(children.get(rank) ?? [])];
  while (queue.length) {
    count += 1;
    queue.push(...(children.get(queue.pop()) ?? []));
  }
  return count;
}

export const PAIRS_SHOWN = 6;

/** Sender and receiver of one edge side by side, with all that both say. */
export function pairLens(view, width, edges) {
  const block = BOX_HEIGHT + BARS_HEIGHT + 6;
  const columns = width >= 860 ? 2 : 1;
  const slot = (width - LEFT) / columns;
  const boxWidth = Math.min(112, slot / 3);
  const parts = [];
  edges.forEach(({ channel, src, dst }, at) => {
    const edge = edgeAt(view.index, channel, src, dst, view.tick);
    const left = LEFT + (at % columns) * slot + 12;
    const top = 4 + Math.floor(at / columns) * block;
    const right = left + Math.min(slot - boxWidth - 70, 260);
    const middle = top + BOX_HEIGHT / 2;
    parts.push(arrow(view, edge, left + boxWidth + 4, middle, right - 4, middle));
    parts.push(text((left + boxWidth + right) / 2, middle - 10, `channel ${channel}`, "flow-label", "middle"));
    parts.push(box(view, src, left, top, boxWidth, kindOf(view, src, [edge])), box(view, dst, right, top, boxWidth, kindOf(view, dst, [edge])));
    parts.push(...barGroups(view, src, edge, null, left - 8, top + BOX_HEIGHT, boxWidth + 20));
    // Beside the sender's bars, not below them: both tell of the same chunks.
    parts.push(s("g", { transform: `translate(0 ${-(3 * 12 + 7)})` }, ...barGroups(view, dst, null, edge, right - 8, top + BOX_HEIGHT, boxWidth + 20)));
    const total = edge.send?.total ?? edge.recv?.total;
    if (at % columns === 0) parts.push(text(84, top + BOX_HEIGHT + 23, total ? `of ${total}` : "", "flow-label", "end"));
  });
  const height = 4 + Math.ceil(edges.length / columns) * (block - 43);
  return picture(width, Math.max(height, block - 40), `${edges.length} pairs of sender and receiver`, ...parts);
}

/** All pairs of a channel as a matrix of senders and receivers; a cell is how far behind the pair is. */
export function matrix(view, width, colour) {
  const pairs = view.index.pairs.get(view.channel) ?? [];
  const ranks = [...new Set(pairs.flat())].sort((a, b) => a - b);
  const side = Math.min(Math.max(ranks.length * 14, 120), 420, width - LEFT - 20);
  const cells = Math.min(ranks.length, Math.floor(side / 3));
  const size = side / cells;
  const place = new Map(ranks.map((rank, at) => [rank, Math.floor((at * cells) / ranks.length)]));
  const worst = new Map();
  const order = { done: 0, moving: 1, nolog: 2, upstream: 3, downstream: 4, stopped: 5 };
  for (const [src, dst] of pairs) {
    const edge = edgeAt(view.index, view.channel, src, dst, view.tick);
    const key = place.get(src) * cells + place.get(dst);
    const total = edge.send?.total ?? edge.recv?.total ?? 0;
    const lag = total ? 1 - (edge.send?.done ?? edge.recv?.done ?? 0) / total : 1;
    const known = worst.get(key);
    if (!known || order[edge.state] + lag > order[known.edge.state] + known.lag) worst.set(key, { edge, lag });
  }
  const parts = [text(LEFT, 12, "receiver →", "flow-label"), text(84, 34, "sender ↓", "flow-label", "end")];
  const causes = [];
  for (const [key, { edge, lag }] of worst) {
    const x = LEFT + (key % cells) * size;
    const y = 22 + Math.floor(key / cells) * size;
    const cell = s("rect", { x, y, width: size, height: size, class: edge.state === "nolog" ? "flow-cell flow-unknown" : "flow-cell", fill: edge.state === "nolog" ? null : colour(0.06 + 0.94 * lag) }, s("title", {}, `rank ${edge.src} → rank ${edge.dst}: ${edge.state}`));
    cell.addEventListener("click", () => view.chooseEdge(edge));
    parts.push(cell);
    if (view.flow.causes.some((cause) => cause.edges.some(([channel, src, dst]) => channel === view.channel && place.get(src) * cells + place.get(dst) === key))) {
      causes.push(s("rect", { x: x - 1, y: y - 1, width: size + 2, height: size + 2, fill: "none", class: "flow-edge--cause" }));
    }
  }
  parts.push(...causes, s("rect", { x: LEFT, y: 22, width: side, height: side, fill: "none", class: "flow-edge" }));
  parts.push(text(84, 22 + side, String(ranks.at(-1)), "flow-label", "end"), text(LEFT + side, 12, String(ranks.at(-1)), "flow-label", "end"));
  return picture(width, side + 30, `Matrix of ${ranks.length} senders and receivers on channel ${view.channel}`, ...parts);
}

