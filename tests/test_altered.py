"""What a translation should have kept letter by letter and did not is told (needs 15 and 33)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xyd.guards import altered, numbers


@pytest.mark.need(15)
@pytest.mark.parametrize(
    "token",
    ["%s", "%1$s", "%d", "%(count)d", "{name}", "{{a.b}}", "{0}", "<b>", "</b>", '<a href="x">', "https://a.org/b?c=1",
     "me@example.org"],
)  # fmt: skip
def test_a_lost_or_changed_placeholder_is_told(token: str) -> None:
    source = f"Please open {token} now."
    assert altered(source, f"Ouvrez {token} maintenant.") == []
    (told,) = altered(source, "Ouvrez maintenant.")
    assert told == f"{token} is in the source 1 times, in the translation 0"
    assert altered(source, f"Ouvrez {token} {token}.")[0].endswith("in the translation 2")
    assert altered(source, f"Ouvrez {token[:-1]} maintenant.")


@pytest.mark.need(33)
@pytest.mark.parametrize(
    ("source", "text", "told"),
    [
        ("Room 231, floor 3.", "Étage 3, salle 231.", []),
        ("Room 231.", "Salle 239.", ["numbers differ: 231 became 239"]),
        ("Version 2.10", "Version 2.1", ["numbers differ: 10 became 1"]),
        ("Two cats.", "2 chats.", ["numbers differ: none became 2"]),
        ("In 1999.", "1999年。", []),
        ("2024-05-31", "2024年5月31日", ["numbers differ: 05 became 5"]),
        ("１２ cats", "12 chats", []),
        ("100% sure", "100 % sûr", []),
    ],
)
def test_changed_numbers_are_told(source: str, text: str, told: list[str]) -> None:
    assert altered(source, text) == told


@given(st.text(max_size=60))
def test_a_text_is_faithful_to_itself(text: str) -> None:
    assert altered(text, text) == []


@pytest.mark.need(33)
def test_numbers_are_those_outside_placeholders_and_addresses() -> None:
    assert numbers("Take 2 of %1$s at https://a.org/7 by ３ p.m., 2 left.") == {"2": 2, "3": 1}
    assert numbers("None here, {0}.") == {}
