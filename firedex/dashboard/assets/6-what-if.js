/* What a change would do, before it is made. What is applied is what was answered for, and nothing
   can be applied before that answer is there, after it failed, or when the inputs, the plan in force or
   the phase have changed. */
"use strict";
(() => {
const { state, staff, ask, put, make, cell, row, table, nothing, swatch, Refused } = firedex;
const { known, seconds, share, refresh, utilityWords, utilityOf, deadlineOf } = firedex;
const PLANNING_MILLISECONDS = 60000, APPLYING_MILLISECONDS = 20000, AGAIN_MILLISECONDS = 1000, MOST_MOVES = 50;
const UNANSWERED = "No answer came: it is not known whether it was applied. What you typed is kept; Apply asks for the very same again, which is done once.";
const MOVED = "Both are planned with what is measured now: rates have moved, or changes have come, since the plan in force was made";
const NO_PRESENT = "What there is now cannot be planned: what would change is against the plan in force.";
const OUTDATED = "The inputs have changed since: ask again what it would do.";
const CHANGED = "It has changed since you chose it; choose it again.";
let asked = 0;  // of several questions only the last one's answer counts
let proposal = null;  // what Apply would do; there only once its answer is shown
let unanswered = null;  // what was applied last, or not: no answer came

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
  const expired = proposal?.basis && proposal !== unanswered && whyExpired(proposal.basis, now);
  if (expired) withdraw(`${expired}: ask again what it would do.`);
}
function withdraw(why) {
  asked += 1;
  state.previewed = null;
  propose(null);
  put("preview", { children: nothing(why) });
}

/* What is asked for is on the screen, and its heading is where the keyboard is. */
function look(focus) {
  requestAnimationFrame(() => requestAnimationFrame(() => {  // when it is there
    const card = document.getElementById("preview-card");
    if (focus) card?.focus({ preventScroll: true });
    card?.scrollIntoView({ block: "start" });
  }));
}
/* `prepare`: the change, what to suppose, and its title. */
async function question(kind, given, prepare) {
  const mine = ++asked, inputs = inputsOf(kind, given);
  state.previewed = { kind, inputs };
  propose(null);
  firedex.done("");
  put("preview-card", { hidden: false });
  put("preview", { children: nothing("Planning …") });
  look(true);
  try {
    const basis = staff() ? await firedex.overview() : null;
    const { change, suppose, title, after } = await prepare(basis);
    const children = staff() ? await effect(suppose, title, basis)
      : nothing(`${title}. What it would do to all is for operators to see; you may apply it.`);
    if (mine !== asked) return;
    put("preview", { children });
    propose({ change: { ...change, more: { ...change.more, "Idempotency-Key": newKey() } }, title, kind, inputs, basis, after });
    look();
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
  const { prediction, difference, present } = then, moves = difference.subscriptions;
  const missed = prediction.deadlines_missed, before = present?.deadlines_missed;
  return [
    make("P", "", title),
    then.present_is_in_force ? "" : make("P", "soft moved", present ? `${MOVED} (plan ${now.version}).` : NO_PRESENT),
    table([["", "words"], ["now"], ["then"]], [
      row([cell("Utility achieved"), cell(share(present?.achieved_utility_rate), "now-utility"), cell(share(prediction.achieved_utility_rate), "then-utility")]),
      row([cell("Utility in time"), cell(share(present && timelyShare(present))), cell(share(timelyShare(prediction)))]),
      row([cell("Predicted to miss their deadline"), cell(before ?? "–"), cell(missed, missed > before ? "bad" : "")])]),
    classesTable(present?.classes ?? [], prediction.classes),
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
      ...pair("p95", seconds(was?.delay_p95_seconds), seconds(will?.delay_p95_seconds)),
      ...pair("success", share(was?.success_rate), share(will?.success_rate))], { "data-class": priority });
  }));
}

/* What a form was filled with; somebody else may have changed it since. */
const wish = ({ utility, deadline_seconds: deadline }) =>
  JSON.stringify([utility.kind, utility.weight, String(firedex.shapeOf(utility)), deadline ?? null]);
async function subscriptionChange(chosen, remove, given) {
  const wanted = remove ? null : { utility: utilityOf(given), deadline_seconds: deadlineOf(given) };
  const path = `/v1/subscribers/${encodeURIComponent(chosen.subscriber)}`, name = `${chosen.filter} of ${chosen.subscriber}`;
  const answer = await ask(path, { whole: true });
  const registration = await answer.json(), more = { "If-Match": answer.headers.get("ETag") }, { subscriber } = registration;
  const before = subscriber.subscriptions.find((each) => each.filter === chosen.filter);
  if (!before) throw new Refused(0, `${chosen.subscriber} has no ${chosen.filter} any more.`);
  const applied = unanswered?.after && unanswered.chosen === idOf(chosen) && wish(before) === wish(unanswered.after);
  if (applied && state.chosen === chosen) state.chosen = { ...chosen, ...before };  // one's own change
  else if (wish(before) !== wish(chosen)) { firedex.chooseNone(); throw new Refused(0, CHANGED); }
  const having = (subscriptions) => ({ subscribers: [{ ...registration, subscriber: { ...subscriber, subscriptions } }] });
  if (remove) return {
    title: `${name} removed`,
    suppose: having(subscriber.subscriptions.filter((each) => each !== before)),
    change: { path: `${path}/subscriptions?filter=${encodeURIComponent(chosen.filter)}&`, method: "DELETE", more },
  };
  const after = { ...before, ...wanted };
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
/* By which the service knows a request that it has answered before. */
const newKey = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16).padStart(8, "0")).join("");
const isLost = (error) => !(error instanceof Refused) || error.status >= 500;
async function send({ path, ...how }) {
  const once = () => ask(`${path}wait_seconds=10`, { ...how, whole: true, patience: APPLYING_MILLISECONDS });
  try { return await once(); } catch (error) { if (!isLost(error)) throw error; }
  await new Promise((done) => setTimeout(done, AGAIN_MILLISECONDS));
  return once();
}
async function apply(given) {
  if (!proposal || inputsOf(proposal.kind, present(given)) !== proposal.inputs) { edited(given); throw new Refused(0, "Ask first what it would do."); }
  const mine = proposal, { change, title, after, basis } = mine, { chosen } = state;
  if (basis && mine !== unanswered) await firedex.overview();  // which withdraws it, if it does not hold any more
  if (proposal !== mine) throw new Refused(0, "What it would do is not known any more. Ask again.");
  propose(null);
  unanswered = null;
  let answer;
  try { answer = await send(change); } catch (error) {
    if (!isLost(error)) throw error;
    unanswered = { ...mine, chosen: chosen && idOf(chosen) };
    propose(unanswered);
    throw new Refused(0, UNANSWERED);
  }
  discard();
  if (after && state.chosen === chosen) state.chosen = { ...chosen, ...after };
  if (change.method === "DELETE") firedex.chooseNone();
  if (answer.status === 202) firedex.refusal("It is kept; the plan that includes it is not in force yet.");
  else firedex.done(`Applied: ${title}.`);
  refresh();
}
function discard() {
  asked += 1;
  state.previewed = null;
  propose(null);
  put("preview-card", { hidden: true });
  put("preview", { children: [] });
}
Object.assign(firedex, { previewSubscription, previewPhase, edited, apply, discard, seen, whyExpired, wish, timelyShare, idOf });
})();
