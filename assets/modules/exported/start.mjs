// Starts the pictures of a file.

import { startFlows } from "../flow/flow_view.mjs";
import { startShows } from "../shows.mjs";
import { startTimelines } from "../timeline/timeline_view.mjs";
import { take } from "./answers.mjs";
import { startControls } from "./controls.mjs";
import { NOWHERE } from "./urls.mjs";

take(JSON.parse(document.getElementById("answers").textContent));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new CustomEvent("mycroft:theme")));
// What the file does not hold is named, and is no link.
new MutationObserver(() => {
  for (const link of document.querySelectorAll(`a[href="${NOWHERE}"]`)) link.replaceWith(...link.childNodes);
}).observe(document.body, { childList: true, subtree: true });
startControls();
startShows();
startFlows();
startTimelines();
