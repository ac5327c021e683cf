"""What requests and answers look like: data that the decoder, the OpenAPI document and the tests all read."""

from maillard.service.messages import answers, requests
from maillard.service.messages.answers import *  # noqa: F403  # all of them are messages
from maillard.service.messages.kinds import MOST_ITEMS, Status
from maillard.service.messages.requests import *  # noqa: F403  # the same

__all__ = ["MOST_ITEMS", "Status"]
__all__ += answers.__all__
__all__ += requests.__all__
