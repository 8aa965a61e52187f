/* Page Topology: switches, links and hosts, coloured by load; rules, meters and queues of a switch. */
"use strict";
(() => {
const { state, show, ask, put, make, cell, row, table, ink, share, bits, load, counted } = firedex;
const MOST_HOSTS_DRAWN = 12, COLUMN = 150, LEVEL = 130, MOST_RULES = 300;
const LEGEND = "Colours show the measured load: green up to 80 %, amber up to 100 %, red above 100 % or for a switch with a problem. "
  + "Grey and dashed links show the planned load, because there is no measurement. Arrows point away from the broker.";

/* Return the tree of switches on the paths from the broker. A link may be listed in either direction. If the
   switch of the broker is unknown, links are assumed to lead away from the broker. */
function tree(network) {
  const ids = network.switches.map((each) => each.id), home = network.broker.switch;
  const neighbours = Object.fromEntries(ids.map((id) => [id, []]));
  for (const link of network.links) {
    neighbours[link.from].push(link.to);
    if (home) neighbours[link.to].push(link.from);
  }
  const entered = new Set(network.links.map((link) => link.to));
  const roots = home ? [home] : ids.filter((id) => !entered.has(id));
  const below = Object.fromEntries(ids.map((id) => [id, []])), seen = new Set(roots);
  const waiting = [...roots];
  const follow = () => {
    while (waiting.length) {
      const here = waiting.shift();
      for (const there of neighbours[here]) if (!seen.has(there)) { seen.add(there); below[here].push(there); waiting.push(there); }
    }
  };
  follow();
  for (const id of ids) if (!seen.has(id)) { roots.push(id); seen.add(id); waiting.push(id); follow(); }
  return { roots, below };
}
const heat = (used) => ink(used > 1 ? "--bad" : used > 0.8 ? "--warn" : used > 0 ? "--good" : "--soft");
const switchNode = (id) => `switch ${id}`, hostNode = (id) => `host ${id}`;

/* Return the port of a switch with the highest load, by measured loads if there are any. */
function mostLoaded(ports) {
  const all = Object.values(ports || {}), measured = all.filter((each) => !each.planned);
  return (measured.length ? measured : all).reduce((most, each) => (!most || each.used > most.used ? each : most), undefined);
}
const loadColour = (one) => (!one || one.planned ? ink("--soft") : heat(one.used));
const loadWords = (one) => (one ? `${share(one.used)}${one.planned ? " planned" : ""}` : "");

/* Return nodes and edges. `loads`: for each switch and neighbour ("" for its hosts) the load `used`, and whether
   it is `planned`; `problems`: the problem of each switch that has one. */
function drawing(network, places, loads, problems = {}) {
  const { roots, below } = tree(network);
  // Switches of publishers: events flow from there to the broker, so they are drawn above it.
  const before = new Set(roots.filter((id) => roots.length > 1 && id !== network.broker.switch && !below[id].length
    && network.switches.find((each) => each.id === id).managed === false && !places.some((each) => each.switch === id)));
  const loadOf = (id, towards) => loads[id]?.[towards];
  const nodes = [], edges = [];
  const edge = (source, target, one) => edges.push({ data: { id: `${source} > ${target}`, source, target,
    label: loadWords(one), colour: one ? loadColour(one) : ink("--line"), arrow: one ? "triangle" : "none", line: one?.planned ? "dashed" : "solid" } });
  const switchAt = (id) => {
    const one = mostLoaded(loads[id]);
    return { data: { id: switchNode(id), name: id, kind: "switch", colour: problems[id] ? ink("--bad") : loadColour(one),
      label: problems[id] ? `${id}: ${problems[id]}` : `${id}  ${loadWords(one)}`.trim() } };
  };
  let column = 0;
  const place = (id, depth) => {
    const first = column, hosts = places.filter((each) => each.switch === id).map((each) => each.subscriber);
    for (const next of below[id]) place(next, depth + 1);
    const drawn = hosts.length > MOST_HOSTS_DRAWN ? [[`all of ${id}`, `${hosts.length} hosts`]] : hosts.map((name) => [name, name]);
    drawn.forEach(([name, label], n) => {
      nodes.push({ data: { id: hostNode(name), label, kind: "host" }, position: { x: column * COLUMN, y: (depth + 1) * LEVEL + (n % 2) * 45 } });
      edge(switchNode(id), hostNode(name));
      column += 0.6;
    });
    column = Math.max(column, first + 1);
    nodes.push({ ...switchAt(id), position: { x: ((first + column - 1) / 2) * COLUMN, y: depth * LEVEL } });
  };
  const after = roots.filter((id) => !before.has(id));
  for (const root of after) place(root, 0);
  const top = nodes.find((node) => node.data.id === switchNode(after[0]));
  nodes.push({ data: { id: "broker", label: `broker ${network.broker.id}`, kind: "broker" }, position: { x: top?.position.x ?? 0, y: -LEVEL } });
  for (const root of after) edge("broker", switchNode(root));
  [...before].forEach((id, n) => {
    nodes.push({ ...switchAt(id), position: { x: (top?.position.x ?? 0) + (n - (before.size - 1) / 2) * COLUMN, y: -2 * LEVEL } });
    edge(switchNode(id), "broker");
  });
  for (const link of network.links) {
    const directions = [[link.from, link.to], [link.to, link.from]].filter(([from, to]) => loadOf(from, to) !== undefined);
    for (const [from, to] of directions) edge(switchNode(from), switchNode(to), loadOf(from, to));
    if (!directions.length) edge(switchNode(link.from), switchNode(link.to));
  }
  return [...nodes, ...edges];
}
const stylesheet = () => [
  { selector: "node", style: { label: "data(label)", color: ink("--ink"), "font-size": 17, "text-valign": "bottom", "text-margin-y": 5,
    "text-background-color": ink("--card"), "text-background-opacity": 1, width: 24, height: 24, "background-color": ink("--soft") } },
  { selector: "node[kind='switch']", style: { shape: "round-rectangle", width: 46, height: 30, "background-color": "data(colour)",
    "text-valign": "center", "text-halign": "right", "text-margin-x": 6, "text-margin-y": 0 } },
  { selector: "node[kind='broker']", style: { shape: "diamond", width: 36, height: 36, "background-color": ink("--accent"),
    "text-valign": "center", "text-halign": "right", "text-margin-x": 6, "text-margin-y": 0 } },
  { selector: "edge", style: { width: 4, "line-style": "data(line)", "line-color": "data(colour)", "target-arrow-color": "data(colour)", "target-arrow-shape": "data(arrow)",
    label: "data(label)", color: ink("--ink"), "font-size": 15, "curve-style": "bezier", "text-background-color": ink("--card"), "text-background-opacity": 1 } },
];

/* Return why the state of a switch is unknown. */
function whyUnknown(parts) {
  const controller = parts.find((part) => part.kind === "controller");
  if (controller?.state === "trouble") return "the controller does not answer";
  if (controller?.state === "healthy") return "unknown to the controller";
  return controller?.detail ? "no controller" : "the controller has not answered yet";
}
show.topology = async () => {
  const [now, { network, places }] = await Promise.all([firedex.overview(), ask("/v1/network")]);
  const parts = Object.fromEntries(now.parts.filter((part) => part.kind === "switch").map((part) => [part.part, part]));
  const loads = {}, problems = {};
  for (const link of now.links) (loads[link.switch] ||= {})[link.towards || ""] = { used: load(link), planned: !counted(link) };
  for (const part of Object.values(parts)) if (part.state !== "healthy") problems[part.part] = part.detail || part.state;
  const elements = drawing(network, places, loads, problems);
  const look = JSON.stringify([elements, document.documentElement.dataset.theme]);
  if (look !== state.drawn) { state.drawn = look; put("network", { elements, stylesheet: stylesheet() }); }
  put("network-legend", { children: LEGEND });
  put("switches", { rowData: network.switches.map((each) => ({
    id: each.id,
    load: mostLoaded(loads[each.id])?.used ?? null,
    load_is: loads[each.id] ? (mostLoaded(loads[each.id]).planned ? "planned" : "measured") : "",
    bandwidth: bits(each.bandwidth_bits_per_second),
    hosts: places.filter((place) => place.switch === each.id).length,
    state: parts[each.id]?.detail || parts[each.id]?.state || (each.managed ? whyUnknown(now.parts) : "not managed"),
  })) });
  firedex.fitTable("switches", 500);
  if (state.switch) await showSwitch();
};

function rules(desired, statistics) {
  const counted = Object.fromEntries((statistics?.flows || []).map((each) => [`${each.subscriber} ${each.flow}`, each]));
  return table([["Subscriber"], ["Flow"], ["Class"], ["Ports"], ["Meter"], ["Packets"], ["now"], ["Dropped by meter"]],
    desired.flows.slice(0, MOST_RULES).map((rule) => {
      const seen = counted[`${rule.subscriber} ${rule.flow}`];
      return row([cell(rule.subscriber), cell(rule.flow), cell(rule.priority), cell(rule.endpoints.subscriber_ports.join(", ")),
        cell(`${+rule.limit.packets_per_second.toFixed(1)}/s, burst ${rule.limit.burst_packets}`),
        cell(seen ? seen.packets : "–"), cell(seen ? `${seen.packets_per_second.toFixed(1)}/s` : "–"), cell(seen ? seen.metered_out_packets : "–")]);
    }));
}
const ports = (desired) => table([["Towards"], ["Bandwidth"], ["Class"], ["Guaranteed"], ["Queue limit"]],
  desired.ports.flatMap((port) => port.classes.map((each) => row([
    cell(port.towards || "hosts"), cell(bits(port.bandwidth_bits_per_second)), cell(each.priority),
    cell(bits(each.guaranteed_bits_per_second)), cell(each.limit_packets)]))));
const queues = (statistics) => table([["Port"], ["Class"], ["Sent"], ["now"], ["Waiting"], ["Dropped"]],
  statistics.queues.map((queue) => row([cell(queue.port), cell(queue.priority), cell(queue.packets),
    cell(bits(queue.bits_per_second)), cell(queue.backlog_packets), cell(queue.dropped_packets)])));
async function showSwitch() {
  const requested = state.switch;
  const { desired, status, statistics } = await ask(`/v1/switches/${encodeURIComponent(requested)}`);
  if (requested !== state.switch) return;
  const summary = status ? `${status.datapath_id}, ${status.connected ? "connected" : "not connected"}, ${status.settled ? "rules as desired" : "rules differ from the desired rules"}`
    : "The controller has no information about this switch.";
  const parts = [make("P", "soft", summary)];
  if (desired) parts.push(make("H3", "", "Rules and meters"), rules(desired, statistics));
  if (desired?.ports.length) parts.push(make("H3", "", "Classes of each port"), ports(desired));
  if (statistics?.queues.length) parts.push(make("H3", "", "Queues"), queues(statistics));
  put("switch-title", { children: `Switch ${requested}` });
  put("switch", { children: parts });
}
Object.assign(firedex, { drawing, tree, whyUnknown, showSwitch });
})();
