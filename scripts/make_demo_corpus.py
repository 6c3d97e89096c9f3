"""Write the demo corpus: aligned English, Chinese and French sentences drawn from a hand-written grammar.

    python scripts/make_demo_corpus.py [--out data/demo] [--seed 1] [--size 38000]

One meaning is exactly one sentence in each language (demo_grammar.py), so a translation is right or wrong, and exact
match says how much a model has learnt. The same seed and size give the same bytes. HELD_OUT is never written.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from demo_grammar import (
    ADJECTIVES,
    CITIES,
    GREETINGS,
    HE,
    LANGUAGES,
    MASS_NOUNS,
    NOUNS,
    PEOPLE,
    SHE,
    SPEECH,
    TIMES,
    VERBS,
    WE,
    WHAT,
    WHAT_TIME,
    WHEN,
    WHERE,
    WHO,
    Adjective,
    Ask,
    At,
    Clause,
    Clock,
    Copula,
    Fragment,
    Greeting,
    Have,
    I,
    Joined,
    Location,
    Mass,
    Meaning,
    Measure,
    Name,
    Nominal,
    Noun,
    NounPhrase,
    Pair,
    Place,
    Profession,
    Quality,
    Speech,
    ThereIs,
    ThisIs,
    TimeIs,
    Verb,
    Word,
    opens_with_vowel,
    sentence,
)

T = TypeVar("T")
DEFAULT_OUT = Path(__file__).resolve().parent.parent / "data" / "demo"
DEFAULT_SIZE = 38_000
MAX_WORDS = 14  # of an English sentence

SINGULAR = ["the"] * 9 + ["this", "that", "my", "our", "owner", "owner"]
PLURAL = ["the (plural)"] * 3 + ["these"] * 2 + ["the number"]
INDEFINITE = ["a"] * 5 + ["some"] * 2 + ["many"] * 2 + ["number"] * 3


def _noun(en: str) -> Noun:
    return next(noun for noun in NOUNS if noun.en == en)


def _verb(en: str) -> Verb:
    return next(verb for verb in VERBS if verb.en == en)


CAT, DOG = Nominal(_noun("cat")), Nominal(_noun("dog"))
# 猫追狗。 and 狗追猫。: shown by the demo, so never in its corpus.
HELD_OUT: tuple[Meaning, ...] = (
    Clause(CAT, _verb("chase"), object=DOG),
    Clause(DOG, _verb("chase"), object=CAT),
)


@cache
def tagged(*tags: str, gender: str = "mf") -> tuple[Noun, ...]:
    """The nouns that have one of the tags."""
    return tuple(noun for noun in NOUNS if noun.tags.intersection(tags) and noun.gender in gender)


@cache
def people(gender: str) -> tuple[Name, ...]:
    return tuple(name for name in PEOPLE if name.gender in gender)


class Draw:
    """Draws meanings. Words come from shuffled decks, so each is used about as often as its neighbours."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._decks: dict[Any, list[Any]] = {}
        self._kinds = dict(self._weights())

    def _weights(self) -> Iterable[tuple[Callable[[], Meaning], int]]:
        yield self.clause, 720
        yield self.animals, 8
        yield self.question, 50
        yield self.description, 128
        yield self.comparison, 42
        yield self.location, 22
        yield self.existence, 55
        yield self.possession, 26
        yield self.profession, 10
        yield self.identity, 10
        yield self.measure, 14
        yield self.ask, 16
        yield self.time, 4
        yield self.fragment, 80
        yield self.greeting, 18
        yield self.speech, 28
        yield self.joined, 18

    def meaning(self) -> Meaning:
        """Any meaning, each kind as often as its weight says."""
        return self.random.choices(list(self._kinds), list(self._kinds.values()))[0]()

    def deal(self, key: object, cards: Callable[[], Iterable[T]] | Sequence[T]) -> T:
        """The next card of the deck of that name, which is shuffled anew when used up."""
        deck = self._decks.get(key)
        if not deck:
            deck = list(cards() if callable(cards) else cards)
            self.random.shuffle(deck)
            self._decks[key] = deck
        card: T = deck.pop()
        return card

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # ---- phrases

    def number(self) -> int:
        return self.deal("number", range(2, 13)) if self.chance(0.7) else self.random.randint(13, 99)

    def _special(self, noun: Noun) -> list[Adjective]:
        """The adjectives with a form of their own (bel, nouvel) before the noun; few nouns have them: drawn more often.

        Too few have vieil to learn it from: it is not drawn at all.
        """
        if noun.gender == "f" or not opens_with_vowel(noun.fr):
            return []
        return [adjective for adjective in ADJECTIVES if noun.tags & adjective.kinds and adjective.fr_vowel]

    def adjective(self, noun: Noun) -> Adjective | None:
        special = [adjective for adjective in self._special(noun) if adjective.fr_vowel != "vieil"]
        if special and self.chance(0.75):
            return self.deal(("special", noun.en), special)
        fitting = [adjective for adjective in ADJECTIVES if noun.tags & adjective.kinds]
        fitting = [adjective for adjective in fitting if not special or adjective.fr_vowel != "vieil"]
        return self.deal(("adjective", noun.en), fitting) if fitting else None

    def nominal(self, nouns: tuple[Noun, ...], determiners: Sequence[str], adjective_share: float = 0.15) -> Nominal:
        noun = self.deal(nouns, nouns)
        if self._special(noun):
            adjective_share *= 1.7
        determiner = self.deal(tuple(determiners), determiners)
        adjective = self.adjective(noun) if self.chance(adjective_share) else None
        count = self.number() if "number" in determiner else 0
        if determiner == "the number" and count > 12:
            count = self.deal("number", range(2, 13))
        if determiner != "owner":
            return Nominal(noun, determiner, adjective, count)
        owner: Name | Nominal = self.deal("name", PEOPLE)
        if self.chance(0.5):
            owner = Nominal(self.deal("owner", tagged("person")))
        return Nominal(noun, "the", adjective, 0, owner)

    def definite(self, nouns: tuple[Noun, ...], adjective_share: float = 0.15) -> Nominal:
        return self.nominal(nouns, SINGULAR if self.chance(0.65) else PLURAL, adjective_share)

    def someone(self, gender: str = "mf") -> Name | Word:
        if self.chance(0.5):
            return self.deal(("he or she", gender), [word for word in (HE, SHE) if word.gender in gender])
        return self.deal(("name", gender), people(gender))

    def pair(self, nouns: tuple[Noun, ...], gender: str = "mf") -> Pair:
        if "person" in nouns[0].tags and (gender == "f" or self.chance(0.5)):
            first, second = self.random.sample(people(gender), 2)
            return Pair(first, second)
        one, two = self.random.sample(nouns, 2)
        return Pair(Nominal(one), Nominal(two))

    def subject(self, verb: Verb, kind: str, may_be_indefinite: bool = False, gender: str = "mf") -> NounPhrase:
        """A subject of the kind I, we, they or one."""
        nouns = tagged(*sorted(verb.subjects), gender=gender)
        if kind == "I":
            return I
        if kind == "we":
            return WE
        if kind == "they":
            if self.chance(0.2):
                return self.pair(tagged(*sorted(verb.subjects - {"vehicle"}), gender=gender), gender)
            if may_be_indefinite and self.chance(0.3):
                return self.nominal(nouns, ["some", "many", "number", "number"])
            return self.nominal(nouns, PLURAL)
        if self.chance(0.35):
            return self.someone(gender)
        return self.nominal(nouns, ["a"] if may_be_indefinite and self.chance(0.25) else SINGULAR)

    def object(self, verb: Verb, subject: NounPhrase, may_be_indefinite: bool) -> NounPhrase:
        nouns = tagged(*sorted(verb.objects))
        mass = [noun for noun in MASS_NOUNS if f"mass:{noun.kind}" in verb.objects]
        if "city" in verb.objects and (not nouns or self.chance(0.35)):
            return self.deal("city", CITIES)
        if mass and (not nouns or self.chance(0.6)):
            noun = self.deal(tuple(noun.en for noun in mass), mass)
            served = noun.vessel and may_be_indefinite and self.chance(0.45)
            return Mass(noun, self.random.choice([1, 1, 2, 3, 4, 5]) if served else 0)
        if "site" in verb.objects:
            return self.nominal(nouns, ["the"] * 5 + ["this", "that", "my", "our"], 0.1)
        if "person" in verb.objects and not isinstance(subject, Pair) and self.chance(0.15):
            name = self.deal("name", PEOPLE)
            if name is not subject:
                return name
        for _ in range(20):
            share = 0.5 if may_be_indefinite else 0.0
            phrase = self.nominal(nouns, INDEFINITE) if self.chance(share) else self.definite(nouns)
            if not (isinstance(subject, Nominal) and subject.noun is phrase.noun):
                break
        return phrase

    def ground(self, nouns: tuple[Noun, ...]) -> Nominal:
        determiners = ["the"] * 8 + ["this", "that", "my", "our", "owner", "a"]
        return self.nominal(nouns, determiners, adjective_share=0.08)

    def place(self, is_activity: bool) -> Place:
        """Where something happens, or (not an activity) where something is."""
        spots: dict[str, tuple[str, ...]] = {"in": ("room",), "in front of": ("spot",), "behind": ("spot",)}
        spots |= {"next to": ("spot",), "near": ("spot",), "under": ("shade",)}
        if is_activity:
            spots |= {"at": ("site",)}
        else:
            spots |= {"in": ("room", "inside"), "on": ("top",), "under": ("top", "shade")}
        preposition = self.deal(
            ("prepositions", is_activity), ["in", *spots, "in a city"] if is_activity else list(spots)
        )
        if preposition == "in a city":
            return Place(preposition, self.deal("city", CITIES))
        return Place(preposition, self.ground(tagged(*spots[preposition])))

    def clock(self) -> Clock:
        if self.chance(0.25):
            return Clock(self.random.randint(13, 23), self.random.randint(10, 59))
        return Clock(self.deal("hour", range(1, 13)), self.deal("minute", [0, 0, 15, 30, 30, 45]))

    # ---- sentences

    def _cards(self, verb: Verb) -> list[tuple[str, str, bool, str]]:
        """Tense, polarity, question, kind of subject: what one verb is used for, so that each form is frequent."""
        uses = dict.fromkeys(verb.tenses.replace("N", ""), 4) | {"P": 64, "G": 16, "A": 22, "F": 6}
        if verb.auxiliary:  # four forms of the participle
            uses |= {"P": 100, "A": 70, "F": 16}
        if "P" not in verb.tenses:
            uses |= {"F": 14, "C": 8} if not verb.auxiliary else {"F": 24}
        cards = []
        for tense, count in uses.items():
            polarities, kinds = ["yes"] * 8, ["one", "they", "we", "I"]
            if tense == "P":
                kinds = ["one"] * 5 + ["they"] * 4 + ["we"] * 5 + ["I"] * (2 if verb.je == verb.il else 5)
                polarities = [*polarities, "no", "never"] if "N" in verb.tenses else polarities
            elif tense in "AFCW":
                polarities = [*polarities, "no"]
            if tense == "A" and verb.auxiliary:
                kinds = ["one", "they"]
            for _ in range(count if tense in verb.tenses else 0):
                polarity = self.deal(("polarity", tense, verb.tenses), polarities)
                is_question = tense != "U" and polarity == "yes" and self.chance(0.14)
                cards.append((tense, polarity, is_question, self.deal(("subject", tense, verb.en), kinds)))
        return cards

    def verb(self, wanted: Callable[[Verb], bool] | None = None) -> Verb:
        """The next verb; those with few forms are drawn less often, those with many participles more often."""

        def deck() -> list[Verb]:
            weights = {"PN": 6, "AFC": 4, "AF": 4}
            verbs = [verb for verb in VERBS if wanted is None or wanted(verb)]
            return [
                verb
                for verb in verbs
                for _ in range(19 if verb.auxiliary else weights.get(verb.tenses, 10 if verb.objects else 13))
            ]

        return self.deal(("verb", wanted.__qualname__ if wanted else ""), deck)

    def clause(self, verb: Verb | None = None, is_plain: bool = False) -> Clause:
        """A statement, or a question for yes or no; a plain one is a short statement."""
        verb = verb or self.verb()
        while True:
            tense, polarity, is_question, kind = self.deal(("cards", verb.en), lambda: self._cards(verb))
            if not (is_plain and is_question):
                break
        is_affirmed = polarity == "yes"
        may_be_indefinite = tense in "GA" and is_affirmed and not is_question
        gender = self.deal(("gender", kind), "mf") if tense == "A" and verb.auxiliary else "mf"
        subject = self.subject(verb, kind, may_be_indefinite, gender)
        thing = self.object(verb, subject, may_be_indefinite=is_affirmed) if verb.objects else None
        recipient = None
        if verb.has_recipient:
            recipient = self.recipient(subject)
            if is_affirmed:
                thing = self.nominal(tagged(*sorted(verb.objects)), INDEFINITE, adjective_share=0.1)
        place, time = None, None
        if not is_plain:
            short = sum(len(phrase.en()) for phrase in (subject, thing, recipient) if phrase) < 6
            may_have_place = is_affirmed and not verb.has_recipient and not verb.fr_preposition and tense != "U"
            may_have_place = may_have_place and verb.tenses not in ("PN", "AF", "AFC", "PAF") and verb.en != "leave"
            if short and may_have_place and self.chance(0.22 if verb.objects else 0.5):
                place = self.place(is_activity=True)
            share = 0.95 if short else 0.3  # without an object there is room for more
            if tagged(*sorted(verb.objects)):
                share = 0.3 if short else 0.1
            if self.chance(share * (0.3 if place else 1)):
                time = self.when(verb, tense, polarity)
        return Clause(subject, verb, tense, polarity, is_question, thing, recipient, place, time)

    def animals(self) -> Clause:
        """The shape of the held-out sentences, where only the order tells who does it: the cat chases the horse."""
        verb = self.deal(
            "animals", [_verb(en) for en in ("chase", "chase", "chase", "watch", "protect", "love", "hate")]
        )
        nouns = tagged("animal")
        subject, other = self.deal("who chases", nouns), self.deal("who is chased", nouns)
        return Clause(Nominal(subject), verb, object=Nominal(other)) if subject is not other else self.animals()

    def recipient(self, subject: NounPhrase) -> Name | Nominal:
        for _ in range(20):
            recipient: Name | Nominal = self.deal("name", PEOPLE)
            if isinstance(subject, Pair) or self.chance(0.6):
                recipient = self.nominal(tagged("person"), ["the"] * 4 + ["my", "our", "the (plural)", "this"], 0.0)
            if recipient != subject:
                break
        return recipient

    def when(self, verb: Verb, tense: str, polarity: str) -> Word | At | None:
        if verb.tenses == "PN" or polarity == "never" or (tense == "P" and polarity == "no"):
            return None
        if tense in "PAF" and verb.tenses != "AF" and self.chance(0.35 if verb.objects else 0.6):
            return At(self.clock())
        return self.deal(("time", tense), TIMES[tense]) if tense in TIMES else None

    def question(self) -> Meaning:
        """Who chases …? Who(m), what does … chase? Where, when, at what time does … sleep?"""
        kind = self.deal("question", ["subject", "object", "object", "where", "when", "what time", "go"])
        if kind == "subject":
            statement = self.clause(is_plain=True)
            while statement.polarity != "yes" or statement.tense == "U":
                statement = self.clause(is_plain=True)
            return Clause(WHO, statement.verb, statement.tense, object=statement.object, recipient=statement.recipient)
        if kind == "go":
            return Clause(self.subject(_verb("go"), self.kind()), _verb("go"), self.random.choice("PPFW"), object=WHERE)
        if kind == "object":
            verb = self.verb(has_plain_object)
            tense = self.random.choice([tense for tense in "PPGAF" if tense in verb.tenses])
            is_who = "person" in verb.objects and (verb.objects <= {"person", "animal"} or self.chance(0.5))
            return Clause(self.subject(verb, self.kind()), verb, tense, object=WHO if is_who else WHAT)
        verb = self.verb(can_be_asked_when)
        subject, tense = self.subject(verb, self.kind()), self.random.choice("PPF")
        thing = self.definite(tagged(*sorted(verb.objects)), 0.0) if verb.objects else None
        if kind == "where" and verb.en not in ("arrive", "leave", "come back"):
            return Clause(subject, verb, tense, object=thing, place=WHERE)
        return Clause(subject, verb, tense, object=thing, time=WHAT_TIME if kind == "what time" else WHEN)

    def kind(self) -> str:
        return self.deal("kind", ["one", "one", "one", "they", "they", "we", "I"])

    def _described(self) -> tuple[NounPhrase, Adjective]:
        four_forms = [adjective for adjective in ADJECTIVES if not adjective.hides_gender]
        adjective = self.deal("described", [*ADJECTIVES, *four_forms])
        gender, is_plural = self.deal(
            ("described", adjective.en), [("m", False), ("f", False), ("m", True), ("f", True)]
        )
        nouns = tagged(*sorted(adjective.kinds), gender=gender)
        if "person" in nouns[0].tags and self.chance(0.3):
            if adjective.hides_gender and self.chance(0.4):
                return (WE if is_plural else I), adjective
            return (self.pair(tagged("adult"), gender) if is_plural else self.someone(gender)), adjective
        return self.nominal(nouns, PLURAL if is_plural else SINGULAR, adjective_share=0.0), adjective

    def description(self) -> Copula:
        """The cat is (very) big. The cat is not big. Is the cat big?"""
        subject, adjective = self._described()
        form = self.random.choice(["", "", "", "very", "very", "too", "no", "question"])
        if form in ("very", "too") and (adjective.is_colour or adjective.en == "delicious"):
            form = ""
        degree = form if form in ("very", "too") else ""
        return Copula(subject, Quality(adjective, degree), form == "no", form == "question")

    def comparison(self) -> Copula:
        """The cat is bigger than the dog."""
        comparable = [adjective for adjective in ADJECTIVES if not adjective.is_colour]
        adjective = self.deal("compared", comparable)
        nouns = tagged(*sorted(adjective.kinds))
        kind = self.random.choice([noun.tags & adjective.kinds for noun in nouns])
        alike = [noun for noun in nouns if noun.tags & kind]
        one, two = self.random.sample(alike, 2)
        is_person = "person" in one.tags
        subject: NounPhrase = self.nominal((one,), SINGULAR if self.chance(0.6) else PLURAL, 0.0)
        other: NounPhrase = self.nominal((two,), SINGULAR if self.chance(0.7) else PLURAL, 0.0)
        if is_person and self.chance(0.3):
            subject = self.someone()
        if is_person and self.chance(0.2):
            name = self.deal("name", PEOPLE)
            other = name if name is not subject else other
        return Copula(subject, Quality(adjective, other=other))

    def _seen(self) -> tuple[tuple[Noun, ...], Place]:
        """Nouns and a place where they may be; never a house on a chair."""
        place = self.place(is_activity=False)
        small = tuple(noun for noun in tagged("gift", "food", "animal") if noun.en not in ("guitar", "bicycle"))
        if place.preposition == "on" or (isinstance(place.ground, Nominal) and place.ground.noun.tags & {"inside"}):
            return small, place
        if place.preposition == "under":
            return tagged("animal", "gift"), place
        return tagged("animal", "person", "vehicle", "gift", "shade"), place

    def location(self) -> Copula:
        """The cat is (not) on the table. Is it?"""
        nouns, place = self._seen()
        subject: NounPhrase = self.definite(nouns)
        form = self.random.choice(["", "", "", "no", "question"])
        if place.preposition in ("in", "near") and self.chance(0.25):
            subject = self.someone()
            place = Place("in a city", self.deal("city", CITIES)) if self.chance(0.4) else place
        if isinstance(subject, Nominal) and isinstance(place.ground, Nominal) and subject.noun is place.ground.noun:
            return self.location()
        return Copula(subject, Location(place), form == "no", form == "question")

    def existence(self) -> ThereIs:
        """There are three cats in the garden. There is no cat. How many cats are there?"""
        nouns, place = self._seen()
        if self.chance(0.6):
            nouns, place = tagged("place", "draw"), Place("in a city", self.deal("city", CITIES))
        form = self.deal("existence", ["", "", "", "", "no", "question", "how many", "how many"])
        determiners = [form] if form in ("no", "how many") else INDEFINITE
        what = self.nominal(nouns, determiners)
        if isinstance(place.ground, Nominal) and what.noun is place.ground.noun:
            return self.existence()
        return ThereIs(what, place, form == "question")

    def possession(self) -> Have:
        """The man has a book. The man does not have a book. How many books does the man have?"""
        verb = _verb("buy")
        form = self.deal("possession", ["", "", "", "", "not a", "question", "how many", "how many"])
        kind = "one" if form == "how many" else self.kind()
        determiners = [form] if form in ("not a", "how many") else INDEFINITE
        what = self.nominal(tagged("goods", "gift", "food", "animal"), determiners)
        return Have(self.subject(verb, kind), what, form == "question")

    def profession(self) -> Copula:
        """Paul is a doctor."""
        noun = self.deal("profession", tagged("profession"))
        subject: NounPhrase = self.someone() if self.chance(0.7) else self.deal("I, my friend", self._people)
        form = self.random.choice(["", "", "no", "question"])
        return Copula(subject, Profession(noun), form == "no", form == "question")

    def _people(self) -> list[NounPhrase]:
        relatives = [_noun(en) for en in ("mother", "father", "friend", "neighbour")]
        nominals = [Nominal(noun, determiner) for noun in relatives for determiner in ("my", "our")]
        return [I, *nominals, *(Nominal(noun, "the", owner=name) for noun in relatives for name in PEOPLE)]

    def identity(self) -> ThisIs:
        """This is a cat. This is not my cat."""
        form = self.random.choice(["", "", "no", "question"])
        what = self.nominal(tuple(NOUNS), ["a", "a", "my", "our", "owner"])
        return ThisIs(what, form == "no", form == "question")

    def measure(self) -> Measure:
        """The man is twelve years old. The book costs 25 euros."""
        if self.chance(0.5):
            subject: NounPhrase = self.someone() if self.chance(0.6) else self.definite(tagged("person"))
            return Measure(I if self.chance(0.1) else subject, "age", self.number())
        return Measure(self.nominal(tagged("goods", "food"), SINGULAR), "price", self.number())

    def ask(self) -> Ask:
        """Where is the cat? How old is Paul? How much does the book cost? What colour is the car?"""
        kind = self.deal("ask", ["where", "age", "price", "colour"])
        if kind == "age":
            return Ask(
                kind, self.deal("name", PEOPLE) if self.chance(0.3) else self.nominal(tagged("person"), SINGULAR)
            )
        if kind == "price":
            return Ask(kind, self.nominal(tagged("goods", "food"), SINGULAR))
        return Ask(kind, self.definite(tagged("goods", "animal") if kind == "where" else tagged("goods", "colour")))

    def time(self) -> TimeIs:
        return TimeIs(self.clock())

    def fragment(self) -> Fragment:
        """A phrase by itself."""
        kind = self.deal("fragment", ["noun"] * 10 + ["sight"] * 3 + ["mass", "served", "place", "place", "time"])
        if kind == "noun":
            return Fragment(self.nominal(tuple(NOUNS), [*SINGULAR, *PLURAL, *INDEFINITE], adjective_share=0.45))
        if kind == "sight":  # few verbs take these, which would make their plurals rare
            return Fragment(self.nominal(tagged("place", "draw"), [*PLURAL, *INDEFINITE], adjective_share=0.3))
        if kind == "place":
            return Fragment(self.place(is_activity=self.chance(0.5)))
        if kind == "time":
            return Fragment(At(self.clock()))
        nouns = [noun for noun in MASS_NOUNS if noun.vessel or kind == "mass"]
        noun = self.deal(kind, nouns)
        return Fragment(Mass(noun, self.random.randint(1, 12) if kind == "served" else 0))

    def greeting(self) -> Greeting:
        name = self.deal("greeted", PEOPLE) if self.chance(0.95) else None
        return Greeting(self.deal("greeting", GREETINGS), name, self.clock() if self.chance(0.8) else None)

    def _content(self) -> Clause | Copula:
        while True:
            content = self.clause(is_plain=True) if self.chance(0.7) else self.description()
            if content.mark == "." and len(content.en()) < 8:
                return content

    def speech(self) -> Speech:
        """Paul says that the cat is big."""
        speaker = I if self.chance(0.28) else self.someone()
        return Speech(speaker, self.deal("speech", list(SPEECH)), self._content())

    def joined(self) -> Joined:
        """… and …; … but …; yes, …; no, …"""
        link = self.deal("link", ["and", "but", "yes", "no"])
        first, second = self._content(), self._content()
        if link in ("and", "but"):
            return Joined(link, first, second) if first != second else self.joined()
        while (first.polarity != "yes" if isinstance(first, Clause) else first.is_negated) != (link == "no"):
            first = self._content()
        return Joined(link, first)


def has_plain_object(verb: Verb) -> bool:
    return bool(verb.objects) and not verb.has_recipient and not verb.fr_preposition


def can_be_asked_when(verb: Verb) -> bool:
    return (
        not verb.objects.difference(tag for noun in NOUNS for tag in noun.tags)
        and verb.tenses.startswith("PN")
        and (verb.tenses != "PN" and not verb.has_recipient and not verb.fr_preposition)
    )


def draw_meanings(size: int, seed: int) -> list[Meaning]:
    """So many different meanings, none of them held out. ValueError when the grammar seems to have no more."""
    draw, seen, in_vain = Draw(seed), set(HELD_OUT), 0
    meanings: list[Meaning] = []
    while len(meanings) < size:
        meaning = draw.meaning()
        if len(meaning.en()) > MAX_WORDS:
            continue
        in_vain = in_vain + 1 if meaning in seen else 0
        if in_vain > 10_000:
            raise ValueError(f"only {len(meanings)} different meanings found; ask for fewer than --size {size}")
        if not in_vain:
            seen.add(meaning)
            meanings.append(meaning)
    return meanings


def write_corpus(out_dir: Path, size: int, seed: int) -> list[Path]:
    """Write demo.en, demo.zh, demo.fr, aligned line by line: all three aside first, then renamed into place."""
    sentences = [sentence(meaning) for meaning in draw_meanings(size, seed)]
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = [out_dir / f"demo.{lang}" for lang in LANGUAGES]
    aside = [path.with_name(f".{path.name}.{os.getpid()}") for path in paths]
    try:
        for path, lang in zip(aside, LANGUAGES, strict=True):
            with path.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(text[lang] + "\n" for text in sentences)
                file.flush()
                os.fsync(file.fileno())
        for source, path in zip(aside, paths, strict=True):
            os.replace(source, path)
    finally:
        for path in aside:
            path.unlink(missing_ok=True)
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the trilingual demo corpus: one meaning, one sentence each.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for demo.en, demo.zh, demo.fr")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same bytes")
    parser.add_argument("--size", type=int, default=DEFAULT_SIZE, help="number of meanings, that is lines of each file")
    options = parser.parse_args(arguments)
    if options.size < 1:
        parser.error(f"--size {options.size}: ask for at least 1 meaning")
    try:
        paths = write_corpus(options.out, options.size, options.seed)
    except (OSError, ValueError) as problem:
        parser.error(str(problem))
    print(f"{options.size} meanings in {', '.join(map(str, paths))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
