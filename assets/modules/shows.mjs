// Moves the pictures of a page to the rows behind a claim: a button with `data-show='{"key of the view": value}'`.

import { announce } from "./copying.mjs";
import { choose } from "./view_state.mjs";

function show(button) {
  choose(JSON.parse(button.getAttribute("data-show")));
  window.dispatchEvent(new CustomEvent("mycroft:view"));
  const picture = document.querySelector("[data-flow], [data-timeline]");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  picture?.closest(".panel")?.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
  announce("The pictures show it");
}

export function startShows() {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-show]") : null;
    if (button) show(button);
  });
}
