"""The tables of a log, the same in SQLite and PostgreSQL. docs/reference/decision-log.md has every column.

A log stores the version of its tables. Opening an older log runs the missing migrations in one transaction;
a newer log is refused. Released migrations are never edited: every change is a new migration.
"""

from __future__ import annotations

from maillard.errors import InvalidLog

# Each database substitutes its own types: {identity}, {whole} (64-bit integer), {real} (double), {bytes},
# {table} (options).
_FIRST = """
CREATE TABLE experiments (
    id {identity},
    name TEXT NOT NULL UNIQUE,
    number {whole} NOT NULL,
    administrative {whole} NOT NULL,
    epoch {whole} NOT NULL
);
CREATE TABLE events (
    experiment {whole} NOT NULL,
    number {whole} NOT NULL,
    kind TEXT NOT NULL,
    time {whole} NOT NULL,
    decision TEXT,
    arm TEXT,
    value {real},
    previous {real},
    payload TEXT,
    PRIMARY KEY (experiment, number)
) {table};
CREATE INDEX events_by_decision ON events (decision) WHERE decision IS NOT NULL;
CREATE TABLE decisions (
    id TEXT NOT NULL PRIMARY KEY,
    experiment {whole} NOT NULL,
    time {whole} NOT NULL,
    unit TEXT,
    arm TEXT NOT NULL,
    log_probability {real} NOT NULL,
    eligible TEXT NOT NULL,
    log_probabilities TEXT NOT NULL,
    policy_version {whole} NOT NULL,
    formula_version {whole} NOT NULL,
    state {whole} NOT NULL,
    epoch {whole} NOT NULL,
    cold {whole} NOT NULL,
    idempotency_key TEXT,
    position {whole} NOT NULL,
    origin TEXT
) {table};
CREATE UNIQUE INDEX decisions_by_key ON decisions (experiment, idempotency_key, position)
    WHERE idempotency_key IS NOT NULL;
CREATE TABLE rewards (
    decision TEXT NOT NULL,
    event TEXT NOT NULL,
    value {real} NOT NULL,
    at {whole} NOT NULL,
    arrived {whole} NOT NULL,
    late {whole} NOT NULL,
    PRIMARY KEY (decision, event)
) {table};
CREATE TABLE parked (
    experiment {whole} NOT NULL,
    decision TEXT NOT NULL,
    event TEXT NOT NULL,
    value {real} NOT NULL,
    at {whole} NOT NULL,
    arrived {whole} NOT NULL,
    expires {whole},
    PRIMARY KEY (experiment, decision, event)
) {table};
CREATE TABLE pending (
    experiment {whole} NOT NULL,
    closes {whole} NOT NULL,
    decision TEXT NOT NULL UNIQUE,
    PRIMARY KEY (experiment, closes, decision)
) {table};
CREATE TABLE checkpoints (
    experiment {whole} NOT NULL PRIMARY KEY,
    number {whole} NOT NULL,
    state TEXT NOT NULL
) {table};
CREATE TABLE assignments (
    experiment {whole} NOT NULL,
    epoch {whole} NOT NULL,
    unit TEXT NOT NULL,
    decision TEXT NOT NULL,
    PRIMARY KEY (experiment, epoch, unit)
) {table};
"""

# Documents of the service, such as API keys.
_DOCUMENTS = """
CREATE TABLE documents (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) {table};
"""

# Distributions in binary form, stored once for the decisions that share one; and the hash chain. Decisions
# that were logged before have their distributions as text, and no link. The links of all experiments are in
# the order of their commits, and only every 64th is indexed: a commit of many experiments writes few pages.
_CHAIN = """
CREATE TABLE arm_lists (
    experiment {whole} NOT NULL,
    arms {whole} NOT NULL,
    names TEXT NOT NULL,
    PRIMARY KEY (experiment, arms)
) {table};
CREATE TABLE vectors (
    experiment {whole} NOT NULL,
    state {whole} NOT NULL,
    variant {whole} NOT NULL,
    arms {whole} NOT NULL,
    data {bytes} NOT NULL,
    PRIMARY KEY (experiment, state, variant)
) {table};
CREATE TABLE links (
    sequence {identity},
    experiment {whole} NOT NULL,
    number {whole} NOT NULL,
    hash {bytes} NOT NULL,
    time {whole} NOT NULL,
    first_event {whole} NOT NULL,
    events {whole} NOT NULL,
    decisions {bytes} NOT NULL,
    rewards {bytes} NOT NULL
);
CREATE INDEX links_by_number ON links (experiment, number) WHERE number % 64 = 0;
CREATE TABLE chains (
    experiment {whole} NOT NULL PRIMARY KEY,
    number {whole} NOT NULL,
    hash {bytes} NOT NULL
) {table};
ALTER TABLE decisions ADD COLUMN variant {whole};
ALTER TABLE decisions ADD COLUMN seal {bytes};
"""

# Contexts: as the caller gave them, and in the encoded form that distributions were computed from.
_CONTEXTS = """
ALTER TABLE decisions ADD COLUMN context TEXT;
ALTER TABLE decisions ADD COLUMN actions TEXT;
ALTER TABLE decisions ADD COLUMN encoded {bytes};
ALTER TABLE decisions ADD COLUMN feature_version {whole};
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _DOCUMENTS, _CHAIN, _CONTEXTS)


# A read-only connection cannot migrate an older log. Temporary tables and views give it what is missing.
_WITHOUT_CHAIN = """
CREATE TEMP TABLE arm_lists (experiment, arms, names);
CREATE TEMP TABLE vectors (experiment, state, variant, arms, data);
CREATE TEMP TABLE links (sequence, experiment, number, hash, time, first_event, events, decisions, rewards);
CREATE TEMP TABLE chains (experiment, number, hash);
CREATE TEMP VIEW decisions AS SELECT *, NULL AS variant, NULL AS seal, {contexts} FROM main.decisions
"""
_NO_CONTEXTS = "NULL AS context, NULL AS actions, NULL AS encoded, NULL AS feature_version"
_WITHOUT_CONTEXTS = "CREATE TEMP VIEW decisions AS SELECT *, {contexts} FROM main.decisions"


def missing_tables(version: int) -> str:
    """The statements that let a read-only connection of SQLite read a log of an older version."""
    if version == len(MIGRATIONS):
        return ""
    return (_WITHOUT_CHAIN if version < 3 else _WITHOUT_CONTEXTS).format(contexts=_NO_CONTEXTS)


def check_version(version: int) -> int:
    """Return the version of a log's tables, unless it is newer than the migrations."""
    if version > len(MIGRATIONS):
        allowed = f"a log of version {len(MIGRATIONS)} or older; a newer maillard wrote this one"
        raise InvalidLog("log version", version, allowed)
    return version
