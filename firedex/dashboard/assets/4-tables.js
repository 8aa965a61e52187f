/* Tables: as high as their rows need, up to a limit, and on a narrow screen with what matters most. */
"use strict";
(() => {
const narrow = window.matchMedia("(max-width: 900px)");
const FEWEST_ROWS = 2, ROW = 42, EDGES = 18;  // with room for a scroll bar: two that each make the other needed would stay
const fitted = new Set();

function fitHeight(name, grid, most) {
  const box = document.getElementById(name);
  const part = (selector) => box?.querySelector(selector)?.offsetHeight ?? 0;
  if (!part(".ag-header")) return;  // not to be seen now
  const rows = Math.max(grid.getDisplayedRowCount(), FEWEST_ROWS) * (grid.getSizesForCurrentTheme?.().rowHeight ?? ROW);
  const height = `${Math.min(part(".ag-header") + rows + part(".ag-body-horizontal-scroll") + EDGES, most)}px`;
  if (box.style.height !== height) box.style.height = height;
}
/* `less`: columns that a narrow screen has no room for. Once for each table. */
async function fitTable(name, most, less = []) {
  if (fitted.has(name)) return;
  fitted.add(name);
  const grid = await window.dash_ag_grid.getApiAsync(name);
  const height = () => requestAnimationFrame(() => fitHeight(name, grid, most));
  const columns = () => {
    grid.setColumnsVisible(less, !narrow.matches);
    requestAnimationFrame(() => { grid.sizeColumnsToFit(); height(); });
  };
  for (const event of ["modelUpdated", "gridSizeChanged"]) grid.addEventListener(event, height);
  narrow.addEventListener("change", columns);
  columns();
}
Object.assign(firedex, { fitTable });
})();
