// The whole extent above the picture, with the window in it.

import { scaleOf, shareOf } from "./view.mjs";
import { GUTTER, MAP } from "./plot.mjs";

/** The worst of all ranks in each bin of the coarsest level; also asks for the tiles that are not here. */
function worstOf(timeline) {
  const { bins } = timeline.info.levels[0];
  const worst = new Uint8Array(bins);
  const keys = [];
  for (let band = 0; band < Math.ceil(timeline.rows / 256); band += 1) {
    keys.push(`${timeline.metric}/0/${band}/0`);
    const cells = timeline.mapTiles.get(timeline.metric, 0, band, 0);
    if (!cells?.length) continue;
    for (let row = 0; row < 256; row += 1) for (let bin = 0; bin < bins; bin += 1) if (cells[row * 256 + bin] > worst[bin]) worst[bin] = cells[row * 256 + bin];
  }
  timeline.mapTiles.want(keys);
  return worst;
}

/** The shades of the whole extent. */
function paintShades(timeline, pen) {
  const { info } = timeline;
  const worst = worstOf(timeline);
  const histogram = new Uint32Array(256);
  for (const code of worst) histogram[code] += 1;
  const scale = scaleOf(histogram, timeline.metric, info.scale.top);
  const states = timeline.stateColours();
  const perBin = (timeline.plotWidth / info.span_us) * info.levels[0].bin_us;
  worst.forEach((code, bin) => {
    if (!code) return;
    pen.fillStyle = timeline.metric === "state" ? states[code] : `rgb(${timeline.ramp[Math.round(shareOf(code, scale) * 255)].join(" ")})`;
    const from = Math.floor(GUTTER + bin * perBin);
    pen.fillRect(from, 3, Math.max(Math.ceil(GUTTER + (bin + 1) * perBin) - from, 1), MAP - 6);
  });
}

export function drawMap(timeline) {
  const { info, map, look } = timeline;
  const wide = Math.round(timeline.width * timeline.ratio);
  if (map.width !== wide) {
    map.width = wide;
    map.height = Math.round(MAP * timeline.ratio);
  }
  // The shades change with a tile that comes, never with the window.
  const key = [timeline.metric, timeline.mapTiles.kept.size, wide, timeline.looked].join("/");
  if (timeline.mapKey !== key) {
    timeline.mapShades ??= document.createElement("canvas");
    timeline.mapShades.width = wide;
    timeline.mapShades.height = map.height;
    const pen = timeline.mapShades.getContext("2d");
    pen.setTransform(timeline.ratio, 0, 0, timeline.ratio, 0, 0);
    paintShades(timeline, pen);
    timeline.mapKey = key;
  }
  const pen = map.getContext("2d");
  pen.setTransform(timeline.ratio, 0, 0, timeline.ratio, 0, 0);
  pen.clearRect(0, 0, timeline.width, MAP);
  pen.drawImage(timeline.mapShades, 0, 0, timeline.width, MAP);
  const perUs = timeline.plotWidth / info.span_us;
  pen.fillStyle = look.panel;
  pen.globalAlpha = 0.6;
  const [a, b] = [GUTTER + timeline.view.t0 * perUs, GUTTER + timeline.view.t1 * perUs];
  pen.fillRect(GUTTER, 3, a - GUTTER, MAP - 6);
  pen.fillRect(b, 3, GUTTER + timeline.plotWidth - b, MAP - 6);
  pen.globalAlpha = 1;
  pen.strokeStyle = look.strong;
  pen.strokeRect(GUTTER + 0.5, 3.5, timeline.plotWidth - 1, MAP - 7);
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
