// Selects that tell Dash what is chosen: `<select data-store="id" data-key="name" data-value="now">`. All selects of
// one store are its data, an object by their keys.

function fill(select) {
  const value = select.getAttribute("data-value");
  if (select.mycroftFilled === value) return;
  select.mycroftFilled = value;
  select.value = value;
}

export function startChoices() {
  const all = () => document.querySelectorAll("select[data-value]").forEach(fill);
  new MutationObserver(all).observe(document.body, { childList: true, subtree: true });
  document.addEventListener("change", (event) => {
    const store = event.target instanceof HTMLSelectElement ? event.target.getAttribute("data-store") : null;
    if (!store) return;
    const selects = document.querySelectorAll(`select[data-store="${CSS.escape(store)}"]`);
    const data = Object.fromEntries(Array.from(selects, (select) => [select.getAttribute("data-key"), select.value]));
    window.dash_clientside.set_props(store, { data });
  });
}
