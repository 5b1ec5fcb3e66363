// What stands around the picture: choices, buttons, texts, the table and the list of keys.

import { choose } from "../view_state.mjs";
import { make } from "./plot.mjs";
import { fillTable } from "./words.mjs";

export const METRIC_NAMES = { late: "late: arrival after the median rank", wait: "wait: time beyond the fastest rank", state: "state: the worst", busy: "busy: share of time inside operations" };
export const ORDER_NAMES = { rank: "rank", host: "host", group: "position in the largest group", late: "lateness" };
const KEYS = [
  ["← → ↑ ↓", "pan; with Shift ten times as far"],
  ["+ −", "zoom time; with Shift ranks"],
  ["wheel", "zoom time at the pointer (in a page: after a click into the picture); with Shift ranks"],
  ["drag", "pan; with Shift zoom to the box"],
  ["double click", "zoom to the operation under the pointer"],
  ["0", "the whole trace"],
  ["f", "fit the selected rank or operation"],
  ["n p", "next, previous incident"],
  ["Enter", "select the rank at the crosshair"],
  ["?", "this list"],
];

export function buildControls(timeline) {
  const { info } = timeline;
  const select = (label, names, what) => {
    const made = make("select", { class: "input" });
    for (const [value, name] of Object.entries(names)) made.append(make("option", { value }, name));
    made.addEventListener("change", () => what(made.value));
    return [make("label", {}, label, made), made];
  };
  let metricLabel;
  let orderLabel;
  [metricLabel, timeline.metricSelect] = select("Colour", Object.fromEntries(info.metrics.map((metric) => [metric, METRIC_NAMES[metric] ?? metric])), (value) => {
    timeline.metric = value;
    choose({ m: value === "late" ? null : value });
    timeline.later();
  });
  [orderLabel, timeline.orderSelect] = select("Rows by", ORDER_NAMES, (value) => {
    timeline.order = value;
    timeline.setOrder();
    choose({ o: value === "rank" ? null : value });
    timeline.later();
  });
  timeline.lock = make("input", { type: "checkbox" });
  timeline.lock.addEventListener("change", () => {
    timeline.locked = timeline.lock.checked ? timeline.scale : null;
    timeline.later();
  });
  const follows = timeline.place.hasAttribute("data-follow");
  timeline.followControl = make("input", { type: "checkbox" });
  const buttons = make("span", { class: "timeline__buttons" });
  const button = (label, name, what) => {
    const made = make("button", { type: "button", class: "button button--small", title: name, "aria-label": `${label} ${name}` }, label);
    made.addEventListener("click", what);
    buttons.append(made);
  };
  button("+", "zoom in", () => timeline.zoom(0.5));
  button("−", "zoom out", () => timeline.zoom(2));
  button("all", "the whole trace", () => timeline.whole());
  if (info.incidents.some((incident) => incident.since_us !== null)) button("incident", "go to the next incident", () => timeline.incident(1));
  timeline.map = make("canvas", { class: "timeline__map", "aria-hidden": "true" });
  timeline.canvas = make("canvas", { class: "timeline__canvas", tabindex: "0", role: "application", "aria-roledescription": "timeline" });
  timeline.over = make("canvas", { class: "timeline__over", "aria-hidden": "true" });
  timeline.plot = make("div", { class: "timeline__plot", style: `height:${timeline.height}px` }, timeline.canvas, timeline.over);
  timeline.said = make("p", { class: "timeline__said", role: "status", "aria-live": "off" });
  timeline.legend = make("div", { class: "timeline__legend" });
  timeline.table = make("details", { class: "fold" }, make("summary", {}, "View as table"));
  timeline.table.addEventListener("toggle", () => fillTable(timeline));
  timeline.keys = make("details", { class: "fold" }, make("summary", {}, "Keys"), make("ul", { class: "bullets" }, ...KEYS.map(([key, what]) => make("li", {}, make("kbd", {}, key), ` ${what}`))));
  const bar = make("div", { class: "timeline__bar" }, metricLabel, orderLabel, make("label", {}, timeline.lock, "lock the scale"), follows ? make("label", {}, timeline.followControl, "follow") : null, buttons);
  timeline.place.replaceChildren(make("div", { class: "timeline" }, bar, timeline.map, timeline.plot, timeline.said, timeline.legend, timeline.table, timeline.keys));
}
