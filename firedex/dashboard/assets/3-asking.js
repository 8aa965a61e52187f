/* Requests to the service's interface, with the visitor's token; a refusal is an error in words. */
"use strict";
(() => {
const PATIENCE_MILLISECONDS = 15000;

class Refused extends Error {
  constructor(status, text, retrySeconds = 0) {
    super(text);
    Object.assign(this, { status, retrySeconds });
  }
}
let left = false;
/* Who has signed out asks nothing more: what was under way would go out without a token. */
function leave() {
  left = true;
  sessionStorage.clear();
}
const token = () => sessionStorage.getItem("firedex-token") || "";
const headers = (more) => (token() ? { ...more, Authorization: `Bearer ${token()}` } : { ...more });

async function ask(path, { method = "GET", body, more = {}, whole = false, patience = PATIENCE_MILLISECONDS } = {}) {
  if (left) throw new Refused(0, "Signed out.");
  const patient = new AbortController(), timer = setTimeout(() => patient.abort(), patience);
  const answer = await fetch(path, {
    method,
    headers: headers(body === undefined ? more : { ...more, "Content-Type": "application/json" }),
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    signal: patient.signal,
  }).catch((error) => { clearTimeout(timer); throw error; });
  if (answer.status === 401) { firedex.tokenRefused(); throw new Refused(401, "The token is not valid."); }
  if (answer.status !== 304 && !answer.ok) {
    const said = await answer.json().catch(() => ({}));
    const retry = Number(answer.headers.get("Retry-After")) || 0;
    throw new Refused(answer.status, said.error || answer.statusText || `status ${answer.status}`, retry);
  }
  return whole ? answer : answer.json().finally(() => clearTimeout(timer));
}
/* Why the figures are not renewed, for people. */
function why(error) {
  if (!(error instanceof Refused)) return "the service does not answer";
  if (error.status === 429) return "the service was asked too often";
  if (error.status >= 500) return `the service cannot answer now (${error.status})`;
  return error.message;
}
const refusal = (text) => firedex.put("refusal", { children: text || "", hidden: !text });
const done = (text) => firedex.put("done", { children: text, hidden: !text });
/* What somebody did: if it is refused, they are told. */
async function attempt(work) {
  try {
    refusal("");
    await work();
  } catch (error) {
    const mine = error instanceof Refused;
    refusal(mine ? error.message : "The service does not answer; try again when it does.");
  }
}

Object.assign(firedex, { Refused, token, leave, headers, ask, why, refusal, done, attempt });
})();
