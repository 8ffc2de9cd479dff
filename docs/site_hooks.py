"""What the site adds to docs/: the measurements, CONTRIBUTING.md, and the list of commands, each from where it lies."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "build" / "docs"  # `paths` in mkdocs.yml
COMMANDS_MARK = "<!-- commands -->"


def on_startup(**_: object) -> None:
    """Link the folders as they are installed: docstrings are read from files, and `models/` lies beside them."""
    package = SOURCES / "proofreel"
    package.mkdir(parents=True, exist_ok=True)
    folders = [ROOT / name for name in ("data_prep", "models", "eval", "train", "configs")]
    for source in [*folders, *(ROOT / "proofreel").iterdir()]:
        link = package / source.name
        if not link.exists():
            link.symlink_to(source)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add benchmarks/results and CONTRIBUTING.md, which stay where people of the repository look for them."""
    for path in sorted((ROOT / "benchmarks" / "results").iterdir()):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "contributing.md", abs_src_path=str(ROOT / "CONTRIBUTING.md")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files above docs/ lead to their pages of the site, or are names where they have none; the list of
    commands is filled in.
    """
    uri = page.file.src_uri
    if uri.startswith("benchmarks/results/"):
        return markdown.replace("](../../docs/", "](../../")
    if uri == "contributing.md":
        return re.sub(r"\]\(docs/", "](", markdown)
    markdown = markdown.replace("](../benchmarks/", "](benchmarks/").replace("../CONTRIBUTING.md", "contributing.md")
    markdown = re.sub(r"\[[^]]+\]\(\.\./(examples/[^)]+)\)", r"`\1`", markdown)
    return markdown.replace(COMMANDS_MARK, commands())


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The pages that texts and docstrings name by their path (`docs/data.md`) are links."""

    def link(match: re.Match[str]) -> str:
        if match[1] is None and match[2] is None:
            return match[0]
        target = files.get_file_from_path(f"{match[1] or match[2]}.md")
        return f'<a href="{target.url_relative_to(page.file)}">{match[0]}</a>' if target else match[0]

    return re.sub(r"<a\b.*?</a>|docs/([\w-]+)\.md|(benchmarks/results/\w+)\.md", link, html, flags=re.DOTALL)


def commands() -> str:
    """Every subcommand with the text that its `--help` opens with."""
    from proofreel.cli import COMMANDS

    return "\n\n".join(
        f"## proofreel {name}\n\n{_sentence(text)}\n\n```text\n{_docstring(module)}\n```"
        for name, (module, text) in COMMANDS.items()
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(("?", ".")) else ".")


def _docstring(module: str) -> str:
    """The module's docstring, read and not imported: that would load torch."""
    spec = find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
