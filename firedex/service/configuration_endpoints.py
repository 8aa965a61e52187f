"""What is in force, what was, what differs, what would be."""

from firedex.service.configuration_difference import difference
from firedex.service.endpoints import STAFF, Call, Endpoint, Query, Reply, endpoint
from firedex.service.errors import Conflict, Unknown
from firedex.service.what_if import answer_what_if
from firedex.wire import Configuration, Prediction, to_json
from firedex.wire.service_api import (
    ConfigurationDifference,
    ConfigurationRecord,
    ServiceStatus,
    WhatIf,
    WhatIfAnswer,
)

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = []
NONE_YET = "nothing is configured yet"
LIMIT = Query(
    name="limit",
    about="At most so many.",
    schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
)
BEFORE = Query(
    name="before",
    about="Only those before this number.",
    schema={"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
)


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configuration",
    roles=STAFF,
    answers={200: Configuration, 304: None},
    tagged=True,
    refusals=frozenset({404}),
)
def get_configuration(call: Call) -> Reply:
    """The configuration in force, with all flows; its version is the ETag."""
    now = call.service.in_force
    if now is None:
        raise Unknown(NONE_YET)
    tag = f'"{now.version}"'
    if tag in call.seen:
        return Reply(status=304, headers={"ETag": tag})
    return Reply(text=now.document.whole(), headers={"ETag": tag})


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/predictions",
    roles=STAFF,
    answers={200: Prediction},
    refusals=frozenset({404}),
)
def get_predictions(call: Call) -> Reply:
    """What every subscription is predicted to get under the configuration in force."""
    now = call.service.in_force
    prediction = now.document.value().prediction if now else None
    if prediction is None:
        raise Unknown(NONE_YET)
    return Reply(text=to_json(prediction))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configurations",
    roles=STAFF,
    answers={200: tuple[ConfigurationRecord, ...]},
    query=(BEFORE, LIMIT),
)
def get_configurations(call: Call) -> Reply:
    """Every configuration that was planned, newest first, with reason, timing and outcome."""
    records = call.service.configurations.records(
        call.query.get("before"), call.query.get("limit", 100)
    )
    return Reply(value=tuple(records))


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configurations/{version}",
    roles=STAFF,
    answers={200: Configuration},
    refusals=frozenset({404}),
)
def get_one_configuration(call: Call) -> Reply:
    """Any configuration that was planned, whole."""
    document = call.service.configurations.document(int(call.path["version"]))
    if document is None:
        raise Unknown(f"there is no configuration {call.path['version']}")
    return Reply(text=document.whole())


@endpoint(
    ENDPOINTS,
    "GET",
    "/v1/configurations/{version}/difference/{to_version}",
    roles=STAFF,
    answers={200: ConfigurationDifference},
    refusals=frozenset({404}),
)
def get_difference(call: Call) -> Reply:
    """What changed from one configuration to another."""
    found = []
    for part in ("version", "to_version"):
        document = call.service.configurations.document(int(call.path[part]))
        if document is None:
            raise Unknown(f"there is no configuration {call.path[part]}")
        found.append(document.value())
    before, after = found
    return Reply(value=difference(before.version, before.flows, after.version, after.flows))


@endpoint(
    ENDPOINTS,
    "POST",
    "/v1/what-if",
    roles=STAFF,
    body=WhatIf,
    answers={200: WhatIfAnswer},
    refusals=frozenset({409, 503}),
)
def post_what_if(call: Call) -> Reply:
    """Plan for a hypothetical change without applying it."""
    service = call.service
    if not service.planning.acquire(timeout=10.0):
        raise Busy("other hypothetical plans are being made; come again")
    try:
        state = service.reader().read()
        now = service.in_force.document.value() if service.in_force else None
        return Reply(value=answer_what_if(service.options.settings, state, now, call.body))
    finally:
        service.planning.release()


class Busy(Conflict):
    """Too many hypothetical plans at once."""

    status = 503


@endpoint(ENDPOINTS, "GET", "/v1/status", roles=STAFF, answers={200: ServiceStatus})
def get_status(call: Call) -> Reply:
    """The service at a glance: what is in force, what is pending, what is wrong."""
    return Reply(value=call.service.status())
