// Charts: from the report's numbers and the reader's choices to what Plotly draws.
"use strict";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const KNOWN = ["scafflix", "gd", "fedavg", "nesterov", "i_scaffnew", "scaffnew", "sgd"];
const KINDS = { local: "local", global: "global", personal: "personalized" };
const AXES = {
  rounds: "communication rounds",
  megabytes: "megabytes sent and received by all clients",
  steps: "local steps",
  seconds: "seconds of computing",
};

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function palette(methods) {
  // a known method has its own colour on every page, any other the next that is free
  const taken = new Map();
  const free = [0, 1, 2, 3, 4, 5, 6, 7].filter((k) => !methods.includes(KNOWN[k]));
  for (const method of methods) {
    const known = KNOWN.indexOf(method);
    taken.set(method, known >= 0 ? known : (free.shift() ?? 7));
  }
  return (method) => css(`--m${taken.get(method)}`);
}

function faded(colour, share) {
  const number = parseInt(colour.slice(1), 16);
  return `rgba(${number >> 16}, ${(number >> 8) & 255}, ${number & 255}, ${share})`;
}

function axis(title, extra = {}) {
  return {
    title: { text: title, standoff: 8, font: { size: 13 } }, tickfont: { size: 12 },
    ticklabeloverflow: "allow", gridcolor: css("--grid"), linecolor: css("--rule"),
    zeroline: false, ticks: "outside", tickcolor: css("--rule"), automargin: true,
    exponentformat: "power", minexponent: 6, separatethousands: true, ...extra,
  };
}

function scale(title, logarithmic, extra = {}) {
  const decades = logarithmic ? { type: "log", dtick: undefined, nticks: 8, minor: { ticks: "" } } : {};
  return axis(title, { ...decades, ...extra });
}

function layout(xaxis, yaxis, extra = {}) {
  return {
    xaxis, yaxis, margin: { l: 56, r: 18, t: 12, b: 48 }, hovermode: "closest", showlegend: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--muted"), activecolor: css("--ink") },
    font: { family: css("--sans"), size: 12.5, color: css("--muted") },
    hoverlabel: {
      bgcolor: css("--card"), bordercolor: css("--rule"),
      font: { family: css("--sans"), color: css("--ink") }, align: "left", namelength: -1,
    },
    ...extra,
  };
}

// the names of the lines above them
function keyed() {
  return { showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, margin: { l: 56, r: 12, t: 30, b: 48 } };
}

function lineName(line) {
  return `${line.method}, α = ${line.alpha}`;
}

function isShare(problem) {
  return problem.metric === "accuracy";
}

function percentAxis(problem, extra = {}) {
  return isShare(problem) ? { tickformat: ".0%", ...extra } : extra;
}

function number(value, problem) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (problem && isShare(problem)) return `${(100 * value).toFixed(1)} %`;
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e5 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

function curve(line, x, values, style, hover) {
  return {
    x, y: values, name: lineName(line), mode: "lines", line: style, connectgaps: true,
    hovertemplate: hover ?? "%{y:.4~g} at %{x:.5~g}<extra>%{fullData.name}</extra>",
  };
}

function convergence(view) {
  const { problem, choice } = view;
  const traces = [];
  const share = isShare(problem) && /accuracy/.test(problem.metrics[choice.metric]);
  for (const line of view.lines) {
    const bands = line.y[choice.metric];
    if (!bands) continue;
    const x = line.x[choice.axis];
    const style = { color: view.colour(line.method), dash: view.dash(line.alpha), width: 2 };
    if (bands.length > 1) {
      traces.push({
        x: [...x, ...x.slice().reverse()], y: [...bands[2], ...bands[1].slice().reverse()],
        fill: "toself", fillcolor: faded(style.color, 0.14), line: { width: 0 }, mode: "lines",
        hoverinfo: "skip",
      });
    }
    const hover = `${share ? "%{y:.1%}" : "%{y:.3~g}"} at %{x:.5~g}<extra>%{fullData.name}</extra>`;
    traces.push(curve(line, x, bands[0], style, hover));
  }
  const form = share ? { tickformat: ".0%" } : {};
  return {
    data: traces,
    layout: layout(
      scale(AXES[choice.axis], choice.xscale === "log"),
      scale(problem.metrics[choice.metric].replace(" of the ", "<br>of the "), choice.yscale === "log", form),
    ),
  };
}

function acceleration(view) {
  const { problem, choice } = view;
  const traces = [];
  for (const method of view.methods) {
    const mine = view.lines.filter((line) => line.method === method && line.at !== null);
    mine.sort((a, b) => a.at - b.at);
    const value = (line) => line.to[choice.unit][choice.level];
    const reached = mine.filter((line) => value(line) !== null);
    const missed = mine.filter((line) => value(line) === null);
    const colour = view.colour(method);
    const unit = choice.unit === "rounds" ? "rounds" : "MB";
    traces.push({
      x: reached.map((line) => line.at), y: reached.map(value), name: method, mode: "lines+markers",
      line: { color: colour, width: 2 }, marker: { size: 8, color: colour },
      hovertemplate: `%{y:.4~g} ${unit} at α = %{x}<extra>%{fullData.name}</extra>`,
    });
    const end = (line) => (choice.unit === "rounds" ? line.ran : line.x.megabytes.at(-1));
    traces.push({
      x: missed.map((line) => line.at), y: missed.map(end), name: method, mode: "markers",
      marker: { size: 11, symbol: "triangle-up-open", color: colour, line: { width: 2 } },
      hovertemplate: `not reached within %{y:.4~g} ${unit} at α = %{x}<extra>%{fullData.name}</extra>`,
    });
  }
  const title = choice.unit === "rounds" ? "rounds to the target" : "megabytes to the target";
  const alphas = [...new Set(view.lines.map((line) => line.at).filter((at) => at !== null))];
  return {
    data: traces,
    layout: layout(
      scale("personalization α (1: none)", choice.alphaScale === "log", {
        tickvals: alphas, ticktext: alphas.map(String),
      }),
      scale(title, false, { rangemode: "tozero" }),
    ),
  };
}

function theory(view) {
  const { choice } = view;
  const traces = [];
  for (const line of view.lines) {
    if (!line.y.lyapunov) continue;
    const [psi, bound] = [line.y.lyapunov[0], line.y.lyapunov_bound?.[0]];
    const style = { color: view.colour(line.method), dash: view.dash(line.alpha), width: 2 };
    if (choice.theory === "ratio") {
      if (!bound) continue;
      const ratio = psi.map((value, k) => (bound[k] > 1e-290 ? value / bound[k] : null));
      traces.push(curve(line, line.x.rounds, ratio, style, "Ψ / bound %{y:.3~g} at round %{x}<extra>%{fullData.name}</extra>"));
      continue;
    }
    traces.push(curve(line, line.x.rounds, psi, style, "Ψ = %{y:.3~g} at round %{x}<extra>%{fullData.name}</extra>"));
    if (bound) traces.push(curve(line, line.x.rounds, bound, { ...style, color: faded(style.color, 0.45), width: 5, dash: "solid" },
      "bound %{y:.3~g} at round %{x}<extra>%{fullData.name}</extra>"));
  }
  const limit = {
    type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: css("--bad"), width: 1.5, dash: "dash" },
  };
  const ratio = choice.theory === "ratio";
  return {
    data: traces,
    layout: layout(
      scale(AXES.rounds, false),
      scale(ratio ? "Ψ / bound" : "Ψ (thin) and its bound (broad)", true),
      ratio ? { shapes: [limit] } : {},
    ),
  };
}

function distribution(view, kinds, columns) {
  const few = view.table.client.length <= 300;
  return {
    data: kinds.map((kind) => ({
      type: "violin", x: columns[kind], y0: KINDS[kind] ?? kind, name: KINDS[kind] ?? kind, orientation: "h",
      spanmode: "hard", points: few ? "all" : false, jitter: 0.6, pointpos: 0, scalemode: "width", width: 0.85,
      marker: { size: 4, opacity: 0.55 }, box: { visible: true, width: 0.18 }, meanline: { visible: true },
      line: { color: css(`--${kind}`) || view.colour(view.line.method), width: 1.5 },
      text: view.table.client, hoveron: "points+kde",
      hovertemplate: "%{text}: %{x:.4~g}<extra></extra>",
    })),
    layout: layout(
      axis(view.scoreTitle, percentAxis(view.problem)),
      axis("", { autorange: "reversed", ticks: "" }),
      { violingap: 0.1 },
    ),
  };
}

function sorted(view, kinds, columns) {
  const rising = isShare(view.problem);
  const traces = kinds.map((kind) => {
    const values = columns[kind].filter((value) => value !== null).sort((a, b) => (rising ? a - b : b - a));
    return {
      x: values.map((_, k) => (values.length > 1 ? k / (values.length - 1) : 0.5)), y: values,
      name: KINDS[kind] ?? kind, mode: values.length > 60 ? "lines" : "lines+markers",
      line: { color: css(`--${kind}`), width: 2 }, marker: { size: 5 },
      hovertemplate: "%{y:.4~g}, better than %{x:.0%} of clients<extra>%{fullData.name}</extra>",
    };
  });
  return {
    data: traces,
    layout: layout(
      axis("share of clients, from the worst off", { tickformat: ".0%", range: [-0.02, 1.02] }),
      axis(view.scoreTitle, percentAxis(view.problem)),
      keyed(),
    ),
  };
}

function gains(view, gain) {
  const order = gain.map((value, k) => [value, view.table.client[k]]).filter(([value]) => value !== null);
  order.sort((a, b) => a[0] - b[0]);
  const values = order.map(([value]) => value);
  const good = (value) => (isShare(view.problem) ? value > 0 : value < 0);
  return {
    data: [{
      type: "bar", x: values.map((_, k) => k + 1), y: values, text: order.map(([, name]) => name), textposition: "none",
      marker: { color: values.map((value) => css(value === 0 ? "--local" : good(value) ? "--good" : "--bad")), line: { width: 0 } },
      hovertemplate: "%{text}: %{y:+.3~g}<extra></extra>",
    }],
    layout: layout(
      axis("clients, sorted by gain"),
      axis("", percentAxis(view.problem, { tickformat: isShare(view.problem) ? "+.0%" : "", zeroline: true, zerolinecolor: css("--muted") })),
      { bargap: values.length > 120 ? 0 : 0.15 },
    ),
  };
}

function histogram(values, colour, title) {
  const known = values.filter((value) => value !== null);
  const [low, high] = known.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  if (!known.length || low === high) return null;
  const logarithmic = low > 0 && high / low > 20;
  const shown = logarithmic ? known.map(Math.log10) : known;
  const bins = Math.min(40, Math.max(6, Math.ceil(2 * Math.cbrt(known.length))));
  const [first, last] = logarithmic ? [Math.log10(low), Math.log10(high)] : [low, high];
  const size = (last - first) / bins;
  const counts = new Array(bins).fill(0);
  for (const value of shown) counts[Math.min(bins - 1, Math.floor((value - first) / size))] += 1;
  const back = (value) => (logarithmic ? 10 ** value : value);
  const edges = counts.map((_, k) => [back(first + k * size), back(first + (k + 1) * size)]);
  const extra = {};
  if (logarithmic) {
    const from = Math.floor(first), to = Math.ceil(last), step = Math.max(1, Math.ceil((to - from) / 6));
    extra.tickvals = [];
    for (let k = from; k <= to; k += step) extra.tickvals.push(k);
    extra.ticktext = extra.tickvals.map((k) => (k >= -2 && k <= 4 ? String(Number((10 ** k).toPrecision(1))) : `10<sup>${k}</sup>`));
  }
  return {
    data: [{
      type: "bar", x: counts.map((_, k) => first + (k + 0.5) * size), y: counts, width: size,
      marker: { color: colour, line: { width: 1, color: css("--card") } },
      text: edges.map(([a, b]) => `${number(a)} to ${number(b)}`), textposition: "none",
      hovertemplate: "%{y} clients: %{text}<extra></extra>",
    }],
    layout: layout(
      axis(title + (logarithmic ? " (log scale)" : ""), extra), axis("clients", Math.max(...counts) < 8 ? { dtick: 1 } : {}), { bargap: 0, margin: { l: 44, r: 14, t: 8, b: 44 } },
    ),
  };
}

// from the worst off: what taking part saves the clients of their loss
function apart(view, saved) {
  const traces = Object.entries(saved).map(([kind, values]) => {
    const order = values.map((value, k) => [value, view.table.client[k]]).filter(([value]) => value !== null);
    order.sort((a, b) => a[0] - b[0]);
    return {
      x: order.map((_, k) => (k + 0.5) / order.length), y: order.map(([value]) => value), text: order.map(([, name]) => name),
      name: KINDS[kind], mode: order.length > 60 ? "lines" : "lines+markers",
      line: { color: css(`--${kind}`), width: 2 }, marker: { size: 5 },
      hovertemplate: "%{text}: %{y:+.3~g}<extra>%{fullData.name}</extra>",
    };
  });
  return {
    data: traces,
    layout: layout(
      axis("share of clients, from the worst off", { tickformat: ".0%", range: [-0.02, 1.02] }),
      axis(`${view.line.alone.part} loss saved<br>(below zero: worse off than with their own)`),
      { ...keyed(), shapes: [level(0)] },
    ),
  };
}

function level(y) {
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: css("--muted"), width: 1 } };
}

// how often forecasts came true, for each kind of model
function reliability(found) {
  const kinds = Object.keys(KINDS).filter((kind) => found[kind]);
  const all = kinds.length ? found[kinds[0]].examples.reduce((sum, count) => sum + count, 0) : 1;
  const equal = { type: "line", x0: 0, y0: 0, x1: 1, y1: 1, line: { color: css("--muted"), width: 1, dash: "dash" } };
  return {
    data: kinds.map((kind) => {
      const { examples, forecast, came_true } = found[kind];
      const known = examples.map((_, k) => k).filter((k) => examples[k] > 0);
      return {
        x: known.map((k) => forecast[k]), y: known.map((k) => came_true[k]), text: known.map((k) => examples[k].toLocaleString("en")),
        name: KINDS[kind], mode: "lines+markers", line: { color: css(`--${kind}`), width: 2 },
        marker: { size: known.map((k) => 4 + 14 * Math.sqrt(examples[k] / all)), color: css(`--${kind}`), line: { width: 0 } },
        hovertemplate: "forecast %{x:.1%}, came true %{y:.1%}, of %{text} examples<extra>%{fullData.name}</extra>",
      };
    }),
    layout: layout(
      axis("forecast", { tickformat: ".0%", range: [-0.02, 1.02] }),
      axis("came true", { tickformat: ".0%", range: [-0.02, 1.02] }),
      { ...keyed(), shapes: [equal] },
    ),
  };
}

function alphas(view) {
  const grid = view.line.curves.alpha, last = grid.length - 1;
  const counts = grid.map(() => 0);
  for (const alpha of view.table.alpha) counts[Math.round(alpha * last)] += 1;
  return {
    data: [{
      type: "bar", x: grid, y: counts, width: 1 / last, marker: { color: css("--personal"), line: { width: 1, color: css("--card") } },
      hovertemplate: "%{y} clients: α = %{x}<extra></extra>",
    }],
    layout: layout(
      axis("αᵢ (0: own model, 1: global model)", { range: [-0.04, 1.04] }),
      axis("clients", Math.max(...counts) < 8 ? { dtick: 1 } : {}), { bargap: 0 },
    ),
  };
}

function expectations(view, saved) {
  const { table, choice } = view, expected = table.expected_gain;
  const known = saved.map((_, k) => k).filter((k) => saved[k] !== null && expected[k] !== null);
  const [low, high] = known.reduce(([a, b], k) => [Math.min(a, expected[k]), Math.max(b, expected[k])], [0, 0]);
  const picked = known.filter((k) => k === choice.client);
  const points = (places, marker) => ({
    x: places.map((k) => expected[k]), y: places.map((k) => saved[k]), text: places.map((k) => table.client[k]), mode: "markers", marker,
    hovertemplate: "%{text}: expected %{x:.3~g}, found %{y:.3~g}<extra></extra>",
  });
  const equal = { type: "line", x0: low, y0: low, x1: high, y1: high, line: { color: css("--muted"), width: 1, dash: "dash" } };
  return {
    data: [
      points(known, { size: 7, opacity: 0.7, color: known.map((k) => css(saved[k] < 0 ? "--bad" : "--personal")) }),
      points(picked, { size: 14, symbol: "circle-open", color: css("--ink"), line: { width: 2 } }),
    ],
    layout: layout(axis("expected"), axis(`found on ${view.line.alone.part} examples`), { shapes: [level(0), equal] }),
  };
}

function between(grid, values, x) {
  const k = Math.min(Math.floor(x * (grid.length - 1)), grid.length - 2);
  return values[k] + ((x - grid[k]) / (grid[k + 1] - grid[k])) * (values[k + 1] - values[k]);
}

function clientCurve(view) {
  const { table, choice } = view, { alpha, own, error, expected } = view.line.curves, k = choice.client;
  const draw = (values, name, style) => ({
    x: alpha, y: values, name, mode: "lines", line: style, hovertemplate: "%{y:+.3~g} at α = %{x}<extra>%{fullData.name}</extra>",
  });
  const traces = [];
  if (expected[k][0] !== null) {
    traces.push(draw(expected[k], "went by", { color: css("--personal"), width: 2.5 }));
  }
  if (error && error[k][0] !== null) {
    const edge = (sign) => own[k].map((value, i) => value + sign * error[k][i]);
    traces.push({
      x: [...alpha, ...alpha.toReversed()], y: [...edge(1), ...edge(-1).toReversed()], name: "its standard error",
      fill: "toself", fillcolor: faded(css("--local"), 0.14), line: { width: 0 }, mode: "lines", hoverinfo: "skip",
    });
  }
  if (own[k][0] !== null) traces.push(draw(own[k], "own evidence", { color: css("--local"), width: 2, dash: "dash" }));
  traces.push({
    x: [table.alpha[k]], y: [expected[k][0] === null ? 0 : between(alpha, expected[k], table.alpha[k])], name: "chosen α", mode: "markers",
    marker: { size: 12, color: css("--personal"), line: { width: 2, color: css("--card") } },
    hovertemplate: "%{y:+.3~g} at α = %{x}<extra>%{fullData.name}</extra>",
  });
  return {
    data: traces,
    layout: layout(
      axis("α (0: own model, 1: global model)", { range: [-0.02, 1.02] }),
      axis("expected loss beyond<br>its own model’s"),
      { ...keyed(), shapes: [level(0)] },
    ),
  };
}

function cost(view) {
  const traces = [];
  for (const method of view.methods) {
    const mine = view.lines.filter((line) => line.method === method && line.at !== null && line.scores.personal);
    mine.sort((a, b) => a.at - b.at);
    const x = mine.map((line) => line.at), colour = view.colour(method);
    const draw = (kind, which, words, dash, width) => {
      if (!mine.every((line) => line.scores[kind])) return;
      const form = isShare(view.problem) ? "%{y:.1%}" : "%{y:.4~g}";
      traces.push({
        x, y: mine.map((line) => line.scores[kind][which]), name: `${method}, ${words}`, mode: "lines+markers",
        line: { color: colour, dash, width }, marker: { size: 6, color: colour },
        hovertemplate: `${form} at α = %{x}<extra>%{fullData.name}</extra>`,
      });
    };
    draw("personal", "mean", "personalized, mean", "solid", 2.5);
    draw("personal", "tenth", "personalized, unlucky tenth", "dash", 1.5);
    draw("global", "mean", "global model, mean", "dot", 1.5);
  }
  const local = view.lines.find((line) => line.scores.local)?.scores.local.mean;
  const shapes = local === undefined ? [] : [{
    type: "line", xref: "paper", x0: 0, x1: 1, y0: local, y1: local, line: { color: css("--local"), width: 1.5 },
  }];
  const alphas = [...new Set(view.lines.map((line) => line.at).filter((at) => at !== null))];
  return {
    data: traces,
    layout: layout(
      axis("personalization α (1: none)", { tickvals: alphas, ticktext: alphas.map(String) }),
      axis(view.scoreTitle, percentAxis(view.problem)), { shapes },
    ),
  };
}
