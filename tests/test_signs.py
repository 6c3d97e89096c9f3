"""Each sign on pairs that show it, and on pairs that nearly do."""

from __future__ import annotations

import pytest

from xyd.health.languages import function_words, scripts_of
from xyd.health.raw import RAW_FAULTS, raw_faults
from xyd.health.signs import SIGNS, find, mojibake
from xyd.text import normalise

# sign, languages, a pair that shows it (and nothing else), a pair near it that shows nothing
CASES = [
    ("mojibake", "fr", "en", ("Où Ãªtes-vous ?", "Where are you?"), ("Où êtes-vous ?", "Where are you?")),
    ("mojibake", "fr", "en", ("Câ€™est bien.", "That is good."), ("C’est bien.", "That is good.")),
    ("mojibake", "de", "en", ("Das ist SpaÃŸ.", "That is fun."), ("„Das ist Spaß“", "That is fun.")),
    ("mojibake", "fr", "en", ("Il va � Lyon.", "He goes to Lyon."), ("Il va à Lyon.", "He goes to Lyon.")),
    ("mojibake", "zh", "en", ("鎴戜滑鐨勮溅璇偣浜嗐€?", "Our train is late."), ("涓涓细流。", "A trickling brook.")),
    ("html_entities", "en", "fr", ("Bread &amp; wine", "Pain et vin"), ("AT&T; R&D", "AT&T ; R-D")),
    ("html_entities", "fr", "en", ("L&#233;a et &quot;lui&quot;", "Léa and him"), ("a & b; c", "a & b, c")),
    ("identical", "en", "fr", ("Please sign here", "Please sign here"), ("3.14 - 2", "3.14 - 2")),
    ("identical", "en", "zh", ("Distr.: General", "distr.: general"), ("Distr.: General", "普遍分发")),
    ("swapped", "en", "zh", ("猫追狗。", "The cat chases the dog."), ("The cat chases the dog.", "猫追狗。")),
    ("swapped", "en", "zh", ("你好", "Hello"), ("Tom", "ICP-MS")),
    (
        "swapped", "en", "fr",
        ("Le chat est dans la maison.", "The cat is in the house."),
        ("Vive la France et tutti!", "Vive la France !"),
    ),
    ("wrong_script", "en", "zh", ("The cat sleeps.", "Here is the cat."), ("Windows 95", "Windows 95 OK")),
    ("wrong_script", "en", "fr", ("The cat sleeps.", "Кошка спит."), ("He writes Кошка here.", "Il écrit Кошка ici.")),
    ("wrong_script", "zh", "en", ("猫睡了。", "猫在睡觉。"), ("什么", 'He says "什么".')),
    (
        "wrong_language", "en", "fr",
        ("The cat is with her.", "The dog was not with them at the house."),
        ("Paris Match", "Paris Match, the magazine"),
    ),
    ("digits_differ", "en", "fr", ("It costs 35 euros.", "Cela coûte 45 euros."), ("In 1,000.5", "Dans 1 000,5")),
    ("digits_differ", "en", "zh", ("Room 201", "203房间"), ("Room 201", "２０１房间")),
    ("digits_differ", "en", "zh", ("on 9 May 2014", "2015年5月9日"), ("on 9 May 2014", "2014年5月9日")),
    ("digits_differ", "en", "fr", ("Call 112456 now.", "Appelez maintenant."), ("3 million", "3 000 000")),
    ("digits_differ", "en", "fr", ("At 3.10 p.m.", "À 15 h 20"), ("At 3 p.m.", "À 15 h")),
    (
        "urls_differ", "en", "fr",
        ("See http://a.example/x.", "Voir http://a.example/y."),
        ("See http://a.example/x.", "Voir (http://A.example/x/)"),
    ),
    ("urls_differ", "en", "zh", ("Write to me@a.example", "写信给我"), ("Write @ noon", "中午写信")),
    (
        "truncated", "en", "fr",
        ("The committee met in the afternoon and decided to go on.", "Le comité s'est"),
        ("The committee met in the afternoon.", "Le comité s'est réuni dans l'après-midi"),
    ),
    (
        "truncated", "en", "zh",
        ("I remember that we had taken a very long walk in the park.", "我记得,"),
        ("I remember that we had taken a very long walk.", "我记得我们散步了很久"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sign", "src_lang", "tgt_lang", "shows", "near"), CASES)
def test_a_sign_is_found_and_its_neighbour_is_not(
    sign: str, src_lang: str, tgt_lang: str, shows: tuple[str, str], near: tuple[str, str]
) -> None:
    assert sign in SIGNS
    assert find(*map(normalise, shows), src_lang, tgt_lang) == [sign]
    assert find(*map(normalise, near), src_lang, tgt_lang) == []
    # the same from the other side
    assert find(*map(normalise, reversed(shows)), tgt_lang, src_lang) == [sign]
    assert find(*map(normalise, reversed(near)), tgt_lang, src_lang) == []


def test_every_sign_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(SIGNS)


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp437", "mac_roman"])
@pytest.mark.parametrize("text", ["Où est la bibliothèque ? Là.", "Größe", "我们的车误点了。", "Привет", "naïve"])
def test_utf8_read_in_any_of_these_encodings_is_found(text: str, encoding: str) -> None:
    wrong = text.encode().decode(encoding, "replace" if encoding != "cp1252" else "ignore")
    assert mojibake(wrong)
    assert not mojibake(text)


@pytest.mark.parametrize(
    "text",
    ["„Das ist Spaß“", "CAFÉ” SÃO JOSÉ", "Ça coûte 5 €…", "« Privé… »", "10 °C à 20 °C", "±5 √2 ≈ 1.4", "MAÇÃ",
     "Ångström", "L’Île-d’Yeu – à côté", "É–È", "não é", "Ð is a letter", "“Đặng”"],
)  # fmt: skip
def test_what_only_looks_like_mojibake_is_left_alone(text: str) -> None:
    assert not mojibake(text)


def test_a_language_is_known_by_any_of_its_codes() -> None:
    assert scripts_of("zh_CN") == scripts_of("zh-Hant") == scripts_of("ZH") == ("han",)
    assert function_words("fra") == function_words("fr")
    assert scripts_of("xx") == ()
    assert find("猫", "whatever it is that was", "xx", "yy") == []


@pytest.mark.parametrize(
    ("name", "raw", "near"),
    [
        ("bom", "a\ufeffb", "ab"),
        ("nul", "a\x00b", "a0b"),
        ("cr", "a\rb", "a b"),
        ("line_separator", "a\u2028b", "a b"),
        ("line_separator", "a\u0085b", "a…b"),
        ("form_feed", "a\x0cb", "a\u3000b"),
        ("form_feed", "a\x0bb", "a\u00a0b"),
        ("control", "a\x93b", "a“b"),
        ("zero_width", "a\u200bb", "a\u2009b"),
        ("bidi", "a\u202eb", "a\u2010b"),
        ("surrogate", "a\ud800b", "a\U00010000b"),
        ("tab", "a\tb", "a b"),
        ("nfd", "e\u0301", "é"),
    ],
)
def test_a_fault_of_raw_text_is_found_and_its_neighbour_is_not(name: str, raw: str, near: str) -> None:
    assert raw_faults(raw) == [name]
    assert raw_faults(near) == []
    assert name in RAW_FAULTS
