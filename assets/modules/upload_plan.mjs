// The arithmetic of an upload: what is still to be sent, how fast it goes, when to try again. Pure functions.

/** Number of chunks of a file; an empty file has none. */
export function chunkCount(size, chunkBytes) {
  return Math.ceil(size / chunkBytes);
}

/** Whether chunk `n` lies in one of the [first, past the last) ranges that the server has. */
function isReceived(ranges, n) {
  return ranges.some(([first, end]) => n >= first && n < end);
}

/**
 * The chunks that the server lacks, in order. `files` are `{size}`, `received` the server's list
 * `{file, received: [[first, past the last], …]}`; a file that it does not list has nothing yet.
 */
export function missingChunks(files, received, chunkBytes) {
  const known = new Map(received.map((entry) => [entry.file, entry.received]));
  const missing = [];
  files.forEach(({ size }, file) => {
    const ranges = known.get(file) ?? [];
    for (let chunk = 0; chunk < chunkCount(size, chunkBytes); chunk += 1) {
      if (isReceived(ranges, chunk)) continue;
      const start = chunk * chunkBytes;
      missing.push({ file, chunk, start, end: Math.min(start + chunkBytes, size) });
    }
  });
  return missing;
}

/**
 * A name for a set of files, the same whenever they are picked again: from paths, sizes and times, in any order.
 * Not a checksum of their content; the server compares sizes again.
 */
export function fingerprint(files) {
  const lines = files.map(({ path, size, mtime }) => `${path}\n${size}\n${mtime ?? ""}`).sort();
  // FNV-1a, twice 32 bits with different starts: short, and enough to tell one person's uploads apart.
  const hash = (start) => {
    let value = start;
    for (const line of lines) {
      for (let i = 0; i < line.length; i += 1) {
        value = Math.imul(value ^ line.charCodeAt(i), 0x01000193) >>> 0;
      }
      value = Math.imul(value ^ 0xff, 0x01000193) >>> 0;
    }
    return value.toString(16).padStart(8, "0");
  };
  return `${files.length}-${hash(0x811c9dc5)}${hash(0x1b873593)}`;
}

/** Whether an answer is worth another try: server errors and none at all (status 0), never a refusal. */
export function isWorthRetrying(status) {
  return status === 0 || status === 408 || status === 429 || status >= 500;
}

/** Milliseconds before try number `attempt` (from 1): doubling from 0.5 s to 30 s, of which a random part is taken. */
export function backoff(attempt, random = Math.random) {
  const most = Math.min(30_000, 500 * 2 ** (attempt - 1));
  return Math.round(most / 2 + (most / 2) * random());
}

/** Bytes per second over the last ten seconds; null until there is something to go by. */
export class RateMeter {
  #samples = [];

  /** Notes that `total` bytes had been sent at `ms`. */
  add(total, ms) {
    this.#samples.push({ total, ms });
    while (this.#samples.length > 2 && this.#samples[0].ms < ms - 10_000) this.#samples.shift();
  }

  rate() {
    if (this.#samples.length < 2) return null;
    const first = this.#samples[0];
    const last = this.#samples[this.#samples.length - 1];
    const seconds = (last.ms - first.ms) / 1000;
    return seconds > 0 ? Math.max(0, last.total - first.total) / seconds : null;
  }

  reset() {
    this.#samples = [];
  }
}

/** A size in words, with binary units; as `words.size` writes it. */
export function sizeText(bytes) {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024 || unit === "TiB") {
      return unit === "B" ? `${Math.trunc(value).toLocaleString("en-US")} B` : `${value.toFixed(1)} ${unit}`;
    }
    value /= 1024;
  }
  return "";
}

/** A time left in words; null is unknown. */
export function leftText(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "time left unknown";
  if (seconds < 1.5) return "a second left";
  if (seconds < 90) return `${Math.round(seconds)} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${(seconds / 3600).toFixed(1)} h left`;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let value = n;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value >>> 0;
});

/** The CRC-32 of bytes as eight hexadecimal digits. */
export function crc32(bytes) {
  let value = 0xffffffff;
  for (let i = 0; i < bytes.length; i += 1) value = CRC_TABLE[(value ^ bytes[i]) & 0xff] ^ (value >>> 8);
  return ((value ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}
