/* Requests to the API of the service with the visitor's token; an error response throws RequestError. */
"use strict";
(() => {
const TIMEOUT_MILLISECONDS = 15000;

class RequestError extends Error {
  constructor(status, text, retrySeconds = 0) {
    super(text);
    Object.assign(this, { status, retrySeconds });
  }
}
let signedOut = false;
/* No requests after signing out: they would be sent without a token. */
function leave() {
  signedOut = true;
  sessionStorage.clear();
}
const token = () => sessionStorage.getItem("firedex-token") || "";
const headers = (more) => (token() ? { ...more, Authorization: `Bearer ${token()}` } : { ...more });

async function ask(path, { method = "GET", body, more = {}, whole = false, timeout = TIMEOUT_MILLISECONDS } = {}) {
  if (signedOut) throw new RequestError(0, "Signed out.");
  const abort = new AbortController(), timer = setTimeout(() => abort.abort(), timeout);
  const response = await fetch(path, {
    method,
    headers: headers(body === undefined ? more : { ...more, "Content-Type": "application/json" }),
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    signal: abort.signal,
  }).catch((error) => { clearTimeout(timer); throw error; });
  if (response.status === 401) { firedex.tokenRefused(); throw new RequestError(401, "The token is not valid."); }
  if (response.status !== 304 && !response.ok) {
    const body = await response.json().catch(() => ({}));
    const retry = Number(response.headers.get("Retry-After")) || 0;
    throw new RequestError(response.status, body.error || response.statusText || `status ${response.status}`, retry);
  }
  return whole ? response : response.json().finally(() => clearTimeout(timer));
}
/* Return a readable reason why the data is not updated. */
function why(error) {
  if (!(error instanceof RequestError)) return "the service does not answer";
  if (error.status === 429) return "too many requests (rate limited)";
  if (error.status >= 500) return `the service is temporarily unavailable (${error.status})`;
  return error.message;
}
const refusal = (text) => firedex.put("refusal", { children: text || "", hidden: !text });
const done = (text) => firedex.put("done", { children: text, hidden: !text });
/* Run an action of the visitor and show its error, if any. */
async function attempt(work) {
  try {
    refusal("");
    await work();
  } catch (error) {
    const known = error instanceof RequestError;
    refusal(known ? error.message : "The service does not answer. Try again later.");
  }
}

Object.assign(firedex, { RequestError, token, leave, headers, ask, why, refusal, done, attempt });
})();
