"""The documentation site: pages that are made from the code, their order, and links that work there as on GitHub.

A hook of MkDocs (`mkdocs.yml`). Pages in docs/ are Markdown for GitHub and need nothing for the site: a new one is
listed under Guides unless `SECTIONS` has a better place.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from oneway.cli import app
from oneway.config import Config
from oneway.config.recipes import RECIPES, recipe

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FRONT = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages that lie outside docs/, and where they are on the site."""

SECTIONS: dict[str, list[str]] = {
    "Guides": [
        "install.md",
        "notebooks/first-model.md",
        "own-data.md",
        "layouts.md",
        "masks.md",
        "check.md",
        "annotation-tools.md",
        "training.md",
        "unlabelled.md",
        "cache.md",
        "models.md",
        "monitoring.md",
        "pools.md",
        "many-gpus.md",
        "suggest.md",
        "predict.md",
        "export.md",
        "explore.md",
        "python.md",
    ],
    "Methods": ["methods/README.md", "add-a-method.md"],
    "Results": ["results/README.md", "benchmarks.md", "reliability.md"],
    "Reference": ["reference/commands.md", "reference/settings.md", "reference/python.md", "reference/science.md"],
    "Project": ["contributing.md", "changelog.md"],
}
"""What stands first in each section; the other pages of docs/ follow by name."""

LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=[^)]*\))")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
PARAGRAPH_THEN_LIST = re.compile(r"^(?![-*|] |\d+\. |\s)(.+\n)(?=[-*] |1\. )", re.MULTILINE)
PYTHON = {
    "oneway.configure": "",
    "oneway.fit": "",
    "oneway.evaluate": "",
    "oneway.load": "",
    "oneway.report": "",
    "oneway.export": "",
    "oneway.UserError": "",
    "oneway.config.tree.Config": "changed flat to_yaml",
    "oneway.runs.folder.Run": "summary metrics split environment",
    "oneway.tools.predict.predictor.Predictor": "predict predict_batch probabilities classify",
    "oneway.tools.predict.prediction.Prediction": "mask indices overlay shares facts save",
}
"""What a user of the package calls and is given, with its methods."""
SCIENCE = ("ops", "perturb", "models", "methods")
"""Packages that work on their own; what their `__init__.py` gathers is public."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists every page in one of the sections."""
    nav: dict[str, list[Any]] = {section: [*pages] for section, pages in SECTIONS.items()}
    placed = {page for pages in SECTIONS.values() for page in pages}
    for path in sorted(DOCS.rglob("*.md")):
        page = path.relative_to(DOCS).as_posix()
        if page not in placed:
            of_methods = path.parent.name == "methods"
            section = "Methods" if of_methods else "Results" if path.parent.name == "results" else "Guides"
            nav[section].append({path.stem: page} if of_methods else page)  # their titles list every name
    config.nav = [{"Home": "index.md"}, *({section: pages} for section, pages in nav.items())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are no files of docs/."""
    made: dict[str, Callable[[], str]] = {
        "reference/commands.md": _commands,
        "reference/settings.md": _settings,
        "reference/python.md": _python,
        "reference/science.md": _science,
        **{f"notebooks/{path.stem}.md": lambda path=path: _notebook(path) for path in DOCS.glob("notebooks/*.ipynb")},
        **{page: lambda name=name: _front(name) for name, page in FRONT.items()},
        **{_source_page(path): lambda path=path: _source(path) for path in _linked_sources()},
    }
    for page, content in made.items():
        files.append(File.generated(config, page, content=content()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links lead to the site's pages; a list needs no empty line before it, as on GitHub."""
    here = page.file.src_uri
    origin = next((ROOT / name for name, uri in FRONT.items() if uri == here), DOCS / here)

    def adapt(prose: str) -> str:
        linked = LINK.sub(lambda link: _lead(link[1], origin, here) + (link[2] or ""), prose)
        return PARAGRAPH_THEN_LIST.sub(r"\1\n", linked)

    pieces, end = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [adapt(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, adapt(markdown[end:])])


def _lead(target: str, origin: Path, here: str) -> str:
    """A link of a file of the repository, as the page `here` of the site has it."""
    if "://" in target or target.startswith("mailto:"):
        return target
    there = Path(os.path.normpath(origin.parent / target))
    if there.suffix == ".ipynb":
        page = there.relative_to(DOCS).with_suffix(".md").as_posix()
    elif there.is_relative_to(DOCS):
        page = there.relative_to(DOCS).as_posix()
    else:
        page = FRONT.get(there.relative_to(ROOT).as_posix()) or _source_page(there)
    return os.path.relpath(page, os.path.dirname(here) or ".")


def _linked_sources() -> Iterator[Path]:
    """Files of the repository that a page links to, and that are no pages themselves."""
    texts = {path: path.read_text(encoding="utf-8") for path in (*DOCS.rglob("*.md"), *(ROOT / name for name in FRONT))}
    texts |= {path: _notebook(path) for path in DOCS.rglob("*.ipynb")}
    targets = {
        Path(os.path.normpath(page.parent / link[1]))
        for page, text in texts.items()
        for link in LINK.finditer(FENCE.sub("", text))
        if "://" not in link[1]
    }
    outside = (path for path in sorted(targets) if path.is_file() and not path.is_relative_to(DOCS))
    return (path for path in outside if path.name not in FRONT)


def _front(name: str) -> str:
    """A page that lies outside docs/; the first one has no neighbours to list beside it."""
    hidden = "---\nhide: [navigation]\n---\n" if name == "README.md" else ""
    return hidden + (ROOT / name).read_text(encoding="utf-8")


def _source_page(path: Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def _source(path: Path) -> str:
    """A file as it is, found by links and not by the search."""
    language = {".py": "python", ".cff": "yaml", ".toml": "toml"}.get(path.suffix, "text")
    name = path.relative_to(ROOT).as_posix()
    return f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n# {name}\n\n````{language}\n{path.read_text()}\n````\n"


def _commands() -> str:
    """Every verb with its flags, as `--help` has them and in its order."""
    front, *verbs = re.split(r"^(?=## oneway )", app.generate_docs(output_format="markdown"), flags=re.MULTILINE)
    what, _, contents = front.partition("## Table of Contents")
    listed = contents[contents.index("\n**") :].replace("#oneway-install", "#oneway---install")
    order = re.findall(r"^\* \[`([^`]+)`\]", listed, re.MULTILINE)
    verbs.sort(key=lambda verb: order.index(verb.split()[2]))
    return what.replace("# oneway", "# Commands", 1) + listed + "".join(verbs)


def _settings() -> str:
    """Every setting with its values, default and meaning; and what recipes set."""
    schema = Config.model_json_schema()
    sections = {name: _section(field, schema) for name, field in schema["properties"].items()}
    parts = [
        "# Settings",
        "Every setting is a flag of `oneway train` (`--train.iterations 2000`), a key of a YAML file (`--config`) and "
        "of a run's `config.yaml`, and an argument of `oneway.configure`. [Recipes](#what-recipes-set) change "
        "defaults; `oneway train RECIPE --dry-run` prints what would be used. `none` takes back what a recipe has set.",
        *_setting_table("Run", schema, ""),
        *(part for name, section in sections.items() if section for part in _setting_table(name, section, f"{name}.")),
        "## What recipes set",
        "Where a recipe differs from the defaults above:",
        _recipe_table(),
    ]
    return "\n\n".join(parts)


def _section(field: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    reference = field.get("$ref")
    return schema["$defs"][reference.rpartition("/")[2]] if reference else None


def _setting_table(title: str, schema: dict[str, Any], prefix: str) -> list[str]:
    rows = ["| setting | values | default | meaning |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        if "$ref" not in field:
            flag = f"{prefix}{name}".replace("_", "-")
            values = "[a method](../methods/README.md)" if flag == "method" else _values(field)
            cells = f"`{flag}`{{#{flag}}}", values, _shown(field.get("default")), field.get("description", "")
            rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return [f"## {title.capitalize()}", schema["description"].partition("\n")[0], "\n".join(rows)]


def _values(field: dict[str, Any]) -> str:
    """What a setting may be, in words. Upper bounds that only catch a slip of the finger are left out."""
    if options := field.get("anyOf"):
        return " or ".join(dict.fromkeys(_values(option) for option in options))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        first, *others = map(_values, field["prefixItems"])
        return f"{len(others) + 1} of: {first}"
    names = {"integer": "whole number", "number": "number", "boolean": "yes or no", "null": "`none`"}
    words = "path" if field.get("format") == "path" else names.get(field.get("type", ""), "text")
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {_shown(field[key])}" for key, sign in signs.items() if field.get(key, 10**4) < 10**4]
    return f"{words} {', '.join(bounds)}".strip()


def _shown(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return " ".join(map(_shown, value))
        case float():
            return f"{value:.4g}".replace("e-0", "e-")
    return f"`{value}`" if isinstance(value, str) else str(value)


def _recipe_table() -> str:
    defaults = Config().flat()
    rows = ["| recipe | settings |", "|---|---|"]
    for name in RECIPES:
        changed = {
            key: value for key, value in recipe(name).flat().items() if value != defaults[key] and key != "recipe"
        }
        settings = ", ".join(f"`{key.replace('_', '-')}` {_shown(value)}" for key, value in changed.items())
        rows.append(f"| `{name}` | {settings} |")
    return "\n".join(rows)


def _python() -> str:
    parts = ["# Python functions", "[From Python](../python.md) shows them in use."]
    parts += (_documented(name, members.split()) for name, members in PYTHON.items())
    return "\n\n".join(parts)


def _science() -> str:
    parts = [
        "# Operations, perturbations, models and methods",
        "They need neither data nor a run: `from oneway.ops import moved_kl`.",
    ]
    for package in SCIENCE:
        tree = ast.parse((ROOT / "src" / "oneway" / package / "__init__.py").read_text(encoding="utf-8"))
        parts += [f"## oneway.{package}", ast.get_docstring(tree) or ""]
        gathered = (node for node in tree.body if isinstance(node, ast.ImportFrom))
        parts += [_documented(f"oneway.{package}.{alias.name}") for node in gathered for alias in node.names]
    return "\n\n".join(parts)


def _documented(name: str, members: list[str] | None = None) -> str:
    """An instruction to mkdocstrings: an object, with these members or with all that are public."""
    chosen = "" if members is None else f"\n    options:\n      members: {members or 'false'}"
    return f"::: {name}{chosen}"


def _notebook(path: Path) -> str:
    """The cells of a notebook and what they left, as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += (_output(output) for output in cell.get("outputs", ()))
    return "\n\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if picture := data.get("image/png"):
        return f'<img alt="What the cell above draws" src="data:image/png;base64,{"".join(picture).strip()}">'
    return f"```text\n{''.join(output.get('text') or data['text/plain'])}\n```"
