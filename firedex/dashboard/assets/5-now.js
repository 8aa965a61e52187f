/* The state of the site in one sentence. Pure. */
"use strict";
(() => {
const { clock } = firedex;
const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

/* Return the style and the sentence. The worst problem comes first; missing data is never shown as good. */
function verdict({ version, late_in_all: late, alerts }) {
  const countOf = (severity) => alerts.filter((alert) => alert.severity === severity).length;
  const [urgent, warnings, notes] = ["urgent", "warning", "note"].map(countOf);
  if (late) return ["bad", count(late, "subscription misses its deadline", "subscriptions miss their deadline")];
  if (urgent) return ["bad", count(urgent, "urgent alert", "urgent alerts")];
  if (warnings) return ["warn", count(warnings, "warning", "warnings")];
  if (!version) return ["unknown", "Unknown: no configuration is active"];
  if (notes) return ["unknown", `Some data is missing: ${count(notes, "note", "notes")}`];
  return ["good", "All is well"];
}
function plan({ version, pending_changes: pending, active_since: since }) {
  const name = version ? `Configuration ${version}` : "No configuration", to = pending ? `, ${count(pending, "change", "changes")} pending` : "";
  return `${name}${since ? ` active since ${clock(since)}` : " active"}${to}`;
}
Object.assign(firedex, { verdict, plan });
})();

/* Page Now: alerts, figures, missed deadlines, classes, links and health. */
(() => {
const { state, show, ask, put, make, cell, row, table, nothing, swatch, linkRow } = firedex;
const { known, seconds, share, clock } = firedex;
const MOST_CHIPS = 12, MOSTLY = 0.5;
const ALL_CLEAR = "No alerts: all components are healthy, deliveries match the prediction, all deadlines are met.";

const isOpen = (incident) => Boolean(incident && !incident.closed_at);
const window_ = (now) => seconds(now.measured_within_seconds);
async function overview() {
  const now = (state.overview = await ask("/v1/overview"));
  const incident = isOpen(now.incident) ? `${now.incident.title}: ${now.incident.phase}` : "no incident";
  put("site", { children: `FireDeX ${now.name}` });
  put("incident", { children: incident });
  firedex.checkProposal(now);
  return now;
}
const figure = (title, value, under, className, id) => make("Div", "figure", [
  make("Small", "", title), make("B", className, value, { id }), make("Small", "", under.replaceAll(" %", "\u00a0%"))]);
/* If less than half of the subscriptions are measured, no value is shown, only the text below it. */
const mostly = (part) => Boolean(part) && part.measured_subscriptions >= MOSTLY * part.subscriptions;
function utilityFigure(measured, predicted, utility) {
  if (!known(measured)) return ["–", `no recent measurements; predicted ${share(predicted)}`, "soft"];
  const part = `for ${utility.measured_subscriptions} of ${utility.subscriptions} subscriptions`;
  if (!mostly(utility)) return ["–", `measured ${share(measured)} ${part}; predicted ${share(predicted)}`, "soft"];
  return [share(measured), `measured ${part}; predicted ${share(predicted)}`, ""];
}
function missedFigure(late, deadlines) {
  const { subscriptions: all, measured_subscriptions: measured } = deadlines || { subscriptions: 0, measured_subscriptions: 0 };
  if (!all) return [late, "no subscription has a deadline", late ? "bad" : ""];
  const under = `of ${all} with a deadline, ${measured} measured`;
  if (late) return [late, under, "bad"];
  return mostly(deadlines) ? [0, under, measured === all ? "good" : ""] : ["–", under, "soft"];
}
function figures(now) {
  const { incident, utility } = now, open = isOpen(incident);
  const shown = (title, [value, under, className], id) => figure(title, value, under, className, id);
  return [
    figure("Incident", open ? incident.phase : "none",
      open ? `${incident.title}, since ${clock(incident.phase_since)}` : "the subscribers' own utilities apply", "words", "phase-now"),
    shown("Utility achieved", utilityFigure(utility?.measured, utility?.predicted, utility), "utility-achieved"),
    shown("Utility with deadlines met", utilityFigure(utility?.measured_timely, utility?.predicted_timely, utility), "utility-timely"),
    shown("Missed deadlines", missedFigure(now.late_in_all, now.deadlines), "late-count"),
  ];
}
/* Add the time in the time zone of the viewer. */
const withTime = (text, since) => (since ? `${text} since ${clock(since)}` : text);
const alerts = (now) => (now.alerts.length
  ? make("Ul", "alerts", now.alerts.map((alert) => make("Li", alert.severity, withTime(alert.text, alert.since))))
  : make("P", "good", ALL_CLEAR));
/* A summary for screen readers, read when it changes; the alerts contain numbers that change every second. */
const summary = ({ alerts: all }) => ["urgent", "warning", "note"].map((kind) => [kind, all.filter((each) => each.severity === kind).length])
  .filter(([, count]) => count).map(([kind, count]) => `${count} ${kind}${kind === "urgent" || count === 1 ? "" : "s"}`).join(", ");
const lateSection = (now) => (now.late.length ? [lateTable(now),
  now.late.length < now.late_in_all ? nothing(`The ${now.late.length} with the highest utility, of ${now.late_in_all}.`) : ""] : nothing("None."));
const lateBy = ({ late_by_seconds: by, predicted }) => (!known(by) ? "not delivered"
  : [predicted ? "predicted" : "", by || !predicted ? seconds(by) : ""].join(" ").trim());
const lateTable = (now) => table(
  [["Filter", "words"], ["Subscriber", "words"], ["Late by"], ["Deadline"], ["p95 measured"], ["predicted"], ["Class"], ["Why", "words"]],
  now.late.map((one) => row([
    cell(one.filter, "words"), cell(one.subscriber, "words"),
    cell(lateBy(one), "late"),
    cell(seconds(one.deadline_seconds)), cell(seconds(one.delay_p95_seconds)),
    cell(seconds(one.predicted_delay_seconds)), cell(one.priority),
    cell(withTime(one.reason || "", one.reason_since), "words")])));
const classes = (now) => (now.classes.length ? table(
  [["Class"], ["Subscriptions"], ["Mean delay"], ["predicted"], ["p95"], ["predicted"], ["Success"], ["predicted"]],
  now.classes.map((each) => row([
    make("Td", "", swatch(each.priority)), cell(each.subscriptions),
    cell(seconds(each.delay_mean_seconds), "measured"), cell(seconds(each.predicted_delay_mean_seconds), "soft"),
    cell(seconds(each.delay_p95_seconds), "measured-p95"), cell(seconds(each.predicted_delay_p95_seconds), "soft predicted-p95"),
    cell(share(each.success_rate), "measured-success"), cell(share(each.predicted_success_rate), "soft"),
  ], { "data-class": each.priority }))) : nothing("There are no subscriptions yet."));

const partText = (part) => part.detail || (part.state === "stale" ? `no heartbeat for ${seconds(part.seconds_ago)}`
  : part.state === "unknown" ? "no heartbeat yet" : part.state);
function health(parts) {
  return ["broker", "gateway", "controller", "switch", "client"].map((kind) => {
    const ofKind = parts.filter((part) => part.kind === kind);
    const unhealthy = ofKind.filter((part) => part.state !== "healthy");
    const shown = ofKind.length <= MOST_CHIPS ? ofKind
      : [...unhealthy, ...ofKind.filter((part) => part.state === "healthy")].slice(0, MOST_CHIPS);
    const chips = shown.map((part) => make("Span", `chip ${part.state}`, `${part.part}: ${partText(part)}`,
      { "data-part": part.part, "data-state": part.state }));
    if (shown.length < ofKind.length) chips.push(make("Span", "chip", `${ofKind.length - shown.length} more`));
    return make("Div", "chips", [make("Span", "soft", `${kind}${ofKind.length ? "" : ": none known"}`), ...chips]);
  });
}

show.now = async () => {
  const now = await overview();
  const [look, words] = firedex.verdict(now);
  put("verdict", { children: words, className: `verdict ${look}` });
  put("plan", { children: firedex.plan(now) });
  put("figures", { children: figures(now) });
  put("alerts", { children: alerts(now) });
  put("alerts-said", { children: summary(now) });
  put("late", { children: lateSection(now) });
  put("classes-note", { children: `Measured values come from client reports within the last ${window_(now)} under configuration ${now.version}.` });
  put("classes", { children: classes(now) });
  put("links", { children: now.links.length ? now.links.map(linkRow) : nothing("No link carries traffic yet.") });
  put("parts", { children: health(now.parts) });
  if (state.painted) return;
  state.painted = true;
  requestAnimationFrame(() => performance.mark("firedex-first-useful-paint"));
};
Object.assign(firedex, { overview, isOpen, utilityFigure, missedFigure });
})();
