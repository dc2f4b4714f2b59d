// conversation.js - what a conversation is: a tree of messages. Editing a message or asking for another answer adds a sibling;
// nothing is lost. `pick` of a node says which of its kids is shown. Also its form in a file: export and import.

const MAX_NODES = 20000, MAX_TEXT = 4000000, MAX_CONVERSATIONS = 5000;

// crypto.randomUUID is missing where a page came over plain HTTP from another machine.
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

export function newConversation() {
  const now = Date.now();
  return {id: newId(), title: "", system: "", created: now, updated: now, root: {id: "root", role: "root", kids: [], pick: 0}};
}

// Nothing has been said or set in it.
export const isEmpty = (c) => !c.root.kids.length && !c.title && !c.system;

// Adds a message below `parent` and shows it.
export function addMessage(parent, role, text) {
  const node = {id: newId(), role, text, created: Date.now(), kids: [], pick: 0};
  parent.kids.push(node);
  parent.pick = parent.kids.length - 1;
  return node;
}

// When what is done now is done: by the clock, but always after what was done before, though the clock was set back since.
export const nowAfter = (before) => Math.max(Date.now(), before + 1);

const writtenAt = (node) => node.written || node.created;

// Something was written in a message just now.
export function stamp(node) {
  node.written = nowAfter(writtenAt(node));
}

// Forgets what was answered in a message, which will be written anew.
export function startOver(node) {
  stamp(node);
  forget(node);
}

function forget(node) {
  for (const field of ["ended", "trouble", "tokens", "numbers", "receipt", "reasoning"]) delete node[field];
}

// Every message with its parent, parents before kids.
function* everyMessage(conversation) {
  const todo = [conversation.root];
  while (todo.length) {
    const parent = todo.pop();
    for (const node of parent.kids) {
      todo.push(node);
      yield {node, parent};
    }
  }
}

// The messages that are shown, from the first to the last, each with its parent.
export function shown(conversation) {
  const out = [];
  for (let parent = conversation.root; parent.kids.length;) {
    const node = parent.kids[Math.min(parent.pick, parent.kids.length - 1)];
    out.push({node, parent});
    parent = node;
  }
  return out;
}

// What the server is asked with: the system prompt and the messages from the first down to `last`, shown or not.
export function messagesTo(conversation, last) {
  const parents = new Map();
  for (const {node, parent} of everyMessage(conversation)) parents.set(node, parent);
  const messages = [];
  for (let node = last; node && node.role !== "root"; node = parents.get(node)) {
    if (node.text) messages.push({role: node.role, content: node.text});
  }
  if (conversation.system.trim()) messages.push({role: "system", content: conversation.system});
  return messages.reverse();
}

export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.root.kids[conversation.root.pick];
  const line = first ? first.text.trim().split("\n")[0] : "";
  return line ? (line.length > 60 ? line.slice(0, 59) + "\u2026" : line) : "New conversation";
}

// ---- two tabs ----

// Takes over what another tab has kept of this conversation, in its packed form: messages that are missing here, and those
// that were written later there. What is shown here stays. Tells whether there was anything.
export function merge(c, packed) {
  const known = new Map([[c.root.id, c.root]]);
  for (const {node} of everyMessage(c)) known.set(node.id, node);
  const isNews = (m) => !known.has(m.id) || writtenAt(m) > writtenAt(known.get(m.id));
  if (!(packed.updated > c.updated) && !packed.messages?.some(isNews)) return false;
  const theirs = unpack(packed, c.id);
  for (const {node, parent} of everyMessage(theirs)) {
    const own = known.get(node.id);
    if (!own) known.get(parent.id)?.kids.push(node); // with all that follows it
    else if (isNews(node)) rewrite(own, node);
  }
  if (theirs.updated > c.updated) Object.assign(c, {title: theirs.title, system: theirs.system, updated: theirs.updated});
  return true;
}

function rewrite(own, {kids, pick, ...fields}) {
  forget(own);
  delete own.written;
  Object.assign(own, fields);
}

// ---- files ----

// The form in which a conversation is kept and exported: its messages in a list, parents before kids, each with the place of
// its parent (-1: it begins the conversation). A list, because a tree as deep as a conversation is long cannot be written.
export function pack(c) {
  const {id, title, system, created, updated, root} = c;
  const messages = [], places = new Map([[root, -1]]);
  for (const {node, parent} of everyMessage(c)) {
    const {kids, ...fields} = node;
    places.set(node, messages.length);
    messages.push({parent: places.get(parent), ...fields});
  }
  return {id, title, system, created, updated, pick: root.pick, messages};
}

export function exportText(conversations) {
  return JSON.stringify({format: "bitnet-conversations", version: 1, exported: new Date().toISOString(),
    conversations: conversations.map(pack)}, null, 1);
}

// The conversations of a file: ours, or {"messages": [{role, content} ...]} as other programs write, with the number of messages
// that are left out. Nothing of the file is trusted: every field is copied by its type, ids are made anew. Throws an Error that
// says what is wrong.
export function importText(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (e) {
    throw new Error("The file is not JSON: " + e.message);
  }
  if (Array.isArray(data?.messages)) return fromMessages(data);
  if (data?.format !== "bitnet-conversations" || !Array.isArray(data.conversations)) {
    throw new Error("The file holds no conversations: it has neither \"format\": \"bitnet-conversations\" nor \"messages\".");
  }
  if (data.version !== 1) throw new Error(`The file is of version ${String(data.version).slice(0, 20)}; this page reads version 1.`);
  if (data.conversations.length > MAX_CONVERSATIONS) throw new Error(`The file holds more than ${MAX_CONVERSATIONS} conversations.`);
  return {found: data.conversations.map((c) => unpack(c)), nLeftOut: 0};
}

const string = (v, most = MAX_TEXT) => (typeof v === "string" ? v.slice(0, most) : "");
const number = (v, otherwise) => (Number.isFinite(v) ? v : otherwise);

// A time that was kept in this browser stays as it is, ahead of the clock too: other tabs compare with it. What is no time, or
// one that cannot be followed by another, is long ago.
const keptTime = (v) => (Number.isFinite(v) && v > 0 && v < Number.MAX_SAFE_INTEGER ? v : 0);

// A time of a file is at most now: what is done with the conversation here is later. What is no time is now.
const fileTime = (v) => Math.min(keptTime(v) || Infinity, Date.now());

function fromMessages(data) {
  const c = newConversation(), system = [];
  c.title = string(data.title, 200);
  let parent = c.root, n = 0;
  for (const m of data.messages.slice(0, MAX_NODES)) {
    const isSystem = (m?.role === "system" || m?.role === "developer") && parent === c.root;
    if (!isSystem && m?.role !== "user" && m?.role !== "assistant") continue;
    n++;
    if (isSystem) system.push(contentText(m.content));
    else parent = addMessage(parent, m.role, contentText(m.content));
    if (parent.role === "assistant") parent.ended = "stop";
  }
  c.system = string(system.join("\n\n"));
  return {found: [c], nLeftOut: data.messages.length - n};
}

// Content may be a text or a list of parts.
function contentText(content) {
  if (Array.isArray(content)) return content.map((p) => string(p?.text)).join("").slice(0, MAX_TEXT);
  return string(content);
}

// A conversation from its packed form, whoever wrote that. Nothing of it is trusted; a parent stands before its kids, so that
// there can be no circle. `id`: as it was kept in this browser, with ids of its messages; else all of them are new.
export function unpack(from, id) {
  const c = newConversation(), time = id ? keptTime : fileTime;
  c.id = id || c.id;
  c.title = string(from?.title, 200);
  c.system = string(from?.system);
  c.created = time(from?.created);
  c.updated = time(from?.updated);
  c.root.pick = number(from?.pick, 0);
  const list = Array.isArray(from?.messages) ? from.messages : [];
  if (list.length > MAX_NODES) throw new Error(`A conversation has more than ${MAX_NODES} messages.`);
  const nodes = list.map((m, i) => cleanMessage(m, (id && string(m?.id, 40)) || "m" + i, time));
  nodes.forEach((node, i) => {
    const parent = list[i]?.parent;
    (Number.isInteger(parent) && parent >= 0 && parent < i ? nodes[parent] : c.root).kids.push(node);
  });
  for (const node of [c.root, ...nodes]) node.pick = Math.max(0, Math.min(Math.trunc(node.pick), node.kids.length - 1));
  return c;
}

function cleanMessage(from, id, time) {
  const node = {
    id, role: from?.role === "assistant" ? "assistant" : "user", text: string(from?.text),
    created: time(from?.created), kids: [], pick: number(from?.pick, 0),
  };
  if (from?.written) node.written = time(from.written);
  if (from?.reasoning) node.reasoning = string(from.reasoning);
  if (from?.model) node.model = string(from.model, 300);
  if (from?.ended) node.ended = string(from.ended, 40);
  if (from?.trouble) node.trouble = string(from.trouble, 2000);
  if (from?.numbers) node.numbers = cleanNumbers(from.numbers);
  if (from?.receipt?.id) node.receipt = {id: string(from.receipt.id, 100), text: string(from.receipt.text, 500000)};
  if (Array.isArray(from?.tokens)) node.tokens = from.tokens.slice(0, 100000).map(cleanToken);
  return node;
}

function cleanNumbers(from) {
  const out = {};
  for (const key of ["prompt", "cached", "made", "perSecond", "firstAfter", "seconds"]) {
    if (Number.isFinite(from?.[key])) out[key] = from[key];
  }
  return out;
}

// [text, log-probability, [[text, log-probability] ...]]
function cleanToken(t) {
  const pair = (p) => [string(p?.[0], 1000), number(p?.[1], null)];
  return [...pair(t), (Array.isArray(t?.[2]) ? t[2] : []).slice(0, 20).map(pair)];
}
