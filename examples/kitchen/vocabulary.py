"""The words of the kitchen: the values of the four roles, and the sentences made of them.

Roles are DualFact's (Action, Ingredient, Tool, Location); contextual relations carry the names of its table 6
(act/ing, act/with, act/in, act/on), and `act/all` is the whole event.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection
from dataclasses import astuple, dataclass
from typing import Literal

Path = Literal["line", "circle", "sweep", "still"]

ROLES = ("Action", "Ingredient", "Tool", "Location")
IMPLICIT_ROLES = ("Ingredient", "Tool", "Location")  # what a caption may leave unsaid (VIA restores it)


@dataclass(frozen=True)
class Movement:
    """How a tool moves for one action; `angle_deg` is the line's direction, counter-clockwise from the right."""

    gerund: str
    path: Path
    angle_deg: float = 0.0


ACTIONS: dict[str, Movement] = {
    "chop": Movement("chopping", "line", 90.0),  # up and down
    "slice": Movement("slicing", "line", 0.0),  # side to side
    "grate": Movement("grating", "line", 45.0),  # along the rising diagonal
    "stir": Movement("stirring", "circle"),  # round and round, either way
    "spread": Movement("spreading", "sweep", 0.0),  # once across, slowly, either way
    "press": Movement("pressing", "still"),  # rests where it is
}
INGREDIENTS = ("tomato", "carrot", "cheese", "cucumber", "blueberry", "onion", "salmon", "potato")
TOOLS = ("knife", "spoon", "fork", "spatula", "rolling pin")
LOCATIONS: dict[str, Literal["on", "in"]] = {"cutting board": "on", "pan": "in", "bowl": "in", "oven tray": "on"}
VALUES: dict[str, tuple[str, ...]] = {
    "Action": tuple(ACTIONS),
    "Ingredient": INGREDIENTS,
    "Tool": TOOLS,
    "Location": tuple(LOCATIONS),
}


@dataclass(frozen=True)
class Facts:
    """What is true of one step: one value for each role; `action` is the bare verb."""

    action: str
    ingredient: str
    tool: str
    location: str

    def value(self, role: str) -> str:
        """The value of a role (`Action` gives the bare verb)."""
        return astuple(self)[ROLES.index(role)]


def all_facts() -> list[Facts]:
    """Every combination of the four roles, in a fixed order."""
    return [Facts(*values) for values in itertools.product(*VALUES.values())]


def is_held_out(facts: Facts) -> bool:
    """Whether a combination belongs to calibration and test alone. Fixed for good: it depends on no seed.

    Each (action, ingredient, tool) is held out at one of the four locations, evenly spread. A plain draw would leave
    training without some triples, or nearly without some pairs, and their absence would be learnt as a rule.
    """
    digest = hashlib.sha256(f"{facts.action}|{facts.ingredient}".encode()).digest()
    place = int.from_bytes(digest[:4], "big") + TOOLS.index(facts.tool)
    return VALUES["Location"][place % len(LOCATIONS)] == facts.location


def pool(held_out: bool) -> list[Facts]:
    """The combinations on one side of the compositional split."""
    return [facts for facts in all_facts() if is_held_out(facts) is held_out]


def conceptual(facts: Facts) -> dict[str, str]:
    """Role -> value, the action as a gerund ("chopping")."""
    return {role: concept(role, facts.value(role)) for role in ROLES}


def concept(role: str, value: str) -> str:
    """A value as the conceptual layer writes it: actions become gerunds, all else stays."""
    return ACTIONS[value].gerund if role == "Action" else value


def contextual(facts: Facts) -> dict[str, str]:
    """Relation -> sentence: the action with each argument, and the whole event."""
    where = f"{LOCATIONS[facts.location]} {facts.location}"
    return {
        "act/ing": f"{facts.action} {facts.ingredient}",
        "act/with": f"{facts.action} with {facts.tool}",
        f"act/{LOCATIONS[facts.location]}": f"{facts.action} {where}",
        "act/all": f"{facts.action} {facts.ingredient} with {facts.tool} {where}",
    }


def caption(facts: Facts, implicit: Collection[str] = ()) -> str:
    """The step as a sentence, roles in a fixed order; roles in `implicit` are left unsaid ("chop it")."""
    words = [facts.action, "it" if "Ingredient" in implicit else f"the {facts.ingredient}"]
    if "Tool" not in implicit:
        words.append(f"with the {facts.tool}")
    if "Location" not in implicit:
        words.append(f"{LOCATIONS[facts.location]} the {facts.location}")
    return " ".join(words)
