"use strict";
// The handle of a comparison moves the edge between the two images that lie on each other.
for (const handle of document.querySelectorAll(".compare input")) {
  handle.addEventListener("input", () => handle.parentElement.style.setProperty("--edge", handle.value + "%"));
}
// A switch shows one of the variants to choose from.
for (const choice of document.querySelectorAll(".switch input")) {
  choice.addEventListener("change", () => {
    for (const each of document.querySelectorAll("[data-offer]")) each.hidden = each.dataset.offer !== choice.value;
  });
}
