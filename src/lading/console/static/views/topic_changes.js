// Topics that are created, changed, emptied and deleted: each asks first.
import { post } from "../api.js";
import { ask, count, errorBox, h, plural, toast, visible } from "../dom.js";

const words = (text) => text.split("\n").map((one) => one.trim()).filter(Boolean);

async function change(path, document, failed) {
  // undefined after an error, which was shown
  try {
    return await post(path, document);
  } catch (error) {
    await ask(failed, [errorBox(error)], "Close");
    return undefined;
  }
}

export async function createTopic(context) {
  const name = h("input", { type: "text", spellcheck: "false" });
  const partitions = h("input", { type: "number", min: 1, max: 100000, value: 1 });
  const settings = h("textarea", { rows: 3, spellcheck: "false", placeholder: "retention_age_us=7d\ndead_letter_topic=flights-dead" });
  const isSure = await ask("Create a topic", [h("label", { class: "wide" }, "Name, or stream.name", name), h("p", {}, h("label", { class: "check" }, "partitions ", partitions)),
    context.about.is_broker ? h("label", { class: "wide" }, "Settings, one a line", settings) : null], "Create", { focus: name });
  if (!isSure) return;
  const did = await change("/api/topic/create", { topic: name.value.trim(), partitions: Number(partitions.value), settings: words(settings.value) }, "The topic was not created");
  if (!did) return;
  toast(`created ${did.topic} with ${plural(did.partitions, "partition")}`);
  context.go(`/topic?topic=${encodeURIComponent(did.topic)}`);
}

export async function changeSettings(topic, context) {
  const settings = h("textarea", { rows: 4, spellcheck: "false", placeholder: "retention_age_us=7d\nhide_states=", "aria-label": "Settings" });
  const isSure = await ask(`Settings of ${topic}`, [h("p", {}, "One ", h("code", {}, "KEY=VALUE"), " a line, with units; ", h("code", {}, "KEY="), " takes one back. Retention deletes messages."), h("label", { class: "wide" }, settings)], "Change", { focus: settings });
  if (!isSure || !words(settings.value).length) return;
  const did = await change("/api/topic/settings", { topic, settings: words(settings.value) }, "The settings were not changed");
  if (did) toast(`changed ${topic}`);
}

async function askByName(title, topic, explained, button) {
  // whether the name was typed
  const typed = h("input", { type: "text", spellcheck: "false", "aria-label": "Name of the topic" });
  const isSure = await ask(title, [h("p", {}, explained, " Type its name to agree."), h("label", { class: "wide" }, typed)], button, { danger: true, focus: typed });
  if (!isSure) return false;
  if (typed.value.trim() === topic) return true;
  await ask("Nothing was deleted", [h("p", {}, "What was typed is not its name.")], "Close");
  return false;
}

export async function emptyTopic(topic, messages, context) {
  const explained = ["All ", h("b", {}, `${count(messages)} messages`), " of ", h("b", {}, visible(topic)), " are deleted; the topic, its settings and its groups stay."];
  if (!(await askByName("Empty the topic", topic, explained, "Empty"))) return;
  const did = await change("/api/topic/empty", { topic }, "The topic was not emptied");
  if (!did) return;
  toast(`emptied ${topic}`);
  context.go(`/topic?topic=${encodeURIComponent(topic)}`);
}

export async function deleteTopic(topic, messages, context) {
  const explained = ["All ", h("b", {}, `${count(messages)} messages`), " of ", h("b", {}, visible(topic)), " are deleted with it."];
  if (!(await askByName("Delete the topic", topic, explained, "Delete"))) return;
  if (!(await change("/api/topic/delete", { topic }, "The topic was not deleted"))) return;
  toast(`deleted ${topic}`);
  context.go("/");
}
