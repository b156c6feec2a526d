"""What `oneway check` found, as text for a terminal; it can be read without colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oneway.common.words import counted, listed
from oneway.data.check.contact_sheet import percentage
from oneway.data.check.findings import in_few_words, wording
from oneway.data.check.result import Check
from oneway.data.check.rules.interface import Finding

EXAMPLES = 5  # findings of a kind that are shown
SELDOM = ("for testing", "cannot be used")  # kinds of images that are not counted where there are none
SIZES = 4  # image sizes that are listed; further ones are only counted
ABSENT = 8  # classes that are listed though no mask holds them; further ones are only counted
BAR = 20  # characters of the longest bar, which the most frequent class has
EIGHTHS = " ▏▎▍▌▋▊▉"


def summary(check: Check) -> Group:
    """What is there: how many images of which sizes, and how often each class occurs."""
    root = str(check.listing.root)
    title = Text.assemble((check.name, "bold"), *(() if root == check.name else ("  ", (root, "dim"))))
    shown = [(what, count) for what, count in check.counts.items() if count or what not in SELDOM]
    counts = Text("   ").join(Text.assemble((f"{count:,}", "bold"), f" {what}") for what, count in shown)
    parts: list[RenderableType] = [title, Text(), counts, _sizes(check), Text(), _classes(check)]
    if check.listing.remarks:
        parts += [Text(), *(Text(f"· {remark}") for remark in check.listing.remarks)]
    return Group(*parts)


def findings_text(findings: Sequence[Finding]) -> Group:
    """What is wrong, kind by kind, with a few examples of each; and a verdict."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.level, finding.kind), []).append(finding)
    return Group(*(part for group in kinds.values() for part in _group(group)), verdict(findings))


def verdict(findings: Sequence[Finding]) -> Text:
    """How many errors and warnings there are, and whether one can train on these data, in one line."""
    errors = sum(finding.level == "error" for finding in findings)
    warnings = len(findings) - errors
    if not findings:
        return Text("✓ No error and no warning: it can be trained on.", "bold green")
    if not errors:
        return Text(f"! {counted(warnings, 'warning')}, no error: it can be trained on.", "bold yellow")
    also = f" and {counted(warnings, 'warning')}" if warnings else ""
    return Text(f"✗ {counted(errors, 'error')}{also}: correct the errors before training.", "bold red")


def _group(findings: list[Finding]) -> Iterator[RenderableType]:
    level, style = {"error": ("✗ error", "bold red"), "warning": ("! warning", "bold yellow")}[findings[0].level]
    count = f"  ({len(findings):,})" if len(findings) > 1 else ""
    yield Text.assemble((level, style), "  ", (findings[0].kind, "bold"), count)
    for words in in_few_words(_examples(findings)):
        yield Padding(Text(words), (0, 0, 0, 4), expand=False)
    if len(findings) > EXAMPLES:
        yield Padding(Text(f"… and {len(findings) - EXAMPLES} more", "dim"), (0, 0, 0, 4), expand=False)
    yield Text()


def _examples(findings: list[Finding]) -> list[Finding]:
    """The first few; one of each wording before a second of any, so that no wording is left out."""
    turns = Counter[str]()
    ranked = []
    for position, finding in enumerate(findings):
        turns[wording(finding)] += 1
        ranked.append((turns[wording(finding)], position))
    return [findings[position] for position in sorted(position for _, position in sorted(ranked)[:EXAMPLES])]


def _sizes(check: Check) -> Text:
    """The most frequent image sizes, with how many images have each where there are several."""
    sizes = check.sizes.most_common()
    smaller = ", as they are read" if check.listing.reduction > 1 else ""
    if len(sizes) < 2:
        only = "".join(f"{width}×{height} pixels{smaller}" for (height, width), _ in sizes)
        return Text(only or "no image can be read")
    return Text(listed((f"{width}×{height} ({count:,})" for (height, width), count in sizes), SIZES) + smaller)


def _classes(check: Check) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("class", overflow="fold")
    table.add_column("share of labelled pixels", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    splits = check.splits
    for split in splits:
        table.add_column(f"in {split}", justify="right", no_wrap=True)
    counts = check.classes()
    largest = max((count.share for count in counts), default=0) or 1
    absent = [count.name for count in counts if not count.pixels][ABSENT:]
    for count in counts:
        if count.name in absent:
            continue
        # Not the bar has the colour of the class: in black it could not be seen on a black terminal.
        name = Text.assemble(("■ ", "rgb({},{},{})".format(*count.colour)), count.name)
        table.add_row(
            name,
            _bar(count.share / largest),
            percentage(count.share),
            *(f"{count.images[split]:,}" for split in splits),
        )
    if absent:
        table.add_row(Text(f"  {len(absent)} more", "dim"), "", "absent", style="dim")
    if check.ignored:
        table.add_row(Text("  ignored", "dim"), Text("of all pixels", "dim"), percentage(check.ignored), style="dim")
    return table


def _bar(fraction: float) -> str:
    """A bar of BAR characters at most, drawn to an eighth of one; anything above 0 shows."""
    eighths = max(round(8 * BAR * fraction), 1 if fraction else 0)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
