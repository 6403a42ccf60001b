// Sharing, embedding and printing: what surrounds the calculator in its page.

import "./copy.js";

const find = (selector) => document.querySelector(selector);
const state = { query: new URL(find("[data-url]").value).search.slice(1), answer: document.title };

// ---- The link -----------------------------------------------------------------------------------------------

function showState() {
  const canonical = find("link[rel=canonical]").href;
  const url = state.query ? `${canonical}?${state.query}` : canonical;
  find("[data-url]").value = url;
  find("[data-url-text]").textContent = url;
  for (const link of document.querySelectorAll("[data-pattern]")) {
    link.href = link.dataset.pattern
      .replace("{url}", () => encodeURIComponent(url))
      .replace("{text}", () => encodeURIComponent(state.answer));
  }
  for (const link of document.querySelectorAll("[data-language]")) {
    link.search = state.query;
  }
  showEmbed();
}

document.addEventListener("batchfit:state", (event) => {
  Object.assign(state, event.detail);
  showState();
});

const native = find("[data-native]");
if (navigator.share) {
  native.parentElement.hidden = false;
  native.addEventListener("click", () => {
    navigator.share({ title: document.title, text: state.answer, url: find("[data-url]").value }).catch((error) => {
      if (error.name !== "AbortError") throw error;
    });
  });
}

// ---- The embed ----------------------------------------------------------------------------------------------

const panel = find("#embed");
const preview = find("#embed iframe");
const code = find("#code");

function showEmbed() {
  const lang = find("[data-embed-language]").value;
  const theme = find("[data-embed-theme]").value;
  const query = new URLSearchParams(state.query);
  if (theme !== "auto") query.set("theme", theme);
  const address = panel.dataset.embed.replace("{lang}", lang) + (query.size ? `?${query}` : "");
  code.value = code.value
    .replace(/src="[^"]*"/, () => `src="${address.replaceAll("&", "&amp;")}"`);
  if (!panel.matches(":popover-open")) return;
  preview.loading = "eager";
  if (preview.src !== address) preview.src = address;
}

find(".options").addEventListener("change", showEmbed);
panel.addEventListener("toggle", showEmbed);
addEventListener("message", (event) => {
  if (event.source === preview.contentWindow && event.data?.type === "batchfit:height") {
    preview.height = String(event.data.height);
  }
});

// ---- Printing -----------------------------------------------------------------------------------------------

const printed = find("[data-printed]");

function stamp() {
  const now = new Date();
  const format = new Intl.DateTimeFormat(document.documentElement.lang, {
    dateStyle: "long",
    timeStyle: "short",
    numberingSystem: "latn", // as all numbers of the page
  });
  printed.textContent = format.format(now);
  printed.dateTime = now.toISOString();
}

addEventListener("beforeprint", stamp);
stamp();
find("[data-print]").addEventListener("click", () => print());

showState();
