// What a reader can press in a file: "show above" beside claims, and the ranks of the table.

import { announce } from "../copying.mjs";
import { choose, view } from "../view_state.mjs";

function button(text, label) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "button button--small";
  made.textContent = text;
  if (label) made.setAttribute("aria-label", label);
  return made;
}

/** Claims that a picture can show get their button again. */
function makeShows() {
  for (const place of document.querySelectorAll("span[data-show]")) {
    const made = button("show above", place.getAttribute("data-label"));
    made.setAttribute("data-show", place.getAttribute("data-show"));
    place.replaceWith(made);
  }
}

function mark(rows) {
  const chosen = view().r;
  for (const [rank, row] of rows) {
    const is = rank === chosen;
    row.classList.toggle("row--chosen", is);
    row.querySelector("button").setAttribute("aria-pressed", String(is));
  }
}

/** A rank of the table is pressed to be shown in the pictures; one that is chosen there is marked here. */
function makeRanks() {
  const rows = new Map();
  for (const row of document.querySelectorAll("[data-ranks] tbody tr")) {
    const cell = row.firstElementChild;
    const rank = Number(cell.textContent);
    const made = button(cell.textContent, `rank ${rank}, in the pictures`);
    made.addEventListener("click", () => {
      const taken = view().r === rank;
      choose({ r: taken ? null : rank });
      announce(taken ? "No rank selected" : `Rank ${rank} selected in the pictures`);
    });
    cell.replaceChildren(made);
    rows.set(rank, row);
  }
  mark(rows);
  for (const name of ["mycroft:chosen", "mycroft:view"]) window.addEventListener(name, () => mark(rows));
}

export function startControls() {
  makeShows();
  makeRanks();
}
