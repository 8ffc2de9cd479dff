"""Chat templates of strangers: a part of Jinja in which every template ends, soon.

transformers renders templates in Jinja's sandbox, which keeps them from running code, but not from running for ever or
filling the memory. So a template may only use what is listed here; those of Qwen2.5 and Qwen2.5-VL do. A loop inside
a loop goes over a part of what the outer one goes over, and nothing doubles what a variable holds, so that the time is
at most quadratic in the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import Environment, TemplateSyntaxError, nodes

from ..core.errors import DirectoryError

MAX_CHARACTERS = 2**16  # Qwen2.5's have under 3,000
_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.NSRef, nodes.Assign, nodes.If,
    nodes.For, nodes.Break, nodes.Continue, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Tuple, nodes.List,
    nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg,
    nodes.Add, nodes.Sub, nodes.Concat, nodes.Mod, nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call,
)  # fmt: skip
_FILTERS = {"default", "first", "last", "length", "lower", "string", "tojson", "trim", "upper"}
_GROWS = {"string", "tojson"}  # they escape: what is escaped twice may be twice as long
_FUNCTIONS = {"namespace", "raise_exception"}
_METHODS = {"endswith", "lstrip", "rstrip", "split", "startswith", "strip"}


def check_chat_template(text: str, where: str) -> None:
    """`DirectoryError` unless the template is short, and of the constructs that always end."""
    if len(text) > MAX_CHARACTERS:
        raise DirectoryError(f"{where}: too long for a chat template, got {len(text)} of {MAX_CHARACTERS} characters")
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except (TemplateSyntaxError, RecursionError) as error:
        raise DirectoryError(f"{where}: not a chat template, got {error}; use the checkpoint's own") from error
    assigned = {target.name for node in tree.find_all(nodes.Assign) for target in _targets(node.target)}
    for node in (tree, *tree.find_all(nodes.Node)):
        if problem := _problem(node) or (_growth(node, assigned) if isinstance(node, nodes.Assign) else None):
            line = getattr(node, "lineno", 1)
            raise DirectoryError(f"{where}: line {line}: {problem}; use the checkpoint's own template")
    _check_loops(tree, None, assigned, _shortened(tree, assigned), where)


def _problem(node: nodes.Node) -> str | None:
    """What about this node alone is refused."""
    kind = type(node).__name__
    if not isinstance(node, _NODES):
        return f"a construct that is refused, got {kind}"
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        return f"an attribute that is not data, got {node.attr!r}"
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and str(node.arg.value).startswith("_"):
        return f"an attribute that is not data, got {node.arg.value!r}"
    if isinstance(node, nodes.Filter):
        nested = node.name in _GROWS and any(f.name in _GROWS for f in node.find_all(nodes.Filter))
        return f"a filter that is refused, got {node.name!r}" if node.name not in _FILTERS or nested else None
    if isinstance(node, nodes.Call):
        called = node.node
        known = (isinstance(called, nodes.Name) and called.name in _FUNCTIONS) or (
            isinstance(called, nodes.Getattr) and called.attr in _METHODS
        )
        return None if known else "a call of what is not listed, got " + getattr(called, "name", kind)
    if isinstance(node, nodes.Mod) and not _is_loop_counter(node.left):  # of text, it is formatting
        return "a remainder of something other than the loop's counter"
    if isinstance(node, nodes.For) and (node.recursive or not isinstance(node.target, nodes.Name)):
        return "a loop that calls itself or has several variables"
    return None


def _growth(node: nodes.Assign, assigned: set[str]) -> str | None:
    """An assignment may add to one variable what the conversation holds, never one variable to another."""
    for part in (node.node, *node.node.find_all(nodes.Expr)):
        if isinstance(part, nodes.Filter) and part.name in _GROWS:
            return f"an assignment of escaped text, got {part.name!r}"
        if isinstance(part, (nodes.List, nodes.Tuple, nodes.Dict)) and any(part.find_all(nodes.Name)):
            return "an assignment of a list of variables"
    names = [n.name for n in (node.node, *node.node.find_all(nodes.Name)) if isinstance(n, nodes.Name)]
    joins = isinstance(node.node, (nodes.Add, nodes.Concat)) or any(node.node.find_all((nodes.Add, nodes.Concat)))
    if joins and sum(name in assigned for name in names) > 1:
        return "an assignment that joins variables"
    return None


def _shortened(tree: nodes.Node, assigned: set[str]) -> set[str]:
    """Names that only ever stand for a part of something given, as in `set rest = messages[1:]`."""
    assignments = list(tree.find_all(nodes.Assign))
    return {
        name
        for name in assigned
        if all(
            isinstance(a.target, nodes.Name) and _root(a.node) is not None and _root(a.node) not in assigned
            for a in assignments
            if any(target.name == name for target in _targets(a.target))
        )
    }


def _check_loops(node: nodes.Node, outer: str | None, assigned: set[str], parts: set[str], where: str) -> None:
    """Outer loops go over what is given, inner ones over a part of their outer loop's variable."""
    for child in node.iter_child_nodes():
        if not isinstance(child, nodes.For):
            _check_loops(child, outer, assigned, parts, where)
            continue
        root, name = _root(child.iter), child.target.name if isinstance(child.target, nodes.Name) else ""
        allowed = root not in assigned or root in parts if outer is None else root == outer and root not in assigned
        if root is None or not allowed:
            raise DirectoryError(
                f"{where}: line {child.lineno}: a loop that may not end, over more than a part of the loop around it; "
                "use the checkpoint's own template"
            )
        _check_loops(child, name, assigned, parts, where)


def _root(node: nodes.Node) -> str | None:
    """The name at the start of `name.part[0]...`; None for anything that is computed."""
    while isinstance(node, (nodes.Getattr, nodes.Getitem)):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else None


def _is_loop_counter(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Getattr) and _root(node) == "loop" and node.attr in ("index", "index0")


def _targets(node: nodes.Node) -> Iterator[nodes.Name | nodes.NSRef]:
    if isinstance(node, (nodes.Name, nodes.NSRef)):
        yield node
    yield from node.find_all((nodes.Name, nodes.NSRef))
