"""The scenario: a site, its workload and its planning settings, as in one scenario file."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import ArgsKwargs, InitErrorDetails, PydanticCustomError

from firedex.wire.flows import Assignment
from firedex.wire.incident import PhaseProfile
from firedex.wire.mqtt_names import TopicName
from firedex.wire.network import Network
from firedex.wire.planning import Planning
from firedex.wire.scenario_checks import reference_problems
from firedex.wire.values import Flag, Identifier, NonNegative, Positive, value
from firedex.wire.workload import Publisher, Subscriber, Topic, Transport

__all__ = [
    "BandwidthChange",
    "Join",
    "KillablePart",
    "Leave",
    "LinkChange",
    "PartKill",
    "PhaseStart",
    "Scenario",
    "Surge",
    "TimelineEvent",
]

KillablePart = Literal["broker", "gateway", "service", "controller", "switch-agent"]


@value
class Join:
    """A subscriber joins. If this is its first event, it is absent at the start."""

    kind: Literal["join"] = "join"
    at_seconds: NonNegative
    subscriber: Identifier


@value
class Leave:
    """A subscriber leaves, and its registration is deleted."""

    kind: Literal["leave"] = "leave"
    at_seconds: NonNegative
    subscriber: Identifier


@value
class PhaseStart:
    """The incident enters another phase; ``phases`` defines the utilities of that phase."""

    kind: Literal["phase"] = "phase"
    at_seconds: NonNegative
    phase: Identifier


@value
class BandwidthChange:
    """The bandwidth of a switch changes, and the service is informed."""

    kind: Literal["bandwidth"] = "bandwidth"
    at_seconds: NonNegative
    switch: Identifier
    bandwidth_bits_per_second: Positive


@value
class LinkChange:
    """A link between two switches goes down or comes up again."""

    kind: Literal["link"] = "link"
    at_seconds: NonNegative
    from_: Annotated[Identifier, Field(alias="from")]
    to: Identifier
    up: Flag


@value
class Surge:
    """A publisher publishes at ``factor`` times its declared rate, on one topic or on all topics.

    The service is not informed; it has to detect the change by measurement.
    """

    kind: Literal["surge"] = "surge"
    at_seconds: NonNegative
    publisher: Identifier
    topic: TopicName | None = None
    factor: NonNegative
    for_seconds: Positive


@value
class PartKill:
    """A process is killed, and started again after ``down_seconds``."""

    kind: Literal["kill"] = "kill"
    at_seconds: NonNegative
    part: KillablePart
    down_seconds: NonNegative = 1.0


TimelineEvent = Annotated[
    Join | Leave | PhaseStart | BandwidthChange | LinkChange | Surge | PartKill,
    Field(discriminator="kind"),
]


@value
class Scenario:
    """Topics, publishers, subscribers, the network between them, and the planning settings.

    The constructor checks the scenario as a whole: unknown names, duplicate names and contradictory
    assignments are reported together with all other problems. ``phases`` and ``timeline`` are used
    by emulations only; a plan depends on the other fields.
    """

    name: Annotated[str, Field(strict=True, min_length=1)]
    transport: Transport = "udp"
    stamped_events: Flag = False
    topics: tuple[Topic, ...]
    publishers: tuple[Publisher, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    network: Network
    planning: Planning = Planning()
    assignment: tuple[Assignment, ...] | None = None
    phases: tuple[PhaseProfile, ...] = ()
    timeline: tuple[TimelineEvent, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _check_references(cls, data: Any, build: ValidatorFunctionWrapHandler) -> "Scenario":
        raw = data.kwargs if isinstance(data, ArgsKwargs) else data
        errors: list[InitErrorDetails] = []
        try:
            scenario: Scenario = build(data)
        except ValidationError as error:
            errors = [_to_init_error(details) for details in error.errors()]
        errors += [
            InitErrorDetails(
                type=PydanticCustomError("reference", "{text}", {"text": problem.message}),
                loc=problem.path,
                input=None,
            )
            for problem in reference_problems(raw)
        ]
        if errors:
            raise ValidationError.from_exception_data("Scenario", errors)
        return scenario


def _to_init_error(details: Any) -> InitErrorDetails:
    """Return an error in the form that a combined ``ValidationError`` takes."""
    context = details.get("ctx", {})
    kind: str | PydanticCustomError = details["type"]
    if details["type"] == "value_error":
        kind = PydanticCustomError("value_error", "{text}", {"text": details["msg"]})
        context = {}
    init_error = InitErrorDetails(type=kind, loc=details["loc"], input=details["input"])
    if context:
        init_error["ctx"] = context
    return init_error
