"""The events with which AWS invokes the functions, as its documentation shows them."""

from __future__ import annotations

import base64
import json
from typing import Any

HOST = "abc123.execute-api.eu-west-1.amazonaws.com"


def http_event(
    method: str,
    path: str,
    body: object = None,
    *,
    headers: dict[str, str] | None = None,
    query: str = "",
    encoded: bool = False,
) -> dict[str, Any]:
    """Return a request as an HTTP API sends it, payload format 2.0.

    Args:
        method: the HTTP method.
        path: the path, as the caller wrote it.
        body: the JSON body; None sends no body.
        headers: additional headers.
        query: the query string, without the question mark.
        encoded: whether the body is base64-encoded, as it is for other content types.
    """
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": f"{method} /{{proxy+}}",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {
            "accept": "*/*",
            "host": HOST,
            "user-agent": "forge",
            "x-amzn-trace-id": "Root=1-5e6722a7-cc56xmpl46db7ae02d4da47e",
            "x-forwarded-for": "203.0.113.7",
            "x-forwarded-port": "443",
            "x-forwarded-proto": "https",
            **{name.lower(): value for name, value in (headers or {}).items()},
        },
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "abc123",
            "domainName": HOST,
            "domainPrefix": "abc123",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "203.0.113.7",
                "userAgent": "forge",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": f"{method} /{{proxy+}}",
            "stage": "$default",
            "time": "10/Nov/2026:05:16:23 +0000",
            "timeEpoch": 1794287783220,
        },
        "isBase64Encoded": encoded,
    }
    if body is not None:
        text = json.dumps(body)
        event["headers"]["content-type"] = "application/json"
        event["headers"]["content-length"] = str(len(text.encode()))
        event["body"] = base64.b64encode(text.encode()).decode() if encoded else text
    return event


def scheduled_event() -> dict[str, Any]:
    """Return the event that EventBridge sends on a schedule."""
    return {
        "version": "0",
        "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "123456789012",
        "time": "2026-11-10T05:16:00Z",
        "region": "eu-west-1",
        "resources": ["arn:aws:events:eu-west-1:123456789012:rule/forge-sweep"],
        "detail": {},
    }
