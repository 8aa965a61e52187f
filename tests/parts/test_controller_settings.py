"""What the launcher hands to the controller's app."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firedex_controller.settings import ControllerSettings, parse_switch

# Whatever the command line accepts: the name ends at the first '=', the port is the rest.
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@given(
    st.dictionaries(
        names.filter(lambda name: "=" not in name),
        st.tuples(st.integers(1, 2**64 - 1), names),
        max_size=4,
    )
)
def test_settings_survive_the_environment(switches: dict[str, tuple[int, str]]) -> None:
    settings = ControllerSettings(switches=switches, api_host="10.0.0.1", api_port=8080)
    assert ControllerSettings.from_environment(settings.to_environment()) == settings


def test_a_switch_by_name_datapath_and_port() -> None:
    assert parse_switch("s1=00000000000000ff:s1-eth3") == ("s1", (255, "s1-eth3"))


def test_by_default_there_are_no_switches_and_the_api_is_on_loopback() -> None:
    found = ControllerSettings.from_environment({})
    assert found == ControllerSettings(switches={}, api_host="127.0.0.1", api_port=8080)


@pytest.mark.parametrize(
    "text", ["", "s1", "s1=", "s1=1", "s1=1:", "=1:p", "s1=0:p", "s1=-1:p", "s1=xyz:p", "s1:1=p"]
)
def test_a_switch_that_is_none_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"write NAME=DATAPATH_ID:PORT, such as s1=0+1:s1-eth3"):
        parse_switch(text)
