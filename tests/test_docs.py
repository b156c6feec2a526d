"""The documents against the code: names, flags, defaults, links and commands in them are real."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext, suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from oneway.cli import app
from oneway.common.errors import UserError
from oneway.config import Config, build
from oneway.config.recipes import RECIPES, configured
from oneway.methods import METHODS, VARIANTS

ROOT = Path(__file__).parent.parent
METHOD_DOCS = ROOT / "docs" / "methods"
INDEX = METHOD_DOCS / "README.md"
PAGES = sorted(path for path in METHOD_DOCS.glob("*.md") if path != INDEX)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
HEADINGS = ["What it does", "How to use it", "Hyper-parameters", "Details", "Source"]

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`]+)`")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")
LINK = re.compile(r'\]\(([^)\s]+)[^)]*\)|\b(?:src|href|srcset)="([^"\s]+)|^\[[^\]]+\]:\s+(\S+)', re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def rows(text: str) -> list[list[str]]:
    """Cells of all table rows."""
    lines = (line.strip("| ") for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def commands(path: Path) -> list[str]:
    """Lines of fenced blocks that call `oneway`."""
    blocks = "\n".join(FENCE.findall(path.read_text(encoding="utf-8"))).replace("\\\n", " ")
    return re.findall(r"^ *(?:\$ )?(?:\S+/)?(oneway .+)$", blocks, re.MULTILINE)


def known_flags() -> set[str]:
    """Every flag of every verb."""
    verbs = [name for name in app if name not in ("--help", "-h", "--version")]
    arguments = [argument for verb in verbs for argument in app[verb].assemble_argument_collection() if argument.parse]
    flags = {name for argument in arguments for name in (*argument.names, *argument.negatives)}
    return {flag for flag in flags if flag.startswith("--")} | {name for name in app if name.startswith("--")}


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("names", [METHODS, VARIANTS], ids=["methods", "variants"])
def test_the_index_leads_from_every_name_to_its_page(names):
    """Each method and variant has one row with a link, to the one page that bears it in its title."""
    links: dict[str, str] = {}
    for first, *_, last in rows(INDEX.read_text(encoding="utf-8")):
        if (name := CODE_SPAN.fullmatch(first)) and (link := LINK.search(last)):
            assert name[1] not in links
            links[name[1]] = link[1]
    titles = {page.name: CODE_SPAN.findall(page.read_text(encoding="utf-8").splitlines()[0]) for page in PAGES}
    for name in names:
        assert [links[name]] == [page for page, title in titles.items() if name in title]


def test_the_index_tells_which_names_combine():
    """The table of combinations has every method with every variant; the configuration accepts those with a yes."""
    table = rows(INDEX.read_text(encoding="utf-8"))
    start = next(i for i, row in enumerate(table) if CODE_SPAN.findall("".join(row)) == list(VARIANTS))
    met = set()
    for first, *cells in table[start + 2 :]:
        for method in CODE_SPAN.findall(first):
            for variant, cell in zip(VARIANTS, cells, strict=True):
                assert cell in ("yes", "–")
                met.add((method, variant))
                with nullcontext() if cell == "yes" else pytest.raises(UserError):
                    build({"method": method, "variant": variant}, source="test")
    learning = [name for name, method in METHODS.items() if not method.supervised]
    assert met == {(method, variant) for method in learning for variant in VARIANTS}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_have_the_same_headings(page):
    """One order for all, so that a reader finds the same thing in the same place."""
    assert re.findall(r"^## (.+)$", prose(page), re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_defaults_are_those_of_the_recipes_with_this_method(page):
    """`0.5; `mt-cutmix-l2` 1; `streets`, `cifar10` 2`: a default, and what a method or a recipe has instead."""
    checked = 0
    for table in re.split(r"\n{2,}", prose(page)):
        (head, *lines) = rows(table) or [[]]
        if "flag" in head:
            methods = CODE_SPAN.findall(head[1]) or CODE_SPAN.findall(page.read_text(encoding="utf-8").splitlines()[0])
            for flag, cell, *_ in lines[1:]:
                key = flag.strip("`").removeprefix("--").replace("-", "_")
                values = {pair: written(settings[key]) for pair, settings in accepted(methods).items()}
                assert_told(cell, values, key)
                checked += 1
    assert checked


def accepted(methods: list[str]) -> dict[tuple[str, str], dict[str, object]]:
    """All settings of every recipe with each of the methods, where the two go together."""
    found = {}
    for pair in ((name, method) for name in RECIPES for method in methods):
        with suppress(UserError):
            found[pair] = configured(pair[0], {"method": pair[1]}, source="test").flat()
    return found


def assert_told(cell: str, values: dict[tuple[str, str], str], key: str) -> None:
    """A cell has the value for each recipe and method, and names none without need."""
    if cell == "the recipe's":
        assert len(set(values.values())) > 3, key
        return
    told = {
        name: value
        for names, value in re.findall(r"((?:`[\w-]+`,? )+)([^;`]+)", cell)
        for name in CODE_SPAN.findall(names)
    }
    default = None if cell.startswith("`") else cell.partition(";")[0]
    for (name, method), value in values.items():
        expected = told.get(method, told.get(name, default))
        assert expected in (None, value), (key, name, method)
    for name, value in told.items():
        assert value != default, (key, name)
        assert any(name in pair for pair in values), (key, name)


def written(value: object) -> str:
    """A setting as the pages write it."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case tuple() | list():
            return " ".join(map(written, value))
        case float():
            return f"{value:g}"
    return str(value)


@pytest.mark.parametrize("path", [*sorted(METHOD_DOCS.glob("*.md")), ROOT / "README.md"], ids=named)
def test_flags_exist(path):
    """A flag in the text is a flag of some verb; code spans that call another program are not checked."""
    text = re.sub(r"`(?!oneway\b)[\w./]+ [^`]*`", "", prose(path))
    assert set(FLAG.findall(text)) <= known_flags()


def test_settings_are_flags():
    """Every key of the configuration that a user may set is a flag under its own name."""
    fixed = {"recipe", "data.path"}
    keys = Config().flat().keys() - fixed
    assert {"--" + key.replace("_", "-") for key in keys} <= known_flags()


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_lead_somewhere(path):
    """Files and images that a document refers to exist, and so do the headings."""
    for target in ("".join(groups) for groups in LINK.findall(prose(path))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in map(slug, re.findall(r"^#+ (.+)$", prose(there), re.MULTILINE)), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_images_are_described(path):
    """A text says what an image shows, for those who cannot see it."""
    assert not re.search(r"!\[\s*\]\(|<img(?![^>]*\balt=\"[^\"]+\")", prose(path))


def test_diagrams_are_shown():
    """Every SVG beside the pages is well-formed and on some page."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for diagram in METHOD_DOCS.glob("*.svg"):
        assert ElementTree.parse(diagram).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert f"]({diagram.name})" in text


@pytest.mark.parametrize(
    ("path", "command"),
    [(p, c) for p in DOCUMENTS for c in commands(p)],
    ids=lambda v: v if isinstance(v, str) else named(v),
)
def test_commands_are_understood(path, command, tmp_path, monkeypatch, capsys):
    """A command to paste parses; one that trains resolves to a configuration with all its settings."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command, comments=True)[1:]
    function, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    if words[0] == "train" and not {"--resume", "--config"} & set(words):  # those two read what a reader has
        function(*bound.args, **bound.kwargs | {"dry_run": True})
        assert Config.model_validate(yaml.safe_load(capsys.readouterr().out)).recipe == words[1]


def test_misspelt_commands_would_be_noticed():
    """The test above is one that can fail: on an unknown flag, a refused combination and an unknown recipe."""
    with pytest.raises(Exception, match="alhpa"):
        app.parse_args("train streets --train.alhpa 1", exit_on_error=False, print_error=False)
    for command, reason in {
        "train streets --method mt-phtps --variant 2w-c1": "mean teacher",
        "train streats": "Unknown recipe",
    }.items():
        function, bound, _ = app.parse_args(command, exit_on_error=False, print_error=False)
        with pytest.raises(UserError, match=reason):
            function(*bound.args, **bound.kwargs)
