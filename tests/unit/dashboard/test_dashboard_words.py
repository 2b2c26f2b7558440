"""Every text on a page has a Hindi translation, and no template has untranslated text."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter

import forge_functions.dashboard
import polib
import pytest
from forge_functions.dashboard import words
from forge_functions.dashboard.formats import heading, reported
from forge_functions.dashboard.page import MARKS, THEMES, environment
from forge_schema.explain.past import ADVICE, CORRECT_IT, READ_OUTPUT, RETRY_IT, UPLOADED_ANEW
from forge_schema.model.notifications import DeliveryState
from forge_schema.model.states import (
    NotificationKind,
    Occasion,
    Phase,
    Reason,
    Role,
    StateWord,
    WorkerKind,
    WorkerStatus,
    reason_in_words,
)
from forge_schema.read.report_definitions import REPORTS, ReportGroup
from forge_schema.trail import REFUSED, SAID
from jinja2 import nodes

FOLDER = Path(forge_functions.dashboard.__file__).parent
TEMPLATES = sorted(path.name for path in (FOLDER / "templates").glob("*.html"))
HINDI = polib.pofile((FOLDER / "locales" / "hi.po").read_text("utf-8"))
# Text that is the same in every language: names, units, example inputs.
SAME = re.compile(r"\b(Forge|CSV|CPU|CPUs|GPU|GPUs|UTC|API|forge\S*)\b")
SHOWN = ("title", "aria-label", "alt", "label", "data-label", "data-confirm")
# The attributes that a macro adds to a tag.
ATTRIBUTES = re.compile(r'[a-z-]+="[^"]*"')
# A noun in the plural after a number, which another number may make wrong.
COUNTED = re.compile(r"\{(count|nodes|limit|used)\}( more)? (?!is|was|has)[a-z]+s\b")
# The functions that translate, and how many of their arguments are texts.
SAYS = {"t": 1, "n": 2, "forms": 2}
ENUMS = (
    *(StateWord, Role, Phase, WorkerStatus, WorkerKind, DeliveryState, NotificationKind),
    ReportGroup,
)


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


def ids() -> set[tuple[str, ...]]:
    """Return every text that a template or a route translates; a pair if it has two forms."""
    found: set[tuple[str, ...]] = set()
    for name in TEMPLATES:
        source = (FOLDER / "templates" / name).read_text("utf-8")
        for call in environment().parse(source).find_all(nodes.Call):
            count = SAYS.get(getattr(call.node, "name", ""), 0)
            texts = [text.value for text in call.args[:count] if isinstance(text, nodes.Const)]
            found |= {tuple(texts)} if texts else set()
    for node in python():
        if isinstance(node, ast.Call):
            count = SAYS.get(getattr(node.func, "id", ""), 0)
            texts = [text.value for text in node.args[:count] if isinstance(text, ast.Constant)]
            found |= {tuple(texts)} if texts else set()
    return found


def python(folder: Path = FOLDER) -> list[ast.AST]:
    """Return every node of a folder's modules."""
    paths = folder.rglob("*.py")
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]


def protocol() -> set[str]:
    """Return the protocol values that pages translate."""
    enums = {word.value for enum in ENUMS for word in enum}
    abouts = {report.about for report in REPORTS.values()}
    reasons = {reason_in_words(reason) for reason in Reason}
    events = {event.replace("_", " ") for event in (*Occasion, "test")}
    advice = {*ADVICE.values(), CORRECT_IT, READ_OUTPUT, RETRY_IT, UPLOADED_ANEW}
    trail = {*SAID.values(), *REFUSED.values()}
    return enums | events | reasons | abouts | advice | set(MARKS) | set(THEMES) | trail


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_has_no_english_of_its_own(name: str) -> None:
    assert bare((FOLDER / "templates" / name).read_text("utf-8")) == []


def test_the_check_finds_what_it_looks_for() -> None:
    assert bare('<p title="Bare">{{ t("Said") }} loose</p><code>code</code>') == ["Bare", "loose"]


def test_every_sentence_is_said_in_hindi() -> None:
    written = {(one.msgid, one.msgid_plural) if one.msgid_plural else (one.msgid,) for one in HINDI}
    missing = sorted((ids() | {(word,) for word in protocol()}) - written)
    assert missing == [], "translate it in forge_functions/dashboard/locales/hi.po"


def test_the_catalogue_is_complete_and_has_nothing_else() -> None:
    texts = {node.value for node in python(FOLDER.parent) if isinstance(node, ast.Constant)}
    for name in TEMPLATES:
        tree = environment().parse((FOLDER / "templates" / name).read_text("utf-8"))
        texts |= {node.value for node in tree.find_all(nodes.Const)}
    used = protocol() | texts
    assert HINDI.percent_translated() == 100
    assert [one.msgid for one in HINDI if one.obsolete or one.fuzzy or one.msgid not in used] == []
    assert len({one.msgid for one in HINDI}) == len(HINDI)


def test_a_translation_has_the_placeholders_of_the_english_text() -> None:
    def names(text: str) -> set[str | None]:
        return {name for _, name, _, _ in Formatter().parse(text)} - {None}

    for one in HINDI:
        for said in one.msgstr_plural.values() or [one.msgstr]:
            assert names(said) == names(one.msgid_plural or one.msgid), one.msgid


def test_a_text_with_a_number_before_a_plural_has_a_singular_too() -> None:
    assert [said for said, *many in ids() if not many and COUNTED.search(said)] == []


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", ["0 machines", "1 machine", "2 machines", "1,000 machines"]),
        # As in CLDR, Hindi counts nothing as it counts one.
        ("hi", ["0 मशीन", "1 मशीन", "2 मशीनें", "1,000 मशीनें"]),
    ],
)
def test_a_count_takes_the_form_of_its_language(language: str, said: list[str]) -> None:
    words.reads(language, None)
    counts = (0, 1, 2, 1000)
    assert [words.n("{count} machine", "{count} machines", count) for count in counts] == said
    assert words.forms("{count} machine", "{count} machines").split("|") == [
        words.n("{count} machine", "{count} machines", count).replace(str(count), "{count}")
        for count in (1, 2)
    ]
    words.reads("en", None)


@pytest.mark.parametrize(
    ("column", "value", "head", "shown"),
    [
        ("leased_s", 339.5, "Assigned", "5 min 40 s"),
        ("gpu_seconds", 0, "GPU seconds", "0 s"),
        ("memory_mb", 0, "Memory", "a share"),
        ("peak_memory_mb", 2048, "Peak memory", "2 GiB"),
        ("share_5m", 0.5, "Share within 5 min", "50\u202f%"),
        ("energy_j", 1234.5, "Energy, J", "1,234.5"),
        ("accepted", False, "Accepted", "no"),
        ("parameters", {"lr": 0.1, "on": True}, "Parameters", "lr=0.1, on=true"),
        (
            "message",
            "Traceback\nline 2",
            "Message",
            '<span title="Traceback\nline 2">Traceback</span>',
        ),
    ],
)
def test_a_report_is_read_without_its_column_names(
    column: str, value: object, head: str, shown: str
) -> None:
    assert (heading(column), str(reported(value, column))) == (head, shown)
