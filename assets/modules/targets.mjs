// Goes to the place that `#…` names, also when it comes with a later page: opens the folds around it, marks it.

function show() {
  const name = decodeURIComponent(window.location.hash.slice(1));
  const target = name ? document.getElementById(name) : null;
  document.querySelectorAll("[data-target]").forEach((old) => {
    if (old !== target) old.removeAttribute("data-target");
  });
  if (!target || target.hasAttribute("data-target")) return;
  target.setAttribute("data-target", "");
  for (let fold = target.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  const inside = target.querySelector(":scope > details");
  if (inside) inside.open = true;
  target.scrollIntoView({ block: "center" });
  if (target.hasAttribute("tabindex")) target.focus({ preventScroll: true });
}

export function startTargets() {
  window.addEventListener("hashchange", show);
  new MutationObserver(() => {
    if (window.location.hash && !document.querySelector("[data-target]")) show();
  }).observe(document.body, { childList: true, subtree: true });
}
