// Find anything: `/`, Ctrl + K or `data-find` opens a box that goes to a rank, group, operation, host, time, file or
// line of the trace that is shown. Places come from one route of the server; what it cut is said.

import { go } from "./navigation.mjs";
import { parse } from "./urls.mjs";

const WAIT_MS = 120;
const HINT = "A rank (37), an operation (dp_2 1412), a host, a group, a time (04:10:41 or +61.2s), a file, text of a log.";

/** The address of the server that answers what `text` may mean; null on pages of no trace. */
export function questionOf(address, text) {
  const { params, view } = parse(address);
  if (params.trace === undefined) return null;
  const pinned = view.g === undefined ? "" : `/g/${view.g}`;
  return `/api/v1/traces/${encodeURIComponent(params.trace)}${pinned}/find?q=${encodeURIComponent(text)}`;
}

/** What is said of an answer: how many places, of which kinds there are more, and what was not searched. */
export function summaryOf({ hits, more, limits = [], of_a_kind: limit }) {
  const count = hits.length === 0 ? "Nothing found" : hits.length === 1 ? "1 place" : `${hits.length} places`;
  const cut = more.length ? [`at most ${limit} of a kind, there are more of: ${more.join(", ").toLowerCase()}`] : [];
  return [count, ...cut, ...limits].join("; ");
}

/** Which option is next: from none (-1) down to the first, up to the last, and around. */
export function nextOption(current, count, step) {
  if (count === 0) return -1;
  if (current < 0) return step > 0 ? 0 : count - 1;
  return (current + step + count) % count;
}

/** Whether a key typed at `target` is text for it, and no command. */
function isTyping(target) {
  if (!(target instanceof Element)) return false;
  return target.closest("input, textarea, select, [contenteditable=''], [contenteditable='true']") !== null;
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

class Palette {
  constructor() {
    this.hits = [];
    this.chosen = -1;
    this.asked = null;
    this.timer = 0;
    this.input = element("input", {
      type: "text", id: "palette-text", class: "input palette__text", role: "combobox", maxlength: "200",
      "aria-label": "Find in this trace", "aria-expanded": "false", "aria-controls": "palette-list",
      "aria-autocomplete": "list", "aria-describedby": "palette-hint", autocomplete: "off", spellcheck: "false",
    });
    this.list = element("ul", { id: "palette-list", class: "palette__list", role: "listbox", "aria-label": "Places" });
    this.state = element("p", { class: "palette__state", role: "status" });
    this.hint = element("p", { class: "palette__hint", id: "palette-hint" }, HINT);
    this.dialog = element(
      "dialog", { class: "dialog palette", "aria-label": "Find anything" }, this.input, this.list, this.state, this.hint,
    );
    this.input.addEventListener("input", () => this.typed());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => {
      const option = event.target instanceof Element ? event.target.closest("[role=option]") : null;
      if (option) this.open(Number(option.dataset.at));
    });
    this.dialog.addEventListener("close", () => this.stop());
    document.body.append(this.dialog);
  }

  show() {
    if (this.dialog.open || questionOf(location.pathname + location.search, "") === null) return;
    this.input.value = "";
    this.draw([], "");
    this.dialog.showModal();
    this.input.focus();
  }

  stop() {
    clearTimeout(this.timer);
    this.asked?.abort();
  }

  typed() {
    this.stop();
    const text = this.input.value.trim();
    if (!text) {
      this.draw([], "");
      return;
    }
    this.timer = setTimeout(() => this.ask(text), WAIT_MS);
  }

  async ask(text) {
    const asked = (this.asked = new AbortController());
    this.dialog.setAttribute("data-asking", "");
    try {
      const question = questionOf(location.pathname + location.search, text);
      const answer = await fetch(question, { signal: asked.signal, headers: { Accept: "application/json" } });
      const body = await answer.json();
      if (!answer.ok) throw new Error(body.error ?? `the server answered ${answer.status}`);
      this.draw(body.hits, summaryOf(body));
    } catch (error) {
      if (error.name !== "AbortError") this.draw([], `Not answered: ${error.message}`);
    } finally {
      if (this.asked === asked) this.dialog.removeAttribute("data-asking");
    }
  }

  draw(hits, said) {
    this.hits = hits;
    this.list.replaceChildren(
      ...hits.map((hit, at) =>
        element(
          "li", { role: "option", id: `palette-${at}`, "data-at": String(at), "aria-selected": "false", class: "palette__hit" },
          element("span", { class: "palette__kind" }, hit.kind),
          element("span", { class: "palette__title" }, hit.title),
          element("span", { class: "palette__detail" }, hit.detail),
        ),
      ),
    );
    this.list.hidden = hits.length === 0;
    this.hint.hidden = hits.length > 0;
    this.input.setAttribute("aria-expanded", String(hits.length > 0));
    this.state.textContent = said;
    this.choose(hits.length ? 0 : -1);
  }

  choose(at) {
    this.chosen = at;
    for (const option of this.list.children) option.setAttribute("aria-selected", String(Number(option.dataset.at) === at));
    if (at < 0) {
      this.input.removeAttribute("aria-activedescendant");
      return;
    }
    this.input.setAttribute("aria-activedescendant", `palette-${at}`);
    this.list.children[at].scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      this.choose(nextOption(this.chosen, this.hits.length, step));
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      this.open(this.chosen);
    }
  }

  open(at) {
    const hit = this.hits[at];
    if (!hit || !hit.href.startsWith("/") || hit.href.startsWith("//")) return;
    this.dialog.close();
    const here = new URL(location.href);
    const to = new URL(hit.href, here);
    // The router rebuilds a page when its path changes; the same path with another view is loaded anew.
    if (to.pathname === here.pathname && to.search !== here.search) location.assign(to);
    else if (to.pathname === here.pathname) location.hash = to.hash;
    else go(hit.href);
  }
}

export function startPalette() {
  const palette = new Palette();
  document.addEventListener("keydown", (event) => {
    const isSlash = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey;
    const isFind = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey;
    if (event.defaultPrevented || !(isFind || (isSlash && !isTyping(event.target)))) return;
    if (document.querySelector("dialog[open]") || questionOf(location.pathname + location.search, "") === null) return;
    event.preventDefault();
    palette.show();
  });
  document.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest("[data-find]")) palette.show();
  });
}
