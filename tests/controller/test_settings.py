"""The settings that the command passes to the controller application."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex_controller.settings import ControllerSettings, SwitchSettings, parse_switch

words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@given(
    st.dictionaries(
        words,
        st.builds(
            SwitchSettings,
            datapath_id=st.integers(1, 2**64 - 1),
            hosts_port=st.none() | words,
            agent=words,
        ),
        max_size=4,
    ),
    st.none() | words,
)
def test_settings_are_read_back_from_the_environment(
    switches: dict[str, SwitchSettings], token: str | None
) -> None:
    settings = ControllerSettings(
        switches=switches, api_host="10.0.0.1", api_port=1, token=token, state=Path("kept.json")
    )
    assert ControllerSettings.from_environment(settings.to_environment()) == settings


def test_switch_is_parsed() -> None:
    assert parse_switch("s1=00000000000000ff:s1-eth3") == ("s1", 255, "s1-eth3")
    assert parse_switch("s1=1") == ("s1", 1, None)


def test_repr_does_not_contain_tokens() -> None:
    assert "horse" not in repr(ControllerSettings(switches={}, token="horse"))  # noqa: S106


@pytest.mark.parametrize("text", ["", "s1", "s1=", "=1:p", "s1=0:p", "s1=-1:p", "s1=xyz:p"])
def test_error_for_an_invalid_switch_shows_the_expected_format(text: str) -> None:
    with pytest.raises(ValueError, match=r"write NAME=DATAPATH_ID or NAME=DATAPATH_ID:PORT"):
        parse_switch(text)
