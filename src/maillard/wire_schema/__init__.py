"""The request and response bodies of the HTTP API, as msgspec structs shared by the service and the client.

A struct that mirrors a Python class, such as `Decision` or `Reward`, has the name of that class and the same
field names. The service derives its OpenAPI document from these structs.
"""

from maillard.wire_schema.activity_responses import *  # noqa: F403
from maillard.wire_schema.context_responses import *  # noqa: F403
from maillard.wire_schema.evaluation_responses import *  # noqa: F403
from maillard.wire_schema.personalizer import *  # noqa: F403  # the bodies of Personalizer's API
from maillard.wire_schema.requests import *  # noqa: F403  # every request body
from maillard.wire_schema.responses import *  # noqa: F403  # every response body
