/* Who looks, at which page, and how fresh what they see is: asked again at every event and every
   second, and told honestly when an answer does not come. */
"use strict";
(() => {
const { put, make, ask, token, headers, Refused, why, refusal, seconds } = firedex;
const PAGES = ["now", "topology", "subscriptions", "history"];
const LAST_PART = { now: "parts", topology: "switch", subscriptions: "preview-card", history: "difference" };
const TICK_MILLISECONDS = 1000, FRESH_MILLISECONDS = 900, LONGEST_WAIT_MILLISECONDS = 5000, OLD_MILLISECONDS = 4000;
const OWN = "You see what is your own. The rest of the site (now, topology, history) is for operators and command.";
const NOTHING = "This token has nothing to see here: the dashboard is for command, operators and subscribers.";
const state = { page: null, visitor: null, mounted: new Set(["now"]), renewed: {}, asked: 0, failures: 0, notBefore: 0 };
const show = {};  // each page's function, by its name

/* How long ago: one clock stands still while a machine sleeps, the other may be set. */
const moment = () => ({ ticks: performance.now(), date: Date.now() });
const elapsed = (then) => Math.max(performance.now() - then.ticks, Date.now() - then.date);
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const staff = () => ["command", "operator"].includes(state.visitor?.role);
const sees = (page) => staff() || (state.visitor?.role === "subscriber" && page === "subscriptions");

// -- how fresh it is ----------------------------------------------------------------------------
const ageText = (age) => (age < 90 ? `${Math.floor(age)} s` : seconds(age));
let badge = "", band = "";
function connection(kind, text) {
  if (badge !== text) put("connection", { children: (badge = text), className: `connection ${kind}` });
}
function tellFreshness() {
  if (!state.visitor) return;
  if (!state.page) { connection("", "signed in"); return; }
  const age = elapsed((state.renewed[state.page] ??= moment()));
  const old = age > OLD_MILLISECONDS;
  if (state.streaming && !state.failure && !old) connection("live", "live");
  else connection("lost", "reconnecting");
  const reason = state.failure || (state.streaming ? "an answer is awaited" : "the service does not answer");
  const text = old ? `${ageText(age / 1000)} ${reason}` : "";
  if (text === band) return;
  band = text;
  const since = make("Span", "", ageText(age / 1000), { "aria-hidden": "true" });  // read aloud once, not every second
  put("staleness", { hidden: !old, children: old ? ["Not updated for ", since, `: ${reason}. What is below is old.`] : "" });
  put("content", { className: old ? "old" : "" });
}

// -- asking again ---------------------------------------------------------------------------------
let busy = false, again = false;
async function refresh() {  // never two at once, never more than one waiting
  again = true;
  if (busy || !state.visitor || !state.page || document.hidden || performance.now() < state.notBefore) return;
  if (!document.getElementById(LAST_PART[state.page])) { setTimeout(refresh, 20); return; }  // not mounted yet
  busy = true;
  try {
    while (again && state.visitor) {
      const { page } = state;
      again = false;
      state.asked = performance.now();
      await show[page]();
      state.renewed[page] = moment();
    }
    Object.assign(state, { failure: null, failures: 0 });
  } catch (error) { failed(error); } finally { busy = false; }
  tellFreshness();
}
function failed(error) {
  if (error instanceof Refused && error.status === 401) return;
  if (error instanceof Refused && error.status === 403) refusal(error.message);
  state.failure = why(error);
  const wait = Math.min(500 * 2 ** state.failures++, LONGEST_WAIT_MILLISECONDS);
  state.notBefore = performance.now() + Math.max(wait, 1000 * Math.min(error.retrySeconds || 0, 30));
}
/* A browser has six connections to a service. A stream holds one: pages that nobody sees, and those
   that were left and are kept by the browser, let go of it. */
const visible = () => new Promise((done) => {
  if (document.hidden) document.addEventListener("visibilitychange", () => done(), { once: true }); else done();
});
async function listen(run) {
  for (let wait = 250; state.run === run; wait = Math.min(wait * 2, LONGEST_WAIT_MILLISECONDS)) {
    await visible();
    const stream = (state.stream = new AbortController()), stop = () => stream.abort();
    run.signal.addEventListener("abort", stop);  // tablets of some years ago cannot join signals
    try {
      const answer = await fetch("/v1/events", { headers: headers(), cache: "no-store", signal: stream.signal });
      if (answer.status === 401) { tokenRefused(); return; }
      if (!answer.ok) throw new Refused(answer.status, "");
      state.streaming = true;
      state.notBefore = 0;
      wait = 250;
      refresh();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read())
        if (part.value.includes("event:")) refresh();
    } catch { /* it is away, or said to go */ } finally { run.signal.removeEventListener("abort", stop); }
    state.streaming = false;
    if (state.run !== run) return;
    tellFreshness();
    await sleep(wait);
  }
}

// -- who looks --------------------------------------------------------------------------------------
async function start() {
  const run = new AbortController();
  state.run?.abort();
  state.run = run;
  for (let wait = 250; state.run === run; wait = Math.min(wait * 2, LONGEST_WAIT_MILLISECONDS)) {
    try {
      if (!token() && !(await ask("/v1/health")).open) { signIn(); return; }
      state.visitor = await ask("/v1/visitor");
      break;
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return;
      connection("lost", "reconnecting");
      await sleep(wait);
    }
  }
  if (state.run !== run) return;
  const { name, role } = state.visitor;
  state.renewed = {};
  put("login", { hidden: true });
  put("visitor", { children: token() ? `${name} (${role})` : "no tokens asked for" });
  put("sign-out", { hidden: !token() });
  put("token", { value: "" });
  for (const page of PAGES) put(`to-${page}`, { style: sees(page) ? {} : { display: "none" } });
  open();
  listen(run);
}
/* Nothing of what the last visitor saw may stay: the page begins anew. */
function tokenRefused() {
  sessionStorage.clear();
  sessionStorage.setItem("firedex-refused", "The token is not valid, or not any more. Sign in again.");
  window.location.reload();
}
function signIn() {
  state.run?.abort();
  state.run = state.visitor = null;
  for (const page of PAGES) {
    put(`page-${page}`, { hidden: true });
    put(`to-${page}`, { style: { display: "none" } });
  }
  for (const each of ["incident", "visitor"]) put(each, { children: "" });
  put("site", { children: "FireDeX" });
  for (const each of ["sign-out", "own"]) put(each, { hidden: true });
  put("login", { hidden: false });
  put("sign-in-refusal", { children: sessionStorage.getItem("firedex-refused") || "" });
  sessionStorage.removeItem("firedex-refused");
  connection("", "signed out");
}
function open() {
  const wanted = state.page;
  if (!sees(wanted)) state.page = sees("subscriptions") ? "subscriptions" : null;
  if (state.page && state.page !== wanted) put("address", { pathname: `/dashboard/${state.page}` });
  put("own", { hidden: staff(), children: state.page ? OWN : NOTHING });
  for (const page of PAGES) {
    put(`page-${page}`, { hidden: page !== state.page });
    put(`to-${page}`, { className: page === state.page ? "page-link here" : "page-link" });
  }
  if (state.page && !state.mounted.has(state.page)) {
    state.mounted.add(state.page);
    put(`page-${state.page}`, { children: state.later[state.page] });
  }
  tellFreshness();
  refresh();
}
function visit(page, later) {
  const first = state.page === null && !state.run;
  Object.assign(state, { later, page: PAGES.includes(page) ? page : "now" });
  if (!first) { if (state.visitor) open(); return; }
  setInterval(() => {
    // What the topology asks for is dear, and an event may just have had it asked for.
    if (state.page !== "topology" || performance.now() - state.asked >= FRESH_MILLISECONDS) refresh();
    tellFreshness();
  }, TICK_MILLISECONDS);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { state.stream?.abort(); return; }
    tellFreshness();
    refresh();
  });
  // What a browser keeps of a page that was left is not for whoever comes back to it.
  window.addEventListener("pagehide", () => {
    state.run?.abort();
    state.run = null;
    document.body.hidden = true;
  });
  window.addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); });
  start();
}

Object.assign(firedex, { state, show, staff, refresh, start, visit, tokenRefused, moment, elapsed });
})();
