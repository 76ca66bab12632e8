// Widths of columns that a person chose, by pointer or keyboard: this browser keeps them, by the name of the column.
import { h } from "./dom.js";

const STORE = "lading-widths";
const WIDTH_MIN = 48;
const WIDTH_MAX = 1600;
const STEP = 16;
const COLUMNS_MAX = 500; // names that are kept
let dragged = null; // { name, from, width, table } while a pointer moves an edge

function read() {
  try { return JSON.parse(localStorage.getItem(STORE)) ?? {}; } catch { return {}; }
}

function keep(name, width) {
  const { [name]: before, ...others } = read();
  const kept = Object.entries(width === null ? others : { ...others, [name]: width }).slice(-COLUMNS_MAX);
  try { localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(kept))); } catch { /* a browser that stores nothing */ }
}

const cellsOf = (table, name) => {
  const at = [...table.tHead.rows[0].cells].findIndex((one) => one.dataset.column === name);
  return at < 0 ? [] : [...table.rows].filter((row) => !row.classList.contains("detail")).map((row) => row.cells[at]);
};

function set(table, name, width) {
  for (const cell of cellsOf(table, name)) {
    cell.classList.toggle("sized", width !== null);
    if (width === null) cell.style.removeProperty("--width"); else cell.style.setProperty("--width", `${width}px`);
  }
  // "edge" of the head itself: a name may have any characters
  const edge = cellsOf(table, name)[0]?.querySelector(".edge");
  if (edge) say(edge, width);
}

function say(edge, width) {
  // a separator that takes the focus has a value; 0 is that of a column as wide as what it holds
  edge.setAttribute("aria-valuenow", width ?? 0);
  edge.setAttribute("aria-valuetext", width === null ? "automatic" : `${width} pixels`);
}

const bounded = (width) => Math.round(Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, width)));

function choose(table, name, width) {
  set(table, name, width);
  keep(name, width);
}

export function edge(name) {
  // the right edge of a column's head
  const tableOf = (event) => event.target.closest("table");
  const widthOf = (event) => event.target.closest("th").getBoundingClientRect().width;
  return h("span", { class: "edge", role: "separator", tabindex: 0, dataset: { edge: name }, "aria-orientation": "vertical",
    "aria-label": `Width of the column ${name}`, "aria-valuemin": 0, "aria-valuenow": 0, "aria-valuetext": "automatic", "aria-valuemax": WIDTH_MAX, title: "Drag, or use the arrow keys; Home or a double click takes it back",
    onpointerdown: (event) => { if (event.button) return; event.preventDefault(); dragged = { name, from: event.clientX, width: widthOf(event), place: tableOf(event).parentElement.parentElement }; },
    ondblclick: (event) => choose(tableOf(event), name, null),
    onkeydown: (event) => {
      const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
      if (step === undefined && event.key !== "Home") return;
      event.preventDefault();
      choose(tableOf(event), name, step === undefined ? null : bounded(widthOf(event) + step));
    } });
}

export function applyWidths(table) {
  const kept = read();
  for (const head of table.tHead.rows[0].cells) {
    const width = kept[head.dataset.column];
    if (Number.isFinite(width)) set(table, head.dataset.column, bounded(width));
  }
}

// at the window: rows that arrive meanwhile draw the table anew
window.addEventListener("pointermove", (event) => {
  const table = dragged?.place.querySelector("table");
  if (table) set(table, dragged.name, bounded(dragged.width + event.clientX - dragged.from));
});
window.addEventListener("pointerup", (event) => {
  const before = dragged;
  dragged = null;
  const table = before?.place.querySelector("table");
  if (table && event.clientX !== before.from) choose(table, before.name, bounded(before.width + event.clientX - before.from));
});
window.addEventListener("pointercancel", () => { dragged = null; });
