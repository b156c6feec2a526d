// The page of `oneway explore`: asks the server what models make of a perturbed image, and paints the answer.

import { packedColour, painted, put, swatch, themed, unpack } from "./paint.js";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

const CHANNELS = ["RGB", "RBG", "GRB", "GBR", "BRG", "BGR"];
const IDENTITY = { brightness: 0, saturation: 1, hue: 0, contrast: 1, permutation: [0, 1, 2], displacements: [[0, 0], [0, 0], [0, 0], [0, 0]] };
const CORNERS = [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]];
const SHORT = { brightness: "b", saturation: "s", hue: "h", contrast: "c" };
const PARTS = { validation: "Validation image", labelled: "Trained on, with its label", unlabelled: "Trained on, without a label", unseen: "Not seen in training" };
const KEY_STEP = 0.01; // of the height, for each press of an arrow key
const ADDRESS_PAUSE = 500; // milliseconds between changes of the address: browsers refuse more than 100 in 30 seconds

let about; // what the server is about
let state; // the image and what happens to it
let answer; // the latest answer, with its maps unpacked
let highlighted = null; // the class that is shown alone
let held = null; // the class that stays highlighted when nothing is pointed at

// ---------------------------------------------------------------- asking

async function ask(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer. Start it again with oneway explore, then reload this page.");
  }
  const content = await response.json();
  if (!response.ok) throw Object.assign(new Error(content.error), { status: response.status });
  return content;
}

let asking = false, changed = false;

// One question at a time; what changes meanwhile is asked together afterwards.
async function refresh() {
  changed = true;
  if (asking) return;
  asking = true;
  document.body.classList.add("waiting");
  while (changed) {
    changed = false;
    const question = JSON.stringify(state);
    try {
      answer = await unpack(await ask("/api/compare", { method: "POST", headers: { "Content-Type": "application/json" }, body: question }));
      answer.question = question;
      paint();
    } catch (error) {
      if (error.status === 429) {
        await new Promise((resolve) => setTimeout(resolve, 700));
        changed = true;
      } else {
        say(error.message);
      }
    }
  }
  asking = false;
  document.body.classList.remove("waiting");
}

// ---------------------------------------------------------------- painting

function classColours() {
  const ground = themed("--shade");
  return about.colours.map((colour, index) => {
    const faded = highlighted !== null && highlighted !== index;
    return packedColour(faded ? colour.map((channel, k) => 0.16 * channel + 0.84 * ground[k]) : colour);
  });
}

function paint() {
  if (!answer) return;
  document.documentElement.style.setProperty("--ratio", answer.width / answer.height);
  const photo = $("#photo canvas");
  const veil = document.createElement("canvas");
  put(veil, painted(answer.runs[0].kl, answer, about.ignore));
  photo.width = veil.width;
  photo.height = veil.height;
  const context = photo.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(answer.picture, 0, 0, veil.width, veil.height);
  context.drawImage(veil, 0, 0);
  paintMaps();
  const numbers = answer.runs.map((run) => run.mean_kl);
  $$("article").forEach((article, index) => {
    const run = answer.runs[index];
    const output = $(".kl", article);
    output.value = shown(run.mean_kl);
    output.dataset.value = run.mean_kl;
    $(".facts", article).textContent = `${(100 * run.agreement).toFixed(0)} % same class`;
    $$(".tally dd")[index].textContent = shown(run.mean_kl);
  });
  $("#verdict").textContent = verdict(numbers);
  document.documentElement.dataset.answered = answer.question;
  placeHandles();
}

function paintMaps() {
  if (!answer) return;
  const tables = { kl: about.heat.colours.map(packedColour), target: classColours() };
  tables.prediction = tables.target;
  $$("article").forEach((article, index) => {
    for (const frame of $$(".frame", article)) {
      const plane = frame.dataset.plane;
      put($("canvas", frame), painted(answer.runs[index][plane], answer, about.ignore, tables[plane]));
    }
  });
}

function shown(kl) {
  return Math.max(0, kl).toFixed(3);
}

function verdict(numbers) {
  const [first, second] = about.runs.map((run) => run.name);
  if (Math.max(...numbers) < 0.002) return "As it is, clean and perturbed predictions agree. Change something.";
  if (numbers.length < 2) return `The model changes its mind on ${(100 * (1 - answer.runs[0].agreement)).toFixed(0)} % of the pixels.`;
  const [less, more, low, high] = numbers[1] <= numbers[0] ? [second, first, numbers[1], numbers[0]] : [first, second, numbers[0], numbers[1]];
  const times = high / Math.max(low, 1e-4);
  if (times < 1.1) return `${less} and ${more} change their minds alike.`;
  return `${less} departs from its clean prediction ${times >= 10 ? "over 10" : times.toFixed(1)} times less than ${more}.`;
}

// ---------------------------------------------------------------- pointing

function point(fraction) {
  for (const cross of $$(".cross")) {
    cross.hidden = !fraction;
    if (fraction) [cross.style.left, cross.style.top] = fraction.map((part) => `${100 * part}%`);
  }
  $$("article").forEach((article, index) => {
    for (const frame of $$(".frame", article)) {
      const here = $(".here", frame.parentElement);
      here.classList.toggle("pointed", Boolean(fraction && answer));
      if (fraction && answer) tellPixel(here, frame.dataset.plane, answer.runs[index], fraction);
      else here.textContent = here.dataset.otherwise;
    }
  });
}

function tellPixel(here, plane, run, [x, y]) {
  const { width, height } = answer;
  const place = Math.min(height - 1, Math.floor(y * height)) * width + Math.min(width - 1, Math.floor(x * width));
  const value = run[plane][place];
  if (value === about.ignore) here.textContent = "outside the image";
  else if (plane === "kl") here.textContent = `${(about.heat.top * (value / (about.heat.colours.length - 1)) ** 2).toFixed(2)} nats`;
  else here.replaceChildren(swatch(about.colours[value]), about.classes[value]);
}

function watchPointer() {
  for (const frame of $$(".frame")) {
    const follow = (event) => {
      const box = frame.getBoundingClientRect();
      const place = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      point(place.every((part) => part >= 0 && part < 1) && !event.target.closest(".handle") ? place : null);
    };
    frame.addEventListener("pointermove", follow);
    frame.addEventListener("pointerdown", follow);
    frame.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && point(null));
  }
}

function highlight(index) {
  highlighted = index ?? held;
  for (const [place, button] of $$("#classes button").entries()) button.setAttribute("aria-pressed", String(place === held));
  paintMaps();
}

// ---------------------------------------------------------------- control points

// A handle stands where its control point goes: what was around the point moves there with it.
function placeHandles() {
  const ratio = answer ? answer.width / answer.height : 2;
  const svg = $("#photo svg");
  svg.replaceChildren();
  $$(".handle").forEach((handle, index) => {
    const [x, y] = CORNERS[index];
    const [dx, dy] = state.displacements[index];
    const [left, top] = [x + dx / ratio, y + dy].map((part) => `${100 * part}%`);
    [handle.style.left, handle.style.top] = [left, top];
    const words = [[dx, "right", "left"], [dy, "down", "up"]].filter(([by]) => by).map(([by, to, fro]) => `${Math.abs(100 * by).toFixed(0)} % ${by > 0 ? to : fro}`);
    handle.setAttribute("aria-label", `Control point ${handle.dataset.corner}: ${words.join(", ") || "in place"}`);
    const line = svg.appendChild(document.createElementNS(svg.namespaceURI, "line"));
    for (const [name, value] of Object.entries({ x1: `${100 * x}%`, y1: `${100 * y}%`, x2: left, y2: top })) line.setAttribute(name, value);
    const dot = svg.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
    for (const [name, value] of Object.entries({ cx: `${100 * x}%`, cy: `${100 * y}%`, r: 3 })) dot.setAttribute(name, value);
  });
}

function moveHandle(index, to) {
  const displacements = state.displacements.map((point) => [...point]);
  displacements[index] = to.map((part) => Math.round(1e4 * Math.min(about.farthest, Math.max(-about.farthest, part))) / 1e4);
  change({ displacements });
}

function watchHandles() {
  $$(".handle").forEach((handle, index) => {
    handle.setAttribute("aria-describedby", "how");
    let grip = null;
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      grip = { x: event.clientX, y: event.clientY, from: state.displacements[index] };
      point(null);
    });
    handle.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const height = $("#photo").getBoundingClientRect().height;
      moveHandle(index, [grip.from[0] + (event.clientX - grip.x) / height, grip.from[1] + (event.clientY - grip.y) / height]);
    });
    for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => (grip = null));
    handle.addEventListener("dblclick", () => moveHandle(index, [0, 0]));
    handle.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const step = KEY_STEP * (event.shiftKey ? 5 : 1);
      if (way) moveHandle(index, state.displacements[index].map((part, axis) => part + step * way[axis]));
      else if (event.key === "Home" || event.key === "Delete") moveHandle(index, [0, 0]);
      else return;
      event.preventDefault();
    });
  });
}

// ---------------------------------------------------------------- controls

function change(values) {
  state = { ...state, ...values };
  showState();
  refresh();
}

function showState() {
  for (const slider of $$(".sliders input")) {
    const value = state[slider.name];
    slider.value = value;
    const text = { brightness: signed(value, 2), hue: `${signed(360 * value, 0)}°` }[slider.name] ?? `× ${value.toFixed(2)}`;
    $("output", slider.parentElement).value = text;
    slider.setAttribute("aria-valuetext", text);
  }
  const order = state.permutation.map((channel) => "RGB"[channel]).join("");
  for (const radio of $$("#channels input")) radio.checked = radio.value === order;
  for (const radio of $$("#strip input")) radio.checked = radio.value === state.image;
  $("#which").textContent = $("#strip :checked + img")?.alt ?? "";
  showChosen();
  placeHandles();
  keepInAddress();
}

// Within its strip only: the page itself stays where it is.
function showChosen() {
  const strip = $("#strip"), chosen = $("#strip label:has(:checked)");
  if (!chosen) return;
  const [left, right] = [chosen.offsetLeft - strip.offsetLeft, chosen.offsetLeft - strip.offsetLeft + chosen.offsetWidth];
  if (left < strip.scrollLeft || right > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = left - strip.clientWidth / 3;
}

function signed(value, digits) {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : (value > 0 ? "+" : "−") + text;
}

let addressTimer = null;

// The address holds the whole state: reloading keeps it, and a colleague with the same runs can be sent it. It follows the
// state with a pause, and always gets the last one.
function keepInAddress() {
  addressTimer ??= setTimeout(writeAddress, ADDRESS_PAUSE);
}

function writeAddress() {
  addressTimer = null;
  const words = new URLSearchParams({ image: state.image });
  for (const [name, letter] of Object.entries(SHORT)) if (state[name] !== IDENTITY[name]) words.set(letter, state[name]);
  const order = state.permutation.map((channel) => "RGB"[channel]).join("");
  if (order !== "RGB") words.set("channels", order);
  if (state.displacements.flat().some(Boolean)) words.set("points", state.displacements.flat().join(" "));
  history.replaceState(null, "", `#${words}`);
}

function stateFromAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const found = { ...IDENTITY, image: about.images.some(({ key }) => key === words.get("image")) ? words.get("image") : about.images[0].key };
  for (const [name, letter] of Object.entries(SHORT)) {
    const [low, high] = about.ranges[name];
    const value = Number(words.get(letter) ?? NaN);
    if (value >= low && value <= high) found[name] = value;
  }
  if (CHANNELS.includes(words.get("channels"))) found.permutation = [...words.get("channels")].map((letter) => "RGB".indexOf(letter));
  const points = (words.get("points") ?? "").split(" ").map(Number);
  if (points.length === 8 && points.every((part) => Math.abs(part) <= about.farthest)) {
    found.displacements = [0, 2, 4, 6].map((start) => points.slice(start, start + 2));
  }
  return found;
}

async function drawRandomly() {
  const seed = crypto.getRandomValues(new Uint32Array(1))[0];
  const rounded = (value) => Math.round(1e4 * value) / 1e4;
  const drawn = await ask(`/api/draw/${seed}`);
  for (const name of Object.keys(SHORT)) drawn[name] = rounded(drawn[name]);
  change({ ...drawn, displacements: drawn.displacements.map((pair) => pair.map(rounded)) });
}

async function upload(file) {
  if (!file) return;
  if (file.size > about.upload.bytes) return say(`${file.name}: ${(file.size / 2 ** 20).toFixed(0)} MiB are more than the ${about.upload.bytes / 2 ** 20} that the page takes.`);
  if (!about.upload.types.includes(file.type)) return say(`${file.name}: JPEG, PNG, WebP, TIFF or BMP, please.`);
  try {
    const headers = { "Content-Type": file.type, "X-Name": encodeURIComponent(file.name) };
    const image = await ask("/api/images", { method: "POST", headers, body: file });
    if (!$$("#strip input").some((radio) => radio.value === image.key)) $("#strip").prepend(tile(image));
    change({ image: image.key });
  } catch (error) {
    say(error.message);
  }
}

let silence;

function say(message) {
  const notice = $("#notice");
  notice.textContent = message;
  notice.hidden = false;
  clearTimeout(silence);
  silence = setTimeout(() => (notice.hidden = true), 8000);
}

// ---------------------------------------------------------------- building

function tile(image) {
  const label = document.createElement("label");
  const radio = Object.assign(document.createElement("input"), { type: "radio", name: "image", value: image.key });
  const alt = [PARTS[image.part], image.name].filter(Boolean).join(" · ");
  const picture = Object.assign(document.createElement("img"), { src: `/api/images/${image.key}`, alt, title: alt });
  radio.addEventListener("change", () => change({ image: image.key }));
  label.append(radio, picture);
  return label;
}

function build() {
  $("#strip").append(...about.images.map(tile));
  for (const slider of $$(".sliders input")) {
    const [low, high] = about.ranges[slider.name];
    const [from, to] = about.drawn[slider.name];
    Object.assign(slider, { min: low, max: high });
    slider.style.setProperty("--from", `${(100 * (from - low)) / (high - low)}%`);
    slider.style.setProperty("--to", `${(100 * (to - low)) / (high - low)}%`);
    slider.addEventListener("input", () => change({ [slider.name]: Number(slider.value) }));
    slider.addEventListener("dblclick", () => change({ [slider.name]: IDENTITY[slider.name] }));
  }
  for (const order of CHANNELS) {
    const label = document.createElement("label");
    const radio = Object.assign(document.createElement("input"), { type: "radio", name: "channels", value: order });
    radio.addEventListener("change", () => change({ permutation: [...order].map((letter) => "RGB".indexOf(letter)) }));
    label.append(radio, order);
    $("#channels").append(label);
  }
  buildColumns();
  buildLegend();
  $("#remark").textContent = about.remark;
  $("#random").addEventListener("click", () => drawRandomly().catch((error) => say(error.message)));
  $("#reset").addEventListener("click", () => change(IDENTITY));
  $("#choose").addEventListener("click", () => $("#file").click());
  $("#file").addEventListener("change", (event) => upload(event.target.files[0]));
  document.addEventListener("paste", (event) => upload(event.clipboardData.files[0]));
  document.addEventListener("dragover", (event) => (event.preventDefault(), document.body.classList.add("dropping")));
  document.addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    upload(event.dataTransfer.files[0]);
  });
  watchHandles();
  watchPointer();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  addEventListener("hashchange", () => change(stateFromAddress()));
}

function buildColumns() {
  const columns = $("#columns");
  columns.style.setProperty("--runs", about.runs.length);
  columns.classList.toggle("single", about.runs.length === 1);
  about.runs.forEach((run, index) => {
    const article = $("#column").content.cloneNode(true).firstElementChild;
    const colour = `var(--run-${about.runs.length === 1 ? 1 : index})`;
    article.style.setProperty("--run", colour);
    $(".name", article).textContent = run.name;
    const facts = [run.method === run.name ? "" : run.method, run.labels && `${run.labels} label${run.labels === 1 ? "" : "s"}`, run.value !== null && `${run.value.toFixed(1)} % ${run.metric}`];
    $("small", article).textContent = facts.filter(Boolean).join(" · ");
    columns.append(article);
    const row = document.createElement("div");
    row.style.setProperty("--run", colour);
    row.append(Object.assign(document.createElement("dt"), { textContent: run.name }), document.createElement("dd"));
    $(".tally").append(row);
  });
  point(null);
}

function buildLegend() {
  about.classes.forEach((name, index) => {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(swatch(about.colours[index]), name);
    button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && highlight(index));
    button.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && highlight(null));
    button.addEventListener("focus", () => button.matches(":focus-visible") && highlight(index));
    button.addEventListener("blur", () => highlight(null));
    button.addEventListener("click", () => {
      held = held === index ? null : index;
      highlight(held);
    });
    const item = document.createElement("li");
    item.append(button);
    $("#classes").append(item);
  });
  const bar = $("#bar");
  const stops = about.heat.colours.filter((_, level) => level % 16 === 0);
  bar.style.background = `linear-gradient(to right, ${stops.map((colour) => `rgb(${colour.join(" ")})`)})`;
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const kl = about.heat.top * part ** 2; // colours grow with the root
    const mark = Object.assign(document.createElement("b"), { textContent: `${kl}${part === 1 ? " or more" : ""}` });
    mark.style.left = `${100 * part}%`;
    bar.append(mark);
  }
}

try {
  about = await ask("/api/about");
  document.title = `${about.runs.map((run) => run.name).join(" and ")} · oneway explore`;
  state = stateFromAddress();
  build();
  showState();
  // There is little to see in an image as it is: unless the address says what to show, the page begins with a draw.
  if (location.hash) refresh();
  else await drawRandomly();
} catch (error) {
  say(error.message);
}
