// The shell: which page the address means, the theme, the keyboard, and whether the server behind it answers.
import { get, post, setBackground } from "./api.js";
import { errorBox, fill, h, loginAgain, visible } from "./dom.js";
import { nextKey } from "./key.js";
import { base, inBase, pathHere } from "./place.js";
import * as failures from "./views/failures.js";
import * as group from "./views/group.js";
import * as groups from "./views/groups.js";
import * as headers from "./views/headers.js";
import * as messages from "./views/messages.js";
import * as mirrors from "./views/mirrors.js";
import * as pipelines from "./views/pipelines.js";
import * as send from "./views/send.js";
import * as topic from "./views/topic.js";
import * as topics from "./views/topics.js";

const PAGES = { "/": topics, "/topic": topic, "/messages": messages, "/headers": headers, "/send": send,
  "/groups": groups, "/group": group, "/failures": failures, "/pipelines": pipelines, "/mirrors": mirrors };
const UNKNOWN = {
  title: () => "Not found",
  render(place) {
    place.append(h("div", { class: "bar" }, h("h1", {}, "Not found")), h("p", { class: "empty" }, "There is no page ", h("code", {}, visible(pathHere())), ". See ", h("a", { href: "/" }, "all topics"), "."));
  },
};
const NAV = [["/", "Topics"], ["/groups", "Groups"], ["/failures", "Failures"], ["/pipelines", "Pipelines"], ["/mirrors", "Mirrors"]];
// read with the rights of the console's process: only for its own user and administrators
const FILE_PAGES = ["/pipelines", "/mirrors"];
const BELOW = { "/topic": "/", "/messages": "/", "/headers": "/", "/send": "/", "/group": "/groups" };
const main = document.getElementById("main");
const banner = document.getElementById("banner");
let leaving = new AbortController();
let about = null;
let keys = {};

function go(path) {
  goTo(inBase(path));
}

function goTo(address) {
  history.pushState(null, "", address);
  arrive();
}

function sorted(params) {
  const made = new URLSearchParams(params);
  made.sort();
  return made.toString();
}

function arrive() {
  show();
  // what had the focus is gone with the page before: Tab goes on from the beginning of this one
  if (document.activeElement === document.body) main.focus({ preventScroll: true });
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const path = pathHere();
  const page = PAGES[path] ?? UNKNOWN;
  keys = {};
  for (const link of document.querySelectorAll("#nav a")) {
    const current = link.getAttribute("href") === inBase(BELOW[path] ?? path);
    if (current) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const params = new URLSearchParams(location.search);
  const context = {
    about, signal, go, params,
    // what the page shows stands in the address, so that it can be sent to somebody and come back to; what is searched
    // for is a place of its own, which Back leads to
    keep(values, { isSearch = false } = {}) {
      const before = sorted(params);
      for (const [name, value] of Object.entries(values)) {
        params.delete(name);
        for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== "" && one !== false) params.append(name, one);
      }
      const text = params.toString();
      history[isSearch && sorted(params) !== before ? "pushState" : "replaceState"](null, "", inBase(text ? `${path}?${text}` : path));
    },
    onKeys(more) { keys = more; },
    tell: tellConnection,
    // every few seconds, and sooner again after the server was away
    async every(seconds, work) {
      let isFirst = true;
      while (!signal.aborted) {
        try {
          setBackground(!isFirst);
          isFirst = false;
          if (!document.hidden) await work();
          tellConnection(null);
        } catch (error) {
          if (signal.aborted) return;
          if (!error.unreachable && !error.needsLogin) throw error;
          tellConnection(error);
        } finally {
          setBackground(false);
        }
        await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      }
    },
  };
  document.title = [page.title(params), about.broker, "Lading"].filter(Boolean).join(" · ");
  fill(main);
  try {
    await page.render(main, context);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    if (error.unreachable) tellConnection(error);
    main.append(errorBox(error));
  }
}

function tellConnection(error) {
  banner.hidden = !error;
  if (error?.needsLogin) fill(banner, h("b", {}, "Logged out. "), visible(error.message), " ", loginAgain(error.loginUrl));
  else if (error) fill(banner, h("b", {}, "No answer. "), visible(error.message), " – trying again");
}

function themeButton() {
  const button = document.getElementById("theme");
  const order = ["", "light", "dark"];
  const names = { "": "Auto", light: "Light", dark: "Dark" };
  const draw = () => { button.textContent = names[document.documentElement.dataset.theme ?? ""]; };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(document.documentElement.dataset.theme ?? "") + 1) % order.length];
    if (next) document.documentElement.dataset.theme = next; else delete document.documentElement.dataset.theme;
    try { localStorage.setItem("lading-theme", next); } catch { /* a browser that stores nothing */ }
    draw();
  });
  draw();
}

function showKeys() {
  const rows = [["g", "topics"], ["/", "search, or filter what is shown"], ["j  k", "next, previous row"],
    ["Enter", "open a row"], ["t", "live tail on and off"], ["n  o", "newest or oldest first"], ["c", "one line for each message"], ["Esc", "close a message, or cancel a search"], ["?", "this list"]];
  const dialog = h("dialog", { class: "ask", onclick: () => dialog.close(), "aria-label": "Keyboard" },
    h("h2", {}, "Keyboard"), h("dl", { class: "keys" }, rows.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("div", { class: "buttons" }, h("button", { class: "primary" }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("tr[tabindex]")];
  const at = rows.indexOf(document.activeElement.closest?.("tr[tabindex]"));
  rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.focus();
}

function leaveDetail(target) {
  // from inside a message, or from its row: closed, with the focus on the row
  const row = target.closest?.("tr.detail")?.previousElementSibling ?? target.closest?.("tr[aria-expanded=true]");
  if (!row) return false;
  row.focus();
  // as if Enter had been pressed there, which is what closes it
  row.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  return true;
}

document.addEventListener("keydown", (event) => {
  // an open dialog has the keyboard to itself: Escape closes it, and cancels nothing behind it
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "Escape" && event.target.matches("input")) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
  const search = document.querySelector("[data-search]");
  if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
  else if (event.key === "?") showKeys();
  else if (event.key === "g") go("/");
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "Escape" && leaveDetail(event.target)) event.preventDefault();
  else if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
document.addEventListener("click", (event) => {
  if (event.target.matches?.(".skip")) {
    // the address stays: another one would draw the page anew, and empty a form
    event.preventDefault();
    main.focus();
    return;
  }
  const link = event.target.closest?.("a[href^='/']");
  // the pages of another broker are a program of their own
  if (!link || !link.getAttribute("href").startsWith(`${base}/`) || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target) return;
  event.preventDefault();
  goTo(link.getAttribute("href"));
});
window.addEventListener("popstate", arrive);
document.getElementById("help").addEventListener("click", showKeys);
themeButton();
function drawNavigation() {
  const pages = NAV.filter(([path]) => about?.shows_files !== false || !FILE_PAGES.includes(path));
  fill(document.getElementById("nav"), pages.map(([path, label]) => h("a", { href: path }, label)));
}

async function logOut() {
  try { await post("/logout", {}); } catch (error) { tellConnection(error); return; }
  location.assign(inBase("/login"));
}

drawNavigation();
document.querySelector(".brand").setAttribute("href", inBase("/"));

function linkTo(broker) {
  const link = h("a", {}, visible(broker));
  link.setAttribute("href", `/at/${encodeURIComponent(broker)}/`);
  return link;
}

function drawSwitch() {
  // the pages of the same kind at another broker: what is in a topic or group of this one may not be there
  const pathThere = () => [BELOW[pathHere()] ?? pathHere()].find((path) => NAV.some(([one]) => one === path)) ?? "/";
  const choice = h("select", { id: "brokers", "aria-label": "Broker", title: "The broker that these pages show",
    onchange: () => location.assign(`/at/${encodeURIComponent(choice.value)}${pathThere()}`) },
    about.brokers.map((one) => h("option", { value: one.name, title: one.source }, one.is_read_only ? `${one.name} (read only)` : one.name)));
  choice.value = about.broker;
  // Back shows this page with the choice that led away
  window.addEventListener("pageshow", () => { choice.value = about.broker; });
  return choice;
}

async function start() {
  while (!about) {
    try { about = await get("/api/about"); } catch (error) {
      if (error.needsKey) {
        // before it is asked for: another tab may give one at once
        const arrived = nextKey();
        fill(main, h("div", { class: "bar" }, h("h1", {}, "This console needs its key")), errorBox(error));
        await arrived;
        continue;
      }
      if (error.needsLogin && error.loginUrl !== "/login") {
        fill(main, h("div", { class: "bar" }, h("h1", {}, "This console needs a login")), errorBox(error));
        return;
      }
      if (error.needsLogin) {
        // nothing was typed here yet: the login leads back to this address
        location.replace(inBase(`/login?next=${encodeURIComponent(pathHere() + location.search)}`));
        return;
      }
      if (error.brokerNames) {
        fill(main, h("div", { class: "bar" }, h("h1", {}, "Not found")), errorBox(error), h("ul", {}, error.brokerNames.map((one) => h("li", {}, linkTo(one)))));
        return;
      }
      tellConnection(error);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
  tellConnection(null);
  drawNavigation();
  if (about.brokers.length) document.getElementById("source").before(drawSwitch());
  if (about.user) document.getElementById("source").after(h("span", { class: "source", title: "The user who is logged in" }, visible(about.user)));
  if (about.user && about.can_log_out) document.getElementById("theme").before(h("button", { id: "logout", class: "quiet", type: "button", onclick: logOut }, "Log out"));
  fill(document.getElementById("source"), about.is_read_only ? h("b", { class: "badge" }, "read only") : null, visible(about.source));
  document.getElementById("source").title = `Lading ${about.version}, ${about.source}`;
  await show();
}

start();
