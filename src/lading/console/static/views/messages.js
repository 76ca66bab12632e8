// Messages: browse by offset and time, search with a filter, follow what arrives, headers as columns that one picks.
import { get, stream } from "../api.js";
import { closeDetail, count, errorBox, fill, h, masked, moment, openRow, plural, redraw, shortMoment, toggleDetail, visible, visibleOrEmpty } from "../dom.js";
import { detail, markAll } from "./message.js";
import { applyWidths, edge } from "../widths.js";
import { tabs } from "./topic.js";

export const title = (params) => `${params.get("topic") ?? ""} messages`;
const PAGE = 50;
const TAIL_ROWS_MAX = 500;
const COMPACT = "lading-compact";
const PAIRS_MAX = 12; // headers of a message in a list, and in a list of one line each
const PAIRS_COMPACT_MAX = 3;
const EXAMPLE = "carrier = 'UA' AND delay > 15";

export async function render(main, context) {
  const { params } = context;
  const topic = params.get("topic") ?? "";
  const seen = new Map(); // header key -> how many of the shown messages have it
  let rows = [];
  let next = null;
  let range = {}; // where the first page began, and where the last one ends: the next ones keep to it
  let work = new AbortController();
  let counting = null;
  let opened = null; // the message that is shown whole: kept while others arrive
  context.signal.addEventListener("abort", () => { work.abort(); counting?.abort(); });

  const picked = () => params.getAll("column");
  const newest = () => params.get("order") !== "old";
  const tailing = () => params.has("tail");
  const values = (more = {}) => ({ topic, where: params.get("where"), at: params.get("at"), order: newest() ? "new" : "old",
    partition: params.get("partition"), states: params.get("states"), column: picked(), count: PAGE, ...more });

  const search = h("input", { class: "search", type: "text", "data-search": true, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
    "aria-label": "Filter", placeholder: `Filter: ${EXAMPLE}`, value: params.get("where") ?? "" });
  const at = h("input", { type: "text", size: 20, spellcheck: "false", "aria-label": "From", placeholder: "offset, time, latest", value: params.get("at") ?? "", title: "An offset, -100 for the last 100, a time such as 2026-01-31T12:00, earliest or latest" });
  const partition = h("input", { type: "number", min: 0, "aria-label": "Partition", placeholder: "all", value: params.get("partition") ?? "" });
  const states = h("input", { type: "checkbox", title: "Messages that are poisoned, unavailable or about to expire", checked: params.get("states") === "all" });
  const orders = [["Newest first", true, "n"], ["Oldest first", false, "o"]].map(([words, isNewest, key]) => h("button", { type: "button", title: key, dataset: { newest: isNewest }, onclick: () => setOrder(isNewest) }, words));
  const compact = h("button", { type: "button", class: "mini", title: "c", "aria-pressed": "false", onclick: () => setCompact(!isCompact()) }, "One line each");
  const tail = h("button", { type: "button", class: "mini", title: "t", "aria-pressed": "false" }, "Live tail");
  const submit = h("button", { type: "submit", class: "primary" }, "Search");
  const facts = h("p", { class: "soft facts", role: "status" });
  const bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress" });
  const stop = h("button", { type: "button", class: "mini", hidden: true, onclick: cancel }, "Cancel");
  const other = h("input", { type: "text", size: 14, spellcheck: "false", autocapitalize: "off", "aria-label": "Another header", placeholder: "another one", title: "A header, or payload.NAME, that is not among these, as a column" });
  const others = h("form", { onsubmit: (event) => { event.preventDefault(); addColumn(); } }, other);
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Headers as columns" }, h("span", { class: "soft" }, "Columns"));
  const place = h("div");
  const problem = h("div");
  const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => load(true) }, "Show more");
  const form = h("form", { class: "searchbar", onsubmit: (event) => { event.preventDefault(); restart(true); } },
    search, h("label", {}, "from", at), h("label", {}, "partition", partition), h("label", { class: "check" }, states, "include hidden"), h("span", { class: "switch", role: "group", "aria-label": "Order" }, orders), submit);
  main.append(tabs(topic, "/messages", context), form, problem, h("div", { class: "chipbar" }, chips, others), h("div", { class: "factbar" }, facts, bar, stop, h("span", { class: "grow" }), tail, compact), place, h("div", { class: "center" }, more));

  tail.addEventListener("click", () => setTail(!tailing()));
  states.addEventListener("change", () => restart());
  context.onKeys({ t: () => setTail(!tailing()), n: () => setOrder(true), o: () => setOrder(false), c: () => setCompact(!isCompact()), Escape: cancel });

  function setCompact(on) {
    // this browser keeps it: who reads many messages reads all topics so
    try { localStorage.setItem(COMPACT, on ? "1" : ""); } catch { /* a browser that stores nothing */ }
    drawControls();
    draw();
  }

  function setOrder(isNewest) {
    // these words have one order alone
    if (["earliest", "latest"].includes(at.value.trim())) at.value = "";
    context.keep({ order: isNewest ? null : "old" });
    restart();
  }

  function turn(found) {
    // nothing lies before the earliest, or behind the latest: the server reads from there the other way
    if ((found === "new") === newest()) return;
    context.keep({ order: found === "old" ? "old" : null });
    drawControls();
  }

  function setTail(on) {
    context.keep({ tail: on ? "1" : null });
    restart();
  }

  function cancel() {
    work.abort();
    counting?.abort();
    bar.hidden = true;
    if (tailing()) { context.keep({ tail: null }); drawControls(); }
  }

  // ended by the person, not by the next search or another page
  const isCancelled = (latest, signal) => signal.aborted && latest.signal === signal && !context.signal.aborted;

  function showStop(isShown) {
    // what is hidden has no focus
    if (!isShown && document.activeElement === stop) search.focus();
    stop.hidden = !isShown;
  }

  function addColumn() {
    const key = other.value;
    other.value = "";
    if (!key || picked().includes(key)) return;
    // a list has the first headers of each message, and those that are columns
    context.keep({ column: [...picked(), key] });
    restart();
  }

  function drawControls() {
    for (const one of orders) {
      one.disabled = tailing();
      one.setAttribute("aria-pressed", String((one.dataset.newest === "true") === newest()));
    }
    compact.setAttribute("aria-pressed", String(isCompact()));
    place.classList.toggle("compact", isCompact());
    tail.setAttribute("aria-pressed", String(tailing()));
    tail.classList.toggle("live", tailing());
  }

  function restart(isSearch = false) {
    const where = search.value.trim();
    context.keep({ where, at: at.value.trim(), partition: partition.value, states: states.checked ? "all" : null }, { isSearch });
    drawControls();
    work.abort();
    counting?.abort();
    rows = [];
    next = null;
    range = {};
    opened = null;
    seen.clear();
    fill(problem);
    fill(facts);
    more.hidden = true;
    return tailing() ? follow() : load(false);
  }

  async function load(isMore) {
    work.abort();
    work = new AbortController();
    const { signal } = work;
    more.hidden = true;
    showStop(true);
    let ended = false;
    let looked = "";
    try {
      for await (const found of stream("/api/messages", values(isMore && next ? { at: next, ...range } : {}), signal)) {
        if (found.messages) add(found.messages);
        if (found.total) { bar.hidden = false; bar.value = found.looked_at / found.total; }
        if (found.end) {
          next = found.next;
          range = { since: found.since, until: found.until };
          turn(found.order);
          ended = true;
          // a name that no message has: those that there are can be picked, and the sentence says which is near
          for (const name of found.names ?? []) if (!seen.has(name)) seen.set(name, 0);
          fill(problem, found.unseen?.length ? h("div", { class: "warning", role: "status" }, found.unseen.map((sentence) => h("p", {}, visible(sentence)))) : null);
          tellEnd(found);
        } else if (found.looked_at) {
          looked = `, looked at ${count(found.looked_at)} of ${count(found.total)}`;
          fill(facts, plural(rows.length, "message"), looked);
        }
      }
      context.tell(null);
    } catch (error) {
      if (!signal.aborted) showProblem(error);
      else if (isCancelled(work, signal)) fill(facts, plural(rows.length, "message"), looked, "; cancelled");
    } finally {
      if (work.signal === signal) {
        bar.hidden = true;
        showStop(false);
      }
    }
    if (ended) { more.hidden = next === null; draw(); }
  }

  function tellEnd(found) {
    const where = params.get("where");
    const all = where && (next === null ? null : h("button", { type: "button", class: "link", onclick: countAll }, "count all that match"));
    const mark = where && rows.length && context.about.can_mark ? h("button", { type: "button", class: "link", onclick: () => markAll(topic, where, params.get("partition") ? Number(params.get("partition")) : null, restart) }, "set their state…") : null;
    fill(facts, rows.length ? plural(rows.length, "message") : where ? "No message matches" : at.value.trim() ? `No messages ${newest() ? "before" : "from"} ${at.value.trim()}${newest() ? "" : " on"}` : "No messages here",
      where ? `; looked at ${count(found.looked_at)} in ${found.seconds.toFixed(2)} s` : null, all ? [" · ", all] : null, mark ? [" · ", mark] : null, lost(found.lost));
  }

  async function countAll() {
    counting = new AbortController();
    const { signal } = counting;
    showStop(true);
    try {
      for await (const found of stream("/api/count", values({ at: null }), signal)) {
        bar.hidden = Boolean(found.end);
        bar.value = found.looked_at / Math.max(1, found.total);
        fill(facts, found.end ? `${plural(found.found, "message matches", "messages match")} of ${count(found.total)}, counted in ${found.seconds.toFixed(2)} s` : `${count(found.found)} of ${count(found.looked_at)} so far`, lost(found.lost));
      }
    } catch (error) {
      bar.hidden = true;
      if (!signal.aborted) showProblem(error);
      else if (isCancelled(counting, signal)) fill(facts, `${facts.textContent}; cancelled`);
    } finally {
      if (counting.signal === signal) showStop(false);
    }
  }

  async function follow() {
    work = new AbortController();
    const { signal } = work;
    let skipped = 0;
    let from = null;
    let loss = null;
    draw();
    while (!signal.aborted) {
      try {
        for await (const found of stream("/api/tail", values({ at: from }), signal)) {
          context.tell(null);
          from = found.at;
          skipped += found.skipped ?? 0;
          loss = found.lost ?? loss;
          if (found.messages?.length) { add(found.messages.reverse(), true); draw(); }
          fill(facts, h("span", { class: "pulse" }), ` following · ${plural(rows.length, "message")} shown`, skipped ? `, ${count(skipped)} more came faster than one can read` : "", lost(loss));
        }
      } catch (error) {
        if (signal.aborted) break;
        if (!error.unreachable) { showProblem(error); return; }
        context.tell(error);
        fill(facts, `waiting for an answer · ${plural(rows.length, "message")} shown`);
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    if (isCancelled(work, signal)) fill(facts, `${plural(rows.length, "message")}; not followed any more`);
  }

  function showProblem(error) {
    if (error.unreachable) context.tell(error);
    fill(facts);
    fill(problem, errorBox(error, search.value.trim()));
    if (error.at !== null && error.at !== undefined) {
      search.focus();
      search.setSelectionRange(error.at, search.value.length);
    }
  }

  function add(messages, isFront = false) {
    for (const one of messages) for (const key of new Set([...one.headers.map((header) => header[0]), ...one.paths])) seen.set(key, (seen.get(key) ?? 0) + 1);
    rows = isFront ? [...messages, ...rows].slice(0, TAIL_ROWS_MAX) : [...rows, ...messages];
    if (!isFront) draw();
  }

  function draw() {
    const focused = document.activeElement;
    const columns = picked();
    const keys = [...new Set([...columns, ...[...seen].sort((a, b) => b[1] - a[1]).map(([key]) => key)])].slice(0, 40);
    redraw(chips, h("span", { class: "soft" }, "Columns"), keys.map((key) => {
      const on = columns.includes(key);
      return h("button", { type: "button", class: "chip", "aria-pressed": String(on), onclick: () => {
        context.keep({ column: on ? columns.filter((one) => one !== key) : [...columns, key] });
        // members of payloads are in a list only if they are columns
        if (!on && key.startsWith("payload.")) restart();
        else draw();
      } }, visibleOrEmpty(key));
    }));
    const heads = ["offset", "time (UTC)", "key", ...(columns.length ? columns : ["headers"]), "payload"];
    const open = params.get("open");
    const body = h("tbody");
    const isShort = isCompact();
    for (const one of rows) {
      const name = `${one.partition}:${one.offset}`;
      const row = openRow(name, (at) => toggle(at, one), cells(one, columns, heads, isShort));
      body.append(row);
      if (open === name) expand(row, one);
    }
    const table = h("table", { class: "messages cards", role: "treegrid", "aria-label": "Messages" }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", "aria-label": head || "empty", dataset: { column: head } }, visibleOrEmpty(head), edge(head))))), body);
    applyWidths(table);
    redraw(place, rows.length ? h("div", { class: "scroll" }, table) : null);
    // the message that is open was moved, and what had the focus in it has lost it
    if (place.contains(focused)) focused.focus({ preventScroll: true });
  }

  function toggle(row, one) {
    const isOpen = row.getAttribute("aria-expanded") === "true";
    for (const shown of place.querySelectorAll("tr[aria-expanded=true]")) closeDetail(shown);
    opened = null;
    context.keep({ open: isOpen ? null : `${one.partition}:${one.offset}` });
    if (!isOpen) expand(row, one);
  }

  function expand(row, one) {
    const name = row.dataset.name;
    if (opened?.name === name) {
      opened.shown.firstChild.colSpan = row.children.length;
      row.setAttribute("aria-expanded", "true");
      row.after(opened.shown);
      return;
    }
    toggleDetail(row, async () => detail(await get("/api/message", { topic, partition: one.partition, offset: one.offset }, context.signal), context, restart));
    opened = { name, shown: row.nextElementSibling };
  }

  drawControls();
  const open = params.get("open");
  await restart();
  if (open && !place.querySelector(`tr[data-name="${CSS.escape(open)}"]`)) {
    // an address that names one message shows it, wherever the page begins
    const [number, offset] = open.split(":");
    const whole = await get("/api/message", { topic, partition: number, offset }, context.signal);
    place.before(h("section", { class: "single" }, h("h2", {}, `Message ${open}`), detail(whole, context, () => restart())));
  }
}

// the server's sentence about messages that are damaged
const lost = (sentence) => (sentence ? ["; ", h("b", { class: "bad" }, sentence)] : null);

function isCompact() {
  try { return Boolean(localStorage.getItem(COMPACT)); } catch { return false; }
}

function cells(one, columns, labels, isShort) {
  const text = (value, label) => h("td", { class: "text", "data-label": label }, value?.form === "masked" ? masked() : value === null ? h("span", { class: "null" }, "null") : [value.form === "hex" ? h("span", { class: "soft" }, "0x") : null, visibleOrEmpty(value.text), value.cut ? h("span", { class: "soft" }, "…") : null]);
  const made = [h("td", { class: "n place", "data-label": labels[0] }, h("span", { class: "soft" }, `${one.partition}:`), one.offset, one.state === "available" ? null : h("span", { class: "badge bad" }, one.state.replaceAll("_", " "))),
    h("td", { class: "time", "data-label": labels[1], title: isShort ? moment(one.timestamp_us) : null }, isShort ? shortMoment(one.timestamp_us) : moment(one.timestamp_us)), text(one.key, "key")];
  if (columns.length) {
    for (const key of columns) {
      const member = one.members[key];
      made.push(member ? text(member, key) : h("td", { class: "text", "data-label": key }, one.headers.filter((header) => header[0] === key).map(value)));
    }
  } else {
    const most = isShort ? PAIRS_COMPACT_MAX : PAIRS_MAX;
    const left = one.headers_count - Math.min(most, one.headers.length);
    made.push(h("td", { class: "headers", "data-label": "headers" }, one.headers.slice(0, most).map((header) => h("span", { class: "pair" }, h("span", { class: "key" }, visibleOrEmpty(header[0])), value(header))), left > 0 ? h("span", { class: "soft" }, `+${count(left)}`) : null));
  }
  made.push(text(one.payload, "payload"));
  // a payload that its schema made readable: by which one
  if (one.decoded) made.at(-1).title = `decoded: ${one.decoded}`;
  return made;
}

function value([, kind, text, , form]) {
  if (form === "masked") return masked();
  if (form === "null") return h("span", { class: "value null", title: `${kind}, null` }, "null");
  return h("span", { class: `value kind-${kind.startsWith("kind ") ? "raw" : kind}`, title: kind }, form === "hex" ? "0x" : "", visibleOrEmpty(text.length > 80 ? `${text.slice(0, 80)}…` : text));
}
