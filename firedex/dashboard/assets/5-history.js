/* How it came to be so: delay and success over a chosen time, configurations and their differences. */
"use strict";
(() => {
const { state, show, ask, put, make, cell, row, table, nothing, ink, colour, swatch } = firedex;
const { known, seconds, share, exactShare, clock, local, zone, lastTime, csv } = firedex;
const EVERY_MILLISECONDS = 10000, MOST_STEPS = 300, MOST_MARKS = 100, MOST_MOVES = 200;
const TICKS = { "1 ms": 0.001, "3 ms": 0.003, "10 ms": 0.01, "30 ms": 0.03, "0.1 s": 0.1, "0.3 s": 0.3, "1 s": 1, "3 s": 3, "10 s": 10, "30 s": 30, "100 s": 100 };
/* Success is drawn by what is lost, in powers of ten: 99.5 % and 99.9 % are far apart to who depends on them. */
const LOSSES = { "0 %": 1, "70 %": 0.3, "90 %": 0.1, "99 %": 0.01, "99.9 %": 0.001, "100 %": 0.0003 }, LEAST_LOSS = 0.0003;
const MOST_NAMED = 12, NAME_WIDTH = 0.07;
const COLUMNS = ["at", "seconds", "priority", "configuration_version", "delivered_events", "missing_events", "success_rate", "delay_mean_seconds", "delay_p95_seconds"];

show.history = async () => {
  const now = await firedex.overview(), length = state.period || 600;
  const wanted = JSON.stringify([length, state.until, now.version, document.documentElement.dataset.theme]);
  if (wanted === state.historyOf && firedex.elapsed(state.historyAt) < EVERY_MILLISECONDS) return;
  const here = new Date(now.now_seconds * 1000);  // by the service's clock, as all that was measured
  const until = lastTime(state.until, here);
  // While a moment is chosen, its window stays: what is looked at must not wander.
  const to = state.chosenMoment ? state.window.to : (until ?? here) / 1000, from = to - length;
  const [records, steps] = await Promise.all([ask("/v1/configurations?limit=1000"),
    ask(`/v1/history?from_seconds=${from.toFixed(0)}&to_seconds=${to.toFixed(0)}&most_steps=${MOST_STEPS}`)]);
  if (state.chosenMoment && state.window.to !== to) return;  // chosen while this was asked for
  Object.assign(state, { historyOf: wanted, historyAt: firedex.moment(), window: { from, to }, steps, moments: [...new Set(steps.map((step) => step.at))] });
  state.replay = replay(steps, records, from, to);
  put("until-note", { children: state.until && !until ? "Not a time: hours:minutes, as 14:02." : `${clock(from * 1000)} to ${clock(to * 1000)}, ${zone()} time` });
  const last = Math.max(state.moments.length - 1, 0);
  const index = state.chosenMoment ? nearest(state.moments, state.chosenMoment) : last;
  put("moment", { max: Math.max(last, 1), value: index });
  showMoment(index);
  document.querySelector("#page-history [role=slider]")?.setAttribute("aria-labelledby", "moment-label");  // Dash gives it no name
  firedex.fitTable("configurations", 420, ["planned_seconds", "pushed_seconds"]);
  const told = JSON.stringify(records);
  if (told !== state.told) { state.told = told; state.records = records; put("configurations", { rowData: records }); }
};
/* Where a moment is among others, or the one that is nearest to it. */
const nearest = (moments, at) => moments.reduce((best, each, n) =>
  (Math.abs(new Date(each) - new Date(at)) < Math.abs(new Date(moments[best]) - new Date(at)) ? n : best), 0);
const success = (step) => step.success_rate;
const lost = (step) => { const rate = success(step); return known(rate) ? Math.max(1 - rate, LEAST_LOSS) : null; };
const exactly = (rate) => (known(rate) ? `${(100 * rate).toFixed(2)} %` : "");
/* One line of a class; where nothing was measured for a while, it has a gap. */
function line(steps, of, words, more) {
  const x = [], y = [], text = [];
  steps.forEach((step, n) => {
    const before = steps[n - 1];
    if (before && new Date(step.at) - new Date(before.at) > 2500 * step.seconds) { x.push(local(step.at)); y.push(null); text.push(""); }
    x.push(local(step.at));
    y.push(of(step));
    text.push(words(step));
  });
  return { x, y, text, hovertemplate: "%{text}", mode: "lines+markers", marker: { size: 4 }, ...more };
}
function replay(steps, records, from, to) {
  const traces = [...new Set(steps.map((step) => step.priority))].sort((a, b) => a - b).flatMap((priority) => {
    const those = steps.filter((step) => step.priority === priority);
    const look = { name: `class ${priority}`, legendgroup: priority, line: { color: colour(priority) } };
    return [line(those, (step) => step.delay_p95_seconds, (step) => seconds(step.delay_p95_seconds), look),
      line(those, lost, (step) => exactly(success(step)), { ...look, showlegend: false, yaxis: "y2" })];
  });
  const axis = { gridcolor: ink("--line"), color: ink("--ink"), zeroline: false };
  const within = records.filter(({ in_force_at: at }) => at && new Date(at) / 1000 > from && new Date(at) / 1000 < to).slice(0, MOST_MARKS);
  const mark = ({ in_force_at: at }) => ({ type: "line", x0: local(at), x1: local(at), y0: 0, y1: 1, yref: "paper",
    line: { color: ink("--soft"), dash: "dot", width: 1 } });
  const part = ({ in_force_at: at }) => (new Date(at) / 1000 - from) / (to - from);
  // Between the two charts; where names would lie on each other, a mark that tells when it is pointed at.
  const name = (record, n) => ({ x: local(record.in_force_at), xref: "x", y: 0.47, yref: "paper", showarrow: false, font: { size: 12, color: ink("--soft") },
    xanchor: part(record) > 1 - NAME_WIDTH ? "right" : part(record) < NAME_WIDTH ? "left" : "center",
    text: within.length <= MOST_NAMED && (!n || Math.abs(part(record) - part(within[n - 1])) > NAME_WIDTH) ? `plan ${record.version}` : "▾",
    hovertext: `plan ${record.version}, ${clock(record.in_force_at)}: ${record.reason}` });
  return { data: traces, layout: {
    height: 400, margin: { l: 70, r: 10, t: 30, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink("--ink"), size: 14 }, legend: { orientation: "h", y: 1.12 }, uirevision: `${state.period} ${state.until}`, shapes: within.map(mark), annotations: within.map(name),
    xaxis: { ...axis, type: "date", anchor: "y2", range: [local(from * 1000), local(to * 1000)] },
    yaxis: { ...axis, domain: [0.52, 1], title: { text: "p95 delay" }, type: "log", tickvals: Object.values(TICKS), ticktext: Object.keys(TICKS) },
    yaxis2: { ...axis, domain: [0, 0.42], title: { text: "success" }, type: "log",
      range: [0, Math.log10(LEAST_LOSS) - 0.15], tickvals: Object.values(LOSSES), ticktext: Object.keys(LOSSES) } } };
}
/* The figure with the moment that the table is about. */
function marked({ data, layout }, at) {
  const line = { color: ink("--accent"), width: 2 };
  const mark = { type: "line", name: "moment", x0: local(at), x1: local(at), y0: 0, y1: 1, yref: "paper", line };
  return { data, layout: { ...layout, shapes: [...layout.shapes, ...(at ? [mark] : [])] } };
}
/* The last moment is followed; another one stays chosen, whatever comes after it. */
function chooseMoment(index) {
  const at = state.moments?.[index];
  if (!at || index === nearest(state.moments, state.chosenMoment ?? state.moments.at(-1))) return;  // as it was put here
  state.chosenMoment = index < state.moments.length - 1 ? at : null;
  showMoment(index);
}
function showMoment(index) {
  const at = state.moments?.[index];
  const told = state.chosenMoment ? ", chosen; the last one is followed" : "";
  put("moment-label", { children: at ? `Moment: ${clock(at)}${told}` : "Moment: nothing was measured in this time" });
  put("replay", { figure: marked(state.replay, at) });
  if (!at) { put("at-moment", { children: [] }); return; }
  put("at-moment", { children: table([["Class"], ["Plan"], ["Mean delay"], ["p95"], ["Success"], ["Events"]],
    state.steps.filter((step) => step.at === at).map((step) => row([make("Td", "", swatch(step.priority)), cell(step.configuration_version),
      cell(seconds(step.delay_mean_seconds)), cell(seconds(step.delay_p95_seconds)), cell(share(success(step))), cell(step.delivered_events)]))) });
}

/* Subscriptions that are served otherwise, those that move most first. */
const distance = (move) => 10 * Math.abs((move.priority_after ?? 99) - (move.priority_before ?? 99))
  + Math.abs((move.drop_rate_after ?? 1) - (move.drop_rate_before ?? 1));
const byDistance = (moves) => [...moves].sort((a, b) => distance(b) - distance(a));
const moveTable = (moves, before, after, most) => table(
  [["Filter"], ["Subscriber", "words"], [`Class ${before}`], [after], [`Dropped ${before}`], [after]],
  byDistance(moves).slice(0, most).map((move) => row([cell(move.filter), cell(move.subscriber, "words"),
    cell(move.priority_before ?? "–"), cell(move.priority_after ?? "–"), cell(exactShare(move.drop_rate_before)), cell(exactShare(move.drop_rate_after))])));
async function showDifference(record) {
  state.compared = record.version;
  if (!record.in_force_at) {
    const error = record.error ? `: ${record.error}` : "";
    put("difference", { children: make("P", record.state === "failed" ? "bad" : "", `Plan ${record.version} (${record.reason}) is ${record.state} and was never in force${error}.`) });
    return;
  }
  const before = Math.max(0, ...(state.records || []).filter((each) => each.version < record.version && each.in_force_at).map((each) => each.version));
  if (!before) { put("difference", { children: nothing(`Plan ${record.version} is the first: ${record.reason}.`) }); return; }
  const { flows, subscriptions: moves } = await ask(`/v1/configurations/${before}/difference/${record.version}`);
  if (state.compared !== record.version) return;  // another was chosen meanwhile
  const told = `From plan ${before} to plan ${record.version} (${record.reason}): ${flows.length} flows and ${moves.length} subscriptions differ.`;
  put("difference", { children: [make("P", "", told), moves.length ? moveTable(moves, "before", "after", MOST_MOVES) : ""] });
}
function exportHistory() {
  put("download", { data: { content: csv(COLUMNS, state.steps || []), filename: "firedex-history.csv", type: "text/csv", base64: false } });
}
async function openReport() {
  const answer = await ask("/v1/validation-report", { whole: true });
  const address = URL.createObjectURL(await answer.blob());
  window.open(address, "_blank", "noopener");
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
Object.assign(firedex, { chooseMoment, nearest, replay, showDifference, exportHistory, openReport, moveTable });
})();
