// The page: choice of run, tabs, and the view that the address names.
import {h, replace, select} from "./dom.js";
import {makeState} from "./state.js";
import {answersView} from "./answers.js";
import {callsView} from "./calls.js";
import {memoryView} from "./memory.js";
import {strategiesView} from "./strategies.js";

const VIEWS = [["answers", "Answers", answersView], ["calls", "Calls", callsView], ["memory", "Memory", memoryView], ["strategies", "Strategies", strategiesView]];
const THEMES = ["", "light", "dark"];

function tabs(views, now, state) {
  const move = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const at = views.findIndex(([key]) => key === now);
    state.set({view: views[(at + step + views.length) % views.length][0]});
  };
  return h("div", {role: "tablist", "aria-label": "Views", onkeydown: move}, views.map(([key, text]) => h("button", {
    type: "button", role: "tab", id: `tab-${key}`, "aria-selected": key === now ? "true" : "false", "aria-controls": "view", tabindex: key === now ? 0 : -1, onclick: () => state.set({view: key}),
  }, text)));
}

// Whoever uses the keyboard stays in the bar when it is drawn again: on the chosen tab, the run or the colours.
function keepFocus(head, draw) {
  const had = head.contains(document.activeElement) ? document.activeElement : null;
  const again = had && (had.getAttribute("role") === "tab" ? "[aria-selected=true]" : had.tagName === "SELECT" ? "select" : ".bar > button");
  draw();
  if (again) head.querySelector(again)?.focus();
}

function about({scenario, environment, timing}) {
  const rounds = timing ? `${timing.rounds} rounds, ${timing.threads} thread${timing.threads === 1 ? "" : "s"}, verdicts on ${timing.clock === "cpu" ? "CPU" : "wall"} time` : "not timed";
  return `${environment.device_name} (${environment.device}), torch ${environment.torch}, ${rounds}, ${environment.started.replace("T", " ").replace("+00:00", " UTC")}. ${scenario.description || ""}`;
}

// source: runs() -> [{id, problem}], page(id), kernels(id, strategy); extra: more views, as in VIEWS.
export function mount(root, source, extra = []) {
  const views = [...VIEWS, ...extra];
  const body = h("div", {id: "view", role: "tabpanel", tabindex: -1});
  const head = h("header", {});
  const main = h("main", {class: "retainprof"}, head, body);
  let turn = 0;
  const state = makeState(() => show());
  function theme() {
    document.documentElement.dataset.theme = state.get("theme", source.theme ? source.theme() : "");
  }
  async function show() {
    turn += 1;
    const mine = turn;
    theme();
    const runs = source.runs();
    const run = state.get("run") || (runs.find(({problem}) => !problem) || runs[0] || {id: ""}).id;
    const now = views.some(([key]) => key === state.get("view")) ? state.get("view") : "answers";
    const next = THEMES[(THEMES.indexOf(state.get("theme")) + 1) % THEMES.length];
    const bar = (title, text) => keepFocus(head, () => replace(head, h("h1", {}, title), text ? h("p", {class: "quiet"}, text) : null,
      h("div", {class: "bar"}, tabs(views, now, state),
        runs.length > 1 ? select("Run", runs.map(({id, problem}) => [id, problem ? `${id} (cannot be shown)` : id]), run, (id) => state.set({run: id, strategy: "", a: "", b: "", node: "", against: ""})) : null,
        h("button", {type: "button", onclick: () => state.set({theme: next})}, `Colours: ${state.get("theme") || "as the system"}`))));
    try {
      const page = await source.page(run);
      if (mine !== turn) return;
      body.setAttribute("aria-labelledby", `tab-${now}`);
      bar(page.result.scenario.name || run, about(page.result));
      replace(body, views.find(([key]) => key === now)[2](page, state, source, run));
    } catch (error) {
      if (mine !== turn) return;
      bar("retainprof", "");
      body.setAttribute("aria-labelledby", `tab-${now}`);
      replace(body, h("p", {class: "notice", role: "alert"}, error.message));
    }
    document.body.dataset.shown = `${run}|${now}`;
  }
  replace(root, main);
  show();
  window.addEventListener("beforeprint", () => {
    source.page(state.get("run") || (source.runs()[0] || {id: ""}).id);
    if (!source.now) return;
    const page = source.now();
    const run = source.runs()[0].id;
    replace(body, VIEWS.map(([, title, view]) => h("section", {class: "printed"}, h("h2", {class: "view-title"}, title), view(page, state, source, run))));
  });
  window.addEventListener("afterprint", show);
  return {show};
}
