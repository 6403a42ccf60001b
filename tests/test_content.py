"""The prose of the pages: the same in every language in structure and figures, and true where it computes."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from importlib import resources
from math import isclose, sqrt

import pytest
from markdown_it import MarkdownIt

from batchfit import calculators
from batchfit.calculators.gradient_accumulation import CALCULATOR
from batchfit.languages import catalogue, languages, translate
from batchfit.numbers import format_number, read_number
from batchfit.units import UNITS, parse_bytes
from tests.particulars import PARTICULARS, faults, glossary, says, without_words_apart

#: The page whose figures are held against what its calculator answers, here. Those of the others are in
#: test_shelf_agreement.py.
FIRST = CALCULATOR.slug
PAGES = calculators.slugs()
SECTIONS = ("article", "reading", "faq", "not-counted", "next")
CONTENT = resources.files("batchfit").joinpath("content")
LANGUAGES = sorted(entry.name for entry in CONTENT.iterdir())
TRANSLATIONS = [lang for lang in LANGUAGES if lang != "en"]

BYTE = tuple(word for language in PARTICULARS.values() for word in language["byte"])


@cache
def prose(lang: str, page: str = FIRST) -> str:
    return CONTENT.joinpath(lang, f"{page}.md").read_text(encoding="utf-8")


@cache
def sections(lang: str, page: str = FIRST) -> dict[str, dict[str, str]]:
    """The text by section, then by sub-heading: {"faq": {"": "", "Is it the same ...?": "For the ..."}}."""
    found: dict[str, dict[str, str]] = {}
    for line in prose(lang, page).splitlines():
        if line.startswith("# "):
            part = found.setdefault(line[2:].strip(), {})
            heading = ""
        elif line.startswith("## "):
            heading = line[3:].strip()
            assert heading not in part, f"{heading!r} stands twice"
        part[heading] = part.get(heading, "") + ("" if line.startswith("#") else line + "\n")
    return found


def beside_english(lang: str, page: str) -> list[tuple[str, str]]:
    """Each part of a language's prose, heading included, with the English part it translates."""
    own, english = (
        [f"{heading}\n{text}" for parts in sections(tag, page).values() for heading, text in parts.items()]
        for tag in (lang, "en")
    )
    return list(zip(own, english, strict=True))


_MODELS = r"(?<![A-Za-z])(Llama|Qwen|SmolLM|Mistral)"


def without_code(text: str) -> str:
    """`text` with what follows other rules gone: the content of code spans, names of models with their versions, and
    headings that are sections or addresses of pages."""
    text = re.sub(r"`[^`]+`", "`x`", text)
    text = re.sub(rf"{_MODELS}[\d.]*(?: \d(?:\.\d)?(?!\d|[.,]\d))?(?: [\d.]+B)?", r"\1", text)
    return re.sub(r"^#+ [a-z-]+$", "", text, flags=re.MULTILINE)


# Structure


def test_the_first_three_languages_have_the_page() -> None:
    assert {"en", "de", "zh-Hant"} <= set(LANGUAGES)


every_page = pytest.mark.parametrize("page", PAGES)


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_sections_are_the_same_and_in_the_same_order(lang: str, page: str) -> None:
    assert tuple(sections(lang, page)) == SECTIONS
    for name in SECTIONS:
        assert len(sections(lang, page)[name]) == len(sections("en", page)[name]), name


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_section_and_no_answer_is_empty(lang: str, page: str) -> None:
    for name, parts in sections(lang, page).items():
        assert any(text.strip() for text in parts.values()), name
        for heading, text in parts.items():
            assert text.strip() or not heading, f"{name}: {heading}"


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_faq_has_four_to_ten_questions(lang: str, page: str) -> None:
    questions = [heading for heading in sections(lang, page)["faq"] if heading]
    assert 4 <= len(questions) <= 10
    assert all(question[-1] in "?？؟" for question in questions)


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_next_names_the_related_calculators(lang: str, page: str) -> None:
    assert tuple(slug for slug in sections(lang, page)["next"] if slug) == calculators.load(page).related


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_paragraphs_and_lists_stand_beside_each_other(lang: str, page: str) -> None:
    for text, english in beside_english(lang, page):
        assert _shape(text) == _shape(english), text[:60]


def _shape(text: str) -> list[str]:
    tokens = MarkdownIt().parse(text)
    return [token.type for token in tokens if token.level == 0 or token.type == "list_item_open"]


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_markdown_leaves_no_marks_behind(lang: str, page: str) -> None:
    """Emphasis next to full-width punctuation is easily not recognised, and then shows its asterisks."""
    rendered = MarkdownIt().render(prose(lang, page))
    assert "**" not in rendered
    assert "`" not in rendered
    assert rendered.count("<strong>") == MarkdownIt().render(prose("en", page)).count("<strong>")


# Figures

# Not those in names: GPT-2, bf16, 1F1B. Letters of other scripts may touch a number: 4サンプル, 70억, و4. French groups
# digits with narrow no-break spaces.
_NUMBER = r"(?<![A-Za-z0-9_.,-])\d+(?:[.,\u202f]\d+)*(?![A-Za-z0-9_])"


def number(text: str, lang: str) -> Decimal:
    """A number of the prose, which must be written exactly as the page's results are in that language."""
    value = read_number(text, lang).value
    assert format_number(value, lang, max_fraction=9) == text
    return value


def _scaled(text: str, lang: str) -> str:
    """`text` with every number in plain digits, and words like "million" multiplied in."""

    def plain(found: re.Match[str]) -> str:
        value = number(found[1], lang) * words.get(found[2] or "", 1)
        return f"{value:f}"

    words = PARTICULARS[lang]["scales"]
    scales = "|".join(sorted(words, key=len, reverse=True))
    return re.sub(rf"({_NUMBER})(?:\s?({scales}))?", plain, text)


def numbers(text: str, lang: str) -> set[Decimal]:
    return {Decimal(found) for found in re.findall(_NUMBER, _scaled(without_code(text), lang))}


@every_page
@pytest.mark.parametrize("lang", TRANSLATIONS)
def test_every_part_has_the_same_numbers_in_every_language(lang: str, page: str) -> None:
    for text, english in beside_english(lang, page):
        assert numbers(text, lang) == numbers(english, "en"), text[:60]


# An operand is a number with up to two words behind it: "4 samples", "4サンプル", "(14 GB". A unit may follow a
# bracket.
_WORD = r"\s?[^\W\d_√]+"
_WORDS = rf"(?:{_WORD}){{0,2}}"
_OPERAND = rf"(?:√|−|\()*(?:{_NUMBER}){_WORDS}\)*{_WORDS}"
_EQUATION = re.compile(rf"{_OPERAND}(?:\s[×/+−]\s{_OPERAND})*(?:\s[=≈]\s{_OPERAND})+")


def equations(text: str, lang: str) -> list[str]:
    """Every equation in the text, in plain digits: "4 samples × 8 steps × 1 GPU = 32 samples"."""
    return [found.strip() for found in _EQUATION.findall(_scaled(without_code(text), lang))]


_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _unit(words: str) -> str | None:
    """The unit that words begin with: a unit of memory or None for things that are merely counted. Where a language
    writes no space, what comes next may touch it: "2 GBです"."""
    if words.lstrip().startswith(BYTE):
        return "B"
    latin = re.match(r"\s*([A-Za-z]*)", words)
    return latin[1] if latin and latin[1] in UNITS else None


def value(expression: str) -> float:
    """What one side of an equation comes to; sizes in bytes."""

    def factor(found: re.Match[str]) -> str:
        unit = _unit(found[2])
        return found[1] + (f"*{UNITS[unit]}" if unit else "")

    source = re.sub(rf"([\d)])((?:{_WORD})+)", factor, expression)
    source = re.sub(r"√(\d+)", lambda found: str(sqrt(int(found[1]))), source)
    return _evaluate(ast.parse(source.replace("×", "*").replace("−", "-").strip(), mode="eval").body)


def _evaluate(node: ast.expr) -> float:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    assert isinstance(node, ast.Constant), ast.dump(node)
    assert isinstance(node.value, int | float)
    return node.value


def holds(equation: str) -> bool:
    """Whether every side of an equation equals the first; after ≈, to the digits that are shown."""
    first, *rest = re.split(r"\s(?=[=≈]\s)", equation)
    for side in rest:
        sign, shown = side[0], side[2:]
        if sign == "=":
            same = isclose(value(first), value(shown), rel_tol=1e-12)
        else:
            number = re.match(r"[\d.]+", shown)
            assert number, f"only a plain number may follow ≈: {equation}"
            digits = len(number[0].partition(".")[2])
            unit = UNITS[_unit(shown[number.end() :]) or "B"]
            same = round(value(first) / unit, digits) == float(number[0])
        if not same:
            return False
    return True


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_equation_holds(lang: str, page: str) -> None:
    found = equations(prose(lang, page), lang)
    signs = len(re.findall(r"[=≈]", without_code(prose(lang, page))))
    assert sum(len(re.findall(r"[=≈]", each)) for each in found) == signs, "an equation was not recognised"
    assert [each for each in found if not holds(each)] == []


def test_a_wrong_equation_is_found() -> None:
    wrong = "so 4 samples × 8 steps × 1 GPU = 33 samples, 4 × 0.5 GB = 2 GiB, 2 GB ≈ 1.87 GiB, √8 ≈ 2.9 times"
    found = equations(wrong, "en")
    assert len(found) == 4
    assert not any(holds(each) for each in found)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_worked_example_is_what_the_calculator_answers_by_default(lang: str) -> None:
    defaults = {field.name: Decimal(field.default) for field in CALCULATOR.fields if field.default}
    micro, steps, replicas, per_sample = defaults.values()
    answer = CALCULATOR.evaluate(
        {
            "micro_batch": int(micro),
            "accumulation_steps": int(steps),
            "replicas": int(replicas),
            "activation_per_sample": parse_bytes(f"{per_sample} GB"),
        }
    ).outputs
    batch = f"{micro} × {steps} × {replicas} = {answer['effective_batch_size']}"
    memory = f"{micro} × {per_sample} = {Decimal(answer['activation_memory_bytes']) / 10**9:f}"
    article = [_bare(each) for each in equations("\n".join(sections(lang)["article"].values()), lang)]
    assert {batch, memory} <= set(article)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_missed_target_is_what_the_calculator_answers(lang: str) -> None:
    results = CALCULATOR.evaluate(
        {"target_batch": 250, "micro_batch": 4, "replicas": 8, "activation_per_sample": 0}
    )
    reading = {_bare(each) for each in equations(sections(lang)["reading"][""], lang)}
    for choice in results.choices:
        batch, drift = choice["effective_batch_size"], choice["drift"]
        assert f"4 × {choice['accumulation_steps']} × 8 = {batch}" in reading
        assert f"{batch} − 250 = {drift}".replace("-", "−") in reading


def _bare(equation: str) -> str:
    """An equation without its words."""
    return re.sub(_WORD, "", equation)


def test_the_gradients_of_gpt2_small_have_the_size_the_articlesays() -> None:
    """Vocabulary 50257, 1024 positions, width 768, 12 layers; the output layer shares the embedding."""
    width, layers = 768, 12
    block = 12 * width**2 + 13 * width
    parameters = (50257 + 1024) * width + layers * block + 2 * width
    text = "\n".join(sections("en")["article"].values()).replace("\xa0", " ")
    assert f"{parameters / 10**6:.1f} million parameters" in text
    assert f"= {parameters * 4 / UNITS['MiB']:.0f} MiB" in text
    assert f"≈ {parameters * 4 / UNITS['MB']:.0f} MB" in text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_bf16_loses_the_addition_that_the_article_names(lang: str) -> None:
    """bf16 keeps 8 significant bits, so 257 lies halfway between 256 and 258 and goes to the even 256."""
    found = re.search(r"(\d+) \+ (\d+)[^\d)×]+(\d+)", "".join(sections(lang)["article"].values()))
    assert found
    total = int(found[1]) + int(found[2])
    step = 2 ** (total.bit_length() - 8)
    assert round(total / step) * step == int(found[3]) != total


# Words


@pytest.mark.parametrize("lang", TRANSLATIONS)
def test_a_term_of_the_english_text_is_the_glossarys_in_translation(lang: str) -> None:
    missing = [
        f"{english}: {term}"
        for english, term, _ in glossary(lang)
        if says(prose("en"), english) and not says(prose(lang), term)
    ]
    assert missing == []


@every_page
@pytest.mark.parametrize("lang", TRANSLATIONS)
def test_no_second_word_for_a_term(lang: str, page: str) -> None:
    second = [
        word
        for _, _, avoided in glossary(lang)
        for word in avoided
        if says(without_words_apart(without_code(prose(lang, page)), lang), word)
    ]
    assert second == []


@pytest.mark.parametrize("lang", TRANSLATIONS)
def test_the_glossary_does_not_forbid_its_own_terms(lang: str) -> None:
    terms = [term for _, term, _ in glossary(lang)]
    assert len(set(terms)) == len(terms)
    for _, _, avoided in glossary(lang):
        assert not [(word, term) for word in avoided for term in terms if says(term, word)]


@pytest.mark.parametrize("lang", TRANSLATIONS)
def test_the_glossary_has_every_label_of_the_calculator(lang: str) -> None:
    known = {english.casefold() for english, _, _ in glossary(lang)}
    labels = {field.label for field in CALCULATOR.fields} | {"Effective batch size", "Activation memory"}
    assert {label.casefold() for label in labels} | {CALCULATOR.title.casefold()} <= known


@pytest.mark.parametrize("lang", [lang for lang in languages() if lang in TRANSLATIONS])
def test_the_catalogue_uses_the_glossarys_words_for_the_labels(lang: str) -> None:
    terms = {english.casefold(): term for english, term, _ in glossary(lang)}
    for field in CALCULATOR.fields:
        label = re.sub(r"[\u2066\u2069]", "", translate(field.label, lang))
        assert label.casefold() == terms[field.label.casefold()].casefold()


_LETTER = r"[\w\u064b-\u0652]"  # the marks of Arabic are no letters to \w


@cache
def counted(lang: str) -> dict[str, set[tuple[str, str]]]:
    """Words that the catalogue counts in a language, with the English that each translates: "توكنًا" and ("{n} token",
    "{n} tokens")."""
    nouns: dict[str, set[tuple[str, str]]] = {}
    for one, forms in catalogue(lang).plurals.items():
        for form in forms:
            if found := re.fullmatch(rf"\{{n\}}\s?({_LETTER}+)", form):
                nouns.setdefault(found[1], set()).add((one, f"{one}s"))
    return nouns


def miscounted(text: str, lang: str) -> list[str]:
    """Each number with a noun that has another form with that number.

    Before another noun it may lack its ending ("32 رأس استعلام"), and whole millions in digits may go without the "de"
    of the word.
    """
    wrong = []
    nouns = "|".join(sorted(counted(lang), key=len, reverse=True)) or "(?!)"
    for found in re.finditer(rf"({_NUMBER})\s({nouns})(?!{_LETTER}|-)", text):
        value = number(found[1], lang)
        lenient = re.match(r"\s[^\W\d]", text[found.end() :]) if value > 10 else None
        counts = [float(value)] + [100.0] * (bool(lenient) or value % 10**6 == 0)
        forms = {
            catalogue(lang).count(*unit, each).replace("\xa0", " ")
            for unit in counted(lang)[found[2]]
            for each in counts
        }
        if f"{{n}} {found[2]}" not in forms:
            wrong.append(found[0])
    return wrong


@every_page
@pytest.mark.parametrize("lang", TRANSLATIONS)
def test_what_is_counted_takes_the_form_of_its_number(lang: str, page: str) -> None:
    assert miscounted(without_code(prose(lang, page)).replace("**", ""), lang) == []


def test_a_form_of_another_number_is_found() -> None:
    assert miscounted("مع 4,096 توكن. و1,806 خطوة", "ar") == ["4,096 توكن", "1,806 خطوة"]
    assert miscounted("en 0,5 secondes, de 1 étapes", "fr") == ["0,5 secondes", "1 étapes"]
    assert miscounted("32 رأس استعلام، 0.5 ثانية، 100 توكن", "ar") == []


@every_page
@pytest.mark.parametrize("lang", LANGUAGES)
def test_typography(lang: str, page: str) -> None:
    text = without_code(prose(lang, page)).replace("**", "")
    assert faults(text, lang) == []
