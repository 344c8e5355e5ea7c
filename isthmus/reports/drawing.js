"use strict";
// What every page with figures and copy buttons uses.
const style = () => getComputedStyle(document.documentElement);
// Figures name their colours (@ink, @shape-0); the style sheet knows what they are now, light or dark.
const coloured = (figure) => {
  const current = style();
  const text = JSON.stringify(figure).replace(/"@([\w-]+)"/g, (_, name) =>
    JSON.stringify(current.getPropertyValue(`--${name}`).trim()));
  return JSON.parse(text);
};
const options = { responsive: true, displaylogo: false, displayModeBar: false };
const draw = (place, figure) => {
  // Hundreds of hidden curves would take Plotly seconds.
  const { data, layout } = coloured({ ...figure, data: figure.data.filter((trace) => trace.visible !== false) });
  for (const trace of data) {
    // A curve's text is stored once, with its number of points.
    if (trace.meta) trace.text = trace.meta.flatMap(([text, points]) => [...Array(points).fill(text), ""]);
  }
  if (place.clientWidth < 560) {
    if (layout.xaxis.dtick === "D2") layout.xaxis.dtick = 1; // room for decades only
    // The names of references move from the margin into the plot, above their lines.
    for (const label of (layout.annotations || []).filter((each) => each.xanchor === "left")) {
      layout.margin.r = 12;
      Object.assign(label, { xanchor: "right", xshift: 0, yanchor: "bottom" });
    }
  }
  Plotly.react(place, data, layout, options);
};

// Browsers may refuse the clipboard to pages that are files.
const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};
// One listener for all buttons, also those that are added later.
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy");
  if (!button) return;
  await copy(button.dataset.copy);
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1200);
});
