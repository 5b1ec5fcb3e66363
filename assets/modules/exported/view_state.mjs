// The view of a file: kept in memory, each picture with its own start; there is no server that could read an address.

let kept = {};

export function merged(view, changes) {
  const made = { ...view, ...changes };
  for (const [key, value] of Object.entries(made)) if (value === null || value === undefined) delete made[key];
  return made;
}

export function view() {
  return kept;
}

export function settle(changes) {
  kept = merged(kept, changes);
}

export function flush() {}

/** A selection: whatever else shows the same hears of it by `mycroft:chosen`. */
export function choose(changes) {
  settle(changes);
  window.dispatchEvent(new CustomEvent("mycroft:chosen", { detail: changes }));
}
