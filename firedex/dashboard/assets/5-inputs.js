/* What people type into the form of a subscription, taken at its word or refused. Pure. */
"use strict";
(() => {
const { known, Refused } = firedex;
const NUMBER = /^\+?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const THOUSANDS = /^[1-9]\d{0,2}(,\d{3})+$/;  // or thousandths: nobody knows which was meant

/* A number as people write it, with a point or a comma; NaN if it is none, or may be two. */
function decimal(typed) {
  const text = String(typed).trim();
  const plain = THOUSANDS.test(text) ? text : text.replace(",", ".");
  return NUMBER.test(plain) && Number.isFinite(Number(plain)) ? Number(plain) : NaN;
}
const isEmpty = (typed) => !known(typed) || String(typed).trim() === "";
function refuse(name, rule, typed) {
  throw new Refused(0, `${name}: ${rule}${isEmpty(typed) ? "" : `, which “${typed}” is not`}.`);
}
function deadlineOf({ deadline }) {
  if (isEmpty(deadline)) return null;
  const given = decimal(deadline);
  if (!(given > 0)) refuse("Deadline", "a number of seconds above 0, as 0.4, or empty for none", deadline);
  return given;
}
function utilityOf({ kind, weight, shape }) {
  const worth = decimal(weight ?? ""), bent = { capped: "enough", power: "exponent" }[kind], bend = decimal(shape ?? "");
  if (!(worth >= 0)) refuse("Weight", "a number, 0 or more", weight);
  if (bent && !(bend > 0 && bend <= 1)) refuse("Shape", `a ${kind} utility needs a number above 0, and 1 at most`, shape);
  if (bent) return { kind, weight: worth, [bent]: bend };
  if (kind !== "piecewise-linear") return { kind, weight: worth };
  const points = String(shape ?? "").split(",").map((point) => point.split(":").map(decimal));
  if (points.some((point) => point.length !== 2 || point.some(Number.isNaN))) refuse("Shape", "points are given as success:worth, as 0:0, 0.5:0.8, 1:1", shape);
  return { kind, weight: worth, points };
}
Object.assign(firedex, { decimal, deadlineOf, utilityOf });
})();
