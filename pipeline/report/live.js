"use strict";
// Keeps the page that stays open current: asks how it is while it is seen, and loads each new report.
(() => {
  const EVERY_MS = 5000;
  const AT_MOST_MS = 120000; // for an answer: masters that do not answer take their time
  const lost = document.getElementById("lost");
  let timer = null;
  let is_asking = false;
  let shown = 0; // the number of the report on the page
  let answered_at = new Date();

  const answer_to = async (path, method) => {
    const options = { method, cache: "no-store", signal: AbortSignal.timeout(AT_MOST_MS) };
    const answer = await fetch(path, options);
    if (!answer.ok) throw new Error(answer.status);
    return answer.text();
  };

  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");

  // Only what differs is changed: so what is unfolded, focused or selected stays so, and is not read out again.
  const take = (old, fresh) => {
    if (old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
    } else if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
    } else {
      for (const { name, value } of fresh.attributes ?? []) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      const had = [...old.childNodes];
      const has = [...fresh.childNodes];
      has.forEach((one, at) => (at < had.length ? take(had[at], one) : old.append(one)));
      had.slice(has.length).forEach((one) => one.remove());
    }
  };

  const load_report = async (number) => {
    const fresh = parsed(await answer_to("report", "GET"));
    if (!window.Plotly) {
      const script = document.createElement("script");
      script.textContent = fresh.querySelector("script:not([type])").textContent;
      document.head.append(script);
    }
    document.querySelectorAll(".plot").forEach((one) => Plotly.purge(one));
    const made = fresh.querySelector("header .made");
    document.getElementById("report").replaceChildren(made, ...fresh.querySelector("main").childNodes);
    document.getElementById("figures").textContent = fresh.getElementById("figures").textContent;
    document.dispatchEvent(new Event("report"));
    shown = number;
  };

  const look = async () => {
    if (is_asking || document.hidden) return;
    is_asking = true;
    clearTimeout(timer);
    try {
      take(document.getElementById("now"), parsed(await answer_to("now", "GET")).getElementById("now"));
      const number = Number(document.getElementById("now").dataset.report);
      if (number !== shown) await load_report(number);
      answered_at = new Date();
      lost.hidden = true;
    } catch (error) {
      const why = error.message === "404" ? "It was started again: open the address that it says now." : "";
      lost.textContent =
        `logtwin report --serve has not answered since ${answered_at.toLocaleString()}. ` +
        `What stands here is of then. ${why}`;
      lost.hidden = false;
    }
    is_asking = false;
    if (!document.hidden) timer = setTimeout(look, EVERY_MS);
  };

  document.getElementById("anew").addEventListener("click", async () => {
    await answer_to("report", "POST").catch(() => undefined); // look says what is wrong
    look();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()));
  window.addEventListener("online", look);
  window.addEventListener("pageshow", look);
})();
