// dom.js - making elements. Text goes into the page as text nodes alone: nothing in this folder ever makes HTML of a string.

const SVG = "http://www.w3.org/2000/svg";

// el("button", {class: "quiet", onclick: f, "aria-label": "Copy"}, children...): strings become text nodes; null, undefined
// and false are left out, as properties and as children.
export function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "class") e.className = value;
    else if (name === "value") e.value = value;
    else e.setAttribute(name, value === true ? "" : value);
  }
  append(e, children);
  return e;
}

function append(e, children) {
  for (const c of children) {
    if (Array.isArray(c)) append(e, c);
    else if (c !== null && c !== undefined && c !== false) e.append(c);
  }
}

// A symbol of index.html's sheet. It says nothing to a screen reader: the button around it has a label.
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", "#i-" + name);
  svg.append(use);
  return svg;
}

export function iconButton(name, label, onclick, more) {
  return el("button", {type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...more}, icon(name));
}

export const byId = (id) => document.getElementById(id);

// 12,345 and 87.3, in the reader's own way of writing numbers.
export const count = (n) => Number(n).toLocaleString();
export const rate = (x) => (x >= 100 ? Math.round(x) : Math.round(x * 10) / 10).toLocaleString();
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // a page that came over plain HTTP from another machine has no clipboard
  }
}

function copyBySelection(text) {
  const area = el("textarea", {class: "unseen", "aria-hidden": "true", tabindex: "-1"});
  area.value = text;
  document.body.append(area);
  area.select();
  let ok = false;
  try {
    ok = document.execCommand("copy");
  } catch { /* ok stays false */ }
  area.remove();
  return ok;
}

// How much of a whole, as a bar; `at` is the element of a bar that is there already.
export function bar(share, at = el("span", {class: "bar", "aria-hidden": "true"}, el("span", {class: "fill"}))) {
  at.firstElementChild.style.width = Math.max(0, Math.min(1, share || 0)) * 100 + "%";
  return at;
}

// A button that copies and says so for a moment.
export function copyButton(label, getText) {
  const button = iconButton("copy", label, async () => {
    const ok = await copyText(getText());
    button.replaceChildren(icon(ok ? "check" : "copy"));
    button.title = ok ? "Copied" : "This browser does not let the page copy";
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.title = label;
    }, 1500);
  });
  return button;
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], {type: "application/json"}));
  const a = el("a", {href: url, download: name});
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
