// Horizontal bars, one a row: a label, the bar or its parts with an interval, and the number in words.
import {h, s} from "./dom.js";

const WIDTH = 320;

// rows: [{label, value, told, parts: [{name, amount, kind}], ci: [low, high] | null}]; amounts are in one unit, told and value are words.
export function bars(title, rows) {
  const most = Math.max(1e-9, ...rows.flatMap(({parts, ci}) => [parts.reduce((sum, {amount}) => sum + (amount || 0), 0), ci ? ci[1] : 0]));
  const x = (amount) => (amount / most) * WIDTH;
  return h("figure", {class: "bars"}, h("figcaption", {}, title), rows.map(({label, value, told, parts, ci}) => h("div", {class: "bar-row"},
    h("span", {class: "bar-label", title: label}, label),
    s("svg", {viewBox: `-1 0 ${WIDTH + 2} 20`, role: "img", "aria-label": told, preserveAspectRatio: "none"}, s("title", {}, told), boxes(parts, x), ci ? whisker(ci, x) : null),
    h("span", {class: "bar-value"}, value))));
}

function boxes(parts, x) {
  let at = 0;
  return parts.map(({name, amount, kind}) => {
    const box = s("rect", {class: kind, x: x(at), y: 3, width: x(amount || 0), height: 14}, name ? s("title", {}, name) : null);
    at += amount || 0;
    return box;
  });
}

function whisker([low, high], x) {
  return s("path", {class: "whisker", d: `M${x(low)} 10H${x(high)}M${x(low)} 6v8M${x(high)} 6v8`});
}

export function legend(entries) {
  return h("p", {class: "legend"}, entries.map(([kind, text]) => h("span", {}, s("svg", {viewBox: "0 0 12 12", "aria-hidden": "true"}, s("rect", {class: kind, width: 12, height: 12})), ` ${text} `)));
}
