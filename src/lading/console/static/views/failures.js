// Dead letters and quarantine: why messages failed, one beside its reason, and sending a selection back.
import { get, post, stream } from "../api.js";
import { ask, count, errorBox, fill, h, openRow, plural, redraw, table, toast, toggleDetail, visible } from "../dom.js";
import { barCell } from "./charts.js";
import { detail } from "./message.js";

export const title = () => "Failures";

export async function render(main, context) {
  const topic = context.params.get("topic");
  const pipeline = context.params.get("pipeline");
  if (topic) return letters(main, context, topic);
  if (pipeline) return quarantine(main, context, pipeline);
  const found = await get("/api/failures", {}, context.signal);
  main.append(h("div", { class: "bar" }, h("h1", {}, "Failures")), h("h2", {}, "Topics of dead letters"));
  main.append(found.topics.length ? table(["topic", ["messages", "n"], "dead letters of"], found.topics.map((one) => [
    h("a", { href: `/failures?topic=${encodeURIComponent(one.topic)}` }, visible(one.topic)), count(one.messages), one.of.length ? visible(one.of.join(", ")) : h("span", { class: "soft" }, "unknown; its name is that of a dead letter topic")]))
    : h("p", { class: "empty" }, "No topic has a dead letter topic. ", h("code", {}, "lading topic set flights dead_letter_topic=flights-dead"), " gives it one."));
  const other = h("input", { type: "text", placeholder: "topic", "aria-label": "Topic", "data-search": true });
  main.append(h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); if (other.value) context.go(`/failures?topic=${encodeURIComponent(other.value)}`); } }, h("span", { class: "soft" }, "another topic:"), other, h("button", { type: "submit" }, "Show")));
  main.append(h("h2", {}, "Quarantine of pipelines"), found.pipelines.length ? table(["pipeline"], found.pipelines.map((one) => [h("a", { href: `/failures?pipeline=${encodeURIComponent(one)}` }, visible(one))]))
    : h("p", { class: "empty" }, "Start the console with ", h("code", {}, "--pipeline FILE"), " to see the quarantine of a pipeline."));
  return undefined;
}

function head(label, context, where, load, extra) {
  return [h("div", { class: "bar" }, h("h1", {}, h("a", { href: "/failures", class: "soft" }, "Failures"), h("span", { class: "soft" }, " / "), visible(label))),
    h("form", { class: "searchbar", onsubmit: (event) => { event.preventDefault(); context.keep({ where: where.value.trim() }, { isSearch: true }); load(); } }, where, h("button", { type: "submit", class: "primary" }, "Search"), extra)];
}

const wordsOf = (name) => name.replaceAll("_", " ");
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

async function letters(main, context, topic) {
  const where = h("input", { class: "search", type: "text", "data-search": true, spellcheck: "false", value: context.params.get("where") ?? "", placeholder: "Filter: origin_topic = 'orders' AND exception LIKE '%Timeout%'", "aria-label": "Filter" });
  const place = h("div");
  const facts = h("p", { class: "soft", role: "status" });
  const redrive = context.about.can_send ? h("button", { type: "button", onclick: () => sendBack("/api/dead-letters/redrive", { topic, where: where.value.trim() || null }, where.value.trim(), load) }, "Redrive these…") : null;
  let work = new AbortController();
  context.signal.addEventListener("abort", () => work.abort());
  main.append(...head(topic, context, where, load, redrive), facts, place);
  context.onKeys({ Escape: () => work.abort() });

  async function load() {
    work.abort();
    work = new AbortController();
    const { signal } = work;
    try {
      for await (const found of stream("/api/dead-letters", { topic, where: where.value.trim() }, signal)) {
        if (found.bars) draw(found); else fill(facts, `looked at ${plural(found.looked_at ?? 0, "message")}`);
      }
    } catch (error) {
      if (!signal.aborted) { fill(facts); fill(place, errorBox(error, where.value.trim())); }
    }
  }

  function draw(found) {
    const most = Math.max(1, ...found.bars.map((one) => one.messages));
    fill(facts, plural(found.letters, "dead letter"), found.strangers ? `, and ${plural(found.strangers, "message")} that no known system wrote` : "");
    redraw(place, found.bars.length ? [h("h2", {}, "Reasons"), table(["reason", "from topic", "written by", ["", "barcell"], ["messages", "n"]], found.bars.map((one) => [
      one.convention === "Lading" ? visible(one.why) : h("button", { type: "button", class: "link", title: "Only these", onclick: () => { where.value = `exception = ${quoted(one.why)}`; context.keep({ where: where.value }, { isSearch: true }); load(); } }, visible(one.why)),
      visible(one.origin_topic), one.convention, barCell(one.messages, most, count(one.messages)), count(one.messages)])),
    h("h2", {}, "Latest"), rows(found.rows)] : h("p", { class: "empty" }, "Nothing here says why it failed."));
  }

  function rows(found) {
    const body = h("tbody", {}, found.map((one) => {
      return openRow(`${one.partition}:${one.offset}`, (row) => open(row, one),
        h("td", { class: "place", "data-label": "message" }, `${one.partition}:${one.offset}`), h("td", { "data-label": "reason" }, visible(one.why)), h("td", { class: "text", "data-label": "error" }, visible(one.reason ?? "")),
        h("td", { "data-label": "origin" }, one.origin_topic ? h("a", { href: `/messages?topic=${encodeURIComponent(one.origin_topic)}&open=${one.origin_partition}:${one.origin_offset}` }, visible(`${one.origin_topic} ${one.origin_partition ?? "?"}:${one.origin_offset ?? "?"}`)) : ""));
    }));
    return h("div", { class: "scroll" }, h("table", { class: "messages cards", role: "treegrid", "aria-label": "Messages" }, h("thead", {}, h("tr", {}, ["message", "reason", "error", "origin"].map((one) => h("th", { scope: "col" }, one)))), body));
  }

  function open(row, one) {
    return toggleDetail(row, async () => {
      const whole = await get("/api/message", { topic, partition: one.partition, offset: one.offset }, context.signal);
      return [h("div", { class: "warning" }, h("p", {}, h("b", {}, visible(one.why)), one.reason && one.reason !== one.why ? [": ", visible(one.reason, true)] : null)), detail(whole, context, load)];
    });
  }
  await load();
}

// what a dry run counts, by its name there
const COUNTED = { sent: "would be sent", already: "sent already", parked: "parked: sent too often before", strangers: "of no known system",
  gone: "without a payload, and the original is deleted", resumed: "left by a redrive that was interrupted" };

async function sendBack(path, document, selection, done) {
  // a dry run comes first: what it counts is what is agreed to
  try {
    const would = await post(path, { ...document, dry_run: true });
    const rows = Object.entries(COUNTED).filter(([name]) => would[name] > 0).map(([name, words]) => [words, count(would[name])]);
    if (!would.sent) {
      await ask("Nothing to redrive", [h("p", {}, "A dry run found nothing to send."), rows.length ? table(["", ["messages", "n"]], rows) : null], "Close");
      return;
    }
    const isSure = await ask("Redrive", [h("p", {}, "Dry run of ", selection ? h("code", {}, visible(selection)) : "all messages here", ":"), table(["", ["messages", "n"]], rows), h("p", {}, "Each goes back to its topic, as it was, and once: what was sent is remembered.")], `Send ${plural(would.sent, "message")}`);
    if (!isSure) return;
    const did = await post(path, { ...document, dry_run: false });
    toast(`sent ${plural(did.sent, "message")} back`);
    done();
  } catch (error) {
    await ask("The redrive failed", [errorBox(error)], "Close");
  }
}

async function quarantine(main, context, pipeline) {
  const where = h("input", { class: "search", type: "text", "data-search": true, spellcheck: "false", value: context.params.get("where") ?? "", placeholder: "Filter on the original messages: carrier = 'UA'", "aria-label": "Filter" });
  const place = h("div");
  const reasons = () => context.params.getAll("reason");
  const redrive = context.about.is_read_only ? null : h("button", { type: "button", onclick: () => sendBack("/api/quarantine/redrive", { pipeline, where: where.value.trim() || null, reasons: reasons() }, [where.value.trim(), ...reasons().map(wordsOf)].filter(Boolean).join(", "), load) }, "Redrive these…");
  main.append(...head(pipeline, context, where, load, redrive), place);

  async function load() {
    try {
      const found = await get("/api/quarantine", { pipeline, where: where.value.trim(), reason: reasons() }, context.signal);
      const most = Math.max(1, ...found.bars.map((one) => one.messages));
      redraw(place, h("h2", {}, "Reasons"), table(["reason", "header", ["", "barcell"], ["messages", "n"], ["waiting", "n"], ["sent again", "n"], ["parked", "n"]], found.bars.map((one) => [
        h("button", { type: "button", class: "chip", "aria-pressed": String(reasons().includes(one.reason)), onclick: () => { context.keep({ reason: reasons().includes(one.reason) ? reasons().filter((other) => other !== one.reason) : [...reasons(), one.reason] }); load(); } }, wordsOf(one.reason)),
        visible(one.header ?? ""), barCell(one.messages, most, count(one.messages)), count(one.messages), count(one.waiting), count(one.replayed), count(one.parked)])),
      h("h2", {}, "Messages"), list(found.rows));
    } catch (error) {
      if (!context.signal.aborted) fill(place, errorBox(error, where.value.trim()));
    }
  }

  function list(found) {
    const body = h("tbody", {}, found.map((one) => {
      return openRow(one.message, (row) => open(row, one),
        h("td", {}, visible(one.message)), h("td", { "data-label": "reason" }, wordsOf(one.reason)), h("td", { class: "text", "data-label": "detail" }, visible(one.detail)), h("td", { class: "n", "data-label": "sent again" }, count(one.replays)), h("td", { "data-label": "status" }, one.status));
    }));
    return h("div", { class: "scroll" }, h("table", { class: "messages cards", role: "treegrid", "aria-label": "Messages" }, h("thead", {}, h("tr", {}, ["message", "reason", "detail", "sent again", "status"].map((one) => h("th", { scope: "col" }, one)))), body));
  }

  function open(row, one) {
    return toggleDetail(row, async () => {
      const found = await get("/api/quarantined", { pipeline, message: one.message }, context.signal);
      const about = { ...context.about, can_mark: false, can_send: false };
      return [h("div", { class: "warning" }, found.reasons.map((told) => h("p", {}, h("b", {}, wordsOf(told.reason)), ": ", visible(told.detail)))), detail(found.message, { ...context, about }, load)];
    });
  }
  await load();
}
