// Turns tiles into pixels: every pixel shows the worst of the cells that fall into it, so that a stall is never lost.

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
export function needed(view, level, bin_us, bins, order, width) {
  const first = Math.max(0, Math.floor(view.t0 / bin_us));
  const last = Math.min(bins - 1, Math.ceil(view.t1 / bin_us));
  const bands = new Set();
  for (let row = Math.floor(view.y0); row < Math.ceil(view.y1); row += 1) bands.add(order[row] >> 8);
  return { first, last, firstTile: first >> 8, lastTile: last >> 8, bands: [...bands].sort((a, b) => a - b), width };
}

/**
 * The codes of a picture, `width` by `height`: 0 is nothing. `order` gives for each row shown its place among all ranks.
 * Also counts the codes, for the scale.
 */
export function codes({ view, level, levels, tiles, metric, order, width, height }) {
  const { bin_us, bins } = levels[level];
  const need = needed(view, level, bin_us, bins, order, width);
  const sources = new Map();
  for (const band of need.bands) {
    const row = [];
    for (let x = need.firstTile; x <= need.lastTile; x += 1) row.push(sourceOf(tiles, metric, level, band, x));
    sources.set(band, row);
  }
  const from = new Int32Array(width);
  const to = new Int32Array(width);
  const perPixel = (view.t1 - view.t0) / width;
  for (let x = 0; x < width; x += 1) {
    from[x] = Math.floor((view.t0 + x * perPixel) / bin_us);
    to[x] = Math.max(from[x], Math.ceil((view.t0 + (x + 1) * perPixel) / bin_us) - 1);
    if (to[x] >= bins) to[x] = bins - 1;
  }
  const made = new Uint8Array(width * height);
  const histogram = new Uint32Array(256);
  const rows = view.y1 - view.y0;
  const begin = need.firstTile * SIDE;
  // First the worst of the rows of a pixel, bin by bin along the tiles, then of the bins of a pixel: each cell is looked
  // at once, however many pixels and rows it falls into.
  const worst = new Uint8Array((need.lastTile - need.firstTile + 1) * SIDE);
  let before = -1;
  let beforeLast = -1;
  for (let y = 0; y < height; y += 1) {
    const first = Math.floor(view.y0 + (y * rows) / height);
    const last = Math.max(first, Math.ceil(view.y0 + ((y + 1) * rows) / height) - 1);
    const line = y * width;
    if (first === before && last === beforeLast) {
      made.copyWithin(line, line - width, line);
      continue;
    }
    before = first;
    beforeLast = last;
    worst.fill(0);
    for (let row = first; row <= last && row < order.length; row += 1) {
      const mine = sources.get(order[row] >> 8);
      if (mine) raise(worst, mine, (order[row] & 255) * SIDE, need);
    }
    for (let x = 0; x < width; x += 1) {
      let code = 0;
      for (let bin = from[x] - begin; bin <= to[x] - begin; bin += 1) if (worst[bin] > code) code = worst[bin];
      made[line + x] = code;
    }
  }
  for (let at = 0; at < made.length; at += 1) histogram[made[at]] += 1;
  return { made, histogram, need };
}

/** Raises the worst of each bin by one row of the tiles beside each other; the row begins at `base` in each tile. */
function raise(worst, tiles, base, { first, last, firstTile }) {
  for (let at = 0; at < tiles.length; at += 1) {
    const { data, shift } = tiles[at];
    if (data === null || data.length === 0) continue;
    const start = (firstTile + at) * SIDE;
    const low = Math.max(first - start, 0);
    const high = Math.min(last - start, SIDE - 1);
    const into = at * SIDE;
    if (shift === 0) {
      for (let bin = low; bin <= high; bin += 1) if (data[base + bin] > worst[into + bin]) worst[into + bin] = data[base + bin];
      continue;
    }
    for (let bin = low; bin <= high; bin += 1) {
      const code = data[base + (((start + bin) >> shift) & 255)];
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
