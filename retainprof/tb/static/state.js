// What is shown, kept in the address: in the page's own hash, and inside TensorBoard in its hash as p.retainprof.* too.
const PREFIX = "p.retainprof.";

function outer() {
  try {
    return window.parent !== window && window.parent.location.origin === window.location.origin ? window.parent : null;
  } catch (error) {
    return null; // a frame of another origin
  }
}

function read() {
  const own = new URLSearchParams(window.location.hash.slice(1));
  if ([...own].length || !outer()) return Object.fromEntries(own);
  const shared = new URLSearchParams(outer().location.hash.slice(1));
  return Object.fromEntries([...shared].filter(([key]) => key.startsWith(PREFIX)).map(([key, value]) => [key.slice(PREFIX.length), value]));
}

export function makeState(changed) {
  let values = read();
  let written = window.location.hash;
  window.addEventListener("hashchange", () => {
    if (window.location.hash === written) return;
    values = read();
    changed();
  });
  function write() {
    const text = new URLSearchParams(values).toString();
    written = `#${text}`;
    window.history.replaceState(null, "", written);
    if (outer()) {
      const shared = Object.entries(values).map(([key, value]) => [PREFIX + key, value]);
      outer().history.replaceState(outer().history.state, "", `#retainprof&${new URLSearchParams(shared)}`);
    }
  }
  return {
    get: (key, otherwise = "") => (key in values ? values[key] : otherwise),
    // Remember values without drawing the page again; empty ones are dropped.
    keep(change) {
      values = Object.fromEntries(Object.entries({...values, ...change}).filter(([, value]) => value !== "" && value !== null));
      write();
    },
    set(change) {
      this.keep(change);
      changed();
    },
  };
}
