/* Parses the form of a subscription and rejects invalid or ambiguous input. Pure. */
"use strict";
(() => {
const { known, RequestError } = firedex;
const NUMBER = /^\+?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const THOUSANDS = /^[1-9]\d{0,2}(,\d{3})+$/;  // ambiguous: 1,500 may mean 1500 or 1.5

/* Parse a number with a decimal point or comma; NaN if it is invalid or ambiguous. */
function decimal(typed) {
  const text = String(typed).trim();
  const plain = THOUSANDS.test(text) ? text : text.replace(",", ".");
  return NUMBER.test(plain) && Number.isFinite(Number(plain)) ? Number(plain) : NaN;
}
const isEmpty = (typed) => !known(typed) || String(typed).trim() === "";
function refuse(name, rule, typed) {
  throw new RequestError(0, `${name}: ${rule}${isEmpty(typed) ? "" : `, not “${typed}”`}.`);
}
function deadlineOf({ deadline }) {
  if (isEmpty(deadline)) return null;
  const given = decimal(deadline);
  if (!(given > 0)) refuse("Deadline", "enter a number of seconds above 0, for example 0.4, or leave it empty", deadline);
  return given;
}
function utilityOf({ kind, weight, shape }) {
  const parsedWeight = decimal(weight ?? ""), parameter = { capped: "enough", power: "exponent" }[kind], value = decimal(shape ?? "");
  if (!(parsedWeight >= 0)) refuse("Weight", "enter a number, 0 or more", weight);
  if (parameter && !(value > 0 && value <= 1)) refuse("Shape", `a ${kind} utility needs a number above 0 and at most 1`, shape);
  if (parameter) return { kind, weight: parsedWeight, [parameter]: value };
  if (kind !== "piecewise-linear") return { kind, weight: parsedWeight };
  const points = String(shape ?? "").split(",").map((point) => point.split(":").map(decimal));
  if (points.some((point) => point.length !== 2 || point.some(Number.isNaN))) refuse("Shape", "enter points as success:value, for example 0:0, 0.5:0.8, 1:1", shape);
  return { kind, weight: parsedWeight, points };
}
Object.assign(firedex, { decimal, deadlineOf, utilityOf });
})();

/* Previews a change before it is applied. Only a previewed change can be applied: not before the preview is
   shown, not after it failed, and not when the input, the active configuration or the phase have changed. */
(() => {
const { state, staff, ask, put, make, cell, row, table, nothing, swatch, RequestError } = firedex;
const { known, seconds, share, refresh, utilityWords, utilityOf, deadlineOf } = firedex;
const PREVIEW_TIMEOUT_MILLISECONDS = 60000, APPLY_TIMEOUT_MILLISECONDS = 20000, RETRY_MILLISECONDS = 1000, MOST_MOVES = 50;
const UNANSWERED = "No response arrived, so it is unknown whether the change was applied. Your input is kept. Apply sends the same request again; it takes effect only once.";
const RATES_CHANGED = "Both columns are planned with the rates that are measured now. The rates or registrations have changed since the active configuration was planned";
const PRESENT_NOT_PLANNED = "The current state cannot be planned, so the change is compared with the active configuration.";
const OUTDATED = "The input has changed since the preview. Preview again.";
const CHANGED = "The subscription has changed since you selected it. Select it again.";
let lastRequest = 0;  // number of the last preview request; responses to earlier ones are ignored
let proposal = null;  // the change that Apply sends; null until its preview is shown
let unanswered = null;  // the last change that was sent without a response

function propose(change) { proposal = change; put("apply", { disabled: !change }); }
const inputsOf = (kind, given) => JSON.stringify([kind, ...(kind === "phase" ? [given.phase, given.title]
  : [given.chosen, given.kind, given.weight, given.shape, given.deadline])].map((each) => each ?? ""));

/* A preview is valid for one configuration and one phase of the incident. */
const phaseSince = (now) => (firedex.isOpen(now.incident) ? now.incident.phase_since : null);
function whyExpired(then, now) {
  if (phaseSince(then) !== phaseSince(now)) return "The incident or its phase has changed since";
  return then.version === now.version ? "" : `Configuration ${now.version} has become active since`;
}
/* Withdraw the preview if the configuration or phase has changed. */
function checkProposal(now) {
  const expired = proposal?.basis && proposal !== unanswered && whyExpired(proposal.basis, now);
  if (expired) withdraw(`${expired}. Preview again.`);
}
function withdraw(why) {
  lastRequest += 1;
  state.previewed = null;
  propose(null);
  put("preview", { children: nothing(why) });
}

/* Scroll to the preview, and optionally move the keyboard focus to it. */
function scrollToPreview(focus) {
  requestAnimationFrame(() => requestAnimationFrame(() => {  // after it is rendered
    const card = document.getElementById("preview-card");
    if (focus) card?.focus({ preventScroll: true });
    card?.scrollIntoView({ block: "start" });
  }));
}
/* Request and show a preview. `prepare` returns the change, the what-if request and the title. */
async function preview(kind, given, prepare) {
  const request = ++lastRequest, inputs = inputsOf(kind, given);
  state.previewed = { kind, inputs };
  propose(null);
  firedex.done("");
  put("preview-card", { hidden: false });
  put("preview", { children: nothing("Planning …") });
  scrollToPreview(true);
  try {
    const basis = staff() ? await firedex.overview() : null;
    const { change, whatIf, title, after } = await prepare(basis);
    const children = staff() ? await effect(whatIf, title, basis)
      : nothing(`${title}. Only operators can see the effect on other subscribers. You can apply the change.`);
    if (request !== lastRequest) return;
    put("preview", { children });
    propose({ change: { ...change, more: { ...change.more, "Idempotency-Key": newKey() } }, title, kind, inputs, basis, after });
    scrollToPreview();
    if (basis) checkProposal(state.overview);
  } catch (error) {
    if (request !== lastRequest) return;
    state.previewed = null;
    const detail = error instanceof RequestError ? `${error.message} ` : "";
    put("preview", { children: make("P", "bad", `${detail}The preview failed, so the change cannot be applied. Preview again.`) });
    throw error;
  }
}
async function effect(whatIf, title, now) {
  const then = await ask("/v1/what-if", { method: "POST", body: whatIf, timeout: PREVIEW_TIMEOUT_MILLISECONDS });
  const { prediction, difference, present } = then, moves = difference.subscriptions;
  const missed = prediction.deadlines_missed, before = present?.deadlines_missed;
  return [
    make("P", "", title),
    then.present_is_active ? "" : make("P", "soft moved", present ? `${RATES_CHANGED} (configuration ${now.version}).` : PRESENT_NOT_PLANNED),
    table([["", "words"], ["now"], ["after"]], [
      row([cell("Utility achieved"), cell(share(present?.achieved_utility_rate), "now-utility"), cell(share(prediction.achieved_utility_rate), "then-utility")]),
      row([cell("Utility with deadlines met"), cell(share(present && timelyShare(present))), cell(share(timelyShare(prediction)))]),
      row([cell("Predicted missed deadlines"), cell(before ?? "–"), cell(missed, missed > before ? "bad" : "")])]),
    classesTable(present?.classes ?? [], prediction.classes),
    make("P", "", moves.length ? `${moves.length} subscriptions get another class or drop rate:` : "No subscription changes its class or drop rate."),
    moves.length ? firedex.moveTable(moves, "now", "after", MOST_MOVES) : "",
  ];
}
/* The same rule as on the first page: a subscription with a missed deadline has no timely utility. */
function timelyShare({ subscriptions, maximum_utility: most }) {
  const timely = subscriptions.reduce((sum, each) => sum + (each.deadline_met === false ? 0 : each.utility), 0);
  return most ? Math.min(timely / most, 1) : 1;
}
function classesTable(now, then) {
  const present = Object.fromEntries(now.map((each) => [each.priority, each]));
  const future = Object.fromEntries(then.map((each) => [each.priority, each]));
  const priorities = Object.keys({ ...present, ...future }).sort((a, b) => a - b);
  const pair = (name, before, after) => [cell(before, `now-${name}`), cell(after, `then-${name}${before === after ? "" : " changed"}`)];
  return table([["Class"], ["Subscriptions now"], ["after"], ["p95 now"], ["after"], ["Success now"], ["after"]], priorities.map((priority) => {
    const was = present[priority], will = future[priority];
    return row([make("Td", "", swatch(priority)),
      ...pair("count", String(was?.subscriptions ?? 0), String(will?.subscriptions ?? 0)),
      ...pair("p95", seconds(was?.delay_p95_seconds), seconds(will?.delay_p95_seconds)),
      ...pair("success", share(was?.success_rate), share(will?.success_rate))], { "data-class": priority });
  }));
}

/* The values of a form, to detect changes by other users. */
const formValues = ({ utility, deadline_seconds: deadline }) =>
  JSON.stringify([utility.kind, utility.weight, String(firedex.shapeOf(utility)), deadline ?? null]);
async function subscriptionChange(chosen, remove, given) {
  const newValues = remove ? null : { utility: utilityOf(given), deadline_seconds: deadlineOf(given) };
  const path = `/v1/subscribers/${encodeURIComponent(chosen.subscriber)}`, name = `${chosen.filter} of ${chosen.subscriber}`;
  const response = await ask(path, { whole: true });
  const registration = await response.json(), more = { "If-Match": response.headers.get("ETag") }, { subscriber } = registration;
  const before = subscriber.subscriptions.find((each) => each.filter === chosen.filter);
  if (!before) throw new RequestError(0, `${chosen.subscriber} no longer has a subscription to ${chosen.filter}.`);
  const applied = unanswered?.after && unanswered.chosen === idOf(chosen) && formValues(before) === formValues(unanswered.after);
  if (applied && state.chosen === chosen) state.chosen = { ...chosen, ...before };  // the earlier change of this visitor
  else if (formValues(before) !== formValues(chosen)) { firedex.chooseNone(); throw new RequestError(0, CHANGED); }
  const registrationWith = (subscriptions) => ({ subscribers: [{ ...registration, subscriber: { ...subscriber, subscriptions } }] });
  if (remove) return {
    title: `${name} removed`,
    whatIf: registrationWith(subscriber.subscriptions.filter((each) => each !== before)),
    change: { path: `${path}/subscriptions?filter=${encodeURIComponent(chosen.filter)}&`, method: "DELETE", more },
  };
  const after = { ...before, ...newValues };
  const deadline = known(after.deadline_seconds) ? `deadline ${seconds(after.deadline_seconds)}` : "no deadline";
  return {
    title: `${name}: utility ${utilityWords(after.utility)}, weight ${after.utility.weight}, ${deadline}`,
    whatIf: registrationWith(subscriber.subscriptions.map((each) => (each === before ? after : each))),
    change: { path: `${path}/subscriptions?`, method: "POST", body: { subscriptions: [after] }, more }, after,
  };
}
function previewSubscription(remove, given) {
  const { chosen } = state;
  if (!chosen) throw new RequestError(0, "Select a subscription in the table first.");
  const kind = remove ? "removal" : "change";
  return preview(kind, { ...given, chosen: idOf(chosen) }, () => subscriptionChange(chosen, remove, given));
}
function previewPhase(given) {
  const { phase, title } = given;
  if (!phase) throw new RequestError(0, "Enter a phase.");
  return preview("phase", given, async ({ incident }) => {
    const open = firedex.isOpen(incident);
    const change = open ? { path: "/v1/incident/phase?", method: "PUT", body: { phase, expected_phase_since: incident.phase_since } }
      : { path: "/v1/incident?", method: "POST", body: { title: title || "incident", phase } };
    const plain = state.profiles?.includes(phase) ? "" : " (this phase has no profile: the subscribers' own utilities apply)";
    return { change, whatIf: { phase }, title: (open ? `Phase ${phase}` : `A new incident “${title || "incident"}”, phase ${phase}`) + plain };
  });
}
const idOf = (row_) => `${row_.subscriber} ${row_.filter}`;
const present = (given) => ({ ...given, chosen: state.chosen && idOf(state.chosen) });
/* Withdraw the preview if the input has changed. */
function edited(given) {
  const { previewed } = state;
  if (!previewed || inputsOf(previewed.kind, present(given)) === previewed.inputs) return;
  withdraw(OUTDATED);
}
/* Return a random key by which the service recognises a repeated request. */
const newKey = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16).padStart(8, "0")).join("");
const isLost = (error) => !(error instanceof RequestError) || error.status >= 500;
async function send({ path, ...how }) {
  const request = () => ask(`${path}wait_seconds=10`, { ...how, whole: true, timeout: APPLY_TIMEOUT_MILLISECONDS });
  try { return await request(); } catch (error) { if (!isLost(error)) throw error; }
  await new Promise((done) => setTimeout(done, RETRY_MILLISECONDS));
  return request();
}
async function apply(given) {
  if (!proposal || inputsOf(proposal.kind, present(given)) !== proposal.inputs) { edited(given); throw new RequestError(0, "Preview the change first."); }
  const applied = proposal, { change, title, after, basis } = applied, { chosen } = state;
  if (basis && applied !== unanswered) await firedex.overview();  // withdraws the proposal if it has expired
  if (proposal !== applied) throw new RequestError(0, "The preview is no longer valid. Preview again.");
  propose(null);
  unanswered = null;
  let response;
  try { response = await send(change); } catch (error) {
    if (!isLost(error)) throw error;
    unanswered = { ...applied, chosen: chosen && idOf(chosen) };
    propose(unanswered);
    throw new RequestError(0, UNANSWERED);
  }
  discard();
  if (after && state.chosen === chosen) state.chosen = { ...chosen, ...after };
  if (change.method === "DELETE") firedex.chooseNone();
  if (response.status === 202) firedex.refusal("The change is saved. The configuration that includes it is not active yet.");
  else firedex.done(`Applied: ${title}.`);
  refresh();
}
function discard() {
  lastRequest += 1;
  state.previewed = null;
  propose(null);
  put("preview-card", { hidden: true });
  put("preview", { children: [] });
}
Object.assign(firedex, { previewSubscription, previewPhase, edited, apply, discard, checkProposal, whyExpired, formValues, timelyShare, idOf });
})();
