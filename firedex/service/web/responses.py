"""Error responses, with the same JSON body from every part of the server."""

from starlette.responses import Response

from firedex.service.errors import RequestError, Unavailable
from firedex.wire import to_json
from firedex.wire.service_api import ErrorProblem, ErrorResponse

__all__ = ["database_unavailable", "error_body", "error_response"]


def error_body(message: str, problems: tuple[ErrorProblem, ...] = ()) -> bytes:
    """Return the JSON body of an error."""
    return to_json(ErrorResponse(error=message, problems=problems)).encode()


def error_response(error: RequestError, *, close: bool = False) -> Response:
    """Return the response to a rejected request; ``close``: the connection is closed after it."""
    headers = {**error.headers, **({"Connection": "close"} if close else {})}
    body = error_body(str(error))
    return Response(body, error.status, headers=headers, media_type="application/json")


def database_unavailable() -> Unavailable:
    """Return the error of a request that needs the database while it cannot be used."""
    return Unavailable("the database is temporarily unavailable; retry later")
