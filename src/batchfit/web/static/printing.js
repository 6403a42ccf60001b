// Printing: the date, and the link as a QR code, which is the server's. It never stands beside another link.

const PATIENCE = 1500; // milliseconds that a person who prints waits for the code at most

const find = (selector) => document.querySelector(selector);

function stamp() {
  const now = new Date();
  const format = new Intl.DateTimeFormat(document.documentElement.lang, {
    dateStyle: "long",
    timeStyle: "short",
    numberingSystem: "latn", // as all numbers of the page
  });
  const printed = find("[data-printed]");
  printed.textContent = format.format(now);
  printed.dateTime = now.toISOString();
}

/** Takes the code for these values in place of another's. The browser asks for it only once it is to be seen. */
document.addEventListener("batchfit:state", ({ detail: { query } }) => {
  const place = find("[data-qr]");
  if (place.dataset.query === query) return;
  place.dataset.query = query;
  const picture = Object.assign(new Image(), { loading: "lazy", alt: place.dataset.alt });
  picture.addEventListener("error", () => picture.remove());
  picture.src = query ? `${place.dataset.qr}?${query}` : place.dataset.qr;
  place.replaceChildren(picture);
});

/** Has the code at hand. */
async function ready() {
  const picture = find("[data-qr] img");
  if (!picture) return;
  picture.loading = "eager";
  await Promise.race([picture.decode().catch(() => {}), new Promise((after) => { setTimeout(after, PATIENCE); })]);
  if (!picture.complete) picture.remove();
}

addEventListener("beforeprint", stamp);
// Whoever holds Control or Command may be about to print.
addEventListener("keydown", (event) => { if (event.key === "Control" || event.key === "Meta") ready(); });
find("[data-print]").addEventListener("click", async () => {
  await ready();
  print();
});
stamp();
