// The legend: what the colours of the picture mean, and what limits it has.

import { FAMILIES } from "./bars.mjs";
import { durationText, nsOfCode } from "./view.mjs";
import { make } from "./plot.mjs";

function swatch(colour, text, kind = "") {
  const item = make("span", {});
  item.append(make("span", { class: `timeline__swatch ${kind}`, style: colour ? `background:${colour}` : null }), text);
  return item;
}

export function drawLegend(timeline, hasBars) {
  const { info, look } = timeline;
  const many = timeline.total !== null && timeline.rowPx >= 4 && !hasBars && (timeline.estimated || timeline.total > info.bars_max);
  const key = [hasBars, timeline.metric, timeline.scale, timeline.locked !== null, timeline.looked, many && timeline.total].join("/");
  if (timeline.legendKey === key) return;
  timeline.legendKey = key;
  const items = [];
  if (hasBars) {
    for (const [family, names] of FAMILIES) items.push(swatch(look[family], names));
    items.push(swatch(null, "outlined: open; dashed: not entered"));
  } else if (timeline.metric === "state") {
    timeline.stateColours().forEach((colour, code) => { if (colour) items.push(swatch(colour, info.states[code])); });
  } else {
    const shades = make("canvas", { class: "timeline__ramp", width: "120", height: "10" });
    const pen = shades.getContext("2d");
    for (let x = 0; x < 120; x += 1) {
      pen.fillStyle = `rgb(${timeline.ramp[Math.round((x / 119) * 255)].join(" ")})`;
      pen.fillRect(x, 0, 1, 10);
    }
    const [low, high, most] = timeline.scale;
    const text = (code) => (timeline.metric === "busy" ? `${Math.round(((code - 1) / (info.scale.top - 1)) * 100)} %` : code < 2 ? "0" : durationText(nsOfCode(Math.min(code, info.scale.top), info.scale)));
    const item = make("span", {});
    const rare = most >= high + 12;
    if (timeline.metric === "busy") item.append(`busy: ${text(low)}`, shades, text(high));
    else item.append(`${timeline.metric}: ${timeline.locked ? "" : "≤ "}${text(low)}`, shades, rare ? `${text(high)} in the middle, ${text(most)}` : `≥ ${text(high)}`);
    items.push(item);
    if (!timeline.locked && timeline.metric !== "busy") items.push(make("span", {}, rare ? "scale: 1st to 99th percentile of the view, then up to the most" : "scale: 1st to 99th percentile of the view"));
  }
  if (info.silent.length || info.from_us.some((from) => from > 0)) items.push(swatch(null, "no log", "timeline__swatch--nolog"));
  if (timeline.guilty.size) items.push(swatch(null, [...timeline.guilty.values()].every(Boolean) ? "▲ root cause" : "▲ suspects", "timeline__swatch--cause"));
  if (info.clock_us) items.push(make("span", {}, `clocks of hosts: ± ${durationText(info.clock_us * 1000)}`));
  else items.push(make("span", {}, "each host's own clock"));
  if (many) items.push(make("span", {}, `${timeline.estimated ? "about " : ""}${timeline.total.toLocaleString("en-US")} operations in view: zoom in for bars`));
  timeline.legend.replaceChildren(...items);
}
