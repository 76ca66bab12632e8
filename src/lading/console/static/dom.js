// Elements, and text that nothing is hidden in. All that a message holds reaches the page as text nodes, never as markup.
import { inBase } from "./place.js";

export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open") made[name] = value;
    else made.setAttribute(name, value === true ? "" : name === "href" ? inBase(String(value)) : String(value));
  }
  made.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

// by what an element is found again after its surroundings were drawn anew
const nameOf = (one) => Object.values(one.dataset).join() || one.getAttribute("href") || one.textContent;

export function redraw(element, ...children) {
  // fill, for what a person may be in the middle of: focus, sideways scrolling and opened parts stay, and so does
  // all of it, with what is selected, if nothing has changed
  const made = fill(document.createElement("div"), ...children);
  const pair = (selector) => [...element.querySelectorAll(selector)].map((one, at) => [one, made.querySelectorAll(selector)[at]]).filter(([, twin]) => twin);
  for (const [old, twin] of pair("details")) twin.open = old.open;
  if (made.childNodes.length === element.childNodes.length && [...made.childNodes].every((one, at) => one.isEqualNode(element.childNodes[at]))) return element;
  const scrolled = pair(".scroll, .stack").map(([old, twin]) => [twin, old.scrollLeft]);
  const focused = document.activeElement !== element && element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren(...made.childNodes);
  for (const [one, left] of scrolled) one.scrollLeft = left;
  // an element that was moved, not made anew, has lost the focus too
  const again = focused && (element.contains(focused) ? focused : [...element.querySelectorAll(focused.tagName)].find((one) => nameOf(one) === nameOf(focused)));
  again?.focus({ preventScroll: true });
  return element;
}

// what moves, hides or reorders text: the same characters as model/printable.py
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{110bd}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e007f}]+/gu;

function escapeOf(character) {
  const code = character.codePointAt(0);
  if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
  return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
}

export function visible(text, lines = false) {
  // returns nodes, one for each run of what is not seen; in one line, ends of lines and tabs are escapes as well
  const nodes = [];
  let at = 0;
  const shown = lines ? text : text.replace(/[\t\n]/g, (one) => (one === "\n" ? "⏎" : "⇥"));
  for (const found of shown.matchAll(UNSEEN)) {
    if (found.index > at) nodes.push(shown.slice(at, found.index));
    nodes.push(h("span", { class: "unseen" }, Array.from(found[0], escapeOf).join("")));
    at = found.index + found[0].length;
  }
  if (at < shown.length) nodes.push(shown.slice(at));
  return nodes;
}

// a name or value of no characters leaves no hole
export const visibleOrEmpty = (text, lines = false) => (text === "" ? h("span", { class: "soft" }, "empty") : visible(text, lines));

// in place of a value that the settings of this console hide
export const masked = () => h("span", { class: "value masked", title: "masked by the settings of this console" }, "masked");

export const count = (number) => (number === null || number === undefined ? "–" : Number(number).toLocaleString("en-US"));
export const plural = (number, noun, many = noun + "s") => `${count(number)} ${Number(number) === 1 ? noun : many}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let left = Number(bytes);
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (left < 1000) return unit === "B" ? `${left} B` : `${left.toFixed(1)} ${unit}`;
    left /= 1000;
  }
  return `${left.toFixed(1)} TB`;
}

export function moment(us) {
  // microseconds since 1970 as a text; JavaScript's own dates end at milliseconds
  const whole = BigInt(us);
  const date = new Date(Number(whole / 1000n));
  if (Number.isNaN(date.getTime())) return `${us} µs`;
  const micros = String(((whole % 1000n) + 1000n) % 1000n).padStart(3, "0");
  return date.toISOString().replace("T", " ").replace("Z", micros === "000" ? "" : micros);
}

export function shortMoment(us) {
  // the time of the day to the millisecond, as 20:13:55.660; where the date stands in a title
  const shown = moment(us);
  return shown.includes(" ") && !shown.endsWith("µs") ? shown.slice(shown.indexOf(" ") + 1, shown.indexOf(" ") + 13) : shown;
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return `${perSecond >= 100 ? count(Math.round(perSecond)) : perSecond.toFixed(perSecond ? 1 : 0)}/s`;
}

export function toast(text, kind = "") {
  const shown = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), kind === "bad" ? 8000 : 3000);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`copied ${what}`);
  } catch {
    toast(`the browser does not let this page copy; select the text instead`, "bad");
  }
}

export function ask(title, body, action, { danger = false, focus = null } = {}) {
  // resolves to true if the person agreed
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "ask", "aria-label": title });
    const agree = h("button", { type: "button", class: danger ? "danger" : "primary", onclick: () => dialog.close("yes") }, action);
    fill(dialog, h("h2", {}, title), h("div", { class: "ask-body" }, body),
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel"), agree));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
    (focus ?? agree).focus();
  });
}

export function closeDetail(row) {
  row.setAttribute("aria-expanded", "false");
  row.nextElementSibling.remove();
}

export function toggleDetail(row, load) {
  // opens what `load` resolves to below a row, or closes it
  if (row.nextElementSibling?.classList.contains("detail")) return closeDetail(row);
  const cell = h("td", { colspan: row.children.length }, h("p", { class: "soft" }, "…"));
  row.setAttribute("aria-expanded", "true");
  row.after(h("tr", { class: "detail" }, cell));
  return load().then((nodes) => fill(cell, nodes)).catch((error) => { if (error.name !== "AbortError") fill(cell, errorBox(error)); });
}

export function openRow(name, toggle, ...cells) {
  // a row of a table that opens by a click or by Enter
  const row = h("tr", { tabindex: 0, class: "message", "aria-expanded": "false", dataset: { name },
    onclick: (event) => { if (!event.target.closest("a") && !String(getSelection())) toggle(row); },
    onkeydown: (event) => { if (event.key === "Enter" && event.target === row) toggle(row); } }, cells);
  return row;
}

export function errorBox(error, filter = null) {
  const parts = [h("p", {}, visible(error.message, true))];
  if (filter && error.at !== null && error.at !== undefined && !error.message.includes("\n")) {
    parts.push(h("pre", {}, visible(filter), "\n", " ".repeat(error.at), "^"));
  }
  if (error.needsLogin) parts.push(loginAgain(error.loginUrl));
  return h("div", { class: "error", role: "alert" }, parts);
}

export function loginAgain(url) {
  // in a tab of its own: what was typed here stays, and can be sent once that tab is logged in
  return h("p", {}, h("a", { href: url, target: "_blank", rel: "noopener" }, "Log in in a new tab"),
    ", then go on here: nothing on this page is lost.");
}

export function table(heads, rows, attributes = {}) {
  // heads: [label, "n" for numbers]; rows: arrays of cells (nodes or texts)
  const labels = heads.map((one) => (Array.isArray(one) ? one : [one, ""]));
  // at the width of a telephone, rows of many columns become cards
  const shape = { class: labels.length > 3 ? "cards" : null, ...attributes };
  return h("div", { class: "scroll" }, h("table", shape,
    h("thead", {}, h("tr", {}, labels.map(([label, kind]) => h("th", { class: kind, scope: "col" }, label)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((one, at) =>
      h("td", { class: labels[at][1], "data-label": typeof labels[at][0] === "string" ? labels[at][0] : null }, one)))))));
}
