"""What may be known of a language without learning: its script, and words that hardly a sentence goes without."""

from __future__ import annotations

SCRIPTS = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a",
    "han": "\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
    "kana": "\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "cyrillic": "\u0400-\u052f\u1c80-\u1c8f\ua640-\ua69f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
    "hebrew": "\u0590-\u05ff\ufb1d-\ufb4f",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
}
"""Letters of a script, as the inside of a character class."""

_BY_SCRIPT = {
    (
        "latin",
    ): "en fr de es it pt nl sv da no nb nn fi is et lv lt pl cs sk sl hr hu ro tr vi id ms tl sw ca gl eu ga cy "
    "af sq mt eo la eng fra deu spa ita por nld swe dan fin pol ces slk slv hrv hun ron tur vie ind msa cat",
    ("han",): "zh zho cmn yue lzh wuu",
    ("han", "kana"): "ja jpn",
    ("hangul", "han"): "ko kor",
    ("cyrillic",): "ru uk bg be mk kk ky mn rus ukr bul bel mkd",
    ("greek",): "el ell",
    ("arabic",): "ar fa ur ps ug ara fas urd",
    ("hebrew",): "he yi heb",
    ("devanagari",): "hi mr ne sa hin mar",
    ("thai",): "th tha",
}
_SCRIPTS_OF = {code: scripts for scripts, codes in _BY_SCRIPT.items() for code in codes.split()}

_TWO_LETTERS = {"eng": "en", "fra": "fr", "deu": "de", "spa": "es", "ita": "it", "por": "pt", "nld": "nl", "ces": "cs"}
# A word that two languages share stands in both lists, and so tells nothing between them.
_FUNCTION_WORDS = {
    "en": "the a an of and to in on is am are was were be been that this these it its it's i i'm i'll you he "
    "she we they me him her us them my your his our their for with from by at as but or if so not don't "
    "didn't can't have has had do does did will would can could should what who how where when why there "
    "than then no yes some any all very into out up about please just two man woman",
    "fr": "le la les l' des du de et est un une a à au aux dans sur en que qui quoi pour par pas ne n'est c'est "
    "il elle ils elles on je j'ai j'étais tu nous vous me te se ce cet cette ces son sa ses mon ma mes "
    "ton ta tes leur leurs mais ou où si plus très bien suis es sommes êtes sont ai as avons avez ont "
    "était étaient être avoir fait avec sans tout tous y deux homme femme qu'il d'un d'une",
    "de": "der die das den dem des ein eine einen einem einer und oder ist sind war waren bin bist sei nicht "
    "kein keine mit von vom zu zum zur im in an am auf aus bei für über um als wie wenn dass so man sich "
    "ich du er sie es wir ihr mich dich mir dir uns mein meine dein sein seine hat haben habe hatte wird "
    "werden kann will muss auch nur noch schon sehr nach vor was wo wer bitte hier zwei mann frau",
    "es": "el la los las lo de y que en un una es por con no para se del al su sus como más está son fue pero "
    "me te mi tu yo él ella nos ha he muy sin sobre qué",
    "it": "il lo la gli le i di e che è un una in per non con della del dei sono ha nel alla si da come anche "
    "ma mi ti ho io tu lui lei più su al",
    "pt": "o a os as de e que em um uma é não para com do da dos das se por ao mais foi está são no na meu ele "
    "ela eu você muito",
    "nl": "de het een en van is dat niet op te met zijn voor ik er aan die in ook om maar naar worden hij ze we "
    "je mijn was heeft hebben wat",
    "cs": "a i je se si na v ve s z ze do k o u že to ten ta jsou jsem jsi ale jako pro byl byla bylo tak jak "
    "od po by který která které není také co kde kdo mi mu ho jeho její při nad pod dva muž žena",
}


def _base(language: str) -> str:
    """zh of zh_CN, zh_Hans or ZH."""
    return language.replace("-", "_").split("_")[0].lower()


def scripts_of(language: str) -> tuple[str, ...]:
    """Names of the scripts the language is written in; none for a language that is not known here."""
    return _SCRIPTS_OF.get(_base(language), ())


def function_words(language: str) -> frozenset[str]:
    """Frequent small words of the language, in lower case; none for a language that is not known here."""
    base = _base(language)
    return frozenset(_FUNCTION_WORDS.get(_TWO_LETTERS.get(base, base), "").split())
