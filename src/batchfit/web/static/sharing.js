// Sharing: what surrounds a page that has a state. The link always leads to what is shown.

import "./copy.js";

const find = (selector) => document.querySelector(selector);
const code = find("#code");
const path = find("[data-url]").value.split("?")[0];
let answer = document.title;

document.addEventListener("batchfit:state", ({ detail }) => {
  answer = detail.answer;
  const url = detail.query ? `${path}?${detail.query}` : path;
  find("[data-url]").value = url;
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
