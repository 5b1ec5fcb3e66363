// Follows links of the dashboard without loading the page anew, wherever they stand: text, table cell or picture.

// Served by the server itself, not pages of the dashboard.
const NOT_PAGES = ["/api/", "/s/", "/login", "/logout", "/assets/", "/_"];

/** Whether a click on `link` should stay inside the running page. */
export function staysInside(link, event, here) {
  if (event.defaultPrevented || event.button !== 0) return false;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return false;
  if (link.hasAttribute("download") || link.getAttribute("target") || link.hasAttribute("data-reload")) return false;
  const to = new URL(link.getAttribute("href") ?? "", here);
  if (to.origin !== here.origin || NOT_PAGES.some((prefix) => to.pathname.startsWith(prefix))) return false;
  // A jump inside the page is the browser's own business.
  return to.pathname !== here.pathname || to.search !== here.search;
}

/** Opens an address of the dashboard in the running page. */
export function go(address) {
  history.pushState({}, "", address);
  // Dash's Location listens to the browser's own event and reads the address from the window.
  window.dispatchEvent(new PopStateEvent("popstate"));
}

export function startNavigation() {
  let waiting = false;
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || !staysInside(link, event, new URL(window.location.href))) return;
    event.preventDefault();
    waiting = true;
    go(link.getAttribute("href"));
  });

  // When the next page has come, its content gets the focus: readers hear it, and Tab goes on from there.
  let last = null;
  new MutationObserver(() => {
    const page = document.querySelector("[data-ready]");
    if (page === last) return;
    last = page;
    if (!page) return;
    window.mycroftTheme?.apply();
    if (!waiting) return;
    waiting = false;
    window.scrollTo(0, 0);
    document.getElementById("content")?.focus({ preventScroll: true });
  }).observe(document.body, { childList: true, subtree: true });
}
