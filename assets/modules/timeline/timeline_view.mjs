// The timeline in the page: `<div data-timeline="address of the trace in the API">`.

import { announce } from "../copying.mjs";
import { stopsOf, table as rampTable } from "../ramp.mjs";
import { choose, settle, view as addressView } from "../view_state.mjs";
import { paintBars } from "./bars.mjs";
import { codes, packed, pixels, tableOf } from "./painter.mjs";
import { Tiles, TILES_MAX } from "./tiles.mjs";
import { clamped, levelFor, modeFor, ordered, scaleOf, zoomed } from "./view.mjs";
import { AXIS, GUTTER, make, RIGHT, TOP } from "./plot.mjs";
import { buildControls, ORDER_NAMES } from "./controls.mjs";
import { Follow } from "./follow.mjs";
import { listen } from "./gestures.mjs";
import { fillTable, hit, summary, tellSelected } from "./words.mjs";
import { drawAxis, drawMarks, drawOver, drawSilent } from "./marks.mjs";
import { drawLegend } from "./legend.mjs";
import { drawMap } from "./minimap.mjs";
import { covers, wantBars } from "./bars_source.mjs";

const TOGETHER_MS = 50;

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
    this.take();
    buildControls(this);
    listen(this);
    this.read();
    this.abort = new AbortController();
    const { signal } = this.abort;
    window.addEventListener("popstate", () => { this.read(); this.later(); }, { signal });
    window.addEventListener("mycroft:view", () => { this.read(); this.later(); }, { signal });
    window.addEventListener("mycroft:chosen", ({ detail }) => this.heed(detail.r), { signal });
    window.addEventListener("mycroft:theme", () => { this.look = null; this.later(); }, { signal });
    this.resize = new ResizeObserver(() => this.later());
    this.resize.observe(place);
    const facts = place.getAttribute("data-follow");
    if (facts) this.follow = new Follow(this, facts, this.followControl);
    this.draw();
  }

  /** Draws what has come: at once when it is the last of what is wanted, else some of it together. */
  arrived() {
    if (!this.tiles.busy && !this.mapTiles.busy) this.later();
    else this.arrivals ??= setTimeout(() => this.later(), TOGETHER_MS);
  }

  /** Makes what depends on the trace. */
  take() {
    this.tiles = new Tiles(this.base, () => this.arrived(), (error) => this.fail(error));
    this.mapTiles = new Tiles(this.base, () => this.arrived(), (error) => this.fail(error));
    this.silentSet = new Set(this.info.silent);
    this.guilty = new Map();
    for (const incident of this.info.incidents) for (const rank of incident.ranks) if (!this.guilty.has(rank)) this.guilty.set(rank, incident.sure);
  }

  /** Shows another generation of the same job: a window at the end stays at the end, and as long as it was. */
  replace(base, info) {
    const { t0, t1, y0, y1 } = this.view;
    const whole = t0 <= 0 && t1 >= this.info.span_us;
    const every = y0 <= 0 && y1 >= this.rows;
    this.tiles.end();
    this.mapTiles.end();
    this.barsControl?.abort();
    [this.base, this.info, this.bars, this.barsAt, this.barsKey, this.total] = [base, info, null, undefined, null, null];
    [this.mapKey, this.legendKey] = [null, null];
    this.take();
    this.setOrder();
    const length = whole ? info.span_us : t1 - t0;
    this.view = clamped({ t0: info.span_us - length, t1: info.span_us, y0, y1: every ? this.rows : y1 }, info.span_us, this.rows);
    this.later();
  }

  atEnd() {
    return this.view.t1 >= this.info.span_us;
  }

  toEnd() {
    const { t0, t1 } = this.view;
    this.view = clamped({ ...this.view, t0: this.info.span_us - (t1 - t0), t1: this.info.span_us }, this.info.span_us, this.rows);
    settle({ t: null });
    this.later();
  }

  /** Gives back what a page that is gone must not keep. */
  end() {
    this.abort.abort();
    this.resize.disconnect();
    this.follow?.end();
    this.tiles.end();
    this.mapTiles.end();
    this.barsControl?.abort();
    this.hitControl?.abort();
    cancelAnimationFrame(this.frame);
    for (const timer of [this.barsTimer, this.hitTimer, this.arrivals]) clearTimeout(timer);
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

  /** Another part of the page chose a rank: its row is marked, and the window stays; null: none any more. */
  heed(rank) {
    if (rank === undefined || rank === this.rank) return;
    this.rank = rank;
    this.later();
  }

  setOrder() {
    this.shown = ordered(this.info, this.order);
    this.placeOf = new Map(this.shown.map((place, row) => [place, row]));
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
    this.follow?.pause();
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
    const found = await hit(this);
    const op = found?.ops[0] ?? null;
    const key = op ? (this.info.comms[op.comm]?.[0] ?? null) : null;
    this.rank = rank;
    this.op = op && key ? { key, seq: op.seq, comm: op.comm } : null;
    choose({ r: rank, c: this.op?.key ?? null, op: this.op?.seq ?? null });
    tellSelected(this, rank, op, key);
    this.later();
  }

  fail(error) {
    this.said.textContent = `A part of the timeline could not be read: ${error.message}`;
  }

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
    clearTimeout(this.arrivals);
    this.arrivals = null;
    const room = this.place.clientWidth;
    if (!room) return;
    this.width = room;
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.plotWidth = Math.max(room - GUTTER - RIGHT, 50);
    this.plotHeight = this.height - TOP - AXIS;
    if (!this.look) {
      this.look = this.colours();
      this.ramp = rampTable(stopsOf(this.canvas), 256);
      this.looked = (this.looked ?? 0) + 1;
    }
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
    const hasBars = this.mode === "bars" && this.bars !== null && covers(this);
    this.drawHeat(pen, !hasBars);
    if (hasBars) this.drawBars(pen);
    drawSilent(this, pen);
    drawMarks(this, pen);
    drawAxis(this, pen);
    drawMap(this);
    drawOver(this);
    const complete = !this.tiles.busy && !this.mapTiles.busy;
    // Words follow the picture once it is whole.
    if (complete || !this.legendKey) {
      drawLegend(this, hasBars);
      summary(this, hasBars);
      if (this.table.open) fillTable(this);
    }
    wantBars(this);
    this.place.toggleAttribute("data-settled", complete);
    if (complete) this.place.setAttribute("data-drawn", "");
    this.place.setAttribute("data-mode", hasBars ? "bars" : "heat");
  }

  drawHeat(pen, visible) {
    const { info, view } = this;
    const width = Math.round(this.plotWidth * this.ratio);
    const height = Math.round(this.plotHeight * this.ratio);
    const level = this.levelOf(width);
    const found = codes({ view, level, levels: info.levels, tiles: this.tiles, metric: this.metric, order: this.shown, width, height, lines: this.painted?.lines });
    this.painted = { ...found, width, height };
    const { firstTile, lastTile, bands } = found.need;
    const columns = (first, last) => Array.from({ length: Math.max(last - first + 1, 0) }, (_, at) => bands.map((band) => `${this.metric}/${level}/${band}/${first + at}`)).flat();
    const wanted = columns(firstTile, lastTile);
    // One more on either side, while nothing else is to be done: the next step of who pans.
    const end = (info.levels[level].bins - 1) >> 8;
    const near = [...columns(Math.max(firstTile - 1, 0), firstTile - 1), ...columns(lastTile + 1, Math.min(lastTile + 1, end))];
    this.tiles.want(wanted, wanted.length + near.length <= TILES_MAX ? near : []);
    this.scale = this.locked ?? scaleOf(found.histogram, this.metric, info.scale.top);
    if (!visible) return;
    if (this.image?.width !== width || this.image.height !== height) {
      this.image = new ImageData(width, height);
      this.buffer = document.createElement("canvas");
      this.buffer.width = width;
      this.buffer.height = height;
    }
    pixels(found.made, this.metric === "state" ? this.stateTable() : tableOf(this.ramp, this.scale), this.image);
    this.buffer.getContext("2d").putImageData(this.image, 0, 0);
    pen.drawImage(this.buffer, GUTTER, TOP, this.plotWidth, this.plotHeight);
  }

  /** The level of the picture: a coarser one where its tiles would be more than are kept. */
  levelOf(width) {
    const { levels } = this.info;
    const { t0, t1, y0, y1 } = this.view;
    const bands = this.order === "rank" ? Math.ceil(y1 / 256) - Math.floor(y0 / 256) : Math.ceil(this.rows / 256);
    let level = levelFor(levels, (t1 - t0) / width);
    while (level > 0 && bands * (Math.ceil((t1 - t0) / levels[level].bin_us / 256) + 1) > TILES_MAX) level -= 1;
    return level;
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
