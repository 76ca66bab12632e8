// Charts, each with its numbers as text: for those who do not point at it.
import { count, h, table } from "../dom.js";

export function sparkline(values, label) {
  const most = Math.max(1e-9, ...values);
  return h("span", { class: "spark", role: "img", "aria-label": label }, values.map((one) => {
    const bar = h("i", { title: `${one.toFixed(1)} %` });
    bar.style.height = `${(20 * one) / most}px`;
    return bar;
  }));
}

export function barCell(value, most, label) {
  const bar = h("span", { class: "hbar", title: label });
  bar.style.width = `${Math.max(0.5, (100 * value) / Math.max(1, most))}%`;
  return bar;
}

export function columns(label, axis, stacks) {
  // stacks: [label, parts]; parts, from below: [name, number, class of its colour], the same names in each stack
  const most = Math.max(1, ...stacks.map(([, parts]) => parts.reduce((sum, [, value]) => sum + value, 0)));
  return [
    h("div", { class: "stack", role: "img", "aria-label": label }, stacks.map(([at, parts]) => h("span", { title: `${at}: ${parts.map(([name, value]) => `${count(value)} ${name}`).join(", ")}` },
      parts.map(([, value, kind]) => {
        const bar = h("i", { class: kind });
        bar.style.height = `${(100 * value) / most}%`;
        return bar;
      })))),
    stacks.length ? h("details", {}, h("summary", {}, "As a table"), table([axis, ...stacks[0][1].map(([name]) => [name, "n"])], stacks.map(([at, parts]) => [at, ...parts.map(([, value]) => count(value))]))) : null,
  ];
}
