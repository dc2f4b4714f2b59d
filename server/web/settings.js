// settings.js - what answers are asked with: read from the form, checked, kept in the browser. A field that is left empty is
// not sent, so that the server's own default holds.
import {byId} from "./dom.js";
import {keepValue, readValue} from "./store.js";

// name, least, most, whole numbers alone; the same bounds as index.html shows
const NUMBERS = [
  ["temperature", 0, 5, false], ["top_p", 0, 1, false], ["top_k", 0, 1000000, true], ["min_p", 0, 1, false],
  ["max_tokens", 1, 1000000, true], ["seed", 0, Number.MAX_SAFE_INTEGER, true],
];

let settings = cleaned(readValue("settings", {}));

export const current = () => settings;

function cleaned(from) {
  const out = {stop: [], logprobs: from?.logprobs === true};
  for (const [name, least, most, whole] of NUMBERS) {
    const v = from?.[name];
    if (typeof v === "number" && v >= least && v <= most && (!whole || Number.isInteger(v))) out[name] = v;
  }
  if (Array.isArray(from?.stop)) out.stop = from.stop.filter((s) => typeof s === "string" && s).slice(0, 16);
  return out;
}

// Fills the form with what holds.
export function show() {
  for (const [name] of NUMBERS) {
    byId("set-" + name).value = settings[name] ?? "";
    complain(name, "");
  }
  byId("set-stop").value = settings.stop.map(escape).join("\n");
  byId("set-logprobs").checked = settings.logprobs;
}

// Takes the form over, field by field: a field that is wrong says why and leaves the old value.
export function take() {
  const next = {stop: stops(), logprobs: byId("set-logprobs").checked};
  let right = true;
  for (const [name, least, most, whole] of NUMBERS) {
    const field = byId("set-" + name), text = field.value.trim(), value = Number(text);
    const bad = field.validity.badInput || (text && !(value >= least && value <= most && (!whole || Number.isInteger(value))));
    complain(name, bad ? `${whole ? "A whole number" : "A number"} from ${least} to ${most.toLocaleString()}, or nothing.` : "");
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
  return byId("set-stop").value.split("\n").filter((s) => s).slice(0, 16)
    .map((s) => s.replace(/\\([nt\\])/g, (_, c) => ({n: "\n", t: "\t", "\\": "\\"})[c]));
}

function escape(s) {
  return s.replace(/[\\\n\t]/g, (c) => ({"\n": "\\n", "\t": "\\t", "\\": "\\\\"})[c]);
}
