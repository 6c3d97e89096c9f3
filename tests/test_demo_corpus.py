"""The demo corpus: one meaning is one sentence per language, well formed, learnable, the same for the same seed."""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from xyd.text import fold, normalise

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import demo_grammar as g  # noqa: E402
import make_demo_corpus as demo  # noqa: E402

SEED, SIZE = 1, demo.DEFAULT_SIZE


def noun(en: str) -> g.Noun:
    return next(noun for noun in g.NOUNS if noun.en == en)


def verb(en: str) -> g.Verb:
    return next(verb for verb in g.VERBS if verb.en == en)


def adjective(en: str) -> g.Adjective:
    return next(adjective for adjective in g.ADJECTIVES if adjective.en == en)


def np(en: str, determiner: str = "the", of: str | None = None, count: int = 0) -> g.Nominal:
    return g.Nominal(noun(en), determiner, adjective(of) if of else None, count)


PAUL, ANNA = g.PEOPLE[:2]
CAT, DOG, GIRL, GIRLS = np("cat"), np("dog"), np("girl"), np("girl", "the (plural)")
TEA = g.Mass(next(noun for noun in g.MASS_NOUNS if noun.en == "tea"))
WATER = g.Mass(next(noun for noun in g.MASS_NOUNS if noun.en == "water"), 2)
GARDEN = g.Place("in", np("garden"))
HALF_PAST_THREE, TOMORROW = g.At(g.Clock(3, 30)), g.TIMES["F"][0]
CHASE, DRINK, SLEEP, GIVE, BUY, FALL = map(verb, ("chase", "drink", "sleep", "give", "buy", "fall"))

GOLDEN: list[tuple[g.Meaning, str, str, str]] = [
    (g.Clause(CAT, CHASE, object=DOG), "The cat chases the dog.", "猫追狗。", "Le chat poursuit le chien."),
    (g.Clause(DOG, CHASE, object=CAT), "The dog chases the cat.", "狗追猫。", "Le chien poursuit le chat."),
    (
        g.Clause(np("bird", "a"), CHASE, "A", object=np("horse", "these", "white")),
        "A bird chased these white horses.",
        "一只鸟追了这些白色的马。",
        "Un oiseau a poursuivi ces chevaux blancs.",
    ),
    (
        g.Clause(g.I, DRINK, "P", "no", object=TEA),
        "I do not drink tea.",
        "我不喝茶。",
        "Je ne bois pas de thé.",
    ),
    (
        g.Clause(g.WE, DRINK, "G", object=WATER, place=GARDEN),
        "We are drinking two bottles of water in the garden.",
        "我们正在花园里喝两瓶水。",
        "Nous sommes en train de boire deux bouteilles d'eau dans le jardin.",
    ),
    (
        g.Clause(g.SHE, SLEEP, "A", "no", time=HALF_PAST_THREE),
        "She did not sleep at half past three.",
        "她三点半没有睡觉。",
        "Elle n'a pas dormi à trois heures et demie.",
    ),
    (g.Clause(GIRLS, FALL, "A"), "The girls fell.", "那些女孩摔倒了。", "Les filles sont tombées."),
    (
        g.Clause(g.HE, SLEEP, "F", is_question=True, time=TOMORROW),
        "Will he sleep tomorrow?",
        "他明天会睡觉吗？",
        "Est-ce qu'il va dormir demain ?",
    ),
    (
        g.Clause(PAUL, GIVE, "A", object=np("egg", "number", count=2), recipient=np("teacher", "the (plural)")),
        "Paul gave two eggs to the teachers.",
        "保罗给了那些老师两个鸡蛋。",
        "Paul a donné deux œufs aux professeurs.",
    ),
    (
        g.Clause(g.Pair(ANNA, PAUL), BUY, "W", object=np("apple", "number", count=25)),
        "Anna and Paul want to buy 25 apples.",
        "安娜和保罗想买25个苹果。",
        "Anna et Paul veulent acheter 25 pommes.",
    ),
    (
        g.Clause(CAT, CHASE, "P", "never", object=np("dog", "that")),
        "The cat never chases that dog.",
        "猫从不追那条狗。",
        "Le chat ne poursuit jamais ce chien-là.",
    ),
    (
        g.Clause(g.HE, verb("wait"), "P", object=g.WHAT),
        "What does he wait for?",
        "他等什么？",
        "Qu'est-ce qu'il attend ?",
    ),
    (
        g.Clause(g.WHO, verb("love"), object=np("queen", "our")),
        "Who loves our queen?",
        "谁爱我们的王后？",
        "Qui aime notre reine ?",
    ),
    (
        g.Clause(np("child"), verb("go"), time=g.OFTEN, object=np("hospital")),
        "The child often goes to the hospital.",
        "孩子经常去医院。",
        "L'enfant va souvent à l'hôpital.",
    ),
    (
        g.Clause(GIRL, SLEEP, place=g.Place("next to", np("hotel", "this", "beautiful"))),
        "The girl sleeps next to this beautiful hotel.",
        "女孩在这家漂亮的酒店旁边睡觉。",
        "La fille dort à côté de ce bel hôtel.",
    ),
    (g.Clause(g.HE, SLEEP, "C", "no"), "He cannot sleep.", "他不能睡觉。", "Il ne peut pas dormir."),
    (g.Clause(g.HE, SLEEP, place=g.WHERE), "Where does he sleep?", "他在哪里睡觉？", "Où est-ce qu'il dort ?"),
    (
        g.Clause(np("boat", "the number", count=3), verb("arrive"), "F", time=g.WHAT_TIME),
        "At what time will the three boats arrive?",
        "那三艘船几点会到达？",
        "À quelle heure est-ce que les trois bateaux vont arriver ?",
    ),
    (
        g.Copula(np("dress", "these"), g.Quality(adjective("new"), "very")),
        "These dresses are very new.",
        "这些裙子非常新。",
        "Ces robes sont très nouvelles.",
    ),
    (
        g.Copula(g.Nominal(noun("car"), owner=np("king")), g.Quality(adjective("red")), is_negated=True),
        "The king's car is not red.",
        "国王的汽车不是红色的。",
        "La voiture du roi n'est pas rouge.",
    ),
    (
        g.Copula(CAT, g.Quality(adjective("big"), other=np("bird"))),
        "The cat is bigger than the bird.",
        "猫比鸟大。",
        "Le chat est plus grand que l'oiseau.",
    ),
    (
        g.Copula(CAT, g.Location(g.Place("near", np("museum"))), is_question=True),
        "Is the cat near the museum?",
        "猫在博物馆附近吗？",
        "Est-ce que le chat est près du musée ?",
    ),
    (g.Copula(ANNA, g.Profession(noun("engineer"))), "Anna is an engineer.", "安娜是工程师。", "Anna est ingénieur."),
    (
        g.ThereIs(np("apple", "some", "big"), g.Place("on", np("table"))),
        "There are some big apples on the table.",
        "桌子上有一些大苹果。",
        "Il y a de grandes pommes sur la table.",
    ),
    (
        g.ThereIs(np("tree", "no"), GARDEN),
        "There is no tree in the garden.",
        "花园里没有树。",
        "Il n'y a pas d'arbre dans le jardin.",
    ),
    (
        g.Have(ANNA, np("book", "how many")),
        "How many books does Anna have?",
        "安娜有几本书？",
        "Combien de livres est-ce qu'Anna a ?",
    ),
    (
        g.ThisIs(np("friend", "my"), is_negated=True),
        "This is not my friend.",
        "这不是我的朋友。",
        "Ce n'est pas mon ami.",
    ),
    (g.Measure(g.I, "age", 20), "I am 20 years old.", "我20岁。", "J'ai 20 ans."),
    (g.Ask("where", GIRLS), "Where are the girls?", "那些女孩在哪里？", "Où sont les filles ?"),
    (g.TimeIs(g.Clock(12, 45)), "It is a quarter to one.", "现在差一刻一点。", "Il est une heure moins le quart."),
    (g.TimeIs(g.Clock(15, 20)), "It is 15:20.", "现在15点20分。", "Il est 15 h 20."),
    (
        g.Speech(g.I, "think", g.Copula(np("orange"), g.Quality(adjective("delicious")))),
        "I think that the orange is delicious.",
        "我认为橙子很美味。",
        "Je pense que l'orange est délicieuse.",
    ),
    (
        g.Joined("but", g.Clause(g.HE, SLEEP), g.Clause(g.SHE, verb("study"))),
        "He sleeps, but she studies.",
        "他睡觉，但是她学习。",
        "Il dort, mais elle étudie.",
    ),
    (
        g.Greeting(g.GREETINGS[0], ANNA, g.Clock(9, 0)),
        "Hello, Anna! It is nine o'clock.",
        "你好，安娜！现在九点。",
        "Bonjour, Anna ! Il est neuf heures.",
    ),
    (g.Fragment(np("tree", "my", "old")), "my old tree", "我的旧树", "mon vieil arbre"),
    (g.Fragment(np("horse", "many")), "many horses", "很多马", "beaucoup de chevaux"),
    (g.Fragment(g.Place("at", np("market"))), "at the market", "在市场", "au marché"),
]


@pytest.fixture(scope="module")
def meanings() -> list[g.Meaning]:
    return demo.draw_meanings(SIZE, SEED)


@pytest.fixture(scope="module")
def sentences(meanings: list[g.Meaning]) -> list[dict[str, str]]:
    return [g.sentence(meaning) for meaning in meanings]


def shared_sentences(sentences: list[dict[str, str]], key: Callable[[str], str]) -> list[tuple[str, ...]]:
    """Sentences that stand for several meanings, after `key`."""
    found = []
    for lang in g.LANGUAGES:
        by_key = defaultdict(list)
        for sentence in sentences:
            by_key[key(sentence[lang])].append(" | ".join(sentence.values()))
        found += [tuple(texts) for texts in by_key.values() if len(texts) > 1]
    return found


def words(text: str, lang: str) -> set[str]:
    """Words; single characters in Chinese, single digits."""
    pattern = r"[^\W\d]|\d" if lang == "zh" else r"[^\W\d]+|\d"
    return set(re.findall(pattern, text.lower()))


@pytest.mark.parametrize(("meaning", "en", "zh", "fr"), GOLDEN, ids=[en for _, en, _, _ in GOLDEN])
def test_golden_sentences(meaning: g.Meaning, en: str, zh: str, fr: str) -> None:
    assert g.sentence(meaning) == {"en": en, "zh": zh, "fr": fr}


def test_bijection_over_the_corpus(sentences: list[dict[str, str]]) -> None:
    assert shared_sentences(sentences, key=str) == []


def test_bijection_without_case_and_punctuation(sentences: list[dict[str, str]]) -> None:
    """The split groups by folded text: only then is each meaning a group of its own."""
    assert shared_sentences(sentences, key=fold) == []


def test_bijection_over_a_larger_sample() -> None:
    """A hundred thousand other meanings, and the held-out ones."""
    sample = [*demo.draw_meanings(100_000, SEED + 1), *demo.HELD_OUT]
    assert len(set(sample)) == len(sample)
    assert shared_sentences([g.sentence(meaning) for meaning in sample], key=str) == []


def test_shared_sentences_are_found() -> None:
    one, two = {"en": "A", "zh": "一", "fr": "un"}, {"en": "B", "zh": "一", "fr": "deux"}
    assert shared_sentences([one, two], key=str) == [("A | 一 | un", "B | 一 | deux")]


def test_held_out_sentences_are_not_written(sentences: list[dict[str, str]]) -> None:
    held_out = [g.sentence(meaning) for meaning in demo.HELD_OUT]
    assert [text["zh"] for text in held_out] == ["猫追狗。", "狗追猫。"]
    for lang in g.LANGUAGES:
        written = {fold(text[lang]) for text in sentences}
        assert not written & {fold(text[lang]) for text in held_out}


def test_held_out_words_occur_in_sentences_of_the_same_shape(meanings: list[g.Meaning]) -> None:
    chases = [
        (meaning.subject, meaning.object)
        for meaning in meanings
        if isinstance(meaning, g.Clause) and meaning == g.Clause(meaning.subject, CHASE, object=meaning.object)
    ]
    assert not {(CAT, DOG), (DOG, CAT)} & set(chases)
    for animal in (CAT, DOG):
        assert sum(subject == animal for subject, _ in chases) >= 3
        assert sum(thing == animal for _, thing in chases) >= 3


def test_every_word_is_frequent(sentences: list[dict[str, str]]) -> None:
    for lang in g.LANGUAGES:
        counts = Counter(word for text in sentences for word in words(text[lang], lang))
        assert {word: count for word, count in counts.items() if count < 50} == {}


def test_every_word_of_the_tables_is_used(sentences: list[dict[str, str]]) -> None:
    text = {lang: "\n".join(text[lang] for text in sentences) for lang in g.LANGUAGES}
    missing = [noun.en for noun in g.NOUNS if noun.zh not in text["zh"] or noun.fr_plural not in text["fr"]]
    missing += [verb.en for verb in g.VERBS if verb.zh not in text["zh"] or verb.en not in text["en"]]
    missing += [adjective.en for adjective in g.ADJECTIVES if adjective.zh not in text["zh"]]
    assert missing == []


def test_sentences_are_short_and_clean(sentences: list[dict[str, str]]) -> None:
    for text in sentences:
        assert len(text["en"].split()) <= demo.MAX_WORDS + 4  # a greeting and the time after it
        for sentence in text.values():
            assert sentence == normalise(sentence)
            assert sentence
            assert "  " not in sentence
            assert not re.search(r"\b(de le|de les|à le|à les)\b|[#_]", sentence)
        assert not re.search(r"\b([ldnj]e|la|que) [aeiouéèêhœ]", text["fr"].lower().replace("onze", "11"))
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text["en"])


def test_same_seed_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    digests = []
    for hash_seed in ("0", "1"):
        out = tmp_path / hash_seed
        command = [sys.executable, str(SCRIPTS / "make_demo_corpus.py"), "--out", str(out), "--size", "2000"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, check=True, env=environment, capture_output=True, timeout=60)
        digests.append([(out / f"demo.{lang}").read_bytes() for lang in g.LANGUAGES])
    assert digests[0] == digests[1]
    assert [g.sentence(meaning) for meaning in demo.draw_meanings(2000, SEED + 1)] != [
        g.sentence(meaning) for meaning in demo.draw_meanings(2000, SEED)
    ]


def test_files_are_aligned_and_nothing_else_is_left(tmp_path: Path) -> None:
    assert demo.main(["--out", str(tmp_path / "new" / "demo"), "--size", "500", "--seed", "7"]) == 0
    files = sorted((tmp_path / "new" / "demo").iterdir())
    assert [file.name for file in files] == ["demo.en", "demo.fr", "demo.zh"]
    lines = [file.read_bytes().decode("utf-8").split("\n") for file in files]
    assert [len(side) for side in lines] == [501, 501, 501]
    written = [g.sentence(meaning) for meaning in demo.draw_meanings(500, 7)]
    assert list(zip(*lines, strict=True))[:-1] == [(text["en"], text["fr"], text["zh"]) for text in written]


@pytest.mark.parametrize("size", ["0", "-3"])
def test_a_size_below_one_is_refused(size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        demo.main(["--out", str(tmp_path), "--size", size])
    assert stop.value.code == 2
    assert "at least 1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as stop:
        demo.main(["--out", str(tmp_path / "file" / "demo"), "--size", "5"])
    assert stop.value.code == 2
    assert "file" in capsys.readouterr().err
