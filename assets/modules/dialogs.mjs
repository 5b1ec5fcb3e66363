// Opens and closes `<dialog>` elements and menus: `data-dialog="id"`, `data-close`, `data-menu`.

export function startDialogs() {
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element)) return;
    const opener = event.target.closest("[data-dialog]");
    if (opener) {
      const dialog = document.getElementById(opener.getAttribute("data-dialog"));
      if (dialog instanceof HTMLDialogElement && !dialog.open) dialog.showModal();
      return;
    }
    if (event.target.closest("[data-close]") || event.target instanceof HTMLDialogElement) {
      event.target.closest("dialog")?.close();
    }
    for (const menu of document.querySelectorAll("[data-menu][open]")) {
      if (!menu.contains(event.target) || event.target.closest(".menu__item")) menu.removeAttribute("open");
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("[data-menu][open]")) {
      menu.removeAttribute("open");
      menu.querySelector("summary")?.focus();
    }
  });
}
