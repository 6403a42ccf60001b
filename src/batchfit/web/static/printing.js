// Printing: the date, and what is the server's: the link as a QR code, which never stands beside another link, and worked
// examples of formulas that tell cases apart.

const PATIENCE = 1500; // milliseconds that a person who prints waits for these at most

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

/** Takes the link and the code for these values in place of another's. The browser asks for the code only once it is to be
    seen. */
document.addEventListener("batchfit:state", ({ detail: { query } }) => {
  const link = find("[data-url-text]");
  const [path] = link.textContent.split("?");
  link.textContent = query ? `${path}?${query}` : path;
  const place = find("[data-qr]");
  if (place.dataset.query === query) return;
  place.dataset.query = query;
  const picture = Object.assign(new Image(), { loading: "lazy", alt: place.dataset.alt });
  picture.addEventListener("error", () => picture.remove());
  picture.src = query ? `${place.dataset.qr}?${query}` : place.dataset.qr;
  place.replaceChildren(picture);
});

/** Has everything at hand. */
async function ready() {
  const picture = find("[data-qr] img");
  const wanted = [examples()];
  if (picture) {
    picture.loading = "eager";
    wanted.push(picture.decode().catch(() => {}));
  }
  await Promise.race([Promise.all(wanted), new Promise((after) => { setTimeout(after, PATIENCE); })]);
  if (picture && !picture.complete) picture.remove();
}

/** Puts worked examples of these values in place of those that hold for others only and are therefore hidden. */
function examples() {
  const place = find("[data-examples]");
  if (!place?.querySelector("[data-cases][hidden]")) return undefined;
  const { query } = find("[data-qr]").dataset;
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("GET", `${location.pathname}?${query}`);
    request.responseType = "document"; // read as pages are, so no text becomes markup here
    request.onload = () => {
      const fresh = request.response?.querySelector("[data-examples]");
      if (fresh && find("[data-qr]").dataset.query === query) place.replaceChildren(...fresh.childNodes);
      done();
    };
    request.onerror = done;
    request.send();
  });
}

addEventListener("beforeprint", stamp);
// Whoever holds Control or Command may be about to print.
addEventListener("keydown", (event) => { if (event.key === "Control" || event.key === "Meta") ready(); });
find("[data-print]").addEventListener("click", async () => {
  await ready();
  print();
});
stamp();
