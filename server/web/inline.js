// inline.js - the markdown inside of a line: code, emphasis, links. A text becomes DOM nodes; whatever it says, it can become
// nothing else than text, <code>, <em>, <strong>, <del>, <br> and links to the web or to a mail address.
//
// The time is in proportion to the text: every character is looked at a bounded number of times.
import {el} from "./dom.js";

const LOOK_BACK = 50; // how many open delimiters a closing one is compared with
const MAX_URL = 2000;
const MAX_NESTING = 12; // of emphasis in emphasis: a browser lays deep trees out by recursion
const MAX_OPEN = 12; // brackets that may begin a link or a picture; what is in several is read once for each
const MAX_ROUND = 30; // round brackets in one another, in a URL
const ENTITIES = {amp: "&", lt: "<", gt: ">", quot: "\"", "#39": "'", nbsp: "\u00a0"};

// Where a link may lead: http, https and mailto. Null: nowhere.
export function safeUrl(text) {
  if (!/^(https?:\/\/|mailto:)/i.test(text) || text.length > MAX_URL) return null;
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(url, children) {
  return el("a", {href: url, target: "_blank", rel: "noopener noreferrer nofollow"}, children);
}

// The nodes of a text.
export function inline(text) {
  return new Scanner(text).run();
}

// `parts` is what was read so far: nodes, strings, and marks (objects with `mark`) that may turn out to be delimiters.
class Scanner {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.parts = [];
    this.plain = "";
    this.brackets = []; // indices of parts: the innermost that are open, MAX_OPEN of them
    this.ticks = null;
    this.noUrlBefore = 0; // where what looked like a URL and is none ends
  }

  run() {
    while (this.at < this.text.length) {
      if (!this.special()) this.plain += this.text[this.at++];
    }
    this.flush();
    return finish(this.parts);
  }

  flush() {
    if (this.plain) this.parts.push(this.plain);
    this.plain = "";
  }

  push(part) {
    this.flush();
    this.parts.push(part);
  }

  // Reads what begins here if it is more than a character; true: `at` has moved.
  special() {
    switch (this.text[this.at]) {
      case "\\": return this.escaped();
      case "`": return this.code();
      case "*": case "_": case "~": return this.delimiter();
      case "[": return this.open(1);
      case "!": return this.text[this.at + 1] === "[" && this.open(2);
      case "]": return this.close();
      case "<": return this.autolink();
      case "&": return this.entity();
      case "h": case "H": return this.bareUrl();
      case "\n": return this.lineBreak();
      default: return false;
    }
  }

  escaped() {
    const next = this.text[this.at + 1];
    if (!next || !/[!-/:-@[-`{-~]/.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  entity() {
    const m = /^&(#?\w{2,5});/.exec(this.text.slice(this.at, this.at + 8));
    if (!m || !Object.hasOwn(ENTITIES, m[1])) return false;
    this.plain += ENTITIES[m[1]];
    this.at += m[0].length;
    return true;
  }

  lineBreak() {
    this.plain = this.plain.replace(/ {1,100}$/, "");
    this.push(el("br"));
    this.at++;
    return true;
  }

  // ---- code: the next run of as many ticks closes it ----
  code() {
    const length = runLength(this.text, this.at);
    const start = this.at + length;
    const end = this.nextTicks(length, start);
    if (end < 0) {
      this.plain += this.text.slice(this.at, start);
    } else {
      const inside = this.text.slice(start, end).replace(/\n/g, " ");
      this.push(el("code", null, isPadded(inside) ? inside.slice(1, -1) : inside));
    }
    this.at = end < 0 ? start : end + length;
    return true;
  }

  nextTicks(length, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const m of this.text.matchAll(/`+/g)) {
        const n = m[0].length;
        if (!this.ticks.has(n)) this.ticks.set(n, {places: [], next: 0});
        this.ticks.get(n).places.push(m.index);
      }
    }
    const run = this.ticks.get(length);
    while (run && run.next < run.places.length && run.places[run.next] < from) run.next++;
    return run && run.next < run.places.length ? run.places[run.next] : -1;
  }

  // ---- emphasis: here the marks alone; finish() pairs them ----
  delimiter() {
    const ch = this.text[this.at];
    const n = runLength(this.text, this.at);
    const before = this.text[this.at - 1] || " ", after = this.text[this.at + n] || " ";
    const word = (c) => /[\p{L}\p{N}]/u.test(c), space = (c) => /\s/.test(c);
    let opens = !space(after) && (word(after) || !word(before));
    let closes = !space(before) && (word(before) || !word(after));
    if (ch === "_") {
      opens = opens && !word(before);
      closes = closes && !word(after);
    }
    if (n > 3 || (ch === "~" && n !== 2)) opens = closes = false;
    this.push({mark: ch.repeat(n), ch, n, opens, closes});
    this.at += n;
    return true;
  }

  // ---- links ----
  open(length) {
    this.push({mark: this.text.slice(this.at, this.at + length), bracket: true});
    this.brackets.push(this.parts.length - 1);
    if (this.brackets.length > MAX_OPEN) this.brackets.shift(); // the outermost is text
    this.at += length;
    return true;
  }

  close() {
    const from = this.brackets.pop();
    if (from === undefined) return false;
    const target = this.destination(this.at + 1);
    if (!target) return false;
    this.flush();
    const image = this.parts[from].mark === "![";
    const children = finish(this.parts.splice(from).slice(1));
    // pictures are not fetched: who draws one learns that it was read
    const label = children.length ? children : [image ? "picture" : target.text];
    const inner = image && this.brackets.length > 0; // of a link around it
    if (target.url && !inner) this.parts.push(link(target.url, label));
    else for (const node of label) this.parts.push(node);
    if (!inner) this.brackets.length = 0; // a link holds no other
    this.at = target.end;
    return true;
  }

  // "(url)", "(<url>)", "(url "title")" at this place: {url or null where it is not allowed, text, end}.
  destination(at) {
    const text = this.text, limit = Math.min(text.length, at + MAX_URL);
    if (text[at] !== "(") return null;
    let depth = 0, end = at;
    for (; end < limit; end++) {
      const c = text[end];
      if (c === "\n") return null;
      if (c === "(" && ++depth > MAX_ROUND) return null;
      if (c === ")" && --depth === 0) break;
    }
    if (end >= limit) return null;
    const inside = text.slice(at + 1, end).trim();
    const cut = inside.search(/\s["'(]/);
    const url = (cut < 0 ? inside : inside.slice(0, cut)).replace(/^<|>$/g, "");
    return {url: safeUrl(url), text: url, end: end + 1};
  }

  autolink() {
    const m = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,1900})>/i.exec(this.text.slice(this.at, this.at + MAX_URL));
    const url = m && !this.brackets.length && safeUrl(m[1]);
    if (!url) return false;
    this.push(link(url, [m[1]]));
    this.at += m[0].length;
    return true;
  }

  bareUrl() {
    const before = this.text[this.at - 1];
    if (this.brackets.length || this.at < this.noUrlBefore || (before && /\w/.test(before))) return false;
    const m = /^https?:\/\/[^\s<>"'`*[\]\\]{1,2000}/i.exec(this.text.slice(this.at, this.at + MAX_URL));
    if (!m) return false;
    const found = withoutTail(m[0]);
    const url = safeUrl(found);
    if (!url) {
      this.noUrlBefore = this.at + found.length;
      return false;
    }
    this.push(link(url, [found]));
    this.at += found.length;
    return true;
  }
}

// Code that begins and ends with a space, and is not all spaces: one of them on each side is there to be left out.
function isPadded(code) {
  return code.startsWith(" ") && code.endsWith(" ") && /[^ ]/.test(code);
}

// A URL in a sentence: what ends the sentence, and a bracket that was opened before it, are not part of it.
function withoutTail(url) {
  const tail = url.includes("(") ? ".,;:!?~_" : ".,;:!?~_)";
  let n = url.length;
  while (n > 0 && tail.includes(url[n - 1])) n--;
  return url.slice(0, n);
}

function runLength(text, at) {
  let n = 1;
  while (text[at + n] === text[at]) n++;
  return n;
}

// Pairs the marks of emphasis; those that found no partner are text.
function finish(parts) {
  const out = [], openers = []; // openers: indices of out
  for (const part of parts) {
    if (part.mark && part.closes) closeMarks(part, out, openers);
    if (!part.mark) {
      out.push(part);
    } else if (part.n !== 0) {
      out.push({...part});
      if (part.opens && !part.bracket) openers.push(out.length - 1);
    }
  }
  return out.map(textOf);
}

// Wraps what stands between this closing mark and its opener, as often as both have characters left. `inner` of an opener is how
// deep what follows it is nested already.
function closeMarks(closer, out, openers) {
  for (let back = 0, inner = 0; closer.n > 0 && back < LOOK_BACK; back++) {
    const i = openers.length - 1 - back;
    if (i < 0) return;
    const opener = out[openers[i]];
    inner = Math.max(inner, opener.inner || 0);
    if (opener.ch !== closer.ch) continue;
    if (inner >= MAX_NESTING || openers[i] === out.length - 1) return;
    const n = closer.ch === "~" ? 2 : Math.min(opener.n, closer.n, 2);
    const tag = closer.ch === "~" ? "del" : n === 2 ? "strong" : "em";
    out.push(el(tag, null, out.splice(openers[i] + 1).map(textOf)));
    opener.n -= n;
    closer.n -= n;
    openers.length = i + 1;
    if (opener.n === 0) {
      out.splice(openers[i], 1);
      openers.length = i;
    }
    const around = out[openers[openers.length - 1]];
    if (around) around.inner = Math.max(around.inner || 0, inner + 1);
    back = -1; // what is left of the closer looks again
    inner = 0;
  }
}

// A mark that found no partner is the text it was written as.
function textOf(part) {
  return !part.mark ? part : part.n === undefined ? part.mark : part.ch.repeat(part.n);
}
