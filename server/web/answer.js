// answer.js - one answer while it is written: asks the server, puts what comes into a message, counts and times it.
import {ask, getReceipt} from "./api.js";
import {stamp} from "./conversation.js";

const TOP = 5; // alternatives asked for with each token

// Fills `node` with the answer to `messages`. `changed` is called after every piece and once more at the end, `kept` when the
// node is worth keeping. `stop()` ends it; what was written stays.
export class Answer {
  constructor(node, {changed, kept}) {
    Object.assign(this, {node, changed, kept});
    this.abort = new AbortController();
    this.running = true;
    this.error = null;
    this.started = performance.now();
    this.first = this.last = 0;
    this.pieces = 0;
    this.keptAt = this.started;
    this.keepEvery = 400; // milliseconds; more where keeping takes long
  }

  stop() {
    this.abort.abort();
  }

  // Never throws: this.error says what went wrong.
  async run(messages, settings, model) {
    try {
      await ask(bodyOf(messages, settings, model), this.abort.signal, this);
    } catch (e) {
      if (e.name === "AbortError") this.node.ended = "stopped";
      else this.fail(e);
    }
    this.finish();
    if (this.receiptId) await this.fetchReceipt();
  }

  fail(e) {
    this.error = e;
    this.node.ended = e.kind === "lost" ? "lost" : "failed";
    this.node.trouble = e.message;
  }

  start({receipt}) {
    this.receiptId = receipt;
  }

  chunk(chunk) {
    const choice = chunk.choices?.[0];
    if (typeof chunk.model === "string") this.node.model = chunk.model;
    if (choice) this.piece(choice);
    if (chunk.usage) this.usage = chunk.usage;
    this.changed();
    if (performance.now() - this.keptAt > this.keepEvery) this.keep();
  }

  piece(choice) {
    const delta = choice.delta || {};
    if (typeof delta.reasoning_content === "string") this.node.reasoning = (this.node.reasoning || "") + delta.reasoning_content;
    if (typeof delta.content === "string") this.node.text += delta.content;
    if (choice.finish_reason) this.node.ended = choice.finish_reason;
    const tokens = Array.isArray(choice.logprobs?.content) ? choice.logprobs.content : [];
    if (tokens.length) (this.node.tokens ||= []).push(...tokens.map(tokenOf));
    const n = tokens.length || (delta.content || delta.reasoning_content ? 1 : 0);
    if (n) this.count(n);
  }

  count(n) {
    this.last = performance.now();
    if (!this.first) this.first = this.last;
    this.pieces += n;
    this.node.numbers = this.numbers();
  }

  // Rates are those of the tokens after the first: before it the prompt is read.
  numbers() {
    const made = this.usage?.completion_tokens ?? this.pieces;
    const seconds = (this.last - this.first) / 1000;
    const out = {made, firstAfter: (this.first - this.started) / 1000, seconds: (this.last - this.started) / 1000};
    if (made > 1 && seconds > 0.02) out.perSecond = (made - 1) / seconds;
    if (this.usage) {
      out.prompt = this.usage.prompt_tokens;
      out.cached = this.usage.prompt_tokens_details?.cached_tokens;
    }
    return out;
  }

  keep() {
    const began = performance.now();
    stamp(this.node);
    this.kept();
    this.keptAt = performance.now();
    this.keepEvery = Math.max(400, (this.keptAt - began) * 20);
  }

  finish() {
    this.running = false;
    if (this.first || this.usage) this.node.numbers = this.numbers();
    if (!this.node.ended) this.node.ended = "stop";
    this.keep();
    this.changed();
  }

  async fetchReceipt() {
    this.node.receipt = {id: this.receiptId, text: ""};
    // it is written after the last token, in the server's own time; who asks early waits there for up to 2 s, then gets a 404
    for (const wait of [400, 800, 2000]) {
      await new Promise((r) => setTimeout(r, wait));
      try {
        this.node.receipt.text = await getReceipt(this.receiptId);
        break;
      } catch (e) {
        if (e.status !== 404) break;
      }
    }
    this.keep();
    this.changed();
  }
}

function tokenOf(t) {
  const top = Array.isArray(t.top_logprobs) ? t.top_logprobs.map((o) => [String(o.token), Number(o.logprob)]) : [];
  return [String(t.token ?? ""), Number(t.logprob), top];
}

function bodyOf(messages, settings, model) {
  const body = {messages, stream: true, stream_options: {include_usage: true}};
  if (model) body.model = model;
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
    if (typeof settings[name] === "number") body[name] = settings[name];
  }
  if (settings.stop?.length) body.stop = settings.stop;
  if (settings.logprobs) Object.assign(body, {logprobs: true, top_logprobs: TOP});
  return body;
}
