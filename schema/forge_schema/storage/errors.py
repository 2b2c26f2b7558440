"""What can go wrong between Forge and an object store."""

from forge_schema.model.errors import ForgeError


class StoreError(ForgeError):
    """The store refused or failed; trying again may or may not help."""

    code = "store_error"


class ObjectMissing(StoreError):
    """No object has this key."""

    code = "object_missing"


class KeyInvalid(StoreError):
    """The key is not one that every store can hold safely."""

    code = "key_invalid"


class ObjectTooLarge(StoreError):
    """The store takes no object of this size in one request, and will not take it later either."""

    code = "object_too_large"


class StoreUnreachable(StoreError):
    """The store does not answer, or does not let us in."""

    code = "store_unreachable"


class StoreUrlInvalid(StoreError):
    """The store's URL names no store: a typing error, or a bucket that does not exist."""

    code = "store_url_invalid"
