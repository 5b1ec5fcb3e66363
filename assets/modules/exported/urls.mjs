// Links of a file lead to places inside it, or nowhere.

export const NOWHERE = "#nowhere";

export function parse() {
  return { page: "export", params: {}, view: {}, extra: [], problems: [] };
}

export function build({ page, params }) {
  const place = page === "rank" ? `rank-${params.rank}` : page === "diagnosis" ? `finding-${params.incident}` : "";
  return place && document.getElementById(place) ? `#${place}` : NOWHERE;
}

export function go(address) {
  if (address !== NOWHERE) window.location.hash = address;
}
