// View 3: bytes over one step, what the losses hold, and what each call lets go.
import {h, s, select, table} from "./dom.js";
import {mainStrategy, nameOf, strategyOf} from "./model.js";
import {icicle} from "./icicle.js";
import {bytes, bytesTicks, ns, nsTicks} from "./units.js";

const W = 900, H = 300, LEFT = 70, BOTTOM = 30;

function retainedSteps(strategy) {
  const bands = strategy.step.bands;
  const forwards = bands.filter((band) => band.label.includes("::forward"));
  const calls = bands.filter((band) => band.label.includes("::call"));
  if (!forwards.length || strategy.forward.runs !== 1) return [];
  const steps = [[forwards[0].end_ns, strategy.retained.after_forward_bytes]];
  calls.forEach((band, i) => { if (strategy.calls[i]) steps.push([band.end_ns, strategy.calls[i].retained_bytes_after]); });
  return steps.filter(([, value]) => value !== null);
}

function path(points, x, y, end) {
  if (!points.length) return "";
  const body = points.map(([at, value], i) => (i ? `H${x(at).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(at).toFixed(1)} ${y(value).toFixed(1)}`)).join("");
  return `${body}H${x(end).toFixed(1)}`;
}

function chart(strategy, other) {
  const shown = [strategy, other].filter(Boolean);
  const end = Math.max(1, ...shown.flatMap((one) => [...one.step.bands.map((band) => band.end_ns), ...one.step.timeline.map(([at]) => at)]));
  const most = Math.max(1, ...shown.flatMap((one) => one.step.timeline.map(([, value]) => value)));
  const x = (at) => LEFT + (at / end) * (W - LEFT - 5);
  const y = (value) => 20 + (1 - Math.max(0, value) / most) * (H - BOTTOM - 20);
  const steps = retainedSteps(strategy);
  const top = Math.max(0, ...steps.map(([, value]) => value));
  const hidden = top < most / 200;
  const told = `Allocated bytes over one step of ${shown.map((one) => `${one.name}, peak ${bytes(one.step.peak_bytes)}`).join(" and ")}`;
  return h("figure", {class: "chart"}, s("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": told},
    strategy.step.bands.map((band, i) => [
      s("rect", {class: `band band-${i % 2}`, x: x(band.start_ns), y: 20, width: Math.max(0, x(band.end_ns) - x(band.start_ns)), height: H - BOTTOM - 20}, s("title", {}, band.label.replace("retainprof::", ""))),
      x(band.end_ns) - x(band.start_ns) > 45 ? s("text", {class: "tick", x: x(band.start_ns) + 3, y: 14}, band.label.replace("retainprof::", "").slice(0, Math.floor((x(band.end_ns) - x(band.start_ns)) / 6.5))) : null]),
    bytesTicks(most).map((at) => [s("path", {class: "grid", d: `M${LEFT} ${y(at)}H${W - 5}`}), s("text", {class: "tick", x: LEFT - 5, y: y(at) + 4, "text-anchor": "end"}, bytes(at))]),
    nsTicks(end).map((at) => s("text", {class: "tick", x: x(at), y: H - 10, "text-anchor": x(at) > W - 30 ? "end" : "middle"}, ns(at))),
    steps.length ? s("path", {class: "retained", d: `${path(steps, x, y, end)}V${y(0)}H${x(steps[0][0])}Z`}) : null,
    other ? s("path", {class: "line other", d: path(other.step.timeline, x, y, end)}) : null,
    s("path", {class: "line", d: path(strategy.step.timeline, x, y, end)})),
  h("figcaption", {}, `Solid line: allocated in ${strategy.name}, above the start of the step. `, other ? `Dashed: ${other.name}. ` : "",
    steps.length ? `Filled: what the losses hold, known after the forward and after each call${hidden ? ` (at most ${bytes(top)}, too little to be seen here)` : ""}. ` : "", "Times on this axis are profiled ones."));
}

function releases(strategy) {
  return table("What each call lets go", [["call"], ["of"], ["held before", 1], ["held after", 1], ["let go", 1], ["needed to retain"], ["peak of the call", 1], ["net", 1], [".grad after", 1]],
    strategy.calls.map((call) => {
      const known = call.retained_bytes_before !== null && call.retained_bytes_after !== null;
      return [`${call.index}`, nameOf(call), bytes(call.retained_bytes_before), bytes(call.retained_bytes_after), known ? bytes(call.retained_bytes_before - call.retained_bytes_after) : "–",
        call.retain_needed === null ? "" : call.retain_needed ? "yes" : "no", bytes(call.peak_bytes), bytes(call.net_bytes), bytes(call.grad_bytes_after)];
    }));
}

function cost(strategy) {
  const found = strategy.retained.cost;
  if (!found) return null;
  return table("With the retain flags as they are, and with only those that a later call needs", [["when"], ["as it is", 1], ["only needed", 1]], [
    ["peak of the step", bytes(found.peak_with_bytes), bytes(found.peak_without_bytes)],
    ["held after the last call", bytes(found.after_last_with_bytes), bytes(found.after_last_without_bytes)]]);
}

export function memoryView(page, state) {
  const {result} = page;
  const strategy = strategyOf(result, state.get("strategy")) || mainStrategy(page);
  if (!strategy) return h("p", {class: "notice"}, "This run has no strategies.");
  const others = result.strategies.filter((one) => one !== strategy);
  const plain = others.find((one) => one.calls.length && !one.calls.some((call) => call.retain_graph));
  const other = state.get("against") === "none" ? null : strategyOf(result, state.get("against")) || plain || null;
  const held = strategy.retained;
  return h("div", {},
    h("p", {class: "fields"},
      select("Strategy", result.strategies.map(({name}) => [name, name]), strategy.name, (name) => state.set({strategy: name, node: ""})),
      select("Against", [["none", "none"], ...others.map(({name}) => [name, name])], other ? other.name : "none", (against) => state.set({against}))),
    strategy.step.timeline.length ? chart(strategy, other) : h("p", {class: "notice"}, "The evidence pass did not record memory for this strategy."),
    releases(strategy), cost(strategy),
    h("h2", {}, `What holds ${bytes(held.after_forward_bytes)} after the forward`),
    held.by_node.length ? icicle(strategy, state) : h("p", {}, "Nothing that is known."),
    held.residue_bytes === null ? null : h("p", {}, `Residue, released but found in no node: ${bytes(held.residue_bytes)}.`),
    table("Holders by node", [["held by"], ["module"], ["bytes", 1], ["storages", 1], ["let go in"]], [...held.by_node].sort((a, b) => b.bytes - a.bytes).slice(0, 50).map((row) => [
      row.node, row.module || "(outside every module)", bytes(row.bytes), `${row.storages}`, row.freed_in_call === null ? "no call" : `call ${row.freed_in_call}`])));
}
