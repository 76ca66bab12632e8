// The header explorer: what headers hold and weigh, how that changes, drift from contracts, and a contract to begin with.
import { stream } from "../api.js";
import { copy, count, errorBox, fill, h, moment, plural, size, table, visible, visibleOrEmpty } from "../dom.js";
import { barCell, columns, sparkline } from "./charts.js";
import { tabs } from "./topic.js";

const at = (begin, seconds = 0) => moment(BigInt(Date.parse(begin) + 1000 * seconds) * 1000n).slice(0, 19);

export const title = (params) => `${params.get("topic") ?? ""} headers`;

export async function render(main, context) {
  const topic = context.params.get("topic") ?? "";
  const facts = h("span", { class: "soft", role: "status" });
  const place = h("div");
  const where = h("input", { class: "search", type: "text", "data-search": true, spellcheck: "false", placeholder: "Only messages that match, e.g. carrier = 'UA'", "aria-label": "Filter", value: context.params.get("where") ?? "" });
  const limit = h("select", { "aria-label": "How many messages" }, [["10000", "10,000 messages"], ["50000", "50,000 messages"], ["1000000", "a million messages"], ["1000000000", "all messages"]].map(([value, label]) => h("option", { value }, label)));
  limit.value = context.params.get("limit") ?? "50000";
  const cancel = h("button", { type: "button", hidden: true }, "Cancel");
  let work = new AbortController();
  cancel.addEventListener("click", () => work.abort());
  context.signal.addEventListener("abort", () => work.abort());
  main.append(tabs(topic, "/headers", context), h("form", { class: "searchbar", onsubmit: (event) => { event.preventDefault(); load(true); } }, where, h("label", {}, "of the first", limit), h("button", { type: "submit", class: "primary" }, "Profile"), cancel, facts), place);
  limit.addEventListener("change", () => load());
  context.onKeys({ Escape: () => work.abort() });

  async function load(isSearch = false) {
    work.abort();
    work = new AbortController();
    const { signal } = work;
    context.keep({ where: where.value.trim(), limit: limit.value === "50000" ? null : limit.value }, { isSearch });
    cancel.hidden = false;
    try {
      for await (const found of stream("/api/profile", { topic, where: where.value.trim(), limit: limit.value }, signal)) {
        if (found.profile) { fill(place, profile(found.profile, topic)); fill(facts, ""); } else fill(facts, `read ${plural(found.looked_at ?? 0, "message")}`);
      }
    } catch (error) {
      if (!signal.aborted) fill(place, errorBox(error, where.value.trim())); else fill(facts, "cancelled");
    } finally {
      if (work.signal === signal) cancel.hidden = true;
    }
  }
  await load();
}

function profile(found, topic) {
  const most = Math.max(1, ...found.headers.map((one) => one.bytes));
  const cards = [["messages", count(found.messages)], ["headers", found.other_occurrences ? `more than ${count(found.headers_count)}` : count(found.headers_count)], ["header bytes", size(found.header_bytes)], ["payload bytes", size(found.payload_bytes)], ["key bytes", size(found.key_bytes)]];
  const intervals = found.intervals;
  // one bar says nothing of change
  const isLong = intervals.length > 1;
  return [
    found.lost ? h("div", { class: "warning", role: "alert" }, h("p", {}, found.lost)) : null,
    h("div", { class: "cards-row" }, cards.map(([label, value]) => h("div", { class: "card" }, label, h("b", {}, value)))),
    found.other_occurrences ? h("p", { class: "soft" }, `The first ${count(found.headers_count)} names are told apart; ${plural(found.other_occurrences, "header has another name and counts", "headers have other names and count")} in the bytes alone.`) : null,
    h("h2", {}, "Headers, the heaviest first"),
    table(["header", "kinds", "looks like", ["share", "n"], ...(isLong ? ["over time"] : []), ["null", "n"], ["empty", "n"], ["repeated", "n"], ["distinct", "n"], ["weight", "barcell"], ["bytes", "n"], "examples"], found.headers.map((one) => [
      h("a", { href: `/messages?topic=${encodeURIComponent(topic)}&column=${encodeURIComponent(one.key)}`, title: "Show as a column" }, visibleOrEmpty(one.key.length > 100 ? `${one.key.slice(0, 100)}…` : one.key)),
      h("span", { class: "kind" }, one.kinds), one.looks, `${one.share.toFixed(one.share === 100 ? 0 : 1)} %`, ...(isLong ? [sparkline(one.change, `share of messages with ${one.key} over time`)] : []), count(one.nulls), count(one.empty), count(one.duplicates),
      (one.distinct_exact ? "" : "≈ ") + count(one.distinct), barCell(one.bytes, most, `${one.bytes_share.toFixed(1)} % of all bytes`), size(one.bytes), h("span", { class: "value example", title: examples(one.examples) }, visible(examples(one.examples)))])),
    found.headers_count > found.headers.length ? h("p", { class: "soft" }, `and ${count(found.headers_count - found.headers.length)} lighter ones${found.other_occurrences ? ", beside those that are not told apart" : ""}`) : null,
    found.drift.map((one) => [h("h2", {}, "Drift from the contract of ", visible(one.pipeline)), one.error ? h("div", { class: "warning" }, h("p", {}, visible(one.error))) : one.rows.length
      ? table(["header", "drift", ["messages", "n"], "what it is", "what it means for the table"], one.rows.map((row) => [visibleOrEmpty(row.header), row.breaks ? h("b", { class: "bad" }, row.kind) : row.kind, count(row.messages), visible(row.sentence), visible(row.table)]))
      : h("p", { class: "soft" }, "None: all messages are as it says.")]),
    isLong ? [h("h2", {}, "Messages over time"),
      columns("messages over time", "from (UTC)", intervals.map((one) => [at(one.begin), [["messages", one.messages, "routed"]]])),
      h("p", { class: "soft" }, `${at(intervals[0].begin)} to ${at(intervals.at(-1).begin, intervals.at(-1).seconds)} UTC, intervals of ${count(intervals[0].seconds)} s`)] : null,
    h("div", { class: "two" },
      h("section", {}, h("h2", {}, "Heaviest messages"), table(["message", ["headers", "n"], ["header bytes", "n"], ["payload", "n"]], found.heaviest.map((one) => [
        h("a", { href: `/messages?topic=${encodeURIComponent(topic)}&open=${one.partition}:${one.offset}` }, `${one.partition}:${one.offset}`), count(one.headers), size(one.header_bytes), size(one.payload_bytes)]))),
      h("section", {}, h("div", { class: "bar small" }, h("h2", {}, "Proposed contract"), h("span", { class: "grow" }), h("button", { type: "button", class: "mini", onclick: () => copy(found.contract, "the contract") }, "copy")), h("pre", { class: "code" }, visible(found.contract, true)))),
  ];
}

function examples(values) {
  const text = Array.isArray(values) ? values.join(", ") : String(values ?? "");
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
