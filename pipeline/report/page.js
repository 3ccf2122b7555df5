"use strict";
// Draws every figure into the element of its name, in the colours of the reader's screen; those of a new report, too.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const dark_of = read("colours");
  const is_dark = window.matchMedia("(prefers-color-scheme: dark)");

  const in_dark = (value) => {
    if (typeof value === "string") return Object.hasOwn(dark_of, value) ? dark_of[value] : value;
    if (Array.isArray(value)) return value.map(in_dark);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, in_dark(inner)]));
  };

  const draw = () => {
    for (const [name, figure] of Object.entries(read("figures"))) {
      const { data, layout } = is_dark.matches ? in_dark(figure) : figure;
      Plotly.react(name, data, layout, { responsive: true, displayModeBar: false });
    }
  };

  is_dark.addEventListener("change", draw);
  document.addEventListener("report", draw);
  draw();
})();
