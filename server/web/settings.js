// settings.js - what answers are asked with: read from the form, checked, kept in the browser. A field that is left empty is
// not sent, so that the server's own default holds.
import {byId, count} from "./dom.js";
import {keepValue, readValue} from "./store.js";

// name, least, most, whole numbers alone: the bounds of the server, as far as a browser's numbers reach
const MOST = 2 ** 31 - 1;
const NUMBERS = [
  ["temperature", 0, 2, false], ["top_p", 0, 1, false], ["top_k", -1, MOST, true], ["min_p", 0, 1, false],
  ["max_tokens", 1, MOST, true], ["seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, true],
];
const MAX_STOPS = 16, MAX_STOP = 256; // stop texts, bytes of one
const isStop = (s) => typeof s === "string" && s && new TextEncoder().encode(s).length <= MAX_STOP;

let settings = cleaned(readValue("settings", {}));

// What the nth answer to a message is asked with, from 0: each has a seed of its own, so that it is new and can be made again.
export function forAnswer(n) {
  return settings.seed === undefined ? settings : {...settings, seed: settings.seed + n};
}

// A server may allow fewer tokens; 0: it does not.
export function limitTokens(most) {
  NUMBERS.find(([name]) => name === "max_tokens")[2] = most || MOST;
}

function cleaned(from) {
  const out = {stop: [], logprobs: from?.logprobs === true};
  for (const [name, least, most, whole] of NUMBERS) {
    const v = from?.[name];
    if (typeof v === "number" && v >= least && v <= most && (!whole || Number.isInteger(v))) out[name] = v;
  }
  if (Array.isArray(from?.stop)) out.stop = from.stop.filter(isStop).slice(0, MAX_STOPS);
  return out;
}

// Fills the form with what holds.
export function show() {
  for (const [name, min, max, whole] of NUMBERS) {
    Object.assign(byId("set-" + name), {min, max, step: whole ? 1 : "any", value: settings[name] ?? ""});
    complain(name, "");
  }
  byId("set-stop").value = settings.stop.map(escape).join("\n");
  complain("stop", "");
  byId("set-logprobs").checked = settings.logprobs;
}

// Takes the form over, field by field: a field that is wrong says why and leaves the old value.
export function take() {
  const next = {stop: stops(), logprobs: byId("set-logprobs").checked};
  let right = next.stop.length <= MAX_STOPS && next.stop.every(isStop);
  complain("stop", right ? "" : `At most ${MAX_STOPS} texts of ${MAX_STOP} bytes each.`);
  if (!right) next.stop = settings.stop;
  for (const [name, least, most, whole] of NUMBERS) {
    const field = byId("set-" + name), text = field.value.trim(), value = Number(text);
    const bad = field.validity.badInput || (text && !(value >= least && value <= most && (!whole || Number.isInteger(value))));
    complain(name, bad ? `${whole ? "A whole number" : "A number"} from ${count(least)} to ${count(most)}, or nothing.` : "");
    if (bad) right = false;
    else if (text) next[name] = value;
    if (bad && settings[name] !== undefined) next[name] = settings[name];
  }
  settings = next;
  keepValue("settings", settings);
  return right;
}

export function reset() {
  settings = cleaned({});
  keepValue("settings", settings);
  show();
}

function complain(name, why) {
  const field = byId("set-" + name), note = byId("why-" + name);
  note.textContent = why;
  if (why) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}

// One stop text a line; \n and \t and \\ mean what they do in a program.
function stops() {
  return byId("set-stop").value.split("\n").filter((s) => s)
    .map((s) => s.replace(/\\([nt\\])/g, (_, c) => ({n: "\n", t: "\t", "\\": "\\"})[c]));
}

function escape(s) {
  return s.replace(/[\\\n\t]/g, (c) => ({"\n": "\\n", "\t": "\\t", "\\": "\\\\"})[c]);
}
