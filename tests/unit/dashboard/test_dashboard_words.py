"""Every text on a page has a Hindi translation, and no template has untranslated text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import forge_functions.dashboard
import pytest
from forge_functions.dashboard import words
from forge_functions.dashboard.marks import MARKS
from forge_functions.dashboard.page import THEMES, environment
from forge_schema.model.states import Phase, Reason, Role, StateWord, WorkerKind, WorkerStatus
from forge_schema.read.report_definitions import REPORTS
from jinja2 import nodes

FOLDER = Path(forge_functions.dashboard.__file__).parent
TEMPLATES = sorted(path.name for path in (FOLDER / "templates").glob("*.html"))
HINDI = sorted((FOLDER / "locales" / "hi").glob("*.json"))
# Text that is the same in every language: names, units, example inputs.
SAME = re.compile(r"\b(Forge|CSV|CPU|CPUs|GPU|GPUs|UTC|API|forge\S*)\b")
SHOWN = ("title", "aria-label", "alt", "label", "data-label", "data-confirm")
# The attributes that a macro adds to a tag.
ATTRIBUTES = re.compile(r'[a-z-]+="[^"]*"')
SAID = re.compile(r'\bt\(\s*"([^"]+)"')
COUNTED = re.compile(r'\bn\(\s*"([^"]+)",\s*"([^"]+)"')
ENUMS = (StateWord, Reason, Role, Phase, WorkerStatus, WorkerKind)


class Text(HTMLParser):
    """Collects the visible or audible text of a template without its expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._code += tag in {"code", "kbd", "pre"}
        self.found += [value for name, value in attrs if name in SHOWN and value]
        # An example of what to write is the same in every language, a sentence is not.
        self.found += [v for name, v in attrs if name == "placeholder" and v and v[0].isupper()]

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in {"code", "kbd", "pre"}

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.found.append(ATTRIBUTES.sub("", data))


def bare(source: str) -> list[str]:
    """Return the untranslated English text in a template."""
    without = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", " ", source, flags=re.DOTALL)
    text = Text()
    text.feed(without)
    plain = [SAME.sub("", said) for said in text.found]
    return [said.strip() for said in plain if re.search(r"[A-Za-z]{2,}", said)]


def ids() -> set[str]:
    """Return every message id in a template or a route."""
    found: set[str] = set()
    for name in TEMPLATES:
        source = (FOLDER / "templates" / name).read_text("utf-8")
        for call in environment().parse(source).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name in {"t", "n"}:
                texts = call.args[: 2 if call.node.name == "n" else 1]
                found |= {text.value for text in texts if isinstance(text, nodes.Const)}
    for path in FOLDER.rglob("*.py"):
        found |= set(SAID.findall(path.read_text("utf-8")))
        found |= {one for pair in COUNTED.findall(path.read_text("utf-8")) for one in pair}
    return found


def protocol() -> set[str]:
    """Return the protocol values that pages translate."""
    enums = {word.value for enum in ENUMS for word in enum}
    abouts = {report.about for report in REPORTS.values()}
    return enums | abouts | set(MARKS) | set(THEMES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_has_no_english_of_its_own(name: str) -> None:
    assert bare((FOLDER / "templates" / name).read_text("utf-8")) == []


def test_the_check_finds_what_it_looks_for() -> None:
    assert bare('<p title="Bare">{{ t("Said") }} loose</p><code>code</code>') == ["Bare", "loose"]


def test_every_sentence_is_said_in_hindi() -> None:
    assert sorted((ids() | protocol()) - set(words.words("hi"))) == []


def test_no_file_has_what_nobody_says_or_what_another_says_otherwise() -> None:
    said: dict[str, str] = {}
    for path in HINDI:
        for text, hindi in json.loads(path.read_text("utf-8")).items():
            assert said.setdefault(text, hindi) == hindi, f"{path.name}: {text}"
            assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", hindi))
