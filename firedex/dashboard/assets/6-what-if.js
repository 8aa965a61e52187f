/* What a change would do, before it is made. What is applied is what was answered for, and nothing
   can be applied before that answer is there, after it failed, or when the inputs, the plan in force or
   the phase have changed. */
"use strict";
(() => {
const { state, staff, ask, put, make, cell, row, table, nothing, swatch, Refused } = firedex;
const { known, seconds, share, refresh, utilityWords } = firedex;
const PLANNING_MILLISECONDS = 60000, MOST_MOVES = 50;
const OUTDATED = "The inputs have changed since: ask again what it would do.";
const CHANGED = "It has changed since you chose it; choose it again.";
let asked = 0;  // of several questions only the last one's answer counts
let proposal = null;  // what Apply would do; there only once its answer is shown

function propose(made) { proposal = made; put("apply", { disabled: !made }); }
const inputsOf = (kind, given) => JSON.stringify([kind, ...(kind === "phase" ? [given.phase, given.title]
  : [given.chosen, given.kind, given.weight, given.shape, given.deadline])].map((each) => each ?? ""));

/* What an answer holds for: the plan in force, and the incident in its phase. */
const phaseSince = (now) => (firedex.isOpen(now.incident) ? now.incident.phase_since : null);
function whyExpired(then, now) {
  if (phaseSince(then) !== phaseSince(now)) return "The incident or its phase has changed since";
  return then.version === now.version ? "" : `Plan ${now.version} has come into force since`;
}
/* Another plan or phase than was asked about: the answer does not hold any more. */
function seen(now) {
  const expired = proposal?.basis && whyExpired(proposal.basis, now);
  if (expired) withdraw(`${expired}: ask again what it would do.`);
}
function withdraw(why) {
  asked += 1;
  state.previewed = null;
  propose(null);
  put("preview", { children: nothing(why) });
}

/* `prepare`: the change, what to suppose, and its title. */
async function question(kind, given, prepare) {
  const mine = ++asked, inputs = inputsOf(kind, given);
  state.previewed = { kind, inputs };
  propose(null);
  put("preview-card", { hidden: false });
  put("preview", { children: nothing("Planning …") });
  try {
    const basis = staff() ? await firedex.overview() : null;
    const { change, suppose, title, after } = await prepare(basis);
    const children = staff() ? await effect(suppose, title, basis)
      : nothing(`${title}. What it would do to all is for operators to see; you may apply it.`);
    if (mine !== asked) return;
    put("preview", { children });
    propose({ change, kind, inputs, basis, after });
    if (basis) seen(state.overview);
  } catch (error) {
    if (mine !== asked) return;
    state.previewed = null;
    const said = error instanceof Refused ? `${error.message} ` : "";
    put("preview", { children: make("P", "bad", `${said}This was not answered, and cannot be applied. Ask again.`) });
    throw error;
  }
}
async function effect(suppose, title, now) {
  const then = await ask("/v1/what-if", { method: "POST", body: suppose, patience: PLANNING_MILLISECONDS });
  const { prediction, difference } = then, moves = difference.subscriptions;
  const timely = timelyShare(prediction);
  const missed = prediction.deadlines_missed;
  return [
    make("P", "", title),
    table([["", "words"], ["now"], ["then"]], [
      row([cell("Utility achieved"), cell(share(now.utility?.predicted), "now-utility"), cell(share(prediction.achieved_utility_rate), "then-utility")]),
      row([cell("Utility in time"), cell(share(now.utility?.predicted_timely)), cell(share(timely))]),
      row([cell("Predicted to miss their deadline"), cell(now.predicted_late), cell(missed, missed > now.predicted_late ? "bad" : "")])]),
    classesTable(now.classes, prediction.classes),
    make("P", "", moves.length ? `${moves.length} subscriptions are served otherwise:` : "Every subscription stays as it is."),
    moves.length ? firedex.moveTable(moves, "now", "then", MOST_MOVES) : "",
  ];
}
/* By the rule of the first page: all that a subscription is worth if its deadline is met, else nothing. */
function timelyShare({ subscriptions, maximum_utility: most }) {
  const worth = subscriptions.reduce((sum, each) => sum + (each.deadline_met === false ? 0 : each.utility), 0);
  return most ? Math.min(worth / most, 1) : 1;
}
function classesTable(now, then) {
  const present = Object.fromEntries(now.map((each) => [each.priority, each]));
  const future = Object.fromEntries(then.map((each) => [each.priority, each]));
  const priorities = Object.keys({ ...present, ...future }).sort((a, b) => a - b);
  const pair = (name, before, after) => [cell(before, `now-${name}`), cell(after, `then-${name}${before === after ? "" : " changed"}`)];
  return table([["Class"], ["Subscriptions now"], ["then"], ["p95 now"], ["then"], ["Success now"], ["then"]], priorities.map((priority) => {
    const was = present[priority], will = future[priority];
    return row([make("Td", "", swatch(priority)),
      ...pair("count", String(was?.subscriptions ?? 0), String(will?.subscriptions ?? 0)),
      ...pair("p95", seconds(was?.predicted_delay_p95_seconds), seconds(will?.delay_p95_seconds)),
      ...pair("success", share(was?.predicted_success_rate), share(will?.success_rate))], { "data-class": priority });
  }));
}

const number = (value) => (value === "" || !known(value) ? null : Number(value));
function utilityOf({ kind, weight, shape }) {
  const worth = number(weight);
  if (worth === null || !(worth >= 0)) throw new Refused(0, "A weight is a number, 0 or more.");
  const bent = { capped: "enough", power: "exponent" }[kind];
  if (bent && !(number(shape) > 0 && number(shape) <= 1)) throw new Refused(0, `A ${kind} utility needs a shape above 0, and 1 at most.`);
  if (bent) return { kind, weight: worth, [bent]: number(shape) };
  if (kind !== "piecewise-linear") return { kind, weight: worth };
  const points = String(shape ?? "").split(",").map((point) => point.split(":").map(Number));
  if (points.some((point) => point.length !== 2 || point.some(Number.isNaN))) throw new Refused(0, "Points are given as success:worth, as 0:0, 0.5:0.8, 1:1.");
  return { kind, weight: worth, points };
}
/* What a form was filled with; somebody else may have changed it since. */
const wish = ({ utility, deadline_seconds: deadline }) =>
  JSON.stringify([utility.kind, utility.weight, String(firedex.shapeOf(utility)), deadline ?? null]);
async function subscriptionChange(chosen, remove, given) {
  const path = `/v1/subscribers/${encodeURIComponent(chosen.subscriber)}`, name = `${chosen.filter} of ${chosen.subscriber}`;
  const answer = await ask(path, { whole: true });
  const registration = await answer.json(), more = { "If-Match": answer.headers.get("ETag") }, { subscriber } = registration;
  const before = subscriber.subscriptions.find((each) => each.filter === chosen.filter);
  if (!before) throw new Refused(0, `${chosen.subscriber} has no ${chosen.filter} any more.`);
  if (wish(before) !== wish(chosen)) { firedex.chooseNone(); throw new Refused(0, CHANGED); }
  const having = (subscriptions) => ({ subscribers: [{ ...registration, subscriber: { ...subscriber, subscriptions } }] });
  if (remove) return {
    title: `${name} removed`,
    suppose: having(subscriber.subscriptions.filter((each) => each !== before)),
    change: { path: `${path}/subscriptions?filter=${encodeURIComponent(chosen.filter)}&`, method: "DELETE", more },
  };
  const after = { ...before, utility: utilityOf(given), deadline_seconds: number(given.deadline) };
  const deadline = known(after.deadline_seconds) ? `deadline ${seconds(after.deadline_seconds)}` : "no deadline";
  return {
    title: `${name}: utility ${utilityWords(after.utility)}, weight ${after.utility.weight}, ${deadline}`,
    suppose: having(subscriber.subscriptions.map((each) => (each === before ? after : each))),
    change: { path: `${path}/subscriptions?`, method: "POST", body: { subscriptions: [after] }, more }, after,
  };
}
function previewSubscription(remove, given) {
  const { chosen } = state;
  if (!chosen) throw new Refused(0, "Choose a subscription in the table first.");
  const kind = remove ? "removal" : "change";
  return question(kind, { ...given, chosen: idOf(chosen) }, () => subscriptionChange(chosen, remove, given));
}
function previewPhase(given) {
  const { phase, title } = given;
  if (!phase) throw new Refused(0, "Name a phase.");
  return question("phase", given, async ({ incident }) => {
    const open = firedex.isOpen(incident);
    const change = open ? { path: "/v1/incident/phase?", method: "PUT", body: { phase, expected_phase_since: incident.phase_since } }
      : { path: "/v1/incident?", method: "POST", body: { title: title || "incident", phase } };
    const plain = state.profiles?.includes(phase) ? "" : " (this phase has no profile: utilities are the subscribers' own)";
    return { change, suppose: { phase }, title: (open ? `Phase ${phase}` : `A new incident “${title || "incident"}”, phase ${phase}`) + plain };
  });
}
const idOf = (row_) => `${row_.subscriber} ${row_.filter}`;
const present = (given) => ({ ...given, chosen: state.chosen && idOf(state.chosen) });
/* Somebody typed or chose something: what was asked for other inputs is not the answer. */
function edited(given) {
  const { previewed } = state;
  if (!previewed || inputsOf(previewed.kind, present(given)) === previewed.inputs) return;
  withdraw(OUTDATED);
}
async function apply(given) {
  if (!proposal || inputsOf(proposal.kind, present(given)) !== proposal.inputs) { edited(given); throw new Refused(0, "Ask first what it would do."); }
  const { change: { path, ...how }, after, basis } = proposal, mine = proposal, { chosen } = state;
  if (basis) await firedex.overview();  // which withdraws it, if it does not hold any more
  if (proposal !== mine) throw new Refused(0, "What it would do is not known any more. Ask again.");
  propose(null);
  const answer = await ask(`${path}wait_seconds=10`, { ...how, whole: true, patience: PLANNING_MILLISECONDS });
  discard();
  if (after && state.chosen === chosen) state.chosen = { ...chosen, ...after };
  if (how.method === "DELETE") firedex.chooseNone();
  if (answer.status === 202) firedex.refusal("It is kept; the plan that includes it is not in force yet.");
  refresh();
}
function discard() {
  asked += 1;
  state.previewed = null;
  propose(null);
  put("preview-card", { hidden: true });
  put("preview", { children: [] });
}
Object.assign(firedex, { previewSubscription, previewPhase, edited, apply, discard, seen, whyExpired, wish, timelyShare, utilityOf, idOf });
})();
