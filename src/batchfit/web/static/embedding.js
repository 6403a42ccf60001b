// The code that embeds this page elsewhere, with its options and a preview. Loaded once the dialog is opened.

const panel = document.querySelector("#embed");
const preview = panel.querySelector("iframe");
const code = panel.querySelector("#code");
const inputs = panel.querySelector("[data-embed-inputs]");

// The languages are those at the top of the page.
panel.querySelector("[data-embed-language]").append(...[...document.querySelectorAll(".languages [data-language]")].map((each) => {
  const option = new Option(each.textContent, each.lang, each.ariaCurrent === "true", each.ariaCurrent === "true");
  option.lang = each.lang;
  return option;
}));

/** A box for each input of the embed, by the name that it has in this page. What was chosen before stays so. */
function listInputs(embed) {
  const held = new Set([...inputs.querySelectorAll("input:not(:checked)")].map((box) => box.value));
  const fields = embed.querySelectorAll("form [data-field]:not([hidden])");
  inputs.replaceChildren(...[...fields].map((field) => {
    const { field: name } = field.dataset;
    const named = document.querySelector(`main form [data-field="${name}"] :is(.label, label)`) ?? field.querySelector(":is(.label, label)");
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: name, checked: !held.has(name) });
    label.append(box, named.firstChild.textContent.trim());
    return label;
  }));
}

/** The address of the embed: the values of the page, and the options chosen here. */
function address() {
  const { search } = new URL(document.querySelector("[data-url]").value);
  const query = new URLSearchParams(search);
  for (const option of panel.querySelectorAll("[data-embed-option]")) {
    if (option.value) query.set(option.dataset.embedOption, option.value);
  }
  const boxes = [...inputs.querySelectorAll("input")];
  const shown = boxes.filter((box) => box.checked).map((box) => box.value);
  if (shown.length < boxes.length) query.set("show", shown.join(",") || "none");
  const lang = panel.querySelector("[data-embed-language]").value;
  const text = query.toString().replaceAll("%2C", ",");
  return panel.dataset.embed.replace("{lang}", lang) + (text ? `?${text}` : "");
}

function show() {
  const url = address();
  setCode("src", url);
  if (!panel.matches(":popover-open")) return;
  preview.loading = "eager";
  if (preview.src !== url) preview.src = url;
}

/** Changes an attribute of the frame in the code. */
function setCode(name, value) {
  const escaped = value.replaceAll("&", "&amp;").replaceAll('"', "&#34;");
  code.value = code.value.replace(new RegExp(`(<iframe[^>]* ${name}=)"[^"]*"`), (_, before) => `${before}"${escaped}"`);
}

panel.addEventListener("change", show);
panel.addEventListener("toggle", show);
document.addEventListener("batchfit:state", show);
preview.addEventListener("load", () => {
  const embed = preview.contentDocument;
  if (!embed?.querySelector("form")) return;
  const focused = document.activeElement?.value;
  listInputs(embed);
  inputs.querySelector(`[value="${focused}"]`)?.focus();
  setCode("title", embed.querySelector("h1").textContent);
});
addEventListener("message", ({ source, data }) => {
  if (source !== preview.contentWindow || data?.type !== "batchfit:height") return;
  preview.height = String(data.height);
  setCode("height", String(data.height));
});
show();
