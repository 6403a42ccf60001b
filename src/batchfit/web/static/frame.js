// Inside an embed: tells the page around it how high the calculator is. Uses no storage.

function tell() {
  const height = Math.ceil(document.querySelector("main").getBoundingClientRect().height);
  parent.postMessage({ type: "batchfit:height", height }, "*");
}

const home = document.querySelector("[data-full]");

// The link to the whole page leads to the values shown here.
document.addEventListener("batchfit:state", (event) => {
  home.search = event.detail.query;
});

if (parent !== window) {
  new ResizeObserver(tell).observe(document.querySelector("main"));
  addEventListener("load", tell);
}
