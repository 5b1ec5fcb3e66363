// Turns tiles into pixels: every pixel shows the worst of the cells that fall into it, so that a stall is never lost.

import { Lines } from "./lines.mjs";
import { shareOf } from "./view.mjs";

const SIDE = 256;

/** The tile to read for a tile of `level` that may not be here: itself, else the finest coarser one that is. */
export function sourceOf(tiles, metric, level, y, x) {
  for (let up = 0; up <= level; up += 1) {
    const found = tiles.get(metric, level - up, y, x >> (2 * up));
    if (found !== undefined) return { data: found, shift: 2 * up };
  }
  return { data: null, shift: 0 };
}

/** The tiles that a window needs at a level. */
export function needed(view, bin_us, bins, bands) {
  const first = Math.max(0, Math.floor(view.t0 / bin_us));
  const last = Math.min(bins - 1, Math.ceil(view.t1 / bin_us));
  return { first, last, firstTile: first >> 8, lastTile: last >> 8, bands };
}

/**
 * The codes of a picture, `width` by `height`: 0 is nothing. `order` gives for each row shown its place among all ranks.
 * Also counts the codes, for the scale, and tells the most of each line. `lines` are those of an earlier picture, if any.
 */
export function codes({ view, level, levels, tiles, metric, order, width, height, lines = null }) {
  const { bin_us, bins } = levels[level];
  const kept = lines?.fits(view, order, height) ? lines : new Lines(view, order, height);
  const need = needed(view, bin_us, bins, [...kept.bands.keys()].sort((a, b) => a - b));
  const sources = new Map();
  for (const band of need.bands) {
    const row = [];
    for (let x = need.firstTile; x <= need.lastTile; x += 1) {
      const { data, shift } = sourceOf(tiles, metric, level, band, x);
      if (data?.length) row.push({ at: x - need.firstTile, data: kept.worst(band, data), shift });
    }
    sources.set(band, row);
  }
  const begin = need.firstTile * SIDE;
  const from = new Int32Array(width);
  const to = new Int32Array(width);
  const perPixel = (view.t1 - view.t0) / width;
  for (let x = 0; x < width; x += 1) {
    const low = Math.floor((view.t0 + x * perPixel) / bin_us);
    from[x] = low - begin;
    to[x] = Math.min(Math.max(low, Math.ceil((view.t0 + (x + 1) * perPixel) / bin_us) - 1), bins - 1) - begin;
  }
  const made = new Uint8Array(width * height);
  const histogram = new Uint32Array(256);
  const most = new Uint8Array(kept.parts.length);
  const worst = new Uint8Array((need.lastTile - need.firstTile + 1) * SIDE);
  for (let y = 0; y < height; y += 1) {
    const number = kept.of[y];
    const line = y * width;
    if (y > 0 && number === kept.of[y - 1]) {
      made.copyWithin(line, line - width, line);
      for (let x = line; x < line + width; x += 1) histogram[made[x]] += 1;
      continue;
    }
    worst.fill(0);
    for (const [band, place] of kept.parts[number]) raise(worst, sources.get(band), place * SIDE, begin);
    let best = 0;
    for (let x = 0; x < width; x += 1) {
      let code = 0;
      for (let bin = from[x]; bin <= to[x]; bin += 1) if (worst[bin] > code) code = worst[bin];
      made[line + x] = code;
      histogram[code] += 1;
      if (code > best) best = code;
    }
    most[number] = best;
  }
  return { made, histogram, need, lines: kept, most };
}

/** Raises the worst of each bin by one line of the tiles beside each other; the line begins at `base` in each. */
function raise(worst, tiles, base, begin) {
  for (const { at, data, shift } of tiles) {
    const into = at * SIDE;
    for (let bin = 0; bin < SIDE; bin += 1) {
      const code = data[base + (shift === 0 ? bin : ((begin + into + bin) >> shift) & 255)];
      if (code > worst[into + bin]) worst[into + bin] = code;
    }
  }
}

/** The pixels of codes in the colours of a table of 256 entries, each as a 32-bit number; 0 is see-through. */
export function pixels(made, table, image) {
  const out = new Uint32Array(image.data.buffer);
  for (let at = 0; at < made.length; at += 1) out[at] = table[made[at]];
}

/** The table from codes to colours: `colours` is the ramp. */
export function tableOf(colours, scale) {
  const made = new Uint32Array(256);
  for (let code = 1; code < 256; code += 1) {
    made[code] = packed(colours[Math.round(shareOf(code, scale) * (colours.length - 1))]);
  }
  return made;
}

export function packed([r, g, b]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
