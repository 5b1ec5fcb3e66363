// The lines of a picture: which rows fall into each pixel row, and of each tile the worst of the rows of every line.
// It depends on rows and height alone: who moves along time, or waits for one more tile, has all others made already.

const SIDE = 256;

export class Lines {
  constructor(view, order, height) {
    this.key = Lines.keyOf(view, height);
    this.order = order;
    const rows = view.y1 - view.y0;
    /** Of each pixel row, the number of its line; rows of a few pixels are one line. */
    this.of = new Int32Array(height);
    /** Of each line, the bands that its rows are in, each with the place of the line among those of the band. */
    this.parts = [];
    this.bands = new Map();
    let before = [-1, -1];
    for (let y = 0; y < height; y += 1) {
      const first = Math.floor(view.y0 + (y * rows) / height);
      const last = Math.max(first, Math.ceil(view.y0 + ((y + 1) * rows) / height) - 1);
      if (first !== before[0] || last !== before[1]) this.add(first, Math.min(last, order.length - 1));
      before = [first, last];
      this.of[y] = this.parts.length - 1;
    }
  }

  static keyOf({ y0, y1 }, height) {
    return `${y0}/${y1}/${height}`;
  }

  fits(view, order, height) {
    return this.order === order && this.key === Lines.keyOf(view, height);
  }

  add(first, last) {
    const mine = new Map();
    for (let row = first; row <= last; row += 1) {
      const number = this.order[row] >> 8;
      let band = this.bands.get(number);
      if (band === undefined) this.bands.set(number, (band = { rows: [], made: new WeakMap() }));
      let at = mine.get(number);
      if (at === undefined) {
        mine.set(number, (at = band.rows.length));
        band.rows.push([]);
      }
      band.rows[at].push(this.order[row] & 255);
    }
    this.parts.push([...mine]);
  }

  /** The worst of the rows of each line of a band, of one tile: as many rows of 256 as the band has lines. */
  worst(number, tile) {
    const band = this.bands.get(number);
    const known = band.made.get(tile);
    if (known !== undefined) return known;
    const made = new Uint8Array(band.rows.length * SIDE);
    band.rows.forEach((rows, line) => {
      const into = line * SIDE;
      made.set(tile.subarray(rows[0] * SIDE, (rows[0] + 1) * SIDE), into);
      for (let more = 1; more < rows.length; more += 1) {
        const from = rows[more] * SIDE;
        for (let bin = 0; bin < SIDE; bin += 1) if (tile[from + bin] > made[into + bin]) made[into + bin] = tile[from + bin];
      }
    });
    band.made.set(tile, made);
    return made;
  }
}
