/* Figures, times and tables as people read them. Pure: nothing is asked, nothing is shown here.
   Files are loaded in the order of their names; each puts what others need into `firedex`. */
"use strict";
(() => {
const firedex = (window.firedex = {});

const known = (value) => value !== null && value !== undefined;
const seconds = (value) =>
  !known(value) ? "–"
  : value < 0.0995 ? `${(value * 1000).toPrecision(3)} ms`
  : value < 9.95 ? `${value.toFixed(2)} s`
  : value < 90 ? `${value.toFixed(0)} s`
  : value < 5400 ? `${(value / 60).toFixed(0)} min`
  : `${(value / 3600).toFixed(0)} h`;
const share = (value) =>
  known(value) ? `${(value * 100).toFixed(value < 0.9995 && value > 0.99 ? 1 : 0)} %` : "–";
const exactShare = (value) => (known(value) ? `${+(value * 100).toFixed(1)} %` : "–");
const bits = (value) =>
  value >= 1e9 ? `${+(value / 1e9).toPrecision(3)} Gbit/s`
  : value >= 1e6 ? `${+(value / 1e6).toPrecision(3)} Mbit/s`
  : `${+(value / 1e3).toPrecision(3)} kbit/s`;

/* Times are the viewer's. Plotly takes dates as they are written, whatever their zone: `local`
   writes them as the viewer's clock shows them, and everything on a chart goes through it. */
const two = (value) => String(value).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const timeOfDay = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
const local = (moment) => { const at = new Date(moment); return `${day(at)} ${timeOfDay(at)}`; };
const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
function clock(moment, now = new Date()) {
  if (!known(moment) || moment === "") return "";
  const at = new Date(moment);
  const date = day(at) === day(now) ? "" : `${at.getDate()} ${MONTHS[at.getMonth()]} `;
  return `${date}${timeOfDay(at)}`;
}
/* The last time that the viewer's clock showed `text` (hours:minutes), none if it is no such text. */
function lastTime(text, now = new Date()) {
  const found = /^\s*(\d{1,2}):(\d{2})\s*$/.exec(text || "");
  if (!found || Number(found[1]) > 23 || Number(found[2]) > 59) return null;
  const at = new Date(now);
  at.setHours(Number(found[1]), Number(found[2]), 59, 0);
  if (at - 59000 > now) at.setDate(at.getDate() - 1);
  return at;
}

/* A spreadsheet takes what begins like this for a formula; a quote before it makes it text. */
const FORMULA = /^\s*[=+\-@\t\r]/;
function csvCell(value) {
  if (!known(value)) return "";
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n\t']/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = (columns, rows) =>
  [columns.join(","), ...rows.map((row) => columns.map((name) => csvCell(row[name])).join(","))]
    .join("\r\n") + "\r\n";

Object.assign(firedex, { known, seconds, share, exactShare, bits, local, zone, clock, lastTime, csv, csvCell });
window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
  firedexSeconds: (value) => (known(value) ? seconds(value) : ""),
  firedexShare: (value) => (known(value) ? share(value) : ""),
  firedexClock: (value) => clock(value),
});
})();
