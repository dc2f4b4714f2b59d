// api.js - the server as the page sees it: a few GETs, and one POST whose answer comes as server-sent events. Every failure
// becomes a ServerError with a sentence for the reader. Paths are relative, so that the page also works below a prefix.
import {keepValue, readValue} from "./store.js";

const MAX_EVENT = 8000000; // characters of one event: more is no answer of a server of ours

// kind: "key" (a key is asked for), "wait" (try again after `after` seconds), "lost" (no connection), "refused" (all else)
export class ServerError extends Error {
  constructor(kind, message, more = {}) {
    super(message);
    Object.assign(this, {kind}, more);
  }
}

const session = () => sessionStorage;
export const getKey = () => readValue("key", "", session);
export const setKey = (key) => keepValue("key", key || null, session);

function headers(more) {
  const key = getKey();
  return {...more, ...(key ? {Authorization: "Bearer " + key} : {})};
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, {cache: "no-store", credentials: "same-origin", ...options, headers: headers(options.headers)});
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ServerError("lost", "The server does not answer. Is it still running?");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

const OF_STATUS = {
  400: "The server refused the request.",
  401: "The server asks for an API key.",
  403: "This key may not do that.",
  404: "The server does not know this model or path.",
  408: "The request took too long to arrive.",
  409: "The server is busy with that model.",
  413: "The message is too large for the server.",
  422: "The server refused the request.",
  429: "Too many requests.",
  499: "The request was cancelled.",
  500: "The server failed to answer.",
  502: "The proxy cannot reach the server.",
  503: "The server is busy, still loading, or about to stop.",
  504: "The answer took too long.",
};

async function errorOf(response) {
  const told = await toldBy(response);
  const sentence = OF_STATUS[response.status] || `The server answered with status ${response.status}.`;
  const message = told ? `${sentence} ${told[0].toUpperCase()}${told.slice(1)}${/[.!?]$/.test(told) ? "" : "."}` : sentence;
  const more = {status: response.status, request: response.headers.get("x-request-id") || ""};
  if (response.status === 401) return new ServerError("key", message, more);
  if (response.status === 429 || response.status === 503) {
    const after = parseInt(response.headers.get("retry-after"), 10);
    return new ServerError("wait", message, {...more, after: Math.min(Math.max(after || 2, 1), 600)});
  }
  return new ServerError("refused", message, more);
}

// The message of an error's body, in any of the shapes it may have.
async function toldBy(response) {
  try {
    const body = JSON.parse((await response.text()).slice(0, 100000));
    return messageIn(body);
  } catch {
    return "";
  }
}

function messageIn(body) {
  const found = body?.error?.message ?? body?.error ?? body?.message ?? "";
  return typeof found === "string" ? found.slice(0, 2000) : "";
}

async function getJson(path, options) {
  const response = await call(path, options);
  try {
    return await response.json();
  } catch {
    throw new ServerError("lost", "The server's answer was cut off.");
  }
}

export const getProps = (model) => getJson("props" + (model ? "?model=" + encodeURIComponent(model) : ""));
// As text: its digest is over its numbers as they are written, and what is read as JSON and written again writes 1.0 as 1.
export const getReceipt = async (id) => (await call("v1/receipts/" + encodeURIComponent(id))).text();

// [{id, state: "loaded" | "loading" | "unloaded" | "broken", progress: 0..1 or null, why, meta}]; meta has n_ctx and device of a loaded one
export async function getModels() {
  const list = await getJson("v1/models");
  return (Array.isArray(list?.data) ? list.data : []).filter((m) => typeof m?.id === "string").map((m) => {
    const state = typeof m.state === "string" ? m.state : "loaded";
    return {id: m.id, state, progress: Number.isFinite(m.progress) ? m.progress : null, why: typeof m.why === "string" ? m.why : "",
      meta: m.meta && typeof m.meta === "object" ? m.meta : {}};
  });
}

// Whether the server answers at all; a server that is not well is there nevertheless.
export async function isThere() {
  try {
    await fetch("health", {cache: "no-store"});
    return true;
  } catch {
    return false;
  }
}

// Asks and hands out what comes: `on.start({receipt})`, then `on.chunk(object)` for each event. Resolves when the server said
// that this was all; throws a ServerError, or an AbortError when `signal` was used.
export async function ask(body, signal, on) {
  const response = await call("v1/chat/completions", {
    method: "POST", headers: {"Content-Type": "application/json", Accept: "text/event-stream"}, body: JSON.stringify(body), signal,
  });
  on.start({receipt: response.headers.get("x-bitnet-receipt") || ""});
  let done = false;
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") {
        done = true;
        break;
      }
      on.chunk(chunkOf(data));
    }
  } catch (e) {
    if (e.name === "AbortError" || e instanceof ServerError) throw e;
    throw new ServerError("lost", "The connection was lost in the middle of the answer.");
  }
  if (!done) throw new ServerError("lost", "The connection ended in the middle of the answer.");
}

function chunkOf(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ServerError("refused", "The server sent something that is not JSON.");
  }
  if (chunk?.error) throw new ServerError("refused", messageIn(chunk) || "The server failed while it answered.");
  return chunk;
}

// The data of each event of a stream, as the standard wants it read: lines end in LF, CR or both, several data lines are one.
async function* events(stream) {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let rest = "", data = [];
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      rest += decoder.decode(value, {stream: true});
      if (rest.length > MAX_EVENT) throw new ServerError("refused", "The server sent an event that is too long.");
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line === "" && data.length) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
