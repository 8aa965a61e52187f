/* What the pages do in the browser: ask the service's interface with the visitor's token, listen to
   its event stream, and put what comes into the components of the layout. Nothing else is asked. */
"use strict";
(() => {
const dash = (window.dash_clientside = window.dash_clientside || {});
const PAGES = ["now", "topology", "subscriptions", "history"];
const LAST = { now: "parts", topology: "switch", subscriptions: "preview-card", history: "difference" };
const TICK_MILLISECONDS = 1000, LONGEST_WAIT_MILLISECONDS = 5000, MOST_HOSTS_DRAWN = 12;
const COLOURS = ["#3b7dd8", "#e8590c", "#2f9e44", "#ae3ec9", "#1098ad", "#d6336c", "#7c8cf8", "#a08a10"];
const state = { page: null, visitor: null, mounted: new Set(["now"]), overview: null };

// -- words and figures ------------------------------------------------------------------------
const known = (value) => value !== null && value !== undefined;
const seconds = (value) => !known(value) ? "–" : value < 0.0995 ? `${(value * 1000).toPrecision(3)} ms`
  : value < 9.95 ? `${value.toFixed(2)} s` : value < 90 ? `${value.toFixed(0)} s`
  : value < 5400 ? `${(value / 60).toFixed(0)} min` : `${(value / 3600).toFixed(0)} h`;
const share = (value) => known(value) ? `${(value * 100).toFixed(value < 0.9995 && value > 0.99 ? 1 : 0)} %` : "–";
const bits = (value) => value >= 1e9 ? `${+(value / 1e9).toPrecision(3)} Gbit/s`
  : value >= 1e6 ? `${+(value / 1e6).toPrecision(3)} Mbit/s` : `${+(value / 1e3).toPrecision(3)} kbit/s`;
const clock = (text) => text ? new Date(text).toLocaleTimeString([], { hour12: false }) : "";
window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {},
  { firedexSeconds: (v) => known(v) ? seconds(v) : "", firedexShare: (v) => known(v) ? share(v) : "", firedexClock: clock });

// -- components -------------------------------------------------------------------------------
const put = (id, properties) => dash.set_props(id, properties);
const make = (type, className, children, more) =>
  ({ namespace: "dash_html_components", type, props: { className, children, ...more } });
const cell = (text, className) => make("Td", className, String(text));
const table = (head, rows) => make("Div", "scroll", make("Table", "", [
  make("Thead", "", make("Tr", "", head.map(([text, className]) => make("Th", className || "", text)))),
  make("Tbody", "", rows)]), { tabIndex: 0 });
const row = (cells, more) => make("Tr", "", cells, more);
const nothing = (text) => make("P", "soft", text);

// -- asking -----------------------------------------------------------------------------------
class Refused extends Error { constructor(status, text) { super(text); this.status = status; } }
const token = () => sessionStorage.getItem("firedex-token") || "";
const headers = (more) => token() ? { ...more, Authorization: `Bearer ${token()}` } : { ...more };
async function ask(path, { method = "GET", body, more = {}, whole = false } = {}) {
  const sent = body === undefined ? more : { ...more, "Content-Type": "application/json" };
  const answer = await fetch(path, { method, headers: headers(sent), cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body) });
  if (answer.status === 401) { invalid(); throw new Refused(401, "no token"); }
  if (answer.status !== 304 && !answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, said.error || answer.statusText);
  }
  return whole ? answer : answer.json();
}
function refusal(text) { put("refusal", { children: text || "", hidden: !text }); }
const attempt = async (work) => {  // what people did: a refusal is told in words
  try { refusal(""); await work(); } catch (error) {
    refusal(error instanceof Refused ? error.message : "The service does not answer; try again when it does.");
  }
};
const staff = () => ["command", "operator"].includes(state.visitor?.role);

// -- live -------------------------------------------------------------------------------------
function connection(kind, text) {
  if (state.connection === text) return;
  state.connection = text;
  put("connection", { children: text, className: `connection ${kind}` });
}
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
async function listen(run) {
  let wait = 250;
  while (state.run === run) {
    try {
      const answer = await fetch("/v1/events", { headers: headers(), cache: "no-store", signal: run.signal });
      if (answer.status === 401) { invalid(); return; }
      if (!answer.ok) throw new Refused(answer.status, "");
      state.streaming = true;
      connection("live", "live");
      wait = 250;
      refresh();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read())
        if (part.value.includes("event:")) refresh();
    } catch { /* it is away, or said to go */ }
    state.streaming = false;
    if (state.run !== run) return;
    connection("lost", "reconnecting");
    await sleep(wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MILLISECONDS);
  }
}
let busy = false, again = false;
async function refresh() {  // never two at once, never more than one waiting
  again = true;
  if (busy || !state.visitor || document.hidden) return;
  if (!document.getElementById(LAST[state.page])) { setTimeout(refresh, 20); return; }  // not mounted yet
  busy = true;
  try {
    while (again) { again = false; await show[state.page](); }
    if (state.streaming) connection("live", "live");  // a request that failed meanwhile is history
  } catch (error) {
    if (error instanceof Refused && error.status === 403) refusal(error.message);
    else if (!(error instanceof Refused)) connection("lost", "reconnecting");
  } finally { busy = false; }
}
async function start() {
  const run = new AbortController();
  state.run?.abort();
  state.run = run;
  for (let wait = 250; state.run === run; wait = Math.min(wait * 2, LONGEST_WAIT_MILLISECONDS)) {
    try {
      if (!token() && !(await ask("/v1/health")).open) { signIn(""); return; }
      state.visitor = await ask("/v1/visitor");
      break;
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return;
      connection("lost", "reconnecting");
      await sleep(wait);
    }
  }
  const { name, role, party } = state.visitor;
  put("login", { hidden: true });
  put("visitor", { children: token() ? `${name} (${role})` : "no tokens asked for" });
  put("sign-out", { hidden: !token() });
  put("token", { value: "" });
  if (!staff()) for (const page of ["now", "topology", "history"]) put(`to-${page}`, { style: { display: "none" } });
  if (!staff() && state.page !== "subscriptions") { put("address", { pathname: "/dashboard/subscriptions" }); }
  state.party = party;
  open();
  listen(run);
}
function invalid() { sessionStorage.removeItem("firedex-token"); signIn("The token is not valid."); }
function signIn(text) {
  state.run?.abort();
  state.run = state.visitor = null;
  put("login", { hidden: false });
  put("sign-in-refusal", { children: text });
  put("sign-out", { hidden: true });
  put("visitor", { children: "" });
  for (const page of PAGES) { put(`page-${page}`, { hidden: true }); put(`to-${page}`, { style: {} }); }
  connection("", "signed out");
}
function open() {
  for (const page of PAGES) {
    put(`page-${page}`, { hidden: page !== state.page });
    put(`to-${page}`, { className: page === state.page ? "page-link here" : "page-link" });
  }
  if (!state.mounted.has(state.page)) {
    state.mounted.add(state.page);
    put(`page-${state.page}`, { children: state.later[state.page] });
  }
  refresh();
}

// -- now --------------------------------------------------------------------------------------
const figure = (title, value, under, className = "", id = undefined) =>
  make("Div", "figure", [make("Small", "", title), make("B", className, value, id ? { id } : {}), make("Small", "", under)]);
async function overview() {
  const now = state.overview = await ask("/v1/overview");
  const incident = now.incident && !now.incident.closed_at ? now.incident : null;
  put("site", { children: `FireDeX ${now.name}` });
  put("incident", { children: incident ? `${incident.title}: ${incident.phase}` : "no incident" });
  return now;
}
async function showNow() {
  const now = await overview(), { utility } = now;
  const open = now.incident && !now.incident.closed_at;
  const worth = (measured, predicted) => [share(measured ?? predicted),
    known(measured) ? `measured; predicted ${share(predicted)}` : "predicted; nothing measured lately"];
  const [achieved, achievedUnder] = worth(utility?.measured, utility?.predicted);
  const [timely, timelyUnder] = worth(utility?.measured_timely, utility?.predicted_timely);
  put("figures", { children: [
    figure("Incident", open ? now.incident.phase : "none", open ? `${now.incident.title}, since ${clock(now.incident.phase_since)}` : "utilities are the subscribers' own", "words", "phase-now"),
    figure("Utility achieved", achieved, achievedUnder, "", "utility-achieved"),
    figure("Utility in time", timely, timelyUnder, "", "utility-timely"),
    figure("Miss their deadline", now.late_in_all, "subscriptions", now.late_in_all ? "bad" : "good", "late-count"),
    figure("Plan", now.version || "none", now.pending_changes ? `${now.pending_changes} changes to come` : `in force since ${clock(now.in_force_since)}`, "", "plan-version"),
  ] });
  put("alerts", { children: now.alerts.length ? make("Ul", "alerts", now.alerts.map((a) => make("Li", a.severity, a.text)))
    : make("P", "good", "Nothing to say: all parts are well, all deadlines are met.") });
  put("late", { children: !now.late.length ? nothing("None.") : table(
    [["Filter"], ["Subscriber", "words"], ["Class"], ["Deadline"], ["p95 measured"], ["predicted"], ["Late by"], ["Why", "words"]],
    now.late.map((one) => row([cell(one.filter), cell(one.subscriber, "words"), cell(one.priority), cell(seconds(one.deadline_seconds)),
      cell(seconds(one.delay_p95_seconds)), cell(seconds(one.predicted_delay_seconds)),
      cell(known(one.late_by_seconds) ? seconds(one.late_by_seconds) : "never comes", "late"), cell(one.reason || "", "words")]))) });
  put("classes", { children: !now.classes.length ? nothing("Nobody has subscribed yet.") : table(
    [["Class"], ["Subscriptions"], ["Mean delay"], ["predicted"], ["p95"], ["predicted"], ["Success"], ["predicted"]],
    now.classes.map((each) => row([make("Td", "", swatch(each.priority)), cell(each.subscriptions),
      cell(seconds(each.delay_mean_seconds), "measured"), cell(seconds(each.predicted_delay_mean_seconds), "soft"),
      cell(seconds(each.delay_p95_seconds), "measured-p95"), cell(seconds(each.predicted_delay_p95_seconds), "soft predicted-p95"),
      cell(share(each.success_rate), "measured"), cell(share(each.predicted_success_rate), "soft")], { "data-class": each.priority }))) });
  put("links", { children: now.links.length ? now.links.map(link) : nothing("No link carries anything yet.") });
  put("parts", { children: health(now.parts) });
  if (!state.painted) { state.painted = true; requestAnimationFrame(() => performance.mark("firedex-first-useful-paint")); }
}
const colour = (priority) => COLOURS[priority % COLOURS.length];
const swatch = (priority) => [make("Span", "", "■ ", { style: { color: colour(priority) } }), `class ${priority}`];
const linkName = (each) => each.towards ? `${each.switch} → ${each.towards}` : `${each.switch} → hosts`;
const load = (each) => each.classes.reduce((sum, one) => sum + (one.bits_per_second ?? one.planned_bits_per_second), 0) / each.bandwidth_bits_per_second;
function link(each) {
  const used = load(each), scale = Math.max(used, 1);
  const lost = each.bandwidth_bits_per_second < each.full_bandwidth_bits_per_second ? ` of ${bits(each.full_bandwidth_bits_per_second)}` : "";
  const counted = each.classes.some((one) => known(one.bits_per_second));
  const parts = each.classes.map((one) => [one.priority, (one.bits_per_second ?? one.planned_bits_per_second) / each.bandwidth_bits_per_second]);
  return make("Div", "link-row", [
    make("Div", used > 1 || lost ? "bad" : "", `${linkName(each)}: ${share(used)} of ${bits(each.bandwidth_bits_per_second)}${lost}${counted ? "" : ", as planned"}`),
    make("Div", "bar", parts.map(([priority, part]) => make("Span", "", "", { title: `class ${priority}: ${share(part)}`,
      style: { width: `${(100 * part) / scale}%`, background: colour(priority) } })),
      { role: "img", "aria-label": parts.map(([p, part]) => `class ${p} ${share(part)}`).join(", ") })]);
}
function health(parts) {
  const kinds = ["broker", "gateway", "controller", "switch", "client"];
  return kinds.map((kind) => {
    const those = parts.filter((part) => part.kind === kind);
    const ill = those.filter((part) => part.state === "stale" || part.state === "trouble");
    const shown = those.length <= 12 ? those : [...ill, ...those.filter((part) => !ill.includes(part)).slice(0, Math.max(0, 12 - ill.length))];
    const chips = shown.map((part) => make("Span", `chip ${part.state}`,
      `${part.part}: ${part.detail || (part.state === "stale" ? `silent for ${seconds(part.seconds_ago)}` : part.state === "unknown" ? "not heard yet" : part.state)}`,
      { "data-part": part.part, "data-state": part.state }));
    if (shown.length < those.length) chips.push(make("Span", "chip", `${those.length - shown.length} more`));
    return make("Div", "chips", [make("Span", "soft", `${kind}${those.length ? "" : ": not heard yet"}`), ...chips]);
  });
}

// -- topology ---------------------------------------------------------------------------------
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const heat = (used) => used > 1 ? ink("--bad") : used > 0.8 ? ink("--warn") : used > 0 ? ink("--good") : ink("--soft");
async function showTopology() {
  const [now, seen] = await Promise.all([overview(), ask("/v1/network")]);
  const { network, places } = seen, parts = Object.fromEntries(now.parts.filter((p) => p.kind === "switch").map((p) => [p.part, p]));
  const loads = Object.fromEntries(now.links.map((each) => [`${each.switch} ${each.towards || ""}`, load(each)]));
  const worst = (id) => Math.max(0, ...now.links.filter((each) => each.switch === id).map(load));
  const elements = drawn(network, places, loads, worst);
  const look = JSON.stringify([elements, document.documentElement.dataset.theme]);
  if (look !== state.drawn) { state.drawn = look; put("network", { elements, stylesheet: stylesheet() }); }
  put("network-legend", { children: "Colour by load: green up to 80 %, amber up to full, red beyond. Numbers are the load of links." });
  put("switches", { rowData: network.switches.map((each) => ({ id: each.id, load: worst(each.id), bandwidth: bits(each.bandwidth_bits_per_second),
    hosts: places.filter((place) => place.switch === each.id).length,
    state: parts[each.id]?.detail || parts[each.id]?.state || (each.managed ? "no controller" : "not managed") })) });
  if (state.switch) await showSwitch();
}
function drawn(network, places, loads, worst) {
  const below = {}, children = new Set(network.links.map((l) => l.to));
  for (const l of network.links) (below[l.from] ||= []).push(l.to);
  const top = network.broker.switch || network.switches.map((s) => s.id).find((id) => !children.has(id) && below[id]);
  const roots = [top, ...network.switches.map((s) => s.id).filter((id) => id !== top && !children.has(id))].filter(Boolean);
  const elements = [], seen = new Set();
  let column = 0;
  const place = (id, depth) => {
    if (seen.has(id)) return null;
    seen.add(id);
    const behind = places.filter((p) => p.switch === id);
    const first = column;
    for (const next of below[id] || []) place(next, depth + 1);
    const hosts = behind.length > MOST_HOSTS_DRAWN ? [{ subscriber: `${behind.length} hosts`, many: id }] : behind;
    hosts.forEach((host, n) => {
      const hostId = `host ${host.many || host.subscriber}`;
      elements.push({ data: { id: hostId, label: host.subscriber, kind: "host" }, position: { x: column * 130, y: (depth + 1) * 120 + (n % 2) * 45 } });
      elements.push({ data: { source: id, target: hostId, label: "", colour: ink("--line") } });
      column += 0.6;
    });
    column = Math.max(column, first + 1);
    elements.push({ data: { id, label: `${id}\n${share(worst(id))}`, kind: "switch", colour: heat(worst(id)) }, position: { x: ((first + column - 1) / 2) * 130, y: depth * 120 } });
    return id;
  };
  for (const root of roots) { place(root, 0); elements.push({ data: { source: "broker", target: root, label: "", colour: ink("--line") } }); }
  const first = elements.find((each) => each.data.id === roots[0]);
  elements.push({ data: { id: "broker", label: `broker ${network.broker.id}`, kind: "broker" }, position: { x: first ? first.position.x : 0, y: -120 } });
  for (const l of network.links) {
    const used = Math.max(loads[`${l.from} ${l.to}`] || 0, loads[`${l.to} ${l.from}`] || 0);
    elements.push({ data: { source: l.from, target: l.to, label: used ? share(used) : "", colour: heat(used) } });
  }
  return elements;
}
const stylesheet = () => [
  { selector: "node", style: { label: "data(label)", color: ink("--ink"), "font-size": 13, "text-wrap": "wrap", "text-valign": "bottom", "text-margin-y": 4, width: 26, height: 26, "background-color": ink("--soft") } },
  { selector: "node[kind='switch']", style: { shape: "round-rectangle", width: 46, height: 30, "background-color": "data(colour)" } },
  { selector: "node[kind='broker']", style: { shape: "diamond", width: 36, height: 36, "background-color": ink("--accent") } },
  { selector: "edge", style: { width: 4, "line-color": "data(colour)", label: "data(label)", color: ink("--ink"), "font-size": 11, "curve-style": "straight", "text-background-color": ink("--card"), "text-background-opacity": 1 } },
];
async function showSwitch() {
  const found = await ask(`/v1/switches/${encodeURIComponent(state.switch)}`);
  const { desired, status, statistics } = found;
  const counted = Object.fromEntries((statistics?.flows || []).map((f) => [`${f.subscriber} ${f.flow}`, f]));
  const parts = [make("P", "soft", status ? `${status.datapath_id}, ${status.connected ? "connected" : "not connected"}, ${status.settled ? "rules as desired" : "rules not as desired yet"}`
    : "The controller says nothing of it.")];
  if (desired) parts.push(make("H3", "", "Rules and meters"), table(
    [["Subscriber"], ["Flow"], ["Class"], ["Ports"], ["Meter"], ["Packets"], ["now"], ["Metered out"]],
    desired.flows.slice(0, 300).map((rule) => { const c = counted[`${rule.subscriber} ${rule.flow}`]; return row([cell(rule.subscriber), cell(rule.flow), cell(rule.priority),
      cell(rule.endpoints.subscriber_ports.join(", ")), cell(`${+rule.limit.packets_per_second.toFixed(1)}/s, burst ${rule.limit.burst_packets}`),
      cell(c ? c.packets : "–"), cell(c ? `${c.packets_per_second.toFixed(1)}/s` : "–"), cell(c ? c.metered_out_packets : "–")]); })));
  if (desired?.ports.length) parts.push(make("H3", "", "Classes of its ports"), table([["Towards"], ["Bandwidth"], ["Class"], ["Guaranteed"], ["Queue holds"]],
    desired.ports.flatMap((port) => port.classes.map((each) => row([cell(port.towards || "hosts"), cell(bits(port.bandwidth_bits_per_second)), cell(each.priority),
      cell(bits(each.guaranteed_bits_per_second)), cell(each.limit_packets)])))));
  if (statistics?.queues.length) parts.push(make("H3", "", "Queues"), table([["Port"], ["Class"], ["Sent"], ["now"], ["Waiting"], ["Dropped"]],
    statistics.queues.map((q) => row([cell(q.port), cell(q.priority), cell(q.packets), cell(bits(q.bits_per_second)), cell(q.backlog_packets), cell(q.dropped_packets)]))));
  put("switch-title", { children: `Switch ${state.switch}` });
  put("switch", { children: parts });
}

// -- subscriptions and what a change would do ---------------------------------------------------
async function showSubscriptions() {
  const asked = state.watched ? `?subscriber=${encodeURIComponent(state.watched)}` : "";
  const answer = await ask(`/v1/subscriptions${asked}`, { whole: true, more: state.tag ? { "If-None-Match": state.tag } : {} });
  let rows = state.rows;
  if (answer.status !== 304) { state.tag = answer.headers.get("ETag"); rows = (await answer.json()).map((each) => ({ ...each, weight: each.utility.weight })); }
  const measured = staff() ? Object.fromEntries((await ask("/v1/deviations")).map((d) => [`${d.subscriber} ${d.flow}`, d])) : {};
  const changed = [];
  for (const each of rows) {
    const d = measured[`${each.subscriber} ${each.flow}`];
    const p95 = d?.delay_p95_seconds ?? null, success = d?.success_rate ?? null;
    if (each.delay_p95_seconds === p95 && each.success_rate === success) continue;
    Object.assign(each, { delay_p95_seconds: p95, success_rate: success });
    changed.push(each);
  }
  for (const each of rows) each.late = each.late_rank = +(known(each.deadline_seconds) && (known(each.delay_p95_seconds) ? each.delay_p95_seconds > each.deadline_seconds : each.deadline_met === false));
  if (rows !== state.rows) { state.rows = rows; put("subscriptions", { rowData: rows.map((each) => ({ ...each })) }); }
  else if (changed.length) put("subscriptions", { rowTransaction: { update: changed.map((each) => ({ ...each })), async: true } });
  put("phase-form", { hidden: state.visitor.role !== "command" });
  if (staff()) { await overview(); await phases(); }
}
async function phases() {
  const profiles = await ask("/v1/profiles");
  const incident = state.overview.incident, isOpen = incident && !incident.closed_at;
  put("phases", { children: (isOpen ? `Now: ${incident.phase}. ` : "No incident is open: applying opens one. ")
    + (profiles.length ? `Phases with a profile: ${profiles.map((p) => p.phase).join(", ")}.` : "No phase has a profile yet.") });
  put("opening", { hidden: Boolean(isOpen) });
}
const byWeight = (moves) => [...moves].sort((a, b) => weightOf(b) - weightOf(a));
const weightOf = (m) => 10 * Math.abs((m.priority_after ?? 99) - (m.priority_before ?? 99)) + Math.abs((m.drop_rate_after ?? 1) - (m.drop_rate_before ?? 1));
const number = (value) => value === "" || !known(value) ? null : Number(value);
async function preview(change, hypothetical, title) {
  state.change = change;
  put("preview-card", { hidden: false });
  if (!staff()) { put("preview", { children: nothing(`${title}. What it would do to all is for operators to see; you may apply it.`) }); return; }
  put("preview", { children: nothing("Planning …") });
  const [then, now] = await Promise.all([ask("/v1/what-if", { method: "POST", body: hypothetical }), overview()]);
  const present = Object.fromEntries(now.classes.map((each) => [each.priority, each]));
  const future = Object.fromEntries(then.prediction.classes.map((each) => [each.priority, each]));
  const moves = byWeight(then.difference.subscriptions), priorities = Object.keys({ ...present, ...future }).sort((a, b) => a - b);
  const shares = (p) => [p.achieved_utility_rate, p.maximum_utility ? Math.min(p.timely_utility / p.maximum_utility, 1) : 1];
  const [achieved, timely] = shares(then.prediction);
  const differ = (a, b) => a === b ? "" : "changed";
  put("preview", { children: [
    make("P", "", title),
    table([["", "words"], ["now"], ["then"]], [
      row([cell("Utility achieved"), cell(share(now.utility?.predicted), "now-utility"), cell(share(achieved), "then-utility")]),
      row([cell("Utility in time"), cell(share(now.utility?.predicted_timely)), cell(share(timely))]),
      row([cell("Predicted to miss their deadline"), cell(now.predicted_late), cell(then.prediction.deadlines_missed, then.prediction.deadlines_missed > now.predicted_late ? "bad" : "")])]),
    table([["Class"], ["Subscriptions now"], ["then"], ["p95 now"], ["then"], ["Success now"], ["then"]], priorities.map((p) => {
      const a = present[p], b = future[p], was = seconds(a?.predicted_delay_p95_seconds), will = seconds(b?.delay_p95_seconds);
      return row([make("Td", "", swatch(p)), cell(a?.subscriptions ?? 0), cell(b?.subscriptions ?? 0), cell(was, "now-p95"), cell(will, `then-p95 ${differ(was, will)}`),
        cell(share(a?.predicted_success_rate), "now-success"), cell(share(b?.success_rate), "then-success")], { "data-class": p }); })),
    make("P", "", moves.length ? `${moves.length} subscriptions are served otherwise:` : "Every subscription stays as it is."),
    moves.length ? table([["Filter"], ["Subscriber", "words"], ["Class now"], ["then"], ["Dropped now"], ["then"]], moves.slice(0, 50).map((m) =>
      row([cell(m.filter), cell(m.subscriber, "words"), cell(m.priority_before ?? "–"), cell(m.priority_after ?? "–"), cell(share(m.drop_rate_before)), cell(share(m.drop_rate_after))]))) : "",
  ] });
}
async function previewSubscription(remove, weight, deadline) {
  const chosen = state.chosen;
  if (!chosen) throw new Refused(0, "Choose a subscription in the table first.");
  const path = `/v1/subscribers/${encodeURIComponent(chosen.subscriber)}`;
  const answer = await ask(path, { whole: true });
  const registration = await answer.json(), tag = answer.headers.get("ETag"), { subscriber } = registration;
  const before = subscriber.subscriptions.find((each) => each.filter === chosen.filter);
  if (!before) throw new Refused(0, `${chosen.subscriber} has no ${chosen.filter} any more.`);
  if (!remove && known(weight) && !(Number(weight) >= 0)) throw new Refused(0, "A weight is 0 or more.");
  const after = { ...before, utility: { ...before.utility, weight: number(weight) ?? before.utility.weight }, deadline_seconds: number(deadline) };
  const others = subscriber.subscriptions.filter((each) => each.filter !== chosen.filter);
  const hypothetical = { subscribers: [{ ...registration, subscriber: { ...subscriber, subscriptions: remove ? others
    : subscriber.subscriptions.map((each) => each.filter === chosen.filter ? after : each) } }] };
  const change = remove
    ? { path: `${path}/subscriptions?filter=${encodeURIComponent(chosen.filter)}&`, method: "DELETE", more: { "If-Match": tag } }
    : { path: `${path}/subscriptions?`, method: "POST", body: { subscriptions: [after] }, more: { "If-Match": tag } };
  await preview(change, hypothetical, remove ? `${chosen.filter} of ${chosen.subscriber} removed`
    : `${chosen.filter} of ${chosen.subscriber}: weight ${after.utility.weight}, ${known(after.deadline_seconds) ? `deadline ${seconds(after.deadline_seconds)}` : "no deadline"}`);
}
async function previewPhase(phase, title) {
  if (!phase) throw new Refused(0, "Name a phase.");
  const incident = (await overview()).incident, isOpen = incident && !incident.closed_at;
  await preview(isOpen ? { path: "/v1/incident/phase?", method: "PUT", body: { phase } }
    : { path: "/v1/incident?", method: "POST", body: { title: title || "incident", phase } }, { phase }, `Phase ${phase}`);
}
async function apply() {
  const { path, ...how } = state.change;
  put("apply", { disabled: true });
  try { await ask(`${path}wait_seconds=10`, how); } finally { put("apply", { disabled: false }); }
  discard();
  refresh();
}
function discard() { state.change = null; put("preview-card", { hidden: true }); put("preview", { children: [] }); }

// -- history ----------------------------------------------------------------------------------
async function showHistory() {
  await overview();
  const length = state.period || 600, until = moment(state.until), to = until || Date.now() / 1000;
  const [records, steps] = await Promise.all([ask("/v1/configurations?limit=1000"),
    ask(`/v1/history?from_seconds=${(to - length).toFixed(0)}&to_seconds=${to.toFixed(0)}`)]);
  const look = JSON.stringify([steps, document.documentElement.dataset.theme, length]);
  if (look !== state.replayed) {
    state.replayed = look;
    state.steps = steps;
    state.moments = [...new Set(steps.map((step) => step.at))];
    put("replay", { figure: replay(steps, records, to - length, to) });
    const last = Math.max(state.moments.length - 1, 0), follow = !known(state.at) || state.at >= (state.last ?? 0);
    state.last = last;
    put("moment", { max: Math.max(last, 1), ...(follow ? { value: last } : {}) });
    showMoment(follow ? last : state.at);
  }
  const told = JSON.stringify(records);
  if (told !== state.told) { state.told = told; state.records = records; put("configurations", { rowData: records }); }
}
function moment(text) {
  const found = /^(\d{1,2}):(\d{2})$/.exec(text || "");
  if (!found) return null;
  const at = new Date();
  at.setHours(Number(found[1]), Number(found[2]), 59, 0);
  if (at > new Date()) at.setDate(at.getDate() - 1);
  return at / 1000;
}
const success = (step) => { const all = step.delivered_events + step.missing_events; return all ? step.delivered_events / all : null; };
function replay(steps, records, from, to) {
  const of = (p) => steps.filter((step) => step.priority === p);
  const traces = [...new Set(steps.map((step) => step.priority))].sort().flatMap((p) => [
    { x: of(p).map((s) => s.at), y: of(p).map((s) => s.delay_p95_seconds), name: `class ${p}`, legendgroup: p, mode: "lines+markers", line: { color: colour(p) } },
    { x: of(p).map((s) => s.at), y: of(p).map(success), name: `class ${p}`, legendgroup: p, showlegend: false, mode: "lines+markers", line: { color: colour(p) }, yaxis: "y2" }]);
  const axis = { gridcolor: ink("--line"), color: ink("--ink"), zeroline: false };
  const within = records.filter((r) => r.in_force_at && new Date(r.in_force_at) / 1000 > from && new Date(r.in_force_at) / 1000 < to).slice(0, 100);
  return { data: traces, layout: { height: 380, margin: { l: 70, r: 10, t: 10, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--ink") },
    legend: { orientation: "h" }, uirevision: `${state.period}`, xaxis: { ...axis, type: "date", range: [new Date(from * 1000), new Date(to * 1000)] },
    yaxis: { ...axis, domain: [0.45, 1], title: { text: "p95 delay, s" }, rangemode: "tozero" }, yaxis2: { ...axis, domain: [0, 0.35], title: { text: "success" }, range: [0, 1.05], tickformat: ".0%" },
    shapes: within.map((r) => ({ type: "line", x0: r.in_force_at, x1: r.in_force_at, y0: 0, y1: 1, yref: "paper", line: { color: ink("--soft"), dash: "dot", width: 1 } })) } };
}
function showMoment(index) {
  state.at = index;
  const at = state.moments?.[index];
  put("moment-label", { children: at ? `Moment: ${clock(at)}` : "Moment: nothing was measured in this time" });
  if (!at) { put("at-moment", { children: [] }); return; }
  put("at-moment", { children: table([["Class"], ["Plan"], ["Mean delay"], ["p95"], ["Success"], ["Events"]],
    state.steps.filter((step) => step.at === at).map((step) => row([make("Td", "", swatch(step.priority)), cell(step.configuration_version),
      cell(seconds(step.delay_mean_seconds)), cell(seconds(step.delay_p95_seconds)), cell(share(success(step))), cell(step.delivered_events)]))) });
}
async function showDifference(record) {
  const before = (state.records || []).filter((r) => r.version < record.version && r.state !== "failed").map((r) => r.version).sort((a, b) => b - a)[0];
  if (!before) { put("difference", { children: nothing(`Plan ${record.version} is the first: ${record.reason}.`) }); return; }
  const found = await ask(`/v1/configurations/${before}/difference/${record.version}`);
  const moves = byWeight(found.subscriptions);
  put("difference", { children: [make("P", "", `From plan ${before} to plan ${record.version} (${record.reason}${record.error ? `; failed: ${record.error}` : ""}): ${found.flows.length} flows and ${moves.length} subscriptions differ.`),
    moves.length ? table([["Filter"], ["Subscriber", "words"], ["Class before"], ["after"], ["Dropped before"], ["after"]], moves.slice(0, 200).map((m) =>
      row([cell(m.filter), cell(m.subscriber, "words"), cell(m.priority_before ?? "–"), cell(m.priority_after ?? "–"), cell(share(m.drop_rate_before)), cell(share(m.drop_rate_after))]))) : ""] });
}
function exportHistory() {
  const columns = ["at", "seconds", "priority", "configuration_version", "delivered_events", "missing_events", "delay_mean_seconds", "delay_p95_seconds"];
  const lines = (state.steps || []).map((step) => columns.map((name) => step[name] ?? "").join(","));
  put("download", { data: { content: [columns.join(","), ...lines].join("\r\n") + "\r\n", filename: "firedex-history.csv", type: "text/csv", base64: false } });
}
async function openReport() {
  const answer = await ask("/v1/validation-report", { whole: true });
  window.open(URL.createObjectURL(await answer.blob()), "_blank", "noopener");
}

// -- light and dark -----------------------------------------------------------------------------
const system = window.matchMedia("(prefers-color-scheme: dark)");
function theme(name) {
  const root = document.documentElement, dark = (name || (system.matches ? "dark" : "light")) === "dark";
  root.dataset.theme = root.dataset.agThemeMode = dark ? "dark" : "light";
  if (state.page) { put("theme", { children: dark ? "Light" : "Dark" }); refresh(); }
}
theme(localStorage.getItem("firedex-theme"));
system.addEventListener("change", () => theme(localStorage.getItem("firedex-theme")));

// -- what people do ------------------------------------------------------------------------------
const show = { now: showNow, topology: showTopology, subscriptions: showSubscriptions, history: showHistory };
const act = (work) => (...given) => { if (given.some(known)) work(...given); return window.dash_clientside.no_update; };
dash.firedex = {
  go: (pathname, search, later) => {
    state.later = later;
    const name = (pathname || "").replace(/\/+$/, "").split("/").pop();
    const first = state.page === null;
    state.page = PAGES.includes(name) ? name : "now";
    state.watched = new URLSearchParams(search || "").get("subscriber");
    refusal("");
    if (first) { theme(localStorage.getItem("firedex-theme")); setInterval(refresh, TICK_MILLISECONDS); start(); }
    else if (state.visitor) open();
    return window.dash_clientside.no_update;
  },
  signIn: act((_clicks, _submits, value) => { if (!value) return; sessionStorage.setItem("firedex-token", value.trim()); start(); }),
  signOut: act(() => { sessionStorage.removeItem("firedex-token"); window.location.assign("/dashboard/"); }),
  switchTheme: act(() => { const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; localStorage.setItem("firedex-theme", name); theme(name); }),
  chooseSubscription: act((rows) => {
    const chosen = state.chosen = rows[0];
    if (!chosen) return;
    put("chosen", { children: `${chosen.filter} of ${chosen.subscriber}` });
    put("weight", { value: chosen.utility.weight });
    put("deadline", { value: chosen.deadline_seconds ?? "" });
  }),
  previewSubscription: act((_change, _removal, weight, deadline) => {
    const button = dash.callback_context.triggered[0]?.prop_id.split(".")[0];
    if (button) attempt(() => previewSubscription(button === "preview-removal", weight, deadline));
  }),
  previewPhase: act((clicks, phase, title) => { if (clicks) attempt(() => previewPhase(phase, title)); }),
  apply: act(() => attempt(apply)),
  discard: act(discard),
  findSubscriptions: act((text) => put("subscriptions", { dashGridOptions: { quickFilterText: text } })),
  exportSubscriptions: act(() => put("subscriptions", { exportDataAsCsv: true, csvExportParams: { fileName: "firedex-subscriptions.csv" } })),
  chooseNode: act((data) => { if (data.kind === "switch") { state.switch = data.id; attempt(showSwitch); } }),
  chooseSwitch: act((rows) => { if (rows[0]) { state.switch = rows[0].id; attempt(showSwitch); } }),
  chooseConfiguration: act((rows) => { if (rows[0]) attempt(() => showDifference(rows[0])); }),
  choosePeriod: act((period, until) => { state.period = period; state.until = until; state.at = null; refresh(); }),
  chooseMoment: act((index) => showMoment(index)),
  exportHistory: act(exportHistory),
  openReport: act(() => attempt(openReport)),
};
})();
