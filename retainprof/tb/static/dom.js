// Elements without markup: text from files only ever becomes text nodes and attribute values.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return node;
}

// A table: columns are [head, isNumber]; cells are text or elements.
export function table(caption, columns, rows) {
  const cell = (value, i) => h("td", {class: columns[i][1] ? "number" : null}, value);
  return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map(([head, number]) => h("th", {scope: "col", class: number ? "number" : null}, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

export function select(label, options, chosen, change) {
  const list = h("select", {onchange: (event) => change(event.target.value)},
    options.map(([value, text]) => h("option", {value, selected: value === chosen}, text)));
  return h("label", {class: "field"}, label, " ", list);
}
