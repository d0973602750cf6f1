"""A measured figure in words, with its unit and its band."""

from __future__ import annotations

from deploy.measuring.measurement import Figure

MOST = 100.0
TIMES = ("ttft", "itl")  # seconds, told in milliseconds
UNITS = {"tok_s": "tok/s", "tok_s_stream": "tok/s", "goodput": "requests/s"}


def text(name: str, figure: Figure | None) -> str:
    """`3.10 ± 0.08`, `83 ± 4 ms`; "-" where there is none. Half the band stands behind the sign; none: one round."""
    if figure is None:
        return "-"
    base = name.partition("@")[0]
    scale = 1000.0 if base.startswith(TIMES) else 1.0
    unit = "ms" if base.startswith(TIMES) else UNITS.get(base, "x" if base == "speedup" else "")
    value = figure.value * scale
    places = 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    if base == "differences":
        return f"{value:.0f}"
    words = f"{value:.{places}f}"
    if figure.low is not None and figure.high is not None:
        words += f" ± {(figure.high - figure.low) / 2 * scale:.{places}f}"
    return f"{words}{'' if unit in ('', 'x') else ' '}{unit}"


def ratio(figure: Figure | None) -> str:
    """`0.52 (0.50 to 0.54)`; "-" where there is none. A band beyond a hundredfold says nothing, and is not told."""
    if figure is None:
        return "-"
    untold = figure.low is None or figure.high is None or figure.high > MOST
    band = "" if untold else f" ({figure.low:.2f} to {figure.high:.2f})"
    return f"{figure.value:.2f}{band}"
