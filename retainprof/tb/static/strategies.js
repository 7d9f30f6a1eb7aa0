// View 4: what each way costs, in time and memory, where its time goes, and whether the gradients agree.
import {h, s, table} from "./dom.js";
import {clockOf, deciding, nameOf} from "./model.js";
import {bytes, count, flops, intervalNs, ns, ratio} from "./units.js";

const W = 900, H = 320, LEFT = 80, BOTTOM = 45;

function best(points) {
  return points.filter((one) => !points.some((two) => two !== one && two.time <= one.time && two.peak <= one.peak && (two.time < one.time || two.peak < one.peak)));
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
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  let last = -Infinity;
  const tops = new Map([...points].sort((a, b) => y(a.peak) - y(b.peak)).map((point) => {
    last = Math.max(y(point.peak) - 8, last + 14);
    return [point, last];
  }));
  return h("figure", {class: "chart"}, s("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Time against peak memory: ${points.map(({name, time, peak}) => `${name} ${ns(time)}, ${bytes(peak)}`).join("; ")}`},
    ticks.map((part) => [s("path", {class: "grid", d: `M${LEFT} ${y(high * part)}H${W - 10}`}), s("text", {class: "tick", x: LEFT - 5, y: y(high * part) + 4, "text-anchor": "end"}, bytes(Math.round(high * part))),
      s("text", {class: "tick", x: x(wide * part), y: H - 25, "text-anchor": part === 1 ? "end" : "middle"}, ns(wide * part))]),
    s("text", {class: "tick", x: (LEFT + W) / 2, y: H - 6, "text-anchor": "middle"}, `${clock === "cpu" ? "CPU" : "wall"} time of a step; up: peak bytes above the start`),
    points.map((point) => [
      point.ci ? s("path", {class: "whisker", d: `M${x(point.ci[0])} ${y(point.peak)}H${x(point.ci[1])}`}) : null,
      s("circle", {class: front.has(point) ? "point best" : "point", cx: x(point.time), cy: y(point.peak), r: 6}, s("title", {}, `${point.name}: ${ns(point.time)}, ${bytes(point.peak)}`)),
      s("text", {class: "name", x: x(point.time) + 10, y: tops.get(point)}, point.name)])),
  h("figcaption", {}, `Filled points: nothing else is both faster and smaller (${[...front].map(({name}) => name).join(", ")}). Lines: 95% intervals of the time.`));
}

function kindOf(call) {
  return call.what === "trunk" ? "trunk" : call.what === "head" ? "heads" : "whole";
}

function bars(title, result, amounts, show) {
  const rows = result.strategies.map((one) => [one.name, amounts(one)]).filter(([, parts]) => parts.some(([, , amount]) => amount));
  if (!rows.length) return null;
  const most = Math.max(...rows.map(([, parts]) => parts.reduce((sum, part) => sum + (part[2] || 0), 0)));
  return h("figure", {class: "bars"}, h("figcaption", {}, title), rows.map(([name, parts]) => {
    let at = 0;
    const told = `${name}: ${parts.map(([, label, amount]) => `${label} ${show(amount)}`).join(", ")}`;
    const boxes = parts.map(([kind, label, amount]) => {
      const width = ((amount || 0) / most) * 320;
      const box = s("rect", {class: `part ${kind}`, x: at, y: 3, width, height: 14}, s("title", {}, `${label}: ${show(amount)}`));
      at += width;
      return box;
    });
    return h("div", {class: "bar-row"}, h("span", {class: "bar-label", title: name}, name),
      s("svg", {viewBox: "-1 0 322 20", role: "img", "aria-label": told, preserveAspectRatio: "none"}, s("title", {}, told), boxes),
      h("span", {class: "bar-value"}, show(parts.reduce((sum, part) => sum + (part[2] || 0), 0))));
  }));
}

function relation({gradients}) {
  if (!gradients) return ["–", ""];
  const words = gradients.returned_relation ? `${gradients.returned_relation} (returned)` : gradients.relation.replace("_", " ");
  const largest = gradients.returned_max_rel_difference ?? gradients.max_rel_difference;
  return [words, largest === null ? gradients.reason : largest.toExponential(1)];
}

export function strategiesView(page) {
  const {result} = page;
  const clock = clockOf(result);
  const compared = new Map(result.comparisons.map((found) => [found.contender, found]));
  const baseline = result.comparisons.length ? result.comparisons[0].baseline : "";
  const parts = (forward, call) => (one) => [["forward", "forward", forward(one)], ...one.calls.map((found) => [kindOf(found), `call ${found.index} ${nameOf(found)}`, call(found)])];
  return h("div", {},
    h("h2", {}, "Time against peak memory"), scatter(result),
    table(`Strategies${baseline ? `, against ${baseline}` : ""}`, [["strategy"], ["step wall", 1], ["95% interval", 1], ["step CPU", 1], [`${clock} / ${baseline || "base"}`, 1], ["verdict"], ["peak", 1], ["left", 1], ["FLOPs", 1], ["forwards", 1],
      ["added into .grad", 1], ["fan-in adds", 1], ["gradients"], ["largest relative difference", 1]],
    result.strategies.map((one) => {
      const found = compared.get(one.name);
      const chosen = found && deciding(found, clock);
      const total = (value) => (one.calls.every((call) => value(call) !== null) ? one.calls.reduce((sum, call) => sum + value(call), 0) : null);
      const last = one.calls[one.calls.length - 1];
      return [one.name, ns(one.step.wall_ns.median), intervalNs(one.step.wall_ns.ci95), ns(one.step.cpu_ns.median), chosen ? `${ratio(chosen.median)} (${ratio(chosen.ci95[0])} to ${ratio(chosen.ci95[1])})` : one.name === baseline ? "1" : "–",
        one.status === "failed" ? "failed" : one.name === baseline ? "base" : found ? found.verdict.replace("_", " ") : "–", bytes(one.step.peak_bytes), bytes(last ? last.retained_bytes_after : null), flops(one.step.flops), count(one.step.forwards),
        count(total((call) => (call.accumulate ? call.accumulate.added + call.accumulate.sparse_added : null))), count(total((call) => call.fan_in_adds)), ...relation(one)];
    })),
    h("h2", {}, "Where a step goes"),
    h("div", {class: "panels"},
      bars("Wall time, medians of the parts", result, parts((one) => one.forward.wall_ns.median, (call) => call.wall_ns.median), ns),
      bars("FLOPs", result, parts((one) => one.forward.flops, (call) => call.flops), flops)),
    h("p", {class: "legend"}, [["forward", "forward"], ["whole", "a call through heads and trunk"], ["heads", "a head alone"], ["trunk", "the trunk alone"]].map(([kind, text]) => h("span", {},
      s("svg", {viewBox: "0 0 12 12", "aria-hidden": "true"}, s("rect", {class: `part ${kind}`, width: 12, height: 12})), ` ${text} `))));
}
