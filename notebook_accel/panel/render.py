"""The texts and the HTML of the panel: pure functions from state to strings. Colours follow the notebook's theme."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from notebook_accel.config import load, rules
from notebook_accel.config.schema import OPTIONS, Machine, RunConfig

# JupyterLab's own variables, with colours of sufficient contrast where there are none.
TEXT = "var(--jp-ui-font-color1, #212121)"
SOFT = "var(--jp-ui-font-color2, #616161)"
LINE = "var(--jp-border-color2, #bdbdbd)"
BACK = "var(--jp-layout-color2, #f5f5f5)"
MONO = "var(--jp-code-font-family, monospace)"
TONES = {
    "good": ("var(--jp-success-color1, #2e7d32)", "✓"),
    "bad": ("var(--jp-error-color1, #c62828)", "✕"),
    "note": ("var(--jp-warn-color1, #ef6c00)", "!"),
    "plain": (SOFT, "·"),
}

# Copies the text of the <pre> beside the button; the second way is for pages that are not served securely.
_COPY = (
    "const p=this.parentNode.querySelector('pre');const b=this;"
    "const done=()=>{b.textContent='Copied';setTimeout(()=>{b.textContent='Copy'},1500)};"
    "const old=()=>{const r=document.createRange();r.selectNodeContents(p);const s=getSelection();"
    "s.removeAllRanges();s.addRange(r);document.execCommand('copy');done()};"
    "navigator.clipboard?navigator.clipboard.writeText(p.textContent).then(done,old):old()"
)


def summary(config: RunConfig, machine: Machine) -> str:
    """The configuration in a sentence."""
    count = rules.count(config, machine)
    kind = "CPU" if rules.uses_cpu(config, machine) else {"mps": "Apple GPU"}.get(machine.device_kind, "GPU")
    precision = "full precision (fp32)" if config.mixed_precision == "no" else config.mixed_precision
    more = f", on {config.num_machines} machines" if config.num_machines > 1 else ""
    return f"{count} {kind} process{'es' if count != 1 else ''}{more}, {precision}"


def header_text(found: str, config: RunConfig, machine: Machine, last: str = "") -> str:
    """The top of the panel as plain text; the same each time it is drawn."""
    rows = ["notebook_accel configuration", f"  This machine: {found}", f"  A launch uses: {summary(config, machine)}"]
    for name, value in config.named().items():
        rows.append(f"  {name} = {load.shown(name, value)}  (from {config.source(name)})")
    return "\n".join([*rows, *([f"  Last run: {last}"] if last else [])])


def header_html(found: str, config: RunConfig, machine: Machine, last: str = "") -> str:
    """The top of the panel: readable as it is also where nothing else of the panel is shown."""
    rows = [("This machine", found), ("A launch uses", summary(config, machine))]
    named = ", ".join(f"{name}={load.shown(name, value)}" for name, value in config.named().items())
    rows += [("Chosen", named or "nothing: the defaults")] + ([("Last run", last)] if last else [])
    body = "".join(
        f'<tr><td style="text-align:left;padding:1px 14px 1px 0;color:{SOFT};white-space:nowrap;vertical-align:top">'
        f'{html.escape(name)}</td><td style="text-align:left;padding:1px 0;color:{TEXT}">{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    return (
        f'<div style="font-family:var(--jp-ui-font-family, sans-serif);font-size:13px;color:{TEXT}">'
        f'<div style="font-size:16px;font-weight:600;margin:4px 0">Training configuration</div>'
        f'<table style="border:none;margin:0"><tbody>{body}</tbody></table></div>'
    )


def message(tone: str, text: str) -> str:
    """One line for the person, which screen readers speak when it changes."""
    colour, mark = TONES[tone]
    return (
        f'<div role="status" aria-live="polite" style="border-left:4px solid {colour};padding:4px 10px;'
        f'line-height:1.45;color:{TEXT};background:{BACK};font-size:13px;white-space:pre-wrap">'
        f'<span aria-hidden="true" style="color:{colour};font-weight:700">{mark}</span> {_with_code(text)}</div>'
    )


def _with_code(text: str) -> str:
    """Escaped text, with what stands between backticks as code."""
    style = f"font-family:{MONO};font-size:12px;padding:0 2px"
    return re.sub("`([^`]+)`", rf'<code style="{style}">\1</code>', html.escape(text))


def help_line(text: str, idle: bool) -> str:
    """What stands beside a control: its help, or why it is greyed."""
    style = "font-style:italic;" if idle else ""
    return f'<span style="{style}color:{SOFT};font-size:12px;line-height:1.35">{html.escape(text)}</span>'


def preview(text: str, label: str) -> str:
    """Text to take along, with a button that copies it."""
    return (
        '<div style="position:relative;margin:4px 0">'
        f'<button type="button" class="jupyter-button widget-button" aria-label="Copy {html.escape(label)}" '
        f'onclick="{html.escape(_COPY)}" style="position:absolute;right:6px;top:6px;width:auto;padding:0 10px">Copy'
        f'</button><pre tabindex="0" style="{_PRE};max-height:220px;padding-right:80px">{html.escape(text)}</pre></div>'
    )


_PRE = (
    f"margin:0;padding:8px 10px;border:1px solid {LINE};background:{BACK};color:{TEXT};font-family:{MONO};"
    "font-size:12px;line-height:1.4;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere"
)


def log(lines: Iterable[str], dropped: int) -> str:
    """The last lines of a run; the newest stay in view."""
    rows = [f"… {dropped:,} lines before"] if dropped else []
    text = html.escape("\n".join([*rows, *lines]))
    if not text:
        return ""
    # Reversed columns keep the scroll position at the end without a script.
    return (
        '<div style="display:flex;flex-direction:column-reverse;max-height:260px;overflow:auto" tabindex="0" '
        f'role="log" aria-label="Output of the run"><pre style="{_PRE}">{text}</pre></div>'
    )


def text_form(config: RunConfig, machine: Machine) -> str:
    """The panel where there are no widgets: what can be chosen, and how."""
    rows = []
    for name, option in OPTIONS.items():
        if option.group == "basic" and "form" in option.surfaces:
            choices = f" One of {', '.join(option.choices)}." if option.choices else ""
            why = rules.idle(name, config, machine)
            rows.append(f"  panel.{name} = {getattr(config, name)!r}".ljust(38) + f"# {why or option.help + choices}")
    return "\n".join(["Set what you want, and launch with notebook_launcher(train, config=panel):", "", *rows])
