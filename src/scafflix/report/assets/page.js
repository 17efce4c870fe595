// The page: what the reader chooses, and the parts that follow from it.
"use strict";

const ROWS = 200; // of the table of clients before more are asked for
const LEAST = "It takes the least point of the solid curve among those at which the dashed one is not above zero.";
// what a rule for α goes by, and what a client takes, seen on its curve
const RULES = {
  loo: ["leave-one-out", LEAST],
  validation: ["validation examples", LEAST],
  "james-stein": ["the noise of the client’s own model", "It takes the least point of the curve, by a formula."],
  common: ["the mean curve, one α for all", "All take the least point of the mean curve, whatever it does to whom."],
};
const $ = (id) => document.getElementById(id);

async function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, action] of Object.entries(value)) node.addEventListener(event, action);
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

function swatch(colour, dash) {
  const pattern = { solid: "", dash: "6 4", dot: "2 4", dashdot: "6 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
  const holder = document.createElement("span");
  holder.innerHTML = `<svg width="26" height="8" aria-hidden="true"><line x1="0" x2="26" y1="4" y2="4" stroke-width="3"/></svg>`;
  const line = holder.querySelector("line");
  line.setAttribute("stroke", colour);
  line.setAttribute("stroke-dasharray", pattern[dash]);
  return holder.firstChild;
}

function segment(title, name, options, chosen, action) {
  const group = make("fieldset", { class: "segment", id: name }, make("legend", {}, title));
  for (const [value, words] of Object.entries(options)) {
    const input = make("input", { type: "radio", name, value, on: { change: () => action(value) } });
    input.checked = value === String(chosen);
    group.append(make("label", {}, input, words));
  }
  return group;
}

function picker(title, id, options, chosen, action) {
  const box = make("select", { id, on: { change: () => action(box.value) } });
  for (const [value, words] of options) {
    const option = make("option", { value }, words);
    option.selected = String(value) === String(chosen);
    box.append(option);
  }
  return make("label", { class: "field" }, make("span", {}, title), box);
}

class Page {
  constructor(report) {
    this.report = report;
    this.choice = {
      problem: 0, axis: "rounds", xscale: "linear", unit: "rounds", theory: "both", hidden: new Set(),
      search: "", who: "all", sort: ["client", 1], rows: ROWS,
    };
    const methods = [...new Set(report.lines.map((line) => line.method))];
    this.colour = palette(methods);
    this.dashes = new Map();
    const alphas = [...new Set(report.lines.map((line) => line.alpha))];
    alphas.sort((a, b) => Number(b) - Number(a));
    alphas.forEach((alpha, k) => this.dashes.set(alpha, DASHES[k % DASHES.length]));
    this.enter(0);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.all());
  }

  enter(number) {
    const problem = this.report.problems[number];
    const mine = this.report.lines.filter((line) => line.problem === number);
    const metric = Object.keys(problem.metrics)[0];
    Object.assign(this.choice, {
      problem: number, metric, yscale: problem.rising || metric === "objective" ? "linear" : "log",
      level: problem.level, line: mine[problem.best], client: 0,
      alphaScale: Math.min(...mine.map((line) => line.at ?? 1).filter((at) => at > 0)) < 0.05 ? "log" : "linear",
    });
    this.all();
  }

  get view() {
    const { choice, report } = this;
    const problem = report.problems[choice.problem];
    const mine = report.lines.filter((line) => line.problem === choice.problem);
    const lines = mine.filter((line) => !choice.hidden.has(`m ${line.method}`) && !choice.hidden.has(`a ${line.alpha}`));
    return {
      choice, problem, all: mine, lines, line: choice.line, methods: [...new Set(lines.map((line) => line.method))],
      colour: this.colour, dash: (alpha) => this.dashes.get(alpha),
      table: { ...problem.clients, ...(choice.line.clients ?? {}) },
      scoreTitle: problem.part ? `${problem.part} ${problem.metric}` : "score",
    };
  }

  all() {
    this.filters();
    this.sections();
    this.lines();
    this.details();
  }

  choose(changes, ...parts) {
    Object.assign(this.choice, changes);
    for (const part of parts) this[part]();
  }

  draw(id, made, label) {
    const place = $(id);
    if (!made || !made.data.some((trace) => trace.x?.length)) {
      if (place.data) Plotly.purge(place);
      place.replaceChildren(make("p", { class: "empty" }, made?.empty ?? "Nothing to draw: choose a method and an alpha above."));
      return;
    }
    place.querySelector(".empty")?.remove();
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    Plotly.react(place, made.data, made.layout, {
      responsive: true, displaylogo: false,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "pan2d"],
    });
  }

  filters() {
    const { choice, report } = this;
    const view = this.view;
    const active = document.activeElement?.id;
    const parts = [];
    if (report.problems.length > 1) {
      const names = report.problems.map((problem, k) => [k, problem.short]);
      parts.push(picker("Data", "problem", names, choice.problem, (value) => this.enter(Number(value))));
    }
    const chips = (title, letter, names, picture) => {
      if (names.length < 2) return;
      const group = make("fieldset", {}, make("legend", {}, title));
      for (const name of names) {
        const key = `${letter} ${name}`;
        const input = make("input", {
          type: "checkbox", value: key,
          on: { change: () => { choice.hidden[input.checked ? "delete" : "add"](key); this.lines(); } },
        });
        input.checked = !choice.hidden.has(key);
        group.append(make("label", { class: "chip" }, input, picture(name), name));
      }
      parts.push(group);
    };
    const unique = (name) => [...new Set(view.all.map((line) => line[name]))];
    chips("Methods", "m", unique("method"), (name) => swatch(this.colour(name), "solid"));
    const alphas = unique("alpha").sort((a, b) => Number(b) - Number(a));
    chips("α", "a", alphas, (name) => swatch(css("--muted"), this.dashes.get(name)));
    if (view.all.length > 1) {
      const names = view.all.map((line, k) => [k, lineName(line)]);
      const change = (value) => this.choose({ line: view.all[value], rows: ROWS }, "details");
      parts.push(picker("Clients of", "line", names, view.all.indexOf(choice.line), change));
    }
    $("filters").replaceChildren(...parts);
    $("filters").hidden = !parts.length;
    if (active) $(active)?.focus();
  }

  sections() {
    const view = this.view, { problem, all, choice } = view;
    const table = view.table;
    const alphas = new Set(all.map((line) => line.at).filter((at) => at !== null));
    const shown = {
      convergence: all.some((line) => line.ran > 0),
      acceleration: problem.levels.length > 0 && alphas.size > 1,
      theory: all.some((line) => line.y.lyapunov && line.ran > 0),
      clients: "client" in table,
      alone: all.some((line) => line.alone),
      calibration: all.some((line) => line.calibration),
      alpha: all.some((line) => line.chosen),
      constants: "gamma" in table,
      cost: alphas.size > 1 && all.some((line) => line.scores.personal),
      optima: "local_grad_norm" in table || "local_steps" in table,
      runs: true,
    };
    const links = [];
    for (const [id, visible] of Object.entries(shown)) {
      $(id).hidden = !visible;
      if (visible) links.push(make("a", { href: `#${id}` }, $(id).dataset.title));
    }
    $("contents").replaceChildren(...links);

    const set = (name) => (value) => this.choose({ [name]: value }, "lines");
    $("convergence-controls").replaceChildren(
      picker("Show", "metric", Object.entries(problem.metrics), choice.metric, set("metric")),
      segment("Against", "axis", { rounds: "rounds", megabytes: "megabytes", steps: "local steps", seconds: "seconds" }, choice.axis, set("axis")),
      segment("Horizontal", "xscale", { linear: "linear", log: "log" }, choice.xscale, set("xscale")),
      segment("Vertical", "yscale", { linear: "linear", log: "log" }, choice.yscale, set("yscale")),
    );
    const words = (level) => (problem.rising ? `${problem.metric} of ${number(level, problem)}` : `gap of ${number(level)}`);
    $("acceleration-controls").replaceChildren(
      picker("Target", "level", problem.levels.map((level, k) => [k, words(level)]), choice.level, (value) => this.choose({ level: Number(value) }, "lines")),
      segment("Count", "unit", { rounds: "rounds", megabytes: "megabytes" }, choice.unit, set("unit")),
      segment("α", "alphaScale", { linear: "linear", log: "log" }, choice.alphaScale, set("alphaScale")),
    );
    $("theory-controls").replaceChildren(
      segment("Show", "psi", { both: "Ψ and bound", ratio: "Ψ / bound" }, choice.theory, set("theory")),
    );
    $("table-controls").replaceChildren(
      make("label", { class: "field" }, make("span", {}, "Find a client"),
        make("input", { type: "search", id: "search", placeholder: "part of its name", value: choice.search,
          on: { input: (event) => this.choose({ search: event.target.value, rows: ROWS }, "table") } })),
      ...(this.gain(view) ? [segment("Show", "who", { all: "all", gain: "those who gain", lose: "those who lose" }, choice.who,
        (who) => this.choose({ who, rows: ROWS }, "table"))] : []),
    );
  }

  lines() {
    const view = this.view, { problem, choice } = view;
    const many = `${view.lines.length} lines`;
    const drawn = (id) => !$(id).hidden;
    if (drawn("convergence")) this.draw("convergence-chart", convergence(view), `${problem.metrics[choice.metric]} against ${AXES[choice.axis]}, ${many}`);
    if (drawn("acceleration")) this.draw("acceleration-chart", acceleration(view), `${choice.unit} to the target against alpha, ${many}`);
    if (drawn("theory")) this.draw("theory-chart", theory(view), `Lyapunov function and its bound against rounds, ${many}`);
    if (drawn("cost")) this.draw("cost-chart", cost(view), `${view.scoreTitle} against alpha, ${many}`);
  }

  columnOf(view, kind) {
    return view.table[view.problem.part ? `${view.problem.part}_${kind}` : `score_${kind}`];
  }

  gain(view) {
    return less(this.columnOf(view, "personal"), this.columnOf(view, "local"));
  }

  // the held-out loss that each client has less with a model of this kind than with its own
  saved(view, kind) {
    const { table, line } = view, part = line.alone?.part;
    return less(table[`${part}_loss_local`], table[`${part}_loss_${kind}`]);
  }

  details() {
    const view = this.view, { line, table, problem } = view;
    this.clients(view);
    this.table();
    this.alone(view);
    this.calibration(view);
    this.alpha(view);
    this.constants(view);
    this.optima(view);
    this.run(view);
    const parts = ["Each client keeps a second model, its own optimum, of " + problem.dim.toLocaleString("en") + " numbers."];
    const steps = (table.local_steps ?? []).filter((value) => value !== null);
    if (steps.length) parts.push(`Finding it took ${number(mean(steps))} steps on average, at most ${number(Math.max(...steps))}, before the first round.`);
    parts.push("The smaller α, the more a model leans on the client’s own data; the global model alone, dotted, is then made to be mixed, not used.");
    parts.push("Solid: personalized models, mean over clients. Dashed: their unlucky tenth. Grey: the clients’ own models, mean.");
    $("cost-words").textContent = parts.join(" ");
  }

  whose(view) {
    const { line, all } = view;
    const words = `${lineName(line)}${all.length > 1 ? " (chosen above)" : ""}, seed ${line.seeds[0]}.`;
    return line.clients ? words : `${words} The numbers of its clients are left out to keep this page small; make a page of this run alone.`;
  }

  clients(view) {
    const kinds = Object.keys(KINDS).filter((kind) => this.columnOf(view, kind)?.some((value) => value !== null));
    const columns = Object.fromEntries(kinds.map((kind) => [kind, this.columnOf(view, kind)]));
    const none = view.line.clients === null, words = [this.whose(view)];
    const gain = this.gain(view);
    if (gain) {
      const known = gain.filter((value) => value !== null), sign = isShare(view.problem) ? 1 : -1;
      const count = (test) => known.filter((value) => test(sign * value)).length;
      words.push(`Against its own model, ${count((v) => v > 0)} of ${known.length} clients gain by taking part, ${count((v) => v < 0)} lose, ${count((v) => v === 0)} score the same.`);
    } else if (!none && kinds.length === 1) words.push("Only the personalized models were scored.");
    $("clients-words").textContent = words.join(" ");
    $("gain").hidden = !gain;
    const empty = { data: [], empty: none ? "left out" : "The models were not scored." };
    this.draw("distribution-chart", kinds.length ? distribution(view, kinds, columns) : empty, `distribution of ${view.scoreTitle} over clients`);
    this.draw("sorted-chart", kinds.length ? sorted(view, kinds, columns) : empty, `${view.scoreTitle} of clients, sorted`);
    if (gain) this.draw("gain-chart", gains(view, gain), "gain of each client by taking part, sorted");
  }

  table() {
    const view = this.view, { choice, table, problem } = view;
    const gain = this.gain(view);
    const columns = new Map([["client", table.client]]);
    const put = (title, values) => { if (values) columns.set(title, values); };
    put("examples", table.train_examples);
    put("α", table.alpha);
    put("γ", table.gamma);
    put("L", table.L);
    put("κ", table.kappa);
    put("rounds", table.rounds);
    put("refused", table.refused);
    for (const [kind, title] of Object.entries(KINDS)) put(title, this.columnOf(view, kind));
    put("gain", gain);
    const scores = new Set([...Object.values(KINDS), "gain"]);
    if (!columns.has(choice.sort[0])) choice.sort = ["client", 1];
    const [by, direction] = choice.sort;
    const sign = isShare(problem) ? 1 : -1;
    const wanted = choice.search.toLowerCase();
    const keep = (k) => String(table.client[k]).toLowerCase().includes(wanted)
      && (choice.who === "all" || !gain || (gain[k] !== null && (choice.who === "gain" ? sign * gain[k] > 0 : sign * gain[k] < 0)));
    const rows = table.client.map((_, k) => k).filter(keep);
    const values = columns.get(by);
    const order = (a, b) => {
      if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
      return typeof values[a] === "number" ? values[a] - values[b] : String(values[a]).localeCompare(String(values[b]), "en", { numeric: true });
    };
    rows.sort((a, b) => direction * order(a, b));
    const focused = document.activeElement?.dataset?.column;
    $("client-table").tHead.replaceChildren(make("tr", {}, ...[...columns.keys()].map((title) => make("th", {
      scope: "col", "aria-sort": title === by ? (direction > 0 ? "ascending" : "descending") : "none",
    }, make("button", { type: "button", "data-column": title, on: { click: () =>
      this.choose({ sort: [title, title === by ? -direction : 1] }, "table") } }, title)))));
    if (focused) document.querySelector(`[data-column="${focused}"]`)?.focus();
    $("client-table").tBodies[0].replaceChildren(...rows.slice(0, choice.rows).map((k) => make("tr", {},
      ...[...columns].map(([title, column]) => {
        const value = column[k];
        const words = typeof value === "string" ? value : number(value, scores.has(title) ? problem : null);
        const tone = title === "gain" && value ? (sign * value > 0 ? "gain" : "loss") : false;
        return make("td", { class: tone }, title === "gain" && value > 0 ? `+${words}` : words);
      }))));
    const shown = Math.min(rows.length, choice.rows);
    const more = [`${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} ${rows.length === table.client.length ? "" : "matching "}clients shown. `];
    if (shown < rows.length) more.push(make("button", { type: "button", id: "more", on: { click: () => this.choose({ rows: Infinity }, "table") } }, "Show all"));
    $("table-more").replaceChildren(...more);
    $("table-more").setAttribute("aria-live", "polite");
  }

  alone(view) {
    if ($("alone").hidden) return;
    const { alone } = view.line, words = [this.whose(view)];
    $("line-words").replaceChildren(...view.line.words.map((sentence) => make("p", { class: "words" }, sentence)));
    const saved = {};
    for (const kind of alone ? ["personal", "global"] : []) {
      const { hurt, share_hurt, harm } = alone[kind], values = this.saved(view, kind);
      if (values) saved[kind] = values;
      const most = values && hurt ? ` and ${number(-least(values))} at most` : "";
      const much = hurt ? `: by ${number(harm)} on average${most}` : "";
      words.push(`With the ${KINDS[kind]} model, ${hurt} of ${alone.clients} clients (${Math.round(100 * share_hurt)} %) have a larger ${alone.part} loss than with their own${much}.`);
    }
    if (!alone) words.push("Nothing was held out, or the clients’ own models are not known.");
    $("alone-words").textContent = words.join(" ");
    const empty = { data: [], empty: view.line.clients ? "Not known of this run." : "left out" };
    this.draw("alone-chart", Object.keys(saved).length ? apart(view, saved) : empty, "loss saved by taking part, clients sorted");
  }

  calibration(view) {
    if ($("calibration").hidden) return;
    const found = view.line.calibration, words = [this.whose(view)];
    if (found) {
      const kinds = Object.keys(KINDS).filter((kind) => found[kind]);
      words.push(`The probability of ${found.of}, over the ${found.part} examples of all clients. On the dashed line, what was forecast came true as often as forecast; the larger a point, the more examples it stands for.`);
      words.push(`Expected calibration error: ${kinds.map((kind) => `${KINDS[kind]} ${number(found[kind].error)}`).join(", ")}. Chance alone makes it larger than 0, the more so the fewer the examples.`);
    } else words.push("Not known of this run.");
    $("calibration-words").textContent = words.join(" ");
    this.draw("calibration-chart", found ? reliability(found) : { data: [], empty: "Not known of this run." }, "how often forecasts came true, by how likely they were called");
  }

  alpha(view) {
    if ($("alpha").hidden) return;
    const { chosen, curves, alone } = view.line, words = [this.whose(view)];
    if (chosen) {
      words.push(`α = 0 is a client’s own model, 1 the global one. Chosen once the global model was there, by the rule ${chosen.rule}: ${RULES[chosen.rule][0]}.`);
      words.push(`Expected to save ${number(chosen.expected_gain)} of the loss on average${alone ? `; found on ${alone.part} examples: ${number(alone.personal.gain)}` : ""}.`);
      for (const [note, count] of Object.entries(chosen.notes ?? {})) words.push(`${count} had ${note}.`);
    } else words.push("Its α was given, not chosen.");
    $("alpha-words").textContent = words.join(" ");
    $("alpha-charts").hidden = !curves;
    if (!curves) return;
    const many = curves.own.length, all = view.table.client.length;
    const names = view.table.client.slice(0, many).map((name, k) => [k, name]);
    const few = many < all ? [make("small", {}, `the first ${many} of ${all.toLocaleString("en")} clients`)] : [];
    $("alpha-controls").replaceChildren(
      picker("Curve of", "client", names, this.choice.client, (value) => this.choose({ client: Number(value) }, "curve")), ...few,
    );
    this.draw("alphas-chart", alphas(view), "distribution of alpha over clients");
    this.curve();
  }

  // of the client that the reader picked
  curve() {
    const view = this.view, { table, line } = view, k = view.choice.client;
    const saved = this.saved(view, "personal");
    $("expectations").hidden = !saved;
    if (saved) this.draw("expectations-chart", expectations(view, saved), "loss saved by each client, expected and found");
    const known = saved && saved[k] !== null;
    const found = known ? `, and ${saved[k] < 0 ? "lost" : "saved"} ${number(Math.abs(saved[k]))} on its ${line.alone.part} examples` : "";
    const words = [`${table.client[k]}: α = ${number(table.alpha[k])}, expected to save ${number(table.expected_gain[k])} of its loss${found}.`];
    if (table.alpha_note[k]) words.push(`It had ${table.alpha_note[k]}.`);
    words.push(RULES[line.chosen.rule][1]);
    $("curve-words").textContent = words.join(" ");
    this.draw("curve-chart", clientCurve(view), `loss that ${table.client[k]} expects at every alpha`);
  }

  // a figure that is to be drawn once all of its neighbours have their places
  figure(place, id, title, note, made, label) {
    const words = make("figcaption", {}, `${title} `, make("small", {}, note));
    place.append(make("figure", {}, words, make("div", { class: "chart", id })));
    return () => this.draw(id, made, label);
  }

  small(place, id, title, values, colour, unit) {
    const known = values.filter((value) => value !== null);
    if (!known.length) return () => {};
    const made = histogram(values, colour, unit) ?? { data: [], empty: `${number(known[0])} for all clients` };
    return this.figure(place, id, title, `median ${number(median(known))}`, made, `distribution of ${title} over clients`);
  }

  constants(view) {
    const place = $("constants-charts"), { table } = view, colour = this.colour(view.line.method);
    place.replaceChildren();
    const titles = { gamma: ["Stepsizes γᵢ", "γᵢ"], L: ["Smoothness Lᵢ", "Lᵢ"], kappa: ["Condition numbers κᵢ", "κᵢ"] };
    if (table.alpha && !view.line.chosen && new Set(table.alpha).size > 1) titles.alpha = ["Personalization αᵢ", "αᵢ"];
    const names = Object.keys(titles).filter((name) => table[name]);
    const draws = names.map((name) => this.small(place, `constant-${name}`, titles[name][0], table[name], colour, titles[name][1]));
    draws.forEach((draw) => draw());
  }

  optima(view) {
    const place = $("optima-charts"), { table } = view, colour = css("--local");
    place.replaceChildren();
    const words = [], draws = [];
    if (table.local_grad_norm) words.push("A convex problem: each optimum is found until the norm of its gradient is at the rounding of the numbers.");
    if (table.local_steps) words.push("A network: each client trains from a common start until its validation loss stops falling. From train to validation and test is what it learned by heart.");
    $("optima-words").textContent = words.join(" ");
    const parts = ["train", "validation", "test"].filter((part) => table[`${part}_local`]?.some((value) => value !== null));
    if (parts.length) {
      const made = distribution(view, parts, Object.fromEntries(parts.map((part) => [part, table[`${part}_local`]])));
      made.layout.xaxis.title.text = view.problem.metric;
      made.data.forEach((trace) => { trace.line.color = colour; });
      const means = parts.map((part) => `${part} ${number(mean(table[`${part}_local`].filter((value) => value !== null)), view.problem)}`);
      draws.push(this.figure(place, "optima-scores", "Local models, by part of the data", `mean: ${means.join(", ")}`, made, "scores of the local models by part of the data"));
    }
    if (table.local_steps) draws.push(this.small(place, "optima-steps", "Steps to the optimum", table.local_steps, colour, "steps"));
    if (table.local_grad_norm) draws.push(this.small(place, "optima-norms", "Gradient norms at the optima", table.local_grad_norm, colour, "norm"));
    draws.forEach((draw) => draw());
  }

  run(view) {
    const { line } = view;
    const list = (facts) => make("dl", { class: "facts" }, ...Object.entries(facts).map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, Array.isArray(value) && value.length > 12 ? `${value.length} values` : typeof value === "number" ? number(value) : String(value ?? "none")))));
    const parts = [make("p", {}, `${lineName(line)}; seeds ${line.seeds.join(", ")}.`)];
    if (line.diverged.length) parts.push(make("p", { class: "notice" }, `Diverged in round ${line.diverged.join(", ")}; everything shown is from before.`));
    if (line.command) {
      const copy = make("button", { type: "button", on: { click: async () => {
        try { await navigator.clipboard.writeText(line.command); copy.textContent = "Copied"; } catch { copy.textContent = "Select and copy by hand"; }
      } } }, "Copy");
      const words = line.command.includes("config.toml") ? "Reproduce, with the config.toml of its folder" : "Reproduce";
      parts.push(make("h3", {}, words, " ", copy), make("pre", { id: "command", tabindex: "0" }, line.command));
    } else parts.push(make("p", {}, "Started from Python: the configuration below is what the record knows of it."));
    parts.push(make("h3", {}, "In numbers"), list(line.facts), make("h3", {}, "Configuration"), list(line.config), make("h3", {}, "Versions"), list(line.versions));
    $("run-details").replaceChildren(...parts);
  }
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function least(values) {
  return values.reduce((low, value) => (value !== null && value < low ? value : low), Infinity);
}

function less(one, other) {
  if (!one || !other) return null;
  return one.map((value, k) => (value === null || other[k] === null ? null : value - other[k]));
}

function median(values) {
  const order = [...values].sort((a, b) => a - b), half = order.length >> 1;
  return order.length % 2 ? order[half] : (order[half - 1] + order[half]) / 2;
}

(async () => {
  const [plotly, numbers] = await Promise.all([unpacked("plotly"), unpacked("numbers")]);
  document.head.append(make("script", {}, plotly));
  window.page = new Page(JSON.parse(numbers));
  document.body.dataset.ready = "true";
})();
