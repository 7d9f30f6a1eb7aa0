// View 4: what each way costs, in time and memory, where its time goes, and whether the gradients agree.
import {bars, legend} from "./bars.js";
import {h, s, table} from "./dom.js";
import {clockName, clockOf, deciding, nameOf} from "./model.js";
import {bytes, bytesTicks, count, flops, intervalNs, ns, nsTicks, ratio} from "./units.js";

const W = 900, H = 320, LEFT = 80, BOTTOM = 45;

function best(points) {
  return points.filter((one) => !points.some((two) => two !== one && two.time <= one.time && two.peak <= one.peak && (two.time < one.time || two.peak < one.peak)));
}

// Names beside their points, moved down where they would lie over another.
function placed(points, x, y) {
  let last = -Infinity;
  return new Map([...points].sort((a, b) => y(a.peak) - y(b.peak) || a.time - b.time).map((point) => {
    last = Math.max(y(point.peak) - 10, last + 16);
    const left = x(point.time) > W * 0.8;
    return [point, {x: x(point.time) + (left ? -14 : 14), y: last, anchor: left ? "end" : "start"}];
  }));
}

function scatter(result) {
  const clock = clockOf(result);
  const points = result.strategies.map((one) => ({name: one.name, time: one.step[`${clock}_ns`].median, ci: one.step[`${clock}_ns`].ci95, peak: one.step.peak_bytes}))
    .filter(({time, peak}) => time !== null && peak !== null);
  if (!points.length) return h("p", {class: "notice"}, "No strategy has both a time and a peak.");
  const front = new Set(best(points));
  const wide = Math.max(...points.map(({time, ci}) => (ci ? ci[1] : time))) * 1.15;
  const high = Math.max(1, ...points.map(({peak}) => peak)) * 1.1;
  const x = (time) => LEFT + (time / wide) * (W - LEFT - 10);
  const y = (peak) => 10 + (1 - peak / high) * (H - BOTTOM - 10);
  const labels = placed(points, x, y);
  return h("figure", {class: "chart"}, s("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Time against peak memory: ${points.map(({name, time, peak}) => `${name} ${ns(time)}, ${bytes(peak)}`).join("; ")}`},
    bytesTicks(high).map((at) => [s("path", {class: "grid", d: `M${LEFT} ${y(at)}H${W - 10}`}), s("text", {class: "tick", x: LEFT - 5, y: y(at) + 4, "text-anchor": "end"}, bytes(at))]),
    nsTicks(wide).map((at) => s("text", {class: "tick", x: x(at), y: H - 25, "text-anchor": x(at) > W - 30 ? "end" : "middle"}, ns(at))),
    s("text", {class: "tick", x: (LEFT + W) / 2, y: H - 6, "text-anchor": "middle"}, `${clockName(clock)} time of a step; up: peak bytes above the start`),
    points.map((point) => [
      point.ci ? s("path", {class: "whisker", d: `M${x(point.ci[0])} ${y(point.peak)}H${x(point.ci[1])}`}) : null,
      s("circle", {class: front.has(point) ? "point best" : "point", cx: x(point.time), cy: y(point.peak), r: 6}, s("title", {}, `${point.name}: ${ns(point.time)}, ${bytes(point.peak)}`)),
    ]),
    points.map((point) => [point, labels.get(point)]).map(([point, label]) => [
      s("path", {class: "leader", d: `M${x(point.time)} ${y(point.peak)}L${label.x} ${label.y - 4}`}),
      s("text", {class: "name", x: label.x, y: label.y, "text-anchor": label.anchor}, point.name)])),
  h("figcaption", {}, `Filled points: nothing else is both faster and smaller (${[...front].map(({name}) => name).join(", ")}). Lines: 95% intervals of the time.`));
}

function kindOf(call) {
  return call.what === "trunk" ? "trunk" : call.what === "head" ? "heads" : "whole";
}

function parted(title, result, amounts, show) {
  const rows = result.strategies.map((one) => [one.name, amounts(one)]).filter(([, parts]) => parts.some(({amount}) => amount));
  return rows.length ? bars(title, rows.map(([label, parts]) => ({
    label, parts, ci: null, value: show(parts.reduce((sum, {amount}) => sum + (amount || 0), 0)), told: `${label}: ${parts.map(({name}) => name).join(", ")}`,
  }))) : null;
}

// FLOPs of a call: those of the heads, and those of the trunk, where the gradient was seen to reach what both share.
function flopsOf(call) {
  const name = `call ${call.index} ${nameOf(call)}`;
  if (call.head_flops === null || kindOf(call) !== "whole") return [[kindOf(call), name, call.flops]];
  return [["heads", `${name}, heads`, call.head_flops], ["trunk", `${name}, trunk`, call.flops - call.head_flops]];
}

// How often a call added gradients: AccumulateGrad into .grad, and the engine where paths of the graph meet.
function additionsOf(call) {
  const name = `call ${call.index} ${nameOf(call)}`;
  const into = call.accumulate ? call.accumulate.added + call.accumulate.sparse_added : null;
  return [["adds", `${name}, into .grad`, into], ["fan", `${name}, where paths meet`, call.fan_in_adds]];
}

function total(calls, value) {
  return calls.every((call) => value(call) !== null) ? calls.reduce((sum, call) => sum + value(call), 0) : null;
}

function verdict(one, found, baseline) {
  if (one.status !== "ok") return one.status;
  return one.name === baseline ? "base" : found ? found.verdict.replace("_", " ") : "–";
}

function costs(result, clock) {
  const compared = new Map(result.comparisons.map((found) => [found.contender, found]));
  const baseline = result.comparisons.length ? result.comparisons[0].baseline : "";
  const columns = [["strategy"], ["step wall", 1], ["95% interval", 1], ["step CPU", 1], [`${clockName(clock)} / ${baseline || "base"}`, 1], ["verdict"], ["peak", 1], ["left", 1], ["FLOPs", 1], ["forwards", 1],
    ["added into .grad", 1], ["fan-in adds", 1]];
  return table(`Strategies${baseline ? `, against ${baseline}` : ""}`, columns, result.strategies.map((one) => {
    const found = compared.get(one.name);
    const chosen = found && deciding(found, clock);
    const last = one.calls[one.calls.length - 1];
    return [one.name, ns(one.step.wall_ns.median), intervalNs(one.step.wall_ns.ci95), ns(one.step.cpu_ns.median),
      chosen ? `${ratio(chosen.median)} (${ratio(chosen.ci95[0])} to ${ratio(chosen.ci95[1])})` : one.name === baseline ? "1" : "–", verdict(one, found, baseline),
      bytes(one.step.peak_bytes), bytes(last ? last.retained_bytes_after : null), flops(one.step.flops), count(one.step.forwards),
      count(total(one.calls, (call) => (call.accumulate ? call.accumulate.added + call.accumulate.sparse_added : null))), count(total(one.calls, (call) => call.fan_in_adds))];
  }));
}

function agreement(result) {
  const compared = result.strategies.filter(({gradients}) => gradients);
  if (!compared.length) return h("p", {class: "notice"}, "Gradients were not compared.");
  const largest = (value) => (value === null ? "–" : value === 0 ? "0" : value.toExponential(1));
  const columns = [["strategy"], ["gradients"], ["largest relative difference", 1], ["in parameter"], ["note"]];
  return table(`Gradients, against ${compared[0].gradients.reference}`, columns, compared.map(({name, gradients}) => {
    const returned = gradients.returned_relation !== null;
    const words = (returned ? gradients.returned_relation : gradients.relation).replaceAll("_", " ");
    return [name, h("span", {class: `mark ${words.replaceAll(" ", "-")}`}, words), largest(returned ? gradients.returned_max_rel_difference : gradients.max_rel_difference), gradients.worst_parameter || "",
      [returned ? "sum of what the calls returned; .grad is left alone. " : "", gradients.reason, gradients.not_finite.length ? ` Not finite: ${gradients.not_finite.join(", ")}.` : ""].join("")];
  }));
}

export function strategiesView(page) {
  const {result} = page;
  const clock = clockOf(result);
  const parts = (forward, ofCall, show) => (one) => [...(forward ? [["forward", "forward", forward(one)]] : []), ...one.calls.flatMap(ofCall)]
    .map(([kind, name, amount]) => ({kind: `part ${kind}`, name: `${name} ${show(amount)}`, amount}));
  const time = `${clock}_ns`;
  return h("div", {},
    h("h2", {}, "Time against peak memory"), scatter(result), costs(result, clock), agreement(result),
    h("h2", {}, "Where a step goes"),
    h("div", {class: "panels"},
      parted(`${clockName(clock)} time, medians of the parts`, result, parts((one) => one.forward[time].median, (call) => [[kindOf(call), `call ${call.index} ${nameOf(call)}`, call[time].median]], ns), ns),
      parted("FLOPs of matrix products, convolutions, attention", result, parts((one) => one.forward.flops, flopsOf, flops), flops),
      parted("Additions of gradients, counted", result, parts(null, additionsOf, count), count)),
    legend([["part forward", "forward"], ["part whole", "a call through heads and trunk"], ["part heads", "heads"], ["part trunk", "trunk"], ["part adds", "into .grad"], ["part fan", "where paths meet"]]),
    h("p", {class: "quiet"}, "Heads: before the gradient reached the output of the shared module; trunk: after. Additions have no FLOPs in torch's counter, so they are counted; what they took is in Calls."));
}
