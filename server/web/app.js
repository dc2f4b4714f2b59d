// app.js - the page: which conversation is open, what is being answered, and what the buttons and keys do.
import * as api from "./api.js";
import {Answer} from "./answer.js";
import {addMessage, exportText, importText, isEmpty, merge, messagesTo, newConversation, nowAfter, pack, shown, startOver, titleOf, unpack} from "./conversation.js";
import {bar, byId, count, download, el, icon, iconButton, plural, rate} from "./dom.js";
import {MessageView} from "./message.js";
import * as settings from "./settings.js";
import {keepValue, openStore, readValue} from "./store.js";
import {hideCard} from "./tokens.js";

const IDEAS = ["Tell me a story about a fox", "What is the opposite of hot?", "What is 7 + 5?"];
const MAX_RETRIES = 20;

let store;
let here; // the conversation that is shown
let blank = newConversation(); // the one for what is said next; a draft in it is found again
let views = new Map(); // node -> MessageView
let props = {}, propsOf = ""; // what the server says of the chosen model; of which, in which state
let models = [];
let note = null, greeting = null; // elements above the messages, with the text they were made of
const conversations = new Map(); // id -> conversation
const answers = new Map(); // conversation -> Answer that is being written
const retries = new Map(); // node -> {conversation, timer, left}: will be tried again
const drafts = new Map(); // conversation -> text in the box
const elsewhere = new Set(); // ids of messages that another tab is writing
const others = typeof BroadcastChannel === "function" ? new BroadcastChannel("bitnet-chat") : null;

// ---- keeping ----

function keep(conversation) {
  if (!conversations.has(conversation.id)) return; // removed meanwhile
  const packed = pack(conversation);
  const join = (kept) => {
    const joined = kept && merge(conversation, kept) ? pack(conversation) : packed;
    return isEmpty(conversation) ? null : joined; // what was taken back does not return
  };
  store.put(conversation.id, join).then((ok) => ok && others?.postMessage(conversation.id));
}

function touch(conversation) {
  conversation.updated = nowAfter(conversation.updated);
  conversations.set(conversation.id, conversation);
  keep(conversation);
  drawList();
}

// Another tab has changed a conversation, or removed it. What is shown, typed and written here goes on.
async function changedElsewhere(id) {
  let packed;
  try {
    packed = await store.get(id);
  } catch {
    return; // what cannot be read has not gone
  }
  const mine = here.id === id ? here : conversations.get(id);
  if (mine && packed) merge(mine, packed);
  else if (mine) halt(mine);
  if (packed) conversations.set(id, mine || unpack(packed, id));
  else conversations.delete(id);
  drawList();
  if (mine === here) draw();
}

// A tab holds a lock while it writes a message, which the browser takes from it when it goes: whoever has the lock tells "cut off" from
// "not yet there". A page that came over plain HTTP from another machine has no locks.
const lockOf = (node) => "bitnet-answer-" + node.id;

function holdLock(node) {
  let release;
  const held = new Promise((r) => (release = r));
  navigator.locks?.request(lockOf(node), () => held).catch(() => {}); // the answer is written all the same
  return release;
}

// Is an answer without an end written by another tab? Draws when that is known, and when it is over.
async function lookElsewhere(node) {
  const asks = node.role === "assistant" && node.ended === undefined && answers.get(here)?.node !== node;
  if (!asks || elsewhere.has(node.id) || !navigator.locks) return;
  try {
    await navigator.locks.request(lockOf(node), {mode: "shared", ifAvailable: true}, (lock) => lock || elsewhere.add(node.id));
    if (!elsewhere.has(node.id)) return;
    draw();
    await navigator.locks.request(lockOf(node), {mode: "shared"}, () => elsewhere.delete(node.id));
    draw();
  } catch { /* the browser lends no locks to this page */ }
}

// ---- conversations ----

function open(conversation) {
  if (here) leave();
  here = conversation;
  views = new Map();
  byId("messages").replaceChildren();
  byId("composer-text").value = drafts.get(here) || "";
  fitBox();
  if (here.root.kids.length) history.replaceState(null, "", "#" + here.id);
  else history.replaceState(null, "", location.pathname + location.search);
  draw();
  drawList();
  toEnd();
}

// What was typed stays with the conversation it was typed in.
function leave() {
  drafts.set(here, byId("composer-text").value);
  takeTitle();
}

function takeTitle() {
  const field = byId("title"), typed = field.value;
  if (typed === field.defaultValue) return;
  field.value = field.defaultValue;
  here.title = typed.trim();
  touch(here);
}

function startNew() {
  open(unused());
  hideSide();
  home();
}

function unused() {
  if (!isEmpty(blank)) blank = newConversation();
  return blank;
}

function remove(conversation) {
  halt(conversation);
  conversations.delete(conversation.id);
  store.remove(conversation.id).then(() => others?.postMessage(conversation.id));
  if (conversation === here) open(newest() || unused());
  drawList();
  (byId("list").querySelector(".open") || byId("new")).focus();
  toast(`\u201c${titleOf(conversation)}\u201d is deleted.`, "Undo", () => {
    conversations.set(conversation.id, conversation);
    keep(conversation);
    open(conversation);
  });
}

const sorted = () => [...conversations.values()].sort((a, b) => b.updated - a.updated);
const newest = () => sorted()[0];

function drawList() {
  const rows = sorted().filter((c) => !isEmpty(c)).map((c) => {
    const title = titleOf(c);
    const open_ = el("button", {type: "button", class: answers.has(c) ? "open busy" : "open", title, "aria-current": c === here ? "true" : null,
      onclick: () => {
        open(c);
        hideSide();
      }}, title);
    return el("li", {class: c === here ? "here" : null, "data-id": c.id}, open_, iconButton("trash", "Delete " + title, () => remove(c)));
  });
  drawRows(rows);
  drawTitle();
}

// The button that had the focus has it in its new row, too.
function drawRows(rows) {
  const list = byId("list"), had = document.activeElement.closest("#list button");
  list.replaceChildren(...rows);
  if (had) list.querySelector(`[data-id="${had.parentElement.dataset.id}"] .${had.classList[0]}`)?.focus({preventScroll: true});
}

// A title that is being typed stays as it is; the default value of the field is the one that was drawn.
function drawTitle() {
  const field = byId("title");
  if (field.value === field.defaultValue) field.value = here.title;
  field.defaultValue = here.title;
  field.placeholder = titleOf(here);
  document.title = here.root.kids.length ? titleOf(here) + " \u00b7 bitnet" : "bitnet";
}

function step(by) {
  const list = sorted(), at = list.indexOf(here);
  const next = list[Math.max(0, Math.min(list.length - 1, at + by))];
  if (next && next !== here) open(next);
}

// ---- drawing ----

function draw() {
  const box = byId("messages"), path = shown(here), wanted = [];
  if (here.system.trim()) wanted.push((note = sameOr(note, here.system, systemNote)).element);
  if (!path.length) wanted.push((greeting = sameOr(greeting, props.model || "", welcome)).element);
  for (const {node, parent} of path) {
    if (!views.has(node)) views.set(node, new MessageView(node, parent, on));
    wanted.push(views.get(node).article);
  }
  // elements that stay where they are keep focus and selection
  const stay = new Set(wanted);
  for (const e of [...box.children]) if (!stay.has(e)) e.remove();
  wanted.forEach((e, i) => box.children[i] !== e && box.insertBefore(e, box.children[i] || null));
  path.forEach(({node}, i) => views.get(node).update(stateOf(node, i === path.length - 1)));
  drawStatus();
  path.forEach(({node}) => lookElsewhere(node));
}

function stateOf(node, last) {
  const answer = answers.get(here);
  return {live: answer?.node === node ? answer : null, elsewhere: elsewhere.has(node.id), last, retryIn: retries.get(node)?.left || 0};
}

function sameOr(old, text, make) {
  return old && old.text === text ? old : {text, element: make(text)};
}

function systemNote(text) {
  return el("details", {class: "system"}, el("summary", null, "System prompt"), el("p", null, text));
}

function welcome(model) {
  const what = `${model ? `The model \u201c${model}\u201d answers. ` : ""}What you write goes to this server and nowhere else.`;
  return el("div", {class: "welcome"}, el("h2", null, "What shall we talk about?"), el("p", null, what),
    el("div", {class: "ideas"}, IDEAS.map((idea) => el("button", {type: "button", onclick: () => send(idea)}, idea))));
}

function drawStatus() {
  const running = answers.has(here), button = byId("send"), box = byId("composer-text");
  const name = running ? "stop" : "up";
  if (button.dataset.icon !== name) {
    button.dataset.icon = name;
    button.replaceChildren(icon(name));
    button.setAttribute("aria-label", running ? "Stop" : "Send");
    button.title = running ? "Stop (Esc)" : "Send (Enter)";
  }
  button.disabled = !running && !box.value.trim();
  byId("device").textContent = [props.device, props.summary].filter((t) => typeof t === "string" && t)[0] || "";
  byId("device").title = typeof props.summary === "string" ? props.summary : "";
  const live = running ? answers.get(here).node.numbers?.perSecond : 0;
  byId("speed").textContent = live ? rate(live) + " tokens/s" : "";
  drawContext();
}

// What of the context the shown messages take, as far as the server told: prompt and answer of the last one.
function drawContext() {
  let used = 0;
  for (const {node} of shown(here)) {
    const n = node.numbers;
    if (n?.prompt) used = n.prompt + (n.made || 0);
    else if (n?.made) used += n.made;
  }
  const size = Number(props.n_ctx) || 0, meter = byId("context-meter");
  byId("context").hidden = !size;
  if (!size) return;
  bar(used / size, meter);
  meter.classList.toggle("full", used > size * 0.9);
  for (const [name, value] of [["min", 0], ["max", size], ["now", Math.min(used, size)]]) meter.setAttribute("aria-value" + name, value);
  byId("context-text").textContent = `${count(used)} of ${count(size)} tokens`;
  meter.title = `${count(used)} of ${count(size)} tokens of context`;
}

// Drawing while an answer grows: at most every 40 ms, and never more than a fifth of the time.
let drawTimer = 0, drawCost = 0;

function drawSoon(conversation, node) {
  if (conversation !== here || drawTimer) return;
  drawTimer = setTimeout(() => {
    drawTimer = 0;
    const began = performance.now(), follow = nearEnd();
    views.get(node)?.update(stateOf(node, true));
    drawStatus();
    if (follow) toEnd();
    drawCost = performance.now() - began;
  }, Math.max(40, drawCost * 4));
}

const nearEnd = () => {
  const s = byId("scroll");
  return s.scrollHeight - s.scrollTop - s.clientHeight < 80;
};

function toEnd() {
  byId("scroll").scrollTop = byId("scroll").scrollHeight;
  byId("latest").hidden = true;
}

// ---- asking ----

function send(text) {
  if (!text.trim() || answers.has(here)) return;
  const path = shown(here);
  const parent = path.length ? path[path.length - 1].node : here.root;
  const node = addMessage(parent, "user", text.trim()), box = byId("composer-text");
  if (box.value === text) box.value = ""; // else an idea was sent, and a draft stays
  drafts.delete(here);
  fitBox();
  generate(here, node);
  home();
  history.replaceState(null, "", "#" + here.id);
}

// Asks for an answer below `parent`, in a new message or, when one failed without a word, in that one.
function generate(conversation, parent, again = null, tries = 0) {
  if (answers.has(conversation)) return;
  const node = again || addMessage(parent, "assistant", "");
  startOver(node);
  const answer = new Answer(node, {changed: () => drawSoon(conversation, node), kept: () => keep(conversation)});
  const release = holdLock(node);
  answers.set(conversation, answer);
  touch(conversation);
  if (conversation === here) {
    draw();
    toEnd();
  }
  say("The answer is being written.");
  const watch = setInterval(refreshModels, 2000); // a model may be loading
  whenDone(answer, () => {
    clearInterval(watch);
    answered(conversation, parent, answer, tries);
  });
  const messages = messagesTo(conversation, parent);
  answer.run(messages, settings.forAnswer(parent.kids.indexOf(node)), byId("model").value).then(() => {
    release();
    if (conversation === here) draw();
  });
}

// An Answer's run() also fetches its receipt; the conversation is free as soon as the text is there.
function whenDone(answer, then) {
  const changed = answer.changed;
  answer.changed = () => {
    changed();
    if (answer.running || !then) return;
    const now = then;
    then = null;
    now();
  };
}

function answered(conversation, parent, answer, tries) {
  answers.delete(conversation);
  const {node, error} = answer, removed = !conversations.has(conversation.id);
  if (!removed) touch(conversation);
  if (error && !removed) troubled(conversation, parent, node, error, tries);
  else say(node.ended === "stopped" ? "Stopped." : "Answer: " + node.text);
  if (conversation === here) {
    const follow = nearEnd();
    draw();
    if (follow) toEnd();
  }
  refreshModels();
}

function troubled(conversation, parent, node, error, tries) {
  if (error.kind === "key") askForKey(error.message, () => retry(conversation, node, parent));
  if (error.kind === "lost") connectionLost();
  if (error.kind === "wait" && !node.text && tries < MAX_RETRIES) countDown(conversation, parent, node, error.after, tries);
}

// 429 and 503: the server said when to come back.
function countDown(conversation, parent, node, seconds, tries) {
  const entry = {conversation, left: seconds, timer: setInterval(() => {
    entry.left--;
    if (entry.left > 0) return void (conversation === here && draw());
    endCountDown(node);
    generate(conversation, parent, node, tries + 1);
  }, 1000)};
  retries.set(node, entry);
}

function endCountDown(node) {
  clearInterval(retries.get(node)?.timer);
  retries.delete(node);
}

function retry(conversation, node, parent) {
  endCountDown(node);
  generate(conversation, parent, node.text ? null : node);
}

const on = {
  again(node, parent) {
    if (answers.has(here)) return toast("An answer is being written. Esc stops it.");
    generate(here, parent);
    home();
  },
  retry: (node, parent) => retry(here, node, parent),
  pick(parent, place) {
    parent.pick = place;
    keep(here);
    draw();
    const node = parent.kids[place];
    views.get(node)?.branch.querySelector("button:not(:disabled)")?.focus();
  },
  edit(node, parent, text) {
    if (answers.has(here)) return void toast("An answer is being written. Esc stops it.");
    const sibling = addMessage(parent, node.role, node.role === "user" ? text.trim() : text);
    home();
    if (node.role === "user") generate(here, sibling);
    else keepEdited(sibling);
    return true;
  },
};

function keepEdited(node) {
  node.ended = "edited";
  touch(here);
  draw();
}

// Ends what is being written in a conversation, or waited for.
function halt(conversation) {
  answers.get(conversation)?.stop();
  for (const [node, entry] of retries) if (entry.conversation === conversation) endCountDown(node);
}

function stop() {
  halt(here);
  draw();
}

// ---- the server ----

async function refreshModels() {
  try {
    models = await api.getModels();
  } catch (e) {
    if (e.kind === "key") askForKey(e.message);
    else if (e.kind === "lost") connectionLost();
    return;
  }
  drawModels();
  if (chosen() && propsOf !== chosen().id + chosen().state) refreshProps();
}

const STATES = {loaded: "", loading: " (loading)", unloaded: " (not loaded)", broken: " (cannot be loaded)"};

function drawModels() {
  const select = byId("model"), before = select.value || readValue("model", "");
  const options = models.map((m) => {
    const part = m.state === "loading" && m.progress ? ` (loading, ${Math.round(m.progress * 100)} %)` : STATES[m.state] ?? ` (${m.state})`;
    return el("option", {value: m.id, title: m.why || null}, m.id + part);
  });
  const key = models.map((m) => m.id + m.state + m.progress).join("|");
  if (select.dataset.key === key) return;
  select.dataset.key = key;
  select.replaceChildren(...options);
  if (models.some((m) => m.id === before)) select.value = before;
  select.parentElement.hidden = !models.length;
}

const chosen = () => models.find((m) => m.id === byId("model").value);

// Of a model that is loaded alone: to ask about another would load it.
async function refreshProps() {
  const model = chosen();
  propsOf = model ? model.id + model.state : "";
  props = model ? {model: model.id, n_ctx: model.meta.n_ctx, device: model.meta.device} : {};
  try {
    if (!model || model.state === "loaded") props = await api.getProps(model?.id);
  } catch { /* the page works without; what is wrong with the server, models or an answer tell */ }
  settings.limitTokens(props.limits?.max_tokens);
  byId("about").textContent = [props.version && `bitnet ${props.version}`, props.summary].filter((t) => typeof t === "string").join(" \u00b7 ");
  draw();
}

async function refreshAll() {
  propsOf = "";
  await refreshModels();
  if (!models.length) refreshProps();
}

let lost = false;

// Says so, and looks whether the server comes back.
async function connectionLost() {
  if (lost) return;
  lost = true;
  byId("banner").textContent = "The server does not answer. What you have written is safe; the page tries again by itself.";
  byId("banner").hidden = false;
  for (let wait = 1000; !(await api.isThere()); wait = Math.min(wait * 1.5, 10000)) {
    await new Promise((r) => setTimeout(r, wait));
  }
  lost = false;
  byId("banner").hidden = true;
  toast("The server answers again.");
  refreshAll();
}

const afterKey = []; // what to do with a key once it is given, besides asking for models

function askForKey(why, then) {
  if (then) afterKey.push(then);
  const dialog = byId("key");
  if (dialog.open) return;
  byId("key-why").textContent = api.getKey() ? `The server refused the key. ${why}` : "Whoever runs the server has it. It is kept in this tab until the tab closes.";
  byId("key-text").value = "";
  dialog.showModal();
}

// ---- small things ----

let toastTimer = 0;

function toast(text, label, action) {
  const box = byId("toast");
  box.replaceChildren(el("span", null, text));
  if (label) {
    box.append(el("button", {type: "button", onclick: () => {
      box.hidden = true;
      action();
    }}, label));
  }
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (box.hidden = true), label ? 10000 : 4000);
}

// To a screen reader; an answer once, when it is whole.
function say(text) {
  byId("announce").textContent = text;
}

function fitBox() {
  const box = byId("composer-text");
  box.style.height = "auto";
  box.style.height = Math.min(box.scrollHeight, innerHeight * 0.4) + "px";
}

// Focus goes to the message box: what had it may be gone. Not where that would bring up a keyboard over half of the screen.
function home() {
  if (!matchMedia("(pointer: coarse)").matches) byId("composer-text").focus({preventScroll: true});
}

// On a narrow screen conversations come in over the rest, which cannot be reached meanwhile, but for the way to undo.
function setSide(shown_) {
  document.body.classList.toggle("side-shown", shown_);
  byId("shade").hidden = !shown_;
  byId("side-open").setAttribute("aria-expanded", String(shown_));
  for (const e of document.querySelectorAll(".skip, .top, #scroll, .bottom > :not(#toast)")) e.inert = shown_;
}

const isSideShown = () => document.body.classList.contains("side-shown");

function hideSide() {
  if (!isSideShown()) return;
  setSide(false);
  byId("side-open").focus();
}

function showSide() {
  setSide(true);
  byId("new").focus();
}

function fileName(conversation) {
  const words = titleOf(conversation).toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40);
  return `bitnet-${words || "conversation"}.json`;
}

async function importFile(file) {
  try {
    if (file.size > 200e6) throw new Error("The file is larger than 200 MB.");
    const {found, nLeftOut} = importText(await file.text());
    takeIn(found.filter((c) => !isEmpty(c)), nLeftOut ? ` Left out: ${plural(nLeftOut, "message")} of another role, or out of place.` : "");
  } catch (e) {
    toast(e.message);
  }
}

function takeIn(found, more) {
  if (!found.length) throw new Error("The file holds no messages." + more);
  for (const c of found) {
    conversations.set(c.id, c);
    keep(c);
  }
  open(found[0]);
  toast(`${plural(found.length, "conversation")} imported.${more}`);
}

// ---- keys ----

const ALT = {KeyN: startNew, KeyR: again, KeyM: () => byId("composer-text").focus(), KeyS: openSettings, ArrowUp: () => step(-1), ArrowDown: () => step(1)};

function again() {
  const path = shown(here), last = path[path.length - 1];
  if (!last || answers.has(here)) return;
  if (last.node.role === "assistant") generate(here, last.parent);
  else generate(here, last.node);
}

function onKey(e) {
  if (e.isComposing || document.querySelector("dialog[open]")) return;
  if (e.key === "Escape") {
    hideCard();
    if (isSideShown()) hideSide();
    else stop();
  } else if (e.altKey && !e.ctrlKey && !e.metaKey && Object.hasOwn(ALT, e.code) && !writesSign(e)) {
    e.preventDefault();
    ALT[e.code]();
  } else if ((e.ctrlKey || e.metaKey) && isSlash(e)) {
    e.preventDefault();
    byId("shortcuts").showModal();
  }
}

// On a Mac Option and a letter write another sign into a field. A letter of another alphabet is the key's own, and none.
function writesSign(e) {
  const own = /^[a-z]$/i.test(e.key) || /^(?![\p{Script=Latin}\p{Script=Common}])\p{L}$/u.test(e.key);
  return e.code.startsWith("Key") && !own && e.target.matches?.("input, textarea");
}

// By its sign, or by its place where that has another one; a minus there is the browser's.
const isSlash = (e) => e.key === "/" || (e.code === "Slash" && e.key !== "-");

function onBoxKey(e) {
  if (e.isComposing || e.altKey) return;
  const touch_ = matchMedia("(pointer: coarse)").matches; // there is no Shift to hold: Enter begins a new line
  if (e.key === "Enter" && !e.shiftKey && !touch_) {
    e.preventDefault();
    byId("composer").requestSubmit();
  } else if (e.key === "ArrowUp" && !e.target.value) {
    const mine = shown(here).filter(({node}) => node.role === "user");
    if (!mine.length || answers.has(here)) return;
    e.preventDefault();
    views.get(mine[mine.length - 1].node).edit();
  }
}

// ---- settings ----

function openSettings() {
  settings.show();
  byId("system").value = byId("system").defaultValue = here.system;
  byId("api-key").value = api.getKey();
  byId("settings").showModal();
}

function leaveSettings() {
  const key = byId("api-key").value.trim();
  settings.take();
  if (byId("system").value !== byId("system").defaultValue) { // another tab may have changed it meanwhile
    here.system = byId("system").value;
    touch(here);
    draw();
  }
  if (key === api.getKey()) return;
  api.setKey(key);
  refreshAll();
}

// ---- beginning ----

function wire() {
  const click = (id, f) => byId(id).addEventListener("click", f);
  document.querySelector(".skip").addEventListener("click", (e) => {
    e.preventDefault(); // the address names the conversation
    byId("composer-text").focus();
  });
  click("new", startNew);
  click("side-open", showSide);
  click("side-close", hideSide);
  click("shade", hideSide);
  matchMedia("(max-width: 52rem)").addEventListener("change", hideSide); // as in style.css
  click("settings-open", openSettings);
  click("keys", () => byId("shortcuts").showModal());
  click("latest", toEnd);
  click("import", () => byId("file").click());
  click("export", () => download(fileName(here), exportText([here])));
  click("export-all", () => download("bitnet-conversations.json", exportText(sorted())));
  click("settings-reset", settings.reset);
  for (const b of document.querySelectorAll("[data-close]")) b.addEventListener("click", () => b.closest("dialog").close());
  byId("file").addEventListener("change", (e) => {
    if (e.target.files[0]) importFile(e.target.files[0]);
    e.target.value = "";
  });
  byId("composer").addEventListener("submit", (e) => {
    e.preventDefault();
    if (!answers.has(here)) send(byId("composer-text").value);
    else if (e.submitter) stop(); // the button, not Enter
  });
  byId("composer-text").addEventListener("input", () => {
    fitBox();
    drawStatus();
  });
  byId("composer-text").addEventListener("keydown", onBoxKey);
  byId("scroll").addEventListener("scroll", () => (byId("latest").hidden = nearEnd()), {passive: true});
  byId("title").addEventListener("change", takeTitle);
  byId("model").addEventListener("change", (e) => {
    keepValue("model", e.target.value);
    refreshProps();
  });
  wireDialogs();
  wireTheme();
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", () => {
    const c = conversations.get(location.hash.slice(1));
    if (c && c !== here) open(c);
  });
  if (others) others.onmessage = (e) => changedElsewhere(e.data);
}

// A click beside it closes a dialog; a selection that begins in it and ends beside it does not.
function closeBeside(dialog) {
  let pressed = null;
  dialog.addEventListener("pointerdown", (e) => (pressed = e.target));
  dialog.addEventListener("click", (e) => e.target === dialog && pressed === dialog && dialog.close());
}

function wireDialogs() {
  document.querySelectorAll("dialog").forEach(closeBeside);
  byId("settings-form").addEventListener("submit", (e) => {
    e.preventDefault();
    if (settings.take()) byId("settings").close();
  });
  byId("settings-form").noValidate = true; // settings.js says what is wrong, beside the field
  byId("settings").addEventListener("close", leaveSettings);
  byId("key-form").addEventListener("submit", (e) => {
    e.preventDefault();
    takeKey();
  });
  byId("key").addEventListener("close", () => (afterKey.length = 0));
}

async function takeKey() {
  const then = afterKey.splice(0);
  api.setKey(byId("key-text").value.trim());
  byId("key").close();
  await refreshAll();
  if (byId("key").open) afterKey.push(...then); // the key was refused
  else for (const act of then) act();
}

function wireTheme() {
  const select = byId("theme");
  select.value = document.documentElement.dataset.theme || "";
  select.addEventListener("change", () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("bitnet.theme", select.value);
    } catch { /* it holds until the page closes */ }
  });
}

async function load() {
  store = await openStore();
  store.onTrouble = () => toast("The browser could not keep this conversation: its storage is full or locked. Export what you need.");
  let kept = [];
  try {
    kept = await store.all();
  } catch {
    toast("The conversations in this browser cannot be read.");
  }
  for (const packed of kept) {
    try {
      conversations.set(packed.id, unpack(packed, packed.id));
    } catch { /* one damaged conversation does not hide the others */ }
  }
  if (store.where === "memory") toast("This browser keeps nothing: conversations last until the page closes. Export what you need.");
}

await load();
wire();
open(conversations.get(location.hash.slice(1)) || blank);
home();
refreshAll();
