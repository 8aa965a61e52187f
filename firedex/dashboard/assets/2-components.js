/* Creates Dash components and sets the properties of components of the layout. */
"use strict";
(() => {
const { share, bits, known } = firedex;
const COLOURS = ["#3b7dd8", "#e8590c", "#2f9e44", "#ae3ec9", "#1098ad", "#d6336c", "#7c8cf8", "#a08a10"];

const LEAST_LOSS = 0.05;  // the same limit as in alerts

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

/* Traffic of a link: measured by its switch, or planned if there is no measurement. */
const carried = (part) => part.bits_per_second ?? part.planned_bits_per_second;
const counted = (link) => link.classes.some((part) => known(part.bits_per_second));
const load = (link) =>
  link.classes.reduce((sum, part) => sum + carried(part), 0) / link.bandwidth_bits_per_second;
function linkRow(link) {
  const whole = link.full_bandwidth_bits_per_second, now = link.bandwidth_bits_per_second;
  const used = load(link), scale = Math.max(used, 1);
  const lost = now < whole ? `, reduced from ${bits(whole)}` : "", little = 1 - now / whole < LEAST_LOSS;
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

/* Tables are as high as their rows, up to a limit. A narrow screen shows only the most important columns. */
(() => {
const narrow = window.matchMedia("(max-width: 900px)");
const FEWEST_ROWS = 2, ROW = 42, EDGES = 18;  // EDGES has room for a scroll bar, so that a horizontal one does not cause a vertical one
const fitted = new Set();

function fitHeight(name, grid, most) {
  const box = document.getElementById(name);
  const part = (selector) => box?.querySelector(selector)?.offsetHeight ?? 0;
  if (!part(".ag-header")) return;  // not visible
  const rows = Math.max(grid.getDisplayedRowCount(), FEWEST_ROWS) * (grid.getSizesForCurrentTheme?.().rowHeight ?? ROW);
  const height = `${Math.min(part(".ag-header") + rows + part(".ag-body-horizontal-scroll") + EDGES, most)}px`;
  if (box.style.height !== height) box.style.height = height;
}
/* Set up a table once. `wideOnly`: columns that are hidden on a narrow screen. */
async function fitTable(name, most, wideOnly = []) {
  if (fitted.has(name)) return;
  fitted.add(name);
  const grid = await window.dash_ag_grid.getApiAsync(name);
  const height = () => requestAnimationFrame(() => fitHeight(name, grid, most));
  const columns = () => {
    grid.setColumnsVisible(wideOnly, !narrow.matches);
    requestAnimationFrame(() => { grid.sizeColumnsToFit(); height(); });
  };
  for (const event of ["modelUpdated", "gridSizeChanged"]) grid.addEventListener(event, height);
  narrow.addEventListener("change", columns);
  columns();
}
Object.assign(firedex, { fitTable });
})();
