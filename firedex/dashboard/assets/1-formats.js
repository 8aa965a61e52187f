/* Numbers, times and tables as readable text. Pure: no requests, no output.
   Scripts are loaded in the order of their names. Each one adds the functions that others need to `firedex`. */
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

/* Times are shown in the time zone of the viewer. Plotly ignores time zones, so all dates of charts
   are converted by `local`. */
const twoDigits = (value) => String(value).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const day = (date) => `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
const timeOfDay = (date) => `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}:${twoDigits(date.getSeconds())}`;
const local = (moment) => { const date = new Date(moment); return `${day(date)} ${timeOfDay(date)}`; };
const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
function clock(moment, now = new Date()) {
  if (!known(moment) || moment === "") return "";
  const date = new Date(moment);
  const prefix = day(date) === day(now) ? "" : `${date.getDate()} ${MONTHS[date.getMonth()]} `;
  return `${prefix}${timeOfDay(date)}`;
}
/* Return the last moment with the time of day `text` (hours:minutes), or null if `text` is invalid. */
function lastTime(text, now = new Date()) {
  const found = /^\s*(\d{1,2}):(\d{2})\s*$/.exec(text || "");
  if (!found || Number(found[1]) > 23 || Number(found[2]) > 59) return null;
  const date = new Date(now);
  date.setHours(Number(found[1]), Number(found[2]), 59, 0);
  if (date - 59000 > now) date.setDate(date.getDate() - 1);
  return date;
}

/* Spreadsheets treat a cell that starts like this as a formula; a leading quote makes it text. */
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
