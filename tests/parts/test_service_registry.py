"""Registrations survive the process that took them."""

import threading
from pathlib import Path

from parts_site import publisher, subscriber

from firedex.service.registry import Registry


def test_what_is_put_is_there_after_opening_the_file_again(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    first = Registry(file)
    kept_publisher = publisher("p0", {"smoke/1": 2.5}, event_bytes=51)
    kept_subscriber = subscriber("crew", "smoke/#", address="10.0.0.7", qos=1)
    first.put("p0", kept_publisher)
    first.put("crew", kept_subscriber)
    again = Registry(file)  # the first is still open, as after a crash
    assert again.publishers() == [kept_publisher]
    assert again.subscribers() == [kept_subscriber]


def test_a_second_registration_replaces_the_first(registry: Registry) -> None:
    registry.put("crew", subscriber("crew", "smoke/#"))
    registry.put("crew", subscriber("crew", "heat/#"))
    assert registry.subscribers() == [subscriber("crew", "heat/#")]


def test_a_publisher_and_a_subscriber_may_share_a_name(registry: Registry) -> None:
    registry.put("x", publisher("x", {"smoke/1": 1.0}))
    registry.put("x", subscriber("x", "smoke/1"))
    assert (len(registry.publishers()), len(registry.subscribers())) == (1, 1)


def test_they_are_listed_as_they_first_came(registry: Registry) -> None:
    for name in ("c", "a", "b"):
        registry.put(name, subscriber(name, "smoke/#"))
    registry.put("c", subscriber("c", "heat/#"))
    assert [kept.subscriber.id for kept in registry.subscribers()] == ["c", "a", "b"]


def test_many_threads_may_put_at_once(registry: Registry) -> None:
    threads = [
        threading.Thread(target=registry.put, args=(f"s{n}", subscriber(f"s{n}", "smoke/#")))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(registry.subscribers()) == 8


def test_no_version_is_given_twice(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    first = Registry(file)
    given = [first.next_version() for _ in range(3)] + [Registry(file).next_version()]
    assert given == [1, 2, 3, 4]
