"""The report as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from xyd.health.table import PASSED_OVER, block_text, file_lines, length_line, places

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #1d2433; }
h1 { font-size: 1.4rem } h2 { font-size: 1.15rem; margin-top: 2.5rem; border-top: 1px solid #d5dae3; padding-top: 1rem }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .3rem .6rem }
th { border-bottom: 2px solid #d5dae3 } td { border-bottom: 1px solid #e8ebf1 } .n { text-align: right }
code, .place { font-family: ui-monospace, monospace; font-size: .85em; color: #4a5568; overflow-wrap: anywhere }
.note { color: #4a5568 } .bad { color: #b3261e; font-weight: 600 }
figure { display: inline-block; margin: 0 1.5rem 1rem 0 }
figcaption { font-size: .85rem; color: #4a5568 } summary { cursor: pointer; color: #2b5fb8 }
@media (prefers-color-scheme: dark) { body { background: #14171d; color: #dde3ee } .note, figcaption, code, .place
{ color: #9aa5b8 } td { border-color: #272c36 } .bad { color: #ff8a80 } summary { color: #8ab4f8 } }
""".strip()


def page(corpora: Sequence[Mapping[str, Any]], title: str, files: Sequence[Mapping[str, Any]] = ()) -> str:
    """Of the reports of some corpora, as `Health.finish` gives them, and of their files, as in `file_lines`.

    All that comes from the corpora is escaped.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
    ]
    parts += [f"<p>{escape(line)}.</p>" for line in file_lines(files)]
    for corpus in corpora:
        for part in corpus["languages"]:
            parts += _part(corpus["corpus"], part)
    return "\n".join([*parts, "</body></html>", ""])


def _part(corpus: str, part: Mapping[str, Any]) -> list[str]:
    languages = f"{part['src_lang']}-{part['tgt_lang']}"
    html = [f"<h2>{escape(corpus)}, {escape(languages)}: {part['pairs']:,} pairs</h2>"]
    if part["looked_at"] < part["pairs"]:
        html.append(f'<p class="note">Looked at {part["looked_at"]:,} of them, {escape(PASSED_OVER)}.</p>')
    html.append(f'<p class="note">{escape(length_line(part))}</p>')
    lengths = part["lengths"]
    for side in ("src", "tgt"):
        caption = f"length of {part[f'{side}_lang']} in characters"
        html.append(_histogram(lengths[side]["bars"], [f"{start:,}" for start in lengths["bar_starts"]], caption))
    ratio = lengths["ratio"]
    caption = f"length of {part['tgt_lang']} over {part['src_lang']}"
    html.append(_histogram(ratio["bars"], [f"{start:.2f}" for start in ratio["bar_starts"]], caption))
    if not part["findings"]:
        return [*html, "<p>Nothing found.</p>"]
    html.append('<table><tr><th>found<th class="n">pairs<th>first places<th>what it is, and what to do</tr>')
    for found in part["findings"]:
        where = escape(places(found))
        if found["name"] == "shifted_block":
            where = "<br>".join(escape(block_text(block)) for block in part["shifted_blocks"][:100])
        style = ' class="bad"' if found["name"] == "shifted_block" else ""
        html.append(
            f'<tr><td{style}>{escape(found["name"])}<td class="n">{found["count"]:,}<td class="place">{where}'
            f"<td>{escape(found['meaning'])}; {escape(found['advice'])}</tr>"
        )
    html.append("</table>")
    html += [_examples(found) for found in part["findings"] if found["examples"]]
    return html


def _examples(found: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><td class="place">{escape(one["origin"])}<td dir="auto">{escape(one["src"])}'
        f'<td dir="auto">{escape(one["tgt"])}</tr>'
        for one in found["examples"]
    )
    return f"<details><summary>{escape(found['name'])}: examples</summary><table>{rows}</table></details>"


def _histogram(bars: Sequence[int], labels: Sequence[str], caption: str) -> str:
    """Bars from the first to the last that has a count; the height is the share of pairs."""
    used = [i for i, count in enumerate(bars) if count]
    if not used:
        return ""
    first, last = used[0], used[-1]
    width, height, step = 320, 110, 320 / (last - first + 1)
    highest = max(bars)
    shapes = ""
    for i in range(first, last + 1):
        x, bar = (i - first) * step, height * bars[i] / highest
        shapes += (
            f'<rect x="{x:.1f}" y="{height - bar:.1f}" width="{max(1, step - 1):.1f}" height="{bar:.1f}" '
            f'fill="#4c7dd0"><title>from {labels[i]}: {bars[i]:,}</title></rect>'
        )
    ticks = "".join(
        f'<text x="{(i - first) * step:.1f}" y="{height + 14}" font-size="10" fill="currentColor">{labels[i]}</text>'
        for i in range(first, last + 1, max(1, (last - first + 1) // 6))
    )
    return (
        f'<figure><svg width="{width}" height="{height + 20}" viewBox="0 0 {width} {height + 20}" role="img" '
        f'aria-label="{escape(caption)}">{shapes}{ticks}</svg><figcaption>{escape(caption)}</figcaption></figure>'
    )
