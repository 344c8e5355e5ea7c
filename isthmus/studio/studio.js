"use strict";
document.documentElement.classList.add("scripted"); // forms that are followed need no button for that
{
  // Figures, which are drawn again when the colours change.
  const figures = {};
  const show = (name, figure) => {
    figures[name] = figure;
    const place = document.querySelector(`[data-figure="${name}"]`);
    if (!place) return;
    const part = place.closest(".part");
    if (part) part.hidden = !figure;
    if (figure) draw(place, figure);
  };
  for (const script of document.querySelectorAll("script[data-for]")) {
    show(script.dataset.for, JSON.parse(script.textContent));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [name, figure] of Object.entries(figures)) show(name, figure);
  });

  // Parts of the page, which the server sends when they change. The focus and open details survive.
  const replace = (name, html) => {
    const part = document.getElementById(`part-${name}`);
    if (!part) return;
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...part.querySelectorAll("details")].map((each) => each.open);
    const typed = part.querySelector("input[type=search]");
    part.innerHTML = html;
    part.querySelectorAll("details").forEach((each, i) => { each.open = open[i]; });
    const field = part.querySelector("input[type=search]");
    if (typed && field) field.value = typed.value;
    if (focused) document.getElementById(focused)?.focus();
  };
  const apply = (parts, except) => {
    for (const [name, part] of Object.entries(parts)) {
      if (name === except) continue;
      if ("html" in part) {
        replace(name, part.html);
        continue;
      }
      const place = document.getElementById(`part-${name}`);
      if (!place) continue;
      place.querySelector("h2").textContent = part.title;
      place.querySelector(".note").textContent = part.note;
      place.querySelector(".plot").ariaLabel = part.title;
      show(name, part.figure);
    }
    tick();
  };
  const duration = (seconds) => {
    const whole = Math.max(0, Math.round(seconds));
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    if (hours) return `${hours} h ${minutes} min`;
    return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  };
  // Clocks go on with every event, and by themselves only when none comes: each drawing of the page costs.
  let clocks = 0;
  const tick = () => {
    clearTimeout(clocks);
    clocks = setTimeout(tick, 1000);
    const now = Date.now() / 1000;
    for (const each of document.querySelectorAll(".ticking")) {
      const { since, until } = each.dataset;
      each.textContent = duration(since ? now - since : until - now);
    }
  };
  tick();

  // Browsers allow few connections to one server, so that a hidden tab gives its own back.
  const address = document.body.dataset.live;
  const connection = document.getElementById("connection");
  let source = null;
  let seen = document.body.dataset.seen; // the parts of the page as it was loaded need not be sent again
  const listen = () => {
    if (!address || document.hidden || source) return;
    source = new EventSource(`${address}${address.includes("?") ? "&" : "?"}seen=${seen}`);
    seen = "";
    source.onmessage = (event) => {
      apply(JSON.parse(event.data));
      document.body.dataset.events = Number(document.body.dataset.events || 0) + 1;
    };
    source.onopen = () => { connection.textContent = ""; };
    source.onerror = () => {
      connection.textContent = "The studio does not answer; searches go on without it. Trying again …";
      source?.close();
      source = null;
      setTimeout(listen, 1000);
    };
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) {
      source.close();
      source = null;
    }
    listen();
  });
  addEventListener("pagehide", () => source?.close());
  listen();

  // A dropped file is sent as it is; the answer names the page on which the search begins.
  const drop = document.querySelector("[data-drop]");
  if (drop) {
    const news = drop.querySelector("[role=status]");
    const send = async (file) => {
      if (!file) return;
      if (file.size > Number(drop.dataset.largest)) {
        news.textContent = "This file is too large to be dropped; name its path instead.";
        return;
      }
      news.textContent = `Receiving ${file.name} …`;
      try {
        const answer = await fetch(`/uploads/${encodeURIComponent(file.name)}`, { method: "PUT", body: file });
        const { page, error } = await answer.json();
        if (page) location.assign(page);
        else news.textContent = error;
      } catch {
        news.textContent = "The studio did not take the file; is it still running?";
      }
    };
    drop.querySelector("input").addEventListener("change", (event) => send(event.target.files[0]));
    for (const name of ["dragover", "dragleave", "drop"]) {
      drop.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.toggle("over", name === "dragover");
        if (name === "drop") send(event.dataTransfer.files[0]);
      });
    }
  }

  // A page that follows a form: the parts around it are replaced while a field changes.
  // An answer that is still being made is asked for again.
  const again = () => {
    const form = document.querySelector("form[data-follow]");
    if (form && document.querySelector("[data-again]")) setTimeout(() => follow(form), 400);
  };
  // An answer may limit a slider of the form; one that stood at its end stays there.
  const limit = (form) => {
    for (const { dataset } of document.querySelectorAll("[data-limit]")) {
      const range = document.querySelector(`[data-for-field="${dataset.limit}"]`);
      if (!range || range.max === dataset.most) continue;
      const stood = range.value === range.max;
      range.max = dataset.most;
      if (stood) {
        document.getElementById(dataset.limit).value = range.value = dataset.most;
        follow(form);
      }
    }
  };
  let asked = 0;
  const follow = async (form) => {
    const number = ++asked;
    const query = new URLSearchParams(new FormData(form));
    const path = form.getAttribute("action");
    let parts;
    try {
      const answer = await fetch(`/parts${path}?${query}`);
      if (number !== asked || !answer.ok) return; // a later change has been asked for
      parts = await answer.json();
    } catch {
      connection.textContent = "The studio does not answer; is it still running?";
      return;
    }
    connection.textContent = "";
    apply(parts, form.closest(".part").id.replace("part-", ""));
    history.replaceState(null, "", `${path}?${query}`);
    limit(form);
    again();
    document.body.dataset.followed = Number(document.body.dataset.followed || 0) + 1;
  };
  again();
  let pause = 0;
  document.addEventListener("input", (event) => {
    const field = event.target;
    if (field.dataset.forField) document.getElementById(field.dataset.forField).value = field.value;
    else if (field.id) {
      const range = document.querySelector(`[data-for-field="${field.id}"]`);
      if (range) range.value = field.value;
    }
    const { form } = field;
    if (!form || !("follow" in form.dataset) || "reload" in field.dataset) return;
    clearTimeout(pause);
    pause = setTimeout(() => follow(form), 120);
  });
  // Another problem or architecture has other fields.
  document.addEventListener("change", (event) => {
    if (!("reload" in event.target.dataset)) return;
    const query = new URLSearchParams();
    for (const field of document.querySelectorAll("[data-reload], input[type=hidden][name=other]")) {
      query.set(field.name, field.value);
    }
    if (event.target.name === "problem") query.delete("model");
    location.assign(`${event.target.form.getAttribute("action")}?${query}`);
  });
  // A form that acts on the fields of another one takes them as they are now.
  document.addEventListener("submit", (event) => {
    const other = event.target.dataset.with && document.querySelector(event.target.dataset.with);
    if (!other) return;
    for (const [name, value] of new FormData(other)) {
      const field = event.target.querySelector(`input[type=hidden][name="${name}"]`);
      if (field) field.value = value;
    }
  });

  // A form that shows what its fields mean is sent when one changes.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-auto]");
    if (form) form.requestSubmit(form.querySelector("button:not([formmethod])"));
  });

  // A drawing or an uploaded image becomes the pixels of a hidden field.
  const paint = (box) => {
    const canvas = box.querySelector("canvas");
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    const field = box.querySelector("input[type=hidden]");
    const channels = Number(box.dataset.channels);
    const clear = () => {
      pen.fillStyle = "black";
      pen.fillRect(0, 0, canvas.width, canvas.height);
    };
    const tell = (isEmpty) => {
      const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
      let text = "";
      for (let i = 0; i < data.length; i += 4) {
        if (channels === 3) text += String.fromCharCode(data[i], data[i + 1], data[i + 2]);
        else text += String.fromCharCode(Math.round(0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]));
      }
      field.value = isEmpty ? "" : btoa(text);
      field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    clear();
    let last = null;
    const place = (event) => {
      const { left, top, width, height } = canvas.getBoundingClientRect();
      return [((event.clientX - left) * canvas.width) / width, ((event.clientY - top) * canvas.height) / height];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      last = place(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      const next = place(event);
      pen.strokeStyle = "white";
      pen.lineWidth = Math.max(1, canvas.width / 14);
      pen.lineCap = "round";
      pen.beginPath();
      pen.moveTo(...last);
      pen.lineTo(...next);
      pen.stroke();
      last = next;
      tell(false);
    });
    canvas.addEventListener("pointerup", () => { last = null; });
    box.querySelector("[data-clear]").addEventListener("click", () => {
      clear();
      tell(true);
    });
    box.querySelector("input[type=file]").addEventListener("change", async (event) => {
      const file = event.target.files[0];
      if (!file) return;
      const image = await createImageBitmap(file);
      const scale = Math.max(canvas.width / image.width, canvas.height / image.height);
      const [width, height] = [image.width * scale, image.height * scale];
      pen.drawImage(image, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
      tell(false);
    });
    // A test image replaces the drawing.
    box.closest("form").addEventListener("change", (event) => {
      if (event.target.name !== "sample") return;
      clear();
      field.value = "";
    });
  };
  document.querySelectorAll("[data-paint]").forEach(paint);

  // Drag over cells to hide them, or to show them again.
  for (const mask of document.querySelectorAll("[data-mask]")) {
    let value = null;
    mask.closest("form").addEventListener("change", (event) => {
      const image = event.target.closest(".sample")?.querySelector("img");
      if (image) mask.style.backgroundImage = `url(${image.src})`;
    });
    const set = (box) => {
      if (box.checked === value) return;
      box.checked = value;
      box.dispatchEvent(new Event("input", { bubbles: true }));
    };
    let first = null; // where a stroke begins; a click without a stroke is left to the browser
    let isStroke = false;
    mask.addEventListener("pointerdown", (event) => {
      if (event.target.type !== "checkbox") return;
      event.target.releasePointerCapture(event.pointerId); // a finger paints other cells too
      value = !event.target.checked;
      first = event.target;
      isStroke = false;
    });
    mask.addEventListener("pointerover", (event) => {
      if (value === null || event.target.type !== "checkbox" || (event.target === first && !isStroke)) return;
      isStroke = true;
      set(first);
      set(event.target);
    });
    mask.addEventListener("click", (event) => {
      if (isStroke && event.detail) event.preventDefault(); // it is painted already
    });
    addEventListener("pointerup", () => { value = null; });
  }

  // The iterations of a Sudoku, or the steps of an image, one after the other. Each is shown, also by a slow server.
  for (const button of document.querySelectorAll("[data-play]")) {
    button.addEventListener("click", async () => {
      const field = document.getElementById(button.dataset.play);
      const range = document.querySelector(`[data-for-field="${field.id}"]`);
      button.disabled = true;
      for (let number = 0; number <= Number(range.max); number += 1) {
        field.value = range.value = number;
        await Promise.all([follow(field.closest("form")), new Promise((resolve) => { setTimeout(resolve, 350); })]);
      }
      button.disabled = false;
    });
  }
}
