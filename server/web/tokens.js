// tokens.js - an answer as the tokens it was made of, each coloured by its probability. Pointing at one, or going through them
// with the arrow keys, shows what else the model thought of.
import {bar, byId, el} from "./dom.js";

const STEPS = [0.02, 0.1, 0.3, 0.6, 0.9]; // of probability: class p0 below the first ... p5 above the last

const percent = (logprob) => {
  const p = Math.exp(logprob) * 100;
  return p >= 99.95 ? "100 %" : p >= 10 ? p.toFixed(1) + " %" : p >= 0.01 ? p.toFixed(2) + " %" : "< 0.01 %";
};
const visible = (text) => text.replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5").replace(/ /g, "\u00b7") || "(nothing)";
const step = (logprob) => STEPS.filter((s) => Math.exp(logprob) >= s).length;

export function tokenView(tokens) {
  const box = el("div", {class: "tokens", role: "listbox", tabindex: "0", "aria-label": "Tokens with their probabilities"});
  tokens.forEach((token, i) => box.append(tokenElement(token, i)));
  let at = -1;
  const show = (i) => {
    box.children[at]?.classList.remove("here");
    box.children[at]?.removeAttribute("aria-selected");
    at = Math.max(0, Math.min(i, tokens.length - 1));
    const e = box.children[at];
    if (!e) return;
    e.classList.add("here");
    e.setAttribute("aria-selected", "true");
    box.setAttribute("aria-activedescendant", e.id);
    e.scrollIntoView({block: "nearest"});
    showCard(e, tokens[at]);
  };
  box.addEventListener("pointerover", (e) => {
    const i = Array.prototype.indexOf.call(box.children, e.target);
    if (i >= 0) showCard(e.target, tokens[i]);
  });
  box.addEventListener("pointerleave", hideCard);
  box.addEventListener("blur", hideCard);
  box.addEventListener("keydown", (e) => {
    const move = {ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: tokens.length - 1}[e.key];
    if (move === undefined) return;
    e.preventDefault();
    show(move);
  });
  return box;
}

let made = 0;

function tokenElement([text, logprob], i) {
  const label = `${visible(text)}, ${percent(logprob)}`;
  return el("span", {role: "option", id: `token-${++made}-${i}`, class: "token p" + step(logprob), "aria-label": label}, text);
}

// One card for the whole page, beside the token.
function showCard(anchor, [text, logprob, top]) {
  const card = byId("card");
  const rows = top.some(([t]) => t === text) ? top : [[text, logprob], ...top];
  card.replaceChildren(...rows.map(([t, lp]) => el("div", {class: t === text ? "row chosen" : "row"},
    el("span", {class: "what"}, visible(t)), bar(Math.exp(lp)), el("span", {class: "share"}, percent(lp)))));
  card.hidden = false;
  const at = anchor.getBoundingClientRect(), size = card.getBoundingClientRect();
  const below = at.bottom + size.height + 8 < innerHeight;
  card.style.left = Math.max(8, Math.min(at.left, innerWidth - size.width - 8)) + "px";
  card.style.top = Math.max(8, below ? at.bottom + 6 : at.top - size.height - 6) + "px";
}

export function hideCard() {
  byId("card").hidden = true;
}
