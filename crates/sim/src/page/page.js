"use strict";
// What a page can do beyond being read: values under the pointer, lines switched on and off, tables sorted, data
// saved, commands copied. Without this script the page shows the same charts, tables and numbers.
(() => {
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const number = (value) => Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 12 });
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "data";

  const save = (title, rows) => {
    const cell = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
    const text = rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `${slug(title)}.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const saveButton = (section, rows) => {
    const title = section.querySelector("h2")?.textContent ?? document.title;
    const button = make("button", { type: "button", className: "tool", textContent: "Save as CSV" });
    button.addEventListener("click", () => save(title, rows()));
    section.append(make("p", { className: "tools" }, button));
  };

  const pixel = (scale, value) => {
    const [low, high, from, to, isLog] = scale;
    if (isLog && value <= 0) return NaN;
    const share = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return from + Math.min(1, Math.max(0, share)) * (to - from);
  };

  const enhanceChart = (section, data) => {
    const svg = section.querySelector("svg.chart");
    const groups = [...svg.querySelectorAll("[data-series]")];
    const hidden = new Set();
    for (const button of section.querySelectorAll(".legend button")) {
      button.addEventListener("click", () => {
        const index = Number(button.dataset.of);
        const shows = hidden.delete(index) || !hidden.add(index);
        button.setAttribute("aria-pressed", String(shows));
        for (const group of groups) if (Number(group.dataset.series) === index) group.style.display = shows ? "" : "none";
      });
    }
    const points = data.series.map((series) => series.points.map(([x, y]) => [pixel(data.x_scale, x), x, y]));
    const guide = document.createElementNS(svg.namespaceURI, "path");
    guide.setAttribute("class", "guide");
    svg.append(guide);
    const box = make("div", { className: "values", hidden: true });
    section.append(box);
    const hide = () => { box.hidden = true; guide.removeAttribute("d"); };
    const nearest = (list, at) => list.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), [Infinity]);
    svg.addEventListener("pointermove", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
      const shown = points.map((list, index) => [index, nearest(list, at)]).filter(([index, point]) => !hidden.has(index) && point.length > 1);
      if (shown.length === 0) return hide();
      const [place, x] = nearest(shown.map(([, point]) => point), at);
      const rows = shown.filter(([, point]) => Math.abs(point[0] - place) < 6).sort(([, a], [, b]) => b[2] - a[2]);
      const top = pixel(data.y_scale, data.y_scale[1]), bottom = pixel(data.y_scale, data.y_scale[0]);
      guide.setAttribute("d", `M${place} ${top}V${bottom}`);
      box.replaceChildren(
        make("b", { textContent: `${data.x_label.replace(/ \(.*/, "")}: ${number(x)}` }),
        ...rows.slice(0, 12).map(([index, point]) => make("span", { textContent: `${data.series[index].label}: ${number(point[2])}` })));
      box.hidden = false;
      const frame = section.getBoundingClientRect();
      const left = event.clientX - frame.left;
      const before = left + 16 + box.offsetWidth > frame.width;
      box.style.left = `${Math.max(4, before ? left - 16 - box.offsetWidth : left + 16)}px`;
      box.style.top = `${event.clientY - frame.top + 12}px`;
    });
    svg.addEventListener("pointerleave", hide);
    saveButton(section, () => [["series", data.x_label, data.y_label],
      ...data.series.flatMap((series) => series.points.map(([x, y]) => [series.label, x, y]))]);
  };

  // The size of a cell such as "1,234", "12.5 %", ">= 3.4" or "64.0 MiB"; NaN for words.
  const units = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, KB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, ms: 1e3, s: 1e6 };
  const size = (text) => {
    const found = /^[<>=~+ ]*(-?[\d,]*\.?\d+)\s*([a-zA-Z]*)/.exec(text.trim());
    return found ? Number(found[1].replaceAll(",", "")) * (units[found[2]] ?? 1) : NaN;
  };
  const compare = (a, b) => {
    const [x, y] = [size(a), size(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) return a.localeCompare(b);
    return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : x - y;
  };
  const enhanceTable = (section, table) => {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    const text = (row, column) => row.cells[column]?.textContent ?? "";
    if (body.rows.length > 1) heads.forEach((head, column) => {
      const button = make("button", { type: "button", title: "Sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].sort((a, b) => compare(text(a, column), text(b, column)));
        body.append(...(up ? rows : rows.reverse()));
      });
    });
    saveButton(section, () => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)));
  };

  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); } catch {
      const field = make("textarea", { value: text });
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  };
  const copyButton = (code) => {
    const button = make("button", { type: "button", className: "tool", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await copy(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    code.after(" ", button);
  };

  for (const section of document.querySelectorAll("section")) {
    const data = section.querySelector("script[type='application/json']");
    const parsed = data && JSON.parse(data.textContent);
    if (parsed?.x_scale) enhanceChart(section, parsed);
    else if (parsed) saveButton(section, () => parsed.rows);
    const table = section.querySelector("table");
    if (table) enhanceTable(section, table);
  }
  document.querySelectorAll("code.copy").forEach(copyButton);
})();
