/* Actions of the user: the functions that the callbacks in `application.py` name. */
"use strict";
(() => {
const { state, put, known, attempt, refresh, refusal } = firedex;
const dash = (window.dash_clientside = window.dash_clientside || {});  // Dash creates it after these scripts

// -- light and dark -------------------------------------------------------------------------------
const system = window.matchMedia("(prefers-color-scheme: dark)");
function theme() {
  const name = localStorage.getItem("firedex-theme") || (system.matches ? "dark" : "light");
  document.documentElement.dataset.theme = document.documentElement.dataset.agThemeMode = name;
  if (state.page) { put("theme", { children: name === "dark" ? "Light" : "Dark" }); refresh(); }
}
theme();
system.addEventListener("change", theme);

// -- actions ----------------------------------------------------------------------------------------
const act = (work) => (...given) => {
  if (given.some(known)) work(...given);
  return window.dash_clientside.no_update;
};
const SHAPES = { capped: "Enough: the success rate above which the utility does not grow (above 0, at most 1)",
  power: "Exponent (above 0, at most 1)", "piecewise-linear": "Points as success:value (0:0, 0.5:0.8, 1:1)" };
function showShape(kind) {
  put("shape-field", { hidden: !SHAPES[kind] });
  put("shape-label", { children: SHAPES[kind] || "" });
}
const inputs = (kind, weight, shape, deadline, phase, title) => ({ kind, weight, shape, deadline, phase, title });
const clicked = () => window.dash_clientside.callback_context.triggered[0]?.prop_id.split(".")[0];
function choose(chosen) {
  if (!chosen || (state.chosen && firedex.idOf(chosen) === firedex.idOf(state.chosen))) return;  // keep the input of the visitor
  state.chosen = chosen;
  put("chosen", { children: `${chosen.filter} of ${chosen.subscriber}` });
  put("kind", { value: chosen.utility.kind });
  put("weight", { value: String(chosen.utility.weight) });
  put("shape", { value: String(firedex.shapeOf(chosen.utility)) });
  put("deadline", { value: String(chosen.deadline_seconds ?? "") });
  showShape(chosen.utility.kind);
}
/* Clear the form and the selection. */
firedex.chooseNone = () => {
  state.chosen = null;
  put("chosen", { children: "Select one in the table." });
  for (const each of ["weight", "shape", "deadline"]) put(each, { value: "" });
  window.dash_ag_grid.getApiAsync("subscriptions").then((grid) => grid.deselectAll());
};
dash.firedex = {
  go: (pathname, search, later) => {
    const page = (pathname || "").replace(/\/+$/, "").split("/").pop();
    state.watched = new URLSearchParams(search || "").get("subscriber");
    refusal("");
    firedex.done("");
    firedex.visit(page, later);
    theme();
    return window.dash_clientside.no_update;
  },
  signIn: act((_clicks, _submits, value) => {
    if (!value) return;
    sessionStorage.setItem("firedex-token", value.trim());
    firedex.start();
  }),
  signOut: act(() => { firedex.leave(); window.location.assign("/dashboard/"); }),
  switchTheme: act(() => {
    localStorage.setItem("firedex-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    theme();
  }),
  chooseSubscription: act((rows) => choose(rows[0])),
  edit: act((...given) => { showShape(given[0]); firedex.edited(inputs(...given)); }),
  previewSubscription: act((_change, _removal, ...given) => {
    const button = clicked();
    if (button) attempt(() => firedex.previewSubscription(button === "preview-removal", inputs(...given)));
  }),
  previewPhase: act((clicks, ...given) => { if (clicks) attempt(() => firedex.previewPhase(inputs(...given))); }),
  apply: act((clicks, ...given) => { if (clicks) attempt(() => firedex.apply(inputs(...given))); }),
  discard: act(firedex.discard),
  findSubscriptions: act((text) => put("subscriptions", { dashGridOptions: { quickFilterText: text } })),
  exportSubscriptions: act(() => attempt(firedex.exportSubscriptions)),
  chooseNode: act((data) => { if (data.kind === "switch") { state.switch = data.name; attempt(firedex.showSwitch); } }),
  chooseSwitch: act((rows) => { if (rows[0]) { state.switch = rows[0].id; attempt(firedex.showSwitch); } }),
  chooseConfiguration: act((rows) => { if (rows[0]) attempt(() => firedex.showDifference(rows[0])); }),
  choosePeriod: act((period, until) => { Object.assign(state, { period, until, chosenMoment: null }); refresh(); }),
  chooseMoment: act((index) => firedex.chooseMoment(index)),
  exportHistory: act(firedex.exportHistory),
  openReport: act(() => attempt(firedex.openReport)),
};
})();
