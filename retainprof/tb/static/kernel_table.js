// The table of two calls' kernels: sorted, filtered, and only the rows in sight are elements.
import {h, replace} from "./dom.js";
import {bytes, count, ns} from "./units.js";

const ROW_PX = 26;
const STATUS = {only_first: "only A", only_later: "only B", changed: "changed", same: "same"};
const COLUMNS = [
  ["status", "status", (row) => row.status],
  ["kernel", "kernel", (row) => row.name],
  ["shapes", "shapes", (row) => row.shapes],
  ["countA", "A times", (row) => row.count[0]],
  ["countB", "B times", (row) => row.count[1]],
  ["nsA", "A self, profiled", (row) => row.selfNs[0]],
  ["nsB", "B self, profiled", (row) => row.selfNs[1]],
  ["bytesA", "A bytes", (row) => row.bytes[0]],
  ["bytesB", "B bytes", (row) => row.bytes[1]],
];

const words = new Intl.Collator("en");

function sorted(rows, key) {
  const descending = key.startsWith("-");
  const column = COLUMNS.find(([name]) => name === key.replace("-", ""));
  if (!column) return rows;
  const value = column[2];
  const order = (a, b) => (typeof value(a) === "number" ? value(a) - value(b) : words.compare(value(a), value(b)));
  return [...rows].sort((a, b) => (descending ? order(b, a) : order(a, b)));
}

function cells(row) {
  const numbers = [count(row.count[0]), count(row.count[1]), ns(row.selfNs[0]), ns(row.selfNs[1]), bytes(row.bytes[0]), bytes(row.bytes[1])];
  return [
    h("td", {}, h("span", {class: `mark ${row.status}`}, STATUS[row.status])),
    h("td", {title: row.name}, row.name, row.leaf ? null : h("span", {class: "quiet"}, " (around others)")),
    h("td", {title: row.shapes}, row.shapes),
    numbers.map((text) => h("td", {class: "number"}, text)),
  ];
}

function draw(view) {
  const {box, body, shown} = view;
  const height = box.clientHeight || 420;
  const from = Math.max(0, Math.floor(box.scrollTop / ROW_PX) - 10);
  const to = Math.min(shown.length, from + Math.ceil(height / ROW_PX) + 20);
  const gap = (rows) => (rows > 0 ? h("tr", {"aria-hidden": "true", class: "gap"}, h("td", {colspan: 9, style: `height:${rows * ROW_PX}px`})) : null);
  const rows = shown.slice(from, to).map((row, i) => h("tr", {"aria-rowindex": from + i + 2, class: row.status}, cells(row)));
  replace(body, gap(from), rows, gap(shown.length - to));
}

export function kernelTable(rows, left, state) {
  const body = h("tbody", {});
  const head = h("tr", {});
  const grid = h("table", {class: "kernels"}, h("caption", {}, "Kernels of call A against call B"), h("thead", {}, head), body);
  const box = h("div", {class: "virtual", tabindex: 0, role: "region", "aria-label": "Kernels, scrolls"}, grid);
  const note = h("p", {class: "quiet", role: "status"});
  const view = {box, body, shown: rows};
  function update() {
    const wanted = state.get("filter").toLowerCase();
    const status = state.get("status");
    const matching = rows.filter((row) => (!wanted || `${row.name} ${row.shapes}`.toLowerCase().includes(wanted))
      && (!status || (status === "different" ? row.status !== "same" : row.status === status)));
    view.shown = sorted(matching, state.get("sort"));
    grid.setAttribute("aria-rowcount", view.shown.length + 1);
    replace(note, `${count(view.shown.length)} of ${count(rows.length)} rows${left ? `; ${count(left)} of the shortest are not in this page` : ""}.`);
    replace(head, COLUMNS.map(([key, text], i) => {
      const now = state.get("sort");
      const direction = now === key ? "ascending" : now === `-${key}` ? "descending" : "none";
      const next = direction === "none" ? (i > 2 ? `-${key}` : key) : now.startsWith("-") ? key : `-${key}`;
      const press = () => { state.keep({sort: next}); update(); head.children[i].firstChild.focus(); };
      return h("th", {scope: "col", "aria-sort": direction, class: i > 2 ? "number" : null}, h("button", {type: "button", onclick: press}, text));
    }));
    box.scrollTop = 0;
    draw(view);
  }
  const filter = h("input", {type: "search", value: state.get("filter"), oninput: (e) => { state.keep({filter: e.target.value}); update(); }});
  const choices = [["", "all"], ["different", "all that differ"], ...Object.entries(STATUS)];
  const status = h("select", {onchange: (e) => { state.keep({status: e.target.value}); update(); }},
    choices.map(([value, text]) => h("option", {value, selected: value === state.get("status")}, text)));
  box.addEventListener("scroll", () => window.requestAnimationFrame(() => draw(view)));
  update();
  return h("div", {}, h("p", {class: "fields"}, h("label", {class: "field"}, "Filter ", filter), h("label", {class: "field"}, "Status ", status)), note, box);
}
