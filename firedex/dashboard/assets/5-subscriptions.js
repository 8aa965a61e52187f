/* Page Subscriptions: each subscription with measurements and predictions; only changed rows are updated. */
"use strict";
(() => {
const { state, show, staff, ask, put, make, known, seconds, csv, refusal } = firedex;
const MEASURED_WITHIN_SECONDS = 30;  // for visitors who cannot read the overview, which contains this value
const COLUMNS = ["late", "priority", "filter", "subscriber", "utility_words", "weight", "deadline_seconds", "delay_p95_seconds",
  "predicted_delay_p95_seconds", "success_rate", "predicted_success_rate"];
const WIDE_ONLY = ["utility_words", "weight", "predicted_success_rate"];

/* The same rule as on the first page: the measured 95th percentile decides, if it is conclusive for the
   percentile of the deadline; otherwise a subscription is late if it is silent or predicted to be late. */
const REPORTED_PERCENTILE = 0.95;
function isLate(each) {
  const { deadline_seconds: deadline, deadline_percentile: percentile = REPORTED_PERCENTILE, delay_p95_seconds: p95 } = each;
  if (!known(deadline)) return false;
  if (known(p95) && p95 > deadline && percentile >= REPORTED_PERCENTILE) return true;
  if (known(p95) && p95 <= deadline && percentile <= REPORTED_PERCENTILE) return false;
  return Boolean(each.silent) || each.deadline_met === false;
}
const keyOf = (each) => `${each.subscriber} ${each.flow}`;
const nameOf = (each) => `${each.subscriber} ${each.filter}`;
const shapeOf = (utility) => utility.enough ?? utility.exponent
  ?? (utility.points || []).map(([success, value]) => `${success}:${value}`).join(", ");
function utilityWords(utility) {
  const shape = utility.kind === "piecewise-linear" ? `${utility.points.length} points` : shapeOf(utility);
  return `${utility.kind}${shape === "" ? "" : ` ${shape}`}`;
}
const prepared = (each) => ({ ...each, weight: each.utility.weight, utility_words: utilityWords(each.utility) });
const inOrder = (a, b) => (a.priority ?? 99) - (b.priority ?? 99) || a.filter.localeCompare(b.filter) || a.subscriber.localeCompare(b.subscriber);

const NO_ROWS = [];
async function rowsNow() {
  const query = state.watched ? `?subscriber=${encodeURIComponent(state.watched)}` : "", wasUnknown = state.fetched === NO_ROWS;
  let response;
  try {
    response = await ask(`/v1/subscriptions${query}`, { whole: true, more: state.tag ? { "If-None-Match": state.tag } : {} });
  } catch (error) {
    if (!query || error.status !== 404) throw error;
    refusal(`There is no subscriber “${state.watched}”. It is shown here as soon as it registers.`);
    return Object.assign(state, { fetched: NO_ROWS, tag: null }).fetched;
  }
  if (wasUnknown) refusal("");
  if (response.status !== 304) {
    state.fetched = (await response.json()).map(prepared).sort(inOrder);
    state.tag = response.headers.get("ETag");
  }
  return state.fetched;  // kept in the state, because the next request may fail
}
/* Return measurements under the active configuration, within the same time window as on the first page. */
async function measuredNow() {
  const within = state.overview?.measured_within_seconds ?? MEASURED_WITHIN_SECONDS;
  const found = await ask(`/v1/deviations?within_seconds=${within}${state.watched ? `&subscriber=${encodeURIComponent(state.watched)}` : ""}`);
  put("subscriptions-note", { children: `Measured values come from client reports within the last ${seconds(within)} under the active configuration. They apply to the whole flow that carries a subscription.` });
  const offline = new Set((state.overview?.parts || []).filter((part) => part.kind === "client" && part.state === "stale").map((part) => part.part));
  return Object.fromEntries(found.filter((each) => each.comparable && !offline.has(each.subscriber)).map((each) => [keyOf(each), each]));
}
show.subscriptions = async () => {
  if (staff()) await firedex.overview();
  const rows = await rowsNow(), measured = rows === NO_ROWS ? {} : await measuredNow();
  const changed = [], silentSubscriptions = new Set((state.overview?.silent || []).filter((each) => !each.topics.length).map(nameOf));
  for (const each of rows) {
    const seen = measured[keyOf(each)], silent = silentSubscriptions.has(nameOf(each));
    const p95 = silent ? null : seen?.delay_p95_seconds ?? null, success = silent ? 0 : seen?.success_rate ?? null;
    if (each.delay_p95_seconds === p95 && each.success_rate === success && each.silent === silent && known(each.late_rank)) continue;
    Object.assign(each, { delay_p95_seconds: p95, success_rate: success, silent });
    each.late_rank = +isLate(each);
    changed.push(each);
  }
  if (rows !== state.rows) { state.rows = rows; put("subscriptions", { rowData: rows.map((each) => ({ ...each })) }); }
  else if (changed.length) put("subscriptions", { rowTransaction: { update: changed.map((each) => ({ ...each })), async: true } });
  firedex.fitTable("subscriptions", 480, WIDE_ONLY);
  put("phase-form", { hidden: state.visitor.role !== "command" });
  if (staff()) await phases();
};
async function phases() {
  const profiles = await ask("/v1/profiles");
  state.profiles = profiles.map((each) => each.phase);
  put("known-phases", { children: state.profiles.map((phase) => make("Option", "", "", { value: phase })) });
  const { incident } = state.overview, open = firedex.isOpen(incident);
  put("phases", { children: (open ? `Now: ${incident.phase}. ` : "No incident is open: applying opens one. ")
    + (profiles.length ? `Phases with a profile: ${state.profiles.join(", ")}.` : "No phase has a profile yet.") });
  put("opening", { hidden: open });
}
/* Export the rows as the table shows them: filtered and sorted. */
async function exportSubscriptions() {
  const grid = await window.dash_ag_grid.getApiAsync("subscriptions"), rows = [];
  grid.forEachNodeAfterFilterAndSort((node) => rows.push({ ...node.data, late: node.data.late_rank ? "late" : "" }));
  put("download", { data: { content: csv(COLUMNS, rows), filename: "firedex-subscriptions.csv", type: "text/csv", base64: false } });
}
Object.assign(firedex, { exportSubscriptions, isLate, shapeOf, utilityWords });
})();
