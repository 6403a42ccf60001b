// The planner: every change asks the server for the page that the form would lead to, and takes the answer out of it.
// So there is one answer, whether a script runs or not.

import "./copy.js";
import { attachFilter } from "./filter.js";
import { attachOwn } from "./plan-own.js";

const QUIET = 700; // milliseconds without a key until the answer is spoken
const SLOW = 400; // milliseconds until an answer that is yet to come is marked as such

const root = document.querySelector("[data-planner]");
if (root) start();

function start() {
  const form = root.querySelector("form");
  const home = root.hasAttribute("data-home");
  const path = new URL(form.action).pathname;
  const filters = [...form.querySelectorAll("[data-filter]")].map(attachFilter);
  const follow = attachSlider(form);
  const own = attachOwn(form, () => want({ address: typed(), history: "push" }));

  // ---- Asking -----------------------------------------------------------------------------------------------

  /** The page at an address, as a document. The browser reads it as it reads pages, so no text becomes markup here.
      A model of one's own, which no address holds, goes with the request. */
  function ask(address) {
    const asked = new URL(address, location);
    const carries = asked.searchParams.get("from") === "own" && own.text();
    const body = carries ? asked.searchParams : null;
    body?.set("own", carries);
    body?.set("echo", "no");
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open(carries ? "POST" : "GET", carries ? asked.pathname : address);
      request.responseType = "document";
      request.onload = () => (request.response?.querySelector("[data-planner]") ? resolve(request.response) : reject(request));
      request.onerror = () => reject(request);
      request.send(body);
    });
  }

  let asking = false;
  let next = null;

  /** Asks for what is wanted now. While an answer is on its way, only the last wish is kept. */
  async function want(wish) {
    next = wish;
    if (asking) return;
    asking = true;
    const slow = setTimeout(() => root.setAttribute("data-waiting", ""), SLOW);
    while (next) {
      const { address, ...how } = next;
      next = null;
      try {
        const answer = await ask(address);
        if (!next) show(answer, how);
        unreached("");
      } catch {
        if (!next) unreached(root.dataset.unreached);
      }
    }
    clearTimeout(slow);
    root.removeAttribute("data-waiting");
    asking = false;
  }

  function unreached(text) {
    const message = root.querySelector("[data-unreached-message]");
    message.textContent = text;
    message.hidden = !text;
  }

  function typed() {
    const pairs = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (!["own", "own_file"].includes(name) && value.trim()) pairs.append(name, value);
    return `${path}?${pairs}`;
  }

  const source = (of) => of.elements.from?.value;

  // ---- Showing ----------------------------------------------------------------------------------------------

  /** Puts an answer into this page. `values`: the form's too; `history`: "push", "replace" or none. */
  function show(answer, { values = false, history: kind }) {
    const other = answer.querySelector("[data-planner]");
    const open = new Map([...root.querySelectorAll("details[data-key]")].map((each) => [each.dataset.key, each.open]));
    for (const live of root.querySelectorAll("[data-live]")) {
      const fresh = other.querySelector(`[data-live="${live.dataset.live}"]`);
      live.replaceChildren(...[...fresh.childNodes].map((node) => document.adoptNode(node)));
      for (const each of live.querySelectorAll("details[data-key]")) {
        if (open.has(each.dataset.key)) each.open = open.get(each.dataset.key);
      }
    }
    const theirs = source(other.querySelector("form"));
    if (form.elements.from && theirs !== source(form)) {
      // The answer is of another kind of model than was asked for: a config turned out to be one of the catalogue.
      form.elements.from.value = theirs;
      values = true;
    }
    if (theirs === "own") own.keep();
    if (values) for (const filter of filters) filter.clear();
    for (const field of form.querySelectorAll("[data-field]")) {
      const fresh = other.querySelector(`[data-field="${field.dataset.field}"]`);
      if (fresh) refresh(field, fresh, values);
    }
    follow();
    // Answers are of the planner's page; the home page stays where it is.
    const { search } = new URL(other.dataset.address, location);
    if (!home) {
      document.title = answer.title;
      for (const link of document.querySelectorAll("[data-language]")) {
        link.formAction = link.href = answer.querySelector(`[data-language="${link.dataset.language}"]`).href;
      }
    }
    // A step back in a frame would be one of the page around it.
    const step = parent === window ? kind : kind && "replace";
    if (step) history[`${step}State`](null, "", location.pathname + search);
    tell(search);
    speak();
  }

  /** Tells the rest of the page what is shown. An embed has no rest. */
  function tell(search) {
    if (!document.querySelector("[data-url]")) return;
    const answer = root.querySelector("[data-sentence]")?.textContent.trim() ?? document.title;
    document.dispatchEvent(new CustomEvent("batchfit:state", { detail: { query: search.slice(1), answer } }));
  }

  /** What of a field depends on the others: its choices, its message, whether it is there at all. */
  function refresh(field, fresh, values) {
    field.hidden = fresh.hidden;
    for (const error of field.querySelectorAll("[data-error]")) {
      const message = fresh.querySelector("[data-error]");
      error.textContent = message.textContent;
      error.hidden = message.hidden;
    }
    for (const control of field.querySelectorAll("[name]")) {
      const other = fresh.querySelector(`[name="${control.name}"]`);
      if (!other) continue;
      control.disabled = other.disabled;
      control.toggleAttribute("aria-invalid", false);
      if (other.hasAttribute("aria-invalid")) control.setAttribute("aria-invalid", "true");
      if (control.placeholder !== undefined && other.placeholder) control.placeholder = other.placeholder;
      if (control.tagName === "SELECT" && !control.hasAttribute("data-fixed")) renew(control, other);
      if (values && control.name !== "own") control.value = other.value;
    }
    const slider = field.querySelector("[data-slider]");
    if (slider) {
      for (const end of ["minimum", "maximum"]) slider.dataset[end] = fresh.querySelector("[data-slider]").dataset[end] ?? "";
    }
  }

  /** The choices of a list, where they are others than before. */
  function renew(list, other) {
    const said = (each) => [...each.options].map((option) => `${option.value}\n${option.text}`).join("\n");
    if (said(list) === said(other)) return;
    const chosen = other.value;
    list.replaceChildren(...[...other.children].map((option) => document.adoptNode(option)));
    list.value = chosen;
  }

  let speaking;

  /** Speaks only once a person has stopped typing, and only what has changed. */
  function speak() {
    clearTimeout(speaking);
    speaking = setTimeout(() => {
      const sentence = root.querySelector("[data-sentence]") ?? root.querySelector("[data-live=answer]");
      const wrong = [...form.querySelectorAll("[data-error]:not([hidden])")].map((each) => each.textContent);
      const text = [...wrong, sentence.textContent.trim()].join(" ");
      const announcement = root.querySelector("[data-announcement]");
      if (announcement.textContent !== text) announcement.textContent = text;
    }, QUIET);
  }

  // ---- What a person does -----------------------------------------------------------------------------------

  let typing = null;

  form.addEventListener("input", (event) => {
    if (!event.target.name) return;
    // Each field that is changed is a step back in the history, each letter is not.
    const kind = event.target.tagName === "INPUT" && typing === event.target.name ? "replace" : "push";
    typing = event.target.name;
    want({ address: typed(), history: kind });
  });
  form.addEventListener("focusout", () => { typing = null; });
  form.addEventListener("submit", (event) => {
    if (home || event.submitter?.hasAttribute("formaction")) return;
    event.preventDefault();
    want({ address: typed(), history: "replace" });
  });
  root.addEventListener("click", (event) => {
    const link = event.target.closest("[data-live] :is(a, [formaction])");
    if (home || !link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const to = new URL(link.href ?? link.formAction);
    if (to.pathname !== path || link.hasAttribute("download")) return;
    event.preventDefault();
    const stays = link.hasAttribute("data-stay");
    want({ address: to.pathname + to.search, history: "push", values: true });
    hold("emit", to.searchParams.get("emit"));
    if (!stays) root.scrollIntoView();
  });
  addEventListener("popstate", () => {
    const address = location.pathname + location.search;
    hold("emit", new URLSearchParams(location.search).get("emit"));
    typing = null;
    want({ address, values: true });
  });

  /** Keeps what no field shows, so that the next change does not lose it. */
  function hold(name, value) {
    form.querySelector(`input[type=hidden][name="${name}"]`)?.remove();
    if (!value) return;
    const kept = Object.assign(document.createElement("input"), { type: "hidden", name, value });
    form.append(kept);
  }

  // A page opened from an address asks again with the model that this tab has kept.
  if (source(form) === "own" && !root.hasAttribute("data-answered") && own.text()) want({ address: location.href, values: true });
  document.documentElement.dataset.ready = "true";
}

/** Ties the slider of the sequence length to its field: powers of two and what is halfway, within the model's range. */
function attachSlider(form) {
  const slider = form.querySelector("[data-slider]");
  if (!slider) return () => {};
  const box = form.elements[slider.dataset.slider];
  const stops = () => {
    const [low, high] = [Number(slider.dataset.minimum), Number(slider.dataset.maximum)];
    if (!high) return [];
    const all = Array.from({ length: 24 }, (_, power) => [2 ** power, 1.5 * 2 ** power]).flat();
    return [low, ...all.filter((stop) => stop > low && stop < high), high];
  };
  const follow = () => {
    const positions = stops();
    slider.hidden = positions.length < 2;
    if (slider.hidden) return;
    slider.max = String(positions.length - 1);
    const value = Number(box.value || box.placeholder);
    const above = positions.findIndex((stop) => stop >= value);
    slider.value = String(above < 0 ? positions.length - 1 : above);
  };
  slider.addEventListener("input", (event) => {
    event.stopPropagation();
    box.value = String(stops()[Number(slider.value)]);
    box.dispatchEvent(new Event("input", { bubbles: true }));
  });
  follow();
  return follow;
}
