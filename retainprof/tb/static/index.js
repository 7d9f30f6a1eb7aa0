// What TensorBoard loads into the tab's frame.
import {mount} from "./app.js";
import {h, replace} from "./dom.js";
import {makeSource} from "./source.js";
import {traceView} from "./trace.js";

const POLL_MS = 5000;

export async function render() {
  document.documentElement.lang = "en";
  document.title = "retainprof";
  const style = h("link", {rel: "stylesheet", href: new URL("./style.css", import.meta.url).href});
  const styled = new Promise((done) => { style.onload = done; style.onerror = done; });
  document.head.append(style);
  const root = h("div", {id: "root"});
  document.body.append(root);
  const source = makeSource();
  let shown = null;
  async function look() {
    try {
      const changed = await source.refresh();
      await styled; // nothing moves once it is seen
      if (!source.runs().length) {
        replace(root, h("main", {class: "retainprof"}, h("h1", {}, "retainprof"), h("p", {role: "status"}, "No run below the log directory yet. Make one: retainprof scenario.yaml --out LOGDIR")));
        shown = null;
      } else if (!shown) shown = mount(root, source, [["trace", "Trace", traceView]]);
      else if (changed) shown.show();
    } catch (error) {
      if (!shown) replace(root, h("p", {role: "alert"}, `retainprof cannot list runs: ${error.message}`));
    }
  }
  await look();
  window.setInterval(look, POLL_MS);
}
