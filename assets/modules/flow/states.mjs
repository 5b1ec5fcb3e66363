// What the chunk flow of an operation says at a moment. Pure functions over the JSON of `app/reads/flows.py`.

/** The states of an edge, the worst last: where several fall into one pixel, the worst is shown. */
export const STATES = ["done", "moving", "upstream", "downstream", "stopped", "nolog"];
export const WORDS = {
  done: "done",
  moving: "moving",
  upstream: "waiting for what comes from upstream",
  downstream: "waiting for the receiver (back-pressure)",
  stopped: "stopped",
  nolog: "no log",
};
export const SHORT = { done: "done", moving: "moving", upstream: "waiting", downstream: "back-pressured", stopped: "stopped", nolog: "no log" };

/** The index of the flow: halves by channel, rank, peer and direction. Queue pairs of one half are kept together. */
export function indexed(flow) {
  const send = new Map();
  const recv = new Map();
  for (const half of flow.halves) {
    const [channel, rank, peer, sends] = half;
    const key = sends ? `${channel}/${rank}/${peer}` : `${channel}/${peer}/${rank}`;
    const into = sends ? send : recv;
    if (!into.has(key)) into.set(key, []);
    into.get(key).push(half);
  }
  const pairs = new Map();
  for (const key of new Set([...send.keys(), ...recv.keys()])) {
    const [channel, src, dst] = key.split("/").map(Number);
    if (!pairs.has(channel)) pairs.set(channel, []);
    pairs.get(channel).push([src, dst]);
  }
  return { flow, send, recv, pairs };
}

/** The last step at or before a tick; null: nothing was written of this half yet. */
export function stepAt(half, tick) {
  const steps = half[7];
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle][0] <= tick) low = middle + 1;
    else high = middle;
  }
  return low ? steps[low - 1] : null;
}

const sum = (values) => (values.some((value) => value === null) ? null : values.reduce((a, b) => a + b, 0));

/** One half at a tick, its queue pairs added up; null: nothing of it yet, or no such half. `silent`: not heard of since. */
export function halfAt(halves, tick, flow) {
  if (!halves) return null;
  const found = halves.map((half) => ({ half, step: stepAt(half, tick) })).filter(({ step }) => step !== null);
  if (!found.length) return null;
  const column = (at) => sum(found.map(({ step }) => step[at]));
  const idle = found.map(({ step }) => (step[5] ?? 0) + (tick - step[0]) * flow.tick_ms);
  const silence = found.map(({ half }) => (half[6] === null ? 0 : (tick - half[6]) * flow.tick_ms));
  const total = sum(halves.map((half) => half[5]));
  // What is done has nothing more to say; of anything else no word for that long means that nothing is known.
  const isOver = total !== null && column(4) !== null && column(4) >= total;
  return {
    posted: column(1),
    ready: column(2),
    moved: column(3),
    done: column(4),
    total,
    idle_ms: Math.min(...idle),
    silent: !isOver && Math.min(...silence) > flow.silent_ms,
    qps: found.length > 1 || found[0].half[4] !== null ? found.map(({ half, step }) => ({ qp: half[4], done: step[4], total: half[5], idle_ms: (step[5] ?? 0) + (tick - step[0]) * flow.tick_ms })) : [],
  };
}

const isDone = (half) => half !== null && half.total !== null && half.done !== null && half.done >= half.total;

/**
 * The state of an edge, by the order of the analysis's rules. `sendLog`, `recvLog`: whether that rank left a log.
 * A rank with a log and without a row of this flow has not come to it; one without a log says nothing.
 */
export function edgeState(send, recv, { sendLog, recvLog, standingMs }) {
  const known = [send, recv].filter((half) => half !== null && !half.silent);
  if (!known.length) return sendLog && recvLog && send === null && recv === null ? "upstream" : "nolog";
  if (known.every(isDone) && (known.length === 2 || !(sendLog && recvLog) || isDone(send))) return "done";
  if (known.some((half) => !isDone(half) && half.idle_ms < standingMs)) return "moving";
  if (send === null || send.silent) return sendLog && send === null ? "upstream" : "nolog";
  const noReceiver = recv === null || recv.silent;
  if (isDone(send)) return noReceiver ? (recvLog ? "downstream" : "done") : "stopped";
  if (send.moved > send.done || send.ready > send.moved) {
    if (noReceiver) return recvLog && recv === null ? "downstream" : "nolog";
    const credit = send.moved > send.done ? send.done : send.moved;
    return recv.posted > credit ? "stopped" : "downstream";
  }
  return "upstream";
}

/** Both halves and the state of an edge at a tick. */
export function edgeAt(index, channel, src, dst, tick) {
  const { flow } = index;
  const key = `${channel}/${src}/${dst}`;
  const send = halfAt(index.send.get(key), tick, flow);
  const recv = halfAt(index.recv.get(key), tick, flow);
  const has = (rank) => flow.ranks[rank]?.log ?? false;
  const state = edgeState(send, recv, { sendLog: has(src), recvLog: has(dst), standingMs: flow.standing_ms });
  return { channel, src, dst, send, recv, state };
}

/** The ranks of a channel in the order of its strip: the ring, or the tree by depth. */
export function orderOf(flow, channel) {
  if (flow.shape === "ring") return flow.orders[channel];
  const { root, parents } = flow.trees[channel];
  const children = childrenOf(parents);
  const order = [root];
  for (let at = 0; at < order.length; at += 1) order.push(...(children.get(order[at]) ?? []));
  return order;
}

export function childrenOf(parents) {
  const children = new Map();
  for (const [child, parent] of Object.entries(parents)) {
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(Number(child));
  }
  return children;
}

/** How deep a rank of a tree is; 0 is the root. */
export function depthOf(parents, rank) {
  let depth = 0;
  for (let at = rank; parents[at] !== undefined && depth < 64; at = parents[at]) depth += 1;
  return depth;
}

/**
 * One strip: for each rank in order, how many chunks it is behind the most advanced one, as a share of all chunks;
 * null where it left no log. A rank with a log and without a row has done nothing.
 */
export function stripAt(index, channel, order, tick) {
  const { flow } = index;
  const mine = new Map(order.map((rank) => [rank, []]));
  for (const [src, dst] of index.pairs.get(channel) ?? []) {
    const key = `${channel}/${src}/${dst}`;
    for (const [rank, halves] of [[src, index.send.get(key)], [dst, index.recv.get(key)]]) {
      const half = halfAt(halves, tick, flow);
      if (half !== null && !half.silent && half.done !== null && half.total) mine.get(rank)?.push(half.done / half.total);
    }
  }
  const shares = order.map((rank) => {
    const found = mine.get(rank);
    if (found.length) return Math.min(...found);
    return flow.ranks[rank]?.log && !heardLater(index, channel, rank, tick) ? 0 : null;
  });
  const most = Math.max(0, ...shares.filter((share) => share !== null));
  return shares.map((share) => (share === null ? null : most - share));
}

/** Whether a rank's halves had rows before and have gone silent: it is unknown then, not at zero. */
function heardLater(index, channel, rank, tick) {
  for (const [src, dst] of index.pairs.get(channel) ?? []) {
    const halves = src === rank ? index.send.get(`${channel}/${src}/${dst}`) : dst === rank ? index.recv.get(`${channel}/${src}/${dst}`) : null;
    const half = halfAt(halves, tick, index.flow);
    if (half !== null && half.silent) return true;
  }
  return false;
}

/** Values reduced to at most `pixels`: the worst of each pixel, and what is unknown where nothing else is. */
export function reduced(values, pixels) {
  if (values.length <= pixels) return values;
  const made = new Array(pixels).fill(null);
  values.forEach((value, at) => {
    const pixel = Math.floor((at * pixels) / values.length);
    if (value !== null && (made[pixel] === null || value > made[pixel])) made[pixel] = value;
  });
  return made;
}

/** The worst edge at a tick that is not in the verdict: where the lens looks when nothing else is named. */
export function worstEdge(index, tick) {
  const rank = { stopped: 4, upstream: 3, downstream: 2, nolog: 1, moving: 1, done: 0 };
  let best = null;
  for (const [channel, pairs] of index.pairs) {
    for (const [src, dst] of pairs) {
      const edge = edgeAt(index, channel, src, dst, tick);
      const left = edge.send?.total ? 1 - (edge.send.done ?? 0) / edge.send.total : 0;
      const score = rank[edge.state] + left / 2;
      if (best === null || score > best.score) best = { score, channel, src, dst };
    }
  }
  return best;
}

/** What a run of edges that is folded says: how many, and the states among them, the most frequent first. */
export function folded(states) {
  const counts = new Map();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  const ordered = [...counts].sort((a, b) => b[1] - a[1]);
  if (!ordered.length) return "";
  return ordered.length === 1 ? SHORT[ordered[0][0]] : ordered.slice(0, 2).map(([state, count]) => `${count} ${SHORT[state]}`).join(", ");
}

/** Ranks as text: runs of numbers. */
export function runs(ranks) {
  const made = [];
  for (const rank of ranks) {
    const last = made.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank;
    else made.push([rank, rank]);
  }
  return made.map(([a, b]) => (a === b ? String(a) : `${a}–${b}`)).join(", ");
}

const count = (value) => (value === null ? "?" : String(value));

/** One edge in words, with its numbers. */
export function said(edge, standingMs) {
  const parts = [];
  const { send, recv } = edge;
  if (send) parts.push(`sender: ${count(send.ready)} filled, ${count(send.moved)} handed over, ${count(send.done)} acknowledged of ${count(send.total)}`);
  if (recv) parts.push(`receiver: ${count(recv.posted)} posted, ${count(recv.moved)} received, ${count(recv.done)} consumed of ${count(recv.total)}`);
  const idle = Math.min(...[send, recv].filter((half) => half && !half.silent).map((half) => half.idle_ms));
  if (Number.isFinite(idle) && idle >= standingMs && edge.state !== "done") parts.push(`still for ${(idle / 1000).toFixed(1)} s`);
  return parts.join(" · ");
}

/** The last tick at which any counter had just moved. */
export function lastMovement(flow) {
  let last = 0;
  for (const half of flow.halves) for (const step of half[7]) if (step[0] > last && step[0] < flow.ticks) last = step[0];
  return last;
}
