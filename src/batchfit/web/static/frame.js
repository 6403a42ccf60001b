// Inside an embed: tells the page around it how high the calculator is. Uses no storage.

const main = document.querySelector("main");

function tell() {
  parent.postMessage({ type: "batchfit:height", height: Math.ceil(main.getBoundingClientRect().height) }, "*");
}

// The link to the whole page leads to the values shown here.
document.addEventListener("batchfit:state", (event) => {
  document.querySelector("[data-full]").search = event.detail.query;
});

if (parent !== window) {
  new ResizeObserver(tell).observe(main);
  addEventListener("load", tell);
}
