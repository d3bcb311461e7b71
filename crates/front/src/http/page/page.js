"use strict";
(() => {
  // Bytes of a text that its preview shows, and results of a search below this directory.
  const TEXT_MAX = 65536;
  const FOUND_MAX = 1000;
  // Rows that are sorted when the page opens; the server has sorted larger directories in part.
  const SORTED_MAX = 20000;
  // Requests in flight of an upload or a search.
  const PARALLEL = 4;

  const here = new URL("./", location).href;
  // Path of this directory at the server, which a proxy may serve at another one.
  const serverPath = document.body.dataset.write;
  const mayWrite = serverPath !== undefined;
  const list = document.querySelector("ul");
  const numeric = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  // Creates an element with properties and children.
  const create = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  const createButton = (text, action, properties = {}) => {
    const button = create("button", { type: "button", ...properties }, text);
    button.addEventListener("click", action);
    return button;
  };

  // Returns the entry of a row.
  const entryOf = (row) => {
    const link = row.querySelector("a");
    const size = row.querySelector("data");
    const href = link.getAttribute("href");
    return {
      row,
      link,
      href,
      name: link.textContent.replace(/\/$/, ""),
      isDirectory: href.endsWith("/"),
      isLink: row.className === "link",
      size: size ? Number(size.value) : -1,
      time: row.querySelector("time")?.textContent ?? "",
    };
  };
  const rows = () => [...list.children].filter((row) => row.id !== "up");

  // Replaces all rows.
  const showRows = (next) => {
    const some = document.createDocumentFragment();
    // A row loses the focus when it is moved.
    const focused = document.activeElement;
    for (const row of next) some.append(row);
    for (const row of rows()) row.remove();
    list.append(some);
    if (focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true });
  };

  const sizeText = (bytes) => {
    if (bytes === 1) return "1 byte";
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    for (; bytes >= 1024 && unit + 1 < units.length; unit++) bytes /= 1024;
    return `${bytes.toFixed(unit > 0 && bytes < 10 ? 1 : 0)} ${units[unit]}`;
  };

  // Returns the text of an encoded path.
  const pathText = (href) => {
    const decoded = (part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    };
    return href.split("/").map(decoded).join("/");
  };

  const timeText = (entry) => entry.modified?.slice(0, 16).replace("T", " ") ?? "";

  // Creates the row of an entry of a JSON listing, below `prefix`.
  const createRow = (entry, prefix = "") => {
    const slash = entry.href.endsWith("/") ? "/" : "";
    const text = pathText(prefix) + entry.name + slash;
    const facts = create("small", {});
    if (entry.type === "file" && entry.size !== undefined) {
      facts.append(create("data", { value: entry.size }, sizeText(entry.size)), " ");
    }
    if (entry.modified) facts.append(create("time", {}, timeText(entry)));
    const link = create("a", { href: prefix + entry.href }, text);
    const className = entry.type === "symlink" ? "link" : "";
    return addButtons(create("li", { className }, link, facts));
  };

  // Requests.

  const PARTIAL = "some of it could not be changed";

  // Errors are problem details if JSON was requested, otherwise text.
  const reasonOf = (text) => {
    try {
      return JSON.parse(text).detail;
    } catch {
      return text.split("\n")[0];
    }
  };

  // Sends a request; throws the reason if it fails.
  const request = async (method, url, headers = {}, options = {}) => {
    let response;
    try {
      response = await fetch(url, { method, headers, ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("the server cannot be reached");
    }
    const { status } = response;
    if (response.ok && status !== 207) return response;
    const reason = status === 207 ? PARTIAL : reasonOf(await response.text());
    throw Object.assign(new Error(reason || `status ${status}`), { status });
  };
  const entriesOf = async (href, options) =>
    (await request("GET", href, { Accept: "application/json" }, options)).json();

  // Calls `work` for all items, some at a time, until `signal` aborts.
  const forAll = async (items, signal, work) => {
    const shared = items[Symbol.iterator]();
    const worker = async () => {
      for (const item of shared) {
        if (signal.aborted) return;
        await work(item);
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, worker));
  };

  // The bar: search, order, and buttons for changes.

  const search = create("input", { type: "search", placeholder: "Search", ariaLabel: "Search" });
  const order = create("select", { ariaLabel: "Sort by" });
  for (const [value, text] of [
    ["name", "Name"],
    ["size", "Largest first"],
    ["time", "Newest first"],
  ]) {
    order.append(create("option", { value }, text));
  }
  const below = create("button", { type: "submit" }, "Search below");
  const bar = create("form", { id: "bar", role: "search" }, search, below, order);
  const status = create("div", { id: "status", role: "status" });
  const uploads = create("div", { id: "uploads", role: "status" });
  document.querySelector("main").prepend(bar, uploads, status);

  const report = (...parts) => status.replaceChildren(...parts);

  const orders = {
    name: (a, b) => numeric.compare(a.name, b.name),
    size: (a, b) => b.size - a.size || orders.name(a, b),
    time: (a, b) => b.time.localeCompare(a.time) || orders.name(a, b),
  };
  const sort = () => {
    const compare = orders[order.value];
    const entries = rows().map(entryOf);
    entries.sort((a, b) => b.isDirectory - a.isDirectory || compare(a, b));
    showRows(entries.map((entry) => entry.row));
  };
  order.addEventListener("change", sort);

  // Hides the rows without the text of the search field; returns how many are shown.
  const filter = () => {
    const wanted = search.value.toLocaleLowerCase();
    let shown = 0;
    for (const row of rows()) {
      // The first element of a row is its link.
      const isHidden = !row.firstElementChild.textContent.toLocaleLowerCase().includes(wanted);
      if (row.hidden !== isHidden) row.hidden = isHidden;
      if (!isHidden) shown++;
    }
    return shown;
  };

  // The list shows this directory, or the results of a search below it: whatever was requested last.
  // A request for something else aborts it.
  let viewing = new AbortController();
  let showsResults = false;

  const beginView = () => {
    viewing.abort();
    viewing = new AbortController();
    return viewing;
  };

  // Replaces the rows by those of a JSON listing; rows of entries without a change stay.
  const showEntries = (entries) => {
    const keyOf = ({ href, size, time, isLink }) => JSON.stringify([href, size, time, isLink]);
    const old = new Map(showsResults ? [] : rows().map((row) => [keyOf(entryOf(row)), row]));
    const rowOf = (entry) => {
      const size = entry.type === "file" ? (entry.size ?? -1) : -1;
      const [time, isLink] = [timeText(entry), entry.type === "symlink"];
      return old.get(keyOf({ href: entry.href, size, time, isLink })) ?? createRow(entry);
    };
    showRows(entries.map(rowOf));
  };

  // Lists this directory again; returns whether it is shown.
  const refresh = async () => {
    const control = beginView();
    try {
      const entries = await entriesOf(here, { signal: control.signal });
      if (viewing !== control) return false;
      showEntries(entries);
      // The text was that of the search, of which the results are left.
      if (showsResults && document.activeElement !== search) search.value = "";
      showsResults = false;
      sort();
      filter();
      return true;
    } catch (error) {
      if (viewing === control) report(`${pathText(location.pathname)}: ${error.message}`);
      return false;
    }
  };

  search.addEventListener("input", async () => {
    if (showsResults && !(await refresh())) return;
    const shown = filter();
    report(search.value ? `${shown} of ${rows().length} here` : "");
  });

  // Searches this directory and all below it. Links are not followed.
  const searchBelow = async (wanted) => {
    const control = beginView();
    const { signal } = control;
    const stop = createButton("Stop", () => control.abort());
    let [found, listed, failed] = [0, 0, 0];
    showRows([]);
    showsResults = true;
    const reportFound = (...end) => {
      const unread = failed ? `, ${failed} unreadable` : "";
      report(`${found} found in ${listed} directories${unread}`, ...end);
    };
    const searchIn = async (prefix, next) => {
      const entries = await entriesOf(new URL(`./${prefix}`, here), { signal });
      listed++;
      for (const entry of entries) {
        if (entry.type === "directory") next.push(prefix + entry.href);
        if (found < FOUND_MAX && entry.name.toLocaleLowerCase().includes(wanted)) {
          list.append(createRow(entry, prefix));
          found++;
        }
      }
    };
    // Level by level.
    for (let level = [""]; level.length && found < FOUND_MAX && !signal.aborted; ) {
      const next = [];
      await forAll(level, signal, async (prefix) => {
        if (found >= FOUND_MAX) return;
        try {
          await searchIn(prefix, next);
        } catch (error) {
          if (error.name !== "AbortError") failed++;
        }
        if (viewing === control) reportFound(" ", stop);
      });
      level = next;
    }
    if (viewing !== control) return;
    if (signal.aborted) reportFound(", stopped");
    else reportFound(found < FOUND_MAX ? "." : ", and perhaps more.");
  };
  bar.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = search.value.toLocaleLowerCase();
    if (wanted) searchBelow(wanted);
  });

  // Dialogs, one at a time.

  let lastDialog = Promise.resolve();

  // Shows a question; returns the text of its field or "ok", or null if it is cancelled.
  const ask = (title, options = {}) => {
    lastDialog = lastDialog.then(() => showQuestion(title, options));
    return lastDialog;
  };
  const showQuestion = (title, { value, ok = "OK" }) =>
    new Promise((resolve) => {
      const field = value === undefined ? null : create("input", { value, ariaLabel: title });
      const cancel = createButton("Cancel", () => dialog.close());
      const form = create("form", { method: "dialog" });
      form.append(...(field ? [field] : []), create("button", { value: "ok" }, ok), cancel);
      const dialog = create("dialog", { className: "question" }, create("p", {}, title), form);
      dialog.addEventListener("close", () => {
        dialog.remove();
        resolve(dialog.returnValue === "ok" ? (field ? field.value : "ok") : null);
      });
      document.body.append(dialog);
      dialog.showModal();
      if (!field) return cancel.focus();
      field.focus();
      const dot = value.lastIndexOf(".");
      field.setSelectionRange(0, dot > 0 ? dot : value.length);
    });

  // Previews.

  const KINDS = {
    img: /\.(png|jpe?g|jfif|gif|webp|avif|svg|bmp|ico)$/i,
    audio: /\.(mp3|oga|ogg|opus|wav|flac|m4a)$/i,
    video: /\.(mp4|m4v|webm|ogv|mov)$/i,
    text: new RegExp(
      "(^|/)(readme|license|copying|makefile|dockerfile|changelog)$|\\.(txt|md|rst|adoc|log|csv|" +
        "tsv|json|jsonl|xml|ya?ml|toml|ini|cfg|conf|css|js|mjs|ts|tsx|jsx|rs|py|rb|pl|php|go|c|h|" +
        "cc|cpp|hpp|java|kt|swift|cs|sh|bash|zsh|fish|sql|lua|r|tex|bib|diff|patch|srt|vtt)$",
      "i",
    ),
  };
  const kindOf = (entry) =>
    entry.isDirectory ? null : Object.keys(KINDS).find((kind) => KINDS[kind].test(entry.name));

  // Returns the beginning of a text, with a note if there is more.
  const textOf = async (entry) => {
    let response;
    try {
      response = await request("GET", entry.href, { Range: `bytes=0-${TEXT_MAX - 1}` });
    } catch (error) {
      // No range of an empty file can be satisfied.
      if (error.status === 416) return create("p", {}, "The file is empty.");
      throw error;
    }
    const bytes = await response.arrayBuffer();
    if (!bytes.byteLength) return create("p", {}, "The file is empty.");
    const total = Number(response.headers.get("Content-Range")?.split("/")[1] ?? 0);
    const rest = total > TEXT_MAX ? `\n… the first 64 KiB of ${sizeText(total)}` : "";
    return create("pre", { tabIndex: 0 }, new TextDecoder().decode(bytes) + rest);
  };
  const contentOf = async (entry, kind) => {
    if (kind === "text") return textOf(entry);
    if (kind === "img") return create("img", { src: entry.href, alt: entry.name });
    return create(kind, { src: entry.href, controls: true });
  };

  const preview = (first) => {
    let entry = first;
    const title = create("p", {});
    const place = create("div", {});
    const show = async () => {
      const shown = entry;
      title.textContent = entry.name;
      download.href = entry.href;
      place.replaceChildren("…");
      let content;
      try {
        content = await contentOf(entry, kindOf(entry));
      } catch (error) {
        content = create("p", {}, error.message);
      }
      if (shown === entry) place.replaceChildren(content);
    };
    const step = (by) => {
      const all = rows().map(entryOf).filter((other) => !other.row.hidden && kindOf(other));
      const at = all.findIndex((other) => other.href === entry.href);
      entry = all[(at + by + all.length) % all.length] ?? entry;
      show();
    };
    const download = create("a", { download: "" }, "Download");
    const close = createButton("Close", () => dialog.close());
    const previous = createButton("Previous", () => step(-1));
    const next = createButton("Next", () => step(1));
    const form = create("form", { method: "dialog" }, previous, next, download, close);
    const dialog = create("dialog", { id: "preview" }, title, place, form);
    dialog.addEventListener("keydown", (event) => {
      if (event.target.closest("pre, video, audio")) return;
      if (event.key === "ArrowLeft") step(-1);
      if (event.key === "ArrowRight") step(1);
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      first.link.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
    close.focus();
    show();
  };

  list.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.closest("#up")) return;
    const entry = entryOf(link.closest("li"));
    if (!kindOf(entry)) return;
    event.preventDefault();
    if (!document.querySelector("dialog")) preview(entry);
  });

  // Moves the focus from row to row.
  const moveFocus = (row, by) => {
    const links = [...list.querySelectorAll("li:not([hidden])>a")];
    const at = row ? links.indexOf(row.querySelector("a")) : -1;
    const next = links[row ? at + by : 0];
    next?.focus();
    return next;
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = document.activeElement.closest("main>ul>li");
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && moveFocus(row, by)) event.preventDefault();
    if (event.repeat) return;
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
    }
    if (!mayWrite || !row || row.id === "up") return;
    if (event.key === "Delete") remove(entryOf(row));
    if (event.key === "F2") rename(entryOf(row));
  });

  // Changes.

  const EXISTS = "there is something of that name already";

  const remove = async (entry) => {
    const what = entry.isLink ? `the link ${entry.name}` : entry.name;
    const all = entry.isDirectory && !entry.isLink ? " and everything in it" : "";
    if (!(await ask(`Delete ${what}${all}?`, { ok: "Delete" }))) return;
    // A link to a directory is removed by its own name, which has no slash.
    const href = entry.isLink ? entry.href.replace(/\/$/, "") : entry.href;
    try {
      await request("DELETE", href);
      const row = rows().find((other) => entryOf(other).href === entry.href);
      if (row?.contains(document.activeElement)) moveFocus(row, 1);
      row?.remove();
      report(`Deleted ${entry.name}.`);
    } catch (error) {
      if (error.status === 207) await refresh();
      report(`${entry.name}: ${error.message}`);
    }
  };

  // Reports what is wrong with a name, if anything.
  const isName = (name) => {
    const isValid = !name.includes("/") && name !== "." && name !== "..";
    if (!isValid) report(`${name}: a name has no slash, and is not . or ..`);
    return isValid;
  };

  const rename = async (entry) => {
    const old = entry.name.split("/").pop();
    const name = await ask(`New name of ${entry.name}`, { value: old, ok: "Rename" });
    if (!name || name === old.replace(/[\r\n]/g, "") || !isName(name)) return;
    const href = entry.href.replace(/\/$/, "");
    const parent = new URL("./", new URL(href, new URL(serverPath, here)));
    const target = new URL(`./${encodeURIComponent(name)}`, parent);
    try {
      await request("MOVE", href, { Destination: target.pathname, Overwrite: "F" });
      if (await refresh()) report(`Renamed ${entry.name} to ${name}.`);
    } catch (error) {
      report(`${name}: ${error.status === 412 ? EXISTS : error.message}`);
    }
  };

  const createDirectory = async () => {
    const name = await ask("Name of the new folder", { value: "", ok: "Create" });
    if (!name || !isName(name)) return;
    try {
      await request("MKCOL", new URL(`./${encodeURIComponent(name)}/`, here));
      if (await refresh()) report(`Created ${name}.`);
    } catch (error) {
      report(`${name}: ${error.status === 405 ? EXISTS : error.message}`);
    }
  };

  // Adds the buttons of a row.
  const addButtons = (row) => {
    if (!mayWrite || row.id === "up") return row;
    const name = row.querySelector("a").textContent;
    const add = (text, title, action) => {
      const properties = { title, ariaLabel: `${title} ${name}` };
      row.append(createButton(text, () => action(entryOf(row)), properties));
    };
    add("✎", "Rename", rename);
    add("✕", "Delete", remove);
    return row;
  };

  // Uploads. Paths are relative to this directory.

  const urlOf = (path) => new URL(`./${path.split("/").map(encodeURIComponent).join("/")}`, here);
  const parentOf = (path) => path.slice(0, Math.max(0, path.lastIndexOf("/")));

  let uploading = null;
  addEventListener("beforeunload", (event) => uploading && event.preventDefault());

  // An upload in progress: files as { path, file }, and what is shown of them.
  class Upload {
    control = new AbortController();
    sent = new Map();
    requests = new Set();
    failures = create("ul", {});
    meter = create("progress", { value: 0 });
    text = create("span", {});
    done = 0;
    shownAt = 0;

    constructor(directories, files) {
      this.directories = directories;
      this.files = files;
      this.total = files.reduce((sum, { file }) => sum + file.size, 0);
      this.sentBytes = 0;
      const stop = createButton("Stop", () => this.stop());
      uploads.replaceChildren(this.meter, this.text, " ", stop, this.failures);
    }

    stop() {
      this.control.abort();
      for (const http of this.requests) http.abort();
    }

    fail(path, error) {
      this.failures.append(create("li", {}, `${path}: ${error.message}`));
    }

    // Notes how much of a file was sent, and shows the progress from time to time.
    progress(path, bytes) {
      this.sentBytes += bytes - (this.sent.get(path) ?? 0);
      this.sent.set(path, bytes);
      if (performance.now() - this.shownAt < 100) return;
      this.shownAt = performance.now();
      this.meter.value = this.total ? this.sentBytes / this.total : 0;
      const files = `${this.done} of ${this.files.length} files`;
      this.text.textContent = `${files}, ${sizeText(this.sentBytes)} of ${sizeText(this.total)}`;
    }

    // Sends a file, if it does not exist or is to be replaced.
    put({ path, file }, replace) {
      return new Promise((resolve, reject) => {
        const http = new XMLHttpRequest();
        http.open("PUT", urlOf(path));
        if (!replace) http.setRequestHeader("If-None-Match", "*");
        const { requests } = this;
        requests.add(http);
        http.addEventListener("loadend", () => requests.delete(http));
        http.upload.addEventListener("progress", (event) => {
          this.progress(path, Math.min(event.loaded, file.size));
        });
        http.addEventListener("load", () => {
          if (http.status >= 200 && http.status < 300) return resolve();
          const error = new Error(reasonOf(http.responseText) || `status ${http.status}`);
          reject(Object.assign(error, { status: http.status }));
        });
        http.addEventListener("error", () => reject(new Error("the connection broke; try again")));
        http.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
        http.send(file);
      });
    }

    // Creates directories; returns those that were there before.
    async createDirectories() {
      const old = new Set([""]);
      for (const path of this.directories) {
        if (this.control.signal.aborted) break;
        try {
          await request("MKCOL", `${urlOf(path).href}/`);
        } catch (error) {
          if (error.status === 405) old.add(path);
          else this.fail(path, error);
        }
      }
      return old;
    }

    // Returns the files whose names are taken, of those in `old` directories: so that they are not
    // sent in vain.
    async existing(old) {
      const taken = new Set();
      const parents = new Set(this.files.map(({ path }) => parentOf(path)));
      const listed = [...parents].filter((parent) => old.has(parent));
      await forAll(listed, this.control.signal, async (parent) => {
        const prefix = parent && `${parent}/`;
        try {
          const entries = await entriesOf(parent ? `${urlOf(parent).href}/` : here);
          for (const entry of entries) taken.add(prefix + entry.name);
        } catch {
          // Then the conditions of the requests decide.
        }
      });
      return this.files.filter(({ path }) => taken.has(path));
    }

    // Sends files; returns those that exist.
    async send(files, replace) {
      const existing = [];
      await forAll(files, this.control.signal, async (next) => {
        const { path, file } = next;
        try {
          await this.put(next, replace);
          this.done++;
          this.progress(path, file.size);
        } catch (error) {
          this.progress(path, 0);
          if (error.status === 412 && !replace) existing.push(next);
          else if (error.name !== "AbortError") this.fail(path, error);
        }
      });
      return existing;
    }

    async run() {
      const { signal } = this.control;
      const existing = new Set(await this.existing(await this.createDirectories()));
      const others = this.files.filter((file) => !existing.has(file));
      const all = [...existing, ...(await this.send(others, false))];
      if (!all.length || signal.aborted) return;
      const what = all.length === 1 ? all[0].path : `${all.length} files`;
      const question = `Replace ${what}? ${EXISTS[0].toUpperCase()}${EXISTS.slice(1)}.`;
      if (await ask(question, { ok: "Replace" })) await this.send(all, true);
      else all.forEach(({ path }) => this.fail(path, new Error("not replaced")));
    }

    finish() {
      const files = `${this.done} of ${this.files.length} files uploaded.`;
      this.text.textContent = this.control.signal.aborted ? `Stopped: ${files}` : files;
      uploads.replaceChildren(this.text, this.failures);
    }
  }

  const upload = async (directories, files) => {
    if (uploading) return report("One upload at a time: wait for this one, or stop it.");
    uploading = new Upload(directories, files);
    try {
      await uploading.run();
    } finally {
      uploading.finish();
      uploading = null;
    }
    await refresh();
  };

  // Uploads the files of an input, with their directories.
  const uploadFiles = (files) => {
    const chosen = files.map((file) => ({ path: file.webkitRelativePath || file.name, file }));
    const parents = new Set();
    for (const { path } of chosen) {
      for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
        parents.add(path.slice(0, at));
      }
    }
    return upload([...parents].sort(), chosen);
  };

  // Returns the directories, parents first, and the files of dropped entries.
  const gather = async (entries) => {
    const [directories, files] = [[], []];
    const called = (call) => new Promise(call);
    for (const waiting = [...entries]; waiting.length; ) {
      const entry = waiting.pop();
      const path = entry.fullPath.slice(1);
      if (entry.isFile) {
        files.push({ path, file: await called((resolve, reject) => entry.file(resolve, reject)) });
        continue;
      }
      directories.push(path);
      const reader = entry.createReader();
      // Each call returns some of the entries, the last one none.
      for (let some = [null]; some.length; ) {
        some = await called((resolve, reject) => reader.readEntries(resolve, reject));
        for (const next of some) waiting.push(next);
      }
    }
    return [directories, files];
  };

  // Creates a button that opens a dialog for files, and its input.
  const createPicker = (text, properties) => {
    const input = create("input", { type: "file", multiple: true, hidden: true, ...properties });
    input.addEventListener("change", () => {
      const files = [...input.files];
      // So that the same files can be chosen again.
      input.value = "";
      uploadFiles(files);
    });
    return [createButton(text, () => input.click()), input];
  };

  const hasFiles = (event) => event.dataTransfer.types.includes("Files");

  if (mayWrite) {
    bar.append(...createPicker("Upload", {}));
    bar.append(...createPicker("Upload folder", { webkitdirectory: true }));
    bar.append(createButton("New folder", createDirectory));
    const mark = (isOver) => document.body.classList.toggle("over", isOver);
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(true);
    });
    addEventListener("dragleave", (event) => event.relatedTarget || mark(false));
    addEventListener("drop", async (event) => {
      mark(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      // They must be taken before the first wait.
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry());
      try {
        await upload(...(await gather(entries.filter(Boolean))));
      } catch (error) {
        report(`What was dropped cannot be read: ${error.message}`);
      }
    });
    rows().forEach(addButtons);
  }
  if (list.children.length <= SORTED_MAX) sort();
})();
