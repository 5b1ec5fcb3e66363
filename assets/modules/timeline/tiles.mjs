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
    this.wanted = new Set();
    this.spare = [];
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

  /** Asks for these tiles and for nothing else any more; for the spare ones once these are here. */
  want(keys, spare = []) {
    const wanted = new Set(keys);
    const early = new Set(spare);
    for (const [key, control] of this.running) {
      if (wanted.has(key) || early.has(key)) continue;
      control.abort();
      this.running.delete(key);
    }
    for (const key of wanted) if (!this.kept.has(key) && !this.running.has(key)) this.fetch(key);
    this.wanted = wanted;
    this.spare = spare;
    if (!this.busy) this.later();
  }

  /** Fetches spare tiles when the browser has nothing to do. */
  later() {
    if (this.spare.every((key) => this.kept.has(key) || this.running.has(key))) return;
    cancelIdleCallback(this.idle);
    this.idle = requestIdleCallback(() => {
      for (const key of this.spare) if (!this.busy && !this.kept.has(key) && !this.running.has(key)) this.fetch(key);
    });
  }

  async fetch(key) {
    const control = new AbortController();
    this.running.set(key, control);
    try {
      const answer = await fetch(`${this.base}/tiles/${key}`, { signal: control.signal });
      if (!answer.ok) throw new Error(`tile ${key}: ${answer.status}`);
      this.keep(key, answer.status === 204 ? EMPTY : new Uint8Array(await answer.arrayBuffer()));
      if (this.running.get(key) === control) this.running.delete(key);
      if (this.wanted.has(key)) this.arrived();
    } catch (error) {
      this.spare = this.spare.filter((other) => other !== key);
      if (error.name !== "AbortError" && this.wanted.has(key)) this.failed(error);
    } finally {
      if (this.running.get(key) === control) this.running.delete(key);
      if (!this.busy) this.later();
    }
  }

  keep(key, cells) {
    this.kept.set(key, cells);
    while (this.kept.size > TILES_MAX) this.kept.delete(this.kept.keys().next().value);
  }

  /** Whether a tile that is wanted is on its way. */
  get busy() {
    for (const key of this.running.keys()) if (this.wanted.has(key)) return true;
    return false;
  }

  end() {
    cancelIdleCallback(this.idle);
    this.spare = [];
    for (const control of this.running.values()) control.abort();
    this.running.clear();
    this.kept.clear();
  }
}
