/* The site in one sentence, for whoever has two seconds. Pure. */
"use strict";
(() => {
const { clock } = firedex;
const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

/* Its colour and its words: what is worst comes first, and what is not known is not well. */
function verdict({ version, late_in_all: late, alerts }) {
  const of = (severity) => alerts.filter((alert) => alert.severity === severity).length;
  const [urgent, warnings, notes] = ["urgent", "warning", "note"].map(of);
  if (late) return ["bad", count(late, "subscription misses its deadline", "subscriptions miss their deadline")];
  if (urgent) return ["bad", count(urgent, "urgent alert", "urgent alerts")];
  if (warnings) return ["warn", count(warnings, "warning", "warnings")];
  if (!version) return ["unknown", "Not known: no plan is in force"];
  if (notes) return ["unknown", `Not all is known: ${count(notes, "note", "notes")}`];
  return ["good", "All is well"];
}
function plan({ version, pending_changes: pending, in_force_since: since }) {
  const name = version ? `Plan ${version}` : "No plan", to = pending ? `, ${count(pending, "change", "changes")} to come` : "";
  return `${name}${since ? ` in force since ${clock(since)}` : " in force"}${to}`;
}
Object.assign(firedex, { verdict, plan });
})();
