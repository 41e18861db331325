"""The results as a Markdown table."""

from __future__ import annotations

from typing import Any

from benchmarks.growth import as_markdown


def table(results: dict[str, Any]) -> str:
    """The promises."""
    made = results["machine"]
    lines = [
        "# Benchmarks",
        "",
        f"{results['date']}, {made['processor']}, {made['cores']} cores, torch {made['torch']}, "
        f"Python {made['python']}. Ratios from one sitting; absolute times mean little on a shared machine.",
        "",
        "| promise | measured | how |",
        "|---|---|---|",
    ]
    # A row for what was measured: earlier sittings may have left out any of these.
    for name in ("P1", "P2"):
        if name in results:
            timing = results[name]
            ratio = f"{timing['ratio']}x" if "ratio" in timing else "peer not measured"
            lines.append(
                f"| {name}: the study's runs, {timing['dtype']} | {ratio} | ours {timing['ours_wall_s']} s for "
                f"{timing['runs']} runs x {timing['steps']} steps, {timing['slots']} side by side; nanoGPT's train.py "
                f"{timing.get('peer_s_per_run', '-')} s a run (before, after; "
                "their mean x the runs), one after another, 2 threads |"
            )
            lines.append(
                f"| P3 with {timing['dtype']} | {100 * timing['P3_share_beyond_training_and_evaluating']:.1f}% | "
                f"share of wall time beyond what training and evaluating the same runs in the same order takes |"
            )
            text = "; ".join(f"{name} {outcome}" for name, outcome in timing["outcomes_of_hypotheses"].items())
            lines.append(f"| verdict in {timing['dtype']} | {timing['verdict']} | {text} |")
    if "P5" in results:
        timing = results["P5"]
        lines.append(
            f"| P5: the design's simulation | {timing['design_s']} s | {timing['scenarios']} scenarios x "
            f"{timing['studies']:,} studies of {timing['hypotheses']} hypotheses and {timing['seeds']} seeds; "
            f"median of {len(timing['design_s_each'])} |"
        )
    if "P7" in results:
        timing = results["P7"]
        lines += [
            f"| P7: `ablate --help` | {timing['help_s']} s | median of {timing['help_n']} |",
            f"| P7: `ablate status` on {timing['status_runs']} runs | {timing['status_s']} s "
            f"| median of {timing['status_n']} |",
        ]
    if "commands" in results:
        for command, cpu_s in results["commands"]["cpu_s"].items():
            lines.append(
                f"| `ablate {command}` on the quickstart | {cpu_s} s of CPU | median of {results['commands']['n']} |"
            )
    if "overhead" in results:
        trivial = results["overhead"]
        lines.append(
            f"| one more run whose trainer prints a line | {trivial['cpu_ms']} ms of CPU, {trivial['wall_ms']} ms | "
            f"mean of {trivial['runs']} runs, one after another; a bare shell takes {trivial['bare_shell_cpu_ms']} ms |"
        )
    for size in results.get("scale", ()):
        lines.append(
            f"| `ablate decide` on {size['rows']:,} rows in {size['runs']:,} runs | {size['wall_s']} s, "
            f"{size['peak_MiB']} MiB | once; all its reports; {size['cpu_s']} s of CPU; "
            f"the runs, whose trainer only writes rows, took {size['run_wall_s']} s |"
        )
    return "\n".join(lines) + "\n"


def page(results: dict[str, Any]) -> str:
    """The promises, then how the cost of a step grows."""
    parts = [table(results)]
    if "growth" in results:
        parts.append("## How the cost of a step grows\n\n" + as_markdown(results["growth"]))
    return "\n".join(parts)
