// Sharing: what surrounds a page that has a state. The link always leads to what is shown.

import "./copy.js";
import "./printing.js";

const find = (selector) => document.querySelector(selector);
const code = find("#code");
let answer = document.title;

document.addEventListener("batchfit:state", ({ detail }) => {
  answer = detail.answer;
  const canonical = find("link[rel=canonical]").href;
  const url = detail.query ? `${canonical}?${detail.query}` : canonical;
  find("[data-url]").value = url;
  find("[data-url-text]").textContent = url;
  // With other options than the usual, its dialog writes the code anew.
  const query = detail.query.replaceAll("&", "&amp;");
  code.value = code.value.replace(/(src="[^"?]*\/embed\/[^"?]*)[^"]*/, (_, before) => before + (query && `?${query}`));
  for (const link of document.querySelectorAll("[data-pattern]")) {
    link.href = link.dataset.pattern
      .replace("{url}", () => encodeURIComponent(url))
      .replace("{text}", () => encodeURIComponent(answer));
  }
  for (const link of document.querySelectorAll("[data-language]")) {
    link.search = detail.query;
  }
});

const native = find("[data-native]");
if (navigator.share) {
  native.parentElement.hidden = false;
  native.addEventListener("click", () => {
    navigator.share({ title: document.title, text: answer, url: find("[data-url]").value }).catch((error) => {
      if (error.name !== "AbortError") throw error;
    });
  });
}

// What few people open is loaded when they do.
find("#embed").addEventListener("toggle", () => import("./embedding.js"), { once: true });
