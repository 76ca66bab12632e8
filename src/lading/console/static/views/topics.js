// All topics: size, rate, lag, damage.
import { get } from "../api.js";
import { count, fill, h, plural, rate, redraw, size, visible } from "../dom.js";
import { overview } from "./overview.js";
import { createTopic } from "./topic_changes.js";

export const title = () => "Topics";
const SORTS = {
  name: (one) => one.name, messages: (one) => one.messages, size: (one) => one.size_bytes ?? -1, rate: (one) => one.rate ?? -1, lag: (one) => one.lag ?? -1, partitions: (one) => one.partitions_count,
};
const REFRESH_S = 2;

export async function render(main, context) {
  let rows = [];
  let before = new Map();
  const search = h("input", { type: "search", placeholder: "Filter topics", "aria-label": "Filter topics", "data-search": true,
    value: context.params.get("q") ?? "", oninput: () => { context.keep({ q: search.value }); draw(); } });
  const facts = h("span", { class: "soft" });
  const place = h("div");
  const trouble = h("div");
  const state = h("div");
  main.append(h("div", { class: "bar" }, h("h1", {}, "Topics"), facts, h("span", { class: "grow" }), search, context.about.can_send ? h("button", { type: "button", onclick: () => createTopic(context) }, "Create…") : null), state, trouble, place);

  function draw() {
    const wanted = search.value.toLowerCase();
    const [by, back] = [context.params.get("sort") ?? "name", context.params.has("down")];
    const value = SORTS[by] ?? SORTS.name;
    const shown = rows.filter((one) => one.name.toLowerCase().includes(wanted))
      .sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (back ? -1 : 1));
    fill(facts, plural(rows.length, "topic"), wanted ? `, ${count(shown.length)} shown` : "");
    const head = (key, label, kind = "") => h("th", { class: kind, scope: "col", "aria-sort": by === key ? (back ? "descending" : "ascending") : null },
      h("button", { class: "sort", type: "button", dataset: { sort: key }, onclick: () => { context.keep({ sort: key, down: by === key ? !back : key !== "name" }); draw(); } },
        label, by === key ? (back ? " ↓" : " ↑") : ""));
    const made = h("table", { class: "topics cards" }, h("thead", {}, h("tr", {}, head("name", "topic"), head("partitions", "partitions", "n"),
      head("messages", "messages", "n"), head("size", "size", "n"), head("rate", "rate", "n"), head("lag", "lag", "n"), h("th", { scope: "col" }, ""))),
    h("tbody", {}, shown.map((one) => topicRow(one, context))));
    redraw(place, rows.length ? h("div", { class: "scroll" }, made) : h("p", { class: "empty" }, "There are no topics yet. ", h("code", {}, "lading topic create flights"), " creates one, and so does a client that sends."));
  }

  await context.every(REFRESH_S, async () => {
    redraw(state, overview(await get("/api/overview", {}, context.signal)));
    const found = await get("/api/topics", {}, context.signal);
    rows = found.topics;
    for (const one of rows) {
      const last = before.get(one.name);
      one.rate = last ? Math.max(0, (one.end_sum - last.end) / (found.at_s - last.at)) : null;
    }
    before = new Map(rows.map((one) => [one.name, { end: one.end_sum, at: found.at_s }]));
    const problems = Object.entries(found.problems);
    fill(trouble, problems.length ? h("div", { class: "warning", role: "alert" }, problems.slice(0, 20).map(([name, words]) => h("p", {}, h("b", {}, visible(name)), ": ", visible(words)))) : null);
    draw();
  });
}

function topicRow(one, context) {
  const link = `/topic?topic=${encodeURIComponent(one.name)}`;
  const messages = `/messages?topic=${encodeURIComponent(one.name)}`;
  const cell = (label, text, kind = "n") => h("td", { class: kind, "data-label": label }, text);
  return h("tr", { tabindex: 0, dataset: { topic: one.name }, onkeydown: (event) => { if (event.key === "Enter" && event.target.tagName === "TR") context.go(messages); } },
    h("td", { class: "name" }, h("a", { href: link }, visible(one.name)),
      one.damage.length ? h("span", { class: "badge bad", title: one.damage.join("\n") }, "damaged") : null,
      one.dead_letter_topic ? h("a", { class: "badge", href: `/failures?topic=${encodeURIComponent(one.dead_letter_topic)}`, title: `dead letters go to ${one.dead_letter_topic}` }, "dead letters") : null),
    cell("partitions", count(one.partitions_count)), cell("messages", count(one.messages)), cell("size", size(one.size_bytes)),
    cell("rate", rate(one.rate)), cell("lag", one.lag === null ? "–" : h("span", { class: one.lag ? "behind" : "" }, count(one.lag))),
    h("td", { class: "actions" }, h("a", { class: "button", href: messages }, "Messages"), h("a", { class: "button", href: `/headers?topic=${encodeURIComponent(one.name)}` }, "Headers")));
}
