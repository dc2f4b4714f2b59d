// markdown.js - an answer's text as blocks: paragraphs, headings, lists, tables, quotes, code. What is inside of a line is
// inline.js's. HTML in the text is shown as text. The time is in proportion to the text times MAX_DEPTH.
import {copyButton, el} from "./dom.js";
import {inline} from "./inline.js";

const MAX_DEPTH = 8; // of quotes and lists in one another
// In each of these a part ends where the next cannot begin earlier: a line that does not match is known after one pass.
const FENCE = /^ {0,3}(`{3,}|~{3,}(?!~))[ \t]*([^` \t][^`]{0,199})?$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])( {1,4}|\t|$)/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^ {0,3}\|? *:?-+:?(?: *\| *:?-+:?)* *(?:\| *)?$/;
const BLANK = /^[ \t]*$/;
const LONG_LINE = 20000; // regular expressions above are tried on shorter lines alone

// Shows `text` in `box`. Blocks whose source did not change since the last call keep their elements, so that a growing
// answer costs its last block, and what the reader selected stays selected.
export function render(box, text) {
  const old = box.markdownBlocks || [];
  const blocks = topBlocks(text.replace(/\r\n?/g, "\n"));
  let same = 0;
  while (same < old.length && same < blocks.length && old[same] === blocks[same]) same++;
  while (box.childNodes.length > same) box.lastChild.remove();
  for (const source of blocks.slice(same)) box.append(one(source));
  box.markdownBlocks = blocks;
}

// The sources of the blocks of a text.
function topBlocks(text) {
  const sources = [];
  walk(text.split("\n"), 0, (lines) => sources.push(lines.join("\n")), null);
  return sources;
}

// One block's element; a source that holds several (which cannot be) is wrapped.
function one(source) {
  const made = blocksOf(source.split("\n"), 0);
  return made.length === 1 ? made[0] : el("div", null, made);
}

function blocksOf(lines, depth) {
  const made = [];
  walk(lines, depth, null, (node) => made.push(node));
  return made;
}

// Goes through the lines block by block. Either `found` is called with the lines of each, or `make` with its element.
function walk(lines, depth, found, make) {
  let at = 0;
  while (at < lines.length) {
    if (BLANK.test(lines[at])) {
      at++;
      continue;
    }
    const kind = kindOf(lines, at, depth);
    const end = kind.end(lines, at, depth);
    if (found) found(lines.slice(at, end));
    else make(kind.make(lines.slice(at, end), depth));
    at = end;
  }
}

function kindOf(lines, at, depth) {
  const line = lines[at];
  if (line.length > LONG_LINE) return PARAGRAPH;
  if (FENCE.test(line)) return CODE;
  if (HEADING.test(line)) return TITLE;
  if (RULE.test(line)) return LINE;
  if (depth < MAX_DEPTH && QUOTE.test(line)) return QUOTED;
  if (depth < MAX_DEPTH && ITEM.test(line)) return LIST;
  if (isTable(lines, at)) return TABLE;
  return PARAGRAPH;
}

function isTable(lines, at) {
  const rule = lines[at + 1];
  return rule !== undefined && rule.length < 400 && lines[at].includes("|") && rule.includes("-") && TABLE_RULE.test(rule) &&
    cells(lines[at]).length === cells(rule).length;
}

const PARAGRAPH = {
  end(lines, at, depth) {
    let end = at + 1;
    while (end < lines.length && !BLANK.test(lines[end]) && !interrupts(lines, end, depth)) end++;
    return end;
  },
  make: (lines) => el("p", null, inline(lines.map((l) => l.replace(/^[ \t]{1,100}/, "")).join("\n"))),
};

// What ends a paragraph without an empty line before it.
function interrupts(lines, at, depth) {
  const kind = kindOf(lines, at, depth);
  if (kind === LIST) return /^ *(?:[-*+]|1[.)])[ \t]+\S/.test(lines[at]);
  return kind !== PARAGRAPH;
}

const CODE = {
  end(lines, at) {
    const fence = FENCE.exec(lines[at])[1];
    let end = at + 1;
    while (end < lines.length && !closes(lines[end], fence)) end++;
    return Math.min(end + 1, lines.length);
  },
  make(lines) {
    const [, fence, info = ""] = FENCE.exec(lines[0]);
    const closed = lines.length > 1 && closes(lines[lines.length - 1], fence);
    const code = lines.slice(1, closed ? -1 : undefined).join("\n");
    const language = info.trim().split(/[\s{,]/)[0].slice(0, 30);
    return el("div", {class: "code"},
      el("div", {class: "code-head"}, el("span", null, language || "text"), copyButton("Copy code", () => code)),
      el("pre", {tabindex: "0", role: "region", "aria-label": language ? language + " code" : "Code"}, el("code", null, code)));
  },
};

function closes(line, fence) {
  const text = line.length > 200 ? "" : line.trim();
  return text.length >= fence.length && text === fence[0].repeat(text.length);
}

const TITLE = {
  end: (lines, at) => at + 1,
  make(lines) {
    const [before, marks] = HEADING.exec(lines[0]);
    const text = lines[0].slice(before.length).trimEnd().replace(/[ \t]#+$/, "").trimEnd();
    // the page has headings of its own: those of an answer stand below them
    return el("h" + Math.min(6, marks.length + 2), {class: "level-" + marks.length}, inline(text));
  },
};

const LINE = {end: (lines, at) => at + 1, make: () => el("hr")};

const QUOTED = {
  end(lines, at, depth) {
    let end = at + 1;
    while (end < lines.length && !BLANK.test(lines[end]) && (QUOTE.test(lines[end]) || !interrupts(lines, end, depth))) end++;
    return end;
  },
  make: (lines, depth) => el("blockquote", null, blocksOf(lines.map((l) => l.replace(QUOTE, "")), depth + 1)),
};

const indentOf = (line) => /^ {0,400}/.exec(line)[0].length;
const ordered = (marker) => /\d/.test(marker);

const LIST = {
  end(lines, at, depth) {
    const kind = ordered(ITEM.exec(lines[at])[2]), indent = indentOf(lines[at]);
    let end = at + 1, blank = false;
    for (let i = at + 1; i < lines.length; i++) {
      if (BLANK.test(lines[i])) {
        blank = true;
        continue;
      }
      if (!belongs(lines, i, {kind, indent, blank, depth})) break;
      blank = false;
      end = i + 1;
    }
    return end;
  },
  make(lines, depth) {
    const first = ITEM.exec(lines[0]);
    const start = ordered(first[2]) ? parseInt(first[2], 10) : 0;
    const list = ordered(first[2]) ? el("ol", {start: start === 1 ? null : start}) : el("ul");
    for (const item of items(lines)) list.append(itemElement(item, depth));
    return list;
  },
};

// A line of a list that began with `indent`: a further item, something inside of one, or the rest of its paragraph.
function belongs(lines, at, list) {
  const line = lines[at], item = line.length > LONG_LINE ? null : ITEM.exec(line), indent = indentOf(line);
  if (item && indent <= list.indent + 1 && !RULE.test(line)) return ordered(item[2]) === list.kind;
  if (indent >= list.indent + 2) return true;
  return !list.blank && !interrupts(lines, at, list.depth);
}

// Divides the lines of a list into those of its items, without the markers and the indentation.
function items(lines) {
  const all = [], indent = indentOf(lines[0]);
  let width = 0;
  for (const line of lines) {
    const m = indentOf(line) <= indent + 1 && line.length <= LONG_LINE && !RULE.test(line) ? ITEM.exec(line) : null;
    if (m) {
      width = m[0].length;
      all.push([line.slice(width)]);
    } else {
      all[all.length - 1].push(line.slice(Math.min(indentOf(line), width)));
    }
  }
  return all;
}

function itemElement(lines, depth) {
  const box = /^\[([ xX])\] /.exec(lines[0]);
  if (box) lines[0] = (box[1] === " " ? "\u2610 " : "\u2611 ") + lines[0].slice(4);
  const [first, ...rest] = blocksOf(lines, depth + 1);
  return el("li", null, first?.tagName === "P" ? [...first.childNodes] : first, rest); // a tight item has no paragraph
}

const TABLE = {
  end(lines, at) {
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|") && !BLANK.test(lines[end])) end++;
    return end;
  },
  make(lines) {
    const sides = cells(lines[1]).map((c) => (/^:?-+:$/.test(c) ? (c[0] === ":" ? "center" : "right") : null));
    const row = (line, tag) => {
      const found = cells(line).slice(0, sides.length);
      return el("tr", null, found.map((c, i) => el(tag, {class: sides[i], scope: tag === "th" ? "col" : null}, inline(c))));
    };
    return el("div", {class: "table", tabindex: "0", role: "region", "aria-label": "Table"},
      el("table", null, el("thead", null, row(lines[0], "th")), el("tbody", null, lines.slice(2).map((l) => row(l, "td")))));
  },
};

// The cells of a row; "\|" is a bar that divides nothing, and so is one in code.
function cells(line) {
  const out = [""];
  let code = false;
  for (let i = 0; i < line.length; i++) {
    if (line[i] === "\\" && line[i + 1] === "|") out[out.length - 1] += line[++i];
    else if (line[i] === "|" && !code) out.push("");
    else out[out.length - 1] += line[i];
    if (line[i] === "`") code = !code;
  }
  if (!out[0].trim()) out.shift();
  if (out.length && !out[out.length - 1].trim()) out.pop();
  return out.map((c) => c.trim()).slice(0, 100);
}
