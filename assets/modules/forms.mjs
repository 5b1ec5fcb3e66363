// Small conveniences of forms: Ctrl + Enter presses a button, a recipe fills a text.

/** Sets the value of a field that React controls, as if it had been typed. */
export function setValue(field, value) {
  const prototype = field instanceof HTMLTextAreaElement ? HTMLTextAreaElement.prototype : HTMLInputElement.prototype;
  Object.getOwnPropertyDescriptor(prototype, "value").set.call(field, value);
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.dispatchEvent(new Event("change", { bubbles: true }));
}

export function startForms() {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !(event.target instanceof Element)) return;
    const field = event.target.closest("[data-submit]");
    if (!field) return;
    event.preventDefault();
    document.getElementById(field.getAttribute("data-submit"))?.click();
  });
  document.addEventListener("click", (event) => {
    const filler = event.target instanceof Element ? event.target.closest("[data-fill]") : null;
    const field = filler ? document.getElementById(filler.getAttribute("data-fill")) : null;
    if (!field) return;
    setValue(field, filler.getAttribute("data-fill-with"));
    field.focus();
  });
}
