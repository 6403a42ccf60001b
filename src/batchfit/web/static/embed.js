// For pages that embed a batchfit calculator: fits each of its frames to the height of what is in it.
(() => {
  "use strict";
  const origin = new URL(document.currentScript.src).origin;
  addEventListener("message", (event) => {
    const { type, height } = event.data ?? {};
    // A sandboxed frame has no origin of its own.
    if (event.origin !== origin && event.origin !== "null") return;
    if (type !== "batchfit:height" || !(height > 0 && height < 20000)) return;
    for (const frame of document.getElementsByTagName("iframe")) {
      if (frame.contentWindow === event.source && frame.src.startsWith(`${origin}/embed/`)) {
        frame.style.height = `${height}px`;
      }
    }
  });
})();
