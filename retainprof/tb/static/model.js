// Reading the two documents of report/page_data.py.

export function nameOf(call) {
  const losses = call.losses.join("+");
  if (["", "sum", "batched"].includes(call.what)) return losses;
  return call.what === "head" || call.losses.length === 1 ? `${call.what} ${losses}` : call.what;
}

export function clockOf(result) {
  return result.timing ? result.timing.clock : "wall";
}

export function clockName(clock) {
  return clock === "cpu" ? "CPU" : "Wall";
}

export function deciding(found, clock) {
  return clock === "wall" || !found.cpu ? found.wall : found.cpu;
}

export function flagsOf(call) {
  return [call.kind === "grad" && "grad", call.retain_graph && "retain", call.create_graph && "create"].filter(Boolean).join(" ");
}

export function strategyOf(result, name) {
  return result.strategies.find((strategy) => strategy.name === name) || null;
}

// The strategy a view opens with: the one the first answer is about.
export function mainStrategy(page) {
  const named = page.answers.map((answer) => strategyOf(page.result, answer.strategy)).find(Boolean);
  return named || page.result.strategies[0] || null;
}

const unpacked = new WeakMap();

// The rows of one call; made once for each document.
export function unpack(document, index) {
  if (!unpacked.has(document)) unpacked.set(document, new Map());
  const known = unpacked.get(document);
  if (!known.has(index)) known.set(index, unpackCall(document, index));
  return known.get(index);
}

function unpackCall(document, index) {
  const found = document.calls[index];
  const rows = (found ? found.rows : []).map(([name, shapes, times, selfNs, size, leaf, device]) => ({
    name: document.names[name], shapes: document.shapes[shapes], count: times, selfNs, bytes: size, leaf: !!leaf, device: !!device,
  }));
  return {rows, left: found ? found.left : 0};
}

const GROUPS = [
  ["matrix products", /(^|[:_])(mm|bmm|addmm|baddbmm|matmul|linear|einsum|mv|addmv|dot)($|_)|gemm|cutlass|attention/i],
  ["convolutions", /conv|wgrad|dgrad|winograd/i],
  ["normalisation, softmax, losses", /norm|softmax|loss|entropy/i],
  ["additions", /(^|[:_])(add|sum)_?($|_)|AccumulateGrad/i],
  ["copies and fills", /copy|clone|contiguous|fill|zero|empty|memset|memcpy|ones_like|resize/i],
];

export const groupNames = [...GROUPS.map(([name]) => name), "other"];

const groups = new Map();

export function groupOf(name) {
  if (!groups.has(name)) {
    const found = GROUPS.findIndex(([, pattern]) => pattern.test(name));
    groups.set(name, found < 0 ? GROUPS.length : found);
  }
  return groups.get(name);
}

// Kernels of call A against call B, by name, shapes, leaf and device; changed: another count or other bytes.
export function diff(first, later) {
  const found = new Map();
  [first, later].forEach((rows, side) => rows.forEach((row) => {
    const key = `${row.leaf}${row.device}${row.name.length} ${row.name}${row.shapes}`; // the length tells where the name ends
    let entry = found.get(key);
    if (!entry) {
      entry = {name: row.name, shapes: row.shapes, leaf: row.leaf, count: [0, 0], selfNs: [0, 0], bytes: [0, 0]};
      found.set(key, entry);
    }
    entry.count[side] += row.count;
    entry.selfNs[side] += row.selfNs;
    entry.bytes[side] += row.bytes;
  }));
  const rows = [...found.values()];
  rows.forEach((row) => {
    const alike = row.count[0] === row.count[1] && row.bytes[0] === row.bytes[1];
    row.status = !row.count[1] ? "only_first" : !row.count[0] ? "only_later" : alike ? "same" : "changed";
    row.rank = (row.status === "same" ? 2 : 0) + (row.leaf ? 0 : 1);
    row.gap = Math.abs(row.selfNs[1] - row.selfNs[0]);
  });
  // What differs before what doesn't, kernels before what only calls them, then by the difference of self time.
  return [0, 1, 2, 3].flatMap((rank) => rows.filter((row) => row.rank === rank).sort((a, b) => b.gap - a.gap));
}
