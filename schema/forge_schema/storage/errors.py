"""Errors of object stores."""

from forge_schema.model.errors import ForgeError


class StoreError(ForgeError):
    """The store refused a request or failed. A retry may help or not."""

    code = "store_error"


class ObjectMissing(StoreError):
    """There is no object with this key."""

    code = "object_missing"


class KeyInvalid(StoreError):
    """The key is not safe in every store."""

    code = "key_invalid"


class ObjectTooLarge(StoreError):
    """The object is too large for one request to the store. A retry does not help."""

    code = "object_too_large"


class StoreUnreachable(StoreError):
    """The store does not answer or denies access."""

    code = "store_unreachable"


class StoreUrlInvalid(StoreError):
    """The store's URL is malformed, or names a bucket that does not exist."""

    code = "store_url_invalid"
