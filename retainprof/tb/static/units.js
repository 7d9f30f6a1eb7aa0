// The same words for nanoseconds, bytes, counts and ratios as retainprof/units.py; a test holds the two together.
const NS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const FLOPS = [[1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"], [1, "FLOP"]];
const MISSING = "–";

const none = (value) => value === null || value === undefined;

// Like Python's format: the exact binary value is rounded, a tie to the even digit (places is at most 2).
function fixed(value, places) {
  const scale = 10 ** places;
  const tie = Number.isInteger(value * 2 ** (places + 1)) && Math.abs(value * scale * 2) % 2 === 1;
  const below = Math.floor(value * scale);
  const text = tie ? ((below % 2 ? below + 1 : below) / scale).toFixed(places) : value.toFixed(places);
  return text.replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ",");
}

function three(value) {
  if (value === 0) return "0";
  return fixed(value, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)) + 1e-9)));
}

export function ns(value) {
  if (none(value)) return MISSING;
  const [size, unit] = NS.find(([least]) => Math.abs(value) >= least) || NS[3];
  return `${three(value / size)} ${unit}`;
}

export function intervalNs(interval) {
  if (none(interval)) return MISSING;
  const [size, unit] = NS.find(([least]) => Math.abs(interval[1]) >= least) || NS[3];
  return `${three(interval[0] / size)} to ${three(interval[1] / size)} ${unit}`;
}

export function bytes(value) {
  if (none(value)) return MISSING;
  const found = BYTES.find(([least]) => Math.abs(value) >= least);
  return found ? `${fixed(value / found[0], 1)} ${found[1]}` : `${value} B`;
}

const multiples = (step, most) => Array.from({length: Math.floor(most / step) + 1}, (_, i) => i * step);

// Round values from 0 up to most, five at the most: powers of two times 1 to 4, which bytes() shows exactly.
export function bytesTicks(most) {
  return multiples(2 ** Math.max(0, Math.floor(Math.log2(most / 5)) + 1), most);
}

// The same of times: 1, 2 or 5 times a power of ten.
export function nsTicks(most) {
  const power = 10 ** Math.floor(Math.log10(most / 5));
  return multiples([1, 2, 5, 10].map((one) => one * power).find((step) => most / step < 5), most);
}

export function count(value) {
  return none(value) ? MISSING : value.toLocaleString("en-US");
}

export function flops(value) {
  if (none(value)) return MISSING;
  const found = FLOPS.find(([least]) => Math.abs(value) >= least);
  return found ? `${three(value / found[0])} ${found[1]}` : "0 FLOP";
}

// A ratio as a signed change.
export function percent(value) {
  if (none(value)) return MISSING;
  const change = (value - 1) * 100;
  const size = Math.abs(change);
  return `${change < 0 ? "-" : "+"}${fixed(size, size < 10 ? 1 : 0).replaceAll(",", "")}%`;
}

export function ratio(value) {
  if (none(value)) return MISSING;
  return value > 0.95 && value < 1.05 ? `${fixed(value, 3)}x` : `${three(value)}x`;
}
