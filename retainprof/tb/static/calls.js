// View 2: the calls of a strategy side by side, and any two calls' kernels.
import {bars, legend} from "./bars.js";
import {h, replace, select, table} from "./dom.js";
import {clockName, clockOf, diff, flagsOf, groupNames, groupOf, mainStrategy, nameOf, strategyOf, unpack} from "./model.js";
import {bytes, count, flops, intervalNs, ns, ratio} from "./units.js";
import {kernelTable} from "./kernel_table.js";

function panel(title, calls, value, parts) {
  return bars(title, calls.map((call, i) => {
    const {median, ci95} = value(call);
    const label = `call ${call.index} ${nameOf(call)}`;
    const groups = parts && parts[i].map((amount, group) => ({name: `${groupNames[group]}: ${ns(amount)}`, amount, kind: `group-${group}`}));
    const told = `${label}: ${ns(median)}${ci95 ? ` (95% ${intervalNs(ci95)})` : ""}`;
    return {label, value: ns(median), told, parts: groups || [{amount: median, kind: "part plain"}], ci: ci95};
  }));
}

function byGroup(rows) {
  const sums = groupNames.map(() => 0);
  rows.forEach((row) => { sums[groupOf(row.name)] += row.selfNs; });
  return sums;
}

function callTable(strategy, result) {
  const clock = clockOf(result);
  const later = new Map(strategy.first_vs_later.map((found) => [found.call, found]));
  const columns = [["call"], ["of"], ["flags"], ["steady wall", 1], ["95% interval", 1], ["cold", 1], ["profiled", 1], [`${clockName(clock)} / call 0`, 1], ["verdict"],
    ["nodes", 1], ["kernels", 1], ["stolen/ copied/ added", 1], ["FLOPs", 1], ["peak", 1], ["held after", 1]];
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
  const clock = clockOf(result);
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
      panel(`Steady ${clockName(clock)} time, median and 95% interval`, calls, (call) => call[`${clock}_ns`]),
      panel("Cold wall time: first step of a fresh process (own scale)", calls, (call) => call.cold_wall_ns),
      profiled),
    legend(groupNames.map((name, i) => [`group-${i}`, name])), callTable(strategy, result),
    h("h2", {}, "Two calls, kernel by kernel"),
    runs.length > 1 ? h("p", {class: "fields"}, select("Also calls of run", [["", "none"], ...runs.map(({id}) => [id, id])], state.get("other"), (other) => state.set({other}))) : null,
    box);
}
