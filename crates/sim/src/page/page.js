"use strict";
// What a page can do beyond being read: values under the pointer, lines switched on and off, tables sorted, data
// saved, commands copied. Without this script the page shows the same charts, tables and numbers.
(() => {
  const makeElement = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const formatNumber = (value) => Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 12 });
  const toFileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "data";

  const saveCsv = (title, rows) => {
    const formatCell = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
    const text = rows.map((row) => row.map(formatCell).join(",")).join("\n") + "\n";
    const link = makeElement("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `${toFileName(title)}.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const addSaveButton = (section, listRows) => {
    const title = section.querySelector("h2")?.textContent ?? document.title;
    const button = makeElement("button", { type: "button", className: "tool", textContent: "Save as CSV" });
    button.addEventListener("click", () => saveCsv(title, listRows()));
    section.append(makeElement("p", { className: "tools" }, button));
  };

  const toPixel = (scale, value) => {
    const [low, high, startPixel, endPixel, isLog] = scale;
    if (isLog && value <= 0) return NaN;
    const fraction = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return startPixel + Math.min(1, Math.max(0, fraction)) * (endPixel - startPixel);
  };

  const enhanceChart = (section, data) => {
    const svg = section.querySelector("svg.chart");
    const groups = [...svg.querySelectorAll("[data-series]")];
    const hiddenIndexes = new Set();
    for (const button of section.querySelectorAll(".legend button")) {
      button.addEventListener("click", () => {
        const index = Number(button.dataset.of);
        const isVisible = hiddenIndexes.delete(index) || !hiddenIndexes.add(index);
        button.setAttribute("aria-pressed", String(isVisible));
        for (const group of groups) if (Number(group.dataset.series) === index) group.style.display = isVisible ? "" : "none";
      });
    }
    // Each point with its pixel on the horizontal axis: [pixel, x, y].
    const pointsBySeries = data.series.map((series) => series.points.map(([x, y]) => [toPixel(data.x_scale, x), x, y]));
    const guide = document.createElementNS(svg.namespaceURI, "path");
    guide.setAttribute("class", "guide");
    svg.append(guide);
    const valuesBox = makeElement("div", { className: "values", hidden: true });
    section.append(valuesBox);
    const hideValues = () => { valuesBox.hidden = true; guide.removeAttribute("d"); };
    const findNearest = (points, pixel) => points.reduce((best, point) => (Math.abs(point[0] - pixel) < Math.abs(best[0] - pixel) ? point : best), [Infinity]);
    svg.addEventListener("pointermove", (event) => {
      const pointerPixel = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
      const nearestBySeries = pointsBySeries.map((points, index) => [index, findNearest(points, pointerPixel)]).filter(([index, point]) => !hiddenIndexes.has(index) && point.length > 1);
      if (nearestBySeries.length === 0) return hideValues();
      const [guidePixel, x] = findNearest(nearestBySeries.map(([, point]) => point), pointerPixel);
      const valuesAtGuide = nearestBySeries.filter(([, point]) => Math.abs(point[0] - guidePixel) < 6).sort(([, a], [, b]) => b[2] - a[2]);
      const top = toPixel(data.y_scale, data.y_scale[1]), bottom = toPixel(data.y_scale, data.y_scale[0]);
      guide.setAttribute("d", `M${guidePixel} ${top}V${bottom}`);
      valuesBox.replaceChildren(
        makeElement("b", { textContent: `${data.x_label.replace(/ \(.*/, "")}: ${formatNumber(x)}` }),
        ...valuesAtGuide.slice(0, 12).map(([index, point]) => makeElement("span", { textContent: `${data.series[index].label}: ${formatNumber(point[2])}` })));
      valuesBox.hidden = false;
      const frame = section.getBoundingClientRect();
      const pointerLeft = event.clientX - frame.left;
      const isLeftOfPointer = pointerLeft + 16 + valuesBox.offsetWidth > frame.width;
      valuesBox.style.left = `${Math.max(4, isLeftOfPointer ? pointerLeft - 16 - valuesBox.offsetWidth : pointerLeft + 16)}px`;
      valuesBox.style.top = `${event.clientY - frame.top + 12}px`;
    });
    svg.addEventListener("pointerleave", hideValues);
    addSaveButton(section, () => [["series", data.x_label, data.y_label],
      ...data.series.flatMap((series) => series.points.map(([x, y]) => [series.label, x, y]))]);
  };

  // The number in a cell such as "1,234", "12.5 %", ">= 3.4" or "64.0 MiB"; NaN for words.
  const factorByUnit = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, KB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, ms: 1e3, s: 1e6 };
  const parseCell = (text) => {
    const match = /^[<>=~+ ]*(-?[\d,]*\.?\d+)\s*([a-zA-Z]*)/.exec(text.trim());
    return match ? Number(match[1].replaceAll(",", "")) * (factorByUnit[match[2]] ?? 1) : NaN;
  };
  const compareCells = (a, b) => {
    const [x, y] = [parseCell(a), parseCell(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) return a.localeCompare(b);
    return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : x - y;
  };
  const enhanceTable = (section, table) => {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    const cellText = (row, column) => row.cells[column]?.textContent ?? "";
    if (body.rows.length > 1) heads.forEach((head, column) => {
      const button = makeElement("button", { type: "button", title: "Sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isAscending = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
        const rows = [...body.rows].sort((a, b) => compareCells(cellText(a, column), cellText(b, column)));
        body.append(...(isAscending ? rows : rows.reverse()));
      });
    });
    addSaveButton(section, () => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)));
  };

  const copyText = async (text) => {
    try { await navigator.clipboard.writeText(text); } catch {
      const field = makeElement("textarea", { value: text });
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  };
  const addCopyButton = (code) => {
    const button = makeElement("button", { type: "button", className: "tool", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await copyText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    code.after(" ", button);
  };

  for (const section of document.querySelectorAll("section")) {
    const dataElement = section.querySelector("script[type='application/json']");
    const data = dataElement && JSON.parse(dataElement.textContent);
    if (data?.x_scale) enhanceChart(section, data);
    else if (data) addSaveButton(section, () => data.rows);
    const table = section.querySelector("table");
    if (table) enhanceTable(section, table);
  }
  document.querySelectorAll("code.copy").forEach(addCopyButton);
})();
