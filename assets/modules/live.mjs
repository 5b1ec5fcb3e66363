// Live pages ask for news again and again, but not while nobody sees them: `<div data-live="id of the interval">`.

function follow() {
  document.querySelectorAll("[data-live]").forEach((element) => {
    window.dash_clientside.set_props(element.getAttribute("data-live"), { disabled: document.hidden });
  });
}

export function startLive() {
  document.addEventListener("visibilitychange", follow);
}
