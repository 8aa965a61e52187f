/* The visitor, the current page, and the age of its data. The page is updated at every event and every
   second, and is marked as outdated when no response arrives. */
"use strict";
(() => {
const { put, make, ask, token, headers, RequestError, why, refusal, seconds } = firedex;
const PAGES = ["now", "topology", "subscriptions", "history"];
const LAST_PART = { now: "parts", topology: "switch", subscriptions: "preview-card", history: "difference" };
const TICK_MILLISECONDS = 1000, FRESH_MILLISECONDS = 900, LONGEST_WAIT_MILLISECONDS = 5000, OLD_MILLISECONDS = 4000;
const OWN = "You see only your own subscriptions. The pages Now, Topology and History are for operators and command.";
const NOTHING = "This token cannot use the dashboard, which is for command, operators and subscribers.";
const state = { page: null, visitor: null, mounted: new Set(["now"]), updated: {}, asked: 0, failures: 0, notBefore: 0 };
const show = {};  // the function that updates each page, by name

/* Age of data, by two clocks: the monotonic one stops while the computer is suspended, the other may be set. */
const moment = () => ({ ticks: performance.now(), date: Date.now() });
const elapsed = (then) => Math.max(performance.now() - then.ticks, Date.now() - then.date);
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const staff = () => ["command", "operator"].includes(state.visitor?.role);
const sees = (page) => staff() || (state.visitor?.role === "subscriber" && page === "subscriptions");

// -- age of the data ----------------------------------------------------------------------------
const ageText = (age) => (age < 90 ? `${Math.floor(age)} s` : seconds(age));
let badge = "", band = "";
function connection(kind, text) {
  if (badge !== text) put("connection", { children: (badge = text), className: `connection ${kind}` });
}
function showAge() {
  if (!state.visitor) return;
  if (!state.page) { connection("", "signed in"); return; }
  const age = elapsed((state.updated[state.page] ??= moment()));
  const old = age > OLD_MILLISECONDS;
  if (state.streaming && !state.failure && !old) connection("live", "live");
  else connection("lost", "reconnecting");
  const reason = state.failure || (state.streaming ? "waiting for a response" : "the service does not answer");
  const text = old ? `${ageText(age / 1000)} ${reason}` : "";
  if (text === band) return;
  band = text;
  const since = make("Span", "", ageText(age / 1000), { "aria-hidden": "true" });  // so that a screen reader does not read it every second
  put("staleness", { hidden: !old, children: old ? ["Not updated for ", since, `: ${reason}. The data below is out of date.`] : "" });
  put("content", { className: old ? "old" : "" });
}

// -- updating ---------------------------------------------------------------------------------
let busy = false, waiting = false;
async function refresh() {  // one request at a time, and at most one waiting
  waiting = true;
  if (busy || !state.visitor || !state.page || document.hidden || performance.now() < state.notBefore) return;
  if (!document.getElementById(LAST_PART[state.page])) { setTimeout(refresh, 20); return; }  // not mounted yet
  busy = true;
  try {
    while (waiting && state.visitor) {
      const { page } = state;
      waiting = false;
      state.asked = performance.now();
      await show[page]();
      state.updated[page] = moment();
    }
    Object.assign(state, { failure: null, failures: 0 });
  } catch (error) { handleFailure(error); } finally { busy = false; }
  showAge();
}
function handleFailure(error) {
  if (error instanceof RequestError && error.status === 401) return;
  if (error instanceof RequestError && error.status === 403) refusal(error.message);
  state.failure = why(error);
  const wait = Math.min(500 * 2 ** state.failures++, LONGEST_WAIT_MILLISECONDS);
  state.notBefore = performance.now() + Math.max(wait, 1000 * Math.min(error.retrySeconds || 0, 30));
}
/* Browsers allow six connections to a host, and an event stream uses one. So hidden pages and pages in the
   back-forward cache close their stream. */
const visible = () => new Promise((done) => {
  if (document.hidden) document.addEventListener("visibilitychange", () => done(), { once: true }); else done();
});
async function listen(run) {
  for (let wait = 250; state.run === run; wait = Math.min(wait * 2, LONGEST_WAIT_MILLISECONDS)) {
    await visible();
    const stream = (state.stream = new AbortController()), stop = () => stream.abort();
    run.signal.addEventListener("abort", stop);  // older browsers do not have AbortSignal.any
    try {
      const response = await fetch("/v1/events", { headers: headers(), cache: "no-store", signal: stream.signal });
      if (response.status === 401) { tokenRefused(); return; }
      if (!response.ok) throw new RequestError(response.status, "");
      state.streaming = true;
      state.notBefore = 0;
      wait = 250;
      refresh();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read())
        if (part.value.includes("event:")) refresh();
    } catch { /* the service is unreachable, or the stream was closed */ } finally { run.signal.removeEventListener("abort", stop); }
    state.streaming = false;
    if (state.run !== run) return;
    showAge();
    await sleep(wait);
  }
}

// -- the visitor --------------------------------------------------------------------------------------
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
      if (error instanceof RequestError && error.status === 401) return;
      connection("lost", "reconnecting");
      await sleep(wait);
    }
  }
  if (state.run !== run) return;
  const { name, role } = state.visitor;
  state.updated = {};
  put("login", { hidden: true });
  put("visitor", { children: token() ? `${name} (${role})` : "no sign-in required" });
  put("sign-out", { hidden: !token() });
  put("token", { value: "" });
  for (const page of PAGES) put(`to-${page}`, { style: sees(page) ? {} : { display: "none" } });
  open();
  listen(run);
}
/* Reload the page, so that no data of the last visitor remains. */
function tokenRefused() {
  sessionStorage.clear();
  sessionStorage.setItem("firedex-refused", "The token is not valid or was revoked. Sign in again.");
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
  const requested = state.page;
  if (!sees(requested)) state.page = sees("subscriptions") ? "subscriptions" : null;
  if (state.page && state.page !== requested) put("address", { pathname: `/dashboard/${state.page}` });
  put("own", { hidden: staff(), children: state.page ? OWN : NOTHING });
  for (const page of PAGES) {
    put(`page-${page}`, { hidden: page !== state.page });
    put(`to-${page}`, { className: page === state.page ? "page-link here" : "page-link" });
  }
  if (state.page && !state.mounted.has(state.page)) {
    state.mounted.add(state.page);
    put(`page-${state.page}`, { children: state.later[state.page] });
  }
  showAge();
  refresh();
}
function visit(page, later) {
  const first = state.page === null && !state.run;
  Object.assign(state, { later, page: PAGES.includes(page) ? page : "now" });
  if (!first) { if (state.visitor) open(); return; }
  setInterval(() => {
    // The topology is expensive, and an event may have updated it already.
    if (state.page !== "topology" || performance.now() - state.asked >= FRESH_MILLISECONDS) refresh();
    showAge();
  }, TICK_MILLISECONDS);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { state.stream?.abort(); return; }
    showAge();
    refresh();
  });
  // A page in the back-forward cache must not show its data to the next visitor.
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
