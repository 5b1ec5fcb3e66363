// The upload panel of the first page: picks files, shows how far they are. The upload itself outlives the page.
import { announce } from "./copying.mjs";
import { go } from "./navigation.mjs";
import { Upload } from "./upload.mjs";
import { leftText, sizeText } from "./upload_plan.mjs";

const ROWS_SHOWN = 200;
const SAY_EVERY_MS = 5000;
const ORDER = { failed: 0, sending: 1, waiting: 2, sent: 3 };
const WORDS = { waiting: "waiting", sending: "sending", sent: "✓ sent", failed: "✕ failed" };

let upload = null;
let saidAt = -Infinity;

/** All files below dropped entries, as `{path, file}`; folders are walked to their end. */
export async function filesOfEntries(entries) {
  const found = [];
  const walk = async (entry, prefix) => {
    const path = prefix + entry.name;
    if (entry.isFile) {
      found.push({ path, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      // A reader gives a part of the folder at a time, and nothing at its end.
      const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!part.length) return;
      for (const child of part) await walk(child, `${path}/`);
    }
  };
  for (const entry of entries) await walk(entry, "");
  return found;
}

/** The files of an `<input type=file>`; of a folder, with their path below it. */
export function filesOfInput(input) {
  return Array.from(input.files, (file) => ({ path: file.webkitRelativePath || file.name, file }));
}

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function button(text, action, isMain = false) {
  const element = make("button", isMain ? "button button--main" : "button", text);
  element.type = "button";
  element.addEventListener("click", action);
  return element;
}

function headline(run) {
  const files = `${run.files.length.toLocaleString("en-US")} ${run.files.length === 1 ? "file" : "files"}`;
  const sent = `${sizeText(run.sent)} of ${sizeText(run.total)}`;
  const rate = run.rate.rate();
  const left = rate ? (run.total - run.sent) / rate : null;
  switch (run.state) {
    case "starting":
      return [`Reserving room for ${files}`, sizeText(run.total)];
    case "sending":
      return [
        `Sending ${files}${run.resumed ? ", continued" : ""}`,
        run.retrying
          ? `${sent} · the connection broke, trying again (${run.retrying})`
          : `${sent} · ${rate === null ? "rate unknown" : `${sizeText(rate)}/s`} · ${leftText(left)}`,
      ];
    case "paused":
      return [`Paused, ${files}`, sent];
    case "finishing":
      return ["All sent, starting to read", sent];
    case "done":
      return ["Sent", sent];
    case "failed":
      return ["The upload stopped", `${run.error}. What has been sent is kept for a day; pick the same files to go on.`];
    default:
      return ["Cancelled", "The server has freed the space."];
  }
}

function drawRows(list, run) {
  const rows = [...run.files].sort((a, b) => ORDER[a.state] - ORDER[b.state]).slice(0, ROWS_SHOWN);
  const items = rows.map((file) => {
    const row = make("li", `upload__file upload__file--${file.state}`);
    row.append(
      make("span", "upload__name mono", file.path),
      make("span", "upload__format", file.format ? file.format.replaceAll("_", " ") : ""),
      make("span", "upload__size", sizeText(file.size)),
      make("span", "upload__state", WORDS[file.state]),
    );
    row.firstChild.title = file.path;
    return row;
  });
  if (run.files.length > ROWS_SHOWN) {
    items.push(make("li", "upload__more", `${(run.files.length - ROWS_SHOWN).toLocaleString("en-US")} more files`));
  }
  list.replaceChildren(...items);
}

function draw() {
  const place = document.querySelector("[data-upload]");
  if (!place || !upload) return;
  const body = place.querySelector("[data-upload-body]");
  const drop = place.querySelector("[data-upload-drop]");
  const run = upload;
  drop.hidden = run.isBusy;
  let box = body.querySelector(".upload__run");
  if (!box) {
    box = make("div", "upload__run");
    const bar = make("progress", "upload__bar");
    bar.max = 1000;
    bar.setAttribute("aria-label", "Sent");
    box.append(make("p", "upload__title"), make("p", "upload__numbers"), bar, make("div", "upload__buttons"), make("ul", "upload__files"));
    body.replaceChildren(box);
  }
  const [title, numbers] = headline(run);
  const [titleLine, numbersLine, bar, buttons, list] = box.children;
  titleLine.textContent = title;
  numbersLine.textContent = numbers;
  bar.value = run.total ? Math.round((run.sent / run.total) * 1000) : run.state === "done" ? 1000 : 0;
  box.dataset.state = run.state;
  if (buttons.dataset.state !== run.state) {
    // Only when the state changes, so that a button in focus is not taken away under the pointer.
    buttons.dataset.state = run.state;
    const shown = [];
    if (run.state === "sending") shown.push(button("Pause", () => run.pause()));
    if (run.state === "paused") shown.push(button("Continue", () => run.resume(), true));
    if (run.state === "failed") shown.push(button("Try again", () => run.start(), true));
    if (run.isBusy && run.state !== "finishing") shown.push(button("Cancel", () => run.cancel()));
    buttons.replaceChildren(...shown);
  }
  drawRows(list, run);
}

function say(run) {
  const now = performance.now();
  const isStep = ["done", "failed", "cancelled", "paused"].includes(run.state);
  if (!isStep && now - saidAt < SAY_EVERY_MS) return;
  saidAt = now;
  announce(headline(run).join(": "));
}

function begin(files) {
  if (!files.length || upload?.isBusy) return;
  upload = new Upload(files);
  let due = false;
  upload.addEventListener("change", () => {
    const run = upload;
    say(run);
    if (run.state === "done") {
      upload = null;
      draw();
      go(`/jobs/${run.job}`);
      return;
    }
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      draw();
    });
  });
  upload.start();
  draw();
}

export function startUploads() {
  document.addEventListener("click", (event) => {
    const opener = event.target instanceof Element ? event.target.closest("[data-pick]") : null;
    if (!opener) return;
    const input = make("input");
    input.type = "file";
    input.multiple = true;
    input.webkitdirectory = opener.getAttribute("data-pick") === "folder";
    input.addEventListener("change", () => begin(filesOfInput(input)), { once: true });
    input.click();
  });
  const zone = (event) => (event.target instanceof Element ? event.target.closest("[data-upload]") : null);
  document.addEventListener("dragover", (event) => {
    if (!zone(event)) return;
    event.preventDefault();
    zone(event).setAttribute("data-over", "");
  });
  document.addEventListener("dragleave", (event) => {
    const place = zone(event);
    if (place && !place.contains(event.relatedTarget)) place.removeAttribute("data-over");
  });
  document.addEventListener("drop", async (event) => {
    const place = zone(event);
    if (!place) return;
    event.preventDefault();
    place.removeAttribute("data-over");
    // The entries must be taken before anything is awaited; the list is empty afterwards.
    const entries = Array.from(event.dataTransfer.items, (item) => item.webkitGetAsEntry?.()).filter(Boolean);
    begin(await filesOfEntries(entries));
  });
  window.addEventListener("beforeunload", (event) => {
    if (upload?.isBusy && upload.state !== "finishing") event.preventDefault();
  });
  // The page was left and came back while the upload went on.
  new MutationObserver(() => {
    if (upload && document.querySelector("[data-upload-body]:empty")) draw();
  }).observe(document.body, { childList: true, subtree: true });
}
