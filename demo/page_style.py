"""The page's style sheet. Colours differ by lightness as well as by hue, in light and in dark."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfb; --card: #ffffff; --ink: #1c2024; --soft: #5b6570; --rule: #dfe3e7;
  --one: #1f6fb2; --two: #c8571b; --good: #1a7f4b; --bad: #b3261e;
  --s0: #e9eef3; --s1: #c9dcec; --s2: #94bfdf; --s3: #5596c6; --s4: #24689f; --s5: #0d3a63; --none: transparent; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --card: #1b1f23; --ink: #e8eaed; --soft: #a4adb7;
  --rule: #353b42; --one: #6db3f2; --two: #f29b61; --good: #5fce94; --bad: #ff8a80;
  --s0: #252c33; --s1: #23425b; --s2: #2b6490; --s3: #458fc5; --s4: #86bfe8; --s5: #d7edff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 16px; } h1.good { color: var(--good); } h1.bad { color: var(--bad); }
h2 { font-size: 1.3rem; margin: 48px 0 12px; } h3 { font-size: 1rem; margin: 0 0 6px; }
.kicker { margin: 0; color: var(--soft); }
.tiles { list-style: none; display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px;
  padding: 0; margin: 0; }
.tiles li { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px;
  color: var(--soft); font-size: .875rem; }
.tiles b { display: block; color: var(--ink); font-size: 1.5rem; font-weight: 600; line-height: 1.3; }
figure { margin: 16px 0; padding: 16px; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
figcaption, .legend { color: var(--soft); font-size: .875rem; margin: 6px 0 0; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 6px 10px 6px 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; } .number { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 12px;
  font-size: .8125rem; line-height: 1.4; }
summary { cursor: pointer; padding: 6px 0; } .failed { color: var(--bad); }
svg { display: block; width: 100%; min-width: 620px; height: auto; font-family: inherit; }
svg text { fill: var(--ink); font-size: 12px; } svg .tick, svg .label { fill: var(--soft); }
svg .tick { font-size: 11px; } svg .value { font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); stroke-width: 1; } .axis { stroke: var(--soft); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .line.one { stroke: var(--one); }
.line.two { stroke: var(--two); } .area { opacity: .14; } .area.one { fill: var(--one); }
.dot { fill: var(--one); opacity: .55; }
.event { stroke-width: 1.5; stroke-dasharray: 4 3; } .event.bad { stroke: var(--bad); } .event.good { stroke: var(--good); }
svg .note { font-weight: 600; } svg .note.bad { fill: var(--bad); } svg .note.good { fill: var(--good); }
svg .fill-one { fill: var(--one); } svg .fill-two { fill: var(--two); }
i.fill-one { background: var(--one); } i.fill-two { background: var(--two); }
.shade-0 { fill: var(--s0); } .shade-1 { fill: var(--s1); } .shade-2 { fill: var(--s2); } .shade-3 { fill: var(--s3); }
.shade-4 { fill: var(--s4); } .shade-5 { fill: var(--s5); } .shade-none { fill: var(--none); stroke: var(--rule); }
.lead { max-width: 46em; margin: 4px 0 16px; }
@media (max-width: 700px) { figcaption::before { content: "The chart scrolls sideways. "; } }
@media print { figure { break-inside: avoid; } }
"""
