// View 5, only in TensorBoard: the events in and around one call, drawn; the file to download or to hand to Perfetto.
import {h, replace, s, select, table} from "./dom.js";
import {mainStrategy, nameOf, strategyOf} from "./model.js";
import {count, ns} from "./units.js";
import {traceUrl} from "./source.js";

const W = 1200, ROW = 17, LEFT = 0;
const PERFETTO = "https://ui.perfetto.dev";
const PERFETTO_MS = 30000;

// Perfetto answers PING with PONG when it is ready, and then takes the file.
async function perfetto(url, title, note) {
  const opened = window.open(PERFETTO);
  if (!opened) return replace(note, "The browser did not open the window.");
  const buffer = await (await fetch(url)).arrayBuffer();
  const ping = window.setInterval(() => opened.postMessage("PING", PERFETTO), 100);
  const late = window.setTimeout(() => {
    window.clearInterval(ping);
    replace(note, "Perfetto did not answer: is there internet here? Download the trace instead.");
  }, PERFETTO_MS);
  window.addEventListener("message", function ready(event) {
    if (event.origin !== PERFETTO || event.source !== opened || event.data !== "PONG") return;
    window.clearInterval(ping);
    window.clearTimeout(late);
    window.removeEventListener("message", ready);
    opened.postMessage({perfetto: {buffer, title}}, PERFETTO);
    replace(note, "Handed over to Perfetto.");
  });
  return replace(note, "Waiting for Perfetto, which needs the internet.");
}

function drawing(found, range) {
  const [low, high] = range;
  const x = (at) => LEFT + ((Math.min(high, Math.max(low, at)) - low) / (high - low)) * (W - LEFT);
  const tops = [];
  let top = 32;
  found.lanes.forEach((lane, i) => {
    tops.push(top);
    top += (Math.max(0, ...found.rows.filter((row) => row[1] === i).map((row) => row[2])) + 2) * ROW;
  });
  const seen = found.rows.filter(([, , , at, length]) => at < high && at + length > low && x(at + length) - x(at) > 0.3);
  const boxes = seen.map(([name, lane, depth, at, length]) => {
    const width = Math.max(0.6, x(at + length) - x(at));
    const y = tops[lane] + (depth + 1) * ROW - 12;
    const text = found.names[name].replace("autograd::engine::evaluate_function: ", "").replace("retainprof::", "");
    return [s("rect", {class: `event depth-${depth % 4}`, x: x(at), y, width, height: ROW - 2}, s("title", {}, `${found.names[name]}: ${ns(length)}`)),
      width > 30 ? s("text", {class: "event-name", x: x(at) + 3, y: y + 11}, text.slice(0, Math.floor(width / 6.6))) : null];
  });
  return s("svg", {class: "trace", viewBox: `0 0 ${W} ${top}`, role: "img", "aria-label": `${count(seen.length)} events by thread; the longest are in the table below`},
    s("rect", {class: "band band-0", x: x(0), y: 0, width: Math.max(0, x(found.span_ns) - x(0)), height: top}),
    [0, 0.25, 0.5, 0.75, 1].map((at) => s("text", {class: "tick", x: at * W, y: 12, "text-anchor": at === 0 ? "start" : at === 1 ? "end" : "middle"}, ns(low + at * (high - low)))),
    found.lanes.map((lane, i) => s("text", {class: "tick", x: 4, y: tops[i]}, lane)), boxes);
}

// Dragging moves, the wheel with Ctrl (or a pinch) zooms where the pointer is; several moves in one frame are drawn once.
function byPointer(box, now, show) {
  let from = null;
  let wanted = null;
  const later = (range) => {
    if (!wanted) window.requestAnimationFrame(() => { show(wanted); wanted = null; });
    wanted = range;
  };
  const part = (event) => { const {left, width} = box.getBoundingClientRect(); return (event.clientX - left) / width; };
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const [low, high] = wanted || now();
    const middle = low + part(event) * (high - low);
    const factor = event.deltaY < 0 ? 0.8 : 1.25;
    later([middle - (middle - low) * factor, middle + (high - middle) * factor]);
  }, {passive: false});
  box.addEventListener("pointerdown", (event) => { from = {at: part(event), range: now()}; box.setPointerCapture(event.pointerId); });
  box.addEventListener("pointermove", (event) => {
    if (!from) return;
    const by = (from.at - part(event)) * (from.range[1] - from.range[0]);
    later([from.range[0] + by, from.range[1] + by]);
  });
  for (const end of ["pointerup", "pointercancel"]) box.addEventListener(end, () => { from = null; });
}

function viewer(found) {
  const whole = [-found.span_ns / 10, found.span_ns * 1.1];
  let range = whole;
  const box = h("div", {class: "timeline"});
  const show = (next) => { range = next[1] - next[0] < 10 ? range : next; replace(box, drawing(found, range)); };
  const zoom = (factor) => { const middle = (range[0] + range[1]) / 2, half = ((range[1] - range[0]) / 2) * factor; show([middle - half, middle + half]); };
  const move = (part) => { const by = (range[1] - range[0]) * part; show([range[0] + by, range[1] + by]); };
  const keys = {"+": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), 0: () => show(whole)};
  const actions = [["Zoom in", "+"], ["Zoom out", "-"], ["Left", "ArrowLeft"], ["Right", "ArrowRight"], ["Whole call", "0"]];
  show(whole);
  byPointer(box, () => range, show);
  const pressed = (event) => { if (keys[event.key]) { keys[event.key](); event.preventDefault(); } };
  return h("div", {onkeydown: pressed}, h("p", {class: "fields"}, actions.map(([text, key]) => h("button", {type: "button", onclick: keys[key]}, text)),
    h("span", {class: "quiet"}, "Keys: + - 0 and arrows; drag to move, Ctrl and wheel to zoom. The grey band is the call.")), box);
}

function longest(found) {
  const rows = [...found.rows].sort((a, b) => b[4] - a[4]).slice(0, 40);
  return table("The longest events", [["event"], ["on"], ["starts", 1], ["takes, profiled", 1]], rows.map(([name, lane, , at, length]) => [found.names[name], found.lanes[lane], ns(at), ns(length)]));
}

export function traceView(page, state, source, run) {
  const strategy = strategyOf(page.result, state.get("strategy")) || mainStrategy(page);
  if (!strategy) return h("p", {class: "notice"}, "This run has no strategies.");
  const call = strategy.calls.some(({index}) => `${index}` === state.get("call")) ? state.get("call") : "0";
  const url = traceUrl(run, strategy.name);
  const note = h("span", {class: "quiet", role: "status"});
  const box = h("div", {}, h("p", {class: "quiet", role: "status"}, "Reading the trace …"));
  source.events(run, strategy.name, call).then((found) => replace(box, viewer(found),
    found.left ? h("p", {class: "quiet"}, `${count(found.left)} of the shortest events are not drawn.`) : null, longest(found)),
  (error) => replace(box, h("p", {class: "notice", role: "alert"}, error.message)));
  return h("div", {}, h("p", {class: "fields"},
    select("Strategy", page.result.strategies.map(({name}) => [name, name]), strategy.name, (name) => state.set({strategy: name, call: ""})),
    select("Call", strategy.calls.map((one) => [`${one.index}`, `call ${one.index} ${nameOf(one)}`]), call, (index) => state.set({call: index})),
    strategy.traces.length ? [h("a", {href: url, download: ""}, "Download the trace"), h("button", {type: "button", onclick: () => perfetto(url, `${run} ${strategy.name}`, note)}, "Open in Perfetto (internet)"), note] : null), box);
}
