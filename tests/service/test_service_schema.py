"""Schemathesis against `maillard serve`: valid and invalid requests, and sequences of requests."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, CheckContext, load_all_checks
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source

from maillard.decisions.stores import open_store
from maillard.service.api_keys import create
from maillard.service.openapi import openapi_document
from maillard.service.operations import OPERATIONS
from tests.service.raw_http import error
from tests.serving import Service, serving

FEW, MANY = 30, 500  # examples of each operation, in `make test` and in `make torture`
SLOW = {"export": 10, "evaluate": 10, "verify": 10}  # in `make test`: a worker process runs these
# Seconds. Schemathesis allows 10, in which a busy machine may not start the process that evaluates.
TIMEOUT = 300

KEYS = ["one", "two"]
ARMS = ["red", "blue", "a/b ü"]
NEW = {"arms": ARMS, "policy": "ms+:booster=8", "reward": {"low": 0, "high": 1}}
POLICIES = [
    "ms+:booster=8", "ms", "uniform", "epsilon-greedy", "ts", "ucb1", "kl-ms", "boltzmann", "med",
    "moss-anytime", "ms+:floor=0.05", "ms:sigma2=1e-300", "ms:sigma2=1e300", "ms+:booster=1e300",
]  # fmt: skip
TARGETS = [
    "uniform",
    "arm:red",
    "dist:red=0.5,blue=0.5",
    "ms+:booster=16",
    "ts",
    "greedy",
    "rule:else->red",
    "frozen:1",
]
RULES: list[Any] = [
    {"low": 0, "high": 1},
    {"low": -1e290, "high": 1e290, "combine": "sum"},
    {"low": 0, "high": 1, "window": 1e-6, "default": 0},
    {"low": 0, "high": 1, "window": 1e9, "learn": "on_close"},
    {"low": 0, "high": 5e-324},
    {},
]

load_all_checks()


def suite(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def forbid_other_fields(document: Any) -> Any:
    """The document with responses that forbid undocumented fields, and without API keys.

    Schemathesis would vary the keys, which test_service_security.py does.
    """
    made = copy.deepcopy(document)
    for methods in made["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    for part in made["components"]["schemas"].values():
        if "properties" in part:
            part.setdefault("additionalProperties", False)
    return made


def load_schema(document: Any) -> Any:
    rejected = ["400", "404", "405", "412", "413", "415", "422", "428"]
    expected = {"expected-statuses": rejected}
    checks = {"negative_data_rejection": expected, "missing_required_header": expected}
    return schemathesis.openapi.from_dict(document, config=schemathesis.Config.from_dict({"checks": checks}))


SCHEMA: Any = load_schema(forbid_other_fields(openapi_document()))
BY_NAME = {each.name: each for each in OPERATIONS}


def check_error_format(_: CheckContext, response: Any, case: Any) -> None:
    """Every error has the documented format, and none is unexpected."""
    if response.status_code >= 400:
        found = error(_TextHeaders(response))
        assert "unexpected" not in found["message"], found
    elif BY_NAME[name_of(case)].items:
        for each in json.loads(response.content)["results"]:
            assert each["status"] < 500
            assert ("error" in each) == (each["status"] >= 400)


def check_rejection(context: CheckContext, response: Any, case: Any) -> None:
    """Schemathesis' check; in a batch, it is enough that an item is rejected."""
    batch = response.status_code == 200 and BY_NAME[name_of(case)].items
    if batch and any(each["status"] == 422 for each in json.loads(response.content)["results"]):
        return
    check: Any = CHECKS.get_one("negative_data_rejection")
    check(context, response, case)


class _TextHeaders:
    """A response whose headers are strings."""

    def __init__(self, response: Any) -> None:
        self.status_code, self.content = response.status_code, response.content
        self.headers = {name: value[0] for name, value in response.headers.items()}


def name_of(case: Any) -> str:
    return str(case.operation.definition.raw["operationId"])


ALL: list[Any] = [
    *CHECKS.get_by_names(
        ["not_a_server_error", "status_code_conformance", "content_type_conformance", "unsupported_method",
         "response_headers_conformance", "response_schema_conformance", "missing_required_header"]
    ),
    check_rejection,
    check_error_format,
]  # fmt: skip


# The narrowed document forbids values that the service allows.
EXCEPT_REJECTION = [each for each in ALL if each is not check_rejection]


class RecordingClient:
    """Sends requests to a service and counts the responses."""

    def __init__(self, service: Service, session: requests.Session) -> None:
        self.service, self.session = service, session
        self.responses: Counter[tuple[str, int]] = Counter()

    def send(self, case: Any) -> Any:
        response = case.call(base_url=self.service.url, session=self.session, timeout=TIMEOUT)
        if case.method.upper() == case.operation.method.upper():
            self.responses[name_of(case), response.status_code] += 1
        return response

    def check(self, case: Any) -> None:
        case.validate_response(self.send(case), checks=ALL)

    def prepare(self, key: str) -> str:
        """Create the experiment if necessary, resume it, and return the id of a new decision."""
        path = f"{self.service.url}/v1/experiments"
        self.session.post(path, json=NEW | {"experiment": key})
        self.session.post(f"{path}/{key}:resume")
        made = self.session.post(f"{path}/{key}/decisions", json={})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingClient]:
    log = tmp_path_factory.mktemp("schema") / "log.db"
    with closing(open_store(log)) as store:
        _, secret = create(store, "admin", ["admin"])
    options = ["--rate-limit", "0", "--log-level", "warning"]
    with serving(log, no_keys=False, options=options) as service, requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {secret}"
        yield RecordingClient(service, session)
        assert "traceback" not in service.output.lower(), service.output[-4000:]


def test_the_service_serves_its_openapi_document(recorder: RecordingClient) -> None:
    found = httpx2.get(f"{recorder.service.url}/openapi.json").json()
    assert found == json.loads(json.dumps(openapi_document()))
    described = {(path, method.upper()) for path, methods in found["paths"].items() for method in methods}
    assert described == {(each.path.replace(":anything}", "}"), each.method) for each in OPERATIONS}


def test_the_document_says_which_operations_require_a_key(recorder: RecordingClient) -> None:
    document = openapi_document()
    for operation in OPERATIONS:
        described = document["paths"][operation.path.replace(":anything}", "}")][operation.method.lower()]
        assert described.get("security") == (None if operation.scope is None else [{"key": []}])
        if operation.method == "GET" and "{" not in operation.path:
            status = httpx2.get(recorder.service.url + operation.path).status_code
            assert status == (200 if operation.scope is None else 401)


# Valid and invalid requests, at the limits of the document and at random.


@pytest.mark.parametrize("name", BY_NAME)
def test_every_operation(recorder: RecordingClient, name: str) -> None:
    """As `SCHEMA.parametrize()`, which would make the requests at the limits whenever tests are collected."""

    @suite(FEW)
    def check(case: Any) -> None:
        recorder.check(case)

    build_operation_test(
        config=SCHEMA.config,
        operation=SCHEMA.find_operation_by_id(name),
        test_func=check,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(SCHEMA)),
    )()


@pytest.mark.torture
@pytest.mark.parametrize("name", BY_NAME)
def test_every_operation_with_many_examples(recorder: RecordingClient, name: str) -> None:
    """Random requests only."""
    operation = SCHEMA.find_operation_by_id(name)

    @suite(MANY)
    @given(st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
    def check(case: Any) -> None:
        recorder.check(case)

    check()


# Valid requests for existing experiments and decisions.


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
eligible = st.none() | st.lists(st.sampled_from(ARMS), min_size=1)
values = st.floats(0, 1) | st.sampled_from([0, 1, 0.5])
times = st.none() | st.floats(0, 4e9) | st.sampled_from(["2026-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00"])
keyed = {"unit": st.none() | names, "eligible": eligible}
rewarded = {"at": times, "event": st.none() | st.sampled_from("abc") | names}


def bodies(operation: str, decision: str) -> Any:
    """Bodies that an operation usually accepts."""
    objects: Any = st.fixed_dictionaries
    batch = {"idempotency_key": st.none() | st.sampled_from("abc")}
    return {
        "decide": objects({}, optional=keyed),
        "decide_batch": objects({"decisions": st.lists(objects({}, optional=keyed | batch), max_size=30)}),
        "reward": objects({"value": values}, optional=rewarded),
        "reward_batch": objects(
            {
                "rewards": st.lists(
                    objects({"value": values, "decision": st.just(decision)}, optional=rewarded),
                    max_size=30,
                )
            }
        ),
        "create_experiment": objects(
            {
                "experiment": st.from_regex(r"\A[a-z]{1,12}\Z"),
                "arms": st.lists(names, min_size=1, unique=True),
                "policy": st.sampled_from(POLICIES),
                "reward": st.just(RULES[0]) | st.sampled_from(RULES),  # most policies need a range
            },
            optional={"sticky": st.booleans()},
        ),
        "evaluate": objects(
            {"target": st.sampled_from(TARGETS)},
            optional={
                "confidence": st.floats(0.5, 0.999),
                "by": st.sampled_from([["device"], ["device", "page"]]),
                "estimators": st.lists(
                    st.sampled_from(["ips", "snips", "dr", "aipw", "cs-betting"]), min_size=1
                ),
            },
        ),
        "add_arm": objects({"arm": names | st.sampled_from(ARMS)}),
        "change_experiment": objects({"policy": st.sampled_from(POLICIES)}),
    }.get(operation)


def valid_cases(operation: Any, name: str, decision: str) -> st.SearchStrategy[Any]:
    """Requests for an existing experiment or decision."""
    fields: dict[str, Any] = {}
    path: dict[str, Any] = {
        "experiment": st.just(name),
        "id": st.just(decision),
        "arm": st.sampled_from(ARMS),
    }
    taken = [parameter.name for parameter in operation.path_parameters]
    fields["path_parameters"] = st.fixed_dictionaries({each: path[each] for each in taken})
    if (body := bodies(name, decision)) is not None:
        fields |= {"body": body, "media_type": st.just("application/json")}
    offered = {"If-Match": st.sampled_from(["*", '"1"', '"2"']), "Idempotency-Key": st.sampled_from("abc")}
    headers = [parameter.name for parameter in operation.headers]
    fields["headers"] = st.fixed_dictionaries({}, optional={each: offered[each] for each in headers})
    return st.builds(operation.Case, **fields)


def check_existing(recorder: RecordingClient, name: str, examples: int) -> None:
    operation = SCHEMA.find_operation_by_id(name)
    decision = recorder.prepare(name)
    pins = {"experiment": name, "id": decision}
    taken = {each.name: pins[each.name] for each in operation.path_parameters if each.name in pins}

    @suite(examples)
    @given(st.one_of(valid_cases(operation, name, decision), operation.as_strategy(path_parameters=taken)))
    def check(case: Any) -> None:
        recorder.check(case)

    check()
    found = {status for operation_name, status in recorder.responses if operation_name == name}
    promised = {status for status, (kind, _) in BY_NAME[name].responses.items() if status < 300}
    assert found & promised, found


NAMES = [each.name for each in OPERATIONS if each.body or "{" in each.path]


@pytest.mark.parametrize("name", NAMES)
def test_existing_experiments(recorder: RecordingClient, name: str) -> None:
    check_existing(recorder, name, SLOW.get(name, FEW))


@pytest.mark.torture
@pytest.mark.parametrize("name", NAMES)
def test_existing_experiments_with_many_examples(recorder: RecordingClient, name: str) -> None:
    check_existing(recorder, name, MANY)


# Sequences of requests. Schemathesis infers which responses provide values for other requests.


def narrowed(document: Any) -> Any:
    """The document with fewer values, so that most requests of a sequence succeed."""
    made = copy.deepcopy(document)
    schemas = made["components"]["schemas"]
    schemas["NewExperiment"]["properties"] |= {
        "experiment": {"enum": KEYS},
        "policy": {"enum": POLICIES},
        "arms": {"enum": [ARMS, ["red"], ["red", "blue"]]},
        "reward": {"enum": RULES},
    }
    schemas["ExperimentChange"]["properties"]["policy"] = {"enum": POLICIES}
    schemas["NewArm"]["properties"]["arm"] = {"enum": [*ARMS, "green"]}
    for name in ("RewardRequest", "RewardBatchEntry"):
        schemas[name]["properties"]["value"] = {"enum": [0, 0.5, 1]}
    for name in ("DecisionRequest", "DecisionBatchEntry"):
        schemas[name]["properties"]["eligible"] = {"enum": [None, ["red"], ["red", "blue"]]}
    schemas["EvaluationRequest"]["properties"]["target"] = {"enum": TARGETS}
    few = {
        "experiment": KEYS,
        "arm": ARMS,
        "If-Match": ["*", '"1"', '"2"', '"3"'],
        "Idempotency-Key": ["a", "b"],
    }
    for methods in made["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter["name"] in few:
                    parameter["schema"] = {"enum": few[parameter["name"]]}
    _add_links(made)
    return made


# For each operation and status: the operations that can use a field of the response as a path parameter.
# Schemathesis does not infer these links, because the schemas of the responses have other names.
LINKS = [
    ("create_experiment", "201", "experiment", ["decide", "read_state"]),
    ("add_arm", "201", "experiment", ["decide"]),
    *(
        (name, "200", "experiment", ["decide"])
        for name in ("change_experiment", "read_experiment", "read_state")
    ),
    *((name, "200", "experiment", ["decide"]) for name in ("reset", "resume", "retire_arm")),
    ("decide", "201", "id", ["reward", "read_decision"]),
    ("read_decision", "200", "id", ["reward"]),
]


def _add_links(document: Any) -> None:
    operations = {
        operation["operationId"]: operation
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    for name, status, field, targets in LINKS:
        parameters = {field: f"$response.body#/{field}"}
        operations[name]["responses"][status]["links"] = {
            target: {"operationId": target, "parameters": parameters} for target in targets
        }


def run_sequences(recorder: RecordingClient, examples: int, steps: int) -> Counter[tuple[str, int]]:
    """Run random sequences, each on its own experiments; the number of responses by operation and status."""
    before, numbers = Counter(recorder.responses), itertools.count()
    # A sequence must be repeatable, so it must not list the experiments of other sequences.
    schema = load_schema(narrowed(forbid_other_fields(openapi_document()))).exclude(
        operation_id="list_experiments"
    )

    class Sequence(schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            self.number = next(numbers)
            recorder.prepare(f"w{self.number}-{KEYS[0]}")

        def before_call(self, case: Any) -> None:
            if isinstance(case.body, dict) and case.body.get("experiment") in KEYS:
                case.body = case.body | {"experiment": f"w{self.number}-{case.body['experiment']}"}
            if case.path_parameters.get("experiment") in KEYS:
                case.path_parameters["experiment"] = f"w{self.number}-{case.path_parameters['experiment']}"

        def call(self, case: Any, **_: Any) -> Any:
            return recorder.send(case)

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            case.validate_response(response, checks=EXCEPT_REJECTION)

    Sequence.run(settings=suite(examples, stateful_step_count=steps))
    return recorder.responses - before


@pytest.mark.parametrize(("examples", "steps"), [(15, 15), pytest.param(MANY, 50, marks=pytest.mark.torture)])
def test_sequences_of_requests(recorder: RecordingClient, examples: int, steps: int) -> None:
    responses = run_sequences(recorder, examples, steps)
    assert sum(responses.values()) > examples
    if (
        examples < MANY
    ):  # which sequences get this far depends on identifiers that the service chooses at random
        return
    for expected in [
        ("create_experiment", 201),
        ("decide", 201),
        ("reward", 201),
        ("read_state", 200),
        ("read_decision", 200),
    ]:
        assert responses[expected], responses
