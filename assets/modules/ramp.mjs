// The one ramp of heat maps and strips: its colours stand in the style sheet, near the background at the low end.

const STOPS = 6;

function parts(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** The colours of the ramp as `steps` entries of red, green, blue. */
export function table(stops, steps) {
  return Array.from({ length: steps }, (_, at) => {
    const place = (at / Math.max(steps - 1, 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (place - low)));
  });
}

/** The stops of the theme that is on. */
export function stopsOf(element) {
  const style = getComputedStyle(element);
  return Array.from({ length: STOPS }, (_, at) => parts(style.getPropertyValue(`--heat-${at}`).trim()));
}

/** A function from 0..1 to a colour. */
export function ramp(element) {
  const colours = table(stopsOf(element), 256).map(([r, g, b]) => `rgb(${r} ${g} ${b})`);
  return (share) => colours[Math.round(Math.min(Math.max(share, 0), 1) * 255)];
}
