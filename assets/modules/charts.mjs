// Gives Plotly charts the colours of the theme, and again when the theme changes.

function colours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: value("--line"), linecolor: value("--line-strong"), zerolinecolor: value("--line-strong") };
  return {
    "font.color": value("--muted"),
    "hoverlabel.bgcolor": value("--panel"),
    "hoverlabel.bordercolor": value("--line-strong"),
    "hoverlabel.font.color": value("--text"),
    "modebar.color": value("--muted"),
    "modebar.activecolor": value("--text"),
    "modebar.bgcolor": "rgba(0,0,0,0)",
    ...Object.fromEntries(Object.entries(axis).flatMap(([key, v]) => [[`xaxis.${key}`, v], [`yaxis.${key}`, v]])),
  };
}

function paint(chart) {
  const theme = document.documentElement.dataset.theme;
  if (!window.Plotly || chart.mycroftTheme === theme) return;
  chart.mycroftTheme = theme;
  window.Plotly.relayout(chart, colours());
}

const all = () => document.querySelectorAll(".chart .js-plotly-plot").forEach(paint);

export function startCharts() {
  window.addEventListener("mycroft:theme", all);
  new MutationObserver(all).observe(document.body, { childList: true, subtree: true });
}
