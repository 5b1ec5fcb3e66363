// The bars of the window with some room on either side, fetched when the window rests.

import { decodeBars } from "./view.mjs";

const BARS_REST_MS = 90;

export function covers(timeline) {
  const at = timeline.barsAt;
  return at !== undefined && at.from <= timeline.view.t0 && at.to >= timeline.view.t1 && at.order === timeline.order && at.y0 <= timeline.view.y0 && at.y1 >= timeline.view.y1;
}

export function wantBars(timeline) {
  if (timeline.rowPx < 4) {
    timeline.total = null;
    return;
  }
  const { t0, t1, y0, y1 } = timeline.view;
  const key = `${t0}/${t1}/${y0}/${y1}/${timeline.order}`;
  if (key === timeline.barsKey || (timeline.bars !== null && covers(timeline) && timeline.mode === "bars")) return;
  clearTimeout(timeline.barsTimer);
  timeline.barsTimer = setTimeout(() => fetchBars(timeline, key), BARS_REST_MS);
}

async function fetchBars(timeline, key) {
  timeline.barsKey = key;
  const { t0, t1, y0, y1 } = timeline.view;
  const margin = (t1 - t0) * 0.25;
  const from = Math.max(0, Math.floor(t0 - margin));
  const to = Math.min(timeline.info.span_us, Math.ceil(t1 + margin));
  const places = timeline.shown.slice(Math.floor(y0), Math.ceil(y1));
  const low = Math.min(...places);
  const high = Math.max(...places);
  timeline.barsControl?.abort();
  timeline.barsControl = new AbortController();
  try {
    const answer = await fetch(`${timeline.base}/bars?t=${from}-${to}&y=${low}-${high}`, { signal: timeline.barsControl.signal });
    if (!answer.ok) throw new Error(`bars: ${answer.status}`);
    const found = decodeBars(await answer.arrayBuffer());
    timeline.total = found?.total ?? null;
    timeline.estimated = found?.estimated ?? false;
    timeline.bars = found && found.count === found.total ? found : null;
    timeline.barsAt = { from, to, low, y0: Math.floor(y0), y1: Math.ceil(y1), order: timeline.order };
    timeline.later();
  } catch (error) {
    if (error.name !== "AbortError") timeline.fail(error);
  }
}
