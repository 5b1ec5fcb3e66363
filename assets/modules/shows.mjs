// Moves the pictures of a page to the rows behind a claim: a button with `data-show='{"key of the view": value}'`. And
// keeps tables whose rows are ranks in step with them: a table with `data-selects="r"`.

import { announce } from "./copying.mjs";
import { choose, view } from "./view_state.mjs";

function show(button) {
  choose(JSON.parse(button.getAttribute("data-show")));
  window.dispatchEvent(new CustomEvent("mycroft:view"));
  const picture = document.querySelector("[data-flow], [data-timeline]");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  picture?.closest(".panel")?.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
  announce("The pictures show it");
}

/** A row that was chosen, by a click or by Space, is the rank that the pictures show. */
function chosenIn(row) {
  const place = row.closest("[data-selects]");
  const cell = row.querySelector("[col-id='rank']");
  if (!place || !cell) return;
  const rank = Number(cell.textContent);
  const selected = row.classList.contains("ag-row-selected");
  const key = place.getAttribute("data-selects");
  if (selected === (view()[key] === rank)) return;
  choose({ [key]: selected ? rank : null });
  announce(selected ? `Rank ${rank} selected in the pictures` : "No rank selected");
}

/** Selects the row of the rank that is chosen elsewhere. */
function follow() {
  for (const place of document.querySelectorAll("[data-selects]")) {
    const rank = view()[place.getAttribute("data-selects")];
    window.dash_ag_grid?.getApi(place.firstElementChild.id)?.forEachNode((node) => {
      if (node.isSelected() !== (node.data.rank === rank)) node.setSelected(node.data.rank === rank);
    });
  }
}

export function startShows() {
  const later = (event) => {
    if (!(event.target instanceof Element) || event.target.closest("a, button")) return;
    const row = event.target.closest("[data-selects] .ag-row");
    if (row) requestAnimationFrame(() => chosenIn(row));
  };
  document.addEventListener("click", later);
  document.addEventListener("keydown", (event) => {
    if (event.key === " ") later(event);
  });
  for (const name of ["mycroft:chosen", "mycroft:view", "popstate"]) window.addEventListener(name, follow);
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-show]") : null;
    if (button) show(button);
  });
}
