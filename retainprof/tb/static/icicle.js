// Retained bytes by module, then node: each row of boxes divides the row above; a box can be entered.
import {h} from "./dom.js";
import {bytes} from "./units.js";

function tree(rows) {
  const root = {name: "all", key: "", bytes: 0, children: new Map()};
  for (const row of rows) {
    const parts = row.module ? row.module.split(".") : ["(outside every module)"];
    const freed = row.freed_in_call === null ? "no call" : `call ${row.freed_in_call}`;
    let at = root;
    at.bytes += row.bytes;
    for (const name of [...parts, `${row.node}, let go in ${freed}`]) {
      const key = at.key ? `${at.key}/${name}` : name;
      if (!at.children.has(name)) at.children.set(name, {name, key, bytes: 0, children: new Map(), parent: at});
      at = at.children.get(name);
      at.bytes += row.bytes;
    }
  }
  return root;
}

function find(node, key) {
  if (node.key === key) return node;
  return [...node.children.values()].map((child) => find(child, key)).find(Boolean) || null;
}

function boxes(node, left, width, depth, out) {
  out.push({node, left, width, depth});
  let at = left;
  for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
    const share = node.bytes ? (child.bytes / node.bytes) * width : 0;
    if (share > 0.4) boxes(child, at, share, depth + 1, out);
    at += share;
  }
  return out;
}

// A number alone ("1" in a Sequential) says nothing: its parent's name goes before it.
function shownName({name, parent}) {
  return /^\d+$/.test(name) && parent && parent.key ? `${shownName(parent)}.${name}` : name;
}

export function icicle(strategy, state) {
  const root = tree(strategy.retained.by_node);
  const top = find(root, state.get("node")) || root;
  const shown = boxes(top, 0, 100, 0, []);
  const deepest = Math.max(...shown.map((box) => box.depth));
  const trail = [];
  for (let at = top; at; at = at.parent) trail.unshift(at);
  return h("div", {},
    h("p", {class: "trail"}, trail.map((node, i) => [i ? " › " : "", h("button", {type: "button", class: "link", onclick: () => state.set({node: node.key})}, shownName(node))])),
    h("div", {class: "icicle", role: "group", "aria-label": "Holders by module and node", style: `height:${(deepest + 1) * 30}px`}, shown.map(({node, left, width, depth}) => h("button", {
      type: "button", class: `cell depth-${depth % 4}`, style: `left:${left}%;width:${width}%;top:${depth * 30}px`, title: `${node.key || "all"}: ${bytes(node.bytes)}`,
      "aria-label": `${node.key || "all"}: ${bytes(node.bytes)}`, onclick: () => state.set({node: node.key}),
    }, `${shownName(node)} ${bytes(node.bytes)}`))));
}
