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
_FUNCTION_WORDS = {
    "en": "the of and to is that it was for are with this have had not be you he she his her they we my at from by "
    "what there as but were which would been their has do does i'm it's don't your will can",
    "fr": "le la les des et est une dans que qui pour pas il elle du au aux sur avec nous vous je ce cette ne se sont "
    "son sa ses mais ou par plus leur été être avoir fait c'est n'est j'ai ont était deux homme femme",
    "de": "der die das und ist nicht ein eine einen einem einer den dem des mit von zu zum im auf für sich sie ich wir "
    "er hat haben sind wird auch nach bei aus über wie dass noch vor",
    "es": "el la los las de y que en un una es por con no para se del al lo su como más está son fue pero",
    "it": "il lo gli di e che è un una per non con della dei sono ha nel alla del le si da come anche",
    "pt": "o os as de e que em um uma é não para com do da dos das se por ao mais foi está são",
    "nl": "de het een en van is dat niet op te met zijn voor ik er aan die ook om maar naar worden",
    "cs": "je se na že to do jsou si ale jako pro byl tak jak ve od by které který není také",
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
