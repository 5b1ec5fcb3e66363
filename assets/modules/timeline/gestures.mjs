// Wheel, pointer and keys on the picture, turned into windows and selections.

import { panned, zoomedRows } from "./view.mjs";
import { GUTTER } from "./plot.mjs";
import { hit, tellHit, tellPointer } from "./words.mjs";
import { drawOver } from "./marks.mjs";

const REST_MS = 60;

export function listen(timeline) {
  const { canvas, map } = timeline;
  canvas.addEventListener("wheel", (event) => onWheel(timeline, event), { passive: false });
  canvas.addEventListener("pointerdown", (event) => onDown(timeline, event));
  canvas.addEventListener("pointermove", (event) => onMove(timeline, event));
  canvas.addEventListener("pointerup", (event) => onUp(timeline, event));
  canvas.addEventListener("pointercancel", () => { timeline.drag = null; });
  canvas.addEventListener("pointerleave", () => { timeline.pointer = null; drawOver(timeline); });
  canvas.addEventListener("dblclick", (event) => onDouble(timeline, event));
  canvas.addEventListener("keydown", (event) => onKey(timeline, event));
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); timeline.mapDrag = true; onMap(timeline, event); });
  map.addEventListener("pointermove", (event) => { if (timeline.mapDrag) onMap(timeline, event); });
  map.addEventListener("pointerup", () => { timeline.mapDrag = false; });
}

function onWheel(timeline, event) {
  // In a longer page the wheel scrolls the page until the picture has been clicked.
  if (timeline.embedded && document.activeElement !== timeline.canvas) return;
  event.preventDefault();
  const delta = event.deltaY || event.deltaX;
  const factor = Math.exp(Math.min(Math.max(delta, -240), 240) / 300);
  if (event.shiftKey) timeline.show(zoomedRows(timeline.view, factor, timeline.rowAt(event.offsetY)));
  else timeline.zoom(factor, timeline.timeAt(event.offsetX));
}

function onDown(timeline, event) {
  if (event.button !== 0 || !timeline.inside(event)) return;
  timeline.canvas.setPointerCapture(event.pointerId);
  timeline.drag = { x: event.offsetX, y: event.offsetY, view: timeline.view, box: event.shiftKey, moved: false };
}

function onMove(timeline, event) {
  timeline.pointer = timeline.inside(event) ? { x: event.offsetX, y: event.offsetY } : null;
  if (timeline.drag) {
    const dx = event.offsetX - timeline.drag.x;
    const dy = event.offsetY - timeline.drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 3) timeline.drag.moved = true;
    if (timeline.drag.moved && !timeline.drag.box) {
      const { view } = timeline.drag;
      timeline.show(panned(view, (-dx / timeline.plotWidth) * (view.t1 - view.t0), (-dy / timeline.plotHeight) * (view.y1 - view.y0)));
    }
  }
  drawOver(timeline);
  clearTimeout(timeline.hitTimer);
  if (timeline.pointer && !timeline.drag) {
    tellPointer(timeline);
    timeline.hitTimer = setTimeout(() => tellHit(timeline), REST_MS);
  }
}

function onUp(timeline, event) {
  const { drag } = timeline;
  timeline.drag = null;
  if (!drag) return;
  if (drag.moved && drag.box) {
    const [a, b] = [timeline.timeAt(drag.x), timeline.timeAt(event.offsetX)].sort((p, q) => p - q);
    const [c, d] = [timeline.rowAt(drag.y), timeline.rowAt(event.offsetY)].sort((p, q) => p - q);
    if (b > a) timeline.show({ t0: a, t1: b, y0: Math.floor(c), y1: Math.max(Math.ceil(d), Math.floor(c) + 1) });
  } else if (!drag.moved) timeline.select();
  drawOver(timeline);
}

async function onDouble(timeline, event) {
  if (!timeline.inside(event)) return;
  timeline.pointer = { x: event.offsetX, y: event.offsetY };
  const found = await hit(timeline);
  const op = found?.ops[0];
  if (!op) return;
  const length = Math.max(op.end_us - op.start_us, 10);
  timeline.show({ ...timeline.view, t0: op.start_us - length * 0.3, t1: op.end_us + length * 0.3 });
}

function onMap(timeline, event) {
  const share = Math.min(Math.max((event.offsetX - GUTTER) / timeline.plotWidth, 0), 1);
  const length = timeline.view.t1 - timeline.view.t0;
  const middle = share * timeline.info.span_us;
  timeline.show({ ...timeline.view, t0: middle - length / 2, t1: middle + length / 2 });
}

function onKey(timeline, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 1 : 0.1;
  const { view } = timeline;
  const time = (view.t1 - view.t0) * far;
  const rows = Math.max((view.y1 - view.y0) * far, 1);
  const what = {
    ArrowLeft: () => timeline.show(panned(view, -time)),
    ArrowRight: () => timeline.show(panned(view, time)),
    ArrowUp: () => timeline.show(panned(view, 0, -rows)),
    ArrowDown: () => timeline.show(panned(view, 0, rows)),
    "+": () => (event.shiftKey && event.code !== "Equal" ? timeline.show(zoomedRows(view, 0.5, (view.y0 + view.y1) / 2)) : timeline.zoom(0.5)),
    "=": () => timeline.zoom(0.5),
    "-": () => timeline.zoom(2),
    "−": () => timeline.zoom(2),
    "_": () => timeline.show(zoomedRows(view, 2, (view.y0 + view.y1) / 2)),
    0: () => timeline.whole(),
    f: () => timeline.fit(),
    n: () => timeline.incident(1),
    p: () => timeline.incident(-1),
    "?": () => { timeline.keys.open = !timeline.keys.open; },
    Enter: () => timeline.select(),
  }[event.key];
  if (!what) return;
  event.preventDefault();
  what();
}
