// Parts of a page that are kept current.
//
// `<div data-live="id of the interval">` asks for news again and again, but not while nobody sees the page.
// `<div data-current>` is replaced when its contents change. Who has the keyboard at a link or a button of it keeps
// it: the browser would give the focus to the page as a whole, and the way back by Tab is long.

const STOPS = "a[href], button, summary, input, select, textarea";

/** What makes a stop of the keyboard the same one before and after its part was replaced. */
function nameOf(stop) {
  const text = stop.getAttribute("aria-label") || stop.getAttribute("name") || stop.textContent.trim();
  return [stop.tagName, stop.getAttribute("href") || "", text].join("\n");
}

let kept = null;

function remember(event) {
  const part = event.target.closest("[data-current]");
  if (!part || !event.target.matches(STOPS)) {
    kept = null;
    return;
  }
  const name = nameOf(event.target);
  const same = [...part.querySelectorAll(STOPS)].filter((stop) => nameOf(stop) === name);
  kept = { stop: event.target, part, name, place: same.indexOf(event.target) };
}

function giveBack() {
  if (!kept || kept.stop.isConnected || !kept.part.isConnected) return;
  // The focus has gone elsewhere since, which is the reader's own choice.
  if (document.activeElement && document.activeElement !== document.body) return;
  const same = [...kept.part.querySelectorAll(STOPS)].filter((stop) => nameOf(stop) === kept.name);
  if (same.length) same[Math.min(kept.place, same.length - 1)].focus({ preventScroll: true });
}

function follow() {
  document.querySelectorAll("[data-live]").forEach((element) => {
    window.dash_clientside.set_props(element.getAttribute("data-live"), { disabled: document.hidden });
  });
}

export function startLive() {
  document.addEventListener("visibilitychange", follow);
  document.addEventListener("focusin", remember);
  new MutationObserver(giveBack).observe(document.body, { childList: true, subtree: true });
}
