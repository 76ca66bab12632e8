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
    h("div", { class: "chart" }, h("span", { class: "axis" }, h("span", {}, count(most)), h("span", {}, "0")), h("div", { class: "stack", role: "img", "aria-label": label }, stacks.map(([at, parts]) => h("span", { title: `${at}: ${parts.map(([name, value]) => `${count(value)} ${name}`).join(", ")}` },
      parts.map(([, value, kind]) => {
        const bar = h("i", { class: kind });
        bar.style.height = `${(100 * value) / most}%`;
        return bar;
      }))))),
    stacks.length ? h("details", {}, h("summary", {}, "As a table"), table([axis, ...stacks[0][1].map(([name]) => [name, "n"])], stacks.map(([at, parts]) => [at, ...parts.map(([, value]) => count(value))]))) : null,
  ];
}

const SVG = "http://www.w3.org/2000/svg";

export function overTime(label, samples) {
  // samples: [seconds since 1970, number], oldest first; the axis begins at 0 and has its largest number, first and last time
  const [first, last] = [samples[0][0], samples.at(-1)[0]];
  const most = Math.max(1, ...samples.map(([, value]) => value));
  const points = samples.map(([at, value]) => `${(600 * (at - first)) / Math.max(1, last - first)},${118 - (116 * value) / most}`).join(" ");
  const drawing = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 600 120", preserveAspectRatio: "none", role: "img", class: "line", "aria-label": `${label} from ${clock(first)} to ${clock(last)}: at most ${count(Math.round(most))}, now ${count(Math.round(samples.at(-1)[1]))}` })) drawing.setAttribute(name, value);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points);
  drawing.append(line);
  const shown = samples.filter((_, at) => at % Math.ceil(samples.length / 60) === 0 || at === samples.length - 1);
  return [
    h("div", { class: "chart" }, h("span", { class: "axis" }, h("span", {}, count(Math.round(most))), h("span", {}, "0")), drawing),
    h("div", { class: "times soft" }, h("span", {}, clock(first)), h("span", {}, `${clock(last)} UTC`)),
    h("details", {}, h("summary", {}, "As a table"), table(["time (UTC)", [label, "n"]], shown.map(([at, value]) => [clock(at), count(Math.round(value))]))),
  ];
}

const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);
