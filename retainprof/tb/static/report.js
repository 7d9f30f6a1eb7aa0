// The offline report: its two documents lie in the page itself.
import {mount} from "./app.js";

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const page = read("page");
let tables = null;

mount(document.getElementById("root"), {
  runs: () => [{id: "this run", problem: ""}],
  page: async () => page,
  now: () => page,
  kernels: async (run, strategy) => {
    tables = tables || read("kernels");
    return tables[strategy] || {names: [], shapes: [], calls: []};
  },
});
