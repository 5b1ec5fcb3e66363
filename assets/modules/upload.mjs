// One upload: reserves, sends the missing chunks three at a time, asks for the job. Knows nothing of the page.
import { backoff, crc32, fingerprint, isWorthRetrying, missingChunks, RateMeter } from "./upload_plan.mjs";

const API = "/api/v1/uploads";
const AT_ONCE = 3;
const TRIES = 8;
const TIMEOUT_MS = 60_000;
const HEADERS = { "X-Mycroft": "1" };

class Refused extends Error {}

function keep(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // Without storage an upload cannot be resumed after the page was closed; all else works.
  }
}

function kept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

async function ask(path, options = {}) {
  const answer = await fetch(API + path, {
    ...options,
    headers: { ...HEADERS, ...(options.body ? { "Content-Type": "application/json" } : {}) },
  });
  if (answer.status === 204) return null;
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const error = isWorthRetrying(answer.status) ? new Error() : new Refused();
    error.message = body.error ?? `the server answered ${answer.status}`;
    error.status = answer.status;
    throw error;
  }
  return body;
}

/**
 * State of an upload, with an event `change` after each step:
 * `idle`, `starting`, `sending`, `paused`, `finishing`, `done`, `failed`, `cancelled`.
 */
export class Upload extends EventTarget {
  /** `files` are `{path, file}` with `file` a File. */
  constructor(files) {
    super();
    this.files = files.map(({ path, file }) => ({
      path,
      file,
      size: file.size,
      mtime: file.lastModified / 1000,
      sent: 0,
      state: file.size ? "waiting" : "sent",
      format: null,
    }));
    this.total = this.files.reduce((sum, { size }) => sum + size, 0);
    this.state = "idle";
    this.error = "";
    this.job = null;
    this.resumed = false;
    this.retrying = 0;
    this.rate = new RateMeter();
    this.key = `mycroft.upload.${fingerprint(this.files)}`;
    this.id = null;
    this.queue = [];
    this.running = new Map();
    this.order = null;
  }

  get sent() {
    let sum = this.files.reduce((total, { sent }) => total + sent, 0);
    for (const { loaded } of this.running.values()) sum += loaded;
    return sum;
  }

  get isBusy() {
    return ["starting", "sending", "paused", "finishing"].includes(this.state);
  }

  #set(state, error = "") {
    this.state = state;
    this.error = error;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  #nextChange() {
    return new Promise((resolve) => this.addEventListener("change", resolve, { once: true }));
  }

  async start() {
    this.#set("starting");
    try {
      const { chunkBytes, received } = (await this.#resume()) ?? (await this.#create());
      this.queue = missingChunks(this.files, received, chunkBytes);
      const waiting = new Map();
      for (const { file, start, end } of this.queue) waiting.set(file, (waiting.get(file) ?? 0) + end - start);
      this.files.forEach((file, n) => {
        file.sent = file.size - (waiting.get(n) ?? 0);
        if (!waiting.has(n)) file.state = "sent";
      });
      this.rate.add(this.sent, performance.now());
      this.#set("sending");
      await Promise.all(Array.from({ length: AT_ONCE }, () => this.#send()));
      while (this.state === "paused") await this.#nextChange();
      if (this.state !== "sending") return;
      this.#set("finishing");
      this.job = (await ask(`/${this.id}/complete`, { method: "POST", body: "{}" })).job;
      keep(this.key, null);
      this.#set("done");
    } catch (error) {
      if (this.state !== "cancelled") this.#fail(error);
    }
  }

  async #resume() {
    const id = kept(this.key);
    if (!id) return null;
    try {
      const found = await ask(`/${encodeURIComponent(id)}`);
      if (found.status !== "open" || found.files.length !== this.files.length) return null;
      // The server's list is in the order of the first time; ours may differ.
      const places = new Map(this.files.map((file, n) => [file.path, n]));
      this.order = new Map();
      const received = [];
      for (const entry of found.files) {
        const place = places.get(entry.path);
        if (place === undefined || this.files[place].size !== entry.size) return null;
        this.order.set(place, entry.file);
        received.push({ file: place, received: entry.received });
      }
      this.id = id;
      this.resumed = true;
      return { chunkBytes: found.chunk_bytes, received };
    } catch (error) {
      if (error instanceof Refused) return null;
      throw error;
    }
  }

  async #create() {
    const wanted = this.files.map(({ path, size, mtime }) => ({ path, size, mtime }));
    const made = await ask("", { method: "POST", body: JSON.stringify({ files: wanted }) });
    this.id = made.upload;
    this.order = null;
    keep(this.key, made.upload);
    return { chunkBytes: made.chunk_bytes, received: [] };
  }

  async #send() {
    while (this.queue.length && (this.state === "sending" || this.state === "paused")) {
      if (this.state === "paused") {
        await this.#nextChange();
        continue;
      }
      await this.#sendChunk(this.queue.shift());
    }
  }

  async #sendChunk(piece) {
    const file = this.files[piece.file];
    file.state = "sending";
    for (let attempt = 1; ; attempt += 1) {
      try {
        const answer = await this.#put(piece, file);
        this.running.delete(piece);
        file.sent += piece.end - piece.start;
        file.format = answer.format ?? file.format;
        if (file.sent >= file.size) file.state = "sent";
        this.retrying = 0;
        this.rate.add(this.sent, performance.now());
        this.#changed();
        return;
      } catch (error) {
        this.running.delete(piece);
        if (this.state === "cancelled" || this.state === "failed") return;
        if (this.state === "paused") {
          this.queue.unshift(piece);
          return;
        }
        if (error instanceof Refused || attempt >= TRIES) {
          file.state = "failed";
          throw error;
        }
        this.retrying = attempt;
        this.rate.reset();
        this.#changed();
        await new Promise((resolve) => setTimeout(resolve, backoff(attempt)));
        if (this.state === "cancelled" || this.state === "failed") return;
        if (this.state === "paused") {
          this.queue.unshift(piece);
          return;
        }
      }
    }
  }

  async #put(piece, file) {
    let body;
    try {
      body = await file.file.slice(piece.start, piece.end).arrayBuffer();
    } catch {
      throw Object.assign(new Refused(), { message: `${file.path} cannot be read any more: it was changed or removed` });
    }
    const number = this.order?.get(piece.file) ?? piece.file;
    return new Promise((resolve, reject) => {
      // XMLHttpRequest, because fetch does not tell how much of a body has been sent.
      const request = new XMLHttpRequest();
      const progress = { loaded: 0, request };
      this.running.set(piece, progress);
      request.open("PUT", `${API}/${this.id}/${number}/${piece.chunk}`);
      request.timeout = TIMEOUT_MS;
      request.setRequestHeader("X-Mycroft", "1");
      request.setRequestHeader("X-Chunk-CRC32", crc32(new Uint8Array(body)));
      request.upload.onprogress = (event) => {
        progress.loaded = event.loaded;
        this.rate.add(this.sent, performance.now());
        this.#changed();
      };
      request.onload = () => {
        let answer = {};
        try {
          answer = JSON.parse(request.responseText);
        } catch {
          // An answer of a proxy in between; its status says enough.
        }
        if (request.status >= 200 && request.status < 300) resolve(answer);
        else {
          const error = isWorthRetrying(request.status) ? new Error() : new Refused();
          error.message = answer.error ?? `the server answered ${request.status}`;
          reject(error);
        }
      };
      request.onerror = () => reject(new Error("the connection broke"));
      request.ontimeout = () => reject(new Error("no answer for a minute"));
      request.onabort = () => reject(new Error("stopped"));
      request.send(body);
    });
  }

  #fail(error) {
    for (const { request } of this.running.values()) request.abort();
    this.#set("failed", error.message || "the upload failed");
  }

  pause() {
    if (this.state !== "sending") return;
    this.#set("paused");
    for (const { request } of this.running.values()) request.abort();
    this.rate.reset();
  }

  resume() {
    if (this.state === "paused") this.#set("sending");
  }

  async cancel() {
    const id = this.id;
    this.#set("cancelled");
    for (const { request } of this.running.values()) request.abort();
    keep(this.key, null);
    if (id) await ask(`/${id}`, { method: "DELETE" }).catch(() => {});
  }
}
