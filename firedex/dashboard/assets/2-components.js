/* Dash components made here, and put where the layout has room for them. */
"use strict";
(() => {
const { share, bits, known } = firedex;
const COLOURS = ["#3b7dd8", "#e8590c", "#2f9e44", "#ae3ec9", "#1098ad", "#d6336c", "#7c8cf8", "#a08a10"];

const LEAST_LOSS = 0.05;  // as for alerts

const put = (id, properties) => window.dash_clientside.set_props(id, properties);
const make = (type, className, children, more) =>
  ({ namespace: "dash_html_components", type, props: { className, children, ...more } });
const cell = (text, className) => make("Td", className, String(text));
const row = (cells, more) => make("Tr", "", cells, more);
const heading = ([text, className]) => make("Th", className || "", text);
const table = (head, rows) =>
  make("Div", "scroll", make("Table", "", [
    make("Thead", "", make("Tr", "", head.map(heading))),
    make("Tbody", "", rows),
  ]), { tabIndex: 0 });
const nothing = (text) => make("P", "soft", text);

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (priority) => COLOURS[priority % COLOURS.length];
const swatch = (priority) => [
  make("Span", "", "■ ", { style: { color: colour(priority) } }), `class ${priority}`];

/* What a link carries: counted by its switch where that is known, else as planned. */
const carried = (part) => part.bits_per_second ?? part.planned_bits_per_second;
const counted = (link) => link.classes.some((part) => known(part.bits_per_second));
const load = (link) =>
  link.classes.reduce((sum, part) => sum + carried(part), 0) / link.bandwidth_bits_per_second;
function linkRow(link) {
  const whole = link.full_bandwidth_bits_per_second, now = link.bandwidth_bits_per_second;
  const used = load(link), scale = Math.max(used, 1);
  const lost = now < whole ? `, built for ${bits(whole)}` : "", little = 1 - now / whole < LEAST_LOSS;
  const planned = counted(link) ? "" : ", as planned";
  const parts = link.classes.map((part) => [part.priority, carried(part) / now]);
  const bars = parts.map(([priority, part]) => make("Span", "", "", {
    title: `class ${priority}: ${share(part)}`,
    style: { width: `${(100 * part) / scale}%`, background: colour(priority) } }));
  const name = `${link.switch} → ${link.towards || "hosts"}`;
  return make("Div", "link-row", [
    make("Div", used > 1 || !little ? "bad" : "", `${name}: ${share(used)} of ${bits(now)}${lost}${planned}`),
    make("Div", planned ? "bar planned" : "bar", bars, { role: "img",
      "aria-label": parts.map(([p, part]) => `class ${p} ${share(part)}`).join(", ") }),
  ]);
}

Object.assign(firedex, { put, make, cell, row, table, nothing, ink, colour, swatch, load, counted, linkRow });
})();
