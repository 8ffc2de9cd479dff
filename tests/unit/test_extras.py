"""What `pip install proofreel` brings is what scoring needs; extras bring the rest, and messages name them."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proofreel.core import EXTRAS, ConfigError, optional_package, pip_line, require

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["data_prep", "models", "eval", "train", "proofreel"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = packages_distributions()


def names(requirements):
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def distributions(module):
    return {canonicalize_name(name) for name in DISTRIBUTIONS.get(module, [module])}


def others_imports(path):
    """(module, whether at import) of the other projects' packages that a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Try | ast.If)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for module in {module.partition(".")[0] for module in modules} - {"proofreel", *sys.stdlib_module_names}:
            yield module, id(node) not in inside


IMPORTS = [
    (path.relative_to(ROOT), module, at_import)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    for module, at_import in others_imports(path)
]


def test_every_package_that_is_imported_is_brought_by_the_base_or_by_an_extra():
    base = names(PROJECT["dependencies"]) | {"packaging", "tokenizers", "pydantic", "starlette"}  # brought by these
    for path, module, _ in IMPORTS:
        assert module in EXTRAS or distributions(module) <= base, f"{path}: {module}"


def test_packages_of_an_extra_are_imported_at_first_use_or_by_the_part_that_needs_them():
    places = {"train": "train/", "serve": "proofreel/server/"}
    for path, module, at_import in IMPORTS:
        if module in EXTRAS and at_import:
            assert path.as_posix().startswith(places.get(EXTRAS[module], "nowhere")), f"{path}: {module}"


@pytest.mark.parametrize("module", EXTRAS)
def test_an_extra_brings_the_packages_that_it_is_named_for_and_the_base_does_not(module):
    name = canonicalize_name(module)
    assert any(brought.startswith(name) for brought in names(PROJECT["optional-dependencies"][EXTRAS[module]]))
    assert name not in names(PROJECT["dependencies"])


def test_the_tests_need_every_extra():
    (own,) = (r for r in map(Requirement, PROJECT["optional-dependencies"]["test"]) if r.name == "proofreel")
    apart = {"vllm"}  # pins its own torch: `make test-vllm` makes its environment
    assert own.extras == set(PROJECT["optional-dependencies"]) - {"test"} - apart


def test_a_missing_package_is_one_sentence_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError) as error:
        optional_package("wandb.sdk", "report_to")
    assert str(error.value) == (
        'report_to: needs packages that are not installed, got no wandb; run pip install "proofreel[train]"'
    )
    with pytest.raises(ConfigError, match=r"no wandb and no httpx; .*proofreel\[serve,train\]"):
        require("x", "wandb", "json", "httpx")


def test_the_page_that_says_how_to_install_has_every_extra():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(f'"proofreel[{extra}]"' in page for extra in PROJECT["optional-dependencies"])


@pytest.mark.parametrize("page", ["README.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))])
def test_install_lines_of_the_docs_name_extras_that_exist(page):
    path = ROOT / page if page == "README.md" else ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    for piece in text.split("proofreel[")[1:]:
        assert set(piece.partition("]")[0].split(",")) <= set(PROJECT["optional-dependencies"]), page


def test_the_demo_installs_what_training_needs():
    make = (ROOT / "Makefile").read_text()
    assert 'editable ".[train]"' in make.partition(".venv/.installed:")[2].partition(".venv/.installed-test:")[0]
    assert pip_line("trl", "wandb") == 'pip install "proofreel[train]"'
