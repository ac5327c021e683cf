"""API keys. They are stored in the log's database, with a hash instead of the secret."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from maillard.decisions.identifiers import check_name
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Transaction
from maillard.errors import InvalidValue, UnknownName
from maillard.wire_schema.loopback import is_loopback

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[Scope, ...] = Scope.__args__  # type: ignore[attr-defined]

_DOCUMENT_KIND = "key"
_ID_LENGTH = 12  # hexadecimal digits
_SECRET_BYTES = 32
_PREFIX = "mk_"
_SECRET_LENGTH = len(_PREFIX) + _ID_LENGTH + 1 + 43  # 32 bytes are 43 characters
_MAX_RATE = 1e9  # requests per second
_FIRST_NAME = "first admin key"


# A key with unknown fields is rejected: in a newer version, such a field may restrict the key.
class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stored key."""

    id: Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{_ID_LENGTH}}}$")]
    "Identifies the key in lists and logs. Not secret."
    name: Annotated[str, msgspec.Meta(min_length=1)]
    "A description by the owner."
    scopes: tuple[Scope, ...]
    "`admin` includes all others."
    experiments: tuple[str, ...] | None
    "The experiments that the key allows; None: all."
    rate: Annotated[float, msgspec.Meta(gt=0)] | None
    "Requests per second, instead of the service's limit."
    created: int
    "Microseconds since 1970, from the store's clock."
    revoked: int | None
    "Microseconds since 1970, or None."
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    "SHA-256 of the secret."

    def may(self, scope: str) -> bool:
        """Whether the key has this scope."""
        return scope in self.scopes or "admin" in self.scopes

    def reaches(self, experiment: str) -> bool:
        """Whether the key allows this experiment."""
        return self.experiments is None or experiment in self.experiments


def create(
    store: Store,
    name: str,
    scopes: Sequence[str],
    experiments: Sequence[str] | None = None,
    rate: float | None = None,
) -> tuple[Key, str]:
    """Create a key. Returns the key and its secret, which is not stored. The experiments need not exist yet.

    >>> from maillard.decisions.stores import open_store
    >>> store = open_store(None)
    >>> key, secret = create(store, "web", ["reward", "decide"], experiments=["home"])
    >>> key.scopes, key.may("read"), key.reaches("home"), key.reaches("shop")
    (('decide', 'reward'), False, True, False)
    >>> Keyring(store).find(secret) == key
    True
    """
    check_name("name", name)
    chosen, limited, own_rate = _scopes(scopes), _experiments(experiments), _rate(rate)
    with store.transaction("", lock=False) as transaction:
        key, secret = _generate(transaction, name, chosen, experiments=limited, rate=own_rate)
        _put(transaction, key)
    return key, secret


def create_first(store: Store, show: Callable[[str], None]) -> Key | None:
    """Create a key with the scope admin if no key was ever created. Returns the key, or None.

    `show` gets the secret before the key is stored. If it raises, no key is created. Of several processes
    that call this at the same time, one creates a key.

    >>> from maillard.decisions.stores import open_store
    >>> store, shown = open_store(None), []
    >>> key = create_first(store, shown.append)
    >>> key.name, key.scopes, Keyring(store).find(shown[0]) == key
    ('first admin key', ('admin',), True)
    >>> create_first(store, shown.append), len(shown)
    (None, 1)
    """
    with store.transaction("", lock=False, exclusive=True) as transaction:
        if transaction.documents(_DOCUMENT_KIND):
            return None
        key, secret = _generate(transaction, _FIRST_NAME, ("admin",), experiments=None, rate=None)
        show(secret)
        _put(transaction, key)
    return key


def _generate(
    transaction: Transaction,
    name: str,
    scopes: tuple[Scope, ...],
    *,
    experiments: tuple[str, ...] | None,
    rate: float | None,
) -> tuple[Key, str]:
    """A new key, which is not stored yet, and its secret."""
    taken = transaction.documents(_DOCUMENT_KIND)
    while (identifier := secrets.token_hex(_ID_LENGTH // 2)) in taken:
        pass
    secret = f"{_PREFIX}{identifier}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    key = Key(
        id=identifier,
        name=name,
        scopes=scopes,
        experiments=experiments,
        rate=rate,
        created=transaction.now,
        revoked=None,
        digest=_digest(secret).hex(),
    )
    return key, secret


def _put(transaction: Transaction, key: Key) -> None:
    transaction.put_document(_DOCUMENT_KIND, key.id, msgspec.json.encode(key).decode())


def revoke(store: Store, id: str) -> Key:
    """Revoke a key. Other processes notice when they next refresh their keyrings.

    Revoking a revoked key changes nothing.
    """
    with store.transaction("", lock=False) as transaction:
        kept = _read(transaction.documents(_DOCUMENT_KIND))
        if id not in kept:
            raise UnknownName("key", id, kept)
        key = kept[id]
        if key.revoked is None:
            key = msgspec.structs.replace(key, revoked=transaction.now)
            _put(transaction, key)
    return key


def every(store: Store) -> list[Key]:
    """All readable keys, including revoked ones, oldest first."""
    return sorted(_read(_documents(store)).values(), key=lambda key: (key.created, key.id))


def unreadable(store: Store) -> list[str]:
    """The ids of keys that cannot be read. They give no access."""
    documents = _documents(store)
    return sorted(documents.keys() - _read(documents).keys())


def _documents(store: Store) -> Mapping[str, str]:
    with store.reading("") as transaction:
        return transaction.documents(_DOCUMENT_KIND)


class Keyring:
    """A process's copy of the keys, refreshed every second.

    If the store cannot be reached, `refresh` raises and the copy stays as it is.
    """

    any_made: bool
    "Whether a key was ever created, including revoked and unreadable ones."

    def __init__(self, store: Store) -> None:
        self._store = store
        self._documents: Mapping[str, str] = {}
        self._kept: dict[str, tuple[bytes, Key]] = {}
        self.any_made = False
        self.refresh()

    def refresh(self) -> None:
        """Read the keys again. Blocks; other threads may call `find` at the same time."""
        documents = _documents(self._store)
        if documents == self._documents:
            return
        valid = [key for key in _read(documents).values() if key.revoked is None]
        # Once a key exists, keys stay required, even if all documents disappear.
        self.any_made = self.any_made or bool(documents)
        self._kept = {key.id: (bytes.fromhex(key.digest), key) for key in valid}
        self._documents = documents

    def find(self, secret: str) -> Key | None:
        """The key with this secret; None if there is none, or if it was revoked."""
        if len(secret) != _SECRET_LENGTH:
            return None
        kept = self._kept.get(secret[len(_PREFIX) : len(_PREFIX) + _ID_LENGTH])
        if kept is None:  # ids are not secret, so the time may differ
            return None
        digest, key = kept
        return key if hmac.compare_digest(_digest(secret), digest) else None


def check_no_keys(store: Store, host: str) -> None:
    """Raise if a service must not start with --no-keys: other machines could reach it, or keys exist."""
    if not is_loopback(host):
        raise InvalidValue("host", host, "127.0.0.1 or another loopback address with --no-keys")
    if _documents(store):
        raise InvalidValue("database", store.where, "a database without API keys with --no-keys")


def check_any_made(store: Store) -> None:
    """Raise if no key was ever created, so that nobody could use a service that requires keys."""
    if not _documents(store):
        allowed = "a database with an API key (maillard keys create), or no_keys=True"
        raise InvalidValue("database", store.where, allowed)


def _digest(secret: str) -> bytes:
    # Slow hashes protect guessable passwords. 256 random bits cannot be guessed, so a fast hash is enough.
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def _read(documents: Mapping[str, str]) -> dict[str, Key]:
    """The keys among the documents; skips unreadable ones."""
    found = {}
    for name, content in documents.items():
        try:
            key = msgspec.json.decode(content, type=Key)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if key.id == name:
            found[name] = key
    return found


def _scopes(scopes: Sequence[str]) -> tuple[Scope, ...]:
    allowed = "one or more of " + ", ".join(SCOPES)
    if isinstance(scopes, str) or not scopes:
        raise InvalidValue("scopes", scopes, allowed)
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidValue("scopes", scope, allowed)
    return tuple(scope for scope in SCOPES if scope in scopes)


def _experiments(experiments: Sequence[str] | None) -> tuple[str, ...] | None:
    if experiments is None:
        return None
    if isinstance(experiments, str) or not experiments:
        raise InvalidValue("experiments", experiments, "one or more names, or None for all")
    return tuple(sorted({check_name("experiments", name) for name in experiments}))


def _rate(rate: float | None) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate <= _MAX_RATE:
        return float(rate)
    raise InvalidValue("rate", rate, f"requests per second, more than 0 and at most {_MAX_RATE:g}")
