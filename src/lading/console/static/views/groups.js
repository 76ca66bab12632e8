// All groups and channels, those with the highest lag first.
import { get } from "../api.js";
import { count, fill, h, plural, redraw, table, visible } from "../dom.js";

export const title = () => "Groups";
const REFRESH_S = 3;

export const pageOf = (one) => `/group?protocol=${encodeURIComponent(one.protocol)}&group=${encodeURIComponent(one.group)}`;

export async function render(main, context) {
  const search = h("input", { type: "search", placeholder: "Filter groups", "aria-label": "Filter groups", "data-search": true,
    value: context.params.get("q") ?? "", oninput: () => { context.keep({ q: search.value }); load().catch(() => {}); } });
  const facts = h("span", { class: "soft" });
  const place = h("div");
  main.append(h("div", { class: "bar" }, h("h1", {}, "Groups"), facts, h("span", { class: "grow" }), search), place);
  if (!context.about.has_groups) {
    place.append(h("p", { class: "empty" }, "Groups are shown for a broker of Lading and for a Kafka cluster."));
    return;
  }

  async function load() {
    const asked = search.value;
    const found = await get("/api/groups", { q: asked }, context.signal);
    // what was typed meanwhile has a request of its own
    if (asked !== search.value) return;
    fill(facts, plural(found.total, "group"), asked ? `, ${count(found.found)} match` : "", found.found > found.groups.length ? `; the ${count(found.groups.length)} with the highest lag are shown` : "");
    redraw(place, found.groups.length ? list(found.groups) : h("p", { class: "empty" }, asked ? "No group has this in its name." : ["No group has read anything yet: ", h("code", {}, "lading message poll TOPIC --group NAME"), " begins one, and so does any client."]));
  }

  await context.every(REFRESH_S, load);
}

function list(rows) {
  return table(["group", "protocol", "state", ["members", "n"], ["lag", "n"]], rows.map((one) => [
    h("a", { href: pageOf(one), class: "name" }, visible(one.group)), one.protocol, one.state, count(one.members),
    h("span", { class: one.lag ? "behind" : "" }, count(one.lag))]));
}
