// The tiles that are here: 256 at most, the longest unused goes first. What left the view is not waited for.

export const TILES_MAX = 256;
const EMPTY = new Uint8Array(0);

export class Tiles {
  constructor(base, arrived, failed) {
    this.base = base;
    this.arrived = arrived;
    this.failed = failed;
    this.kept = new Map();
    this.running = new Map();
  }

  /** The cells of a tile: 65,536 bytes, none where it is empty; undefined: it is not here. */
  get(metric, level, y, x) {
    const key = `${metric}/${level}/${y}/${x}`;
    const found = this.kept.get(key);
    if (found !== undefined) {
      this.kept.delete(key);
      this.kept.set(key, found);
    }
    return found;
  }

  /** Asks for these tiles and for nothing else any more. */
  want(keys) {
    const wanted = new Set(keys);
    for (const [key, control] of this.running) {
      if (wanted.has(key)) continue;
      control.abort();
      this.running.delete(key);
    }
    for (const key of wanted) if (!this.kept.has(key) && !this.running.has(key)) this.fetch(key);
  }

  async fetch(key) {
    const control = new AbortController();
    this.running.set(key, control);
    try {
      const answer = await fetch(`${this.base}/tiles/${key}`, { signal: control.signal });
      if (!answer.ok) throw new Error(`tile ${key}: ${answer.status}`);
      this.keep(key, answer.status === 204 ? EMPTY : new Uint8Array(await answer.arrayBuffer()));
      this.arrived();
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
    } finally {
      if (this.running.get(key) === control) this.running.delete(key);
    }
  }

  keep(key, cells) {
    this.kept.set(key, cells);
    while (this.kept.size > TILES_MAX) this.kept.delete(this.kept.keys().next().value);
  }

  get busy() {
    return this.running.size;
  }

  end() {
    for (const control of this.running.values()) control.abort();
    this.running.clear();
    this.kept.clear();
  }
}
