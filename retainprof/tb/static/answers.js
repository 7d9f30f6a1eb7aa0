// View 1: the four answers, then the findings, each with a link to what it rests on.
import {h} from "./dom.js";
import {glance} from "./glance.js";
import {clockName, clockOf} from "./model.js";
import {bytes, ns} from "./units.js";

const EVIDENCE = ["calls", "strategies", "memory", "strategies"];

function statusLines(result) {
  const lines = result.status === "ok" ? [] : [`This run is ${result.status}: only what is shown was measured. ${result.message}`];
  for (const {name, error} of result.strategies) {
    if (error) lines.push(`${name} failed${error.call === null ? " in its forward" : ` in call ${error.call} (${error.loss})`}: ${error.type}: ${error.message}`);
  }
  return lines.map((line) => h("p", {class: "notice", role: "note"}, line));
}

function link(state, view, change, text) {
  return h("button", {type: "button", class: "link", onclick: () => state.set({view, ...change})}, text);
}

function lead(text) {
  const end = text.search(/[:.;](\s|$)/);
  return end < 0 || end > 60 ? ["", text] : [text.slice(0, end + 1), text.slice(end + 1)];
}

function saves(finding, clock) {
  const parts = [finding.saves_ns > 0 && `${ns(finding.saves_ns)} of ${clockName(clock)} time`, finding.saves_bytes > 0 && bytes(finding.saves_bytes)].filter(Boolean);
  return parts.length ? h("span", {class: "saves"}, `saves ${parts.join(" and ")}`) : null;
}

function finding(found, state, clock) {
  const where = `${found.strategy}${found.call === null ? "" : `, call ${found.call}`}`;
  const view = found.saves_bytes > 0 || /retain|held|bytes|storage|pinned/.test(found.rule) ? "memory" : "calls";
  const evidence = Object.entries(found.evidence).map(([key, value]) => `${key.replaceAll("_", " ")}: ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return h("li", {class: `finding ${found.severity}`},
    h("p", {}, h("span", {class: `mark ${found.severity}`}, found.severity), " ", h("strong", {}, where), ": ", found.text, ". ", saves(found, clock)),
    found.advice ? h("p", {}, "To do: ", found.advice, ".") : null,
    h("details", {}, h("summary", {}, "Evidence"), h("p", {}, evidence.join("; ")),
      h("p", {}, link(state, view, {strategy: found.strategy}, `Show ${where} in ${view === "memory" ? "Memory" : "Calls"}`),
        /^https:\/\//.test(found.url) ? [" · ", h("a", {href: found.url, rel: "noreferrer", target: "_blank"}, found.rule)] : null)));
}

export function answersView(page, state) {
  const {result, answers} = page;
  const all = state.get("findings") === "all";
  const shown = all ? result.findings : result.findings.slice(0, 5);
  const more = result.findings.length - shown.length;
  return h("div", {},
    statusLines(result),
    h("ol", {class: "answers"}, answers.map((answer, i) => {
      const [first, rest] = lead(answer.text);
      return h("li", {}, h("div", {class: "answer"},
        h("div", {}, h("h2", {}, answer.question), h("p", {}, h("strong", {class: "lead"}, first), rest),
          h("p", {}, link(state, EVIDENCE[i], answer.strategy ? {strategy: answer.strategy} : {}, `See it in ${EVIDENCE[i][0].toUpperCase()}${EVIDENCE[i].slice(1)}`))),
        glance(page, i)));
    })),
    h("h2", {}, "What to change"),
    result.findings.length ? h("ul", {class: "findings"}, shown.map((found) => finding(found, state, clockOf(result)))) : h("p", {}, "Nothing was found."),
    more > 0 ? h("p", {}, link(state, "answers", {findings: "all"}, `${more} more findings`)) : null);
}
