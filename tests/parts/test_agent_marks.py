"""The mark of each class."""

import pytest

from firedex_controller.marks import dscp_of_class


def test_classes_never_share_a_mark() -> None:
    marks = [dscp_of_class(priority) for priority in range(64)]
    assert sorted(marks) == list(range(64))


def test_the_highest_is_expedited_and_only_the_last_is_unmarked() -> None:
    assert dscp_of_class(0) == 46
    assert [dscp_of_class(p) for p in (45, 46, 62, 63)] == [1, 47, 63, 0]


@pytest.mark.parametrize("priority", [-1, 64])
def test_others_have_none(priority: int) -> None:
    with pytest.raises(ValueError, match=str(priority)):
        dscp_of_class(priority)
