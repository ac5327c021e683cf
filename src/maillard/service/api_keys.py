"""API keys: who may call the service, and for what. They are kept beside the log, and their secrets are not kept at all."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from maillard.decisions.identifiers import check_name
from maillard.decisions.stores import Store
from maillard.errors import InvalidValue, UnknownName
from maillard.wire_schema.loopback import is_loopback

__all__ = [
    "SCOPES",
    "Key",
    "Keyring",
    "check_exposure",
    "create",
    "every",
    "revoke",
    "unreadable",
]

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[Scope, ...] = Scope.__args__  # type: ignore[attr-defined]

_KIND = "key"
_ID = 12  # hexadecimal digits
_SECRET = 32  # random bytes
_START = "mk_"
_LENGTH = len(_START) + _ID + 1 + 43  # of a whole secret; 32 bytes are 43 characters
_FASTEST = 1e9  # requests a second


# A field that is not known here may narrow a key, in a newer version: so such a key is not read at all.
class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a key."""

    id: Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{_ID}}}$")]
    "Names the key in lists and logs; it opens nothing."
    name: Annotated[str, msgspec.Meta(min_length=1)]
    "What it is for, in its owner's words."
    scopes: tuple[Scope, ...]
    "`admin` means all of them."
    experiments: tuple[str, ...] | None
    "The only ones that it reaches, whatever its scopes; None is all."
    rate: Annotated[float, msgspec.Meta(gt=0)] | None
    "Requests a second, in the place of the service's own limit."
    created: int
    "Microseconds since 1970, by the store's clock."
    revoked: int | None
    "The same."
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    "SHA-256 of the secret."

    def may(self, scope: str) -> bool:
        """Whether it has this scope."""
        return scope in self.scopes or "admin" in self.scopes

    def reaches(self, experiment: str) -> bool:
        """Whether it is for this experiment too."""
        return self.experiments is None or experiment in self.experiments


def create(
    store: Store,
    name: str,
    scopes: Sequence[str],
    experiments: Sequence[str] | None = None,
    rate: float | None = None,
) -> tuple[Key, str]:
    """A new key and its secret, which nothing can tell again. The experiments need not exist yet.

    >>> from maillard.decisions.stores import open_store
    >>> store = open_store(None)
    >>> key, secret = create(store, "web", ["reward", "decide"], experiments=["home"])
    >>> key.scopes, key.may("read"), key.reaches("home"), key.reaches("shop")
    (('decide', 'reward'), False, True, False)
    >>> Keyring(store).find(secret) == key
    True
    """
    check_name("name", name)
    chosen = _scopes(scopes)
    limited = _experiments(experiments)
    if rate is not None:
        rate = _rate(rate)
    with store.transaction("", lock=False) as transaction:
        taken = transaction.documents(_KIND)
        while (identifier := secrets.token_hex(_ID // 2)) in taken:
            pass
        secret = f"{_START}{identifier}_{secrets.token_urlsafe(_SECRET)}"
        key = Key(
            id=identifier,
            name=name,
            scopes=chosen,
            experiments=limited,
            rate=rate,
            created=transaction.now,
            revoked=None,
            digest=_digest(secret).hex(),
        )
        transaction.put_document(_KIND, identifier, msgspec.json.encode(key).decode())
    return key, secret


def revoke(store: Store, id: str) -> Key:
    """The key, which opens nothing any more: in every process, when its keyring is next refreshed.

    A key that was revoked before stays as it was.
    """
    with store.transaction("", lock=False) as transaction:
        kept = _read(transaction.documents(_KIND))
        if id not in kept:
            raise UnknownName("key", id, kept)
        key = kept[id]
        if key.revoked is None:
            key = msgspec.structs.replace(key, revoked=transaction.now)
            transaction.put_document(_KIND, id, msgspec.json.encode(key).decode())
    return key


def every(store: Store) -> list[Key]:
    """All keys that were ever made, the oldest first; those that cannot be read are not among them."""
    with store.reading("") as transaction:
        kept = _read(transaction.documents(_KIND))
    return sorted(kept.values(), key=lambda key: (key.created, key.id))


def unreadable(store: Store) -> list[str]:
    """The names of the documents that should be keys and are not. They open nothing."""
    with store.reading("") as transaction:
        documents = transaction.documents(_KIND)
    return sorted(documents.keys() - _read(documents).keys())


class Keyring:
    """The keys as a process knows them, to be refreshed every second.

    While the store does not answer, `refresh` raises and the keys stay as they were last read.
    """

    any_made: bool
    "Whether there ever was a key; one that was revoked, or that cannot be read, counts."

    def __init__(self, store: Store) -> None:
        self._store = store
        self._documents: Mapping[str, str] = {}
        self._kept: dict[str, tuple[bytes, Key]] = {}
        self.any_made = False
        self.refresh()

    def refresh(self) -> None:
        """Read the keys again. Blocking; other threads may call `find` meanwhile."""
        with self._store.reading("") as transaction:
            documents = transaction.documents(_KIND)
        if documents == self._documents:
            return
        live = {
            key.id: (bytes.fromhex(key.digest), key)
            for key in _read(documents).values()
            if key.revoked is None
        }
        # Never open again what was closed once: documents that are gone are no reason to trust everybody.
        self.any_made = self.any_made or bool(documents)
        self._kept, self._documents = live, documents

    def find(self, secret: str) -> Key | None:
        """The key of this secret; None where there is none, or where it was revoked."""
        if len(secret) != _LENGTH:
            return None
        kept = self._kept.get(secret[len(_START) : len(_START) + _ID])
        if kept is None:  # ids are no secret, so this may take less time than the rest
            return None
        digest, key = kept
        return key if hmac.compare_digest(_digest(secret), digest) else None


def check_exposure(store: Store, host: str) -> None:
    """Refuse to listen where others can reach a service that asks nobody for a key."""
    if is_loopback(host):
        return
    with store.reading("") as transaction:
        if transaction.documents(_KIND):
            return
    raise InvalidValue(
        "host",
        host,
        "127.0.0.1 or another loopback address as long as there is no API key "
        "(maillard keys create makes the first one)",
    )


def _digest(secret: str) -> bytes:
    # A fast hash is right here. Slow ones protect passwords, which can be guessed; nobody guesses 256 random bits.
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def _read(documents: Mapping[str, str]) -> dict[str, Key]:
    """Those of the documents that are keys."""
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


def _rate(rate: float) -> float:
    if isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate <= _FASTEST:
        return float(rate)
    raise InvalidValue("rate", rate, f"requests a second, more than 0 and at most {_FASTEST:g}")
