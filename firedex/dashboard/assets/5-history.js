/* Page History: delay and success over a selected period, configurations and their differences. */
"use strict";
(() => {
const { state, show, ask, put, make, cell, row, table, nothing, ink, colour, swatch } = firedex;
const { known, seconds, share, exactShare, clock, local, zone, lastTime, csv } = firedex;
const EVERY_MILLISECONDS = 10000, MOST_STEPS = 300, MOST_MARKS = 100, MOST_MOVES = 200;
const TICKS = { "1 ms": 0.001, "3 ms": 0.003, "10 ms": 0.01, "30 ms": 0.03, "0.1 s": 0.1, "0.3 s": 0.3, "1 s": 1, "3 s": 3, "10 s": 10, "30 s": 30, "100 s": 100 };
/* Success is drawn as loss on a logarithmic scale, so that 99.5 % and 99.9 % are easy to distinguish. */
const LOSSES = { "0 %": 1, "70 %": 0.3, "90 %": 0.1, "99 %": 0.01, "99.9 %": 0.001, "100 %": 0.0003 }, LEAST_LOSS = 0.0003;
const MOST_NAMED = 12, NAME_WIDTH = 0.07;
const COLUMNS = ["at", "seconds", "priority", "configuration_version", "delivered_events", "missing_events", "success_rate", "delay_mean_seconds", "delay_p95_seconds"];

show.history = async () => {
  const now = await firedex.overview(), length = state.period || 600;
  const inputs = JSON.stringify([length, state.until, now.version, document.documentElement.dataset.theme]);
  if (inputs === state.historyOf && firedex.elapsed(state.historyAt) < EVERY_MILLISECONDS) return;
  const here = new Date(now.now_seconds * 1000);  // by the clock of the service, like all measurements
  const until = lastTime(state.until, here);
  // While a moment is selected, the window does not move.
  const to = state.chosenMoment ? state.window.to : (until ?? here) / 1000, from = to - length;
  const [records, steps] = await Promise.all([ask("/v1/configurations?limit=1000"),
    ask(`/v1/history?from_seconds=${from.toFixed(0)}&to_seconds=${to.toFixed(0)}&most_steps=${MOST_STEPS}`)]);
  if (state.chosenMoment && state.window.to !== to) return;  // selected during the request
  Object.assign(state, { historyOf: inputs, historyAt: firedex.moment(), window: { from, to }, steps, moments: [...new Set(steps.map((step) => step.at))] });
  state.replay = replay(steps, records, from, to);
  put("until-note", { children: state.until && !until ? "Not a time. Enter hours:minutes, for example 14:02." : `${clock(from * 1000)} to ${clock(to * 1000)}, ${zone()} time` });
  const last = Math.max(state.moments.length - 1, 0);
  const index = state.chosenMoment ? nearest(state.moments, state.chosenMoment) : last;
  put("moment", { max: Math.max(last, 1), value: index });
  showMoment(index);
  document.querySelector("#page-history [role=slider]")?.setAttribute("aria-labelledby", "moment-label");  // Dash does not set an accessible name
  firedex.fitTable("configurations", 420, ["planned_seconds", "pushed_seconds"]);
  const content = JSON.stringify(records);
  if (content !== state.recordsShown) { state.recordsShown = content; state.records = records; put("configurations", { rowData: records }); }
};
/* Return the index of the moment that is nearest to `at`. */
const nearest = (moments, at) => moments.reduce((best, each, n) =>
  (Math.abs(new Date(each) - new Date(at)) < Math.abs(new Date(moments[best]) - new Date(at)) ? n : best), 0);
const success = (step) => step.success_rate;
const lost = (step) => { const rate = success(step); return known(rate) ? Math.max(1 - rate, LEAST_LOSS) : null; };
const exactly = (rate) => (known(rate) ? `${(100 * rate).toFixed(2)} %` : "");
/* Return the line of a class, with gaps where measurements are missing. */
function line(steps, valueOf, words, more) {
  const x = [], y = [], text = [];
  steps.forEach((step, n) => {
    const before = steps[n - 1];
    if (before && new Date(step.at) - new Date(before.at) > 2500 * step.seconds) { x.push(local(step.at)); y.push(null); text.push(""); }
    x.push(local(step.at));
    y.push(valueOf(step));
    text.push(words(step));
  });
  return { x, y, text, hovertemplate: "%{text}", mode: "lines+markers", marker: { size: 4 }, ...more };
}
function replay(steps, records, from, to) {
  const traces = [...new Set(steps.map((step) => step.priority))].sort((a, b) => a - b).flatMap((priority) => {
    const ofClass = steps.filter((step) => step.priority === priority);
    const look = { name: `class ${priority}`, legendgroup: priority, line: { color: colour(priority) } };
    return [line(ofClass, (step) => step.delay_p95_seconds, (step) => seconds(step.delay_p95_seconds), look),
      line(ofClass, lost, (step) => exactly(success(step)), { ...look, showlegend: false, yaxis: "y2" })];
  });
  const axis = { gridcolor: ink("--line"), color: ink("--ink"), zeroline: false };
  const within = records.filter(({ activated_at: at }) => at && new Date(at) / 1000 > from && new Date(at) / 1000 < to).slice(0, MOST_MARKS);
  const mark = ({ activated_at: at }) => ({ type: "line", x0: local(at), x1: local(at), y0: 0, y1: 1, yref: "paper",
    line: { color: ink("--soft"), dash: "dot", width: 1 } });
  const part = ({ activated_at: at }) => (new Date(at) / 1000 - from) / (to - from);
  // Version numbers between the two charts; if they would overlap, a mark with a tooltip instead.
  const name = (record, n) => ({ x: local(record.activated_at), xref: "x", y: 0.47, yref: "paper", showarrow: false, font: { size: 12, color: ink("--soft") },
    xanchor: part(record) > 1 - NAME_WIDTH ? "right" : part(record) < NAME_WIDTH ? "left" : "center",
    text: within.length <= MOST_NAMED && (!n || Math.abs(part(record) - part(within[n - 1])) > NAME_WIDTH) ? `${record.version}` : "▾",
    hovertext: `configuration ${record.version}, ${clock(record.activated_at)}: ${record.reason}` });
  return { data: traces, layout: {
    height: 400, margin: { l: 70, r: 10, t: 30, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink("--ink"), size: 14 }, legend: { orientation: "h", y: 1.12 }, uirevision: `${state.period} ${state.until}`, shapes: within.map(mark), annotations: within.map(name),
    xaxis: { ...axis, type: "date", anchor: "y2", range: [local(from * 1000), local(to * 1000)] },
    yaxis: { ...axis, domain: [0.52, 1], title: { text: "p95 delay" }, type: "log", tickvals: Object.values(TICKS), ticktext: Object.keys(TICKS) },
    yaxis2: { ...axis, domain: [0, 0.42], title: { text: "success" }, type: "log",
      range: [0, Math.log10(LEAST_LOSS) - 0.15], tickvals: Object.values(LOSSES), ticktext: Object.keys(LOSSES) } } };
}
/* Return the figure with a line at the moment of the table. */
function marked({ data, layout }, at) {
  const line = { color: ink("--accent"), width: 2 };
  const mark = { type: "line", name: "moment", x0: local(at), x1: local(at), y0: 0, y1: 1, yref: "paper", line };
  return { data, layout: { ...layout, shapes: [...layout.shapes, ...(at ? [mark] : [])] } };
}
/* The last moment follows new data; any other moment stays selected. */
function chooseMoment(index) {
  const at = state.moments?.[index];
  if (!at || index === nearest(state.moments, state.chosenMoment ?? state.moments.at(-1))) return;  // set by this script, not by the visitor
  state.chosenMoment = index < state.moments.length - 1 ? at : null;
  showMoment(index);
}
function showMoment(index) {
  const at = state.moments?.[index];
  const note = state.chosenMoment ? ", selected; move the slider to the end to follow new data" : "";
  put("moment-label", { children: at ? `Time: ${clock(at)}${note}` : "There are no measurements in this period." });
  put("replay", { figure: marked(state.replay, at) });
  if (!at) { put("at-moment", { children: [] }); return; }
  put("at-moment", { children: table([["Class"], ["Configuration"], ["Mean delay"], ["p95"], ["Success"], ["Events"]],
    state.steps.filter((step) => step.at === at).map((step) => row([make("Td", "", swatch(step.priority)), cell(step.configuration_version),
      cell(seconds(step.delay_mean_seconds)), cell(seconds(step.delay_p95_seconds)), cell(share(success(step))), cell(step.delivered_events)]))) });
}

/* Subscriptions whose class or drop rate differs, the largest differences first. */
const distance = (move) => 10 * Math.abs((move.priority_after ?? 99) - (move.priority_before ?? 99))
  + Math.abs((move.drop_rate_after ?? 1) - (move.drop_rate_before ?? 1));
const byDistance = (moves) => [...moves].sort((a, b) => distance(b) - distance(a));
const moveTable = (moves, before, after, most) => table(
  [["Filter"], ["Subscriber", "words"], [`Class ${before}`], [after], [`Drop rate ${before}`], [after]],
  byDistance(moves).slice(0, most).map((move) => row([cell(move.filter), cell(move.subscriber, "words"),
    cell(move.priority_before ?? "–"), cell(move.priority_after ?? "–"), cell(exactShare(move.drop_rate_before)), cell(exactShare(move.drop_rate_after))])));
async function showDifference(record) {
  state.compared = record.version;
  if (!record.activated_at) {
    const error = record.error ? `: ${record.error}` : "";
    put("difference", { children: make("P", record.state === "failed" ? "bad" : "", `Configuration ${record.version} (${record.reason}) is ${record.state} and was never active${error}.`) });
    return;
  }
  const before = Math.max(0, ...(state.records || []).filter((each) => each.version < record.version && each.activated_at).map((each) => each.version));
  if (!before) { put("difference", { children: nothing(`Configuration ${record.version} is the first one: ${record.reason}.`) }); return; }
  const { flows, subscriptions: moves } = await ask(`/v1/configurations/${before}/difference/${record.version}`);
  if (state.compared !== record.version) return;  // another one was selected meanwhile
  const summary = `From configuration ${before} to ${record.version} (${record.reason}): ${flows.length} flows and ${moves.length} subscriptions differ.`;
  put("difference", { children: [make("P", "", summary), moves.length ? moveTable(moves, "before", "after", MOST_MOVES) : ""] });
}
function exportHistory() {
  put("download", { data: { content: csv(COLUMNS, state.steps || []), filename: "firedex-history.csv", type: "text/csv", base64: false } });
}
async function openReport() {
  const response = await ask("/v1/validation-report", { whole: true });
  const address = URL.createObjectURL(await response.blob());
  window.open(address, "_blank", "noopener");
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
Object.assign(firedex, { chooseMoment, nearest, replay, showDifference, exportHistory, openReport, moveTable });
})();
