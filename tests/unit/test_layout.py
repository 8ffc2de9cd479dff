"""The layout's own laws: one import direction, no names that hide others, a wheel that holds every folder."""

import ast
import functools
import graphlib
import importlib
import inspect
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["data_prep", "models", "eval", "train", "proofreel"]
ORDER = ["core", *FOLDERS]


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def module_of(path):
    """The full name of a file's module: `eval/metrics/base.py` is `proofreel.eval.metrics.base`."""
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    return ".".join(parts if parts[0] == "proofreel" else ["proofreel", *parts])


def rank(module):
    """Where a module stands in the import order; what lies in `proofreel/` itself stands last."""
    part = [*module.split("."), ""][1]
    return ORDER.index(part) if part in ORDER else len(ORDER) - 1


MODULES = {module_of(path): path for folder in FOLDERS for path in sources(folder)}
PACKAGES = {module_of(path) for path in MODULES.values() if path.stem == "__init__"}
PARTS = {"proofreel", *(f"proofreel.{folder}" for folder in FOLDERS)}


@functools.cache
def statements_of(path):
    """Every import statement and class of a file, anywhere in it."""
    kinds = ast.Import, ast.ImportFrom, ast.ClassDef
    return [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, kinds)]


def from_imports(path):
    """(module, name or None, whether relative) of everything that a file imports, anywhere in it."""
    package = module_of(path).split(".")[: None if path.stem == "__init__" else -1]
    for node in statements_of(path):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield (inner, None, bool(node.level)) if inner in MODULES else (module, alias.name, bool(node.level))
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None, False) for alias in node.names)


def imports(path):
    """The full names of the modules that a file imports, and whether each is named relatively."""
    return [(module, relative) for module, _, relative in from_imports(path)]


def package_of(path):
    """The package that a file lies in, `__init__` or not."""
    return module_of(path.with_name("__init__.py"))


@functools.cache
def public_names(package):
    """A package's `__all__`."""
    for node in ast.parse(MODULES[package].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


@functools.cache
def is_entry(path):
    return "__main__" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder):
    for path in sources(folder):
        for module, _ in imports(path):
            if module.split(".")[0] == "proofreel":
                assert rank(module) <= rank(module_of(path)), f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("folder", [*FOLDERS[:-1], "proofreel/core"])
def test_library_modules_import_relatively_and_entries_absolutely(folder):
    for path in sources(folder):
        for module, relative in imports(path):
            if module.split(".")[0] == "proofreel":
                assert relative != is_entry(path), f"{path.relative_to(ROOT)}: {module}; entries import proofreel.x"


@pytest.mark.parametrize("folder", FOLDERS[:-1])
def test_entry_files_define_no_class(folder):
    for path in filter(is_entry, sources(folder)):
        assert not [n for n in statements_of(path) if isinstance(n, ast.ClassDef)]


def test_heavy_packages_stay_in_their_folders():
    for folder in FOLDERS:
        for path in sources(folder):
            heavy = {module.split(".")[0] for module, _ in imports(path)}
            if rank(module_of(path)) <= ORDER.index("data_prep"):
                assert not heavy & {"torch", "transformers", "peft", "trl"}, path
            if folder not in ("models", "train"):
                assert not heavy & {"peft", "bitsandbytes"}, path
            if folder != "train":
                assert not heavy & {"deepspeed", "trl"}, path


def test_no_module_hides_a_standard_or_installed_one():
    # A script's own folder comes first on sys.path, so eval/statistics.py would break `import statistics`.
    taken = set(sys.stdlib_module_names) | (set(packages_distributions()) - {"proofreel", *FOLDERS, "configs", "tests"})
    for folder in FOLDERS[:-1]:
        for path in (ROOT / folder).iterdir():
            assert path.stem == "__init__" or path.stem not in taken, path.relative_to(ROOT)


def test_other_folders_take_names_from_a_packages_surface():
    folders = [*FOLDERS, "examples", "benchmarks"]
    for path in (path for folder in folders for path in sources(folder)):
        for module, name, _ in from_imports(path):
            if module.split(".")[0] != "proofreel" or package_of(path) in (module, module.rpartition(".")[0]):
                continue
            where = f"{path.relative_to(ROOT)} imports {name} from {module}"
            if module in PACKAGES:
                assert name is None or name in public_names(module) or module == "proofreel", where
            else:
                assert module.rpartition(".")[0] in PARTS, f"{where}: take it from the package, or make it public"


@pytest.mark.parametrize("package", sorted(PACKAGES - PARTS - {"proofreel.configs"}))
def test_a_packages_surface_is_what_it_says(package):
    names = public_names(package)
    assert len(set(names)) == len(names) > 0, package
    loaded = importlib.import_module(package)
    for name in names:
        assert not inspect.ismodule(getattr(loaded, name)), f"{package}.{name} hides a module of that name"


def test_no_folder_has_a_commands_name():
    commands = {path.stem for path in MODULES.values() if is_entry(path)}
    assert not commands & {package.rpartition(".")[2] for package in PACKAGES}


def test_no_imports_go_round():
    goes = {name: {module for module, _ in imports(path) if module in MODULES} for name, path in MODULES.items()}
    graphlib.TopologicalSorter(goes).prepare()


def test_folders_are_small_enough_to_read():
    for package in PACKAGES - PARTS:
        modules = [name for name in MODULES if name.rpartition(".")[0] == package and name not in PACKAGES]
        assert len(modules) <= 17, f"{package}: {len(modules)} modules"


def test_every_folder_is_in_the_wheel_and_under_one_name():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packages = {module_of(path) for folder in [*FOLDERS, "configs"] for path in (ROOT / folder).rglob("__init__.py")}
    assert set(settings["packages"]) == packages
    assert settings["package-dir"] == {module_of(ROOT / d / "__init__.py"): d for d in [*FOLDERS, "configs"]}


def test_every_module_says_what_it_is_for():
    for folder in [*FOLDERS, "examples"]:
        for path in sources(folder):
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.relative_to(ROOT)


def test_public_names_are_those_listed():
    import proofreel

    assert proofreel.__all__ == sorted(proofreel.__all__)
    for name in proofreel.__all__:
        assert getattr(proofreel, name).__name__ == name
    with pytest.raises(AttributeError, match="public names"):
        _ = proofreel.Nothing
