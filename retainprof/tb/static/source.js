// The documents of the TensorBoard backend, each read once for as long as its run stays the same.
const at = (path, query = {}) => new URL(`./${path}?${new URLSearchParams(query)}`, import.meta.url).href;

async function read(path, query) {
  const response = await fetch(at(path, query));
  let found;
  try {
    found = await response.json();
  } catch (error) {
    throw new Error(`TensorBoard answered with status ${response.status}`);
  }
  if (!response.ok) throw new Error(found.error || `TensorBoard answered with status ${response.status}`);
  return found;
}

export function traceUrl(run, strategy) {
  return at("trace", {run, strategy});
}

export function makeSource() {
  let known = [];
  const kept = new Map();
  function once(path, query) {
    const run = known.find(({id}) => id === query.run);
    const key = JSON.stringify([path, query, run && run.modified_ns]);
    if (!kept.has(key)) {
      if (kept.size > 40) kept.clear();
      kept.set(key, read(path, query).catch((error) => { kept.delete(key); throw error; }));
    }
    return kept.get(key);
  }
  return {
    runs: () => known,
    // True if the list differs from the one before.
    async refresh() {
      const found = await read("runs");
      const changed = JSON.stringify(found) !== JSON.stringify(known);
      known = found;
      return changed;
    },
    page: (run) => once("page", {run}),
    kernels: (run, strategy) => once("kernels", {run, strategy}),
    events: (run, strategy, call) => once("events", {run, strategy, call}),
    theme() {
      try {
        return window.parent.document.body.classList.contains("dark-mode") ? "dark" : "light";
      } catch (error) {
        return ""; // a frame of another origin
      }
    },
  };
}
