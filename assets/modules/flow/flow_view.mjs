// The chunk flow of an operation in the page: `<div data-flow="address of its JSON">`.

import { announce } from "../copying.mjs";
import { ramp } from "../ramp.mjs";
import { build, parse } from "../urls.mjs";
import { choose, settle, view as addressView } from "../view_state.mjs";
import { matrix, pairLens, PAIRS_SHOWN, ringLens, treeLens } from "./lens.mjs";
import { edgeAt, indexed, lastMovement, orderOf, said, WORDS, worstEdge } from "./states.mjs";
import { GAP, heightOf, LEFT, paintStrips, shownChannels, STRIP } from "./strips.mjs";
import { s } from "../svg.mjs";
import { defs } from "./parts.mjs";

const WIDTH_LEAST = 760;
// What the timeline shows before and after the moment of the slider.
const AROUND_US = 5e6;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const LEGEND = [
  ["done", "done"],
  ["moving", "moving"],
  ["upstream", "waits for upstream"],
  ["downstream", "waits for the receiver"],
  ["stopped", "stopped"],
  ["nolog", "no log: unknown, not zero"],
];

function legendLine(state) {
  return s(
    "svg",
    { width: 34, height: 12, viewBox: "0 0 34 12", "aria-hidden": "true", class: "flow__svg" },
    s("line", { x1: 1, y1: 6, x2: 26, y2: 6, class: `flow-edge flow-edge--${state}` }),
    s("path", { d: "M33 6 l-8 -4.5 v9 z", class: `flow-arrow flow-arrow--${state}` }),
    state === "stopped" ? s("path", { d: "M9 1 l10 10 m0 -10 l-10 10", class: "flow-cross" }) : null,
  );
}

class FlowView {
  constructor(place, flow) {
    this.place = place;
    this.flow = flow;
    this.index = indexed(flow);
    this.orders = flow.shape === "pairs" ? new Map() : new Map(flow.channels.map((channel) => [channel, orderOf(flow, channel)]));
    this.causeEdges = flow.causes.flatMap((cause) => cause.edges);
    this.suspect = flow.causes.some((cause) => !cause.sure);
    this.folded = true;
    this.build();
    this.read();
    this.listeners = [
      [window, "popstate", () => { this.read(); this.draw(); }],
      [window, "mycroft:view", () => { this.read(); this.draw(); }],
      [window, "mycroft:chosen", ({ detail }) => this.follow(detail.r)],
      [window, "mycroft:theme", () => this.draw()],
    ];
    for (const [target, name, what] of this.listeners) target.addEventListener(name, what);
    this.resize = new ResizeObserver(() => this.later());
    this.resize.observe(place);
    this.draw();
    place.setAttribute("data-drawn", "");
  }

  end() {
    for (const [target, name, what] of this.listeners) target.removeEventListener(name, what);
    this.resize.disconnect();
    cancelAnimationFrame(this.frame);
  }

  /** What the address says; what it does not say is the break, else the worst edge of the last moment. */
  read() {
    const { flow } = this;
    const keys = addressView();
    const offset = keys.at === undefined ? flow.ticks - 1 : Math.round((keys.at - flow.start_us) / 1000 / flow.tick_ms);
    this.tick = Math.min(Math.max(offset, 0), flow.ticks - 1);
    const guilty = this.causeEdges[0];
    const blamed = flow.causes.flatMap((cause) => cause.ranks);
    const worst = guilty ? { channel: guilty[0], src: guilty[1], dst: guilty[2] } : (worstEdge(this.index, flow.ticks - 1) ?? { channel: flow.channels[0], src: null, dst: null });
    this.channel = flow.channels.includes(keys.ch) ? keys.ch : worst.channel;
    this.edge = { ...worst, channel: this.channel };
    this.rank = keys.r !== undefined && flow.ranks[keys.r] ? keys.r : blamed.length && flow.shape !== "pairs" ? (blamed.includes(worst.src) || guilty ? (blamed.find((rank) => rank === worst.src || rank === worst.dst) ?? blamed[0]) : blamed[0]) : worst.src;
    if (keys.r !== undefined && flow.ranks[keys.r]) this.edge = this.edgeOf(this.rank) ?? this.edge;
  }

  /** The edge of a rank that is told in words: the guilty one of its edges, else the one that it sends on. */
  edgeOf(rank) {
    const pairs = this.index.pairs.get(this.channel) ?? [];
    const mine = pairs.filter(([src, dst]) => src === rank || dst === rank);
    const guilty = this.causeEdges.find(([channel, src, dst]) => channel === this.channel && (src === rank || dst === rank));
    if (guilty) return { channel: guilty[0], src: guilty[1], dst: guilty[2] };
    const found = mine.find(([src]) => src === rank) ?? mine[0];
    return found ? { channel: this.channel, src: found[0], dst: found[1] } : null;
  }

  choose(rank) {
    this.rank = rank;
    this.edge = this.edgeOf(rank) ?? this.edge;
    choose({ r: rank, ch: this.channel });
    this.draw();
    announce(`Lens on rank ${rank}, channel ${this.channel}`);
    this.lens.querySelector(`[aria-label^="rank ${rank} "]`)?.focus({ preventScroll: true });
  }

  /** Another part of the page chose a rank; null: none any more. */
  follow(rank) {
    if (rank === undefined || rank === this.rank || (rank !== null && !this.flow.ranks[rank])) return;
    this.read();
    this.draw();
  }

  chooseEdge(edge) {
    this.edge = { channel: edge.channel, src: edge.src, dst: edge.dst };
    this.rank = edge.src;
    choose({ r: edge.src, ch: edge.channel });
    this.draw();
  }

  build() {
    const { flow, place } = this;
    this.canvas = make("canvas", { class: "flow__strips", role: "img" });
    this.canvas.addEventListener("click", (event) => this.onStrip(event));
    this.wedge = make("div");
    this.lens = make("div");
    this.more = make("p", { class: "muted" });
    const scroll = make("div", { class: "flow__scroll", tabindex: "0", role: "group", "aria-label": "Chunk flow" }, ...(flow.shape === "pairs" ? [] : [this.canvas, this.more, this.wedge]), this.lens);
    this.words = make("p", { class: "flow__said", role: "status", "aria-live": "off" });
    this.qps = make("p", { class: "flow__qps" });
    this.slider = make("input", { type: "range", class: "flow__slider", min: "0", max: String(flow.ticks - 1), step: "1", "aria-label": "Moment of the operation" });
    this.slider.addEventListener("input", () => this.moveTo(Number(this.slider.value)));
    this.clock = make("output", { class: "flow__clock" });
    const button = (label, name, what) => {
      const made = make("button", { type: "button", class: "button button--small", title: name, "aria-label": `${label}: ${name}` }, label);
      made.addEventListener("click", what);
      return made;
    };
    const time = make(
      "div",
      { class: "flow__time" },
      button("|◀", "First state", () => this.moveTo(0)),
      button("◀ 1 s", "One second back", () => this.moveTo(this.tick - Math.round(1000 / flow.tick_ms))),
      this.slider,
      button("1 s ▶", "One second on", () => this.moveTo(this.tick + Math.round(1000 / flow.tick_ms))),
      button("last movement", "Go to the last moment at which anything moved", () => this.moveTo(lastMovement(flow))),
      button("▶|", "Last state", () => this.moveTo(flow.ticks - 1)),
      this.clock,
    );
    this.trace = parse(window.location.pathname).params.trace;
    if (this.trace !== undefined) {
      this.around = make("a", { class: "button button--small" }, "timeline around it");
      time.append(this.around);
    }
    const legend = make("div", { class: "flow__legend" });
    for (const [state, name] of LEGEND) {
      const item = make("span", {});
      item.append(legendLine(state), name);
      legend.append(item);
    }
    if (this.causeEdges.length) {
      const item = make("span", {});
      item.append(legendLine("cause"), this.suspect ? "named by the verdict, not sure" : "the root cause's edge");
      legend.append(item);
    }
    this.shades = make("canvas", { class: "flow__ramp", width: "64", height: "10" });
    if (flow.shape !== "pairs") {
      const item = make("span", {});
      item.append("strips: level ", this.shades, " behind the most advanced");
      legend.append(item);
    }
    const limits = flow.limits.length ? make("p", { class: "flow__limit" }, `${flow.limits.join("; ")}.`) : null;
    this.table = make("details", { class: "fold" }, make("summary", {}, "View as table"));
    this.table.addEventListener("toggle", () => this.fillTable());
    // One pattern for all pictures: one inside of a fold that is closed would be drawn nowhere.
    const patterns = s("svg", { width: 0, height: 0, "aria-hidden": "true", style: "position:absolute" }, defs());
    place.replaceChildren(patterns, make("div", { class: "flow" }, ...(flow.ticks > 1 ? [scroll, this.words, this.qps, time] : [scroll, this.words, this.qps]), make("p", { class: "flow__reading" }, flow.reading), legend, ...(limits ? [limits] : []), this.table));
  }

  moveTo(tick) {
    this.tick = Math.min(Math.max(tick, 0), this.flow.ticks - 1);
    settle({ at: Math.round(this.flow.start_us + this.tick * this.flow.tick_ms * 1000) });
    this.later();
  }

  later() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  onStrip(event) {
    const at = Math.floor((event.offsetY - (heightOf(0) - 2)) / (STRIP + GAP));
    const channel = this.shown[at];
    const order = this.orders.get(channel);
    if (!order) return;
    const share = (event.offsetX - LEFT) / (this.width - LEFT - 6);
    if (share < 0 || share >= 1) return;
    this.channel = channel;
    this.choose(order[Math.floor(share * order.length)]);
  }

  draw() {
    const { flow, place } = this;
    const room = place.clientWidth;
    if (!room) return;
    this.width = Math.max(room, WIDTH_LEAST);
    if (flow.shape !== "pairs") this.drawStrips();
    if (flow.shape === "ring") {
      const lens = ringLens(this, this.width);
      this.drawWedge(lens);
      this.lens.replaceChildren(lens.svg);
    } else if (flow.shape === "tree") this.drawTrees();
    else this.drawPairs();
    this.tell();
    this.slider.value = String(this.tick);
    const moment = this.tick * flow.tick_ms;
    const absolute = new Date(Number(BigInt(flow.start_ns) / 1000000n) + moment);
    const shown = `${absolute.toISOString().slice(11, 23)} UTC`;
    this.clock.textContent = `${shown}, ${this.tick === flow.ticks - 1 ? "last state" : `${(((flow.ticks - 1 - this.tick) * flow.tick_ms) / 1000).toFixed(1)} s before the end`}`;
    this.slider.setAttribute("aria-valuetext", shown);
    if (this.around) this.around.setAttribute("href", this.timelineAround(moment));
    if (this.table.open) this.fillTable();
  }

  /** The timeline of all ranks around a moment, ms after the first state, with the rank of the lens chosen. */
  timelineAround(moment) {
    const at = Math.round(this.flow.start_us + moment * 1000);
    const { g } = addressView();
    const view = { r: this.rank ?? undefined, t: [Math.max(0, at - AROUND_US), at + AROUND_US], g };
    for (const [key, value] of Object.entries(view)) if (value === undefined) delete view[key];
    return build({ page: "timeline", params: { trace: this.trace }, view, extra: [] });
  }

  drawStrips() {
    const { flow, index, orders, tick } = this;
    const { shown, hidden } = shownChannels(index, orders, tick, this.causeEdges);
    this.shown = shown.includes(this.channel) ? shown : [...shown.slice(0, -1), this.channel].sort((a, b) => a - b);
    const names = flow.shape === "ring" ? { first: "ring position 0", last: (size) => String(size - 1) } : { first: "root", last: () => "deepest" };
    paintStrips(this.canvas, { index, orders, shown: this.shown, tick, width: this.width, chosen: this.channel, cause: this.causeEdges, suspect: this.suspect, names });
    this.canvas.setAttribute("aria-label", `Lag of each rank, a strip per channel. ${this.causeEdges.length ? `The verdict names the edge from rank ${this.causeEdges[0][1]} to rank ${this.causeEdges[0][2]}.` : ""}`);
    this.more.textContent = hidden.length ? `${hidden.length} more channels, none of them further behind` : "";
    this.more.hidden = !hidden.length;
    const pen = this.shades.getContext("2d");
    const colour = ramp(this.canvas);
    for (let x = 0; x < 64; x += 1) {
      pen.fillStyle = colour(0.08 + (0.92 * x) / 63);
      pen.fillRect(x, 0, 1, 10);
    }
  }

  drawWedge(lens) {
    if (lens.size === lens.count) {
      this.wedge.replaceChildren();
      return;
    }
    const plot = this.width - LEFT - 6;
    const from = LEFT + (lens.from / lens.size) * plot;
    const to = Math.min(LEFT + ((lens.from + lens.count) / lens.size) * plot, LEFT + plot);
    this.wedge.replaceChildren(
      s("svg", { width: this.width, height: 14, viewBox: `0 0 ${this.width} 14`, class: "flow__svg", "aria-hidden": "true" },
        s("path", { d: `M${from} 0 H${to} L${this.width - 118} 14 H${LEFT + 118} Z`, class: "flow-wedge" })),
    );
  }

  drawTrees() {
    const { flow } = this;
    const groups = new Map();
    for (const channel of flow.channels) {
      const { root, parents } = flow.trees[channel];
      const key = `${root}/${JSON.stringify(parents)}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(channel);
    }
    const open = new Map([...this.lens.querySelectorAll("details")].map((fold) => [fold.dataset.tree, fold.open]));
    this.lens.replaceChildren(
      ...[...groups.values()].map((channels, at) => {
        const mine = channels.includes(this.channel);
        const channel = mine ? this.channel : channels[0];
        const fold = make("details", { class: "fold", "data-tree": String(at) }, make("summary", {}, `Tree ${at + 1} of ${groups.size} · channel${channels.length > 1 ? "s" : ""} ${channels.join(", ")} · root rank ${flow.trees[channel].root}${flow.trees[channel].known ? "" : " (direction not known)"}`));
        fold.open = open.get(String(at)) ?? mine;
        fold.append(treeLens(this, this.width, channel));
        return fold;
      }),
    );
  }

  drawPairs() {
    const { flow, index } = this;
    const all = flow.channels.flatMap((channel) => (index.pairs.get(channel) ?? []).map(([src, dst]) => ({ channel, src, dst })));
    const guilty = (edge) => this.causeEdges.some(([channel, src, dst]) => channel === edge.channel && src === edge.src && dst === edge.dst);
    if (all.length <= PAIRS_SHOWN) {
      const ordered = [...all].sort((a, b) => guilty(b) - guilty(a));
      this.lens.replaceChildren(pairLens(this, this.width, ordered));
      return;
    }
    const parts = [];
    if (flow.channels.length > 1) {
      const pick = make("label", { class: "flow__time" }, "Channel ");
      const select = make("select", { class: "input", "aria-label": "Channel of the matrix" });
      for (const channel of flow.channels) select.append(make("option", { value: String(channel) }, String(channel)));
      select.value = String(this.channel);
      select.addEventListener("change", () => {
        this.channel = Number(select.value);
        choose({ ch: this.channel });
        this.draw();
      });
      pick.append(select);
      parts.push(pick);
    }
    parts.push(matrix(this, this.width, ramp(this.place)));
    if (this.edge?.src !== null) parts.push(pairLens(this, this.width, [{ ...this.edge, channel: this.channel }]));
    this.lens.replaceChildren(...parts);
  }

  /** The chosen edge in words, and its queue pairs where they are known. */
  tell() {
    const { edge, flow, index, tick } = this;
    if (!edge || edge.src === null) {
      this.words.textContent = "";
      return;
    }
    const now = edgeAt(index, edge.channel, edge.src, edge.dst, tick);
    const guilty = this.causeEdges.some(([channel, src, dst]) => channel === edge.channel && src === edge.src && dst === edge.dst);
    const head = make("strong", guilty ? { class: "flow__word--cause" } : {}, `${guilty ? "▲ " : ""}Rank ${edge.src} → rank ${edge.dst}, channel ${edge.channel}: ${WORDS[now.state]}.`);
    this.words.replaceChildren(head, ` ${said(now, flow.standing_ms)}`);
    const lines = [...(now.send?.qps ?? []).map((qp) => ["sends", qp]), ...(now.recv?.qps ?? []).map((qp) => ["receives", qp])];
    this.qps.textContent = lines.length
      ? lines.map(([verb, qp]) => `queue pair ${qp.qp} ${verb} ${qp.done} of ${qp.total}${qp.idle_ms >= flow.standing_ms ? `, still for ${(qp.idle_ms / 1000).toFixed(1)} s` : ""}`).join(" · ")
      : `Finest unit that the evidence knows: ${flow.unit}; queue pairs are not told apart.`;
  }

  fillTable() {
    this.table.querySelector(".table-scroll")?.remove();
    if (!this.table.open) return;
    const rows = [];
    for (const channel of this.flow.channels) for (const [src, dst] of this.index.pairs.get(channel) ?? []) rows.push(edgeAt(this.index, channel, src, dst, this.tick));
    const order = { stopped: 0, upstream: 1, downstream: 2, nolog: 3, moving: 4, done: 5 };
    rows.sort((a, b) => order[a.state] - order[b.state] || a.channel - b.channel || a.src - b.src);
    const head = ["Channel", "Sender", "Receiver", "State", "Filled G", "Handed over T", "Acknowledged D", "Posted P", "Received R", "Consumed C", "Of"];
    const value = (half, field) => (half === null || half.silent || half[field] === null ? "–" : String(half[field]));
    const body = make("tbody");
    for (const row of rows.slice(0, TABLE_MAX)) {
      const cells = [row.channel, `rank ${row.src}`, `rank ${row.dst}`, WORDS[row.state], value(row.send, "ready"), value(row.send, "moved"), value(row.send, "done"), value(row.recv, "posted"), value(row.recv, "moved"), value(row.recv, "done"), row.send?.total ?? row.recv?.total ?? "–"];
      body.append(make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell)))));
    }
    const table = make("table", { class: "table" }, make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))), body);
    const place = make("div", { class: "table-scroll", tabindex: "0" }, table);
    if (rows.length > TABLE_MAX) place.append(make("p", { class: "muted" }, `${TABLE_MAX} of ${rows.length.toLocaleString("en-US")} edges, those that stand first`));
    this.table.append(place);
  }
}

const TABLE_MAX = 200;

const running = new Map();

async function mount(place) {
  const address = place.getAttribute("data-flow");
  running.set(place, null);
  try {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error((await answer.json()).error ?? answer.status);
    const flow = await answer.json();
    if (place.isConnected && running.has(place)) running.set(place, new FlowView(place, flow));
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem", role: "alert" }, `The chunk flow could not be read: ${error.message}`));
    place.setAttribute("data-drawn", "");
  }
}

export function startFlows() {
  const all = () => {
    for (const [place, view] of running) {
      if (place.isConnected) continue;
      view?.end();
      running.delete(place);
    }
    for (const place of document.querySelectorAll("[data-flow]")) if (!running.has(place)) mount(place);
  };
  new MutationObserver(all).observe(document.body, { childList: true, subtree: true });
  all();
}
