// Sets the theme before anything is drawn. Loaded as a plain script, so that the page never flashes in the other one.
(function () {
  "use strict";
  const KEY = "mycroft.theme";
  const CHOICES = ["system", "light", "dark"];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function choice() {
    let kept = null;
    try {
      kept = localStorage.getItem(KEY);
    } catch {
      // Storage may be forbidden; the theme then follows the system.
    }
    return CHOICES.includes(kept) ? kept : "system";
  }

  function apply() {
    const chosen = choice();
    const theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
    const root = document.documentElement;
    const changed = root.dataset.theme !== theme;
    root.dataset.theme = theme;
    root.dataset.themeChoice = chosen;
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.setAttribute("aria-label", chosen === "system" ? "Theme: follows the system" : `Theme: ${chosen}`);
    }
    if (changed) {
      // What is painted from variables (canvas, charts) repaints itself on this.
      window.dispatchEvent(new CustomEvent("mycroft:theme", { detail: theme }));
    }
  }

  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest("[data-theme-switch]")) return;
    const next = CHOICES[(CHOICES.indexOf(choice()) + 1) % CHOICES.length];
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // See above.
    }
    apply();
  });
  dark.addEventListener("change", apply);
  window.mycroftTheme = { apply };
  apply();
})();
