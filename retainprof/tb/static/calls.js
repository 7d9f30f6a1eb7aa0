// View 2: the calls of a strategy side by side, and any two calls' kernels.
import {h, replace, s, select, table} from "./dom.js";
import {clockOf, diff, flagsOf, groupNames, groupOf, mainStrategy, nameOf, strategyOf, unpack} from "./model.js";
import {bytes, count, flops, intervalNs, ns, ratio} from "./units.js";
import {kernelTable} from "./kernel_table.js";

const WIDTH = 320;

function panel(title, calls, value, parts) {
  const most = Math.max(1, ...calls.map((call) => (value(call).ci95 || [0, 0])[1]), ...calls.map((call) => value(call).median || 0));
  const x = (amount) => (amount / most) * WIDTH;
  return h("figure", {class: "bars"}, h("figcaption", {}, title), calls.map((call, i) => {
    const {median, ci95} = value(call);
    const label = `call ${call.index} ${nameOf(call)}`;
    const told = `${label}: ${ns(median)}${ci95 ? ` (95% ${intervalNs(ci95)})` : ""}`;
    const bars = parts ? stack(parts[i], x) : [s("rect", {class: "bar", x: 0, y: 3, width: x(median || 0), height: 14})];
    const whisker = ci95 ? s("path", {class: "whisker", d: `M${x(ci95[0])} 10H${x(ci95[1])}M${x(ci95[0])} 6v8M${x(ci95[1])} 6v8`}) : null;
    return h("div", {class: "bar-row"}, h("span", {class: "bar-label", title: label}, label),
      s("svg", {viewBox: `-1 0 ${WIDTH + 2} 20`, role: "img", "aria-label": told, preserveAspectRatio: "none"}, s("title", {}, told), bars, whisker),
      h("span", {class: "bar-value"}, ns(median)));
  }));
}

function stack(amounts, x) {
  let at = 0;
  return amounts.map((amount, group) => {
    const bar = s("rect", {class: `group-${group}`, x: x(at), y: 3, width: x(amount), height: 14}, s("title", {}, `${groupNames[group]}: ${ns(amount)}`));
    at += amount;
    return bar;
  });
}

function legend() {
  return h("p", {class: "legend"}, groupNames.map((name, i) => h("span", {}, s("svg", {viewBox: "0 0 12 12", "aria-hidden": "true"}, s("rect", {class: `group-${i}`, width: 12, height: 12})), ` ${name} `)));
}

function byGroup(rows) {
  const sums = groupNames.map(() => 0);
  rows.forEach((row) => { sums[groupOf(row.name)] += row.selfNs; });
  return sums;
}

function callTable(strategy, result) {
  const clock = clockOf(result);
  const later = new Map(strategy.first_vs_later.map((found) => [found.call, found]));
  const columns = [["call"], ["of"], ["flags"], ["steady wall", 1], ["95% interval", 1], ["cold", 1], ["profiled", 1], [`${clock} / call 0`, 1], ["verdict"],
    ["nodes", 1], ["kernels", 1], ["stolen/copied/added", 1], ["FLOPs", 1], ["peak", 1], ["held after", 1]];
  return table(`Calls of ${strategy.name}`, columns, strategy.calls.map((call) => {
    const found = later.get(call.index);
    const chosen = found && (clock === "cpu" && found.ratio_cpu ? found.ratio_cpu : found.ratio_wall);
    const did = call.accumulate;
    return [`${call.index}`, nameOf(call), flagsOf(call), ns(call.wall_ns.median), intervalNs(call.wall_ns.ci95), ns(call.cold_wall_ns.median), ns(call.profiled_wall_ns),
      chosen ? `${ratio(chosen.median)} (${ratio(chosen.ci95[0])} to ${ratio(chosen.ci95[1])})` : "", found ? found.verdict.replace("_", " ") : "",
      count(call.nodes), count(call.kernels), did ? `${did.stolen}/${did.copied}/${did.added + did.sparse_added}` : "–", flops(call.flops), bytes(call.peak_bytes), bytes(call.retained_bytes_after)];
  }));
}

// A call's address: [run, strategy, index] as JSON.
async function rowsOf(source, address) {
  const [run, strategy, index] = JSON.parse(address);
  return unpack(await source.kernels(run, strategy), index);
}

async function compare(box, source, run, state, options, chosen) {
  const [a, b] = chosen;
  const pick = (key) => (value) => state.set({[key]: value});
  const fields = h("p", {class: "fields"}, select("Call A", options, a, pick("a")), select("Call B", options, b, pick("b")));
  replace(box, fields, h("p", {class: "quiet", role: "status"}, "Reading kernels …"));
  try {
    const [first, later] = await Promise.all([rowsOf(source, a), rowsOf(source, b)]);
    replace(box, fields, kernelTable(diff(first.rows, later.rows), first.left + later.left, state));
  } catch (error) {
    replace(box, fields, h("p", {class: "notice", role: "alert"}, `The kernels cannot be shown: ${error.message}`));
  }
}

async function allCalls(source, run, page, state) {
  const other = state.get("other");
  const pages = [[run, page]];
  if (other && other !== run) pages.push([other, await source.page(other)]);
  return pages.flatMap(([id, found]) => found.result.strategies.flatMap((strategy) => strategy.calls.map((call, i) => [
    JSON.stringify([id, strategy.name, i]), `${pages.length > 1 ? `${id}: ` : ""}${strategy.name}, call ${call.index} ${nameOf(call)}`])));
}

export function callsView(page, state, source, run) {
  const {result} = page;
  const strategy = strategyOf(result, state.get("strategy")) || mainStrategy(page);
  if (!strategy) return h("p", {class: "notice"}, "This run has no strategies.");
  const {calls} = strategy;
  const profiled = h("div", {class: "panel"});
  const box = h("div", {});
  source.kernels(run, strategy.name).then((document) => {
    const parts = calls.map((call, i) => byGroup(unpack(document, i).rows));
    const total = (call) => ({median: parts[calls.indexOf(call)].reduce((sum, amount) => sum + amount, 0), ci95: null});
    replace(profiled, panel("Under the profiler, by kernel group (why, not how long)", calls, total, parts));
  }, (error) => replace(profiled, h("p", {class: "notice"}, error.message)));
  allCalls(source, run, page, state).then((options) => {
    const known = new Set(options.map(([value]) => value));
    const at = (key, index) => (known.has(state.get(key)) ? state.get(key) : JSON.stringify([run, strategy.name, Math.min(index, calls.length - 1)]));
    if (options.length) compare(box, source, run, state, options, [at("a", 0), at("b", 1)]);
  }, (error) => replace(box, h("p", {class: "notice", role: "alert"}, error.message)));
  const runs = source.runs();
  return h("div", {},
    h("p", {class: "fields"}, select("Strategy", result.strategies.map(({name}) => [name, name]), strategy.name, (name) => state.set({strategy: name, a: "", b: ""}))),
    h("div", {class: "panels"},
      panel("Steady wall time, median and 95% interval", calls, (call) => call.wall_ns),
      panel("Cold: first step of a fresh process (own scale)", calls, (call) => call.cold_wall_ns),
      profiled),
    legend(), callTable(strategy, result),
    h("h2", {}, "Two calls, kernel by kernel"),
    runs.length > 1 ? h("p", {class: "fields"}, select("Also calls of run", [["", "none"], ...runs.map(({id}) => [id, id])], state.get("other"), (other) => state.set({other}))) : null,
    box);
}
