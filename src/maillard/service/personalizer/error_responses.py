"""Errors in the format of Personalizer's API."""

from __future__ import annotations

from http import HTTPStatus

from maillard import wire_schema as wire
from maillard.service.http_responses import HttpError, HttpResponse

_CODES = {400: "BadRequest", 404: "ResourceNotFound", 500: "InternalServerError"}


def personalizer_error_response(error: HttpError, request_id: str) -> HttpResponse:
    """The response for a call that fails. A value that is not allowed has status 400 there."""
    status = 400 if error.status == 422 else error.status
    detail = wire.PersonalizerError(
        code=_CODES.get(status) or HTTPStatus(status).phrase.title().replace(" ", ""),
        message=f"{error.message} (request {request_id})" if status >= 500 else error.message,
        inner_error=wire.PersonalizerInnerError(code=error.code),
    )
    if error.path is not None:
        detail.target = error.path
    return HttpResponse(status, wire.PersonalizerErrorResponse(error=detail), error.headers)
