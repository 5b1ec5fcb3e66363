// Gives Plotly charts the colours of the theme, and again when the theme changes.

function colours(chart) {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: value("--line"), linecolor: value("--line-strong"), zerolinecolor: value("--line-strong") };
  // A chart of several parts has axes with numbers: xaxis2, …
  const axes = ["xaxis", "yaxis", ...Object.keys(chart.layout ?? {}).filter((name) => /^[xy]axis\d+$/.test(name))];
  return {
    "font.color": value("--muted"),
    "hoverlabel.bgcolor": value("--panel"),
    "hoverlabel.bordercolor": value("--line-strong"),
    "hoverlabel.font.color": value("--text"),
    "modebar.color": value("--muted"),
    "modebar.activecolor": value("--text"),
    "modebar.bgcolor": "rgba(0,0,0,0)",
    ...Object.fromEntries(axes.flatMap((name) => Object.entries(axis).map(([key, v]) => [`${name}.${key}`, v]))),
  };
}

function paint(chart) {
  const theme = document.documentElement.dataset.theme;
  if (!window.Plotly || chart.mycroftTheme === theme) return;
  chart.mycroftTheme = theme;
  window.Plotly.relayout(chart, colours(chart));
}

const all = () => document.querySelectorAll(".chart .js-plotly-plot").forEach(paint);

export function startCharts() {
  window.addEventListener("mycroft:theme", all);
  new MutationObserver(all).observe(document.body, { childList: true, subtree: true });
}
