"use strict";
// Draws each <figure data-chart="name"> from the JSON in <script id="chart-name">, one after the other, so that
// the page is there before all of them are.
// "ast": Vega interprets a chart's expressions, where it would make functions of text by default.
const options = {
  mode: "vega-lite", renderer: "svg", actions: false, logLevel: 1, tooltip: { theme: "report" }, ast: true,
};
(async () => {
  for (const place of document.querySelectorAll("[data-chart]")) {
    const spec = JSON.parse(document.getElementById("chart-" + place.dataset.chart).textContent);
    try {
      await vegaEmbed(place, spec, options);
      place.dataset.drawn = "yes";
    } catch (problem) {
      place.textContent = "This chart could not be drawn: " + problem;
      place.dataset.drawn = "no";
    }
    await new Promise((next) => setTimeout(next));
  }
})();
// Print shows what is folded on the screen.
addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
