"use strict";
{
  const press = (button, down, up) => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    button.textContent = on ? down : up;
    return on;
  };

  const redraws = [];
  for (const section of document.querySelectorAll("main > section")) {
    if (section.querySelector(".plots").hidden) continue;
    const figures = JSON.parse(section.querySelector("script.figures").textContent);
    const cost = section.querySelector(".cost");
    const metric = section.querySelector(".metric");
    const front = () => draw(section.querySelector(".front"), figures.fronts[cost.value][metric.value]);
    // Every cost has its block of measures; a gap is drawn once its block is shown, and so has its width.
    const measures = () => {
      for (const block of section.querySelectorAll(".measures")) {
        block.hidden = block.dataset.cost !== cost.value;
        const gap = figures.gaps[block.dataset.cost];
        if (gap && !block.hidden) draw(block.querySelector(".gap"), gap);
      }
    };
    const curves = () => section.querySelectorAll(".curve").forEach((place, i) => draw(place, figures.curves[i]));
    cost.addEventListener("change", () => {
      [".answer", ".limits"].forEach((name, i) => {
        const words = section.querySelector(name); // a search has its answer in the box
        if (words) words.textContent = figures.answers[cost.value][i];
      });
      front();
      measures();
    });
    metric.addEventListener("change", front);
    const fit = () => figures.fit && draw(section.querySelector(".fit"), figures.fit);
    const course = () => {
      if (!figures.contributions) return;
      draw(section.querySelector(".belief"), figures.belief);
      draw(section.querySelector(".steps"), figures.contributions);
    };
    redraws.push(front, measures, curves, fit, course);
    section.querySelector(".more.curves").addEventListener("click", (event) => {
      const on = press(event.target, "Show fewer curves", "Show all curves");
      for (const figure of figures.curves) {
        for (const trace of figure.data) if ("visible" in trace) trace.visible = on;
      }
      curves();
    });
  }
  const redraw = () => redraws.forEach((one) => one());
  redraw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  const value = (row, column) => {
    const text = row.cells[column].dataset.value;
    return text === "" || isNaN(text) ? text : Number(text);
  };
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const sort = (head) => {
    const direction = head.ariaSort === "descending" ? "ascending" : "descending";
    const sign = direction === "ascending" ? 1 : -1;
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const body = head.closest("table").tBodies[0];
    body.append(...[...body.rows].sort((a, b) => sign * order(value(a, head.cellIndex), value(b, head.cellIndex))));
  };
  for (const button of document.querySelectorAll("table.sortable th button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  for (const button of document.querySelectorAll(".more.columns")) {
    button.addEventListener("click", () => {
      button.closest("section").classList.toggle("whole", press(button, "Show fewer columns", "Show all columns"));
    });
  }
}
