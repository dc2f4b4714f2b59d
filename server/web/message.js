// message.js - how one message is shown: its text, what can be done with it, what is known about it.
import {copyButton, count, download, el, icon, iconButton, plural, rate} from "./dom.js";
import {render} from "./markdown.js";
import {tokenView} from "./tokens.js";

const ENDED = {
  stop: "", length: "stopped at the most tokens allowed", stopped: "stopped", lost: "cut off", failed: "", edited: "edited by you",
  content_filter: "stopped by a filter",
};

// Shows `node` in an <article>. `on`: what the buttons do: edit(node, parent, text), which tells whether it was done,
// again(node, parent), retry(node, parent), pick(parent, place).
// `update` draws anew what changed; a growing answer calls it often, so it leaves alone what is the same.
export class MessageView {
  constructor(node, parent, on) {
    Object.assign(this, {node, parent, on});
    this.asTokens = false;
    this.article = el("article", {class: "message " + node.role, "data-id": node.id});
    this.heading = el("h2", {class: "unseen"});
    this.thinking = el("div");
    this.thinkingBox = el("details", {class: "thinking", hidden: true}, el("summary", null, "Thinking"), this.thinking);
    this.body = el("div", {class: node.role === "assistant" ? "body markdown" : "body"});
    this.trouble = el("div", {class: "trouble", role: "alert", hidden: true});
    this.branch = el("span", {class: "branch", hidden: true});
    this.facts = el("span", {class: "facts"});
    this.below = el("div", {class: "below"}, this.branch, this.facts, this.actions());
    this.receipt = el("details", {class: "receipt", hidden: true});
    this.article.append(this.heading, this.thinkingBox, this.body, this.trouble, this.below, this.receipt);
  }

  actions() {
    const assistant = this.node.role === "assistant";
    this.again = assistant ? iconButton("again", "Another answer", () => this.on.again(this.node, this.parent)) : null;
    this.chart = assistant ? iconButton("chart", "Token probabilities", () => this.toggleTokens(), {"aria-pressed": "false", hidden: true}) : null;
    this.editButton = iconButton("edit", assistant ? "Edit this answer" : "Edit this message", () => this.edit());
    this.tools = el("span", {class: "actions"}, copyButton("Copy", () => this.node.text), this.editButton, this.again, this.chart);
    return this.tools;
  }

  // live: the Answer that is writing it; elsewhere: another tab is writing it; last: it is the last one shown; retryIn: seconds
  // until it is tried again, or 0
  update({live = null, elsewhere = false, last = false, retryIn = 0} = {}) {
    const node = this.node, running = live !== null && live.running;
    this.article.classList.toggle("last", last);
    this.heading.textContent = node.role === "assistant" ? "Answer" : "You";
    this.article.setAttribute("aria-busy", String(running));
    this.drawBody(running);
    this.drawBranch(running);
    this.tools.hidden = running;
    if (this.chart) this.chart.hidden = !node.tokens?.length;
    this.facts.textContent = factsOf(node, running, elsewhere);
    this.below.hidden = Boolean(this.form) || (running && !this.facts.textContent);
    this.drawTrouble(running, retryIn);
    this.drawReceipt();
  }

  drawBody(running) {
    const {node, body} = this;
    if (this.form) return;
    this.thinkingBox.hidden = !node.reasoning;
    if (node.reasoning) this.thinking.textContent = node.reasoning;
    if (node.role !== "assistant") {
      body.textContent = node.text;
    } else if (this.asTokens) {
      if (this.drawnTokens !== node.tokens.length) body.replaceChildren(tokenView(node.tokens));
      this.drawnTokens = node.tokens.length;
    } else {
      this.waiting?.remove();
      render(body, node.text);
      if (running && !node.text) body.append(this.waiting ||= el("span", {class: "wait", "aria-hidden": "true"}));
    }
    body.hidden = node.role === "assistant" && !running && !node.text;
  }

  toggleTokens() {
    this.asTokens = !this.asTokens;
    this.chart.setAttribute("aria-pressed", String(this.asTokens));
    this.body.replaceChildren();
    this.body.markdownBlocks = null;
    this.drawnTokens = -1;
    this.drawBody(false);
  }

  // "2/3" with arrows, where there are siblings.
  drawBranch(running) {
    const kids = this.parent.kids, at = kids.indexOf(this.node);
    this.branch.hidden = kids.length < 2 || running;
    const key = at + "/" + kids.length;
    if (this.branch.hidden || this.branchKey === key) return;
    this.branchKey = key;
    const arrow = (name, label, to) =>
      iconButton(name, label, () => this.on.pick(this.parent, to), {disabled: to < 0 || to >= kids.length});
    this.branch.replaceChildren(arrow("left", "Previous version", at - 1),
      el("span", {"aria-label": `Version ${at + 1} of ${kids.length}`, role: "img"}, `${at + 1}/${kids.length}`), arrow("right", "Next version", at + 1));
  }

  drawTrouble(running, retryIn) {
    const text = running ? "" : this.node.trouble || "";
    const key = text + "|" + retryIn;
    if (this.troubleKey === key) return;
    this.troubleKey = key;
    this.trouble.hidden = !text;
    if (!text) return;
    const label = retryIn ? `Trying again in ${retryIn} s` : "Try again";
    if (this.trouble.firstChild?.textContent !== text) {
      this.retry = el("button", {type: "button", class: "quiet", onclick: () => this.on.retry(this.node, this.parent)}, label);
      this.trouble.replaceChildren(el("span", null, text), this.retry);
    }
    this.retry.replaceChildren(icon("again"), label);
  }

  drawReceipt() {
    const receipt = this.node.receipt;
    if (!receipt || this.drawnReceipt === receipt.text) return;
    this.drawnReceipt = receipt.text;
    const body = parsed(receipt.text);
    this.receipt.hidden = !body;
    if (body) this.receipt.replaceChildren(...receiptParts(receipt, body));
  }

  // ---- editing: a sibling with other words ----
  edit() {
    if (this.form) return;
    const user = this.node.role !== "assistant";
    const area = el("textarea", {"aria-label": user ? "Your message" : "The answer", rows: Math.min(14, this.node.text.split("\n").length + 1)});
    area.value = this.node.text;
    this.form = el("form", {class: "edit"}, area, el("div", {class: "row"},
      el("button", {type: "button", class: "quiet", onclick: () => this.leaveEdit()}, "Cancel"),
      el("button", {type: "submit", class: "primary"}, user ? "Send" : "Keep")));
    this.form.addEventListener("submit", (e) => this.takeEdit(e, area));
    area.addEventListener("keydown", (e) => this.editKey(e, user));
    this.article.classList.add("editing");
    this.body.replaceChildren(this.form);
    this.body.markdownBlocks = null;
    this.body.classList.remove("body");
    this.below.hidden = true;
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  editKey(e, user) {
    if (e.isComposing) return;
    if (e.key === "Escape") {
      e.stopPropagation();
      this.leaveEdit();
    } else if (e.key === "Enter" && !e.shiftKey && (user || e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      this.form.requestSubmit();
    }
  }

  takeEdit(e, area) {
    e.preventDefault();
    const text = area.value;
    if (!text.trim() || text === this.node.text || this.on.edit(this.node, this.parent, text)) this.leaveEdit();
  }

  leaveEdit() {
    this.form = null;
    this.article.classList.remove("editing");
    this.body.classList.add("body");
    this.body.replaceChildren();
    this.below.hidden = false;
    this.drawnTokens = -1;
    this.drawBody(false);
    this.editButton.focus();
  }
}

// How it ended. `ended` of an imported file may be any word.
function endOf(node, elsewhere) {
  if (node.ended === undefined) return elsewhere ? "being written in another tab" : "cut off";
  return Object.hasOwn(ENDED, node.ended) ? ENDED[node.ended] : node.ended;
}

function factsOf(node, running, elsewhere) {
  if (node.role !== "assistant") return "";
  const n = node.numbers, parts = [];
  if (n?.made) parts.push(plural(n.made, "token"));
  if (n?.perSecond) parts.push(rate(n.perSecond) + " tokens/s");
  if (!running && n?.firstAfter) parts.push(`first after ${n.firstAfter < 10 ? n.firstAfter.toFixed(2) : n.firstAfter.toFixed(0)} s`);
  if (!running && n?.cached) parts.push(`${plural(n.cached, "token")} of the prompt reused`);
  if (!running) parts.push(endOf(node, elsewhere));
  return parts.filter((p) => p).join(" \u00b7 ");
}

// ---- receipts: which kernels on which device computed it ----

const name = (v) => (typeof v === "string" ? v : "");

function deviceOf(body) {
  const e = body.environment || {};
  const cpu = name(e.CPU_BRAND), gpu = name(e.GPU_DEVICE) || name(e.GPU_INFO);
  const backend = name(body.backend);
  const brand = backend.startsWith("cpu") || backend === "host" ? cpu : gpu || cpu;
  return [backend.toUpperCase(), brand && `(${brand})`].filter((s) => s).join(" ");
}

function parsed(text) {
  try {
    const body = JSON.parse(text);
    return body && typeof body === "object" ? body : null;
  } catch {
    return null;
  }
}

function receiptParts({id, text}, body) {
  const kernels = Array.isArray(body.kernels) ? body.kernels.filter((k) => typeof k === "string").slice(0, 200) : [];
  const calls = body.kernel_calls && typeof body.kernel_calls === "object" ? body.kernel_calls : {};
  const e = body.environment || {};
  const how = [name(e.isa) !== "best" && name(e.isa), Number.isFinite(e.threads) && plural(e.threads, "thread"), body.compute_path === "fallback" && "partly repeated on the CPU"];
  return [
    el("summary", null, `Computed by ${deviceOf(body) || "the server"} with ${plural(kernels.length, "kernel")}`),
    el("p", {class: "note"}, how.filter((h) => h).join(" \u00b7 ")),
    el("table", null, el("tbody", null, kernels.map((k) =>
      el("tr", null, el("td", null, k), el("td", null, Number.isFinite(calls[k]) ? count(calls[k]) + " \u00d7" : ""))))),
    el("button", {type: "button", class: "quiet", onclick: () => download(`receipt-${id}.json`, text)},
      icon("download"), "Save the receipt"),
  ];
}
