/* The first page: what is getting through, and what is not. */
"use strict";
(() => {
const { state, show, ask, put, make, cell, row, table, nothing, swatch, linkRow } = firedex;
const { known, seconds, share, clock } = firedex;
const MOST_CHIPS = 12, MOSTLY = 0.5;
const ALL_CLEAR = "Nothing to say: all parts are well, what was predicted arrives, all deadlines are met.";

const isOpen = (incident) => Boolean(incident && !incident.closed_at);
const window_ = (now) => seconds(now.measured_within_seconds);
async function overview() {
  const now = (state.overview = await ask("/v1/overview"));
  const incident = isOpen(now.incident) ? `${now.incident.title}: ${now.incident.phase}` : "no incident";
  put("site", { children: `FireDeX ${now.name}` });
  put("incident", { children: incident });
  firedex.seen(now);
  return now;
}
const figure = (title, value, under, className, id) => make("Div", "figure", [
  make("Small", "", title), make("B", className, value, { id }), make("Small", "", under.replaceAll(" %", "\u00a0%"))]);
/* While less than half is measured there is no figure: what is predicted is only said below. */
const mostly = (part) => Boolean(part) && part.measured_subscriptions >= MOSTLY * part.subscriptions;
function worth(measured, predicted, utility) {
  if (!known(measured)) return ["–", `nothing measured lately; predicted ${share(predicted)}`, "soft"];
  const part = `of ${utility.measured_subscriptions} of ${utility.subscriptions} subscriptions`;
  if (!mostly(utility)) return ["–", `measured ${share(measured)} ${part}; predicted ${share(predicted)}`, "soft"];
  return [share(measured), `measured ${part}; predicted ${share(predicted)}`, ""];
}
function missed(late, deadlines) {
  const { subscriptions: all, measured_subscriptions: of } = deadlines || { subscriptions: 0, measured_subscriptions: 0 };
  if (!all) return [late, "no subscription has a deadline", late ? "bad" : ""];
  const under = `of ${all} with a deadline, ${of} measured`;
  if (late) return [late, under, "bad"];
  return mostly(deadlines) ? [0, under, of === all ? "good" : ""] : ["–", under, "soft"];
}
function figures(now) {
  const { incident, utility } = now, open = isOpen(incident);
  const shown = (title, [value, under, className], id) => figure(title, value, under, className, id);
  return [
    figure("Incident", open ? incident.phase : "none",
      open ? `${incident.title}, since ${clock(incident.phase_since)}` : "utilities are the subscribers' own", "words", "phase-now"),
    shown("Utility achieved", worth(utility?.measured, utility?.predicted, utility), "utility-achieved"),
    shown("Utility in time", worth(utility?.measured_timely, utility?.predicted_timely, utility), "utility-timely"),
    shown("Miss their deadline", missed(now.late_in_all, now.deadlines), "late-count"),
  ];
}
/* Said with the time of the one who reads it. */
const said = (text, since) => (since ? `${text} since ${clock(since)}` : text);
const alerts = (now) => (now.alerts.length
  ? make("Ul", "alerts", now.alerts.map((alert) => make("Li", alert.severity, said(alert.text, alert.since))))
  : make("P", "good", ALL_CLEAR));
/* Read aloud when it changes; the alerts themselves hold figures that change all the time. */
const summary = ({ alerts: all }) => ["urgent", "warning", "note"].map((kind) => [kind, all.filter((each) => each.severity === kind).length])
  .filter(([, count]) => count).map(([kind, count]) => `${count} ${kind}${kind === "urgent" || count === 1 ? "" : "s"}`).join(", ");
const lateOnes = (now) => (now.late.length ? [lateTable(now),
  now.late.length < now.late_in_all ? nothing(`The ${now.late.length} that are worth most, of ${now.late_in_all}.`) : ""] : nothing("None."));
const lateBy = ({ late_by_seconds: by, predicted }) => (!known(by) ? "never comes"
  : [predicted ? "predicted" : "", by || !predicted ? seconds(by) : ""].join(" ").trim());
const lateTable = (now) => table(
  [["Filter", "words"], ["Subscriber", "words"], ["Late by"], ["Deadline"], ["p95 measured"], ["predicted"], ["Class"], ["Why", "words"]],
  now.late.map((one) => row([
    cell(one.filter, "words"), cell(one.subscriber, "words"),
    cell(lateBy(one), "late"),
    cell(seconds(one.deadline_seconds)), cell(seconds(one.delay_p95_seconds)),
    cell(seconds(one.predicted_delay_seconds)), cell(one.priority),
    cell(said(one.reason || "", one.reason_since), "words")])));
const classes = (now) => (now.classes.length ? table(
  [["Class"], ["Subscriptions"], ["Mean delay"], ["predicted"], ["p95"], ["predicted"], ["Success"], ["predicted"]],
  now.classes.map((each) => row([
    make("Td", "", swatch(each.priority)), cell(each.subscriptions),
    cell(seconds(each.delay_mean_seconds), "measured"), cell(seconds(each.predicted_delay_mean_seconds), "soft"),
    cell(seconds(each.delay_p95_seconds), "measured-p95"), cell(seconds(each.predicted_delay_p95_seconds), "soft predicted-p95"),
    cell(share(each.success_rate), "measured-success"), cell(share(each.predicted_success_rate), "soft"),
  ], { "data-class": each.priority }))) : nothing("Nobody has subscribed yet."));

const ofPart = (part) => part.detail || (part.state === "stale" ? `silent for ${seconds(part.seconds_ago)}`
  : part.state === "unknown" ? "never heard of" : part.state);
function health(parts) {
  return ["broker", "gateway", "controller", "switch", "client"].map((kind) => {
    const those = parts.filter((part) => part.kind === kind);
    const ill = those.filter((part) => part.state !== "well");
    const shown = those.length <= MOST_CHIPS ? those
      : [...ill, ...those.filter((part) => part.state === "well")].slice(0, MOST_CHIPS);
    const chips = shown.map((part) => make("Span", `chip ${part.state}`, `${part.part}: ${ofPart(part)}`,
      { "data-part": part.part, "data-state": part.state }));
    if (shown.length < those.length) chips.push(make("Span", "chip", `${those.length - shown.length} more`));
    return make("Div", "chips", [make("Span", "soft", `${kind}${those.length ? "" : ": none known"}`), ...chips]);
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
  put("late", { children: lateOnes(now) });
  put("classes-note", { children: `Measured: what clients reported within the last ${window_(now)} under plan ${now.version}.` });
  put("classes", { children: classes(now) });
  put("links", { children: now.links.length ? now.links.map(linkRow) : nothing("No link carries anything yet.") });
  put("parts", { children: health(now.parts) });
  if (state.painted) return;
  state.painted = true;
  requestAnimationFrame(() => performance.mark("firedex-first-useful-paint"));
};
Object.assign(firedex, { overview, isOpen, worth, missed });
})();
