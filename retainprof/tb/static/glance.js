// A small chart beside each answer that has one: what the sentence says, at a glance.
import {h} from "./dom.js";
import {bars} from "./bars.js";
import {clockName, clockOf, deciding, nameOf, strategyOf} from "./model.js";
import {bytes, intervalNs, ns, percent, ratio} from "./units.js";

function calls(page, name) {
  const strategy = strategyOf(page.result, name);
  if (!strategy) return null;
  const clock = clockOf(page.result);
  const rows = strategy.calls.filter((call) => call[`${clock}_ns`].median !== null).map((call) => {
    const {median, ci95} = call[`${clock}_ns`];
    const label = `call ${call.index} ${nameOf(call)}`;
    return {label, value: ns(median), told: `${label}: ${ns(median)}${ci95 ? ` (95% ${intervalNs(ci95)})` : ""}`, parts: [{amount: median, kind: "part plain"}], ci: ci95};
  });
  return rows.length ? bars(`${clockName(clock)} time of each call in ${name}`, rows) : null;
}

function costs(page) {
  const {result} = page;
  if (!result.comparisons.length) return null;
  const clock = clockOf(result);
  const {baseline} = result.comparisons[0];
  const rows = result.comparisons.map((found) => [found, deciding(found, clock)]).filter(([, chosen]) => chosen)
    .sort(([, a], [, b]) => a.median - b.median)
    .map(([found, chosen]) => {
      const peak = found.peak_bytes_ratio === null ? "" : `, peak memory ${percent(found.peak_bytes_ratio)}`;
      return {label: found.contender, value: ratio(chosen.median), parts: [{amount: chosen.median, kind: "part plain"}], ci: chosen.ci95,
        told: `${found.contender}: ${ratio(chosen.median)} (95% ${ratio(chosen.ci95[0])} to ${ratio(chosen.ci95[1])})${peak}`};
    });
  if (!rows.length) return null;
  const base = {label: baseline, value: ratio(1), told: `${baseline}: 1, what the others are compared with`, parts: [{amount: 1, kind: "part base"}], ci: null};
  return bars(`${clockName(clock)} time of a step, against ${baseline}`, [base, ...rows]);
}

function held(page, name) {
  const strategy = strategyOf(page.result, name);
  if (!strategy || strategy.retained.after_forward_bytes === null) return null;
  const moments = [["after the forward", strategy.retained.after_forward_bytes], ...strategy.calls.map((call) => [`after call ${call.index} ${nameOf(call)}`, call.retained_bytes_after])];
  const rows = moments.filter(([, amount]) => amount !== null).map(([label, amount]) => ({label, value: bytes(amount), told: `${label}: ${bytes(amount)}`, parts: [{amount, kind: "part held"}], ci: null}));
  return bars(`Held in ${name}`, rows);
}

const CHARTS = [calls, costs, held];

export function glance(page, index) {
  const chart = index < CHARTS.length ? CHARTS[index](page, page.answers[index].strategy) : null;
  return chart ? h("div", {class: "glance"}, chart) : null;
}
