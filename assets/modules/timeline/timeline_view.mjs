// The timeline in the page: `<div data-timeline="address of the trace in the API">`.

import { announce } from "../copying.mjs";
import { go } from "../navigation.mjs";
import { stopsOf, table as rampTable } from "../ramp.mjs";
import { choose, settle, view as addressView } from "../view_state.mjs";
import { build, parse } from "../urls.mjs";
import { hatch } from "../flow/strips.mjs";
import { FAMILIES, paintBars } from "./bars.mjs";
import { codes, needed, packed, pixels, tableOf } from "./painter.mjs";
import { Tiles } from "./tiles.mjs";
import { clamped, clockText, decodeBars, durationText, levelFor, modeFor, nsOfCode, ordered, panned, scaleOf, ticks, valueText, zoomed, zoomedRows } from "./view.mjs";

const GUTTER = 92;
const RIGHT = 8;
const TOP = 16;
const AXIS = 20;
const MAP = 26;
const REST_MS = 60;
const BARS_REST_MS = 90;
const METRIC_NAMES = { late: "late: arrival after the median rank", wait: "wait: time beyond the fastest rank", state: "state: the worst", busy: "busy: share of time inside operations" };
const ORDER_NAMES = { rank: "rank", host: "host", group: "position in the largest group", late: "lateness" };
const KEYS = [
  ["← → ↑ ↓", "pan; with Shift ten times as far"],
  ["+ −", "zoom time; with Shift ranks"],
  ["wheel", "zoom time at the pointer (in a page: after a click into the picture); with Shift ranks"],
  ["drag", "pan; with Shift zoom to the box"],
  ["double click", "zoom to the operation under the pointer"],
  ["0", "the whole trace"],
  ["f", "fit the selected rank or operation"],
  ["n p", "next, previous incident"],
  ["Enter", "select the rank at the crosshair"],
  ["?", "this list"],
];

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

class TimelineView {
  constructor(place, info) {
    this.place = place;
    this.info = info;
    this.base = place.getAttribute("data-timeline");
    this.embedded = place.hasAttribute("data-embedded");
    this.height = Number(place.getAttribute("data-height")) || 420;
    this.mode = "heat";
    this.total = null;
    this.bars = null;
    this.locked = null;
    this.tiles = new Tiles(this.base, () => this.later(), (error) => this.fail(error));
    this.mapTiles = new Tiles(this.base, () => this.later(), (error) => this.fail(error));
    this.guilty = new Map();
    for (const incident of info.incidents) for (const rank of incident.ranks) if (!this.guilty.has(rank)) this.guilty.set(rank, incident.sure);
    this.build();
    this.read();
    this.abort = new AbortController();
    const { signal } = this.abort;
    window.addEventListener("popstate", () => { this.read(); this.later(); }, { signal });
    window.addEventListener("mycroft:theme", () => this.later(), { signal });
    this.resize = new ResizeObserver(() => this.later());
    this.resize.observe(place);
    this.draw();
  }

  /** Gives back what a page that is gone must not keep. */
  end() {
    this.abort.abort();
    this.resize.disconnect();
    this.tiles.end();
    this.mapTiles.end();
    this.barsControl?.abort();
    this.hitControl?.abort();
    cancelAnimationFrame(this.frame);
    for (const timer of [this.barsTimer, this.hitTimer]) clearTimeout(timer);
  }

  get rows() {
    return this.info.ranks.length;
  }

  read() {
    const keys = addressView();
    const { info } = this;
    const window_ = this.place.getAttribute("data-window");
    const first = keys.t ?? (window_ ? window_.split("-").map(Number) : [0, info.span_us]);
    const [y0, y1] = keys.y ? [keys.y[0], keys.y[1] + 1] : [0, this.rows];
    this.metric = info.metrics.includes(keys.m) ? keys.m : "late";
    this.order = Object.hasOwn(ORDER_NAMES, keys.o) ? keys.o : "rank";
    const marked = this.place.getAttribute("data-rank");
    this.rank = keys.r ?? (marked === null ? null : Number(marked));
    this.op = keys.op !== undefined && keys.c !== undefined ? { key: keys.c, seq: keys.op } : null;
    this.setOrder();
    this.view = clamped({ t0: first[0], t1: Math.max(first[1], first[0] + 1), y0, y1 }, info.span_us, this.rows);
    this.metricSelect.value = this.metric;
    this.orderSelect.value = this.order;
    const outside = first[0] > info.span_us || y0 >= this.rows;
    this.said.textContent = outside ? "The address asks for a window outside of the trace; shown is the nearest." : "Point at the picture for what is there; click to select a rank and its operation.";
  }

  setOrder() {
    this.shown = ordered(this.info, this.order);
    this.placeOf = new Map(this.shown.map((place, row) => [place, row]));
  }

  build() {
    const { info } = this;
    const select = (label, names, what) => {
      const made = make("select", { class: "input" });
      for (const [value, name] of Object.entries(names)) made.append(make("option", { value }, name));
      made.addEventListener("change", () => what(made.value));
      return [make("label", {}, label, made), made];
    };
    let metricLabel;
    let orderLabel;
    [metricLabel, this.metricSelect] = select("Colour", Object.fromEntries(info.metrics.map((metric) => [metric, METRIC_NAMES[metric] ?? metric])), (value) => {
      this.metric = value;
      choose({ m: value === "late" ? null : value });
      this.later();
    });
    [orderLabel, this.orderSelect] = select("Rows by", ORDER_NAMES, (value) => {
      this.order = value;
      this.setOrder();
      choose({ o: value === "rank" ? null : value });
      this.later();
    });
    this.lock = make("input", { type: "checkbox" });
    this.lock.addEventListener("change", () => {
      this.locked = this.lock.checked ? this.scale : null;
      this.later();
    });
    const buttons = make("span", { class: "timeline__buttons" });
    const button = (label, name, what) => {
      const made = make("button", { type: "button", class: "button button--small", title: name, "aria-label": `${label} ${name}` }, label);
      made.addEventListener("click", what);
      buttons.append(made);
    };
    button("+", "zoom in", () => this.zoom(0.5));
    button("−", "zoom out", () => this.zoom(2));
    button("all", "the whole trace", () => this.whole());
    if (info.incidents.some((incident) => incident.since_us !== null)) button("incident", "go to the next incident", () => this.incident(1));
    this.map = make("canvas", { class: "timeline__map", "aria-hidden": "true" });
    this.canvas = make("canvas", { class: "timeline__canvas", tabindex: "0", role: "application", "aria-roledescription": "timeline" });
    this.over = make("canvas", { class: "timeline__over", "aria-hidden": "true" });
    this.plot = make("div", { class: "timeline__plot", style: `height:${this.height}px` }, this.canvas, this.over);
    this.said = make("p", { class: "timeline__said", role: "status", "aria-live": "off" });
    this.legend = make("div", { class: "timeline__legend" });
    this.table = make("details", { class: "fold" }, make("summary", {}, "View as table"));
    this.table.addEventListener("toggle", () => this.fillTable());
    this.keys = make("details", { class: "fold" }, make("summary", {}, "Keys"), make("ul", { class: "bullets" }, ...KEYS.map(([key, what]) => make("li", {}, make("kbd", {}, key), ` ${what}`))));
    const bar = make("div", { class: "timeline__bar" }, metricLabel, orderLabel, make("label", {}, this.lock, "lock the scale"), buttons);
    this.place.replaceChildren(make("div", { class: "timeline" }, bar, this.map, this.plot, this.said, this.legend, this.table, this.keys));
    this.listen();
  }

  // ---- input -----------------------------------------------------------------------------

  listen() {
    const { canvas, map } = this;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => { this.pointer = null; this.drawOver(); });
    canvas.addEventListener("dblclick", (event) => this.onDouble(event));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); this.mapDrag = true; this.onMap(event); });
    map.addEventListener("pointermove", (event) => { if (this.mapDrag) this.onMap(event); });
    map.addEventListener("pointerup", () => { this.mapDrag = false; });
  }

  timeAt(x) {
    return this.view.t0 + ((x - GUTTER) / this.plotWidth) * (this.view.t1 - this.view.t0);
  }

  rowAt(y) {
    return this.view.y0 + ((y - TOP) / this.plotHeight) * (this.view.y1 - this.view.y0);
  }

  inside({ offsetX, offsetY }) {
    return offsetX >= GUTTER && offsetX <= GUTTER + this.plotWidth && offsetY >= TOP && offsetY <= TOP + this.plotHeight;
  }

  show(view, { keep = false } = {}) {
    this.view = clamped(view, this.info.span_us, this.rows);
    const { t0, t1, y0, y1 } = this.view;
    const all = t0 <= 0 && t1 >= this.info.span_us;
    const every = y0 <= 0 && y1 >= this.rows;
    const changes = { t: all && !keep ? null : [Math.floor(t0), Math.ceil(t1)], y: every ? null : [Math.floor(y0), Math.ceil(y1) - 1] };
    settle(changes);
    this.later();
  }

  zoom(factor, at = (this.view.t0 + this.view.t1) / 2) {
    this.show(zoomed(this.view, factor, at));
  }

  whole() {
    this.show({ t0: 0, t1: this.info.span_us, y0: 0, y1: this.rows }, { keep: this.embedded });
  }

  onWheel(event) {
    // In a longer page the wheel scrolls the page until the picture has been clicked.
    if (this.embedded && document.activeElement !== this.canvas) return;
    event.preventDefault();
    const delta = event.deltaY || event.deltaX;
    const factor = Math.exp(Math.min(Math.max(delta, -240), 240) / 300);
    if (event.shiftKey) this.show(zoomedRows(this.view, factor, this.rowAt(event.offsetY)));
    else this.zoom(factor, this.timeAt(event.offsetX));
  }

  onDown(event) {
    if (event.button !== 0 || !this.inside(event)) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, y: event.offsetY, view: this.view, box: event.shiftKey, moved: false };
  }

  onMove(event) {
    this.pointer = this.inside(event) ? { x: event.offsetX, y: event.offsetY } : null;
    if (this.drag) {
      const dx = event.offsetX - this.drag.x;
      const dy = event.offsetY - this.drag.y;
      if (Math.abs(dx) + Math.abs(dy) > 3) this.drag.moved = true;
      if (this.drag.moved && !this.drag.box) {
        const { view } = this.drag;
        this.show(panned(view, (-dx / this.plotWidth) * (view.t1 - view.t0), (-dy / this.plotHeight) * (view.y1 - view.y0)));
      }
    }
    this.drawOver();
    clearTimeout(this.hitTimer);
    if (this.pointer && !this.drag) {
      this.tellPointer();
      this.hitTimer = setTimeout(() => this.tellHit(), REST_MS);
    }
  }

  onUp(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    if (drag.moved && drag.box) {
      const [a, b] = [this.timeAt(drag.x), this.timeAt(event.offsetX)].sort((p, q) => p - q);
      const [c, d] = [this.rowAt(drag.y), this.rowAt(event.offsetY)].sort((p, q) => p - q);
      if (b > a) this.show({ t0: a, t1: b, y0: Math.floor(c), y1: Math.max(Math.ceil(d), Math.floor(c) + 1) });
    } else if (!drag.moved) this.select();
    this.drawOver();
  }

  async onDouble(event) {
    if (!this.inside(event)) return;
    this.pointer = { x: event.offsetX, y: event.offsetY };
    const found = await this.hit();
    const op = found?.ops[0];
    if (!op) return;
    const length = Math.max(op.end_us - op.start_us, 10);
    this.show({ ...this.view, t0: op.start_us - length * 0.3, t1: op.end_us + length * 0.3 });
  }

  onMap(event) {
    const share = Math.min(Math.max((event.offsetX - GUTTER) / this.plotWidth, 0), 1);
    const length = this.view.t1 - this.view.t0;
    const middle = share * this.info.span_us;
    this.show({ ...this.view, t0: middle - length / 2, t1: middle + length / 2 });
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 1 : 0.1;
    const { view } = this;
    const time = (view.t1 - view.t0) * far;
    const rows = Math.max((view.y1 - view.y0) * far, 1);
    const what = {
      ArrowLeft: () => this.show(panned(view, -time)),
      ArrowRight: () => this.show(panned(view, time)),
      ArrowUp: () => this.show(panned(view, 0, -rows)),
      ArrowDown: () => this.show(panned(view, 0, rows)),
      "+": () => (event.shiftKey && event.code !== "Equal" ? this.show(zoomedRows(view, 0.5, (view.y0 + view.y1) / 2)) : this.zoom(0.5)),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      "−": () => this.zoom(2),
      "_": () => this.show(zoomedRows(view, 2, (view.y0 + view.y1) / 2)),
      0: () => this.whole(),
      f: () => this.fit(),
      n: () => this.incident(1),
      p: () => this.incident(-1),
      "?": () => { this.keys.open = !this.keys.open; },
      Enter: () => this.select(),
    }[event.key];
    if (!what) return;
    event.preventDefault();
    what();
  }

  fit() {
    const row = this.rowOf(this.rank);
    if (row === null) return;
    this.show({ ...this.view, y0: row - 4, y1: row + 5 });
  }

  incident(step) {
    const known = this.info.incidents.filter((incident) => incident.since_us !== null);
    if (!known.length) return;
    this.at = ((this.at ?? (step > 0 ? -1 : 0)) + step + known.length) % known.length;
    const incident = known[this.at];
    const length = Math.min(this.info.span_us / 4, 20e6);
    this.show({ ...this.view, t0: incident.since_us - length / 3, t1: incident.since_us + (2 * length) / 3 });
    this.said.textContent = `Incident ${incident.id}: ${incident.summary}`;
    announce(`Incident ${incident.id}`);
  }

  rowOf(rank) {
    if (rank === null) return null;
    const place = this.info.ranks.indexOf(rank);
    return place < 0 ? null : this.placeOf.get(place);
  }

  /** Selects the rank under the pointer, and the operation there. */
  async select() {
    if (!this.pointer) return;
    const place = this.shown[Math.floor(this.rowAt(this.pointer.y))];
    if (place === undefined) return;
    const rank = this.info.ranks[place];
    const found = await this.hit();
    const op = found?.ops[0] ?? null;
    const key = op ? (this.info.comms[op.comm]?.[0] ?? null) : null;
    this.rank = rank;
    this.op = op && key ? { key, seq: op.seq, comm: op.comm } : null;
    choose({ r: rank, c: this.op?.key ?? null, op: this.op?.seq ?? null });
    this.tellSelected(rank, op, key);
    this.later();
  }

  // ---- words -----------------------------------------------------------------------------

  link(text, page, params) {
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

  nameOf(place) {
    const host = this.info.hosts[this.info.host_of[place]];
    return `Rank ${this.info.ranks[place]}${host ? ` · ${host}` : ""}`;
  }

  tellPointer() {
    const { x, y } = this.pointer;
    const place = this.shown[Math.floor(this.rowAt(y))];
    if (place === undefined) return;
    const moment = clockText(this.timeAt(x), this.info.start_ns, (this.view.t1 - this.view.t0) / 50);
    const code = this.painted ? this.painted.made[Math.min(Math.floor((y - TOP) * this.ratio), this.painted.height - 1) * this.painted.width + Math.min(Math.floor((x - GUTTER) * this.ratio), this.painted.width - 1)] : 0;
    const mark = this.guilty.has(this.info.ranks[place]) ? (this.guilty.get(this.info.ranks[place]) ? " · ▲ root cause" : " · ▲ suspect") : "";
    const silent = this.silentSet.has(place) ? " · no log" : "";
    this.said.replaceChildren(make("strong", {}, `${this.nameOf(place)}${mark}`), ` · ${moment} UTC${silent || (this.mode === "heat" ? ` · ${this.metric} ${valueText(code, this.metric, this.info)}` : "")}`);
  }

  /** What is under the pointer; a hover that goes on is dropped, what was asked for by a click is not. */
  async hit(hover = false) {
    const { x, y } = this.pointer;
    const row = this.shown[Math.floor(this.rowAt(y))];
    if (row === undefined) return null;
    const slack = ((this.view.t1 - this.view.t0) / this.plotWidth) * 2;
    const at = this.timeAt(x);
    const control = new AbortController();
    if (hover) {
      this.hitControl?.abort();
      this.hitControl = control;
    }
    try {
      const answer = await fetch(`${this.base}/hits?t=${Math.max(0, Math.floor(at - slack))}-${Math.max(0, Math.ceil(at + slack))}&y=${row}-${row}`, { signal: control.signal });
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    }
  }

  opText(op) {
    const comm = this.info.comms[op.comm];
    const parts = [`${op.kind} ${op.seq}${comm ? ` of ${comm[1]}` : ""}`, this.info.states[op.state]];
    if (op.late_ns !== null && op.late_ns > 0) parts.push(`${durationText(op.late_ns)} late${op.state === 4 ? " and not there yet" : ""}`);
    if (op.wait_ns !== null && op.wait_ns > 0) parts.push(`waits ${durationText(op.wait_ns)}`);
    return parts.join(", ");
  }

  async tellHit() {
    if (!this.pointer) return;
    const { pointer } = this;
    const found = await this.hit(true);
    if (!found || this.pointer !== pointer || !found.ops.length) return;
    const more = found.total > 1 ? ` (and ${(found.total - 1).toLocaleString("en-US")} more here)` : "";
    this.said.append(make("br"), `${this.opText(found.ops[0])}${more}`);
  }

  tellSelected(rank, op, key) {
    const place = this.info.ranks.indexOf(rank);
    const parts = [make("strong", {}, `${this.nameOf(place)} selected`), " · ", this.link("open the rank", "rank", { rank })];
    const host = this.info.hosts[this.info.host_of[place]];
    if (host) parts.push(" · ", this.link("its host", "host", { host }));
    if (op && key) parts.push(make("br"), `${this.opText(op)} · `, this.link("open the operation", "op", { comm: key, seq: op.seq }));
    this.said.replaceChildren(...parts);
    announce(`Rank ${rank} selected${op ? `, ${this.opText(op)}` : ""}`);
  }

  fail(error) {
    this.said.textContent = `A part of the timeline could not be read: ${error.message}`;
  }

  // ---- drawing ---------------------------------------------------------------------------

  later() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  colours() {
    const style = getComputedStyle(this.canvas);
    const value = (name) => style.getPropertyValue(name).trim();
    const named = { text: "--text", muted: "--muted", line: "--line", strong: "--line-strong", panel: "--panel", raised: "--raised", cause: "--cause-fill", causeText: "--cause-text", wait: "--wait-stroke", nolog: "--nolog", focus: "--focus", sent: "--sent", a: "--group-a", b: "--group-b", c: "--group-c", d: "--group-d", ink: "--group-ink", ramp1: "--ramp-1", ramp3: "--ramp-3" };
    return { ...Object.fromEntries(Object.entries(named).map(([key, name]) => [key, value(name)])), font: style.fontFamily };
  }

  draw() {
    const room = this.place.clientWidth;
    if (!room) return;
    this.width = room;
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.plotWidth = Math.max(room - GUTTER - RIGHT, 50);
    this.plotHeight = this.height - TOP - AXIS;
    this.look = this.colours();
    this.silentSet ??= new Set(this.info.silent);
    this.rowPx = this.plotHeight / (this.view.y1 - this.view.y0);
    this.mode = modeFor(this.mode, this.total, this.rowPx, this.info.bars_max);
    for (const canvas of [this.canvas, this.over]) {
      if (canvas.width !== Math.round(room * this.ratio) || canvas.height !== Math.round(this.height * this.ratio)) {
        canvas.width = Math.round(room * this.ratio);
        canvas.height = Math.round(this.height * this.ratio);
      }
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, room, this.height);
    pen.font = `11px ${this.look.font}`;
    const hasBars = this.mode === "bars" && this.bars !== null && this.covers();
    this.drawHeat(pen, !hasBars);
    if (hasBars) this.drawBars(pen);
    this.drawSilent(pen);
    this.drawMarks(pen);
    this.drawAxis(pen);
    this.drawMap();
    this.drawOver();
    this.drawLegend(hasBars);
    this.summary(hasBars);
    this.wantBars();
    if (this.table.open) this.fillTable();
    const complete = !this.tiles.busy && !this.mapTiles.busy;
    this.place.toggleAttribute("data-settled", complete);
    if (complete) this.place.setAttribute("data-drawn", "");
    this.place.setAttribute("data-mode", hasBars ? "bars" : "heat");
  }

  drawHeat(pen, visible) {
    const { info, view } = this;
    const width = Math.round(this.plotWidth * this.ratio);
    const height = Math.round(this.plotHeight * this.ratio);
    const level = levelFor(info.levels, ((view.t1 - view.t0) / width));
    const { bin_us, bins } = info.levels[level];
    const need = needed(view, level, bin_us, bins, this.shown, width);
    const keys = [];
    for (const band of need.bands) for (let x = need.firstTile; x <= need.lastTile; x += 1) keys.push(`${this.metric}/${level}/${band}/${x}`);
    this.tiles.want(keys);
    const found = codes({ view, level, levels: info.levels, tiles: this.tiles, metric: this.metric, order: this.shown, width, height });
    this.painted = { ...found, width, height };
    this.scale = this.locked ?? scaleOf(found.histogram, this.metric, info.scale.top);
    if (!visible) return;
    const image = new ImageData(width, height);
    pixels(found.made, this.metric === "state" ? this.stateTable() : tableOf(rampTable(stopsOf(this.canvas), 256), this.scale), image);
    this.buffer ??= document.createElement("canvas");
    this.buffer.width = width;
    this.buffer.height = height;
    this.buffer.getContext("2d").putImageData(image, 0, 0);
    pen.drawImage(this.buffer, GUTTER, TOP, this.plotWidth, this.plotHeight);
  }

  stateColours() {
    return [null, this.look.ramp1, this.look.ramp3, this.look.text, this.look.sent];
  }

  stateTable() {
    const made = new Uint32Array(256);
    this.stateColours().forEach((colour, code) => {
      if (colour) made[code] = packed([1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16)));
    });
    return made;
  }

  drawBars(pen) {
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, TOP, this.plotWidth, this.plotHeight);
    pen.clip();
    pen.translate(GUTTER, TOP);
    const chosen = this.op ? { seq: this.op.seq, comm: this.op.comm ?? Number(Object.keys(this.info.comms).find((id) => this.info.comms[id][0] === this.op.key)) } : null;
    paintBars(pen, { bars: this.bars, low: this.barsAt.low, from_us: this.barsAt.from, info: this.info, view: this.view, width: this.plotWidth, height: this.plotHeight, placeOf: (place) => this.placeOf.get(place), colours: this.look, chosen });
    pen.restore();
  }

  yOf(row) {
    return TOP + (row - this.view.y0) * this.rowPx;
  }

  xOf(us) {
    return GUTTER + ((us - this.view.t0) / (this.view.t1 - this.view.t0)) * this.plotWidth;
  }

  drawSilent(pen) {
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, TOP, this.plotWidth, this.plotHeight);
    pen.clip();
    for (let row = Math.floor(this.view.y0); row < Math.ceil(this.view.y1); row += 1) {
      const place = this.shown[row];
      const tall = Math.max(this.rowPx, 1);
      if (this.silentSet.has(place)) hatch(pen, GUTTER, this.yOf(row), this.plotWidth, tall, this.look.nolog);
      else if (this.info.from_us[place] > this.view.t0) hatch(pen, GUTTER, this.yOf(row), Math.min(this.xOf(this.info.from_us[place]) - GUTTER, this.plotWidth), tall, this.look.nolog);
    }
    pen.restore();
  }

  /** The rows of the verdict in the hue of the cause, the chosen row, and since when. */
  drawMarks(pen) {
    const { look } = this;
    const band = (row) => {
      const tall = Math.max(this.rowPx, 2);
      return [this.yOf(row) + (this.rowPx - tall) / 2, tall];
    };
    const inView = (row) => row !== null && row + 1 > this.view.y0 && row < this.view.y1;
    const labels = [];
    const chosen = this.rowOf(this.rank);
    if (inView(chosen)) {
      const [y, tall] = band(chosen);
      pen.strokeStyle = look.focus;
      pen.lineWidth = 1.5;
      pen.strokeRect(GUTTER + 0.75, y - 1.5, this.plotWidth - 1.5, tall + 3);
      labels.push({ y: y + tall / 2, text: `${this.rank}`, colour: look.text, weight: 650, first: 1 });
    }
    for (const [rank, sure] of this.guilty) {
      const row = this.rowOf(rank);
      if (!inView(row)) continue;
      const [y, tall] = band(row);
      pen.fillStyle = look.cause;
      pen.strokeStyle = look.cause;
      if (tall >= 7) {
        pen.lineWidth = 2;
        pen.setLineDash(sure ? [] : [6, 4]);
        pen.strokeRect(GUTTER + 1, y + 1, this.plotWidth - 2, tall - 2);
        pen.setLineDash([]);
      } else if (sure) pen.fillRect(GUTTER, y, this.plotWidth, Math.min(tall, 3));
      else for (let x = GUTTER; x < GUTTER + this.plotWidth; x += 10) pen.fillRect(x, y, 6, Math.min(tall, 3));
      labels.push({ y: y + tall / 2, text: `▲ ${rank}`, colour: look.causeText, weight: 650, first: 0 });
    }
    this.drawLabels(pen, labels);
    for (const incident of this.info.incidents) {
      if (incident.since_us === null || incident.since_us < this.view.t0 || incident.since_us > this.view.t1) continue;
      const x = Math.round(this.xOf(incident.since_us)) + 0.5;
      pen.strokeStyle = look.text;
      pen.lineWidth = 1;
      pen.setLineDash([3, 3]);
      pen.beginPath();
      pen.moveTo(x, TOP - 2);
      pen.lineTo(x, TOP + this.plotHeight);
      pen.stroke();
      pen.setLineDash([]);
      pen.fillStyle = look.text;
      pen.font = `600 11px ${look.font}`;
      const text = `${incident.id} since ${clockText(incident.since_us, this.info.start_ns)}`;
      const wide = pen.measureText(text).width;
      pen.textAlign = "left";
      pen.textBaseline = "alphabetic";
      pen.fillText(text, Math.min(Math.max(x - wide / 2, GUTTER), GUTTER + this.plotWidth - wide), TOP - 5);
    }
    pen.strokeStyle = look.strong;
    pen.lineWidth = 1;
    pen.strokeRect(GUTTER + 0.5, TOP + 0.5, this.plotWidth - 1, this.plotHeight - 1);
  }

  /** Names beside the rows: the verdict's first, then the chosen one, then as many others as have room. */
  drawLabels(pen, labels) {
    const { look } = this;
    const first = Math.floor(this.view.y0);
    const last = Math.min(Math.ceil(this.view.y1), this.rows) - 1;
    const step = [1, 2, 4, 5, 8, 10, 16, 32, 50, 64, 100, 128, 250, 256, 500, 512, 1000, 1024, 2000, 4096].find((each) => each * this.rowPx >= 15) ?? 8192;
    const others = [first, last];
    for (let row = Math.ceil(first / step) * step; row <= last; row += step) others.push(row);
    for (const row of others) labels.push({ y: Math.min(Math.max(this.yOf(row) + this.rowPx / 2, TOP + 5), TOP + this.plotHeight - 5), text: `${row === first ? "rank " : ""}${this.info.ranks[this.shown[row]]}`, colour: look.muted, weight: 400, first: 2 });
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

  drawAxis(pen) {
    const { look, view } = this;
    const { step, at } = ticks(view.t0, view.t1, this.info.start_ns, Math.max(2, Math.floor(this.plotWidth / 130)));
    pen.font = `11px ${look.font}`;
    pen.textBaseline = "alphabetic";
    pen.textAlign = "center";
    for (const moment of at) {
      const x = this.xOf(moment);
      pen.strokeStyle = look.strong;
      pen.beginPath();
      pen.moveTo(Math.round(x) + 0.5, TOP + this.plotHeight);
      pen.lineTo(Math.round(x) + 0.5, TOP + this.plotHeight + 4);
      pen.stroke();
      pen.fillStyle = look.muted;
      const text = clockText(moment, this.info.start_ns, step);
      const half = pen.measureText(text).width / 2;
      if (x - half >= GUTTER - 20 && x + half <= this.width) pen.fillText(text, x, TOP + this.plotHeight + 16);
    }
    pen.textAlign = "right";
    pen.fillStyle = look.muted;
    pen.fillText("UTC", GUTTER - 24, TOP + this.plotHeight + 16);
  }

  drawMap() {
    const { info, map, look } = this;
    const wide = Math.round(this.width * this.ratio);
    if (map.width !== wide) {
      map.width = wide;
      map.height = Math.round(MAP * this.ratio);
    }
    const pen = map.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, MAP);
    const { bin_us, bins } = info.levels[0];
    const bands = Math.ceil(this.rows / 256);
    const worst = new Uint8Array(bins);
    const keys = [];
    for (let band = 0; band < bands; band += 1) {
      keys.push(`${this.metric}/0/${band}/0`);
      const cells = this.mapTiles.get(this.metric, 0, band, 0);
      if (!cells?.length) continue;
      for (let row = 0; row < 256; row += 1) for (let bin = 0; bin < bins; bin += 1) if (cells[row * 256 + bin] > worst[bin]) worst[bin] = cells[row * 256 + bin];
    }
    this.mapTiles.want(keys);
    const histogram = new Uint32Array(256);
    for (const code of worst) histogram[code] += 1;
    const colours = this.metric === "state" ? null : rampTable(stopsOf(map), 256);
    const [low, high] = scaleOf(histogram, this.metric, info.scale.top);
    const states = this.stateColours();
    const perUs = this.plotWidth / info.span_us;
    for (let bin = 0; bin < bins; bin += 1) {
      if (!worst[bin]) continue;
      const share = Math.min(Math.max((worst[bin] - low) / (high - low), 0), 1);
      pen.fillStyle = colours ? `rgb(${colours[Math.round(share * 255)].join(" ")})` : states[worst[bin]];
      const from = Math.floor(GUTTER + bin * bin_us * perUs);
      pen.fillRect(from, 3, Math.max(Math.ceil(GUTTER + (bin + 1) * bin_us * perUs) - from, 1), MAP - 6);
    }
    pen.fillStyle = look.panel;
    pen.globalAlpha = 0.6;
    const [a, b] = [GUTTER + this.view.t0 * perUs, GUTTER + this.view.t1 * perUs];
    pen.fillRect(GUTTER, 3, a - GUTTER, MAP - 6);
    pen.fillRect(b, 3, GUTTER + this.plotWidth - b, MAP - 6);
    pen.globalAlpha = 1;
    pen.strokeStyle = look.strong;
    pen.strokeRect(GUTTER + 0.5, 3.5, this.plotWidth - 1, MAP - 7);
    pen.strokeStyle = look.focus;
    pen.lineWidth = 2;
    pen.strokeRect(a + 1, 2, Math.max(b - a - 2, 3), MAP - 4);
    pen.lineWidth = 1;
    pen.font = `11px ${look.font}`;
    pen.fillStyle = look.muted;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText("all", GUTTER - 8, MAP / 2);
  }

  drawOver() {
    const pen = this.over.getContext("2d");
    pen.setTransform(this.ratio ?? 1, 0, 0, this.ratio ?? 1, 0, 0);
    pen.clearRect(0, 0, this.width ?? 0, this.height);
    if (!this.pointer || !this.look) return;
    const { x, y } = this.pointer;
    if (this.drag?.box && this.drag.moved) {
      pen.strokeStyle = this.look.focus;
      pen.lineWidth = 1.5;
      pen.strokeRect(this.drag.x, this.drag.y, x - this.drag.x, y - this.drag.y);
      return;
    }
    if (this.info.clock_us) {
      // Between hosts, moments within this band cannot be put in order.
      const half = Math.max((this.info.clock_us / (this.view.t1 - this.view.t0)) * this.plotWidth, 1);
      pen.fillStyle = this.look.focus;
      pen.globalAlpha = 0.16;
      pen.fillRect(Math.max(x - half, GUTTER), TOP, Math.min(2 * half, this.plotWidth), this.plotHeight);
      pen.globalAlpha = 1;
    }
    pen.strokeStyle = this.look.text;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(Math.round(x) + 0.5, TOP);
    pen.lineTo(Math.round(x) + 0.5, TOP + this.plotHeight);
    pen.moveTo(GUTTER, Math.round(y) + 0.5);
    pen.lineTo(GUTTER + this.plotWidth, Math.round(y) + 0.5);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  swatch(colour, text, kind = "") {
    const item = make("span", {});
    item.append(make("span", { class: `timeline__swatch ${kind}`, style: colour ? `background:${colour}` : null }), text);
    return item;
  }

  drawLegend(hasBars) {
    const items = [];
    const { info, look } = this;
    if (hasBars) {
      for (const [family, names] of FAMILIES) items.push(this.swatch(look[family], names));
      items.push(this.swatch(null, "outlined: open; dashed: not entered"));
    } else if (this.metric === "state") {
      this.stateColours().forEach((colour, code) => { if (colour) items.push(this.swatch(colour, info.states[code])); });
    } else {
      const shades = make("canvas", { class: "timeline__ramp", width: "120", height: "10" });
      const pen = shades.getContext("2d");
      rampTable(stopsOf(this.canvas), 120).forEach((colour, x) => {
        pen.fillStyle = `rgb(${colour.join(" ")})`;
        pen.fillRect(x, 0, 1, 10);
      });
      const [low, high] = this.scale;
      const text = (code) => (this.metric === "busy" ? `${Math.round(((code - 1) / (info.scale.top - 1)) * 100)} %` : code < 2 ? "0" : durationText(nsOfCode(Math.min(code, info.scale.top), info.scale)));
      const item = make("span", {});
      item.append(`${this.metric}: ${this.locked || this.metric === "busy" ? "" : "≤ "}${text(low)}`, shades, `${this.metric === "busy" ? "" : "≥ "}${text(high)}`);
      items.push(item);
      if (!this.locked && this.metric !== "busy") items.push(make("span", {}, "scale: 1st to 99th percentile of the view"));
    }
    if (info.silent.length || info.from_us.some((from) => from > 0)) items.push(this.swatch(null, "no log", "timeline__swatch--nolog"));
    if (this.guilty.size) items.push(this.swatch(null, [...this.guilty.values()].every(Boolean) ? "▲ root cause" : "▲ suspects", "timeline__swatch--cause"));
    if (info.clock_us) items.push(make("span", {}, `clocks of hosts: ± ${durationText(info.clock_us * 1000)}`));
    else items.push(make("span", {}, "each host's own clock"));
    if (this.total !== null && this.total > info.bars_max && this.rowPx >= 4) items.push(make("span", {}, `${this.total.toLocaleString("en-US")} operations in view: zoom in for bars`));
    this.legend.replaceChildren(...items);
  }

  worst(limit) {
    const { made, width, height } = this.painted;
    const best = new Map();
    for (let y = 0; y < height; y += 1) {
      const row = Math.floor(this.view.y0 + (y / height) * (this.view.y1 - this.view.y0));
      let code = best.get(row) ?? 0;
      for (let x = 0; x < width; x += 1) if (made[y * width + x] > code) code = made[y * width + x];
      best.set(row, code);
    }
    return [...best].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, limit);
  }

  summary(hasBars) {
    const [[row, code]] = this.worst(1);
    const place = this.shown[row];
    const span = `${clockText(this.view.t0, this.info.start_ns)} to ${clockText(this.view.t1, this.info.start_ns)} UTC`;
    const guilty = [...this.guilty].map(([rank, sure]) => `rank ${rank} is ${sure ? "the root cause" : "a suspect"}`).join(", ");
    const text = `Timeline of ${this.rows} ranks, ${span}, ${hasBars ? "bars" : this.metric}. Most: rank ${this.info.ranks[place]}, ${valueText(code, this.metric, this.info)}.${guilty ? ` By the verdict ${guilty}.` : ""}`;
    if (this.canvas.getAttribute("aria-label") !== text) this.canvas.setAttribute("aria-label", text);
  }

  fillTable() {
    this.table.querySelector(".table-scroll")?.remove();
    if (!this.table.open || !this.painted) return;
    const body = make("tbody");
    const rows = Math.min(Math.ceil(this.view.y1), this.rows) - Math.floor(this.view.y0);
    for (const [row, code] of this.worst(50)) {
      const place = this.shown[row];
      if (place === undefined) continue;
      const rank = this.info.ranks[place];
      const guilty = this.guilty.has(rank) ? (this.guilty.get(rank) ? "▲ root cause" : "▲ suspect") : "";
      body.append(make("tr", {}, make("td", {}, this.link(`rank ${rank}`, "rank", { rank })), make("td", {}, this.info.hosts[this.info.host_of[place]] ?? "–"), make("td", {}, this.silentSet.has(place) ? "no log" : valueText(code, this.metric, this.info)), make("td", {}, guilty)));
    }
    const table = make("table", { class: "table" }, make("thead", {}, make("tr", {}, ...["Rank", "Host", `Most in this window: ${this.metric}`, "Verdict"].map((name) => make("th", { scope: "col" }, name)))), body);
    const place = make("div", { class: "table-scroll", tabindex: "0" }, table);
    if (rows > 50) place.append(make("p", { class: "muted" }, `50 of ${rows.toLocaleString("en-US")} rows, those with most first; several rows may share a pixel`));
    this.table.append(place);
  }

  // ---- bars ------------------------------------------------------------------------------

  covers() {
    const at = this.barsAt;
    return at !== undefined && at.from <= this.view.t0 && at.to >= this.view.t1 && at.order === this.order && at.y0 <= this.view.y0 && at.y1 >= this.view.y1;
  }

  wantBars() {
    if (this.rowPx < 4) {
      this.total = null;
      return;
    }
    const { t0, t1, y0, y1 } = this.view;
    const key = `${t0}/${t1}/${y0}/${y1}/${this.order}`;
    if (key === this.barsKey || (this.bars !== null && this.covers() && this.mode === "bars")) return;
    clearTimeout(this.barsTimer);
    this.barsTimer = setTimeout(() => this.fetchBars(key), BARS_REST_MS);
  }

  async fetchBars(key) {
    this.barsKey = key;
    const { t0, t1, y0, y1 } = this.view;
    const margin = (t1 - t0) * 0.25;
    const from = Math.max(0, Math.floor(t0 - margin));
    const to = Math.min(this.info.span_us, Math.ceil(t1 + margin));
    const places = this.shown.slice(Math.floor(y0), Math.ceil(y1));
    const low = Math.min(...places);
    const high = Math.max(...places);
    this.barsControl?.abort();
    this.barsControl = new AbortController();
    try {
      const answer = await fetch(`${this.base}/bars?t=${from}-${to}&y=${low}-${high}`, { signal: this.barsControl.signal });
      if (!answer.ok) throw new Error(`bars: ${answer.status}`);
      const found = decodeBars(await answer.arrayBuffer());
      this.total = found?.total ?? null;
      this.bars = found && found.count === found.total ? found : null;
      this.barsAt = { from, to, low, y0: Math.floor(y0), y1: Math.ceil(y1), order: this.order };
      this.later();
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error);
    }
  }
}

const running = new Map();

async function mount(place) {
  running.set(place, null);
  try {
    const answer = await fetch(`${place.getAttribute("data-timeline")}/timeline`);
    if (!answer.ok) throw new Error((await answer.json()).error ?? answer.status);
    const info = await answer.json();
    if (place.isConnected && running.has(place)) running.set(place, new TimelineView(place, info));
  } catch (error) {
    place.replaceChildren(make("p", { class: "problem", role: "alert" }, `The timeline could not be read: ${error.message}`));
    place.setAttribute("data-drawn", "");
  }
}

export function startTimelines() {
  const all = () => {
    for (const [place, view] of running) {
      if (place.isConnected) continue;
      view?.end();
      running.delete(place);
    }
    for (const place of document.querySelectorAll("[data-timeline]")) if (!running.has(place)) mount(place);
  };
  new MutationObserver(all).observe(document.body, { childList: true, subtree: true });
  all();
}
